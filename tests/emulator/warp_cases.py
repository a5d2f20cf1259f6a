"""Shuffles, votes, matches, reductions and barriers of warps and blocks, and atomics that meet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from batches import Kernel
from case import LANES, Case, case_module
from form import Array
from form_operands import operands


def lanes(
    body: str,
    inputs: list[tuple[str, Array]],
    outputs: list[tuple[str, Array]],
    *,
    registers: str = "",
    block: int = 256,
    directives: str = "",
) -> tuple[Kernel, list[Array | None]]:
    """A kernel of warps: %a, %b, ... are loaded, the body runs, %x, %y, ... are stored. Types are b32, b64 and pred."""
    count = len(inputs[0][1])
    head, tail, declared = [], [], []
    for number, (letter, (kind, array)) in enumerate(zip("abcdefgh", inputs, strict=False)):
        size = array.itemsize
        head.append(f"ld.param.u64 %from, [p{number}]; mul.wide.u32 %o, %i, {size}; add.u64 %from, %from, %o;")
        load = f"ld.global.u8 %byte, [%from]; setp.ne.u32 %{letter}, %byte, 0;"
        head.append(load if kind == "pred" else f"ld.global.{kind} %{letter}, [%from];")
        declared.append(f".reg .{kind} %{letter};")
    for number, (letter, (kind, array)) in enumerate(zip("xyzwuvst", outputs, strict=False)):
        size = array.itemsize
        tail.append(f"ld.param.u64 %from, [q{number}]; mul.wide.u32 %o, %i, {size}; add.u64 %from, %from, %o;")
        store = f"selp.u32 %byte, 1, 0, %{letter}; st.global.u8 [%from], %byte;"
        tail.append(store if kind == "pred" else f"st.global.{kind} [%from], %{letter};")
        declared.append(f".reg .{kind} %{letter};")
    text = case_module(
        "mov.u32 %i, %ctaid.x; mov.u32 %byte, %ntid.x; mov.u32 %thread, %tid.x; mad.lo.u32 %i, %i, %byte, %thread;"
        + f"mov.u32 %lane, %laneid; {' '.join(head)} {body} {' '.join(tail)} ret;",
        ", ".join(
            [f".param .u64 p{n}" for n in range(len(inputs))] + [f".param .u64 q{n}" for n in range(len(outputs))]
        ),
        ".reg .b32 %i; .reg .b32 %byte; .reg .b32 %thread; .reg .b32 %lane; .reg .b64 %from; .reg .b64 %o;"
        + " ".join(declared)
        + registers,
        directives=directives,
    )
    block = min(count, block)
    arguments = [array for _, array in inputs] + [np.zeros_like(array) for _, array in outputs]
    expected: list[Array | None] = [None] * len(inputs) + [array for _, array in outputs]
    return Kernel(text, count // block, block, arguments), expected


def _bool(values: Any) -> Array:
    return np.asarray(values).astype(np.uint8)


def shuffles(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Every lane names a source, a segment and a bound of its own."""
    count = 2048 * size
    (values,) = operands(["b32"], count, 5)
    source = rng.integers(0, 64, count).astype(np.uint32)
    lane = np.tile(LANES, count // 32)
    warp = np.arange(count) // 32 * 32
    for mode in ("up", "down", "bfly", "idx"):
        width = 2 ** rng.integers(0, 6, count)
        clamp = np.where(rng.random(count) < 0.7, 0 if mode == "up" else 31, rng.integers(0, 32, count))
        segment = 32 - width
        control = (segment << 8 | clamp).astype(np.uint32)
        highest = (lane & segment) | (clamp & ~segment & 31)
        b = source.astype(np.int64) & 31
        if mode == "up":
            place = lane - b
            inside = place >= highest
        elif mode == "idx":
            place = (lane & segment) | (b & ~segment & 31)
            inside = place <= highest
        else:
            place = lane + b if mode == "down" else lane ^ b
            inside = place <= highest
        found = values[warp + np.where(inside, place, lane)]
        operation = f"shfl.sync.{mode}.b32"
        body = f"{operation} %x|%y, %a, %b, %c, -1; mov.b32 %z, %a; {operation} %z, %z, %b, %c, -1;"
        inputs = [("b32", values), ("b32", source), ("b32", control)]
        kernel, expected = lanes(body, inputs, [("b32", found), ("pred", _bool(inside)), ("b32", found)])
        yield Case(operation, [operation], kernel, expected)


def _by_warp(array: Array) -> Array:
    return array.reshape(-1, 32)


def votes(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Of lanes named in a mask of the warp's own; the others do not take part and keep a zero."""
    warps = 64 * size
    masks = rng.integers(1, 2**32, warps).astype(np.uint32)
    masks[:4] = [0xFFFFFFFF, 1, 0x80000000, 0x0F0F0F0F]
    member = (masks[:, None] >> LANES & 1).astype(bool)
    chance = rng.choice([0.0, 0.5, 0.97, 1.0], warps)[:, None]
    given = rng.random((warps, 32)) < chance
    mask = np.repeat(masks, 32)
    head = "shr.u32 %byte, %b, %lane; and.b32 %byte, %byte, 1; setp.ne.u32 %in, %byte, 0;"

    def spread(values: Array) -> Array:
        return np.where(member, np.asarray(values)[:, None], 0).ravel()

    results: dict[str, Array] = {
        "all": (given | ~member).all(1),
        "any": (given & member).any(1),
        "uni": (given | ~member).all(1) | ~(given & member).any(1),
    }
    for name, value in results.items():
        operation = f"vote.sync.{name}.pred"
        body = f"{head} setp.ne.u32 %x, 0, 0; @!%in bra $END; {operation} %x, %a, %b; $END:"
        kernel, expected = lanes(
            body,
            [("pred", _bool(given.ravel())), ("b32", mask)],
            [("pred", _bool(spread(value)))],
            registers=".reg .pred %in;",
        )
        yield Case(operation, [operation], kernel, expected)
    ballot = ((given & member) * (1 << LANES.astype(np.uint64))).sum(1).astype(np.uint32)
    operation = "vote.sync.ballot.b32"
    body = f"{head} mov.b32 %x, 0; mov.b32 %y, 0; @!%in bra $END; {operation} %x, %a, %b; activemask.b32 %y; $END:"
    kernel, expected = lanes(
        body,
        [("pred", _bool(given.ravel())), ("b32", mask)],
        [("b32", spread(ballot).astype(np.uint32)), ("b32", spread(masks).astype(np.uint32))],
        registers=".reg .pred %in;",
    )
    yield Case("vote.sync.ballot.b32, activemask.b32", [operation, "activemask.b32"], kernel, expected)
    first = member.argmax(1)
    body = f"""{head} mov.b32 %x, 0; setp.ne.u32 %y, 0, 0; @!%in bra $END; elect.sync %x|%y, %b; $END:"""
    chosen = (first[:, None] == LANES) & member
    kernel, expected = lanes(
        body,
        [("pred", _bool(given.ravel())), ("b32", mask)],
        [("b32", spread(first).astype(np.uint32)), ("pred", _bool(chosen.ravel()))],
        registers=".reg .pred %in;",
    )
    yield Case("elect.sync", ["elect.sync"], kernel, expected)


def matches(size: int, rng: np.random.Generator) -> Iterator[Case]:
    warps = 64 * size
    masks = rng.integers(1, 2**32, warps).astype(np.uint32)
    masks[: warps // 2] = 0xFFFFFFFF
    member = (masks[:, None] >> LANES & 1).astype(bool)
    powers = 1 << LANES.astype(np.uint64)
    head = "shr.u32 %byte, %b, %lane; and.b32 %byte, %byte, 1; setp.ne.u32 %in, %byte, 0; mov.b32 %x, 0;"
    for bits in (32, 64):
        dtype = f"u{bits // 8}"
        keys = rng.integers(0, rng.choice([1, 2, 5, 32], warps)[:, None], (warps, 32)).astype(dtype)
        keys = keys * np.array((1 << (bits - 1)) | 1, dtype)
        same = (keys[:, :, None] == keys[:, None, :]) & member[:, None, :] & member[:, :, None]
        found = (same * powers).sum(2).astype(np.uint32)
        inputs = [(f"b{bits}", keys.ravel()), ("b32", np.repeat(masks, 32))]
        operation = f"match.any.sync.b{bits}"
        body = f"{head} @!%in bra $END; {operation} %x, %a, %b; $END:"
        kernel, expected = lanes(body, inputs, [("b32", found.ravel())], registers=".reg .pred %in;")
        yield Case(operation, [operation], kernel, expected)
        one = np.array([len(set(k[m].tolist())) == 1 for k, m in zip(keys, member, strict=True)])
        operation = f"match.all.sync.b{bits}"
        body = f"{head} setp.ne.u32 %y, 0, 0; @!%in bra $END; {operation} %x|%y, %a, %b; $END:"
        mask = np.where(member & one[:, None], masks[:, None], 0).astype(np.uint32)
        kernel, expected = lanes(
            body,
            inputs,
            [("b32", mask.ravel()), ("pred", _bool((member & one[:, None]).ravel()))],
            registers=".reg .pred %in;",
        )
        yield Case(operation, [operation], kernel, expected)


REDUCTIONS: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def warp_reductions(size: int, rng: np.random.Generator) -> Iterator[Case]:
    warps = 64 * size
    masks = rng.integers(1, 2**32, warps).astype(np.uint32)
    masks[: warps // 2] = 0xFFFFFFFF
    member = (masks[:, None] >> LANES & 1).astype(bool)
    (values,) = operands(["b32"], warps * 32, 11)
    head = "shr.u32 %byte, %b, %lane; and.b32 %byte, %byte, 1; setp.ne.u32 %in, %byte, 0; mov.b32 %x, 0;"
    kinds = [f"{n}.{t}" for n in ("add", "min", "max") for t in ("u32", "s32")] + ["and.b32", "or.b32", "xor.b32"]
    for kind in kinds:
        function = REDUCTIONS[kind.partition(".")[0]]
        typed = _by_warp(values).view(np.int32 if kind.endswith("s32") else np.uint32)
        total = [function.reduce(v[m], dtype=typed.dtype) for v, m in zip(typed, member, strict=True)]
        found = np.where(member, np.array(total, typed.dtype)[:, None], 0).astype(typed.dtype).view(np.uint32)
        operation = f"redux.sync.{kind}"
        body = f"{head} @!%in bra $END; mov.b32 %x, %a; {operation} %x, %x, %b; $END:"
        inputs = [("b32", values), ("b32", np.repeat(masks, 32))]
        kernel, expected = lanes(body, inputs, [("b32", found.ravel())], registers=".reg .pred %in;")
        yield Case(operation, [operation], kernel, expected)


def barriers(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Reductions over a block by its barriers, and barriers that some warps only arrive at."""
    blocks, threads = 4 * size, 256
    given = rng.random((blocks, threads)) < rng.choice([0, 0.01, 0.5, 0.99, 1], blocks)[:, None]
    total, some = given.sum(1), given.any(1)
    for name, aligned in itertools.product(("bar", "bar.cta", "barrier", "barrier.cta"), ("", ".aligned")):
        body = f"""
        {name}.red.popc{aligned}.u32 %x, 1, %a; {name}.red.and{aligned}.pred %y, 2, !%a;
        {name}.red.or{aligned}.pred %z, 3, 256, %a;
        """
        shape = (blocks, threads)
        outputs = [
            ("b32", np.broadcast_to(total[:, None], shape).astype(np.uint32).ravel()),
            ("pred", _bool(np.broadcast_to(~some[:, None], shape)).ravel()),
            ("pred", _bool(np.broadcast_to(some[:, None], shape)).ravel()),
        ]
        kernel, expected = lanes(body, [("pred", _bool(given.ravel()))], outputs)
        names = [f"{name}.red.popc{aligned}.u32", f"{name}.red.and{aligned}.pred", f"{name}.red.or{aligned}.pred"]
        yield Case(f"{name}.red{aligned}", names, kernel, expected)
        # the lower half produces what the upper half takes, through shared memory, and both meet in the end
        (values,) = operands(["b32"], blocks * threads, 3)
        body = f"""
        shl.b32 %s, %thread, 2; mov.u32 %t, tile; add.u32 %s, %s, %t; setp.ge.u32 %upper, %thread, 128; mov.b32 %x, 0;
        @%upper bra $TAKE;
        st.shared.b32 [%s], %a;
        {name}.arrive{aligned} 1, 256;
        bra $JOIN;
        $TAKE: {name}.sync{aligned} 1, 256;
        ld.shared.b32 %x, [%s+-512];
        $JOIN: {name}.sync{aligned} 0;
        """
        taken = np.zeros((blocks, threads), np.uint32)
        taken[:, 128:] = values.reshape(blocks, threads)[:, :128]
        kernel, expected = lanes(
            body,
            [("b32", values)],
            [("b32", taken.ravel())],
            registers=".reg .b32 %s; .reg .b32 %t; .reg .pred %upper; .shared .align 16 .b8 tile[1024];",
        )
        yield Case(
            f"{name}.sync{aligned}, arrive", [f"{name}.sync{aligned}", f"{name}.arrive{aligned}"], kernel, expected
        )


def contended_atomics(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Many threads on few cells: the sum does not depend on their order."""
    count = 2048 * size
    places = 7
    for kind, dtype in (("u32", "u4"), ("s32", "i4"), ("u64", "u8"), ("s64", "i8")):
        bits = 8 * np.dtype(dtype).itemsize
        (raw,) = operands([f"b{bits}"], count, 13)
        values = raw.view(dtype)
        names = ["min", "max", "and", "or", "xor", "add"]
        cells = np.zeros((len(names), places), dtype)
        where = np.arange(count) % places
        expected = cells.copy()
        for row, name in enumerate(names):
            for place in range(places):
                mine = np.concatenate([cells[row, place : place + 1], values[where == place]])
                expected[row, place] = REDUCTIONS[name].reduce(mine, dtype=dtype)
        typed = [
            f"b{bits}" if n in ("and", "or", "xor") else "u64" if (n, kind) == ("add", "s64") else kind for n in names
        ]
        body = " ".join(
            f"red.global.{n}.{t} [%cell+{row * places * bits // 8}], %a;"
            for row, (n, t) in enumerate(zip(names, typed, strict=True))
        )
        text = case_module(
            f"""
            mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %thread, %tid.x; mad.lo.u32 %i, %i, %t, %thread;
            ld.param.u64 %from, [a]; mul.wide.u32 %o, %i, {bits // 8}; add.u64 %from, %from, %o;
            ld.global.b{bits} %a, [%from];
            rem.u32 %t, %i, {places}; ld.param.u64 %cell, [cells];
            mul.wide.u32 %o, %t, {bits // 8}; add.u64 %cell, %cell, %o;
            {body} ret;
            """,
            ".param .u64 a, .param .u64 cells",
            ".reg .b32 %i; .reg .b32 %t; .reg .b32 %thread; .reg .b64 %from; .reg .b64 %o; .reg .b64 %cell;"
            f".reg .b{bits} %a;",
        )
        operations = [f"red.global.{n}.{t}" for n, t in zip(names, typed, strict=True)]
        yield Case(
            f"red.global, contended, {kind}",
            operations,
            Kernel(text, count // 256, 256, [values, cells]),
            [None, expected],
        )
