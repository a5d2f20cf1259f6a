"""wmma in CUDA C++, and what it does to bytes that were never written; all its forms are in ``cases.py``."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Array, compile_cuda, fault_of

from workbench.emulator import FindingKind, Memory, execute

RNG = np.random.default_rng(7)


def drawn(shape: tuple[int, int]) -> Array:
    return RNG.standard_normal(shape).astype(np.float16)


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
    a, b = drawn((32, 32)), drawn((16, 32))
    memory = Memory()
    arguments = [memory.upload(a, "a"), memory.upload(b, "b")]
    c = memory.allocate(32 * 16 * 4, "c")
    execute(compile_cuda(CUDA).entries["k"], 1, 64, [*arguments, c], memory=memory)
    expected = 2 * (a.astype(np.float64) @ b.T.astype(np.float64))
    assert np.allclose(memory.read(c, np.float32, (32, 16)), expected, rtol=1e-4, atol=1e-4)


def test_hazards_of_fragments() -> None:
    a, b = drawn((32, 32)), drawn((16, 32))
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
    a, b = drawn((16, 16)), drawn((16, 16))
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
