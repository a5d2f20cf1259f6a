"""The stages of elementwise. They run in a process of their own: no other module imports this one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench import Launch, ceil_div

from . import ELEMENTWISE, ElementwiseProblem


@ELEMENTWISE.stage(
    "naive",
    source="elementwise/1_naive.cu",
    idea="one thread computes one element",
    parameters={"THREADS": 256},
)
def naive(p: ElementwiseProblem, size: Mapping[str, int]) -> Launch:
    blocks = ceil_div(p.n, size["THREADS"])
    return Launch("elementwise_naive", (blocks, 1, 1), (size["THREADS"], 1, 1), ("x", "y", np.int32(p.n)))
