"""What the stages of `gemm_fp8` are measured against."""

from __future__ import annotations

from typing import Any

from ...model.dtypes import BF16
from .problem import ScaledGemmProblem
from .stages import GEMM_FP8


def _refuses(p: ScaledGemmProblem) -> str | None:
    a, b, *_, c = p.arrays().values()
    if c.dtype is not BF16:
        return f"its scales a row come with C of bf16, not {c.dtype}"
    if any(extent % 16 for array in (a, b) for extent in (*array.shape[1:], array.row_stride)) or c.shape[1] % 16:
        return "its extents n and k and the distances of rows have to be multiples of 16"
    return None


def _scaled(A: Any, B: Any, a_scale: Any, b_scale: Any, C: Any, *, fast: bool) -> None:
    """PyTorch's product of 8-bit numbers with a scale a row: with sums as the tensor cores make them, `fast`, or
    promoted to fp32 on the way. On an H200 its kernels are cuBLASLt's (`nvjet_sm90_...`; torch 2.11, CUDA 13.0)."""
    import torch

    scales = {"scale_a": a_scale[:, None], "scale_b": b_scale[None, :]}
    torch._scaled_mm(A, B.t(), **scales, out_dtype=C.dtype, use_fast_accum=fast, out=C)


@GEMM_FP8.baseline("cuBLASLt", requires="torch", vendor=True, refuses=_refuses)
def cublaslt(p: ScaledGemmProblem, A: Any, B: Any, a_scale: Any, b_scale: Any, C: Any) -> None:
    _scaled(A, B, a_scale, b_scale, C, fast=False)


@GEMM_FP8.baseline("cuBLASLt, fast sums", requires="torch", refuses=_refuses)  # fewer bits of a sum than a stage keeps
def cublaslt_fast(p: ScaledGemmProblem, A: Any, B: Any, a_scale: Any, b_scale: Any, C: Any) -> None:
    _scaled(A, B, a_scale, b_scale, C, fast=True)


@GEMM_FP8.baseline("NumPy", requires="numpy")
def numpy(p: ScaledGemmProblem, A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    return a_scale[:, None] * (A @ B.T) * b_scale
