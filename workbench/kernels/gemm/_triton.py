"""Our own Triton kernel for `gemm`: any size, any distance between rows, every type of a problem.

It is as plain as Triton allows: masked loads, one tile a program, no search for the best tile. Sums are fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from ...model.launch import ceil_div
from ..shared import multiprocessors
from .problem import GemmProblem


@triton.jit
def gemm(
    A,  # (m, k), rows `lda` apart
    B,  # (k, n), elements `stride_k` apart along k and `stride_n` along n
    C,  # (m, n), rows `ldc` apart
    m,
    n,
    k,
    lda,
    stride_k,
    stride_n,
    ldc,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # GROUP_M rows of tiles are walked together, column by column: their tiles of A stay in the L2
    tile, columns = tl.program_id(0), tl.cdiv(n, BLOCK_N)
    group, within = tile // (GROUP_M * columns), tile % (GROUP_M * columns)
    height = min(tl.cdiv(m, BLOCK_M) - group * GROUP_M, GROUP_M)
    row = (group * GROUP_M + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.arange(0, BLOCK_K)
    a = A + row[:, None].to(tl.int64) * lda + step[None, :]
    b = B + step[:, None].to(tl.int64) * stride_k + column[None, :].to(tl.int64) * stride_n
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = step < k - start
        x = tl.load(a, mask=(row[:, None] < m) & inside[None, :], other=0.0)
        y = tl.load(b, mask=inside[:, None] & (column[None, :] < n), other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")  # fp32 is multiplied as fp32, not as tf32
        a += BLOCK_K
        b += BLOCK_K * stride_k
    c = C + row[:, None].to(tl.int64) * ldc + column[None, :]
    tl.store(c, sums.to(C.dtype.element_ty), mask=(row[:, None] < m) & (column[None, :] < n))


TILES = ((128, 256, 8, 3), (128, 128, 8, 4), (64, 128, 4, 4))
"""Rows and columns of a tile of C for tensor cores, warps, slices under way; the largest first."""

TILE_FP32 = (64, 64, 4, 3)
GROUP_M = 8


def tile(m: int, n: int) -> tuple[int, int, int, int]:
    """The largest of `TILES` of which there are enough for all multiprocessors, else the smallest."""
    enough = (t for t in TILES if ceil_div(m, t[0]) * ceil_div(n, t[1]) >= multiprocessors())
    return next(enough, TILES[-1])


def work(p: GemmProblem, A: Any, B: Any, C: Any) -> Callable[[], object]:
    """A function that launches the kernel on PyTorch's current stream."""
    half = p.dtype != "fp32"
    block_m, block_n, warps, slices = tile(p.m, p.n) if half else TILE_FP32
    grid = (ceil_div(p.m, block_m) * ceil_div(p.n, block_n),)
    strides = (p.ldb, 1) if p.layout == "nn" else (1, p.ldb)
    arguments = (A, B, C, p.m, p.n, p.k, p.lda, *strides, p.ldc)
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64 if half else 16, "GROUP_M": GROUP_M}
    return lambda: gemm[grid](*arguments, **sizes, num_warps=warps, num_stages=slices)
