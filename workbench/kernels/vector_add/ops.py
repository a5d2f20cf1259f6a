"""`vector_add` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, contiguous
from .problem import VectorAddProblem
from .stages import VECTOR_ADD


@VECTOR_ADD.function
def vector_add(a: Any, b: Any) -> Call:
    """Elementwise sum on the GPU. a, b: (n,), contiguous arrays of one dtype; returns (n,) of that dtype.

    Raises TypeError and ValueError like `gemm`.
    """
    dtype = common_dtype("vector_add", a=a, b=b)
    if a.ndim != 1 or a.shape != b.shape or not a.shape[0]:
        raise ValueError(f"vector_add: a has shape {a.shape} and b {b.shape}; they have to be the same (n,), n >= 1")
    contiguous("vector_add", "a", a)
    contiguous("vector_add", "b", b)
    return Call(VectorAddProblem(n=a.shape[0], dtype=dtype.name), {"a": a, "b": b})
