"""Softmax of the rows of a matrix: y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r)."""

from . import stages
from .problem import SoftmaxProblem
from .stages import SOFTMAX

__all__ = ["SOFTMAX", "SoftmaxProblem", "stages"]
