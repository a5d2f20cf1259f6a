"""`softmax_backward` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, matrix, rows_of
from . import SOFTMAX_BACKWARD, SoftmaxBackwardProblem


@SOFTMAX_BACKWARD.function
def softmax_backward(y: Any, dy: Any, *, out_dtype: Any = None) -> Call:
    """Gradient of softmax along the last axis, for its result y and the gradient dy of that: dx, of their shape."""
    name = "softmax_backward"
    problem = SoftmaxBackwardProblem(**rows_of(name, common_dtype(name, y=y, dy=dy), out_dtype, y=y, dy=dy))
    inputs = {"y": matrix(name, "y", y), "dy": matrix(name, "dy", dy)}
    return Call(problem, inputs, lambda found: found["dx"].reshape(y.shape))
