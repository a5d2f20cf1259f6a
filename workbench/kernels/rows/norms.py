"""What the norms share: their fields, their negative controls, and the ladder of their stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from hypothesis import strategies as st

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Argument, Launch, Plan
from ...model.operation import Operation
from ...model.problem import Tier
from ...model.stage import every_problem
from . import groups, launches, prefetch
from .problem import RowProblem, draw_rows

EPSILONS = st.sampled_from([1e-6, 1e-5, 1e-2])
"""What is drawn for eps: the usual ones, and one that every row shows."""


@dataclass(frozen=True)
class NormProblem(RowProblem):
    """A norm of the rows of x, (rows, columns), with weights w, (columns,), of the same type.

    NaN and infinities do what arithmetic with them does: a row with NaN becomes NaN.
    """

    eps: float = 1e-6

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.BOUNDED,)
    not_exact: ClassVar[str] = "the reciprocal square root of a mean plus eps is rounded"
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"eps": (0.0, 1.0)}

    @property
    def eps32(self) -> float:
        """The eps that kernels get, of fp32."""
        return float(np.float32(self.eps))

    def weights(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """(columns,) weights around 1."""
        w = 1 + 0.25 * draw_rows(rng, (1, self.columns), FP32)[0]
        rounded: np.ndarray[Any, Any] = w.astype(self.in_type.numpy)
        return rounded

    def scalars(self) -> tuple[np.generic, ...]:
        """What all kernels of the ladder but the split ones get after their arrays."""
        return (
            np.int32(self.rows),
            np.int32(self.columns),
            np.int64(self.ldx),
            np.int64(self.ldy),
            np.float32(self.eps),
        )


def common_controls(y: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Answers that are wrong for every operation with an output like its input."""
    return {
        "all zeros": np.zeros_like(y),
        "last column dropped": np.where(np.arange(y.shape[1]) == y.shape[1] - 1, 0.0, y),
        "last row missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
    }


N = TypeVar("N", bound=NormProblem)

THREADS = (64, 128, 256, 512, 1024)
HELD = {"THREADS": 128, "VECTORS": 4}
"""Threads of the smallest block; vectors that a thread holds, where more threads can be had."""

CLUSTERED = {"THREADS": 128, "VECTORS": 4, "LARGEST": 256}
"""As before; the largest block while there are more of them to be had for a row."""

SPLIT = {"THREADS": 256, "VECTORS": 4, "TARGET": 4224}
"""As before; the least number of blocks that few rows are split into."""


def declare_first(operation: Operation[N], arrays: tuple[Argument, ...]) -> None:
    """The stages before a row is held in registers. `arrays` are the kernels' first arguments."""
    name = operation.name

    @operation.stage(
        "naive", idea="one thread takes one row", parameters={"THREADS": 128}, supports=groups.few_enough, alignment=1
    )
    def naive(p: N, size: Mapping[str, int]) -> Launch:
        return launches.thread_rows(f"{name}_naive", p, size, (*arrays, *p.scalars()))

    @operation.stage(
        "warp_row",
        after="naive",
        idea="a warp shares a row: its lanes read neighbouring elements",
        parameters={"THREADS": 256},
        space={"THREADS": THREADS},
        supports=every_problem,
    )
    def warp_row(p: N, size: Mapping[str, int]) -> Launch:
        return launches.warp_rows(f"{name}_warp_row", p, size, (*arrays, *p.scalars()))

    @operation.stage("vectorized", after="warp_row", idea="16 bytes a load and a store", alignment=16)
    def vectorized(p: N, size: Mapping[str, int]) -> Launch:
        return launches.warp_rows(f"{name}_vectorized", p, size, (*arrays, *p.scalars()))


