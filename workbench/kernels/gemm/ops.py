"""`gemm` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, output_dtype, row_stride, rows_contiguous
from .operation import GEMM
from .problem import GemmProblem


@GEMM.function
def gemm(a: Any, b: Any, *, trans_b: bool = False, out_dtype: Any = None) -> Call:
    """Matrix product on the GPU, accumulated in fp32.

    a: (m, k), b: (k, n), or (n, k) with `trans_b`: arrays of one dtype (bfloat16, float16 or float32), rows
    contiguous, any distance between them; a `b` whose columns are contiguous is taken too. Returns (m, n) of
    `out_dtype`: the dtype of the inputs (default) or float32. Raises TypeError for wrong types and dtypes, ValueError
    for wrong shapes, strides or devices.
    """
    dtype = common_dtype("gemm", a=a, b=b)
    for name, array in (("a", a), ("b", b)):
        if array.ndim != 2:
            raise ValueError(f"gemm: {name} has shape {array.shape}; it has to have two dimensions")
    b_kn = b.T if trans_b else b
    if a.shape[1] != b_kn.shape[0]:
        wanted = f"(n, {a.shape[1]})" if trans_b else f"({a.shape[1]}, n)"
        raise ValueError(f"gemm: b has shape {b.shape}; for a of shape {a.shape} it has to be {wanted}")
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"gemm: a {a.shape} and b {b.shape} have to have at least one element each")
    one_column = b_kn.shape[1] == 1 and rows_contiguous(b_kn.T)  # as a row, loads of it are wide
    layout = "nn" if rows_contiguous(b_kn) and not one_column else "nt"
    stored = b_kn if layout == "nn" else b_kn.T
    out = output_dtype("gemm", dtype, out_dtype)
    problem = GemmProblem(
        m=a.shape[0],
        n=b_kn.shape[1],
        k=a.shape[1],
        dtype=dtype.name,
        out=out.name,
        layout=layout,
        pad_a=row_stride("gemm", "a", a) - a.shape[1],
        pad_b=row_stride("gemm", "b", stored) - stored.shape[1],
    )
    return Call(problem, {"A": a, "B": stored})
