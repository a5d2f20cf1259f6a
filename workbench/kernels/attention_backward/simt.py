"""Stages of attention_backward on CUDA cores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div
from ..attention.operation import counts, strides
from ..attention.simt import weights_fit
from .operation import ATTENTION_BACKWARD, EDGE_CASES
from .problem import AttentionBackwardProblem


@ATTENTION_BACKWARD.stage(
    "naive",
    track="simt",
    idea="the steps of the definition; weights and gradients of all logits are stored in memory",
    parameters={"THREADS": 128},
    supports=weights_fit,
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    rows, threads = p.batch * p.heads * p.rows, size["THREADS"]
    factor = np.float32(p.factor)
    sizes = (*counts(p), np.int32(p.batch))

    def launch(kernel: str, count: int, *arguments: str | np.generic) -> Launch:
        return Launch(f"attention_backward_{kernel}", (ceil_div(count, threads), 1, 1), (threads, 1, 1), arguments)

    of_all = strides(p, "q", "k", "o")
    keys = p.batch * p.key_heads * p.keys * p.dim
    scores = Array((rows, p.keys), FP32, output=True)
    return Plan(
        (
            launch("rows", rows, "o", "do", "delta", *strides(p, "o"), *sizes),
            launch(
                "scores",
                rows * p.keys,
                *("q", "k", "v", "lse", "do", "delta", "w", "dw"),
                *of_all,
                *sizes,
                np.int32(p.causal),
                factor,
            ),
            launch("queries", rows * p.dim, "k", "dw", "dq", *strides(p, "k", "dq"), *sizes, factor),
            launch("keys", keys, *("q", "do", "w", "dw", "dk", "dv"), *strides(p, "q", "o", "dk"), *sizes, factor),
        ),
        scratch={"delta": Array((rows,), FP32, output=True), "w": scores, "dw": scores},
    )
