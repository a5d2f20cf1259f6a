"""Stages of attention_varlen on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch
from ..attention.mma import constraint, shared_bytes
from ..attention.problem import padded_dim
from .operation import ATTENTION_VARLEN, EDGE_CASES, counts, row_tiles, strides
from .problem import AttentionVarlenProblem, tensor_maps


@ATTENTION_VARLEN.stage(
    "tensor_core",
    track="mma",
    idea="tensor cores (mma.sync): a block finds its tile in the offsets; what lies behind an end is zero",
    parameters={"WARPS": 4, "BLOCK_N": 64},
    space={"WARPS": (4, 8), "BLOCK_N": (32, 64, 128)},
    constraint=constraint,
    sizes=lambda p, size: {"DIM": padded_dim(p)},
    edge_cases=EDGE_CASES,
    architecture=80,
)
def tensor_core(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Launch:
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    scalars = (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.causal), np.float32(p.factor), np.int32(aligned))
    return Launch(
        "attention_varlen_tensor_core",
        (row_tiles(p, 16 * size["WARPS"]) * p.heads, 1, 1),
        (32 * size["WARPS"], 1, 1),
        ("q", "k", "v", "offsets_q", "offsets_k", "o", "lse", *scalars),
        shared_bytes=shared_bytes(padded_dim(p), size),
    )
