"""Products that Triton compiles to ``tcgen05`` on sm_100a: by descriptors, in attention, with scales of blocks."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    first, second = tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(left.load([first, k]), right.load([k, second]), sums)
    out.store([first, second], sums)


@triton.jit
def attention(q, k, v, o, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + columns[None, :])
    sums = tl.zeros((BM, D), tl.float32)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for n in range(0, S, BN):
        at = (n + tl.arange(0, BN))[:, None] * D + columns[None, :]
        scores = tl.dot(queries, tl.load(k + at).T) * scale
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        change = tl.exp(largest - new)
        total = total * change + tl.sum(weights, 1)
        sums = tl.dot(weights.to(tl.float16), tl.load(v + at), sums * change[:, None])
        largest = new
    tl.store(o + rows[:, None] * D + columns[None, :], sums / total[:, None])


@triton.jit
def plain(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr):
    """One tile of C by loads; rows of b are columns where it is TRANSPOSED."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + first + k[None, :])
        if TRANSPOSED:
            right = tl.load(b + n[:, None] * K + first + k[None, :]).T
        else:
            right = tl.load(b + (first + k[:, None]) * BN + n[None, :])
        sums = tl.dot(left, right, sums, input_precision="tf32")
    tl.store(c + m[:, None] * BN + n[None, :], sums)


@triton.jit
def persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALISED: tl.constexpr):
    """Each program takes tiles of C in turns; copies and products by warps of their own where SPECIALISED."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=SPECIALISED):
        first, second = tile // across * BM, tile % across * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(left.load([first, k]), right.load([k, second]), sums)
        out.store([first, second], sums)


@triton.jit
def chained(a, b, c, d, M: tl.constexpr, N: tl.constexpr):
    """d = (a b) c: the first product is the left operand of the second."""
    m, n = tl.arange(0, M), tl.arange(0, N)
    at, square = m[:, None] * N + n[None, :], n[:, None] * N + n[None, :]
    first = tl.dot(tl.load(a + at), tl.load(b + square))
    tl.store(d + at, tl.dot(first.to(tl.float16), tl.load(c + square)))


@triton.jit
def scaled_of(a, sa, b, sb, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
              GROUP: tl.constexpr):  # fmt: skip
    """Of any types: two elements of e2m1 are a byte, packed along k."""
    PA: tl.constexpr = BK // 2 if A == "e2m1" else BK
    PB: tl.constexpr = BK // 2 if B == "e2m1" else BK
    m, n, group = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK // GROUP)
    left = tl.load(a + m[:, None] * PA + tl.arange(0, PA)[None, :])
    right = tl.load(b + n[None, :] * PB + tl.arange(0, PB)[:, None])
    of_left = tl.load(sa + m[:, None] * (BK // GROUP) + group[None, :])
    of_right = tl.load(sb + n[:, None] * (BK // GROUP) + group[None, :])
    sums = tl.dot_scaled(left, of_left, A, right, of_right, B)
    tl.store(c + m[:, None] * BN + n[None, :], sums)
