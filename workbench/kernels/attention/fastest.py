"""Which stage of attention is preferred for a problem."""

from __future__ import annotations

from ...model.launch import ceil_div
from .problem import AttentionProblem

TILE = 16
"""Rows that a block takes where there are few."""

FEW_ROWS = 2 * TILE
"""Rows of the heads that share keys, with which a product takes less time than to load the keys from memory."""

MULTIPROCESSORS = 132

MOST_MERGED = 512
"""Rows of parts that one block merges in the time of another launch."""


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first.

    Of few rows the keys are what takes time: those of a tile of rows are read once, by as many blocks as there are
    multiprocessors. Where all of them share one tile or a few, the last one has too much to merge.
    Under a mask work tiles differ in length, and blocks that are kept wait for the longest; tiles of a dim of 64 gain
    more than that (H100).
    """
    packed = p.group * p.rows
    if packed <= FEW_ROWS:
        tiles = p.batch * p.key_heads * ceil_div(packed, TILE)
        merged = min(packed, TILE) * MULTIPROCESSORS // tiles
        return "last_block" if merged <= MOST_MERGED else "split_keys", "online"
    first = ("overlap", "persistent") if p.causal and p.dim > 64 else ("persistent",)
    return *first, "tensor_core", "online"
