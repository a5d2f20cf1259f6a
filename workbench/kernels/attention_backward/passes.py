"""The kernels before and after those that multiply, and the scratch memory between them."""

from __future__ import annotations

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, ceil_div
from ..attention.operation import strides
from .problem import AttentionBackwardProblem, padded_dim

ROWS_THREADS = 256


def padded_rows(p: AttentionBackwardProblem, tile: int) -> int:
    """Rows of a head in whole tiles."""
    return tile * ceil_div(p.rows, tile)


def scratch(p: AttentionBackwardProblem, tile: int) -> dict[str, Array]:
    """For every row, padded to tiles: lse in base 2, rowsum(do o), and the sums that become dq."""
    heads, rows, dim = p.batch * p.heads, padded_rows(p, tile), padded_dim(p)
    of_row = Array((heads, rows), FP32, output=True)
    return {"lse2": of_row, "delta": of_row, "sums": Array((heads, rows, dim), FP32, output=True)}


def _sizes(p: AttentionBackwardProblem, tile: int) -> tuple[np.generic, ...]:
    counts = (p.heads, p.rows, p.dim, p.batch * p.heads, padded_rows(p, tile))
    return tuple(np.int32(n) for n in counts)


def _blocks(p: AttentionBackwardProblem, tile: int) -> int:
    """Of threads that have 8 elements of a row each."""
    return ceil_div(p.batch * p.heads * padded_rows(p, tile) * padded_dim(p) // 8, ROWS_THREADS)


def before(p: AttentionBackwardProblem, tile: int) -> Launch:
    arrays = ("o", "do", "lse", "lse2", "delta", "sums")
    return Launch(
        "attention_backward_rows",
        (_blocks(p, tile), 1, 1),
        (ROWS_THREADS, 1, 1),
        (*arrays, *strides(p, "o"), *_sizes(p, tile)),
    )


def after(p: AttentionBackwardProblem, tile: int) -> Launch:
    return Launch(
        "attention_backward_queries",
        (_blocks(p, tile), 1, 1),
        (ROWS_THREADS, 1, 1),
        ("sums", "dq", *strides(p, "dq"), *_sizes(p, tile), np.float32(p.factor)),
    )
