"""Stages of attention_varlen on CUDA cores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, ceil_div
from .operation import ATTENTION_VARLEN, EDGE_CASES, counts, strides
from .problem import AttentionVarlenProblem


@ATTENTION_VARLEN.stage(
    "naive",
    track="simt",
    idea="one warp per row: it finds its sequence in the offsets, and then works as in attention",
    parameters={"WARPS": 4},
    space={"WARPS": (1, 2, 4, 8)},
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Launch:
    scalars = (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.causal), np.float32(p.factor))
    return Launch(
        "attention_varlen_naive",
        (ceil_div(p.heads * p.rows, size["WARPS"]), 1, 1),
        (32 * size["WARPS"], 1, 1),
        ("q", "k", "v", "offsets_q", "offsets_k", "o", "lse", *scalars),
    )
