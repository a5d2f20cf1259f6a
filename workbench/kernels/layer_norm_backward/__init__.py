"""Gradients of layer norm, for its input, its weights and its bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Arrays
from ...model.operation import Operation
from ...model.problem import Size
from ..rows import gradients, groups, norms
from ..rows.problem import row_problems

__all__ = ["LAYER_NORM_BACKWARD", "LayerNormBackwardProblem"]


@dataclass(frozen=True)
class LayerNormBackwardProblem(gradients.NormGradientProblem):
    """x, dy, dx: (rows, columns); w, dw, db: (columns,)."""

    gradients: ClassVar[tuple[str, ...]] = ("dw", "db")

    def reference(self, inputs: Arrays) -> Arrays:
        dx, dw, db = reference.layer_norm_backward(inputs["x"], inputs["w"], inputs["dy"], self.eps32)
        return {"dx": dx, "dw": dw, "db": db}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        w, dy = (inputs[name].astype(np.float64) for name in ("w", "dy"))
        n, off, scale, relative = bounds.standardised(inputs["x"], self.eps32)
        u = self.out_type.unit_roundoff
        error = {
            "dw": gradients.sum_bound(dy * n, np.abs(dy) * off),
            "db": gradients.sum_bound(dy, np.zeros_like(dy)),
        }
        sums = {name: u * (np.abs(expected[name]) + e) + e + self.out_type.smallest for name, e in error.items()}
        return {"dx": bounds.norm_backward(n, off, scale, relative, w * dy, expected["dx"], self.out_type)} | sums

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, w, dy = (inputs[name].astype(np.float64) for name in ("x", "w", "dy"))
        wrong = self.controls(expected)
        dx, *_ = reference.layer_norm_backward(x, np.ones(self.columns), dy, self.eps32)
        wrong["weights forgotten"] = expected | {"dx": dx}
        if self.columns > 1 and (x.var(axis=1) < 4 * self.eps32).any():
            with np.errstate(divide="ignore", invalid="ignore"):
                wrong["eps forgotten"] = expected | {"dx": reference.layer_norm_backward(x, w, dy, 0.0)[0]}
        return wrong


LAYER_NORM_BACKWARD = Operation(
    name="layer_norm_backward",
    summary="gradients of layer norm",
    problem=LayerNormBackwardProblem,
    problems=row_problems(LayerNormBackwardProblem, eps=norms.EPSILONS),
    suite=tuple(
        LayerNormBackwardProblem(rows=rows, columns=columns, dtype=dtype, out=dtype)
        for dtype in ("bf16", "fp32")
        for rows, columns in gradients.GRADIENT_SUITE
    ),
    defines=groups.defines,
    emulator_size=Size(extent=6000, work=12_000),
    cuda_size=Size(extent=200_000, work=2_000_000),
    metric="GB/s",
    fastest=gradients.fastest,
)

gradients.declare(LAYER_NORM_BACKWARD, 2, 5)
