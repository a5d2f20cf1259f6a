"""Which stage of attention is preferred for a problem."""

from __future__ import annotations

from ...model.launch import ceil_div
from ...model.machine import machine
from .problem import AttentionProblem

TILE = 16
"""Rows that a block takes where there are few."""

FEW_ROWS = 2 * TILE
"""Rows of the heads that share keys, with which a product takes less time than to load the keys from memory."""

FEW_KEYS = 64
"""Keys that one tile holds."""

MOST_MERGED = 512
"""Rows of parts that one block merges in the time of another launch."""

SHORT, SMALL_TILE = 512, 64
"""Keys up to which small blocks beat those that fill a multiprocessor (H200), if tiles of 128 rows leave half of them
idle; and the rows of a small block, which waste half of a larger tile."""

LONG, LONGEST = 1024, 8192
"""Keys from which on a block with a long and a short tile in a fixed order beats one that draws them, and tiles of 176
keys those of 128, at a dim of 128 without a mask."""


def _of_many_rows(p: AttentionProblem) -> tuple[str, ...]:
    """The stages for tiles of many rows, best first. TMA stores no rows of part of 16 bytes, so `dynamic` is behind
    those that store by it."""
    tiles, most = p.batch * p.heads * ceil_div(p.rows, 128), machine().multiprocessors
    if p.dim <= 128 and p.keys <= SHORT and (tiles <= most // 2 or p.rows <= SMALL_TILE):
        return "small_blocks", "overlap"
    a_long_and_a_short_one = p.causal and p.keys > LONG and most < tiles <= 2 * most
    of_large_tiles = not p.causal and 64 < p.dim <= 128 and p.keys > LONGEST
    if a_long_and_a_short_one or of_large_tiles:
        return "persistent", "row_by_row", "dynamic"
    return "row_by_row", "dynamic", "overlap"


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first.

    Of few rows the keys are what takes time: those of a tile of rows are read once, by as many blocks as there are
    multiprocessors. Where all of them share one tile or a few, the last one has too much to merge. Of few keys, too,
    nothing is gained by that.
    """
    packed = p.group * p.rows
    few_keys = packed > TILE and p.keys <= FEW_KEYS
    if packed <= FEW_ROWS and not few_keys:
        tiles = p.batch * p.key_heads * ceil_div(packed, TILE)
        merged = min(packed, TILE) * machine().multiprocessors // tiles
        return "last_block" if merged <= MOST_MERGED else "split_keys", "online"
    return *_of_many_rows(p), "tensor_core", "online"
