"""Our own Triton kernels for `attention_backward`: any size, any distance between rows, every type of a problem.

They are as plain as Triton allows: one for the gradients of keys and values, a tile of keys a program, and one for
those of queries, a tile of rows a program. Both compute weights again from lse. Nothing is added to memory, so results
are the same every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl

from ...model.launch import ceil_div
from ..attention._triton import LOG2_E
from .problem import AttentionBackwardProblem


@triton.jit
def rows_of(x, row, step, rows, dim, DIM: tl.constexpr):
    """Vectors of a head, those behind the last one zero."""
    element = tl.arange(0, DIM)
    there = (row[:, None] < rows) & (element[None, :] < dim)
    return tl.load(x + row[:, None].to(tl.int64) * step + element[None, :], mask=there, other=0.0)


@triton.jit
def store_rows(x, values, row, step, rows, dim, DIM: tl.constexpr):
    element = tl.arange(0, DIM)
    there = (row[:, None] < rows) & (element[None, :] < dim)
    tl.store(x + row[:, None].to(tl.int64) * step + element[None, :], values.to(x.dtype.element_ty), mask=there)


@triton.jit
def weighed(x, y, z, d, o, lse, row, key, rows, keys, factor, CAUSAL: tl.constexpr, LOG2_E: tl.constexpr):
    """Weights of rows and keys, and the gradients of their logits: of queries, keys, values, do and o."""
    log_sum = tl.load(lse + row, mask=row < rows, other=float("-inf"))
    base = tl.where(log_sum == float("-inf"), float("inf"), log_sum * LOG2_E)  # all weights are 0
    seen = keys + 0 * row
    if CAUSAL:
        seen = tl.minimum(keys, row + 1 + keys - rows)
    logits = tl.where(key[None, :] < seen[:, None], tl.dot(x, tl.trans(y)) * factor, float("-inf"))
    weights = tl.exp2(logits - base[:, None])
    delta = tl.sum(d.to(tl.float32) * o.to(tl.float32), 1)
    return weights, weights * (tl.dot(d, tl.trans(z)) - delta[:, None])


@triton.jit
def gradients_of_keys(
    q,  # (batch, heads, rows, dim), with strides q_batch, q_head, q_row
    k,  # (batch, heads / group, keys, dim), with strides k_batch, k_head, k_row, and v, too
    v,
    o,  # like q, with strides o_batch, o_head, o_row, and do, too
    lse,  # (batch, heads, rows)
    do,
    dk,  # like k, with strides of its own, and dv, too
    dv,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    o_batch,
    o_head,
    o_row,
    dk_batch,
    dk_head,
    dk_row,
    key_heads,
    group,
    rows,
    keys,
    dim,
    factor,  # scale log2 e
    scale,
    CAUSAL: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LOG2_E: tl.constexpr,
):
    key, number = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.program_id(1)
    batch, shared = (number // key_heads).to(tl.int64), (number % key_heads).to(tl.int64)
    first = batch * k_batch + shared * k_head
    y, z = rows_of(k + first, key, k_row, keys, dim, DIM), rows_of(v + first, key, k_row, keys, dim, DIM)
    of_keys, of_values = tl.zeros((BLOCK_N, DIM), tl.float32), tl.zeros((BLOCK_N, DIM), tl.float32)
    begin = 0
    if CAUSAL:  # earlier rows see none of these keys
        begin = tl.maximum(0, tl.program_id(0) * BLOCK_N + rows - keys) // BLOCK_M * BLOCK_M
    for member in range(0, group):
        head = shared * group + member
        of_q, of_o = batch * q_batch + head * q_head, batch * o_batch + head * o_head
        of_lse = (batch * key_heads * group + head) * rows
        for start in range(begin, rows, BLOCK_M):
            row = start + tl.arange(0, BLOCK_M)
            x, d = rows_of(q + of_q, row, q_row, rows, dim, DIM), rows_of(do + of_o, row, o_row, rows, dim, DIM)
            r = rows_of(o + of_o, row, o_row, rows, dim, DIM)
            weights, slopes = weighed(x, y, z, d, r, lse + of_lse, row, key, rows, keys, factor, CAUSAL, LOG2_E)
            of_values = tl.dot(tl.trans(weights.to(d.dtype)), d, of_values)
            of_keys = tl.dot(tl.trans(slopes.to(x.dtype)), x, of_keys)
    first = batch * dk_batch + shared * dk_head
    store_rows(dk + first, of_keys * scale, key, dk_row, keys, dim, DIM)
    store_rows(dv + first, of_values, key, dk_row, keys, dim, DIM)


@triton.jit
def gradients_of_queries(
    q,
    k,
    v,
    o,
    lse,
    do,
    dq,  # like q, with the strides of o
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
    factor,
    scale,
    CAUSAL: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LOG2_E: tl.constexpr,
):
    tile, number = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)  # the longest first
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    batch, head = (number // heads).to(tl.int64), (number % heads).to(tl.int64)
    first, of_o = batch * k_batch + head // group * k_head, batch * o_batch + head * o_head
    x = rows_of(q + batch * q_batch + head * q_head, row, q_row, rows, dim, DIM)
    r, d = rows_of(o + of_o, row, o_row, rows, dim, DIM), rows_of(do + of_o, row, o_row, rows, dim, DIM)
    of_queries, end = tl.zeros((BLOCK_M, DIM), tl.float32), keys
    if CAUSAL:
        end = tl.minimum(keys, (tile + 1) * BLOCK_M + keys - rows)
    for start in range(0, end, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        y, z = rows_of(k + first, key, k_row, keys, dim, DIM), rows_of(v + first, key, k_row, keys, dim, DIM)
        of_lse = lse + number.to(tl.int64) * rows
        _, slopes = weighed(x, y, z, d, r, of_lse, row, key, rows, keys, factor, CAUSAL, LOG2_E)
        of_queries = tl.dot(slopes.to(y.dtype), y, of_queries)
    store_rows(dq + of_o, of_queries * scale, row, o_row, rows, dim, DIM)


TILES = {64: (64, 64, 4, 2), 128: (64, 64, 8, 1), 256: (32, 32, 8, 1)}
"""By dim, which is filled up with zeros: rows and keys of a tile, warps, tiles under way."""


def work(
    p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any, dq: Any, dk: Any, dv: Any
) -> Callable[[], object]:
    """A function that launches both kernels on PyTorch's current stream."""
    dim = min(d for d in TILES if d >= p.dim)
    block_m, block_n, warps, slices = TILES[dim]
    strides = [step for x in (q, k, o) for step in x.stride()[:3]]
    counts = (p.group, p.rows, p.keys, p.dim, float(np.float32(p.factor * LOG2_E)), p.factor)
    of_keys = (q, k, v, o, lse, do, dk, dv, *strides, *dk.stride()[:3], p.key_heads, *counts)
    of_queries = (q, k, v, o, lse, do, dq, *strides, p.heads, *counts)
    sizes = {"CAUSAL": p.causal, "DIM": dim, "BLOCK_M": block_m, "BLOCK_N": block_n, "LOG2_E": LOG2_E}

    def launch() -> None:
        options = {**sizes, "num_warps": warps, "num_stages": slices}
        gradients_of_keys[ceil_div(p.keys, block_n), p.batch * p.key_heads](*of_keys, **options)
        gradients_of_queries[ceil_div(p.rows, block_m), p.batch * p.heads](*of_queries, **options)

    return launch
