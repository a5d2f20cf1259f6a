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
def scaled(a, sa, b, sb, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k, group = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK), tl.arange(0, BK // 32)
    left = tl.load(a + m[:, None] * BK + k[None, :])
    right = tl.load(b + k[:, None] * BN + n[None, :])
    of_left = tl.load(sa + m[:, None] * (BK // 32) + group[None, :])
    of_right = tl.load(sb + n[:, None] * (BK // 32) + group[None, :])
    sums = tl.dot_scaled(left, of_left, "e4m3", right, of_right, "e4m3")
    tl.store(c + m[:, None] * BN + n[None, :], sums)
