"""Attention with variable lengths: sequences of a batch lie packed one behind the other, offsets say where."""

from . import stages
from .operation import ATTENTION_VARLEN
from .problem import AttentionVarlenProblem, Lengths

__all__ = ["ATTENTION_VARLEN", "AttentionVarlenProblem", "Lengths", "stages"]
