"""Our own Triton kernel for `matvec`: any size, any distance between rows, every type of a problem.

It is as plain as Triton allows: masked loads, one tile a program, no search for the best tile. Sums are fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from ...model.launch import ceil_div
from ..shared import multiprocessors


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


def work(p: Any, a: Any, B: Any, c: Any) -> Callable[[], object]:
    """A function that launches the kernel on PyTorch's current stream."""
    rows = 4 if p.n >= 32 * multiprocessors() else 1  # a row a program where rows are few
    grid = (ceil_div(p.n, rows),)
    return lambda: matvec[grid](a, B, c, p.n, p.k, p.ldb, ROWS=rows, STEP=1024)
