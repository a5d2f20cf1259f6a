"""Stages of attention_backward on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, Plan, ceil_div
from ..attention.operation import counts, strides
from ..attention.problem import Layout
from . import passes
from .operation import ATTENTION_BACKWARD, EDGE_CASES
from .problem import AttentionBackwardProblem, padded_dim, tensor_maps

BLOCK = 64
"""Rows, and keys, of a tile."""

_EDGE_CASES = (
    *EDGE_CASES,
    AttentionBackwardProblem(rows=130, keys=70, dim=200, heads=2, group=2, causal=True, layout=Layout.BSHD),
)


@ATTENTION_BACKWARD.stage(
    "tensor_core",
    track="mma",
    source="attention_backward/mma/01_tensor_core.cu",
    idea="tensor cores (mma.sync): a block owns keys, loops over rows, recomputes weights, adds to dq atomically",
    sizes=lambda p, size: {"DIM": padded_dim(p)},
    edge_cases=_EDGE_CASES,
    architecture=80,
    deterministic=False,
)
def tensor_core(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    padded = np.int32(passes.padded_rows(p, BLOCK))
    scalars = (np.int32(p.causal), np.float32(p.factor), np.int32(aligned))
    main = Launch(
        "attention_backward_tensor_core",
        (ceil_div(p.keys, BLOCK), p.batch * p.key_heads, 1),
        (256, 1, 1),
        (
            *("q", "k", "v", "do", "lse2", "delta", "sums", "dk", "dv"),
            *strides(p, "q", "k", "o", "dk"),
            *counts(p),
            padded,
            *scalars,
        ),
        shared_bytes=2 * BLOCK * (6 * padded_dim(p) + 2 * BLOCK),
    )
    return Plan((passes.before(p, BLOCK), main, passes.after(p, BLOCK)), scratch=passes.scratch(p, BLOCK))
