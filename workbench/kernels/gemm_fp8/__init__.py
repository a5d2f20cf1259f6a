"""Matrix product of 8-bit numbers with scales: C[m, n] = a_scale[m] b_scale[n] sum_k A[m, k] B[n, k]."""

from .problem import RUN, ScaledGemmProblem
from .stages import GEMM_FP8

__all__ = ["GEMM_FP8", "RUN", "ScaledGemmProblem"]
