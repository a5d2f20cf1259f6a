"""Products with scales of blocks, and rows by their numbers."""

import triton
import triton.language as tl


@triton.jit
def scaled(a, sa, b, sb, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TYPE: tl.constexpr):
    packed: tl.constexpr = 2 if TYPE == "e2m1" else 1
    m, n, k, group = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK // packed), tl.arange(0, BK // 32)
    left = tl.load(a + m[:, None] * (BK // packed) + k[None, :])
    right = tl.load(b + n[None, :] * (BK // packed) + k[:, None])
    of_left = tl.load(sa + m[:, None] * (BK // 32) + group[None, :])
    of_right = tl.load(sb + n[:, None] * (BK // 32) + group[None, :])
    sums = tl.dot_scaled(left, of_left, TYPE, right, of_right, TYPE)
    tl.store(c + m[:, None] * BN + n[None, :], sums)


@triton.jit
def gathered(x, rows, out, M: tl.constexpr, N: tl.constexpr):
    tl.store(
        out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], x.gather(tl.load(rows + tl.arange(0, M)), 16)
    )


@triton.jit
def scattered(x, rows, out, M: tl.constexpr, N: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    out.scatter(tile, tl.load(rows + tl.arange(0, M)), 16)
