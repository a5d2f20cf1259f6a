"""Stages of attention for few rows and many keys: the rows of the heads that share keys are one tile."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, ceil_div
from .operation import ATTENTION, EDGE_CASES, SHARED_BYTES, counts, strides
from .problem import AttentionProblem, Kind, Layout, padded_dim, tensor_maps

ROWS = 16
"""Rows of a tile: of one row of queries, or some, of all heads that share keys."""

_EDGE_CASES = (
    *EDGE_CASES,
    AttentionProblem(batch=2, heads=8, group=4, rows=1, keys=390, dim=128, layout=Layout.BSHD),
    AttentionProblem(heads=6, group=3, rows=7, keys=150, dim=64, causal=True, dtype="fp16", values=Kind.LARGE),
    AttentionProblem(heads=2, group=2, rows=5, keys=3, dim=72, causal=True),  # some rows see nothing
    AttentionProblem(heads=20, group=20, rows=1, keys=70, dim=200),  # more heads than a tile has rows
)


def shared_bytes(p: AttentionProblem, size: Mapping[str, int]) -> int:
    """Of the queries, of the tiles of all warps, and of a maximum and a sum of every row of each."""
    tiles = 2 * size["STAGES"] * size["KEYS"]
    return (ROWS + size["WARPS"] * tiles) * padded_dim(p) * 2 + size["WARPS"] * ROWS * 8


def row_tiles(p: AttentionProblem) -> int:
    """Tiles of 16 rows of all heads of keys of all batches."""
    return ceil_div(p.group * p.rows, ROWS) * p.key_heads * p.batch


def _scalars(p: AttentionProblem) -> tuple[np.generic, ...]:
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    return (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.causal), np.float32(p.factor), np.int32(aligned))


def _constraint(p: AttentionProblem, size: Mapping[str, int]) -> str | None:
    return None if shared_bytes(p, size) <= SHARED_BYTES else "the tiles do not fit into shared memory"


@ATTENTION.stage(
    "packed_heads",
    track="decode",
    source="attention/decode/01_packed_heads.cu",
    idea="few rows: those of the heads that share keys are one tile; each warp loads keys of its own, some tiles ahead",
    parameters={"WARPS": 4, "KEYS": 16, "STAGES": 3},
    space={"WARPS": (2, 4, 8), "KEYS": (16, 32), "STAGES": (2, 3, 4, 6)},
    constraint=_constraint,
    sizes=lambda p, size: {"DIM": padded_dim(p)},
    edge_cases=_EDGE_CASES,
    architecture=80,
)
def packed_heads(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "attention_packed_heads",
        (row_tiles(p), 1, 1),
        (32 * size["WARPS"], 1, 1),
        ("q", "k", "v", "o", "lse", *_scalars(p)),
        shared_bytes=shared_bytes(p, size),
    )
