"""Instructions of whole warps, blocks and tensors as launches with a NumPy definition of every array afterwards.

Like the forms of single lanes they serve the NumPy tests and the comparison with a GPU. ``size`` scales the random
data: with 1 a launch takes a fraction of a second in the emulator, with 16 some ten thousand results are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from batches import Kernel, Tensor
from emulation import module
from forms import Array, bits_of, operands
from memory_forms import update_of

from workbench.emulator import PixelBox, _engine

LANES = np.arange(32)


@dataclass
class Case:
    """One launch. ``expected``: what each array argument holds afterwards, None where it does not matter.

    ``near``: by number of the array, the magnitude that sums were made of and the largest error relative to it; all
    other arrays are equal in every bit. ``operations`` are those of the engine that the launch tests.
    """

    name: str
    operations: list[str]
    kernel: Kernel
    expected: list[Array | None]
    near: dict[int, tuple[Array, float]] = field(default_factory=dict)


def unequal(found: Array, expected: Array) -> Array:
    """Where arrays differ in a bit, a NaN being as good as another."""
    raw = [np.ascontiguousarray(a).view(f"u{a.itemsize}") for a in (found, expected)]
    wrong = np.asarray(raw[0] != raw[1])
    if found.dtype.kind == "f":
        wrong &= ~(np.isnan(found) & np.isnan(expected))
    return wrong


def _module(body: str, parameters: str, registers: str, **more: Any) -> str:
    return module(body, parameters, registers, **more).replace(".version 8.5", ".version 8.7")


# --------------------------------------------------------------------------------------------------------------- lanes


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
    text = _module(
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
        text = _module(
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


# -------------------------------------------------------------------------------------------------------- small tiles


def _vector(name: str, count: int, first: int = 0) -> str:
    return "{" + ", ".join(f"%{name}{n}" for n in range(first, first + count)) + "}"


def tile_moves(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """ldmatrix and stmatrix: the rows of every warp's tile lie in an order of its own; and movmatrix."""
    warps = 8 * size
    for count, transposed, generic, store in itertools.product((1, 2, 4), (False, True), (False, True), (False, True)):
        tiles = rng.integers(0, 2**16, (warps, count, 8, 8)).astype(np.uint16)
        order = np.stack([rng.permutation(8 * count) for _ in range(warps)])
        lane, tile, element = np.ogrid[:32, :count, :2]
        row, column = lane // 4, lane % 4 * 2 + element
        fragments = tiles[:, tile, column, row] if transposed else tiles[:, tile, row, column]
        fragments = np.ascontiguousarray(fragments).view(np.uint32).reshape(warps * 32, count)
        rows = np.zeros((warps, 32, 8), np.uint16)
        np.put_along_axis(rows, order[:, :, None], tiles.reshape(warps, -1, 8), axis=1)
        places = np.zeros((warps, 32), np.uint32)
        places[:, : 8 * count] = 16 * order
        operation = f"{'st' if store else 'ld'}matrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}"
        operation += ".b16" if generic else ".shared.b16"
        at = "%g" if generic else "%s"
        move = f"{operation} [{at}], {_vector('r', count)};" if store else f"{operation} {_vector('r', count)}, [{at}];"
        # registers of a lane lie together in memory, so do the 16 bytes of a row
        registers = " ".join(
            f"{'ld' if store else 'st'}.global.b32 " + (f"%r{n}, [%f+{4 * n}];" if store else f"[%f+{4 * n}], %r{n};")
            for n in range(count)
        )
        rows_io = (
            "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%q];"
            if not store
            else "st.global.v4.b32 [%q], {%v0, %v1, %v2, %v3};"
        )
        own = (
            "st.shared.v4.b32 [%m], {%v0, %v1, %v2, %v3};"
            if not store
            else "ld.shared.v4.b32 {%v0, %v1, %v2, %v3}, [%m];"
        )
        zero = "st.shared.v4.b32 [%m], {0, 0, 0, 0}; bar.warp.sync -1;" if store else ""
        sequence = (
            f"{zero} {registers} {move} bar.warp.sync -1; {own} {rows_io}"
            if store
            else f"{rows_io} {own} bar.warp.sync -1; {move} {registers}"
        )
        text = _module(
            f"""
            mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %thread, %tid.x; mad.lo.u32 %i, %i, %t, %thread;
            ld.param.u64 %q, [rows]; mul.wide.u32 %o, %i, 16; add.u64 %q, %q, %o;
            ld.param.u64 %f, [fragments]; mul.wide.u32 %o, %i, {4 * count}; add.u64 %f, %f, %o;
            ld.param.u64 %g, [places]; mul.wide.u32 %o, %i, 4; add.u64 %g, %g, %o; ld.global.u32 %s, [%g];
            mov.u32 %t, tile; mul.lo.u32 %m, %thread, 16; add.u32 %m, %m, %t;
            and.b32 %thread, %thread, -32; mul.lo.u32 %thread, %thread, 16; add.u32 %t, %t, %thread; add.u32 %s, %s, %t;
            cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g;
            {sequence} ret;
            """,
            ".param .u64 rows, .param .u64 fragments, .param .u64 places",
            ".reg .b32 %i; .reg .b32 %t; .reg .b32 %thread; .reg .b32 %s; .reg .b32 %m; .reg .b64 %q; .reg .b64 %f;"
            ".reg .b64 %g; .reg .b64 %o; .reg .b32 %r<4>; .reg .b32 %v<4>; .shared .align 16 .b8 tile[4096];",
        )
        block = min(warps * 32, 256)
        rows = rows.reshape(warps * 32, 8)
        expected: list[Array | None]
        if store:
            arguments: list[Any] = [np.zeros_like(rows), fragments, places.ravel()]
            expected = [rows, None, None]
        else:
            arguments = [rows, np.zeros_like(fragments), places.ravel()]
            expected = [None, fragments, None]
        yield Case(operation, [operation], Kernel(text, warps * 32 // block, block, arguments), expected)
    (values,) = operands(["b32"], warps * 32, 17)
    turned = np.ascontiguousarray(values.view(np.uint16).reshape(warps, 8, 8).swapaxes(1, 2)).view(np.uint32)
    operation = "movmatrix.sync.aligned.m8n8.trans.b16"
    kernel, expected = lanes(f"{operation} %x, %a;", [("b32", values)], [("b32", turned.ravel())])
    yield Case(operation, [operation], kernel, expected)


# ------------------------------------------------------------------------------------------------------------ products

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s4": np.int8,  # of what is smaller than a byte, one element in each until it is stored
    "u4": np.uint8,
    "b1": np.uint8,
}
NARROW = {"s4": (-8, 7, 4), "u4": (0, 15, 4), "b1": (0, 1, 1)}
"""Smallest and largest number and bits of the types that are smaller than a byte."""
# largest error of a sum, relative to the sum of magnitudes: by the type of the result, or of the factors; of doubles
# that of four products, each of which may be rounded, here and in NumPy
_SUM_ERROR = {"f32": 2.0**-20, "f16": 2.0**-10, "f64": 2.0**-50, "e4m3": 2.0**-11, "e5m2": 2.0**-11}


def matrix_of(name: str, shape: tuple[int, ...], rng: np.random.Generator, whole: bool) -> Array:
    """Random elements: whole numbers whose sums are exact, or floats of zero mean and several magnitudes."""
    if name in NARROW:
        low, high, _ = NARROW[name]
        return rng.integers(low, high, shape, endpoint=True).astype(DTYPES[name])
    if name in ("s8", "u8", "s32"):
        info = np.iinfo(DTYPES[name])
        low, high = (info.min, info.max) if name != "s32" else (-(2**20), 2**20)
        return rng.integers(low, high, shape, endpoint=True).astype(DTYPES[name])
    if whole:
        return rng.integers(-2, 3, shape).astype(np.float32).astype(DTYPES[name])
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-2, 3, shape)
    if name == "f64":
        return values
    single = values.astype(np.float32)
    if name == "tf32":
        single = (single.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return single.astype(DTYPES[name])


def _bits(name: str) -> int:
    return NARROW[name][2] if name in NARROW else 8 * np.dtype(DTYPES[name]).itemsize


def packed(elements: Array, name: str) -> Array:
    """Bytes of elements, whose last axis is contiguous; what is smaller than a byte from its low bits on."""
    bits = _bits(name)
    if bits < 8:
        apart = elements.reshape(*elements.shape[:-1], -1, 8 // bits).astype(np.int64) & ((1 << bits) - 1)
        elements = (apart << bits * np.arange(8 // bits)).sum(-1).astype(np.uint8)
    return np.ascontiguousarray(elements).view(np.uint8)


def _pack(matrices: Array, rows: Array, columns: Array, name: str) -> Array:
    """Registers [warp * 32 + lane][register] of fragments of matrices [warp][row][column]."""
    taken = packed(matrices[:, rows, columns], name)
    return taken.view(np.uint64 if matrices.itemsize == 8 else np.uint32).reshape(len(matrices) * 32, -1)


def _places_a(rows: int, depth: int, per: int) -> tuple[Array, Array]:
    lane, register, element = np.ogrid[:32, : rows * depth // (32 * per), :per]
    below, beyond = register % (rows // 8), register // (rows // 8)
    return lane // 4 + 8 * below + 0 * element, lane % 4 * per + element + beyond * 4 * per


def _places_b(depth: int, per: int) -> tuple[Array, Array]:
    lane, register, element = np.ogrid[:32, : depth // (4 * per), :per]
    return lane % 4 * per + element + register * 4 * per, lane // 4 + 0 * register + 0 * element


def _places_c(rows: int) -> tuple[Array, Array]:
    lane, number = np.ogrid[:32, : rows // 4]
    return lane // 4 + 8 * (number >> 1), lane % 4 * 2 + (number & 1)


MMA = [
    ("m16n8k16", "f32", "bf16", "bf16"),
    ("m16n8k8", "f32", "bf16", "bf16"),
    ("m16n8k16", "f32", "f16", "f16"),
    ("m16n8k8", "f32", "f16", "f16"),
    ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "f16", "f16", "f16"),
    ("m16n8k8", "f32", "tf32", "tf32"),
    ("m16n8k4", "f32", "tf32", "tf32"),
    *((f"m16n8k{k}", "s32", a, b) for k in (16, 32) for a in ("s8", "u8") for b in ("s8", "u8")),
    *(
        (f"m16n8k{k}", d, a, b)
        for k in (16, 32)
        for a in ("e4m3", "e5m2")
        for b in ("e4m3", "e5m2")
        for d in ("f32", "f16")
    ),
]


# shapes that have fewer rows, or elements smaller than a byte; what follows the types
NARROW_MMA = [
    *(("m8n8k16", f"{a}8", f"{b}8", "") for a in "su" for b in "su"),
    *((shape, f"{a}4", f"{b}4", "") for shape in ("m8n8k32", "m16n8k32", "m16n8k64") for a in "su" for b in "su"),
    *((f"m{m}n8k{k}", "b1", "b1", f".{f}.popc") for m, k in ((8, 128), (16, 128), (16, 256)) for f in ("and", "xor")),
]


def _near_the_ends(sums: Array, rng: np.random.Generator) -> None:
    """Makes some of the numbers to which products are added such that they wrap or saturate."""
    some = sums[: max(len(sums) // 4, 1)]
    some[:] = rng.choice([2**31 - 1, -(2**31), 2**31 - 1000], some.shape)


def _product(left: Array, right: Array, operation: str = "") -> Array:
    """Of whole numbers or floats [..., row, depth] and [..., depth, column], exact where its type can be."""
    if "xor" in operation:
        return np.asarray((left[..., :, :, None] ^ right[..., None, :, :]).sum(-2, dtype=np.int64))
    wide: Any = np.int64 if left.dtype.kind in "iu" else np.float64
    return np.asarray(left.astype(wide) @ right.astype(wide))


def _as_integers(exact: Array, saturate: bool) -> Array:
    exact = np.clip(exact, -(2**31), 2**31 - 1) if saturate else exact
    return exact.astype(np.int64).astype(np.uint32).view(np.int32)


def products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """mma.sync on exact whole numbers and on floats, with the result beside C and in C's place."""
    for (shape, d, a, b), whole in itertools.product(MMA, (True, False)):
        if not (whole and d == "s32"):
            yield from _mma_cases(16 * size, shape, d, a, b, "", whole, rng)


def narrow_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """mma.sync of fewer rows, and of elements smaller than a byte."""
    for shape, a, b, end in NARROW_MMA:
        yield from _mma_cases(16 * size, shape, "s32", a, b, end, False, rng)


def double_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    for shape, whole in itertools.product(("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), (True, False)):
        yield from _mma_cases(16 * size, shape, "f64", "f64", "f64", "", whole, rng)


def _mma_cases(
    warps: int, shape: str, d: str, a: str, b: str, end: str, whole: bool, rng: np.random.Generator
) -> Iterator[Case]:
    """One shape and its types, in the variants of rounding or saturation that there are; ``end`` follows the types."""
    rows, _, depth = (int(n) for n in shape[1:].replace("n", "k").split("k"))
    per = max(32 // _bits(a), 1)
    left = matrix_of(a, (warps, rows, depth), rng, whole)
    right = matrix_of(b, (warps, depth, 8), rng, whole)
    addend = matrix_of(d, (warps, rows, 8), rng, whole)
    if d == "s32":
        _near_the_ends(addend, rng)
    exact = _product(left, right, end) + addend.astype(np.int64 if d == "s32" else np.float64)
    scale = np.abs(left.astype(np.float64)) @ np.abs(right.astype(np.float64)) + np.abs(addend.astype(np.float64))
    places = (slice(None), *_places_c(rows))
    fragments = [_pack(left, *_places_a(rows, depth, per), a), _pack(right, *_places_b(depth, per), b)]
    fragments.append(_pack(addend, *_places_c(rows), d))
    variants = ("", ".rn") if d == "f64" else ("", ".satfinite") if d == "s32" and not end else ("",)
    for variant in variants:
        opcode = f"mma.sync.aligned.{shape}.row.col{variant}.{d}.{a}.{b}.{d}{end}"
        result = exact[places].reshape(warps * 32, -1)
        result = _as_integers(result, variant == ".satfinite") if d == "s32" else result.astype(DTYPES[d])
        kernel = _mma_kernel(opcode, fragments, [result, result])
        near = {}
        if not whole and d != "s32":
            bound = depth * 2.0**-52 if d == "f64" else max(_SUM_ERROR[d], _SUM_ERROR.get(a, 0.0))
            near = dict.fromkeys((3, 4), (scale[places].reshape(warps * 32, -1), bound))
        name = f"{opcode}{', whole numbers' if whole else ''}"
        yield Case(name, [opcode], kernel, [None] * 3 + [result, result], near)


def _mma_kernel(opcode: str, fragments: list[Array], results: list[Array]) -> Kernel:
    """Registers of A, B and C to those of D and, as a second result, to those of C."""
    width = fragments[0].itemsize
    kind = f"b{8 * width}"
    counts = [f.shape[1] for f in fragments] + [results[0][0].nbytes // width]
    loads = " ".join(
        f"ld.param.u64 %p, [p{n}]; mul.wide.u32 %o, %i, {width * count}; add.u64 %p, %p, %o;"
        + " ".join(f"ld.global.{kind} %{name}{r}, [%p+{width * r}];" for r in range(count))
        for n, (name, count) in enumerate(zip("abc", counts, strict=False))
    )
    stores = " ".join(
        f"ld.param.u64 %p, [p{n}]; mul.wide.u32 %o, %i, {width * counts[3]}; add.u64 %p, %p, %o;"
        + " ".join(f"st.global.{kind} [%p+{width * r}], %{name}{r};" for r in range(counts[3]))
        for n, name in enumerate("dc"[: len(results)], 3)
    )
    a, b, c, d = (_vector(n, k) for n, k in zip("abcd", counts, strict=True))
    multiply = " ".join(f"{opcode} {to}, {a}, {b}, {c};" for to in (d, c)[: len(results)])
    text = _module(
        f"""
        mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %o32, %tid.x; mad.lo.u32 %i, %i, %t, %o32;
        {loads} {multiply} {stores} ret;
        """,
        ", ".join(f".param .u64 p{n}" for n in range(3 + len(results))),
        ".reg .b32 %i; .reg .b32 %t; .reg .b32 %o32; .reg .b64 %p; .reg .b64 %o;"
        + " ".join(f".reg .{kind} %{n}<8>;" for n in "abcd"),
    )
    count = len(fragments[0])
    block = min(count, 128)
    return Kernel(text, count // block, block, [*fragments, *(np.zeros_like(result) for result in results)])


def quad_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """mma.m8n8k4 of halves: four products, each of four lanes and of the four that are 16 further on."""
    warps = 16 * size
    lane, number = np.ogrid[:32, :8]
    quad, at, beyond = lane // 4 % 4, lane % 4, 4 * (lane // 16)
    step = number[:, :4]
    accumulators = {
        "f16": (slice(None), quad, at + beyond, number),
        "f32": (slice(None), quad, (lane & 1) + (number & 2) + beyond, (number & 4) + (lane & 2) + (number & 1)),
    }
    types = (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))
    for layout_a, layout_b, (d, c), whole in itertools.product(("row", "col"), ("row", "col"), types, (True, False)):
        left, right = (matrix_of("f16", (warps, 4, *shape), rng, whole) for shape in ((8, 4), (4, 8)))
        addend = matrix_of(c, (warps, 4, 8, 8), rng, whole)
        fragments = [
            left[:, quad, at + beyond, step] if layout_a == "row" else left[:, quad, step + beyond, at],
            right[:, quad, at, step + beyond] if layout_b == "row" else right[:, quad, step, at + beyond],
            addend[accumulators[c]],
        ]
        fragments = [np.ascontiguousarray(f).view(np.uint32).reshape(warps * 32, -1) for f in fragments]
        exact = _product(left, right) + addend.astype(np.float64)
        scale = _product(np.abs(left), np.abs(right)) + np.abs(addend.astype(np.float64))
        result = exact[accumulators[d]].reshape(warps * 32, 8).astype(DTYPES[d])
        results = [result, result] if d == c else [result]
        opcode = f"mma.sync.aligned.m8n8k4.{layout_a}.{layout_b}.{d}.f16.f16.{c}"
        near = {}
        if not whole:
            near = dict.fromkeys(range(3, 3 + len(results)), (scale[accumulators[d]].reshape(-1, 8), _SUM_ERROR[d]))
        kernel = _mma_kernel(opcode, fragments, results)
        yield Case(f"{opcode}{', whole numbers' if whole else ''}", [opcode], kernel, [None] * 3 + results, near)


# ---------------------------------------------------------------------------------------------------------------- wmma

_DEEP = ("m16n16k16", "m32n8k16", "m8n32k16")
# shape; types of D, A, B and C; what stands after "mma", after the shape and after the types
WMMA = [
    *((shape, (d, "f16", "f16", c), "", "", "") for shape in _DEEP for d in ("f16", "f32") for c in ("f16", "f32")),
    *((shape, ("f32", "bf16", "bf16", "f32"), "", "", "") for shape in _DEEP),
    *(
        (shape, ("s32", kind, kind, "s32"), "", "", end)
        for shape, kinds in (*((shape, ("s8", "u8")) for shape in _DEEP), ("m8n8k32", ("s4", "u4")))
        for kind in kinds
        for end in ("", ".satfinite")
    ),
    ("m16n16k8", ("f32", "tf32", "tf32", "f32"), "", "", ""),
    *(("m8n8k4", ("f64",) * 4, "", rounding, end) for rounding, end in (("", ""), (".rn", ""), ("", ".rn"))),
    *(("m8n8k128", ("s32", "b1", "b1", "s32"), f".{f}.popc", "", "") for f in ("and", "xor")),
]


def fragments(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """wmma: products of matrices in memory, in all layouts and spaces, on whole numbers and on floats."""
    for (shape, types, *words), space, whole in itertools.product(WMMA, (".global", ".shared", ""), (True, False)):
        if not (whole and types[0] == "s32"):
            yield _wmma_case(2 * size, shape, types, words, space, whole, rng)


def _wmma_case(
    warps: int,
    shape: str,
    types: tuple[str, ...],
    words: list[str],
    space: str,
    whole: bool,
    rng: np.random.Generator,
) -> Case:
    """A warp a block multiplies its matrices once for each pair of layouts, into a D of its own and into C's."""
    d, a, b, c = types
    m, n, k = (int(x) for x in shape[1:].replace("n", "k").split("k"))
    matrices = {
        role: matrix_of(name, (warps, *lengths), rng, whole)
        for role, name, lengths in zip("abc", (a, b, c), ((m, k), (k, n), (m, n)), strict=True)
    }
    if c == "s32":
        _near_the_ends(matrices["c"], rng)
    exact = _product(matrices["a"], matrices["b"], words[0])
    exact = exact + matrices["c"].astype(exact.dtype)
    magnitudes = [np.abs(matrices[role].astype(np.float64)) for role in "abc"]
    scale = magnitudes[0] @ magnitudes[1] + magnitudes[2]
    result = _as_integers(exact, words[2] == ".satfinite") if d == "s32" else exact.astype(DTYPES[d])

    def lines(matrix: Array, layout: str, name: str) -> Array:  # dense, or with 16 bytes after each row or column
        across = matrix if layout == "row" else matrix.transpose(0, 2, 1)
        return np.pad(across, ((0, 0), (0, 0), (0, 128 // _bits(name) if space else 0)))

    every = list(itertools.product(("row", "col"), repeat=2))
    pairs = [("row", "col")] * 4 if a in NARROW else every  # of what is narrow PTX has one layout alone
    layouts = [(*pair, *more) for pair, more in zip(pairs, every[::-1], strict=True)]
    places: dict[tuple[str, str], tuple[int, int]] = {}  # where a matrix lies in memory, and its stride
    images, end = [], 0
    for role, name, place in zip("abc", (a, b, c), range(3), strict=True):
        for layout in sorted({each[place] for each in layouts}):
            padded = lines(matrices[role], layout, name)
            image = packed(padded, name).reshape(warps, -1)
            image = np.pad(image, ((0, 0), (0, -image.shape[1] % 32)))
            places[role, layout] = end, padded.shape[2]
            images.append(image)
            end += image.shape[1]
    given = np.concatenate(images, axis=1)
    sizes = zip("abcd", types[1:] + types[:1], (m * k, k * n, m * n, m * n), strict=True)
    count = {role: size * _bits(name) // 32 // max(_bits(name), 32) for role, name, size in sizes}
    if a == "f16":
        count.update(a=8, b=8)  # in all shapes
    kind = "f64" if d == "f64" else "b32"
    product = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{b}.{c}"
    operations, steps, at = [], [], 0
    targets = "dc" if d == c else "d"
    outputs, scales = [], []
    for layout_a, layout_b, layout_c, layout_d in layouts:
        for role, name, layout in zip("abc", (a, b, c), (layout_a, layout_b, layout_c), strict=True):
            operations.append(f"wmma.load.{role}.sync.aligned.{layout}.{shape}{space}.{name}")
            place, length = places[role, layout]
            stride = f", {length}" if space else ""
            steps.append(f"{operations[-1]} {_vector(role, count[role])}, [%in+{place}]{stride};")
        operations.append(
            f"wmma.mma{words[0]}.sync.aligned.{layout_a}.{layout_b}.{shape}{words[1]}.{product}{words[2]}"
        )
        factors = ", ".join(_vector(role, count[role]) for role in "abc")
        steps += [f"{operations[-1]} {_vector(target, count['d'])}, {factors};" for target in targets]
        operations.append(f"wmma.store.d.sync.aligned.{layout_d}.{shape}{space}.{d}")
        for target in targets:
            outputs.append(lines(result, layout_d, d))
            scales.append(lines(scale, layout_d, d))
            stride = f", {outputs[-1].shape[2]}" if space else ""
            steps.append(f"{operations[-1]} [%out+{at}], {_vector(target, count['d'])}{stride};")
            at += outputs[-1][0].nbytes
    expected = np.concatenate([o.reshape(warps, -1) for o in outputs], axis=1)
    magnitude = np.concatenate([o.reshape(warps, -1) for o in scales], axis=1)
    text = _wmma_text(" ".join(steps), given.shape[1], expected[0].nbytes, space, kind)
    near = {} if whole or d == "s32" else {1: (magnitude, _SUM_ERROR[d])}
    name = f"wmma{words[0]} {shape}{words[1]}.{product}{words[2]}, {space[1:] or 'generic'}"
    kernel = Kernel(text, warps, 32, [given, np.zeros_like(expected)])
    names = list(dict.fromkeys(operations))
    return Case(f"{name}{', whole numbers' if whole else ''}", names, kernel, [None, expected], near)


def _wmma_text(steps: str, given: int, found: int, space: str, kind: str) -> str:
    """``steps`` from %in to %out: the block's bytes in global memory, or copies of them in shared memory."""

    def copied(name: str, nbytes: int, load: str, store: str) -> str:
        return f"""
        mov.u32 %s, %tid.x; shl.b32 %s, %s, 2;
        {name}: setp.ge.u32 %p, %s, {nbytes}; @%p bra {name}_DONE; cvt.u64.u32 %o, %s;
        add.u64 %from, {load}, %o; add.u64 %to, {store}, %o; ld.b32 %v, [%from]; st.b32 [%to], %v;
        add.u32 %s, %s, 128; bra {name};
        {name}_DONE: bar.warp.sync -1;
        """

    begin = f"""
    mov.u32 %i, %ctaid.x;
    ld.param.u64 %in, [given]; mul.wide.u32 %o, %i, {given}; add.u64 %in, %in, %o; cvta.to.global.u64 %in, %in;
    ld.param.u64 %out, [found]; mul.wide.u32 %o, %i, {found}; add.u64 %out, %out, %o; cvta.to.global.u64 %out, %out;
    """
    if space == ".shared":
        begin += f"""
        mov.u64 %gin, %in; mov.u64 %gout, %out; mov.u64 %in, tile; cvta.shared.u64 %sin, %in;
        add.u64 %out, %in, {given}; add.u64 %sout, %sin, {given};
        {copied("GIVEN", given, "%gin", "%sin")} {copied("FOUND", found, "%gout", "%sout")}
        """
        steps += f" bar.warp.sync -1; {copied('BACK', found, '%sout', '%gout')}"
    elif not space:
        begin += "cvta.global.u64 %in, %in; cvta.global.u64 %out, %out;"
    return _module(
        f"{begin} {steps} ret;",
        ".param .u64 given, .param .u64 found",
        ".reg .b32 %i; .reg .b32 %s; .reg .b32 %v; .reg .pred %p; .reg .b64 %o; .reg .b64 %in; .reg .b64 %out;"
        ".reg .b64 %gin; .reg .b64 %gout; .reg .b64 %sin; .reg .b64 %sout; .reg .b64 %from; .reg .b64 %to;"
        + " ".join(f".reg .{kind} %{n}<8>;" for n in "abcd")
        + (f".shared .align 32 .b8 tile[{given + found}];" if space == ".shared" else ""),
    )


# --------------------------------------------------------------------------------------------------------- warpgroups

LAYOUT = {0: 0, 128: 1, 64: 2, 32: 3}  # of a descriptor, by bytes of the swizzle


def swizzled(tile: Array, swizzle: int) -> Array:
    """Bytes as they lie in shared memory from an address that is a multiple of 1024."""
    position = np.arange(tile.size)
    pattern = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    out = np.empty_like(tile)
    out[position ^ ((position >> 7) & pattern) << 4] = tile
    return out


def _descriptor(leading: int, stride: int, swizzle: int) -> int:
    return leading >> 4 << 16 | stride >> 4 << 32 | LAYOUT[swizzle] << 62


def _image(matrix: Array, swizzle: int, transposed: bool) -> tuple[Array, int]:
    """Bytes in shared memory of a matrix [rows][depth] and its descriptor without the address."""
    rows, depth = matrix.shape
    if transposed:  # rows are contiguous: slabs as wide as the swizzle
        across = swizzle // matrix.itemsize
        slabs = np.ascontiguousarray(matrix.T).reshape(depth, rows // across, across).transpose(1, 0, 2)
        raw = np.ascontiguousarray(slabs).view(np.uint8).ravel()
        return swizzled(raw, swizzle), _descriptor(depth * swizzle, 8 * swizzle, swizzle)
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, -1)
    width = raw.shape[1]
    if swizzle == 0:  # core matrices of 8 rows of 16 bytes: those of one depth follow one another
        return raw.reshape(rows, width // 16, 16).transpose(1, 0, 2).ravel(), _descriptor(rows * 16, 128, 0)
    padded = np.zeros((rows, swizzle), np.uint8)
    padded[:, :width] = raw
    return swizzled(padded.ravel(), swizzle), _descriptor(16, 8 * swizzle, swizzle)


WGMMA = [
    ("f32", "bf16", "bf16"),
    ("f32", "f16", "f16"),
    ("f16", "f16", "f16"),
    ("f32", "tf32", "tf32"),
    *((d, a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f32", "f16")),
]


def warpgroup_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """wgmma: all widths in a few kernels for each type, layouts, transpositions and signs by turns."""
    widths = list(range(8, 257, 8))
    turn = 0
    for (d, a, b), registers in itertools.product(WGMMA, (False, True)):
        for part in (widths[::4], widths[1::4], widths[2::4], widths[3::4]):
            swizzle = (128, 64, 32, 0)[(turn + turn // 4) % 4]
            whole = turn % 8 >= 4
            yield _warpgroup_case(d, a, b, part, swizzle, registers, False, False, (1, 1), True, whole, rng)
            turn += 1
    some = [n for n in widths if n % 16 == 0 or n < 32]  # of integers
    integers = [(a, b, d) for a in ("s8", "u8") for b in ("s8", "u8") for d in ("s32", "s32.satfinite")]
    integers += [("b1", "b1", "s32.and.popc")] * 2
    for number, ((a, b, d), registers) in enumerate(itertools.product(integers, (False, True))):
        for part in (some[::2], some[1::2]):
            swizzle = (128, 64, 32, 0)[(number + len(part)) % 4]
            yield _warpgroup_case(d, a, b, part, swizzle, registers, False, False, (1, 1), True, True, rng)
    for (d, a, b), swizzle in itertools.product(WGMMA[:3], (32, 64, 128)):
        for left, right in ((False, True), (True, False), (True, True)):
            yield _warpgroup_case(d, a, b, [64, 256], swizzle, False, left, right, (1, 1), True, swizzle == 64, rng)
        yield _warpgroup_case(d, a, b, [64], swizzle, True, False, True, (-1, 1), True, True, rng)
    for (d, a, b), signs in itertools.product(WGMMA[:3], ((-1, 1), (1, -1), (-1, -1))):
        yield _warpgroup_case(d, a, b, [16, 128], 128, False, False, False, signs, False, False, rng)


def _warpgroup_case(
    d: str,
    a: str,
    b: str,
    widths: list[int],
    swizzle: int,
    registers: bool,
    left_transposed: bool,
    right_transposed: bool,
    signs: tuple[int, int],
    keep: bool,
    whole: bool,
    rng: np.random.Generator,
) -> Case:
    """One warpgroup: the first columns of one B by the same A, once for every width.

    ``d`` may say what follows the types. Elements of A and B here are at least bytes: those are eight of single bits.
    """
    d, dot, end = d.partition(".")
    end = dot + end
    whole |= d == "s32"
    depth, columns = 256 // _bits(a), max(widths)
    if right_transposed:
        columns = max(columns, swizzle // 2)
    factors = matrix_of(a, (64, depth), rng, whole), matrix_of(b, (columns, depth), rng, whole)
    left, right = (packed(x, a) if a in NARROW else x for x in factors)
    a_image, a_descriptor = _image(left, swizzle, left_transposed)
    b_image, b_descriptor = _image(right, swizzle, right_transposed)
    thread, register, element = np.ogrid[:128, :4, : 4 // left.itemsize]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register & 1) + 0 * element
    per = 4 // left.itemsize
    fragments = np.ascontiguousarray(left[row, thread % 4 * per + element + (register >> 1) * 4 * per]).view(np.uint32)
    start = matrix_of(d, (64, columns), rng, whole)
    if d == "s32":
        start[::4] = rng.choice([2**31 - 1, -(2**31), 2**31 - 1000], start[::4].shape)
    wide = [x.astype(np.float64) for x in factors]
    product = (wide[0] * signs[0]) @ (wide[1].T * signs[1])
    scale = np.abs(wide[0]) @ np.abs(wide[1].T) + np.abs(start.astype(np.float64))
    exact = product + keep * start.astype(np.float64)
    half = d == "f16"
    thread, number = np.ogrid[:128, : columns // 2]
    rows = thread // 32 * 16 + thread % 32 // 4 + number // 2 % 2 * 8
    places = rows, number // 4 * 8 + thread % 4 * 2 + number % 2
    given = np.ascontiguousarray(start[places]).view(np.uint32).reshape(128, -1)
    kept = columns // (4 if half else 2)
    tail = "" if d == "s32" else f", {signs[0]}, {signs[1]}"
    if a in ("f16", "bf16"):
        tail += f", {int(right_transposed)}" if registers else f", {int(left_transposed)}, {int(right_transposed)}"
    at_once = 2 if half else 4  # registers loaded and stored
    step = f"v{at_once}"
    pieces, operations, wanted, sizes = [], [], [], []
    offset = 0
    for width in widths:
        count = width // (4 if half else 2)
        name = f"wgmma.mma_async.sync.aligned.m64n{width}k{depth}.{d}.{a}.{b}{end}"
        operations.append(name + (".rs" if registers else ""))
        vector = _vector("d", count)
        pieces.append(
            " ".join(
                f"ld.global.{step}.b32 {_vector('d', at_once, n)}, [%pd+{4 * n}];" for n in range(0, count, at_once)
            )
            + "wgmma.fence.sync.aligned;"
            + f"{name} {vector}, {_vector('a', 4) if registers else '%da'}, %db, {'%keep'}{tail};"
            + "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
            + " ".join(
                f"st.global.{step}.b32 [%px+{offset + 4 * n}], {_vector('d', at_once, n)};"
                for n in range(0, count, at_once)
            )
        )
        wanted.append(exact[places][:, : width // 2])
        sizes.append(scale[places][:, : width // 2])
        offset += 4 * count
    up = -(-a_image.nbytes // 1024) * 1024

    def fill(name: str, pointer: str, at: int, nbytes: int) -> str:
        return f"""
        mov.u32 %s, %i;
        {name}: setp.ge.u32 %p, %s, {nbytes // 4}; @%p bra {name}_DONE;
        mul.wide.u32 %o, %s, 4; add.u64 %q, {pointer}, %o; ld.global.b32 %v, [%q];
        shl.b32 %t, %s, 2; add.u32 %t, %t, %base;
        st.shared.b32 [%t+{at}], %v; add.u32 %s, %s, 128; bra {name};
        {name}_DONE:
        """

    text = _module(
        f"""
        mov.u32 %i, %tid.x; ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pd, [d]; ld.param.u64 %px, [x];
        mov.u32 %base, tile;
        {fill("FILL_A", "%pa", 0, a_image.nbytes)} {fill("FILL_B", "%pb", up, b_image.nbytes)}
        fence.proxy.async.shared::cta; bar.sync 0;
        mov.b64 %da, {a_descriptor}; mov.b64 %db, {b_descriptor};
        and.b32 %t, %base, 0x3ffff; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %da, %da, %o;
        add.u32 %t, %base, {up}; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %db, %db, %o;
        mul.wide.u32 %o, %i, {4 * kept}; add.u64 %pd, %pd, %o;
        mul.wide.u32 %o, %i, {offset}; add.u64 %px, %px, %o;
        ld.param.u64 %q, [fragments]; mul.wide.u32 %o, %i, 16; add.u64 %q, %q, %o;
        {" ".join(f"ld.global.b32 %a{n}, [%q+{4 * n}];" for n in range(4))}
        setp.ne.u32 %keep, %base, {"-1" if keep else "%base"};
        {" ".join(pieces)}
        ret;
        """,
        ".param .u64 a, .param .u64 b, .param .u64 fragments, .param .u64 d, .param .u64 x",
        ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b32 %base; .reg .pred %p; .reg .pred %keep;"
        ".reg .b64 %pa; .reg .b64 %pb; .reg .b64 %pd; .reg .b64 %px; .reg .b64 %o; .reg .b64 %q; .reg .b64 %da;"
        f".reg .b64 %db; .reg .b32 %a<4>; .reg .b32 %d<{kept}>; .shared .align 1024 .b8 tile[{up + b_image.nbytes}];",
        directives=".maxntid 128",
    )
    every = np.ascontiguousarray(np.concatenate(wanted, axis=1))
    if d == "s32":
        every = _as_integers(every, end == ".satfinite")
    result = every.astype(DTYPES[d])
    near = {}
    if not whole:
        bound = max(_SUM_ERROR[d], _SUM_ERROR.get(a, 0.0))
        near = {4: (np.concatenate(sizes, axis=1), bound)}
    arguments = [a_image, b_image, fragments.reshape(128, 4), given, np.zeros_like(result)]
    how = f"{'registers' if registers else 'A^T' if left_transposed else 'A'}{', B^T' if right_transposed else ''}"
    types = f"{d}.{a}.{b}{end}"
    name = f"wgmma k{depth} {types}, n {min(widths)} to {max(widths)}, swizzle {swizzle}, {how}, signs {signs}"
    name += (", keep" if keep else "") + (", whole numbers" if whole else "")
    operations += ["wgmma.fence.sync.aligned", "wgmma.commit_group.sync.aligned", "wgmma.wait_group.sync.aligned"]
    return Case(name, operations, Kernel(text, 1, 128, arguments), [None] * 4 + [result], near)


# --------------------------------------------------------------------------------------------------------------- boxes

BOXES = [
    ("float32", (40,), (16,), 0),
    ("uint8", (64, 20), (32, 8), 0),
    ("uint16", (64, 20), (64, 9), 128),
    ("uint16", (64, 20), (32, 9), 64),
    ("uint16", (64, 20), (16, 9), 32),
    ("float32", (36, 20), (8, 24), 32),
    ("float32", (32, 20), (16, 3), 64),
    ("uint64", (16, 6, 5), (4, 3, 2), 0),
    ("uint8", (128, 6, 5), (128, 3, 3), 128),
    ("uint16", (16, 6, 5, 3), (8, 4, 3, 2), 0),
    ("float32", (16, 6, 5, 3), (16, 4, 3, 2), 64),
    ("uint8", (32, 4, 3, 2, 3), (16, 3, 2, 2, 2), 0),
    ("uint8", (32, 4, 3, 2, 3), (32, 3, 2, 2, 2), 32),
]
_NUMPY = {"bfloat16": ml_dtypes.bfloat16}


def _dtype(name: str) -> Any:
    return np.dtype(_NUMPY.get(name, name))


def _inside(box: tuple[int, ...], corner: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Places in a box and in the tensor, both outermost first, of the elements that are in the tensor."""
    for place in itertools.product(*(range(n) for n in box)):
        position = tuple(c + p for c, p in zip(corner, place, strict=True))
        if all(0 <= p < n for p, n in zip(position, shape, strict=True)):
            yield place[::-1], position[::-1]


def _tensor_text(rank: int, nbytes: int, opcode: str, load: bool, offsets: tuple[int, ...] = ()) -> str:
    """One block moves one box between the tensor and ``x``, whose bytes are those of shared memory.

    ``offsets`` are those of the pixels in a load of the mode ``im2col``.
    """
    coordinates = ", ".join(f"%c{n}" for n in range(rank))
    coordinate_parameters = "".join(f", .param .s32 c{n}" for n in range(rank))
    head = f"""
    mov.u32 %i, %tid.x; ld.param.u64 %x, [x]; mov.b64 %m, map; cvta.param.u64 %m, %m; setp.eq.u32 %first, %i, 0;
    {" ".join(f"ld.param.s32 %c{n}, [c{n}];" for n in range(rank))}
    """
    if load:
        multicast = ", %rank" if "multicast" in opcode else ""
        shifts = f", {_vector('h', len(offsets))}" if offsets else ""
        prefetch = " ".join(
            f"{name} [%m, {{{coordinates}}}]{shifts};" for name in _prefetches(rank, "im2col" if offsets else "tile")
        )
        body = f"""
        @%first mbarrier.init.shared::cta.b64 [bar], 1;
        @%first fence.mbarrier_init.release.cluster;
        bar.sync 0;
        @!%first bra GO;
        prefetch.param.tensormap [map]; prefetch.tensormap [%m];
        {" ".join(f"mov.b16 %h{n}, {offset};" for n, offset in enumerate(offsets))} {prefetch}
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
        mov.b16 %rank, 1;
        {opcode} [tile], [%m, {{{coordinates}}}], [bar]{shifts}{multicast};
        GO: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], 0; @!%done bra GO;
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra END;
        mov.u32 %t, tile; add.u32 %t, %t, %s; ld.shared.u8 %v, [%t];
        cvt.u64.u32 %o, %s; add.u64 %a, %x, %o; st.global.u8 [%a], %v;
        add.u32 %s, %s, 64; bra LOOP;
        END: ret;
        """
    else:
        body = f"""
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra STORE;
        mov.u32 %t, tile; add.u32 %t, %t, %s; cvt.u64.u32 %o, %s; add.u64 %a, %x, %o;
        ld.global.u8 %v, [%a]; st.shared.u8 [%t], %v;
        add.u32 %s, %s, 64; bra LOOP;
        STORE: fence.proxy.async.shared::cta;
        bar.sync 0;
        @!%first bra END;
        {opcode} [%m, {{{coordinates}}}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        cp.async.bulk.wait_group 0;
        END: ret;
        """
    return _module(
        head + body,
        # the tensor's own array is a parameter too, but only reached through the map
        f".param .align 64 .b8 map[128], .param .u64 x{coordinate_parameters}, .param .u64 whole",
        ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b64 %a; .reg .b64 %x; .reg .b64 %o;"
        ".reg .b64 %m; .reg .pred %done; .reg .pred %first; .reg .pred %p; .reg .b16 %rank;"
        f".reg .b32 %c<5>; .reg .b16 %h<3>; .shared .align 1024 .b8 tile[{nbytes}]; .shared .align 8 .b64 bar;",
    )


def _prefetches(rank: int, mode: str) -> list[str]:
    """Of tiles the mode need not be said."""
    name = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global"
    return [f"{name}.im2col"] if mode == "im2col" else [f"{name}.tile", name]


def box_corners(
    shape: tuple[int, ...], itemsize: int, size: int, rng: np.random.Generator, *, store: bool
) -> list[tuple[int, ...]]:
    """Where boxes begin: at multiples of 16 bytes within a row, and nowhere negative in a store."""
    fixed = [(0,) * len(shape), tuple(n - 2 for n in shape), (-3,) * len(shape), tuple(n // 2 for n in shape)]
    drawn = [tuple(int(rng.integers(-6, n + 4)) for n in shape) for _ in range(2 * (size - 1))]
    step = max(16 // itemsize, 1)
    aligned = [(corner[0] // step * step, *corner[1:]) for corner in [*fixed, *drawn]]
    return [tuple(max(place, 0) for place in corner) for corner in aligned] if store else aligned


def _random_tensor(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.integers(0, 256, int(np.prod(shape)) * dtype.itemsize).astype(np.uint8).view(dtype).reshape(shape[::-1])


def boxes(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Tensor copies of boxes partly outside, in all ranks and swizzles, to shared memory and back."""
    spelled = [
        f"cp.async.bulk.tensor.{{}}d.shared::{space}.global{tile}.mbarrier::complete_tx::bytes{multicast}"
        for tile in (".tile", "")
        for space, multicast in (("cluster", ""), ("cluster", ".multicast::cluster"), ("cta", ""))
    ]
    for kind, shape, box, swizzle in BOXES:
        rank, dtype = len(shape), _dtype(kind)
        corners = box_corners(shape, dtype.itemsize, size, rng, store=False)
        for opcode, corner in itertools.islice(
            zip(itertools.cycle(spelled), itertools.cycle(corners), strict=False), max(len(spelled), len(corners))
        ):
            opcode = opcode.format(rank)
            array, tile = _random_tensor(dtype, shape, rng), np.zeros(box[::-1], dtype)
            for place, position in _inside(box, corner, shape):
                tile[place] = array[position]
            image = swizzled(tile.view(np.uint8).ravel(), swizzle)
            text = _tensor_text(rank, tile.nbytes, opcode, load=True)
            tensor = (kind, shape, array.strides[:-1][::-1], box, swizzle)
            name = f"load {opcode} {kind} {shape} {box} at {corner}, swizzle {swizzle}"
            yield _box_case(name, opcode, text, tensor, corner, (np.zeros_like(image), image), (array, array))
        for number, corner in enumerate(box_corners(shape, dtype.itemsize, size, rng, store=True)):
            opcode = f"cp.async.bulk.tensor.{rank}d.global.shared::cta{'.tile' if number % 2 else ''}.bulk_group"
            array, tile = _random_tensor(dtype, shape, rng), _random_tensor(dtype, box, rng)
            after = array.copy()
            for place, position in _inside(box, corner, shape):
                after[position] = tile[place]
            image = swizzled(tile.view(np.uint8).ravel(), swizzle)
            text = _tensor_text(rank, tile.nbytes, opcode, load=False)
            tensor = (kind, shape, array.strides[:-1][::-1], box, swizzle)
            name = f"store {opcode} {kind} {shape} {box} at {corner}, swizzle {swizzle}"
            yield _box_case(name, opcode, text, tensor, corner, (image, image), (array, after))


def _box_case(
    name: str,
    opcode: str,
    text: str,
    tensor: tuple[Any, ...],
    corner: tuple[int, ...],
    images: tuple[Array, Array],
    arrays: tuple[Array, Array],
) -> Case:
    """``tensor``: what follows the array in a ``Tensor``; images of the box and arrays are before and after."""
    arguments: list[Any] = [None, images[0], *(np.int32(c) for c in corner), arrays[0]]
    arguments[0] = Tensor(len(arguments) - 1, *tensor)
    operations = [opcode.replace("shared::cta", "shared")]
    rank = len(corner)
    if name.startswith("load"):
        mode = "im2col" if ".im2col" in opcode else "tile"
        operations += [*_prefetches(rank, mode), "prefetch.param.tensormap", "prefetch.tensormap"]
    else:
        operations += ["cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read"]
    return Case(name, operations, Kernel(text, 1, 64, arguments), [images[1], arrays[1]])


TENSOR_REDUCTIONS = {
    "add": ("uint32", "int32", "uint64", "float16", "bfloat16", "float32", "float64"),
    "min": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "max": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": ("uint32", "uint64", "int32"),
    "or": ("uint32", "uint64", "int64"),
    "xor": ("uint32", "uint64"),
}


def _reduced_tensor(name: str, dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random elements, such that sums of floats are exact and limits are met."""
    if dtype.kind in "fV":
        return np.asarray(rng.integers(-8, 9, shape[::-1]).astype(np.float32).astype(dtype))
    if name in ("inc", "dec"):
        return rng.integers(0, 4, shape[::-1]).astype(dtype)
    return _random_tensor(dtype, shape, rng)


def _reduced(name: str, old: Array, new: Array) -> Array:
    with np.errstate(over="ignore"):
        if name == "inc":
            return np.where(old >= new, 0, old + 1).astype(old.dtype)
        if name == "dec":
            return np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype)
        return np.asarray(REDUCTIONS[name](old, new))


def box_reductions(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """cp.reduce on boxes partly outside, for the types of elements that each reduction knows."""
    for rank, (name, types) in itertools.product((1, 2, 3, 4, 5), TENSOR_REDUCTIONS.items()):
        drawn = rng.permutation(types)[:2] if size == 1 and len(types) > 2 else types
        elements = [str(t) for t in drawn] * (3 - len(drawn) if len(drawn) < 3 else 1)
        for number, element in enumerate(elements):
            dtype = _dtype(element)
            across = 64 // dtype.itemsize
            shape, box = (across, 3, 4, 3, 3)[:rank], (across // 2, 2, 3, 2, 2)[:rank]
            corner = (across * 3 // 4, 2, 2, 1, 2)[:rank]
            array, tile = (_reduced_tensor(name, dtype, s, rng) for s in (shape, box))
            after = array.copy()
            for place, position in _inside(box, corner, shape):
                after[position] = _reduced(name, array[position], tile[place])
            tiled = ".tile" if number % 2 else ""
            opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{name}{tiled}.bulk_group"
            map_ = (element, shape, array.strides[:-1][::-1], box)
            text = _tensor_text(rank, tile.nbytes, opcode, load=False)
            title = f"reduce {opcode} {element} {shape} {box} at {corner}"
            image = tile.view(np.uint8).ravel()
            yield _box_case(title, opcode, text, map_, corner, (image, image), (array, after))


# element; shape and steps of the walk innermost first; corners of the pixels' bounding box; channels, pixels, swizzle;
# offsets
PIXELS = [
    ("float32", (8, 9, 3), (1, 1, 1), (-1,), (-1,), 8, 20, 0, (2,)),
    ("uint16", (64, 11, 4), (1, 2, 1), (-3,), (2,), 32, 12, 64, (5,)),
    ("uint16", (16, 7, 5, 3), (1, 1, 1, 1), (-1, -1), (-1, -1), 16, 30, 32, (1, 2)),
    ("uint16", (64, 6, 5, 2), (1, 2, 3, 1), (0, -2), (1, 0), 64, 9, 128, (0, 1)),
    ("uint8", (32, 4, 3, 3, 2), (1, 1, 2, 1, 1), (-1, 0, -1), (0, 0, 1), 16, 40, 0, (1, 0, 2)),
]


def walk(
    shape: tuple[int, ...], steps: tuple[int, ...], box: PixelBox, corner: tuple[int, ...], offsets: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Positions of the pixels of a tile, without channels: an odometer whose digits run from corner to corner."""
    digits = list(corner[1:])
    pixels = []
    for _ in range(box.pixels):
        pixels.append(tuple(d + o for d, o in zip(digits, (*offsets, 0), strict=True)))
        for place in range(len(digits)):
            digits[place] += steps[place + 1]
            if place == len(digits) - 1 or digits[place] <= shape[place + 1] - 1 + box.upper[place]:
                break
            digits[place] = box.lower[place]
    return pixels


def _pixels_inside(
    shape: tuple[int, ...], steps: tuple[int, ...], box: PixelBox, corner: tuple[int, ...], offsets: tuple[int, ...]
) -> Iterator[tuple[Any, Any]]:
    """Places in a tile [pixel][channel] and in the tensor of the channels that are in the tensor."""
    first = corner[0]
    channels = slice(first, min(first + box.channels, shape[0]))
    for row, place in enumerate(walk(shape, steps, box, corner, offsets)):
        if all(0 <= p < n for p, n in zip(place, shape[1:], strict=True)):
            yield (row, slice(0, channels.stop - first)), (*place[::-1], channels)


def pixels(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Tensor copies and reductions in the mode im2col: tiles of pixels partly outside."""
    spelled = [
        f"cp.async.bulk.tensor.{{}}d.shared::{space}.global.im2col.mbarrier::complete_tx::bytes{multicast}"
        for space, multicast in (("cluster", ""), ("cluster", ".multicast::cluster"), ("cta", ""))
    ]
    for kind, shape, steps, lower, upper, channels, count, swizzle, offsets in PIXELS:
        rank, dtype = len(shape), _dtype(kind)
        box = PixelBox(lower, upper, channels, count)
        across = 16 // dtype.itemsize
        starts = [(0, *lower, 0), (shape[0] - across, *lower, 1), (0, *(low + 1 for low in lower), 0)]
        for _ in range(2 * size - 2):
            inner = [int(rng.integers(low, n + up)) for low, up, n in zip(lower, upper, shape[1:-1], strict=True)]
            starts.append((int(rng.integers(0, shape[0] // across)) * across, *inner, int(rng.integers(0, shape[-1]))))
        for number, corner in enumerate(starts):
            shifts = tuple(int(rng.integers(0, 4)) for _ in offsets) if number > 2 else offsets
            opcode = spelled[number % 3].format(rank)
            array, tile = _random_tensor(dtype, shape, rng), np.zeros((count, channels), dtype)
            for place, position in _pixels_inside(shape, steps, box, corner, shifts):
                tile[place] = array[position]
            image = swizzled(tile.view(np.uint8).ravel(), swizzle)
            text = _tensor_text(rank, tile.nbytes, opcode, load=True, offsets=shifts)
            tensor = (kind, shape, array.strides[:-1][::-1], box, swizzle, steps)
            name = f"load {opcode} {kind} {shape} {box} at {corner}, steps {steps}, offsets {shifts}, swizzle {swizzle}"
            yield _box_case(name, opcode, text, tensor, corner, (np.zeros_like(image), image), (array, array))
    # of int64 the device refuses "or", whatever the mode
    reductions = [
        (name, [t for t in types if (name, t) != ("or", "int64")][: None if size > 1 else 1])
        for name, types in TENSOR_REDUCTIONS.items()
    ]
    for (kind, shape, steps, _, upper, channels, count, swizzle, _), (name, types) in itertools.product(
        PIXELS, [("", [""]), *reductions]
    ):
        for element in types:
            dtype, rank = _dtype(element or kind), len(shape)
            # a device ends stores whose bounding box begins at a negative place or reaches beyond the tensor
            within = tuple(min(up, 0) for up in upper)
            box = PixelBox((0,) * (rank - 2), within, 16 // dtype.itemsize if name else channels, count)
            sizes = (32 // dtype.itemsize if name else shape[0], *shape[1:])
            for corner in ((0,) * rank, (16 // dtype.itemsize, *(1,) * (rank - 2), 1)):
                array, tile = (_reduced_tensor(name, dtype, s, rng) for s in (sizes, (box.channels, count)))
                after = array.copy()
                for place, position in _pixels_inside(sizes, steps, box, corner, (0,) * (rank - 2)):
                    after[position] = _reduced(name, after[position], tile[place]) if name else tile[place]
                tiled = 0 if name else swizzle
                image = swizzled(tile.view(np.uint8).ravel(), tiled)
                base = f"cp.reduce.async.bulk.tensor.{rank}d" if name else f"cp.async.bulk.tensor.{rank}d"
                opcode = f"{base}.global.shared::cta{name and '.' + name}.im2col_no_offs.bulk_group"
                text = _tensor_text(rank, tile.nbytes, opcode, load=False)
                tensor = (element or kind, sizes, array.strides[:-1][::-1], box, tiled, steps)
                title = f"{'reduce' if name else 'store'} {opcode} {element or kind} {sizes} {box} at {corner}"
                yield _box_case(title, opcode, text, tensor, corner, (image, image), (array, after))


def box_options(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Padded rows, steps between elements, and NaN outside."""
    padded = rng.integers(-9, 9, (10, 24)).astype(np.float32)
    opcode = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    for nan_fill, steps in itertools.product((False, True), ((1, 1), (1, 2), (2, 3))):
        given = steps
        box, corner = (16, 8), (8, 4)
        steps = (1, steps[1])  # the driver ignores steps within rows
        counts = tuple(-(-b // s) for b, s in zip(box, steps, strict=True))
        tile = np.full(counts[::-1], np.nan if nan_fill else 0, np.float32)
        for row, column in itertools.product(range(counts[1]), range(counts[0])):
            y, x = corner[1] + row * steps[1], corner[0] + column * steps[0]
            if x < 20 and y < 10:
                tile[row, column] = padded[y, x]
        tensor = ("float32", (20, 10), (96,), box, 0, given, nan_fill)
        image = tile.ravel()
        text = _tensor_text(2, tile.nbytes, opcode, load=True)
        name = f"load {opcode} padded rows, steps {given}, {'NaN' if nan_fill else 'zero'} outside"
        yield _box_case(name, opcode, text, tensor, corner, (np.zeros_like(image), image), (padded, padded))
    values = rng.standard_normal((4, 64)).astype(np.float32)
    values[0, ::2] *= np.float32(2.0**-127)  # subnormal, most of them
    values[1, :4] = np.inf, -np.inf, 0, -0.0
    for element in ("float32_ftz", "tfloat32", "tfloat32_ftz"):
        image = values.view(np.uint32).copy()
        if element.endswith("ftz"):
            image = np.where(image & 0x7F800000, image, image & 0x80000000)
        if element.startswith("tf"):
            finite = (image & 0x7F800000) != 0x7F800000
            image = np.where(finite, (image + 0xFFF + (image >> 13 & 1)) & 0xFFFFE000, image)
        image = image.astype(np.uint32).ravel()
        text = _tensor_text(2, image.nbytes, opcode, load=True)
        tensor = (element, (64, 4), (256,), (64, 4), 0, (1, 1), False)
        yield _box_case(
            f"load {opcode} as {element}", opcode, text, tensor, (0, 0), (np.zeros_like(image), image), (values, values)
        )


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


GROUPS: dict[str, Callable[[int, np.random.Generator], Iterator[Case]]] = {
    "shuffles": shuffles,
    "votes": votes,
    "matches": matches,
    "warp reductions": warp_reductions,
    "barriers": barriers,
    "contended atomics": contended_atomics,
    "clusters": clusters,
    "messages": messages,
    "endings": endings,
    "tile moves": tile_moves,
    "mma": products,
    "narrow mma": narrow_products,
    "mma of doubles": double_products,
    "mma of quads": quad_products,
    "wmma": fragments,
    "wgmma": warpgroup_products,
    "boxes": boxes,
    "box reductions": box_reductions,
    "box options": box_options,
    "pixels": pixels,
}


def cases(group: str, size: int, seed: int = 0) -> Iterator[Case]:
    """The cases of a group; the same for the same size and seed."""
    return GROUPS[group](size, np.random.default_rng([seed, *(ord(c) for c in group)]))
