"""Copies of cp.async and mbarriers against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asynchronous import REGISTERS, random_bytes
from emulation import Array, compile_cuda, fault_of, module
from sample_kernels import DEVICE

from workbench.emulator import FindingKind, Memory, Program, execute

# ------------------------------------------------------------------------------------------------------------ cp.async


@pytest.mark.parametrize(("hint", "size"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
@pytest.mark.parametrize("form", ["plain", "partial", "ignored"])
def test_small_copies(hint: str, size: int, form: str) -> None:
    """Thread i copies one piece; in the other forms some bytes of it, or of some pieces, become zero."""
    threads = 40
    last = {"plain": "", "partial": ", %part", "ignored": ", %skip"}[form]
    text = module(
        f"""
        mov.u32 %i, %tid.x; ld.param.u64 %a, [a]; ld.param.u64 %x, [x];
        mul.wide.u32 %o, %i, {size}; add.u64 %a, %a, %o; add.u64 %x, %x, %o;
        mul.lo.u32 %s, %i, {size}; mov.u32 %t, tile; add.u32 %s, %s, %t;
        rem.u32 %part, %i, {size + 1}; and.b32 %t, %i, 1; setp.eq.u32 %skip, %t, 1;
        cp.async.{hint}.shared.global [%s], [%a], {size}{last};
        cp.async.commit_group;
        cp.async.wait_group 0;
        {copy_bytes(size)}
        ret;
        """,
        ".param .u64 a, .param .u64 x",
        f"{REGISTERS} .reg .b32 %part; .reg .pred %skip; .shared .align 16 .b8 tile[{size * threads}];",
    )
    array = random_bytes(size * threads).reshape(threads, size)
    memory = Memory()
    a, x = memory.upload(array, "a"), memory.allocate(array.nbytes, "x")
    execute(Program.from_ptx(text).entries["k"], 1, threads, [a, x], memory=memory)
    expected = array.copy()
    for thread, row in enumerate(expected):
        if form == "partial":
            row[thread % (size + 1) :] = 0
        if form == "ignored" and thread & 1:
            row[:] = 0
    assert np.array_equal(memory.read(x, np.uint8, array.shape), expected)


def copy_bytes(size: int) -> str:
    """Bytes from [%s] in shared memory to [%x]."""
    return " ".join(f"ld.shared.u8 %v, [%s+{b}]; st.global.u8 [%x+{b}], %v;" for b in range(size))


GROUPS = (
    DEVICE
    + """
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ int tile[4];
    copy4(tile, a); copy4(tile + 1, a + 1); COMMIT;
    copy4(tile + 2, a + 2); COMMIT;
    copy4(tile + 3, a + 3);
#ifdef ALL
    asm volatile("cp.async.wait_all;" ::: "memory");
    x[0] = tile[0]; x[1] = tile[1]; x[2] = tile[2]; x[3] = tile[3];
#else
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    x[0] = tile[0]; x[1] = tile[1];
#ifdef EARLY
    x[2] = tile[2];
#endif
    COMMIT;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    x[2] = tile[2]; x[3] = tile[3];
#endif
}
"""
)


@pytest.mark.parametrize("define", ["ALL", "SOME"])
def test_waiting_for_groups(define: str) -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(4, dtype=np.int32) + 5, "a"), memory.allocate(16, "x")
    execute(compile_cuda(GROUPS, define).entries["k"], 1, 1, [a, x], memory=memory)
    assert memory.read(x, np.int32).tolist() == [5, 6, 7, 8]


def test_waiting_for_one_group_too_few() -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(4, dtype=np.int32), "a"), memory.allocate(16, "x")
    finding = fault_of(FindingKind.IN_FLIGHT, compile_cuda(GROUPS, "EARLY").entries["k"], 1, 1, [a, x], memory=memory)
    assert finding.array == "tile"
    assert "`tile` + 8 bytes" in str(finding)


def test_copies_that_arrive_at_an_mbarrier() -> None:
    source = (
        DEVICE
        + """
    extern "C" __global__ void k(const int* a, int* x) {
        __shared__ int tile[64];
        __shared__ __align__(8) u64 bar;
        int t = threadIdx.x;
        if (t == 0) init(&bar, 64);
        __syncthreads();
        copy4(tile + t, a + t);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(address(&bar)) : "memory");
        wait(&bar, 0);
        x[t] = tile[63 - t];
    }
    """
    )
    for seed in range(4):
        memory = Memory()
        a, x = memory.upload(np.arange(64, dtype=np.int32), "a"), memory.allocate(256, "x")
        execute(compile_cuda(source).entries["k"], 1, 64, [a, x], memory=memory, seed=seed)
        assert memory.read(x, np.int32).tolist() == list(range(63, -1, -1))


# ----------------------------------------------------------------------------------------------------------- mbarriers


def mbarrier(body: str, words: int = 8, **options: Any) -> Array:
    """One thread; %r0, %r1, ... are stored in the end. ``bar`` is an mbarrier in shared memory."""
    zeros = " ".join(f"mov.u32 %r{n}, 0;" for n in range(words))
    stores = " ".join(f"st.global.u32 [%x+{4 * n}], %r{n};" for n in range(words))
    text = module(
        f"ld.param.u64 %x, [x]; {zeros} {body} {stores} ret;",
        ".param .u64 x",
        f"{REGISTERS} .reg .b32 %r<{words}>; .reg .b64 %old; .shared .align 8 .b64 bar; .shared .align 8 .b64 other;",
    )
    memory = Memory()
    x = memory.allocate(4 * words, "x")
    execute(Program.from_ptx(text).entries["k"], 1, 1, [x], memory=memory, **options)
    return memory.read(x, np.uint32)


def ready(number: int, test: str) -> str:
    return f"mbarrier.test_wait{test}; selp.u32 %r{number}, 1, 0, %done;"


def test_a_phase_ends_with_its_last_arrival() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 3;
        mbarrier.arrive.shared.b64 %old, [bar];
        {ready(0, ".shared.b64 %done, [bar], %old")}
        mbarrier.arrive.shared.b64 %state, [bar], 1;
        {ready(1, ".parity.shared.b64 %done, [bar], 0")}
        {ready(2, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.arrive.shared::cta.b64 _, [bar];
        {ready(3, ".shared.b64 %done, [bar], %old")}
        {ready(4, ".parity.shared.b64 %done, [bar], 0")}
        {ready(5, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.arrive.shared.b64 %state, [bar], 3;
        {ready(6, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.pending_count.b64 %r7, %old;
        """
    )
    assert found[:7].tolist() == [0, 0, 1, 1, 1, 0, 1]
    assert found[7] == 3


