"""The ladder of `vector_add`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.dtypes import dtype_of
from ...model.launch import Launch, ceil_div
from ...model.operation import Operation
from ...model.problem import Size
from .problem import VectorAddProblem, problems

VECTOR_ADD = Operation(
    name="vector_add",
    summary="elementwise sum c = a + b",
    problem=VectorAddProblem,
    problems=problems,
    suite=(
        VectorAddProblem(n=2**20, dtype="fp32"),
        VectorAddProblem(n=2**26, dtype="bf16"),
        VectorAddProblem(n=2**28, dtype="fp32"),
    ),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=20_000, work=20_000),
    cuda_size=Size(extent=5_000_000, work=5_000_000),
    metric="GB/s",
    fastest=("vectorized",),
)


def _launch(kernel: str, p: VectorAddProblem, blocks: int, threads: int) -> Launch:
    return Launch(kernel, (blocks, 1, 1), (threads, 1, 1), ("a", "b", "c", np.int64(p.n)))


def _width(p: VectorAddProblem) -> int:
    """Elements in 16 bytes."""
    return 16 // dtype_of(p.dtype).itemsize


@VECTOR_ADD.stage("naive", idea="one thread adds one element", parameters={"THREADS": 256}, alignment=1)
def naive(p: VectorAddProblem, size: Mapping[str, int]) -> Launch:
    return _launch("vector_add_naive", p, ceil_div(p.n, size["THREADS"]), size["THREADS"])


@VECTOR_ADD.stage(
    "vectorized",
    after=naive,
    idea="one thread adds 16 bytes",
    space={"THREADS": (64, 128, 256, 512, 1024)},
    alignment=16,
)
def vectorized(p: VectorAddProblem, size: Mapping[str, int]) -> Launch:
    blocks = ceil_div(p.n, size["THREADS"] * _width(p))
    return _launch("vector_add_vectorized", p, blocks, size["THREADS"])


@VECTOR_ADD.stage(
    "grid_stride",
    after=vectorized,
    idea="a grid of bounded size strides through the vectors",
    parameters={"THREADS": 256, "BLOCKS": 1024},
    edge_cases=(VectorAddProblem(n=4 * 256 * 1024 + 5), VectorAddProblem(n=8 * 256 * 1024 + 3, dtype="bf16")),
)
def grid_stride(p: VectorAddProblem, size: Mapping[str, int]) -> Launch:
    blocks = min(size["BLOCKS"], ceil_div(p.n, size["THREADS"] * _width(p)))
    return _launch("vector_add_grid_stride", p, blocks, size["THREADS"])
