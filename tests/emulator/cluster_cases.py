"""Blocks of a cluster that read, write and message each other, and blocks that end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from case import Case
from form import Array, bits_of
from form_operands import operands
from memory_form_parts import update_of
from product_cases import DTYPES
from warp_cases import lanes

from workbench.emulator import _engine


def clusters(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Two blocks of a cluster exchange words through each other's shared memory between two barriers of the cluster."""
    blocks, threads = 8 * size, 128
    (values,) = operands(["b32"], blocks * threads, 17)
    exchanged = np.ascontiguousarray(values.reshape(-1, 2, threads)[:, ::-1]).ravel()
    rank = np.repeat(np.arange(blocks) % 2, threads).astype(np.uint32)
    forms = [("", "", ""), (".release", ".acquire", ""), (".relaxed", ".acquire", "fence.acq_rel.cluster;")]
    for (arrive, wait, fence), aligned in itertools.product(forms, ("", ".aligned")):
        meet = f"{fence} barrier.cluster.arrive{arrive}{aligned}; barrier.cluster.wait{wait}{aligned};"
        body = f"""
        shl.b32 %s, %thread, 2; mov.u32 %t, tile; add.u32 %s, %s, %t; st.shared.b32 [%s], %a;
        {meet}
        mov.u32 %r, %cluster_ctarank; xor.b32 %peer, %r, 1;
        mapa.shared::cluster.u32 %there, %s, %peer; ld.shared::cluster.b32 %x, [%there];
        getctarank.shared::cluster.u32 %y, %there; getctarank.shared::cluster.u32 %z, %s;
        cvt.u64.u32 %wide, %s; mapa.shared::cluster.u64 %wide, %wide, %peer; ld.shared::cluster.b32 %w, [%wide];
        cvt.u64.u32 %wide, %s; cvta.shared.u64 %wide, %wide; mapa.u64 %wide, %wide, %peer; ld.b32 %u, [%wide];
        getctarank.u64 %v, %wide;
        {meet}
        """
        peers = (rank ^ 1).astype(np.uint32)
        found = (exchanged, peers, rank, exchanged, exchanged, peers)
        kernel, expected = lanes(
            body,
            [("b32", values)],
            [("b32", array) for array in found],
            registers=".reg .b32 %s; .reg .b32 %t; .reg .b32 %r; .reg .b32 %peer; .reg .b32 %there; .reg .b64 %wide;"
            f".shared .align 16 .b8 tile[{4 * threads}];",
            block=threads,
            directives=".explicitcluster .reqnctapercluster 2, 1, 1",
        )
        operations = [f"barrier.cluster.arrive{arrive}{aligned}", f"barrier.cluster.wait{wait}{aligned}"]
        yield Case(f"{operations[0]}, {operations[1].removeprefix('barrier.')}", operations, kernel, expected)


