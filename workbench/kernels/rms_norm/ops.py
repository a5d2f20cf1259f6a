"""`rms_norm` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call, Gradient
from ..shared.arguments import common_dtype, matrix, row, rows_of
from . import RMS_NORM, RmsNormProblem


@RMS_NORM.function
def rms_norm(x: Any, w: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Call:
    """x / sqrt(mean(x^2) + eps) w along the last axis. x: (..., columns), w: (columns,); arrays as for `softmax`."""
    fields = rows_of("rms_norm", common_dtype("rms_norm", x=x, w=w), out_dtype, x=x)
    row("rms_norm", x, w=w)
    problem = RmsNormProblem(**fields, eps=float(eps))
    inputs = {"x": matrix("rms_norm", "x", x), "w": w}
    return Call(problem, inputs, lambda found: found["y"].reshape(x.shape))


rms_norm.gradient = Gradient("rms_norm_backward", ("x", "w", Gradient.OF_RESULT), ("x", "w"))
