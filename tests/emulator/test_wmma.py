"""wmma: whole matrices from memory, through opaque fragments, and back, in all shapes, types, layouts and spaces."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation import Array, compile_cuda, fault_of, module, near_the_ends

from workbench.emulator import FindingKind, Memory, Program, execute

RNG = np.random.default_rng(7)
DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
}
SIXTEEN_DEEP = ("m16n16k16", "m32n8k16", "m8n32k16")
# types of D, A, B, C with the registers of each fragment, by the shape of the matrices
REGISTERS = {
    "f16": {"ab": (8, 8, 8), "cd": 4},
    "bf16": {"ab": (4, 8, 2), "cd": 8},
    "s8": {"ab": (2, 4, 1), "cd": 8},
    "u8": {"ab": (2, 4, 1), "cd": 8},
}


def drawn(name: str, shape: tuple[int, int]) -> Array:
    if name in ("s4", "u4", "b1"):
        low, high = {"s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}[name]
        return RNG.integers(low, high, shape)
    if name == "s32":
        return near_the_ends(RNG, shape, 100)
    dtype = DTYPES[name]
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    matrix = RNG.standard_normal(shape)
    if name == "tf32":
        matrix = (matrix.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)
    return matrix.astype(dtype)


def stored(matrix: Array, name: str, layout: str, padding: int) -> Array:
    """Bytes of a matrix in memory, each row (or column) followed by some elements of padding."""
    lines = matrix if layout == "row" else matrix.T
    lines = np.pad(lines, ((0, 0), (0, padding)))
    bits = {"s4": 4, "u4": 4, "b1": 1}.get(name)
    if bits is None:
        return np.ascontiguousarray(lines).view(np.uint8).ravel()
    per_byte = 8 // bits
    values = (lines.ravel().reshape(-1, per_byte) & ((1 << bits) - 1)) << (np.arange(per_byte) * bits)
    return values.sum(1).astype(np.uint8)


def registers_of(name: str, role: str, shape: str) -> int:
    if role in "cd":
        return {"m8n8k4": 2, "m8n8k32": 2, "m8n8k128": 2}.get(shape, 4 if name == "f16" else 8)
    if shape in SIXTEEN_DEEP:
        ab = REGISTERS[name]["ab"]
        assert isinstance(ab, tuple)
        sixteen, tall, wide = ab
        return {"m16n16k16": sixteen, "m32n8k16": tall if role == "a" else wide}.get(
            shape, wide if role == "a" else tall
        )
    return 4 if name == "tf32" else 1


def vector(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{n}" for n in range(count)) + "}"


def multiply(
    shape: str,
    types: tuple[str, str, str, str],
    layouts: tuple[str, str, str, str] = ("row", "col", "row", "row"),
    *,
    space: str = ".global",
    padding: int = 16,
    end: str = "",
    operation: str = "",
    in_place: bool = False,
) -> None:
    d, a, b, c = types
    m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
    sizes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    steps = {"s4": 32, "u4": 32, "b1": 128}
    matrices = {role: drawn(name, sizes[role]) for role, name in zip("abc", (a, b, c), strict=True)}
    paddings = {role: padding * steps.get(name, 1) for role, name in zip("abc", (a, b, c), strict=True)}
    lengths = {  # elements from one row, or column, to the next
        role: sizes[role][layout == "row"] + paddings[role] for role, layout in zip("abc", layouts, strict=False)
    }
    count = {role: registers_of(name, role, shape) for role, name in zip("dabc", (d, a, b, c), strict=True)}
    kind = "f64" if a == "f64" else "b32"
    into = "d" if in_place else "c"
    load_c = f"wmma.load.c.sync.aligned.{layouts[2]}.{shape}{space}.{c} {vector(into, count['c'])}, [%pc]"
    full = "" if not padding else f", {lengths['a']}", f", {lengths['b']}", f", {lengths['c']}"
    strides = dict(zip("abc", full if padding else ("", "", ""), strict=True))
    d_length = (n if layouts[3] == "row" else m) + padding
    product = "" if a == d == "f16" or {a, b} == {"f16"} else f".{a}.{b}"
    text = module(
        f"""
        ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pc, [c]; ld.param.u64 %pd, [d];
        wmma.load.a.sync.aligned.{layouts[0]}.{shape}{space}.{a} {vector("a", count["a"])}, [%pa]{strides["a"]};
        wmma.load.b.sync.aligned.{layouts[1]}.{shape}{space}.{b} {vector("b", count["b"])}, [%pb]{strides["b"]};
        {load_c}{strides["c"]};
        wmma.mma{operation}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{d}{product}.{c}{end}
            {vector("d", count["d"])}, {vector("a", count["a"])}, {vector("b", count["b"])}, {vector(into, count["c"])};
        wmma.store.d.sync.aligned.{layouts[3]}.{shape}{space}.{d} [%pd], {vector("d", count["d"])}, {d_length};
        ret;
        """,
        ".param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d",
        f".reg .b64 %pa; .reg .b64 %pb; .reg .b64 %pc; .reg .b64 %pd; .reg .{kind} %a<8>; .reg .{kind} %b<8>;"
        f".reg .{kind} %c<8>; .reg .{kind} %d<8>;",
    )
    memory = Memory()
    arguments = [
        memory.upload(stored(matrices[role], name, layout, paddings[role]), role)
        for role, name, layout in zip("abc", (a, b, c), layouts, strict=False)
    ]
    lines = m if layouts[3] == "row" else n
    before = np.full((lines, d_length), 77, DTYPES[d])
    out = memory.upload(before, "d")
    execute(Program.from_ptx(text).entries["k"], 1, 32, [*arguments, out], memory=memory)
    found = memory.read(out, DTYPES[d], before.shape)
    width = d_length - padding
    assert np.array_equal(found[:, width:], before[:, width:])
    result = found[:, :width] if layouts[3] == "row" else found[:, :width].T
    left, right = matrices["a"].astype(np.float64), matrices["b"].astype(np.float64)
    if ".xor" in operation:
        exact = (matrices["a"][:, :, None] ^ matrices["b"][None]).sum(1) + matrices["c"].astype(np.float64)
    else:
        exact = left @ right + matrices["c"].astype(np.float64)
    if d == "s32":
        wrapped = exact.astype(np.int64)
        expected = np.clip(wrapped, -(2**31), 2**31 - 1) if end else wrapped.astype(np.int32)
        assert np.array_equal(result, expected)
    else:
        scale = np.abs(left) @ np.abs(right) + np.abs(matrices["c"].astype(np.float64))
        tolerance = {"f16": 2**-10, "f32": 2**-20, "f64": 2**-50}[d]
        assert np.all(np.abs(result.astype(np.float64) - exact) <= scale * tolerance)


@pytest.mark.parametrize("shape", SIXTEEN_DEEP)
@pytest.mark.parametrize(
    "types",
    [
        ("f16", "f16", "f16", "f16"),
        ("f16", "f16", "f16", "f32"),
        ("f32", "f16", "f16", "f16"),
        ("f32", "f16", "f16", "f32"),
        ("f32", "bf16", "bf16", "f32"),
        ("s32", "s8", "s8", "s32"),
        ("s32", "u8", "u8", "s32"),
    ],
)
@pytest.mark.parametrize("layouts", [("row", "col", "row", "col"), ("col", "row", "col", "row")])
def test_sixteen_deep(shape: str, types: tuple[str, str, str, str], layouts: tuple[str, str, str, str]) -> None:
    multiply(shape, types, layouts)


@pytest.mark.parametrize(
    ("shape", "types", "operation", "end"),
    [
        ("m16n16k16", ("s32", "s8", "s8", "s32"), "", ".satfinite"),
        ("m16n16k16", ("s32", "u8", "u8", "s32"), "", ".satfinite"),
        ("m16n16k8", ("f32", "tf32", "tf32", "f32"), "", ""),
        ("m8n8k4", ("f64", "f64", "f64", "f64"), "", ""),
        *(("m8n8k32", ("s32", kind, kind, "s32"), "", end) for kind in ("s4", "u4") for end in ("", ".satfinite")),
        ("m8n8k128", ("s32", "b1", "b1", "s32"), ".xor.popc", ""),
        ("m8n8k128", ("s32", "b1", "b1", "s32"), ".and.popc", ""),
    ],
)
def test_other_depths(shape: str, types: tuple[str, str, str, str], operation: str, end: str) -> None:
    multiply(shape, types, operation=operation, end=end)
    multiply(
        shape, types, ("row", "col", "col", "col"), operation=operation, end=end, padding=0, space="", in_place=True
    )


@pytest.mark.parametrize("types", [("f32", "tf32", "tf32", "f32"), ("f64", "f64", "f64", "f64")])
@pytest.mark.parametrize("layouts", [("row", "row", "col", "row"), ("col", "col", "row", "col")])
def test_other_layouts(types: tuple[str, str, str, str], layouts: tuple[str, str, str, str]) -> None:
    multiply("m8n8k4" if types[1] == "f64" else "m16n16k8", types, layouts)


CUDA = """
// c = 2 a b, 32 x 16 x 32: with the functions that nvcuda::wmma is made of
extern "C" __global__ void k(const int* a, const int* b, float* c) {
    __shared__ __align__(32) int tile[16 * 12];
    int fa[8], fb[8], warp = threadIdx.x / 32;
    float fc[8] = {};
    for (int k = 0; k < 16; k += 8) {
        for (int i = threadIdx.x; i < 128; i += 64) tile[i / 8 * 12 + i % 8] = b[i / 8 * 16 + k + i % 8];
        __syncthreads();
        __hmma_m16n16k16_ld_a(fa, a + warp * 16 * 16 + k, 32, 0);
        __hmma_m16n16k16_ld_b(fb, tile, 24, 1);
        __hmma_m16n16k16_mma_f32f32(fc, fa, fb, fc, 1, 0);
#ifndef RACE
        __syncthreads();
#endif
    }
    for (int i = 0; i < 8; i++) fc[i] *= 2;
    __hmma_m16n16k16_st_c_f32(c + warp * 256, fc, 16, 0);  // out
}
"""


def test_fragments_of_cuda() -> None:
    a, b = drawn("f16", (32, 32)), drawn("f16", (16, 32))
    memory = Memory()
    arguments = [memory.upload(a, "a"), memory.upload(b, "b")]
    c = memory.allocate(32 * 16 * 4, "c")
    execute(compile_cuda(CUDA).entries["k"], 1, 64, [*arguments, c], memory=memory)
    expected = 2 * (a.astype(np.float64) @ b.T.astype(np.float64))
    assert np.allclose(memory.read(c, np.float32, (32, 16)), expected, rtol=1e-4, atol=1e-4)


def test_hazards_of_fragments() -> None:
    a, b = drawn("f16", (32, 32)), drawn("f16", (16, 32))
    for define, kind, size, marker in (
        ("GOOD", FindingKind.OUT_OF_BOUNDS, 32 * 16 * 4 - 8, "// out"),
        ("RACE", FindingKind.RACE, 32 * 16 * 4, ""),
    ):
        memory = Memory()
        arguments = [memory.upload(a, "a"), memory.upload(b, "b"), memory.allocate(size, "c")]
        finding = fault_of(kind, compile_cuda(CUDA, define).entries["k"], 1, 64, arguments, memory=memory)
        assert marker in finding.source_line or marker in str(finding)


UNWRITTEN = """
extern "C" __global__ void k(const int* a, const int* b, float* c, int rows, int columns) {  // c = a b, 16 x 16 x 16
    __shared__ __align__(32) int left[128], right[128];
    __shared__ __align__(32) float product[256];
    int fa[8], fb[8];
    float fc[8] = {};
    for (int i = threadIdx.x; i < 128; i += 32) {
        if (i / 8 < rows) left[i] = a[i];
        if (i / 8 < columns) right[i] = b[i];
    }
    __syncwarp();
    __hmma_m16n16k16_ld_a(fa, left, 16, 0);
    __hmma_m16n16k16_ld_b(fb, right, 16, 1);
    __hmma_m16n16k16_mma_f32f32(fc, fa, fb, fc, 1, 0);
    __hmma_m16n16k16_st_c_f32(product, fc, 16, 0);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32)
        if (i / 16 < rows && i % 16 < columns + EXTRA) c[i] = product[i];  // out
}
"""


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (5, 11), (9, 3)])
def test_what_was_never_written_stays_in_its_rows_and_columns(rows: int, columns: int) -> None:
    a, b = drawn("f16", (16, 16)), drawn("f16", (16, 16))
    for extra in (0, 1) if columns < 16 else (0,):
        memory = Memory()
        c = memory.upload(np.zeros((16, 16), np.float32), "c")
        entry = compile_cuda(UNWRITTEN, f"EXTRA={extra}").entries["k"]
        arguments = [memory.upload(a, "a"), memory.upload(b, "b"), c, rows, columns]
        if extra:
            finding = fault_of(FindingKind.UNINITIALISED, entry, 1, 32, arguments, memory=memory)
            assert "// out" in finding.source_line
            continue
        execute(entry, 1, 32, arguments, memory=memory)
        expected = np.zeros((16, 16))
        expected[:rows, :columns] = (a.astype(np.float64) @ b.T.astype(np.float64))[:rows, :columns]
        assert np.allclose(memory.read(c, np.float32, (16, 16)), expected, rtol=1e-4, atol=1e-4)
