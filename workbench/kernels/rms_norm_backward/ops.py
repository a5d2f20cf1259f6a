"""`rms_norm_backward` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, matrix, row, rows_of
from . import RMS_NORM_BACKWARD, RmsNormBackwardProblem


@RMS_NORM_BACKWARD.function
def rms_norm_backward(x: Any, w: Any, dy: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Call:
    """Gradients (dx, dw) of `rms_norm` for its arguments and the gradient dy of its result."""
    name = "rms_norm_backward"
    fields = rows_of(name, common_dtype(name, x=x, w=w, dy=dy), out_dtype, x=x, dy=dy)
    row(name, x, w=w)
    inputs = {"x": matrix(name, "x", x), "w": w, "dy": matrix(name, "dy", dy)}
    problem = RmsNormBackwardProblem(**fields, eps=float(eps))
    return Call(problem, inputs, lambda found: (found["dx"].reshape(x.shape), found["dw"]))
