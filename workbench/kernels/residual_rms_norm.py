"""Residual and root mean square norm: s = x + residual, y[r, c] = s[r, c] w[c] / sqrt(mean_j s[r, j]^2 + eps)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Array, Arrays
from ..model.calls import Call
from .rows import ladder
from .rows.baselines import beside, beside_liger
from .rows.problem import HELD_BY_BLOCK
from .shared import call_on_rows


@dataclass(frozen=True)
class ResidualRmsNormProblem(ladder.NormProblem):
    """x, residual, s, y: (rows, columns), w: (columns,). s is of the type of x; y is the norm of s as it is stored."""

    operations: ClassVar[int] = 5
    most_narrow: ClassVar[int] = HELD_BY_BLOCK
    scales: ClassVar[tuple[int, int]] = (-20, 8)  # s has to be finite in fp16

    @property
    def walked(self) -> tuple[int, ...]:
        """Of x, and of s in a second kernel."""
        return (self.ldx, self.ldy)

    def arrays(self) -> dict[str, Array]:
        shape = (self.rows, self.columns)
        return {
            "x": Array(shape, self.in_type, self.ldx),
            "residual": Array(shape, self.in_type, self.ldx),
            "w": Array((self.columns,), self.in_type),
            "s": Array(shape, self.in_type, self.ldy, output=True),
            "y": Array(shape, self.out_type, self.ldy, output=True),
        }

    def inputs(self) -> Arrays:
        rng = self.rng()
        return {"x": self.draw_rows(rng), "residual": self.draw_rows(rng), "w": self.weights(rng)}

    def reference(self, inputs: Arrays) -> Arrays:
        s = inputs["x"].astype(np.float64) + inputs["residual"]
        return {"s": s, "y": reference.rms_norm(s.astype(self.in_type.numpy), inputs["w"], self.eps32)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # a sum that is rounded to fp32 on the way may become the neighbour of the one rounded at once
        s, u = np.abs(expected["s"]), self.in_type.unit_roundoff
        norm = bounds.rms_norm(expected["y"], self.out_type)
        return {"s": (u + 2**-24) * s + self.in_type.smallest, "y": norm + 2 * u * np.abs(expected["y"])}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        s, y = expected["s"], expected["y"]
        wrong = {name: {"s": s, "y": value} for name, value in ladder.common_controls(y).items()}
        wrong |= {f"{name}, of the sums": {"s": value, "y": y} for name, value in ladder.common_controls(s).items()}
        wrong["weights forgotten"] = {"s": s, "y": reference.rms_norm(s, np.ones(self.columns), self.eps32)}
        wrong["residual forgotten"] = {"s": inputs["x"].astype(np.float64), "y": y}
        wrong["norm of x"] = {"s": s, "y": reference.rms_norm(inputs["x"], inputs["w"], self.eps32)}
        if (np.mean(s * s, axis=1) < 4 * self.eps32).any():
            with np.errstate(divide="ignore", invalid="ignore"):
                wrong["eps forgotten"] = {"s": s, "y": reference.rms_norm(s, inputs["w"], 0.0)}
        return wrong


RESIDUAL_RMS_NORM = ladder.row_operation(
    ResidualRmsNormProblem,
    "residual_rms_norm",
    "sum of two matrices, and its rows over their root mean square, times weights",
    ladder.fastest_of_larger_norms,
    work=(15_000, 4_000_000),
    eps=ladder.EPSILONS,
)

ladder.declare_first(RESIDUAL_RMS_NORM, "x", "residual", "w", "s", "y")
ladder.declare_held(RESIDUAL_RMS_NORM, "x", "residual", "w", "s", "y", most=4)
ladder.declare_split(RESIDUAL_RMS_NORM, ("x", "residual", "s"), ("s", "w"), 1, sums=True)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@RESIDUAL_RMS_NORM.function
def residual_rms_norm(x: Any, residual: Any, w: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Call:
    """The sum s = x + residual, and the `rms_norm` of s as it is stored. x, residual: (..., columns), w: (columns,).
    Returns (y, s): y of `out_dtype`, s of the dtype of x."""
    arrays, of, results = ({"x": x, "residual": residual}, {"w": w}), ResidualRmsNormProblem, ("y", "s")
    return call_on_rows("residual_rms_norm", of, results, out_dtype, *arrays, eps=float(eps))


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any, residual: Any, w: Any) -> Any:
    import torch

    s = x + residual
    return s, torch.nn.functional.rms_norm(s, (p.columns,), w, p.eps)


def _numpy(p: Any, x: Any, residual: Any, w: Any) -> Any:
    s = x + residual
    return s, s * w / np.sqrt(np.mean(s * s, axis=1, keepdims=True) + np.float32(p.eps))


beside(RESIDUAL_RMS_NORM, _torch, _numpy)


@beside_liger(RESIDUAL_RMS_NORM)
def _liger(p: Any, x: Any, residual: Any, w: Any) -> Any:
    from liger_kernel.transformers.functional import liger_fused_add_rms_norm

    y, s = liger_fused_add_rms_norm(x, residual, w, p.eps, casting_mode="gemma")  # all but the sum in fp32
    return s, y
