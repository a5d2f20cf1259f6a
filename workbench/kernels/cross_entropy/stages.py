"""The ladder of cross entropy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan
from ...model.operation import Operation
from ...model.problem import Size
from ...model.stage import every_problem
from ..rows import groups, launches
from ..rows.norms import THREADS
from ..rows.problem import row_problems
from .problem import CrossEntropyProblem

SUITE = ((8192, 32768), (8192, 131072), (16384, 4096), (1, 2**26))
"""Rows and columns that are timed."""


WORTH_SPLITTING = 2**16
"""Columns of a row beyond which a second launch is worth it."""


def fastest(p: CrossEntropyProblem) -> tuple[str, ...]:
    """Threads of a block share a row; few very long ones are split: 8x61366 takes 10.4 us in `group_row`, and 11.7 in
    `split_rows`, 6x130104 14.5 and 11.2 (bf16, H200)."""
    few = p.rows < 2 * groups.ENOUGH and p.columns > WORTH_SPLITTING
    return ("split_rows", "group_row") if few else ("group_row",)


CROSS_ENTROPY = Operation(
    name="cross_entropy",
    summary="cross entropy of logits and labels, and log-sum-exp",
    problem=CrossEntropyProblem,
    problems=row_problems(CrossEntropyProblem),
    suite=tuple(
        CrossEntropyProblem(rows=rows, columns=columns, dtype=dtype)
        for dtype in ("bf16", "fp32")
        for rows, columns in SUITE
    ),
    defines=lambda p: {"IN": p.in_type.cuda, "EVEN": groups.even(16 // p.in_type.itemsize, p.columns, p.ldx)},
    emulator_size=Size(extent=6000, work=20_000),
    cuda_size=Size(extent=200_000, work=4_000_000),
    metric="GB/s",
    fastest=fastest,
)

ARRAYS = ("x", "labels", "loss", "lse")


def _scalars(p: CrossEntropyProblem) -> tuple[np.generic, ...]:
    return np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx)


@CROSS_ENTROPY.stage(
    "naive", idea="one thread takes one row", parameters={"THREADS": 128}, supports=groups.few_enough, alignment=1
)
def naive(p: CrossEntropyProblem, size: Mapping[str, int]) -> Launch:
    return launches.thread_rows("cross_entropy_naive", p, size, (*ARRAYS, *_scalars(p)))


@CROSS_ENTROPY.stage(
    "warp_row",
    after=naive,
    idea="a warp shares a row: its lanes read neighbouring elements",
    parameters={"THREADS": 256},
    space={"THREADS": THREADS},
    supports=every_problem,
)
def warp_row(p: CrossEntropyProblem, size: Mapping[str, int]) -> Launch:
    return launches.warp_rows("cross_entropy_warp_row", p, size, (*ARRAYS, *_scalars(p)))


@CROSS_ENTROPY.stage("online", after=warp_row, idea="maximum and sum in one pass: a row is read once, not twice")
def online(p: CrossEntropyProblem, size: Mapping[str, int]) -> Launch:
    return launches.warp_rows("cross_entropy_online", p, size, (*ARRAYS, *_scalars(p)))


@CROSS_ENTROPY.stage(
    "vectorized",
    after=online,
    idea="16 bytes a load, several loads in flight",
    parameters={"THREADS": 256, "VECTORS": 4},
    space={"THREADS": THREADS, "VECTORS": (1, 2, 4, 8)},
    alignment=16,
)
def vectorized(p: CrossEntropyProblem, size: Mapping[str, int]) -> Launch:
    return launches.warp_rows("cross_entropy_vectorized", p, size, (*ARRAYS, *_scalars(p)))


LONG = (CrossEntropyProblem(rows=2, columns=40_000), CrossEntropyProblem(rows=3, columns=9001, dtype="fp32"))


@CROSS_ENTROPY.stage(
    "group_row",
    after=vectorized,
    idea="as many threads share a row as have work for it",
    parameters={"THREADS": 128, "VECTORS": 4, "LARGEST": 512},
    sizes=groups.looping,
    edge_cases=LONG,
)
def group_row(p: CrossEntropyProblem, size: Mapping[str, int]) -> Launch:
    return launches.held_rows("cross_entropy_group_row", p, size, (*ARRAYS, *_scalars(p)))


@CROSS_ENTROPY.stage(
    "split_rows",
    after=online,
    idea="few rows are split over all blocks; a second kernel combines the parts",
    parameters={"THREADS": 256, "VECTORS": 4, "TARGET": 1056},
    space={"THREADS": THREADS, "VECTORS": (1, 2, 4, 8), "TARGET": (528, 1056, 2112)},
    supports=groups.worth_splitting,
    edge_cases=(*LONG, CrossEntropyProblem(columns=350_000)),  # more parts than a warp has lanes
    alignment=16,
)
def split_rows(p: CrossEntropyProblem, size: Mapping[str, int]) -> Plan:
    count, launch = launches.on_parts(p, size)
    ldx = np.int64(p.ldx)
    first = launch("cross_entropy_parts", ("x", "states", np.int32(p.columns), ldx))
    combined = (*ARRAYS, "states", np.int32(p.rows), ldx, np.int32(count))
    second = launches.warp_rows("cross_entropy_combine", p, size, combined)
    return Plan((first, second), scratch={"states": Array((p.rows * count, 2), FP32, output=True)})
