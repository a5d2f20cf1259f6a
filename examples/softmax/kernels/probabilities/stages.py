"""The stages of probabilities. They run in a process of their own: no other module imports this one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench import Launch, ceil_div

from . import PROBABILITIES, ProbabilitiesProblem


@PROBABILITIES.stage(
    "naive",
    source="probabilities/1_naive.cu",
    idea="one thread takes one row",
    parameters={"THREADS": 64},
)
def naive(p: ProbabilitiesProblem, size: Mapping[str, int]) -> Launch:
    arguments = ("x", "y", np.int32(p.rows), np.int32(p.columns))
    return Launch("probabilities_naive", (ceil_div(p.rows, size["THREADS"]), 1, 1), (size["THREADS"], 1, 1), arguments)


@PROBABILITIES.stage(
    "warp",
    after="naive",
    source="probabilities/2_warp.cu",
    idea="one warp takes one row",
    parameters={"THREADS": 128},
)
def warp(p: ProbabilitiesProblem, size: Mapping[str, int]) -> Launch:
    arguments = ("x", "y", np.int32(p.rows), np.int32(p.columns))
    blocks = ceil_div(p.rows, size["THREADS"] // 32)
    return Launch("probabilities_warp", (blocks, 1, 1), (size["THREADS"], 1, 1), arguments)


@PROBABILITIES.stage(
    "online",
    after="warp",
    source="probabilities/3_online.cu",
    idea="maximum and sum in one pass",
)
def online(p: ProbabilitiesProblem, size: Mapping[str, int]) -> Launch:
    arguments = ("x", "y", np.int32(p.rows), np.int32(p.columns))
    blocks = ceil_div(p.rows, size["THREADS"] // 32)
    return Launch("probabilities_online", (blocks, 1, 1), (size["THREADS"], 1, 1), arguments)
