"""Which stage of attention is preferred for a problem."""

from __future__ import annotations

from .problem import AttentionProblem

FEW_ROWS = 32
"""Rows of the heads that share keys, with which a product takes less time than to load the keys from memory."""


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first.

    Of few rows the keys are what takes time: those of a tile of rows are read once, by as many blocks as there are.
    Under a mask work tiles differ in length, and blocks that are kept wait for the longest; tiles of a dim of 64 gain
    more than that (H100).
    """
    if p.group * p.rows <= FEW_ROWS:
        return "last_block", "online"
    first = ("overlap", "persistent") if p.causal and p.dim > 64 else ("persistent",)
    return *first, "tensor_core", "online"