def messages(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """st.async, red.async and copies from shared memory: every block of a pair writes into the other's."""
    for operation, _ in _engine.operations():
        copies = "async.bulk.shared" in operation and ".shared.mbarrier" in operation
        if copies or operation.startswith(("st.async.", "red.async.")):
            yield _message(operation, 2 * size, rng)


def _message(operation: str, blocks: int, rng: np.random.Generator) -> Case:
    """Thread t of a block has a cell of its own in the other block, and may find a word of its own there before."""
    threads, kind = 128, operation.rpartition(".")[2]
    copies, reduces = operation.startswith("cp."), operation.startswith(("red.", "cp.reduce."))
    kind = "b32" if kind.endswith("bytes") else kind
    count = next((n for n in (2, 4) if f".v{n}." in operation), 1)
    bits = max(bits_of(kind), 32)
    columns = [_message_words(operation, kind, blocks * threads, rng) for _ in range(count + 1)]
    names, sent = "abcd"[:count], columns[:-1]
    there = [np.ascontiguousarray(c.reshape(-1, 2, threads)[:, ::-1]).ravel() for c in sent]
    if reduces:
        update, size = update_of(operation.split(".")[-2], kind, flush=False), bits_of(kind)
        fields = range(0, bits, size)

        def changed(old: int, new: int) -> int:
            low = (1 << size) - 1
            return sum(update(old >> at & low, new >> at & low) << at for at in fields)

        pairs = zip(columns[-1].tolist(), there[0].tolist(), strict=True)
        there = [np.array([changed(*pair) for pair in pairs], sent[0].dtype)]
    cell = count * bits // 8
    generic = operation.startswith(("st.", "red.")) and "shared" not in operation
    target, bar = ("%wide", "%widebar") if generic else ("%there", "%farbar")
    spelled = operation.replace("red.async", "red.async.relaxed.cluster").replace(".shared.mbar", ".shared::cta.mbar")
    if copies:
        send = f"@%first {spelled} [%theretile], [sent], {threads * cell}, [%farbar];"
    else:
        send = f"{spelled} [{target}], {_vector_of(names)}, [{bar}];"
    body = f"""
    mul.lo.u32 %s, %thread, {cell}; mov.u32 %t, sent; add.u32 %t, %t, %s;
    st.shared.b{bits} [%t], %a; mov.u32 %t, tile; add.u32 %s, %s, %t;
    {" ".join(f"st.shared.b{bits} [%s+{n * bits // 8}], %{'abcdefgh'[count]};" for n in range(count))}
    setp.eq.u32 %first, %thread, 0;
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {threads * cell};
    fence.mbarrier_init.release.cluster; fence.proxy.async;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mov.u32 %r, %cluster_ctarank; xor.b32 %r, %r, 1; mov.u32 %farbar, bar;
    mapa.shared::cluster.u32 %there, %s, %r; mapa.shared::cluster.u32 %farbar, %farbar, %r;
    mapa.shared::cluster.u32 %theretile, %t, %r;
    cvt.u64.u32 %wide, %there; cvta.shared::cluster.u64 %wide, %wide;
    cvt.u64.u32 %widebar, %farbar; cvta.shared::cluster.u64 %widebar, %widebar;
    {send}
    $WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], 0; @!%done bra $WAIT;
    {" ".join(f"ld.shared.b{bits} %{'xyzw'[n]}, [%s+{n * bits // 8}];" for n in range(count))}
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    """
    kernel, expected = lanes(
        body,
        [(f"b{bits}", column) for column in columns],
        [(f"b{bits}", column) for column in there],
        registers=".reg .b32 %s; .reg .b32 %t; .reg .b32 %r; .reg .b32 %there; .reg .b32 %theretile; .reg .b32 %farbar;"
        ".reg .b64 %wide; .reg .b64 %widebar; .reg .pred %first; .reg .pred %done; .shared .align 8 .b64 bar;"
        f".shared .align 16 .b8 tile[{threads * cell}]; .shared .align 16 .b8 sent[{threads * cell}];",
        block=threads,
        directives=".explicitcluster .reqnctapercluster 2, 1, 1",
    )
    return Case(operation, [operation], kernel, expected)


def _message_words(operation: str, kind: str, count: int, rng: np.random.Generator) -> Array:
    """Words of at least 32 bits; sums of floats are exact, and limits that wrap are met."""
    word = np.dtype(f"u{max(bits_of(kind), 32) // 8}")
    if "f" in kind and not operation.startswith("st."):
        values = rng.integers(-64, 65, count * word.itemsize * 8 // bits_of(kind)) / 8
        return np.ascontiguousarray(values.astype(DTYPES[kind])).view(word)
    if ".inc." in operation or ".dec." in operation:
        return rng.integers(0, 4, count).astype(word)
    return rng.integers(0, 2 ** (8 * word.itemsize), count, dtype=np.uint64).astype(word)


def _vector_of(names: str) -> str:
    joined = ", ".join(f"%{name}" for name in names)
    return joined if len(names) == 1 else f"{{{joined}}}"


def endings(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Threads that leave early in three ways, and warpgroups that trade registers."""
    count = 256 * size
    (values,) = operands(["b32"], count, 19)
    way = np.arange(count) % 4
    body = """
    and.b32 %k, %thread, 3; st.global.b32 [%to], %a;
    setp.eq.u32 %p, %k, 0; @%p exit; not.b32 %a, %a; st.global.b32 [%to], %a;
    setp.eq.u32 %p, %k, 1; @%p ret; neg.s32 %a, %a; st.global.b32 [%to], %a;
    setp.eq.u32 %p, %k, 2; @%p bra $LAST; shl.b32 %a, %a, 1; st.global.b32 [%to], %a;
    $LAST: ret.uni;
    """
    found = np.choose(way, [values, ~values, -~values, values])
    found = np.where(way == 3, (-~values).astype(np.uint32) << np.uint32(1), found).astype(np.uint32)
    registers = ".reg .b32 %k; .reg .pred %p; .reg .b64 %to;"
    body = "ld.param.u64 %to, [q0]; mul.wide.u32 %o, %i, 4; add.u64 %to, %to, %o;" + body
    kernel, expected = lanes(body, [("b32", values)], [("b32", found)], registers=registers)
    yield Case("exit, ret, ret.uni", ["exit", "ret", "ret.uni"], kernel, expected)
    body = """
    setp.lt.u32 %p, %thread, 128; @%p bra $FEW; setmaxnreg.inc.sync.aligned.u32 152; not.b32 %x, %a; bra $JOIN;
    $FEW: setmaxnreg.dec.sync.aligned.u32 40; neg.s32 %x, %a;
    $JOIN:
    """
    few = np.arange(count) % 256 < 128
    traded = np.where(few, (-values).astype(np.uint32), ~values)
    kernel, expected = lanes(
        body, [("b32", values)], [("b32", traded)], registers=".reg .pred %p;", directives=".maxntid 256\n.maxnreg 96"
    )
    names = ["setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32"]
    yield Case("setmaxnreg", names, kernel, expected)
    for operation in ("discard.global.L2", "discard.L2"):  # what is stored behind it counts
        body = f"""
        ld.param.u64 %to, [q0]; mul.wide.u32 %o, %i, 4; add.u64 %to, %to, %o; setp.eq.u32 %p, %lane, 0;
        @%p {operation} [%to], 128; bar.warp.sync -1; mov.b32 %x, %a;
        """
        kernel, expected = lanes(body, [("b32", values)], [("b32", values)], registers=registers)
        yield Case(operation, [operation], kernel, expected)
