"""Gradient of softmax: dx = y (dy - sum_j y dy) along the rows, of which y is the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Arrays
from ..model.calls import Call
from ..model.problem import Tier, draw_values
from .rows import ladder
from .rows.baselines import autograd_of, beside, beside_liger, short_rows
from .rows.problem import FLOATS, SUITE, RowProblem, draw_rows
from .shared import call_on_rows


@dataclass(frozen=True)
class SoftmaxBackwardProblem(RowProblem):
    """y, dy, dx: (rows, columns); y and dy with `pad_x` elements between their rows, dx with `pad_y`.

    NaN and infinities do what arithmetic with them does: a row with NaN becomes NaN."""

    operations: ClassVar[int] = 4
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": FLOATS, "out": FLOATS, "values": ("normal",)}
    distributed: ClassVar[tuple[str, ...]] = ("dy",)
    taken: ClassVar[tuple[str, ...]] = ("y", "dy")
    result: ClassVar[str] = "dx"

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


SOFTMAX_BACKWARD = ladder.row_operation(
    SoftmaxBackwardProblem,
    "softmax_backward",
    "gradient of softmax",
    ("registers", "cluster", "split_rows", "vectorized"),
    suite=ladder.timed(SUITE[:-1]),
    work=(15_000, 4_000_000),
)

HELD = {"THREADS": 128, "VECTORS": 2, "MOST": 4}
"""Threads of the smallest block; vectors of each row that a thread holds: where more threads can be had; at most."""

ARRAYS = ("y", "dy", "dx")

ladder.declare_first(SOFTMAX_BACKWARD, *ARRAYS)
ladder.declare_held(
    SOFTMAX_BACKWARD,
    *ARRAYS,
    most=HELD["MOST"],
    held=HELD,
    clustered={**HELD, "LARGEST": 256},
    several=True,
    edge_cases=(
        SoftmaxBackwardProblem(rows=2, columns=10_000, out="bf16"),
        SoftmaxBackwardProblem(rows=3, columns=5001, dtype="fp32"),
    ),
)
ladder.declare_split(
    SOFTMAX_BACKWARD,
    ("y", "dy"),
    ("y", "dy"),
    0,
    kept="sums",
    output="dx",
    after="registers",
    then="adds up the parts of a row",
    edge_cases=(
        SoftmaxBackwardProblem(rows=1, columns=60_000, out="bf16"),
        SoftmaxBackwardProblem(rows=2, columns=9001, dtype="fp32"),
    ),
)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@SOFTMAX_BACKWARD.function
def softmax_backward(y: Any, dy: Any, *, out_dtype: Any = None) -> Call:
    """Gradient of softmax along the last axis, for its result y and the gradient dy of that: dx, of their shape."""
    return call_on_rows("softmax_backward", SoftmaxBackwardProblem, ("dx",), out_dtype, {"y": y, "dy": dy})


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
