"""The stages of reduction. They run in a process of their own: no other module imports this one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench import Launch, ceil_div

from . import REDUCTION, ReductionProblem


@REDUCTION.stage(
    "naive",
    source="reduction/1_naive.cu",
    idea="one thread takes one row",
    parameters={"THREADS": 64},
)
def naive(p: ReductionProblem, size: Mapping[str, int]) -> Launch:
    arguments = ("x", "y", np.int32(p.rows), np.int32(p.columns))
    return Launch("reduction_naive", (ceil_div(p.rows, size["THREADS"]), 1, 1), (size["THREADS"], 1, 1), arguments)
