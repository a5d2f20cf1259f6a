"""Stages of attention on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, ceil_div
from ...model.machine import machine
from .operation import ATTENTION, EDGE_CASES, counts, strides
from .problem import AttentionProblem, GroupedHeads, padded_dim, tensor_maps


def shared_bytes(dim: int, size: Mapping[str, int]) -> int:
    """Of the queries, and of two tiles of keys and values, with vectors of `dim` elements."""
    return (16 * size["WARPS"] + 4 * size["BLOCK_N"]) * dim * 2


def constraint(p: GroupedHeads, size: Mapping[str, int]) -> str | None:
    """Why tiles of these sizes do not fit, or None."""
    return (
        None
        if shared_bytes(padded_dim(p), size) <= machine().shared_bytes
        else "the tiles do not fit into shared memory"
    )


@ATTENTION.stage(
    "tensor_core",
    track="mma",
    idea="tensor cores (mma.sync): weights stay in registers; cp.async loads the next keys and values",
    parameters={"WARPS": 4, "BLOCK_N": 64},
    space={"WARPS": (4, 8), "BLOCK_N": (32, 64, 128)},
    constraint=constraint,
    sizes=lambda p, size: {"DIM": padded_dim(p)},
    edge_cases=EDGE_CASES,
    architecture=80,
)
def tensor_core(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    scalars = (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.causal), np.float32(p.factor), np.int32(aligned))
    return Launch(
        "attention_tensor_core",
        (ceil_div(p.rows, 16 * size["WARPS"]), p.batch * p.heads, 1),
        (32 * size["WARPS"], 1, 1),
        ("q", "k", "v", "o", "lse", *scalars),
        shared_bytes=shared_bytes(padded_dim(p), size),
    )
