"""Cross entropy of logits and labels: loss[r] = log sum_j e^(x[r, j]) - x[r, label[r]], and that logarithm."""

from . import stages
from .problem import CrossEntropyProblem
from .stages import CROSS_ENTROPY

__all__ = ["CROSS_ENTROPY", "CrossEntropyProblem", "stages"]
