"""Gradients of attention: dq, dk and dv of every head, of its results and the gradient of o."""

# isort: off
from . import simt, mma, wgmma  # each track declares its stages, in this order

# isort: on
from .operation import ATTENTION_BACKWARD
from .problem import AttentionBackwardProblem

__all__ = ["ATTENTION_BACKWARD", "AttentionBackwardProblem", "mma", "simt", "wgmma"]
