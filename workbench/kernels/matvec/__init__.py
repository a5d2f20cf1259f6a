"""Matrix-vector product c[n] = sum_k a[k] B[n, k]."""

from .problem import MatvecProblem
from .stages import MATVEC

__all__ = ["MATVEC", "MatvecProblem"]
