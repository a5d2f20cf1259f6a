"""Matrix instructions against NumPy, with fragments laid out here as the PTX manual describes them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation import Array, module

from workbench.emulator import Memory, Program, execute

RNG = np.random.default_rng(31)
LANES = np.arange(32)
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
}


def run(body: str, registers: str, inputs: list[Array], output: Array) -> Array:
    """One warp: every array has a row for each lane; %p0, %p1, ... point at the lane's rows."""
    pointers = [f"p{n}" for n in range(len(inputs) + 1)]
    where = [
        f"ld.param.u64 %p{n}, [p{n}]; mul.wide.u32 %o, %lane, {array.itemsize * array.shape[1]};"
        f"add.u64 %p{n}, %p{n}, %o;"
        for n, array in enumerate([*inputs, output])
    ]
    text = module(
        f"mov.u32 %lane, %tid.x; {' '.join(where)} {body} ret;",
        ", ".join(f".param .u64 {p}" for p in pointers),
        f".reg .b32 %lane; .reg .b64 %o; .reg .b64 %p<{len(pointers)}>; {registers}",
    )
    memory = Memory()
    allocations = [memory.upload(array) for array in inputs]
    result = memory.allocate(output.nbytes, "out")
    execute(Program.from_ptx(text).entries["k"], 1, 32, [*allocations, result], memory=memory)
    return memory.read(result, output.dtype, output.shape)


def pack(matrix: Array, rows: Array, columns: Array) -> Array:
    """Registers [lane][register] of fragments; the last axis of rows and columns walks through one register."""
    return (
        np.ascontiguousarray(matrix[rows, columns])
        .view(np.uint64 if matrix.itemsize == 8 else np.uint32)
        .reshape(32, -1)
    )


def a_places(depth: int, per_register: int) -> tuple[Array, Array]:
    registers = 4 if depth == 8 * per_register else 2
    lane, register, element = np.ogrid[:32, :registers, :per_register]
    return lane // 4 + 8 * (register & 1), lane % 4 * per_register + element + (register >> 1) * 4 * per_register


