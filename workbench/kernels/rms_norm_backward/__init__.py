"""Gradients of the root mean square norm, for its input and its weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Arrays
from ...model.dtypes import FP32
from ...model.operation import Operation
from ...model.problem import Size
from ..rows import gradients, groups, norms
from ..rows.problem import row_problems

__all__ = ["RMS_NORM_BACKWARD", "RmsNormBackwardProblem"]


@dataclass(frozen=True)
class RmsNormBackwardProblem(gradients.NormGradientProblem):
    """x, dy, dx: (rows, columns); w, dw: (columns,)."""

    def reference(self, inputs: Arrays) -> Arrays:
        dx, dw = reference.rms_norm_backward(inputs["x"], inputs["w"], inputs["dy"], self.eps32)
        return {"dx": dx, "dw": dw}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        x, w, dy = (inputs[name].astype(np.float64) for name in ("x", "w", "dy"))
        scale = 1 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.eps32)
        relative = FP32.unit_roundoff * (bounds.ACCUMULATION / 2 * np.sqrt(self.columns) + bounds.NORM_STEPS)
        n = x * scale
        off = relative * np.abs(n) + bounds.UNDERFLOWS * FP32.smallest
        sums = gradients.sum_bound(dy * n, np.abs(dy) * off)
        return {
            "dx": bounds.norm_backward(n, off, scale, relative, w * dy, expected["dx"], self.out_type),
            "dw": self.out_type.unit_roundoff * (np.abs(expected["dw"]) + sums) + sums + self.out_type.smallest,
        }

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, w, dy = (inputs[name].astype(np.float64) for name in ("x", "w", "dy"))
        wrong = self.controls(expected)
        dx, _ = reference.rms_norm_backward(x, np.ones(self.columns), dy, self.eps32)
        wrong["weights forgotten"] = expected | {"dx": dx}
        power = np.mean(x * x, axis=1, keepdims=True)
        if (power < 4 * self.eps32).any():
            with np.errstate(divide="ignore", invalid="ignore"):
                wrong["eps forgotten"] = expected | {"dx": reference.rms_norm_backward(x, w, dy, 0.0)[0]}
        return wrong


RMS_NORM_BACKWARD = Operation(
    name="rms_norm_backward",
    summary="gradients of the root mean square norm",
    problem=RmsNormBackwardProblem,
    problems=row_problems(RmsNormBackwardProblem, eps=norms.EPSILONS),
    suite=tuple(
        RmsNormBackwardProblem(rows=rows, columns=columns, dtype=dtype, out=dtype)
        for dtype in ("bf16", "fp32")
        for rows, columns in gradients.GRADIENT_SUITE
    ),
    defines=groups.defines,
    emulator_size=Size(extent=6000, work=12_000),
    cuda_size=Size(extent=200_000, work=2_000_000),
    metric="GB/s",
    fastest=gradients.fastest,
)

gradients.declare(RMS_NORM_BACKWARD, 1, 2)
