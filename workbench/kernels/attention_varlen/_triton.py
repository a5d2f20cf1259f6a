"""Our own Triton kernel for `attention_varlen`: any lengths, any distance between heads, every type of a problem.

A program finds its sequence in the offsets, and then does what one of `attention` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl

from ..attention._triton import LN_2, LOG2_E, TILES, attend
from .problem import AttentionVarlenProblem


@triton.jit
def attention_varlen(
    q,  # (rows, heads, dim), with strides q_row, q_head
    k,  # (keys, heads / group, dim), with strides k_row, k_head, and v, too
    v,
    offsets_q,  # (batch + 1)
    offsets_k,
    o,  # like q, with strides of its own
    lse,  # (heads, rows)
    q_row,
    q_head,
    k_row,
    k_head,
    o_row,
    o_head,
    batch,
    group,
    rows,
    dim,
    factor,  # scale log2 e
    CAUSAL: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LN_2: tl.constexpr,
):
    number, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    # tiles of sequence i may be numbered from offsets_q[i] // BLOCK_M + i on: the last one that begins no later
    low, high = 0, batch - 1
    while low < high:
        middle = (low + high + 1) // 2
        earlier = tl.load(offsets_q + middle) // BLOCK_M + middle <= number
        low = tl.where(earlier, middle, low)
        high = tl.where(earlier, high, middle - 1)
    first_row, first_key = tl.load(offsets_q + low), tl.load(offsets_k + low)
    n, m = tl.load(offsets_q + low + 1) - first_row, tl.load(offsets_k + low + 1) - first_key
    tile = number - first_row // BLOCK_M - low
    if tile * BLOCK_M < n:
        q += first_row.to(tl.int64) * q_row + head * q_head
        k += first_key.to(tl.int64) * k_row + head // group * k_head
        v += first_key.to(tl.int64) * k_row + head // group * k_head
        o += first_row.to(tl.int64) * o_row + head * o_head
        lse += head * rows + first_row
        attend(q, k, v, o, lse, q_row, k_row, o_row, tile, n, m, dim, factor, CAUSAL, DIM, BLOCK_M, BLOCK_N, LN_2)


def work(
    p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any, o: Any, lse: Any
) -> Callable[[], object]:
    """A function that launches the kernel on PyTorch's current stream."""
    dim = min(d for d in TILES if d >= p.dim)
    block_m, block_n, warps, slices = TILES[dim]
    grid = (p.rows // block_m + p.batch, p.heads)
    strides = (step for x in (q, k, o) for step in x.stride()[:2])
    scalars = (p.batch, p.group, p.rows, p.dim, float(np.float32(p.factor * LOG2_E)))
    arguments = (q, k, v, offsets_q, offsets_k, o, lse, *strides, *scalars)
    sizes = {"CAUSAL": p.causal, "DIM": dim, "BLOCK_M": block_m, "BLOCK_N": block_n, "LN_2": LN_2}
    return lambda: attention_varlen[grid](*arguments, **sizes, num_warps=warps, num_stages=slices)