def b_places(depth: int, per_register: int) -> tuple[Array, Array]:
    lane, register, element = np.ogrid[:32, : depth // (4 * per_register), :per_register]
    return lane % 4 * per_register + element + register * 4 * per_register, lane // 4 + 0 * register + 0 * element


def c_places() -> tuple[Array, Array]:
    lane, number = np.ogrid[:32, :4]
    return lane // 4 + 8 * (number >> 1), lane % 4 * 2 + (number & 1)


def random_matrix(name: str, shape: tuple[int, int]) -> Array:
    if name in ("s8", "u8", "s32"):
        info = np.iinfo(DTYPES[name])
        return RNG.integers(max(info.min, -1000), min(info.max, 1000), shape, endpoint=True).astype(DTYPES[name])
    matrix = RNG.standard_normal(shape).astype(np.float32)
    if name == "tf32":
        matrix = (matrix.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return matrix.astype(DTYPES[name])


def vector(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{n}" for n in range(count)) + "}"


def load(name: str, count: int, pointer: int, kind: str = "b32") -> str:
    size = 8 if kind.endswith("64") else 4
    return " ".join(f"ld.global.{kind} %{name}{n}, [%p{pointer}+{size * n}];" for n in range(count))


def store(count: int, pointer: int, kind: str = "b32") -> str:
    size = 8 if kind.endswith("64") else 4
    return " ".join(f"st.global.{kind} [%p{pointer}+{size * n}], %d{n};" for n in range(count))


@pytest.mark.parametrize(
    ("shape", "d", "a", "b"),
    [
        ("m16n8k16", "f32", "bf16", "bf16"),
        ("m16n8k8", "f32", "bf16", "bf16"),
        ("m16n8k16", "f32", "f16", "f16"),
        ("m16n8k8", "f32", "f16", "f16"),
        ("m16n8k16", "f16", "f16", "f16"),
        ("m16n8k8", "f16", "f16", "f16"),
        ("m16n8k8", "f32", "tf32", "tf32"),
        ("m16n8k4", "f32", "tf32", "tf32"),
        ("m16n8k32", "s32", "s8", "s8"),
        ("m16n8k16", "s32", "s8", "s8"),
        ("m16n8k32", "s32", "u8", "s8"),
        ("m16n8k32", "s32", "s8", "u8"),
        ("m16n8k32", "s32", "u8", "u8"),
        ("m16n8k32", "f32", "e4m3", "e4m3"),
        ("m16n8k32", "f32", "e5m2", "e4m3"),
        ("m16n8k16", "f32", "e4m3", "e5m2"),
        ("m16n8k32", "f16", "e4m3", "e5m2"),
        ("m16n8k16", "f16", "e5m2", "e5m2"),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_mma(shape: str, d: str, a: str, b: str, in_place: bool) -> None:
    depth = int(shape.partition("k")[2])
    per_register = 4 // np.dtype(DTYPES[a]).itemsize
    left, right, addend = random_matrix(a, (16, depth)), random_matrix(b, (depth, 8)), random_matrix(d, (16, 8))
    rows, columns = c_places()
    halves = d == "f16"
    inputs = [
        pack(left, *a_places(depth, per_register)),
        pack(right, *b_places(depth, per_register)),
        np.ascontiguousarray(addend[rows, columns]).view(np.uint32).reshape(32, -1),
    ]
    counts = [x.shape[1] for x in inputs]
    source = "d" if in_place else "c"
    body = f"""
    {load("a", counts[0], 0)} {load("b", counts[1], 1)} {load(source, counts[2], 2)}
    mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d} {vector("d", counts[2])}, {vector("a", counts[0])},
        {vector("b", counts[1])}, {vector(source, counts[2])};
    {store(counts[2], 3)}
    """
    registers = ".reg .b32 %a<4>; .reg .b32 %b<4>; .reg .b32 %c<4>; .reg .b32 %d<4>;"
    found = run(body, registers, inputs, np.zeros((32, counts[2]), np.uint32)).view(DTYPES[d]).reshape(32, 4)
    exact = left.astype(np.float64) @ right.astype(np.float64) + addend
    result = np.zeros((16, 8))
    result[rows, columns] = found
    if d == "s32":
        assert np.array_equal(result, exact)
    else:
        scale = np.abs(left.astype(np.float64)) @ np.abs(right.astype(np.float64)) + np.abs(addend)
        assert np.all(np.abs(result - exact) <= scale * (2**-10 if halves else 2**-20))


def test_mma_saturates_integers_only_when_asked() -> None:
    left = np.full((16, 32), 127, np.int8)
    inputs = [
        pack(left, *a_places(32, 4)),
        pack(left.T[:, :8].copy(), *b_places(32, 4)),
        np.full((32, 4), 2**31 - 5, np.uint32),
    ]
    registers = ".reg .b32 %a<4>; .reg .b32 %b<2>; .reg .b32 %c<4>; .reg .b32 %d<4>;"
    for suffix, expected in ((".satfinite", 2**31 - 1), ("", (2**31 - 5 + 32 * 127 * 127) - 2**32)):
        body = f"""
        {load("a", 4, 0)} {load("b", 2, 1)} {load("c", 4, 2)}
        mma.sync.aligned.m16n8k32.row.col{suffix}.s32.s8.s8.s32 {vector("d", 4)},
            {vector("a", 4)}, {vector("b", 2)}, {vector("c", 4)};
        {store(4, 3)}
        """
        found = run(body, registers, inputs, np.zeros((32, 4), np.int32))
        assert set(found.ravel().tolist()) == {expected}


def matrices(count: int) -> Array:
    return RNG.integers(0, 2**16, (count, 8, 8)).astype(np.uint16)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(count: int, transposed: bool) -> None:
    """Rows of the matrices lie in shared memory in a drawn order, so that every address matters."""
    tiles = matrices(count)
    order = RNG.permutation(8 * count)
    stored = np.zeros((32, 8), np.uint16)
    stored[order] = tiles.reshape(-1, 8)
    addresses = np.zeros((32, 1), np.uint32)
    addresses[: 8 * count, 0] = 16 * order
    body = f"""
    {load("v", 4, 0)} mul.lo.u32 %row, %lane, 16; mov.u32 %t, tile; add.u32 %row, %row, %t;
    st.shared.v4.b32 [%row], {vector("v", 4)};
    bar.sync 0;
    ld.global.u32 %row, [%p1]; add.u32 %row, %row, %t;
    ldmatrix.sync.aligned.m8n8.x{count}{".trans" if transposed else ""}.shared.b16 {vector("d", count)}, [%row];
    {store(count, 2)}
    """
    registers = ".reg .b32 %v<4>; .reg .b32 %d<4>; .reg .b32 %row; .reg .b32 %t; .shared .align 16 .b8 tile[512];"
    found = run(body, registers, [stored.view(np.uint32), addresses], np.zeros((32, count), np.uint32))
    halves = found.view(np.uint16).reshape(32, count, 2)
    lane, tile, element = np.ogrid[:32, :count, :2]
    row, column = lane // 4, lane % 4 * 2 + element
    expected = tiles[tile, column, row] if transposed else tiles[tile, row, column]
    assert np.array_equal(halves, expected)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix(count: int, transposed: bool) -> None:
    tiles = matrices(count)
    lane, tile, element = np.ogrid[:32, :count, :2]
    row, column = lane // 4, lane % 4 * 2 + element
    fragments = tiles[tile, column, row] if transposed else tiles[tile, row, column]
    body = f"""
    {load("d", count, 0)} mul.lo.u32 %row, %lane, 16; mov.u32 %t, tile; add.u32 %row, %row, %t;
    stmatrix.sync.aligned.m8n8.x{count}{".trans" if transposed else ""}.shared.b16 [%row], {vector("d", count)};
    bar.sync 0;
    setp.lt.u32 %p, %lane, {8 * count};
    @%p ld.shared.v4.b32 {vector("v", 4)}, [%row];
    @%p st.global.v4.b32 [%p1], {vector("v", 4)};
    @!%p st.global.v4.b32 [%p1], {{%t, %t, %t, %t}};
    """
    registers = (
        ".reg .b32 %v<4>; .reg .b32 %d<4>; .reg .b32 %row; .reg .b32 %t; .reg .pred %p;.shared .align 16 .b8 tile[512];"
    )
    packed = np.ascontiguousarray(fragments.astype(np.uint16)).view(np.uint32).reshape(32, count)
    found = run(body, registers, [packed], np.zeros((32, 4), np.uint32))
    assert np.array_equal(found.view(np.uint16).reshape(32, 8)[: 8 * count], tiles.reshape(-1, 8))
