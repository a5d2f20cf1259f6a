"""Gradient of softmax: dx = y (dy - sum_j y dy) along the rows, of which y is the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Array, Arrays, element_bytes
from ..model.calls import Call
from ..model.dtypes import FP32
from ..model.launch import Launch, Plan
from ..model.operation import Operation
from ..model.problem import Cost, Size, Tier, draw_values
from ..model.stage import every_problem
from .rows import groups, launches
from .rows.baselines import autograd_of, beside, beside_liger, short_rows
from .rows.norms import THREADS
from .rows.problem import FLOATS, SUITE, RowProblem, draw_rows, row_problems
from .shared import common_dtype, matrix, rows_of


@dataclass(frozen=True)
class SoftmaxBackwardProblem(RowProblem):
    """y, dy, dx: (rows, columns); y and dy with `pad_x` elements between their rows, dx with `pad_y`.

    NaN and infinities do what arithmetic with them does: a row with NaN becomes NaN.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": FLOATS, "out": FLOATS, "values": ("normal",)}
    distributed: ClassVar[tuple[str, ...]] = ("dy",)

    def arrays(self) -> dict[str, Array]:
        shape = (self.rows, self.columns)
        return {
            "y": Array(shape, self.in_type, self.ldx),
            "dy": Array(shape, self.in_type, self.ldx),
            "dx": Array(shape, self.out_type, self.ldy, output=True),
        }

    def inputs(self) -> Arrays:
        rng, shape = self.rng(), (self.rows, self.columns)
        if self.tier is Tier.EXACT:
            return {name: draw_values(rng, self.tier, shape, self.in_type) for name in ("y", "dy")}
        y = reference.softmax(draw_rows(rng, shape, self.in_type)).astype(self.in_type.numpy)
        return {"y": y, "dy": self.draw_rows(rng)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"dx": reference.softmax_backward(inputs["y"], inputs["dy"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"dx": bounds.softmax_backward(inputs["y"], inputs["dy"], expected["dx"], self.out_type)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        y, dy, dx = inputs["y"].astype(np.float64), inputs["dy"].astype(np.float64), expected["dx"]
        wrong = {
            "all zeros": np.zeros_like(dx),
            "last column dropped": np.where(np.arange(self.columns) == self.columns - 1, 0.0, dx),
            "last row missing": np.concatenate([dx[:-1], np.zeros_like(dx[-1:])]),
            "times dy": dy * (dy - (y * dy).sum(axis=1, keepdims=True)),
            "sign turned": -dx,
        }
        if self.tier is Tier.EXACT:
            wrong["sum forgotten"] = y * dy
        return {name: {"dx": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        return Cost(4 * self.rows * self.columns, element_bytes(self.arrays().values()))


SOFTMAX_BACKWARD = Operation(
    name="softmax_backward",
    summary="gradient of softmax",
    problem=SoftmaxBackwardProblem,
    problems=row_problems(SoftmaxBackwardProblem),
    suite=tuple(
        SoftmaxBackwardProblem(rows=rows, columns=columns, dtype=dtype, out=dtype)
        for dtype in ("bf16", "fp32")
        for rows, columns in SUITE[:-1]
    ),
    defines=groups.defines,
    emulator_size=Size(extent=6000, work=15_000),
    cuda_size=Size(extent=200_000, work=4_000_000),
    metric="GB/s",
    fastest=("registers", "cluster", "split_rows", "vectorized"),
)


def _args(p: SoftmaxBackwardProblem) -> tuple[str | np.generic, ...]:
    return "y", "dy", "dx", np.int32(p.rows), np.int32(p.columns), np.int64(p.ldx), np.int64(p.ldy)


@SOFTMAX_BACKWARD.stage(
    "naive", idea="one thread takes one row", parameters={"THREADS": 128}, supports=groups.few_enough, alignment=1
)
def naive(p: SoftmaxBackwardProblem, size: Mapping[str, int]) -> Launch:
    return launches.thread_rows("softmax_backward_naive", p, size, _args(p))


@SOFTMAX_BACKWARD.stage(
    "warp_row",
    after=naive,
    idea="a warp shares a row: its lanes read neighbouring elements",
    parameters={"THREADS": 256},
    space={"THREADS": THREADS},
    supports=every_problem,
)
def warp_row(p: SoftmaxBackwardProblem, size: Mapping[str, int]) -> Launch:
    return launches.warp_rows("softmax_backward_warp_row", p, size, _args(p))


@SOFTMAX_BACKWARD.stage("vectorized", after=warp_row, idea="16 bytes a load and a store", alignment=16)
def vectorized(p: SoftmaxBackwardProblem, size: Mapping[str, int]) -> Launch:
    return launches.warp_rows("softmax_backward_vectorized", p, size, _args(p))


HELD = {"THREADS": 128, "VECTORS": 2, "MOST": 4}
"""Threads of the smallest block; vectors of each row that a thread holds: where more threads can be had; at most."""

CLUSTERED = {**HELD, "LARGEST": 256}
LONG = (
    SoftmaxBackwardProblem(rows=2, columns=10_000, out="bf16"),
    SoftmaxBackwardProblem(rows=3, columns=5001, dtype="fp32"),
)


@SOFTMAX_BACKWARD.stage(
    "registers",
    after=vectorized,
    idea="threads hold the rows in registers, so they are read once",
    parameters=HELD,
    sizes=groups.block,
    supports=groups.fits(groups.block, HELD, "a block"),
    edge_cases=LONG,
)
def registers(p: SoftmaxBackwardProblem, size: Mapping[str, int]) -> Launch:
    return launches.held_rows("softmax_backward_registers", p, size, _args(p))


@SOFTMAX_BACKWARD.stage(
    "cluster",
    after=registers,
    idea="the blocks of a cluster share long rows",
    parameters=CLUSTERED,
    sizes=groups.cluster,
    supports=groups.fits(groups.cluster, CLUSTERED, "a cluster"),
    architecture=90,
)
def cluster(p: SoftmaxBackwardProblem, size: Mapping[str, int]) -> Launch:
    return launches.held_rows("softmax_backward_cluster", p, size, _args(p))


@SOFTMAX_BACKWARD.stage(
    "split_rows",
    after=registers,
    idea="few rows are split over all blocks; a second kernel adds up the parts of a row",
    parameters={"THREADS": 256, "VECTORS": 4, "TARGET": 4224},
    space={"THREADS": THREADS, "VECTORS": (1, 2, 4), "TARGET": (1056, 2112, 4224)},
    supports=groups.worth_splitting,
    edge_cases=(
        SoftmaxBackwardProblem(rows=1, columns=60_000, out="bf16"),
        SoftmaxBackwardProblem(rows=2, columns=9001, dtype="fp32"),
    ),
    sizes=lambda p, size: {},
)
def split_rows(p: SoftmaxBackwardProblem, size: Mapping[str, int]) -> Plan:
    count, launch = launches.on_parts(p, size)
    columns, ldx = np.int32(p.columns), np.int64(p.ldx)
    first = launch("softmax_backward_parts", ("y", "dy", "sums", columns, ldx))
    second = launch("softmax_backward_scale", ("y", "dy", "sums", "dx", columns, ldx, np.int64(p.ldy)))
    return Plan((first, second), scratch={"sums": Array((p.rows * count,), FP32, output=True)})


# ---------------------------------------------------------------------------------------------- as a function on arrays


@SOFTMAX_BACKWARD.function
def softmax_backward(y: Any, dy: Any, *, out_dtype: Any = None) -> Call:
    """Gradient of softmax along the last axis, for its result y and the gradient dy of that: dx, of their shape."""
    name = "softmax_backward"
    problem = SoftmaxBackwardProblem(**rows_of(name, common_dtype(name, y=y, dy=dy), out_dtype, y=y, dy=dy))
    inputs = {"y": matrix(name, "y", y), "dy": matrix(name, "dy", dy)}
    return Call(problem, inputs, lambda found: found["dx"].reshape(y.shape))


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, y: Any, dy: Any) -> Any:
    import torch

    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def _numpy(p: Any, y: Any, dy: Any) -> Any:
    return y * (dy - (y * dy).sum(axis=1, keepdims=True))


beside(SOFTMAX_BACKWARD, _torch, _numpy)


def _exact_sums(p: Any) -> str | None:
    return short_rows(p) or (None if p.dtype == "fp32" else f"it adds up the products of a row in {p.dtype}")


@beside_liger(SOFTMAX_BACKWARD, prepares=True, refuses=_exact_sums)
def _liger(p: Any, y: Any, dy: Any) -> Callable[[], Any]:
    from liger_kernel.transformers.functional import liger_softmax

    def given(x: Any) -> Any:
        kept = liger_softmax(x)
        kept.data.copy_(y)  # what its gradient is computed of: no x has exactly this softmax
        return kept

    return autograd_of(given, dy, y)
