"""Elementwise sum c[i] = a[i] + b[i]."""

from .problem import VectorAddProblem
from .stages import VECTOR_ADD

__all__ = ["VECTOR_ADD", "VectorAddProblem"]
