"""Gradients of attention: dq, dk and dv of every head, of its results and the gradient of o."""

from . import stages
from .operation import ATTENTION_BACKWARD
from .problem import AttentionBackwardProblem

__all__ = ["ATTENTION_BACKWARD", "AttentionBackwardProblem", "stages"]
