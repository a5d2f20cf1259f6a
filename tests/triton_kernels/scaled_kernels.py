"""Rows by their numbers."""

import triton
import triton.language as tl


@triton.jit
def gathered(x, rows, out, M: tl.constexpr, N: tl.constexpr):
    tl.store(
        out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], x.gather(tl.load(rows + tl.arange(0, M)), 16)
    )


@triton.jit
def scattered(x, rows, out, M: tl.constexpr, N: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    out.scatter(tile, tl.load(rows + tl.arange(0, M)), 16)
