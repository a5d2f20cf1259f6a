"""The stages of matmul. They run in a process of their own: no other module imports this one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench import Launch, ceil_div

from . import MATMUL, MatmulProblem


@MATMUL.stage(
    "naive",
    source="matmul/1_naive.cu",
    idea="one thread computes one element of C",
    parameters={"BLOCK_X": 32, "BLOCK_Y": 8},
)
def naive(p: MatmulProblem, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.n, size["BLOCK_X"]), ceil_div(p.m, size["BLOCK_Y"]), 1)
    arguments = ("A", "B", "C", np.int32(p.m), np.int32(p.n), np.int32(p.k))
    return Launch("matmul_naive", grid, (size["BLOCK_X"], size["BLOCK_Y"], 1), arguments)