def test_a_parity_may_be_a_bit_that_was_widened_with_its_sign() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 1;
        {ready(0, ".parity.shared.b64 %done, [bar], 0xffffffff")}
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(1, ".parity.shared.b64 %done, [bar], 0xffffffff")}
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(2, ".parity.shared.b64 %done, [bar], 0xffffffff")}
        """
    )
    assert found[:3].tolist() == [1, 0, 1]


def test_bytes_keep_a_phase_open() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 1;
        mbarrier.arrive.expect_tx.shared.b64 %old, [bar], 48;
        {ready(0, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 32;
        {ready(1, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 16;
        {ready(2, ".shared.b64 %done, [bar], %old")}
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;
        mbarrier.arrive.shared.b64 %old, [bar];
        {ready(3, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 16;
        {ready(4, ".shared.b64 %done, [bar], %old")}
        """
    )
    assert found[:5].tolist() == [0, 0, 1, 0, 1]


def test_a_dropped_participant_is_not_expected_again() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 2;
        mbarrier.arrive_drop.shared.b64 %old, [bar];
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(0, ".shared.b64 %done, [bar], %state")}
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(1, ".shared.b64 %done, [bar], %state")}
        """
    )
    assert found[:2].tolist() == [1, 1]


def test_generic_addresses_of_mbarriers() -> None:
    found = mbarrier(
        f"""
        mov.u64 %a, bar; cvta.shared.u64 %a, %a;
        mbarrier.init.b64 [%a], 1;
        mbarrier.arrive.b64 %old, [%a];
        {ready(0, ".b64 %done, [%a], %old")}
        mbarrier.inval.b64 [%a];
        """
    )
    assert found[0] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mbarrier.arrive.shared.b64 %old, [bar];", "mbarrier `bar` is not initialised"),
        ("mbarrier.init.shared.b64 [bar], 0;", "initialised with 0 arrivals"),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %old, [bar], 3;",
            "more arrivals at mbarrier `bar` than",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar];"
            "mbarrier.arrive.shared.b64 %old, [bar];",
            "not init",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %old, [bar];"
            "mbarrier.init.shared.b64 [bar], 2;",
            "initialises mbarrier `bar` again, initialised at",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.test_wait.parity.shared.b64 %done, [bar], 2;",
            "waits for parity 2 of mbarrier `bar`",
        ),
    ],
)
def test_misused_mbarriers(body: str, words: str) -> None:
    text = module(f"{body} ret;", "", f"{REGISTERS} .reg .b64 %old; .shared .align 8 .b64 bar;")
    finding = fault_of(FindingKind.MBARRIER_MISUSE, Program.from_ptx(text).entries["k"], 1, 1, [], memory=Memory())
    assert words in str(finding)


def test_a_block_waits_on_its_own_barriers_only() -> None:
    body = """
        mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %s, bar; mov.u32 %t, %cluster_ctarank; xor.b32 %t, %t, 1; mapa.shared::cluster.u32 %s, %s, %t;
        mbarrier.test_wait.parity.shared.b64 %done, [%s], 0; ret;
    """
    text = module(body, "", f"{REGISTERS} .shared .align 8 .b64 bar;")
    entry = Program.from_ptx(text).entries["k"]
    finding = fault_of(FindingKind.MBARRIER_MISUSE, entry, 2, 1, [], memory=Memory(), cluster=2)
    assert "of another block" in str(finding)
