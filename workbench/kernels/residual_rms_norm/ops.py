"""`residual_rms_norm` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, matrix, row, rows_of
from . import RESIDUAL_RMS_NORM, ResidualRmsNormProblem


@RESIDUAL_RMS_NORM.function
def residual_rms_norm(x: Any, residual: Any, w: Any, *, eps: float = 1e-6, out_dtype: Any = None) -> Call:
    """The sum s = x + residual, and the `rms_norm` of s as it is stored. x, residual: (..., columns), w: (columns,).
    Returns (y, s): y of `out_dtype`, s of the dtype of x."""
    name = "residual_rms_norm"
    dtype = common_dtype(name, x=x, residual=residual, w=w)
    fields = rows_of(name, dtype, out_dtype, x=x, residual=residual)
    row(name, x, w=w)
    inputs = {"x": matrix(name, "x", x), "residual": matrix(name, "residual", residual), "w": w}
    problem = ResidualRmsNormProblem(**fields, eps=float(eps))
    return Call(problem, inputs, lambda found: (found["y"].reshape(x.shape), found["s"].reshape(x.shape)))
