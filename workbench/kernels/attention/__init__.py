"""Attention: o = softmax(scale q k^T) v of every head, over all keys or, causal, those up to a row's own place."""

# isort: off
from . import stages, wgmma, decode, tcgen05  # each track declares its stages, in this order

# isort: on
from .operation import ATTENTION
from .problem import AttentionProblem, Layout

__all__ = ["ATTENTION", "AttentionProblem", "Layout", "decode", "stages", "tcgen05", "wgmma"]