def declare_held(operation: Operation[N], arrays: tuple[Argument, ...], most: int = groups.MOST_VECTORS) -> None:
    """The stages that hold a row in registers. A thread of a cluster holds at most `most` vectors, if blocks of 512
    threads can hold a row so."""
    name, problem = operation.name, operation.problem

    def of_cluster(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
        enough = groups.vectors(p) <= groups.MOST_BLOCKS * groups.MOST_THREADS * most
        return groups.cluster(p, {**size, "MOST": most} if enough else size)

    long_rows = (
        problem(rows=2, columns=20_000, dtype="bf16", out="bf16"),
        problem(rows=3, columns=9001, dtype="fp32", out="fp32"),
    )

    @operation.stage(
        "registers",
        after="vectorized",
        idea="threads hold the row in registers, so it is read once",
        parameters=HELD,
        sizes=groups.block,
        supports=groups.fits(groups.block, HELD, "a block"),
        edge_cases=long_rows,
    )
    def registers(p: N, size: Mapping[str, int]) -> Launch:
        return launches.held_rows(f"{name}_registers", p, size, (*arrays, *p.scalars()))

    @operation.stage(
        "cluster",
        after="registers",
        idea="the blocks of a cluster share a long row",
        parameters=CLUSTERED,
        sizes=of_cluster,
        supports=groups.fits(of_cluster, CLUSTERED, "a cluster"),
        architecture=90,
    )
    def cluster(p: N, size: Mapping[str, int]) -> Launch:
        return launches.held_rows(f"{name}_cluster", p, size, (*arrays, *p.scalars()))


def declare_split(
    operation: Operation[N],
    first: tuple[Argument, ...],
    second: tuple[Argument, ...],
    state: int,
    sums: bool = False,
    parameters: Mapping[str, int] = SPLIT,
) -> None:
    """The stage that splits rows over all blocks. `first` are the arrays that its first kernel gets before the states
    of the parts, `state` numbers each, and `second` those of the second kernel. With `sums` the first kernel writes
    rows that the second one reads."""
    name, problem = operation.name, operation.problem

    @operation.stage(
        "split_rows",
        after="vectorized",
        idea="few rows are split over all blocks; a second kernel scales the parts",
        parameters=parameters,
        space={"THREADS": THREADS, "VECTORS": (1, 2, 4), "TARGET": (1056, 2112, 4224)},
        supports=groups.worth_splitting,
        edge_cases=(
            problem(rows=1, columns=60_000, dtype="bf16", out="bf16"),
            problem(rows=2, columns=9001, dtype="fp32", out="fp32"),
            problem(rows=2, columns=2047, dtype="bf16", out="bf16", pad_x=1),  # y has one vector more than x
        ),
    )
    def split_rows(p: N, size: Mapping[str, int]) -> Plan:
        count, launch = launches.on_parts(p, size)
        columns, ldx, ldy = np.int32(p.columns), np.int64(p.ldx), np.int64(p.ldy)
        strides = ((ldx, ldy), (ldy,)) if sums else ((ldx,), (ldx, ldy))
        parts = launch(f"{name}_parts", (*first, "states", columns, *strides[0]))
        scaled = launch(f"{name}_scale", (*second, "states", "y", columns, *strides[1]), (np.float32(p.eps),))
        states = Array((p.rows * count, state), FP32, output=True)
        return Plan((parts, scaled), scratch={"states": states})


def fastest(p: NormProblem) -> tuple[str, ...]:
    """Rows are held by a block each, or fetched ahead where they are many and long; few long ones are held by clusters,
    or else split."""
    return (*(("prefetch",) if prefetch.worth_fetching(p) else ()), *held(p), "split_rows", "vectorized")


def held(p: RowProblem) -> tuple[str, ...]:
    """Those of the stages that hold rows that are worth it, in order."""
    return ("registers", "cluster") if p.rows >= groups.MANY or groups.by_block(p) else ("cluster",)


def fastest_of_more(p: NormProblem) -> tuple[str, ...]:
    """As `fastest`, of norms with more numbers or arrays: a cluster that holds rows of 100,000 columns has one block a
    multiprocessor then, and is slower than two kernels."""
    first = ("registers",) if p.rows >= groups.MANY else held(p)
    return (*first, "split_rows", "cluster", "vectorized")
