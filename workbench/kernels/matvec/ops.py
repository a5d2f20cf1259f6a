"""`matvec` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, contiguous, output_dtype, row_stride
from .problem import MatvecProblem
from .stages import MATVEC


@MATVEC.function
def matvec(a: Any, b: Any, *, out_dtype: Any = None) -> Call:
    """Matrix-vector product on the GPU, accumulated in fp32: c[n] = sum_k a[k] b[n, k].

    a: (k,), contiguous; b: (n, k), rows contiguous: arrays of one dtype (bfloat16, float16 or float32). Returns
    (n,) of `out_dtype`: the dtype of the inputs (default) or float32. Raises TypeError and ValueError like `gemm`.
    """
    dtype = common_dtype("matvec", a=a, b=b)
    if a.ndim != 1 or b.ndim != 2 or a.shape[0] != b.shape[1]:
        raise ValueError(f"matvec: a has shape {a.shape} and b {b.shape}; they have to be (k,) and (n, k)")
    if 0 in b.shape:
        raise ValueError(f"matvec: b {b.shape} has to have at least one element")
    contiguous("matvec", "a", a)
    problem = MatvecProblem(
        n=b.shape[0],
        k=b.shape[1],
        dtype=dtype.name,
        out=output_dtype("matvec", dtype, out_dtype).name,
        pad_b=row_stride("matvec", "b", b) - b.shape[1],
    )
    return Call(problem, {"a": a, "B": b})
