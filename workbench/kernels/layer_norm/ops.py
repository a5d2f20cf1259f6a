"""`layer_norm` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call, Gradient
from ..shared.arguments import common_dtype, matrix, row, rows_of
from . import LAYER_NORM, LayerNormProblem


@LAYER_NORM.function
def layer_norm(x: Any, w: Any, b: Any, *, eps: float = 1e-5, out_dtype: Any = None) -> Call:
    """(x - mean(x)) / sqrt(variance(x) + eps) w + b along the last axis. x: (..., columns), w, b: (columns,)."""
    fields = rows_of("layer_norm", common_dtype("layer_norm", x=x, w=w, b=b), out_dtype, x=x)
    row("layer_norm", x, w=w, b=b)
    inputs = {"x": matrix("layer_norm", "x", x), "w": w, "b": b}
    problem = LayerNormProblem(**fields, eps=float(eps))
    return Call(problem, inputs, lambda found: found["y"].reshape(x.shape))


layer_norm.gradient = Gradient("layer_norm_backward", ("x", "w", Gradient.OF_RESULT), ("x", "w", "b"))
