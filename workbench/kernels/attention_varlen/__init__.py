"""Attention with variable lengths: sequences of a batch lie packed one behind the other, offsets say where."""

# isort: off
from . import simt, mma, wgmma  # each track declares its stages, in this order

# isort: on
from .operation import ATTENTION_VARLEN
from .problem import AttentionVarlenProblem, Lengths

__all__ = ["ATTENTION_VARLEN", "AttentionVarlenProblem", "Lengths", "mma", "simt", "wgmma"]
