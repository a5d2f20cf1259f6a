"""Products of a warp: mma.sync on all its types."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from batches import Kernel
from case import Case, case_module
from form import Array
from tile_cases import vector_text

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
SUM_ERROR = {"f32": 2.0**-20, "f16": 2.0**-10, "f64": 2.0**-50, "e4m3": 2.0**-10, "e5m2": 2.0**-10}


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


def element_bits(name: str) -> int:
    return NARROW[name][2] if name in NARROW else 8 * np.dtype(DTYPES[name]).itemsize


def packed(elements: Array, name: str) -> Array:
    """Bytes of elements, whose last axis is contiguous; what is smaller than a byte from its low bits on."""
    bits = element_bits(name)
    if bits < 8:
        apart = elements.reshape(*elements.shape[:-1], -1, 8 // bits).astype(np.int64) & ((1 << bits) - 1)
        elements = (apart << bits * np.arange(8 // bits)).sum(-1).astype(np.uint8)
    return np.ascontiguousarray(elements).view(np.uint8)


def pack(matrices: Array, rows: Array, columns: Array, name: str) -> Array:
    """Registers [warp * 32 + lane][register] of fragments of matrices [warp][row][column]."""
    taken = packed(matrices[:, rows, columns], name)
    return taken.view(np.uint64 if matrices.itemsize == 8 else np.uint32).reshape(len(matrices) * 32, -1)


def places_a(rows: int, depth: int, per: int) -> tuple[Array, Array]:
    lane, register, element = np.ogrid[:32, : rows * depth // (32 * per), :per]
    below, beyond = register % (rows // 8), register // (rows // 8)
    return lane // 4 + 8 * below + 0 * element, lane % 4 * per + element + beyond * 4 * per


def places_b(depth: int, per: int) -> tuple[Array, Array]:
    lane, register, element = np.ogrid[:32, : depth // (4 * per), :per]
    return lane % 4 * per + element + register * 4 * per, lane // 4 + 0 * register + 0 * element


def places_c(rows: int) -> tuple[Array, Array]:
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


def near_the_ends(sums: Array, rng: np.random.Generator) -> None:
    """Makes some of the numbers to which products are added such that they wrap or saturate."""
    some = sums[: max(len(sums) // 4, 1)]
    some[:] = rng.choice([2**31 - 1, -(2**31), 2**31 - 1000], some.shape)


def product_of(left: Array, right: Array, operation: str = "") -> Array:
    """Of whole numbers or floats [..., row, depth] and [..., depth, column], exact where its type can be."""
    if "xor" in operation:
        return np.asarray((left[..., :, :, None] ^ right[..., None, :, :]).sum(-2, dtype=np.int64))
    wide: Any = np.int64 if left.dtype.kind in "iu" else np.float64
    return np.asarray(left.astype(wide) @ right.astype(wide))


def as_integers(exact: Array, saturate: bool) -> Array:
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
    rows, _, depth = sizes_of(shape)
    per = max(32 // element_bits(a), 1)
    left = matrix_of(a, (warps, rows, depth), rng, whole)
    right = matrix_of(b, (warps, depth, 8), rng, whole)
    addend = matrix_of(d, (warps, rows, 8), rng, whole)
    if d == "s32":
        near_the_ends(addend, rng)
    fragments = [pack(left, *places_a(rows, depth, per), a), pack(right, *places_b(depth, per), b)]
    fragments.append(pack(addend, *places_c(rows), d))
    variants = ("", ".rn") if d == "f64" else ("", ".satfinite") if d == "s32" and not end else ("",)
    for variant in variants:
        opcode = f"mma.sync.aligned.{shape}.row.col{variant}.{d}.{a}.{b}.{d}{end}"
        yield mma_case(opcode, fragments, (left, right, addend), (d, a), whole)


def sizes_of(shape: str) -> tuple[int, int, int]:
    """Rows, columns and depth of such as ``m16n8k16``."""
    rows, columns, depth = (int(n) for n in shape[1:].replace("n", "k").split("k"))
    return rows, columns, depth


def mma_case(
    opcode: str,
    fragments: list[Array],
    factors: tuple[Array, Array, Array],
    types: tuple[str, str],
    whole: bool,
    selector: int | None = None,
) -> Case:
    """A launch of one instruction: ``fragments`` are its registers, ``factors`` the matrices A, B and C that they mean.

    ``types`` are those of D and A; ``selector``: of a sparse A, whose metadata is the fragment behind C.
    """
    d, a = types
    left, right, addend = factors
    warps, rows, depth = left.shape
    exact = product_of(left, right, opcode) + addend.astype(np.int64 if d == "s32" else np.float64)
    scale = np.abs(left.astype(np.float64)) @ np.abs(right.astype(np.float64)) + np.abs(addend.astype(np.float64))
    places = (slice(None), *places_c(rows))
    result = exact[places].reshape(warps * 32, -1)
    result = as_integers(result, "satfinite" in opcode) if d == "s32" else result.astype(DTYPES[d])
    kernel = _mma_kernel(opcode, fragments, [result, result], selector)
    near = {}
    if not whole and d != "s32":
        bound = depth * 2.0**-52 if d == "f64" else max(SUM_ERROR[d], SUM_ERROR.get(a, 0.0))
        results = range(len(fragments), len(fragments) + 2)
        near = dict.fromkeys(results, (scale[places].reshape(warps * 32, -1), bound))
    name = opcode if selector is None else f"{opcode}, selector {selector}"
    name = f"{name}{', whole numbers' if whole else ''}"
    return Case(name, [opcode], kernel, [None] * len(fragments) + [result, result], near)


def _mma_kernel(opcode: str, fragments: list[Array], results: list[Array], selector: int | None = None) -> Kernel:
    """Registers of A, B and C, and of metadata, to those of D and, as a second result, to those of C."""
    width = fragments[0].itemsize
    kind = f"b{8 * width}"
    counts = [f.shape[1] for f in fragments]
    kept = results[0][0].nbytes // width
    loads = " ".join(
        f"ld.param.u64 %p, [p{n}]; mul.wide.u32 %o, %i, {width * count}; add.u64 %p, %p, %o;"
        + " ".join(f"ld.global.{kind} %{name}{r}, [%p+{width * r}];" for r in range(count))
        for n, (name, count) in enumerate(zip("abce", counts, strict=False))
    )
    stores = " ".join(
        f"ld.param.u64 %p, [p{n}]; mul.wide.u32 %o, %i, {width * kept}; add.u64 %p, %p, %o;"
        + " ".join(f"st.global.{kind} [%p+{width * r}], %{name}{r};" for r in range(kept))
        for n, name in enumerate("dc"[: len(results)], len(fragments))
    )
    a, b, c = (vector_text(n, k) for n, k in zip("abc", counts, strict=False))
    tail = "" if selector is None else f", %e0, {selector}"
    multiply = " ".join(f"{opcode} {to}, {a}, {b}, {c}{tail};" for to in (vector_text("d", kept), c)[: len(results)])
    text = case_module(
        f"""
        mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %o32, %tid.x; mad.lo.u32 %i, %i, %t, %o32;
        {loads} {multiply} {stores} ret;
        """,
        ", ".join(f".param .u64 p{n}" for n in range(len(fragments) + len(results))),
        ".reg .b32 %i; .reg .b32 %t; .reg .b32 %o32; .reg .b64 %p; .reg .b64 %o;"
        + " ".join(f".reg .{kind} %{n}<8>;" for n in "abcde"),
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
        exact = product_of(left, right) + addend.astype(np.float64)
        scale = product_of(np.abs(left), np.abs(right)) + np.abs(addend.astype(np.float64))
        result = exact[accumulators[d]].reshape(warps * 32, 8).astype(DTYPES[d])
        results = [result, result] if d == c else [result]
        opcode = f"mma.sync.aligned.m8n8k4.{layout_a}.{layout_b}.{d}.f16.f16.{c}"
        near = {}
        if not whole:
            near = dict.fromkeys(range(3, 3 + len(results)), (scale[accumulators[d]].reshape(-1, 8), SUM_ERROR[d]))
        kernel = _mma_kernel(opcode, fragments, results)
        yield Case(f"{opcode}{', whole numbers' if whole else ''}", [opcode], kernel, [None] * 3 + results, near)
