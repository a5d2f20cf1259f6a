"""`gemm_fp8` as a function on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model.calls import Call
from ...model.dtypes import BF16, FP32, from_numpy
from ..shared.arguments import check_arrays, contiguous, row_stride
from .problem import ScaledGemmProblem
from .stages import GEMM_FP8


@GEMM_FP8.function
def gemm_fp8(a: Any, b: Any, a_scale: Any, b_scale: Any, *, out_dtype: Any = None) -> Call:
    """Matrix product of 8-bit numbers on the GPU: c[m, n] = a_scale[m] b_scale[n] sum_k a[m, k] b[n, k].

    a: (m, k), b: (n, k), arrays of uint8 that hold the bits of `ml_dtypes.float8_e4m3fn`, a type that CuPy
    does not have; rows contiguous, any distance between them. a_scale: (m,), b_scale: (n,), float32 and contiguous.
    Returns (m, n) of `out_dtype`: bfloat16 (default) or float32. Raises TypeError and ValueError like `gemm`.
    """
    check_arrays("gemm_fp8", [np.dtype(np.uint8)], a=a, b=b)
    check_arrays("gemm_fp8", [FP32.numpy], a_scale=a_scale, b_scale=b_scale)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or 0 in a.shape or 0 in b.shape:
        raise ValueError(
            f"gemm_fp8: a has shape {a.shape} and b {b.shape}; they have to be (m, k) and (n, k), none of them 0"
        )
    for name, scales, rows in (("a_scale", a_scale, a.shape[0]), ("b_scale", b_scale, b.shape[0])):
        if scales.shape != (rows,):
            raise ValueError(f"gemm_fp8: {name} has shape {scales.shape}; it has to be ({rows},), a scale a row")
        contiguous("gemm_fp8", name, scales)
    out = BF16 if out_dtype is None else from_numpy(np.dtype(out_dtype))
    if out not in (BF16, FP32):
        raise TypeError(f"gemm_fp8: out_dtype is {out_dtype}; it has to be bfloat16 or float32")
    problem = ScaledGemmProblem(
        m=a.shape[0],
        n=b.shape[0],
        k=a.shape[1],
        out=out.name,
        pad_a=row_stride("gemm_fp8", "a", a) - a.shape[1],
        pad_b=row_stride("gemm_fp8", "b", b) - b.shape[1],
    )
    return Call(problem, {"A": a, "B": b, "a_scale": a_scale, "b_scale": b_scale})
