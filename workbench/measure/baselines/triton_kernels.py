"""Our own Triton kernels for every operation: any size, any distance between rows, every type of a problem.

They are as plain as Triton allows: masked loads, one tile a program, no search for the best tile. Sums are fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from ...model.launch import ceil_div
from ...model.problem import Problem
from .pytorch import Tensors


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


@triton.jit
def matvec(
    a,  # (k,)
    B,  # (n, k), rows `ldb` apart
    c,  # (n,)
    n,
    k,
    ldb,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
):
    row, step = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, STEP)
    b = B + row[:, None].to(tl.int64) * ldb + step[None, :]
    sums = tl.zeros((ROWS, STEP), tl.float32)
    for start in range(0, k, STEP):
        inside = step < k - start
        x = tl.load(a + start + step, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(b, mask=(row[:, None] < n) & inside[None, :], other=0.0).to(tl.float32)
        sums += x[None, :] * y
        b += STEP
    tl.store(c + row, tl.sum(sums, 1).to(c.dtype.element_ty), mask=row < n)


@triton.jit
def vector_add(a, b, c, n, BLOCK: tl.constexpr):  # all (n,)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(a + at, mask=at < n).to(tl.float32) + tl.load(b + at, mask=at < n).to(tl.float32)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < n)


TILES = ((128, 256, 8, 3), (128, 128, 8, 4), (64, 128, 4, 4))
"""Rows and columns of a tile of C for tensor cores, warps, slices under way; the largest first."""

TILE_FP32 = (64, 64, 4, 3)
GROUP_M = 8


def tile(m: int, n: int, multiprocessors: int) -> tuple[int, int, int, int]:
    """The largest of `TILES` of which there are enough for all multiprocessors, else the smallest."""
    enough = (t for t in TILES if ceil_div(m, t[0]) * ceil_div(n, t[1]) >= multiprocessors)
    return next(enough, TILES[-1])


def work(operation: str, problem: Any, held: Tensors, multiprocessors: int) -> Callable[[], None]:
    """A function that launches the kernel of an operation on tensors of a problem, on PyTorch's current stream."""
    made: Callable[[], None] = _WORK[operation](problem, held, multiprocessors)
    return made


def _gemm(p: Any, held: Tensors, multiprocessors: int) -> Callable[[], object]:
    half = p.dtype != "fp32"
    block_m, block_n, warps, slices = tile(p.m, p.n, multiprocessors) if half else TILE_FP32
    grid = (ceil_div(p.m, block_m) * ceil_div(p.n, block_n),)
    strides = (p.ldb, 1) if p.layout == "nn" else (1, p.ldb)
    arguments = (held["A"], held["B"], held["C"], p.m, p.n, p.k, p.lda, *strides, p.ldc)
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64 if half else 16, "GROUP_M": GROUP_M}
    return lambda: gemm[grid](*arguments, **sizes, num_warps=warps, num_stages=slices)


def _matvec(p: Any, held: Tensors, multiprocessors: int) -> Callable[[], object]:
    rows = 4 if p.n >= 32 * multiprocessors else 1  # a row a program where rows are few
    grid = (ceil_div(p.n, rows),)
    return lambda: matvec[grid](held["a"], held["B"], held["c"], p.n, p.k, p.ldb, ROWS=rows, STEP=1024)


def _vector_add(p: Problem, held: Tensors, multiprocessors: int) -> Callable[[], object]:
    n = held["c"].numel()
    return lambda: vector_add[(ceil_div(n, 1024),)](held["a"], held["b"], held["c"], n, BLOCK=1024)


_WORK: dict[str, Any] = {"gemm": _gemm, "matvec": _matvec, "vector_add": _vector_add}
