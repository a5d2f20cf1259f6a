"""`softmax` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call, Gradient
from ..shared.arguments import common_dtype, matrix, rows_of
from . import SOFTMAX, SoftmaxProblem


@SOFTMAX.function
def softmax(x: Any, *, out_dtype: Any = None) -> Call:
    """Softmax along the last axis. x: (..., columns), an array of bfloat16, float16 or float32 with at least one
    element; rows of a matrix may be any distance apart, other arrays have to be contiguous. -inf is masked: a row of
    nothing else becomes 0. Returns the same shape, of the dtype of x or of `out_dtype` float32.

    Raises TypeError and ValueError like `gemm`, as do the other operations on rows.
    """
    dtype = common_dtype("softmax", x=x)
    problem = SoftmaxProblem(**rows_of("softmax", dtype, out_dtype, x=x))
    return Call(problem, {"x": matrix("softmax", "x", x)}, lambda found: found["y"].reshape(x.shape))


softmax.gradient = Gradient("softmax_backward", (Gradient.RESULT, Gradient.OF_RESULT), ("x",))
