"""Every instruction of ``tcgen05`` against NumPy: bit by bit, on inputs whose sums are exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tensor_programs import COLUMNS, Product, findings, image_of, kernel, run

from workbench.emulator import UnsupportedInstruction, load


def check(product: Product) -> None:
    result, found, expected = product.run()
    assert result.ok, findings(result)
    wrong = np.argwhere(found != expected)
    assert not len(wrong), f"{product}: {len(wrong)} cells differ, the first at {wrong[0]}"


DENSE = [
    *(Product("f16", t, t, m, n) for t in ("f16", "bf16") for m, n in ((128, 64), (128, 16), (64, 8), (64, 72))),
    Product("f16", "f16", "f16", 128, 32, result="f16"),
    Product("f16", "f16", "f16", 64, 32, result="f16", shift=0, accumulate=False),
    Product("tf32", "tf32", "tf32", 128, 48),
    Product("tf32", "tf32", "tf32", 64, 24, accumulate=False),
    *(
        Product("f8f6f4", a, b, 128, 16)
        for a, b in itertools.product(("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"), repeat=2)
    ),
    Product("f8f6f4", "e4m3", "e2m1", 64, 24, result="f16"),
    *(Product("i8", a, b, 128, 32, result="s32") for a, b in itertools.product(("u8", "s8"), repeat=2)),
    Product("i8", "s8", "s8", 64, 8, result="s32", saturate=True),
]


@pytest.mark.parametrize("product", DENSE, ids=str)
def test_products_of_each_kind_and_type(product: Product) -> None:
    check(product)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("transposed", list(itertools.product((False, True), repeat=2)))
def test_matrices_in_each_canonical_layout(swizzle: str, transposed: tuple[bool, bool]) -> None:
    for kind, dtype, result in (("f16", "bf16", "f32"), ("f8f6f4", "e5m2", "f32"), ("i8", "s8", "s32")):
        check(Product(kind, dtype, dtype, 128, 64, result=result, swizzle=(swizzle, swizzle), transposed=transposed))


def test_the_swizzle_of_32_byte_atoms() -> None:
    check(Product("tf32", "tf32", "tf32", 128, 64, swizzle=("128B/32", "128B/32"), transposed=(True, True)))


@pytest.mark.parametrize(
    "kind, dtype", [("f16", "f16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"), ("f8f6f4", "e2m3"), ("i8", "u8")]
)
def test_a_matrix_in_tensor_memory(kind: str, dtype: str) -> None:
    for m, pair in ((128, False), (64, False), (256, True), (128, True)):
        check(Product(kind, dtype, dtype, m, 32, result="s32" if kind == "i8" else "f32", in_tensor=True, pair=pair))


PAIRS = [
    *(Product("f16", "f16", "f16", m, n, pair=True) for m, n in ((256, 32), (128, 64), (256, 96))),
    Product("tf32", "tf32", "tf32", 256, 32, pair=True, accumulate=False),
    Product("f8f6f4", "e3m2", "e4m3", 128, 32, pair=True),
    Product("i8", "s8", "u8", 256, 64, result="s32", pair=True),
    Product("f16", "bf16", "bf16", 256, 32, pair=True, disabled=0xF0F << 100 | 0b101),
]


@pytest.mark.parametrize("product", PAIRS, ids=str)
def test_products_of_a_pair_of_blocks(product: Product) -> None:
    check(product)


EACH_OPERATION = [
    *(
        Product("f16", "f16", "f16", 128, 64, sparse=s, in_tensor=t, weights=w)
        for s, t, w in itertools.product((False, True), repeat=3)
    ),
    *(
        Product("mxf8f6f4", "e4m3", "e5m2", 128, 16, sparse=s, in_tensor=t, factors=1)
        for s, t in itertools.product((False, True), repeat=2)
    ),
]


@pytest.mark.parametrize("product", EACH_OPERATION, ids=str)
def test_products_by_each_operation(product: Product) -> None:
    check(product)


OPTIONS = [
    Product("f16", "f16", "f16", 128, 16, negated=(True, False)),
    Product("f16", "f16", "f16", 128, 16, negated=(True, True)),
    Product("f16", "f16", "f16", 128, 16, shift=3),
    Product("tf32", "tf32", "tf32", 64, 16, shift=15),
    Product("f16", "f16", "f16", 128, 16, disabled=1 << 127 | 0xFFFF << 30 | 1),
    *(Product("f16", "bf16", "bf16", m, 64, weights=True) for m in (32, 64, 128)),
    Product("i8", "u8", "s8", 32, 64, result="s32", weights=True),
    Product("f8f6f4", "e5m2", "e2m1", 64, 64, weights=True, in_tensor=True),
]


@pytest.mark.parametrize("product", OPTIONS, ids=str)
def test_signs_scales_disabled_lanes_and_stationary_weights(product: Product) -> None:
    check(product)


SPARSE = [
    *(
        Product(kind, dtype, dtype, m, 16, sparse=True, result="s32" if kind == "i8" else "f32")
        for kind, dtype in (("f16", "f16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"), ("i8", "s8"))
        for m in (128, 64)
    ),
    Product("f16", "bf16", "bf16", 256, 32, sparse=True, pair=True),
    Product("f8f6f4", "e2m3", "e5m2", 128, 64, sparse=True, weights=True, in_tensor=True),
    Product("mxf4", "packed", "packed", 128, 16, sparse=True, factors=2),
]


@pytest.mark.parametrize("product", SPARSE, ids=str)
def test_products_of_a_sparse_matrix(product: Product) -> None:
    check(product)


SCALED = [
    *(Product("mxf8f6f4", a, b, 128, 16, factors=1) for a, b in (("e4m3", "e5m2"), ("e2m1", "e2m3"), ("e3m2", "e4m3"))),
    *(Product("mxf8f6f4", "e4m3", "e4m3", 128, 48, factors=1, ids=ids) for ids in ((1, 2), (3, 0))),
    Product("mxf8f6f4", "e5m2", "e4m3", 256, 64, factors=1, pair=True),
    *(Product("mxf4", "packed", "packed", 128, 64, factors=2, ids=ids) for ids in ((0, 0), (2, 0), (0, 2))),
    Product("mxf4nvf4", "packed", "packed", 128, 16, factors=2),
    *(Product("mxf4nvf4", "packed", "packed", 128, 40, factors=4, fine=fine) for fine in (False, True)),
    Product("mxf4nvf4", "packed", "packed", 256, 64, factors=4, fine=True, pair=True),
    Product("mxf4nvf4", "packed", "packed", 128, 64, factors=4, fine=True, pair=True),
    Product("mxf8f6f4", "e4m3", "e4m3", 128, 16, factors=1, in_tensor=True),
]


@pytest.mark.parametrize("product", SCALED, ids=str)
def test_products_with_scales_of_blocks(product: Product) -> None:
    check(product)


# ---- loads and stores


def cell_of(shape: str, lane: int, register: int) -> tuple[int, int]:
    """Lane and column of tensor memory behind a register, from the figures of the manual."""
    if shape == "32x32b":
        return lane, register
    if shape == "16x32bx2":
        return lane % 16, register + 32 * (lane // 16)
    if shape == "16x64b":
        return lane // 4 + 8 * (lane & 1), 2 * register + (lane >> 1 & 1)
    if shape == "16x128b":
        return lane // 4 + 8 * (register & 1), 4 * (register >> 1) + lane % 4
    return lane // 4 + 8 * (register >> 1 & 1), 8 * (register >> 2) + 2 * (lane % 4) + (register & 1)


SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
COLUMNS_OF_MOVES = 512


def columns_of(shape: str, lane: int, register: int, packed: bool) -> tuple[int, list[int]]:
    """The lane, and the columns: two of 16 bits where registers are packed."""
    row, column = cell_of(shape, lane, register)
    half = 32 * (lane // 16) if shape == "16x32bx2" else 0
    first = (column - half) * (2 if packed else 1) + 4 * half
    return row, [first, first + 1] if packed else [first]


def numbers_of(shape: str, packed: bool) -> list[int]:
    """The ``.xN`` whose columns fit, those of both halves of 16x32bx2 apart."""
    each = SHAPES[shape]
    most = 128 // each
    wide = (2 if packed else 1) * {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 1}[shape]
    limit = 128 if shape == "16x32bx2" else COLUMNS_OF_MOVES
    return [2**n for n in range(8) if 2**n <= most and 2**n * wide <= limit]


def moves_of(shape: str, packed: bool) -> str:
    """Loads by each ``.xN``, adds 1 to each register and stores likewise, in the upper 16 lanes where it has 16."""
    text = ["add.u32 %i, %slab, 0x100000;" if shape != "32x32b" else "mov.u32 %i, %slab;"]
    half = ", 128" if shape == "16x32bx2" else ""
    pack, unpack = (".pack::16b", ".unpack::16b") if packed else ("", "")
    for number in numbers_of(shape, packed):
        registers = [f"%r{k}" for k in range(number * SHAPES[shape])]
        listed = "{" + ", ".join(registers) + "}"
        text += ["{ .reg .b32 %r<128>;", f"tcgen05.ld.sync.aligned.{shape}.x{number}{pack}.b32 {listed}, [%i]{half};"]
        text += ["tcgen05.wait::ld.sync.aligned;"]
        text += [f"add.u32 {r}, {r}, {0x10001 if packed else 1};" for r in registers]
        text += [f"tcgen05.st.sync.aligned.{shape}.x{number}{unpack}.b32 [%i]{half}, {listed};"]
        text += ["tcgen05.wait::st.sync.aligned; }"]
    return "\n".join(text)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_loads_and_stores_of_each_shape(shape: str, packed: bool) -> None:
    start = np.random.default_rng(0).integers(0, 1000, (1, 128, COLUMNS_OF_MOVES)).astype(np.uint32)
    expected = start.copy()
    for number, warp, lane in itertools.product(numbers_of(shape, packed), range(4), range(32)):
        for register in range(number * SHAPES[shape]):
            row, columns = columns_of(shape, lane, register, packed)
            expected[0, row + 32 * warp + (0 if shape == "32x32b" else 16), columns] += 1
    none = np.zeros((1, 1024), np.uint8)
    result, found = run("", none, start, columns=COLUMNS_OF_MOVES, moves=moves_of(shape, packed))
    assert result.ok, findings(result)
    assert np.array_equal(found, expected)


REDUCTIONS = [
    *(f"{what}.{kind}" for what in ("min", "max") for kind in ("u32", "s32")),
    *(f"{what}{how}.f32" for what in ("min", "max") for how in ("", ".abs", ".NaN", ".abs.NaN")),
]


def reduced(values: np.ndarray, how: str) -> np.ndarray:
    """The least or greatest of each row of [lanes][registers], as the bits of the type."""
    if how.endswith("32") and not how.endswith("f32"):
        typed = values.view(np.int32) if how.endswith("s32") else values
        return np.ascontiguousarray(getattr(typed, how[:3])(axis=1)).view(np.uint32)
    floats = np.abs(values.view(np.float32)) if "abs" in how else values.view(np.float32)
    plain, other = {"min": (np.min, np.fmin.reduce), "max": (np.max, np.fmax.reduce)}[how[:3]]
    found = plain(floats, axis=1) if "NaN" in how else other(floats, axis=1)
    return np.where(np.isnan(found), np.uint32(0x7FFFFFFF), np.ascontiguousarray(found).view(np.uint32))


@pytest.mark.parametrize("how", REDUCTIONS)
@pytest.mark.parametrize("shape", ["32x32b", "16x32bx2"])
def test_loads_that_reduce(shape: str, how: str) -> None:
    """Each number of registers, to which the result is added with 1 (registers) and stored behind them (the result)."""
    rng = np.random.default_rng(6)
    start = rng.integers(0, 2**32, (1, 128, COLUMNS_OF_MOVES), dtype=np.uint32)
    if how.endswith("f32"):
        start = rng.normal(size=start.shape).astype(np.float32).view(np.uint32)
        start[rng.random(start.shape) < 0.2] = 0x7FC00001
    expected = start.copy()
    text = ["add.u32 %i, %slab, 0x100000;" if shape != "32x32b" else "mov.u32 %i, %slab;"]
    half = ", 128" if shape == "16x32bx2" else ""
    for step, number in enumerate(n for n in numbers_of(shape, False) if n > 1):
        names = ", ".join(f"%r{k}" for k in range(number))
        text += [
            "{ .reg .b32 %r<129>;",
            f"tcgen05.ld.red.sync.aligned.{shape}.x{number}.{how} {{{names}}}, %r128, [%i]{half};",
        ]
        to = 500 + step
        text += ["tcgen05.wait::ld.sync.aligned;", f"add.u32 %slab, %slab, {to};"]
        text += ["tcgen05.st.sync.aligned.32x32b.x1.b32 [%slab], {%r128};", f"sub.u32 %slab, %slab, {to};"]
        text += ["tcgen05.wait::st.sync.aligned; }"]
        for warp in range(4):
            lanes = slice(32 * warp, 32 * warp + 32)
            values = start[0, lanes, :number]
            if shape == "16x32bx2":
                rows = 32 * warp + 16 + np.arange(32) % 16
                values = np.stack([start[0, row, 128 * (n // 16) :][:number] for n, row in enumerate(rows)])
            expected[0, lanes, to] = reduced(np.ascontiguousarray(values), how)
    none = np.zeros((1, 1024), np.uint8)
    result, found = run("", none, start, columns=COLUMNS_OF_MOVES, moves="\n".join(text), arch="sm_103a")
    assert result.ok, findings(result)
    assert np.array_equal(found[:, :, 500:], expected[:, :, 500:])


@pytest.mark.parametrize("opcode", ["x1.min.u32", "x2.min.abs.u32", "x2.add.u32", "x2.max.f16"])
def test_a_reduction_that_there_is_not_is_refused(opcode: str) -> None:
    moves = f"tcgen05.ld.red.sync.aligned.32x32b.{opcode} {{%i}}, %i, [%slab];"
    with pytest.raises(UnsupportedInstruction):
        load(kernel("", shared=1024, arch="sm_103a", moves=moves), arch="sm_103a")


# ---- copies and shifts

COPIES = {
    "128x256b": (128, 32, lambda row: [row]),
    "4x256b": (4, 32, lambda row: [32 * row]),
    "128x128b": (128, 16, lambda row: [row]),
    "64x128b.warpx2::02_13": (64, 16, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 16, lambda row: [row % 32 + 64 * (row // 32), row % 32 + 64 * (row // 32) + 32]),
    "32x128b.warpx4": (32, 16, lambda row: [row, row + 32, row + 64, row + 96]),
}


@pytest.mark.parametrize("narrow", ["", "b4x16_p64", "b6x16_p32"])
@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("shape", COPIES)
def test_copies_of_each_shape(shape: str, pair: bool, narrow: str) -> None:
    rows, width, lanes_of = COPIES[shape]
    rng = np.random.default_rng(1)
    blocks = 2 if pair else 1
    codes = rng.integers(0, 256, (blocks, rows, width)).astype(np.uint32)
    swizzle = "none" if width == 16 else "32B"
    images = [image_of(block, "u8", swizzle) for block in codes]
    data = np.stack([image.data for image in images])
    form = f".b8x16.{narrow}" if narrow else ""
    steps = f"""
    shr.u32 %i, %base, 4;
    cvt.u64.u32 %d0, %i;
    add.u64 %d0, %d0, {images[0].descriptor:#x};
    tcgen05.cp.cta_group::{blocks}.{shape}{form} [%tm + 8], %d0;
"""
    start = rng.integers(0, 2**32, (blocks, 128, COLUMNS), dtype=np.uint32)
    expected = start.copy()
    for block, row in itertools.product(range(blocks), range(rows)):
        raw = codes[block, row].astype(np.uint8).reshape(-1, 16)
        if narrow:
            bits = int(narrow[1])
            stream = np.unpackbits(raw, axis=1, bitorder="little")[:, : 16 * bits].reshape(-1, 16, bits)
            raw = np.packbits(stream, axis=2, bitorder="little").reshape(-1, 16)
        for lane in lanes_of(row):
            expected[block, lane, 8 : 8 + width // 4] = raw.reshape(-1).view(np.uint32)
    result, found = run(steps, data, start, pair=pair)
    assert result.ok, findings(result)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("pair", [False, True])
def test_a_shift_moves_rows_down(pair: bool) -> None:
    blocks = 2 if pair else 1
    start = np.random.default_rng(2).integers(0, 2**32, (blocks, 128, COLUMNS), dtype=np.uint32)
    expected = start.copy()
    expected[:, :-1, 16:24] = start[:, 1:, 16:24]
    result, found = run(
        f"tcgen05.shift.cta_group::{blocks}.down [%tm + 16];", np.zeros((blocks, 1024), np.uint8), start, pair=pair
    )
    assert result.ok, findings(result)
    assert np.array_equal(found, expected)


def test_a_column_mask_that_has_an_effect_is_refused() -> None:
    for mask, code in ((1 << 39, "unsupported"), (0, None)):
        steps = f"mov.u64 %d2, {mask:#x}; tcgen05.mma.ws.cta_group::1.kind::f16 [%tm], %d0, %d1, %v, %zero, %d2;"
        image = image_of(np.zeros((64, 16), np.uint32), "f16", "128B")
        begin = f"shr.u32 %i, %base, 4; cvt.u64.u32 %d0, %i; add.u64 %d0, %d0, {image.descriptor:#x}; mov.u64 %d1, %d0;"
        form = 1 << 4 | 64 // 8 << 17 | 64 // 16 << 24
        data = np.zeros((1, 16384), np.uint8)
        result = run(f"{begin} mov.u32 %v, {form:#x}; {steps}", data)[0]
        assert [finding.code for finding in result.findings][:1] == ([code] if code else [])


# ---- architectures


@pytest.mark.parametrize("arch", ["sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f"])
def test_architectures_with_tensor_memory(arch: str) -> None:
    check(Product("f16", "f16", "f16", 128, 16, arch=arch))


@pytest.mark.parametrize(
    ("arch", "opcode"),
    [("sm_103a", "kind::i8"), ("sm_100f", "kind::i8"), ("sm_120a", "tcgen05"), ("sm_100", "tcgen05")],
)
def test_what_an_architecture_lacks_is_refused(arch: str, opcode: str) -> None:
    name = "i8" if "i8" in opcode else "f16"
    steps = f"tcgen05.mma.cta_group::1.kind::{name} [%tm], %d0, %d1, %v, %one;"
    with pytest.raises(UnsupportedInstruction, match=f"{arch} does not have it"):
        load(kernel(steps, shared=1024, arch=arch), arch=arch)
