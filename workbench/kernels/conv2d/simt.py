"""Stages of conv2d on CUDA cores."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.launch import Launch, ceil_div
from .operation import CONV2D, EDGE_CASES, pointers, sizes, strides, tiles
from .problem import Conv2dProblem, Layout

_LAYOUTS = (
    *EDGE_CASES,
    Conv2dProblem(images=2, height=6, width=5, channels=3, filters=17, groups=2, layout=Layout.NCHW, dtype="fp32"),
)


@CONV2D.stage(
    "naive",
    track="simt",
    source="conv2d/simt/01_naive.cu",
    idea="one thread computes one output, tap by tap",
    parameters={"THREADS": 256},
    edge_cases=_LAYOUTS,
    alignment=2,
)
def naive(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    outputs = p.pixels * p.groups * p.filters
    grid = (ceil_div(outputs, size["THREADS"]), 1, 1)
    return Launch("conv2d_naive", grid, (size["THREADS"], 1, 1), (*pointers(p), sizes(p), strides(p)))


@CONV2D.stage(
    "smem_tiling",
    source="conv2d/simt/02_smem_tiling.cu",
    idea="an implicit product of matrices: windows are gathered into shared memory, a thread has 4 x 4 outputs",
    parameters={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16},
    edge_cases=_LAYOUTS,
    alignment=2,
)
def smem_tiling(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    m, n = size["BLOCK_M"], size["BLOCK_N"]
    return Launch(
        "conv2d_smem_tiling",
        (tiles(p, m, n), 1, 1),
        (m // 4 * (n // 4), 1, 1),
        (*pointers(p), sizes(p), strides(p)),
    )
