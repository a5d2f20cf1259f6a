"""Our own Triton kernel for `attention`: any size, any distance between rows, every type of a problem.

It is as plain as Triton allows: masked loads, one tile of rows a program, no search for the best tile. Sums are fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...model.launch import ceil_div
from .problem import AttentionProblem

LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


@triton.jit
def attend(
    q,  # the rows of a head, q_row elements apart
    k,  # its keys, k_row apart, and v, too
    v,
    o,
    lse,  # of its rows
    q_row,
    k_row,
    o_row,
    tile,
    rows,
    keys,
    dim,
    factor,  # scale log2 e
    CAUSAL: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LN_2: tl.constexpr,
):
    row, element = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, DIM)
    inside = (row[:, None] < rows) & (element[None, :] < dim)
    x = tl.load(q + row[:, None].to(tl.int64) * q_row + element[None, :], mask=inside, other=0.0)
    seen, end = keys + 0 * row, keys
    if CAUSAL:
        seen = tl.minimum(keys, row + 1 + keys - rows)
        end = tl.minimum(keys, (tile + 1) * BLOCK_M + keys - rows)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, DIM), tl.float32)
    for start in range(0, end, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        at = key[:, None].to(tl.int64) * k_row + element[None, :]
        there = (key[:, None] < keys) & (element[None, :] < dim)
        y = tl.load(k + at, mask=there, other=0.0)
        logits = tl.dot(x, tl.trans(y)) * factor
        logits = tl.where(key[None, :] < seen[:, None], logits, float("-inf"))
        largest = tl.maximum(top, tl.max(logits, 1))
        base = tl.where(largest == float("-inf"), 0.0, largest)
        weights, rescale = tl.exp2(logits - base[:, None]), tl.exp2(top - base)
        total = total * rescale + tl.sum(weights, 1)
        z = tl.load(v + at, mask=there, other=0.0)
        sums = tl.dot(weights.to(z.dtype), z, sums * rescale[:, None])
        top = largest
    sums = sums / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(o + row[:, None].to(tl.int64) * o_row + element[None, :], sums.to(o.dtype.element_ty), mask=inside)
    # of a row that sees nothing the logarithm of 0, -inf
    tl.store(lse + row, (top + tl.log2(total)) * LN_2, mask=row < rows)


@triton.jit
def attention(
    q,  # (batch, heads, rows, dim), with strides q_batch, q_head, q_row
    k,  # (batch, heads / group, keys, dim), with strides k_batch, k_head, k_row, and v, too
    v,
    o,  # like q, with strides of its own
    lse,  # (batch, heads, rows)
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    o_batch,
    o_head,
    o_row,
    heads,
    group,
    rows,
    keys,
    dim,
    factor,  # scale log2 e
    CAUSAL: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LN_2: tl.constexpr,
):
    tile, number = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)  # the longest first
    batch, head = (number // heads).to(tl.int64), (number % heads).to(tl.int64)
    q += batch * q_batch + head * q_head
    k += batch * k_batch + head // group * k_head
    v += batch * k_batch + head // group * k_head
    o += batch * o_batch + head * o_head
    lse += number.to(tl.int64) * rows
    attend(q, k, v, o, lse, q_row, k_row, o_row, tile, rows, keys, dim, factor, CAUSAL, DIM, BLOCK_M, BLOCK_N, LN_2)


TILES = {64: (128, 128, 8, 3), 128: (128, 128, 8, 2), 256: (128, 64, 8, 2)}
"""By dim, which is filled up with zeros: rows and keys of a tile, warps, tiles of keys under way."""


def work(p: AttentionProblem, q: Any, k: Any, v: Any, o: Any, lse: Any) -> Callable[[], object]:
    """A function that launches the kernel on PyTorch's current stream."""
    dim = min(d for d in TILES if d >= p.dim)
    block_m, block_n, warps, slices = TILES[dim]
    grid = (ceil_div(p.rows, block_m), p.batch * p.heads)
    strides = (step for x in (q, k, o) for step in x.stride()[:3])
    arguments = (
        q,
        k,
        v,
        o,
        lse,
        *strides,
        p.heads,
        p.group,
        p.rows,
        p.keys,
        p.dim,
        float(np.float32(p.factor * LOG2_E)),
    )
    sizes = {"CAUSAL": p.causal, "DIM": dim, "BLOCK_M": block_m, "BLOCK_N": block_n, "LN_2": LN_2}
    return lambda: attention[grid](*arguments, **sizes, num_warps=warps, num_stages=slices)
