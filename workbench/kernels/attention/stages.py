"""Stages of attention on CUDA cores, and by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div, machine
from ...model.stage import every_problem
from .operation import ATTENTION, EDGE_CASES, counts, strides
from .problem import AttentionProblem, GroupedHeads, padded_dim, tensor_maps

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


# ------------------------------------------------------------------- by mma.sync, whose operands pass through registers


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
