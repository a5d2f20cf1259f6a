"""Stages of attention on CUDA cores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div
from ...model.stage import every_problem
from .operation import ATTENTION, EDGE_CASES, counts, strides
from .problem import AttentionProblem

MOST_WEIGHTS = 2**33
"""Bytes of scratch memory for an array of all pairs of rows and keys."""


def weights_fit(p: AttentionProblem) -> str | None:
    """Why an array of fp32 with all pairs of rows and keys is too large, or None."""
    needed = 4 * p.batch * p.heads * p.rows * p.keys
    return None if needed <= MOST_WEIGHTS else f"the weights take {needed:,} bytes, more than {MOST_WEIGHTS:,}"


@ATTENTION.stage(
    "naive",
    track="simt",
    idea="three kernels: logits, their softmax, averages; the weights of all pairs are stored in memory",
    parameters={"THREADS": 128},
    supports=weights_fit,
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: AttentionProblem, size: Mapping[str, int]) -> Plan:
    rows, threads = p.batch * p.heads * p.rows, size["THREADS"]
    mask = (np.int32(p.causal), np.float32(p.factor))
    sizes = (*counts(p), np.int32(p.batch))

    def launch(kernel: str, count: int, *arguments: str | np.generic) -> Launch:
        return Launch(kernel, (ceil_div(count, threads), 1, 1), (threads, 1, 1), arguments)

    return Plan(
        (
            launch("attention_logits", rows * p.keys, "q", "k", "w", *strides(p, "q", "k"), *sizes, *mask),
            launch("attention_softmax", rows, "w", "lse", np.int64(rows), np.int32(p.keys)),
            launch("attention_averages", rows * p.dim, "w", "v", "o", *strides(p, "v", "o"), *sizes),
        ),
        scratch={"w": Array((rows, p.keys), FP32, output=True)},
    )


@ATTENTION.stage(
    "online",
    after=naive,
    idea="one kernel, one warp per row: weights are relative to the maximum so far, and sums are rescaled",
    parameters={"WARPS": 4},
    space={"WARPS": (1, 2, 4, 8)},
    supports=every_problem,
)
def online(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    rows = p.batch * p.heads * p.rows
    scalars = (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.batch), np.int32(p.causal), np.float32(p.factor))
    return Launch(
        "attention_online",
        (ceil_div(rows, size["WARPS"]), 1, 1),
        (32 * size["WARPS"], 1, 1),
        ("q", "k", "v", "o", "lse", *scalars),
    )
