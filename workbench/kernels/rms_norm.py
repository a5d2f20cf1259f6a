"""Root mean square norm of the rows of a matrix: y[r, c] = x[r, c] w[c] / sqrt(mean_j x[r, j]^2 + eps)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Arrays
from ..model.calls import Call, Gradient
from .rows import ladder
from .rows.baselines import beside, beside_liger
from .rows.problem import HELD_BY_CLUSTER
from .shared import call_on_rows


@dataclass(frozen=True)
class RmsNormProblem(ladder.NormProblem):
    """x, y: (rows, columns), w: (columns,)."""

    operations: ClassVar[int] = 4
    taken: ClassVar[tuple[str, ...]] = ("x", "w")
    most_narrow: ClassVar[int] = HELD_BY_CLUSTER

    def inputs(self) -> Arrays:
        rng = self.rng()
        return {"x": self.draw_rows(rng), "w": self.weights(rng)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.rms_norm(inputs["x"], inputs["w"], self.eps32)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": bounds.rms_norm(expected["y"], self.out_type)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, y = inputs["x"].astype(np.float64), expected["y"]
        wrong = ladder.common_controls(y)
        wrong["weights forgotten"] = reference.rms_norm(x, np.ones(self.columns), self.eps32)
        power = np.mean(x * x, axis=1)
        if (power < 4 * self.eps32).any():
            with np.errstate(divide="ignore", invalid="ignore"):
                wrong["eps forgotten"] = reference.rms_norm(x, inputs["w"], 0.0)
        return {name: {"y": value} for name, value in wrong.items()}


RMS_NORM = ladder.row_operation(
    RmsNormProblem,
    "rms_norm",
    "rows over their root mean square, times weights",
    ladder.fastest_of_norms,
    eps=ladder.EPSILONS,
)

ladder.declare_first(RMS_NORM, "x", "w", "y")
ladder.declare_held(RMS_NORM, "x", "w", "y")
ladder.declare_split(RMS_NORM, ("x",), ("x", "w"), 1)
ladder.declare_prefetch(RMS_NORM, "x", "w", "y")


# ---------------------------------------------------------------------------------------------- as a function on arrays


@RMS_NORM.function
def rms_norm(x: Any, w: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Call:
    """x / sqrt(mean(x^2) + eps) w along the last axis. x: (..., columns), w: (columns,); arrays as for `softmax`."""
    return call_on_rows("rms_norm", RmsNormProblem, ("y",), out_dtype, {"x": x}, {"w": w}, eps=float(eps))


rms_norm.gradient = Gradient("rms_norm_backward", ("x", "w", Gradient.OF_RESULT), ("x", "w"))


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any, w: Any) -> Any:
    import torch

    return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, p.eps)


def _numpy(p: Any, x: Any, w: Any) -> Any:
    return x * w / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(p.eps))


beside(RMS_NORM, _torch, _numpy)


@beside_liger(RMS_NORM)
def _liger(p: Any, x: Any, w: Any) -> Any:
    from liger_kernel.transformers.functional import liger_rms_norm

    return liger_rms_norm(x, w, p.eps, casting_mode="gemma")  # all in fp32; by default the product with w is not
