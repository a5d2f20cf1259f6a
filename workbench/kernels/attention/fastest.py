"""Which stage of attention is preferred for a problem."""

from __future__ import annotations

from ...model.launch import MULTIPROCESSORS, ceil_div
from .problem import AttentionProblem

TILE = 16
"""Rows that a block takes where there are few."""

FEW_ROWS = 2 * TILE
"""Rows of the heads that share keys, with which a product takes less time than to load the keys from memory."""

FEW_KEYS = 64
"""Keys that one tile holds."""

MOST_MERGED = 512
"""Rows of parts that one block merges in the time of another launch."""


SHORT = {64: 1400, 128: 300}
"""Keys, by dim, up to which blocks that share a multiprocessor beat those that fill one. Where half is masked and there
are many rows, they do at a dim of 64 for all of these, else for half (H200)."""

ROUNDS = 4
"""Work tiles of each multiprocessor from which on tickets balance them better than a fixed order."""

TILE_ROWS = {64: 192, 128: 128}
"""Of a work tile of persistent blocks, by dim."""


def _short(p: AttentionProblem, tiles: int) -> bool:
    """Whether a problem has so few keys that most of the time of large tiles is that of their beginning and end."""
    dim = 64 if p.dim <= 64 else 128
    if p.dim > 128 or p.keys > SHORT[dim]:
        return False
    return dim == 128 or p.causal or tiles <= MULTIPROCESSORS or 2 * p.keys <= SHORT[dim]


def _of_many_rows(p: AttentionProblem) -> tuple[str, ...]:
    """The stages for tiles of many rows, best first. Of more than a dim of 128 tiles under a mask differ most from a
    block's share, and no more is known."""
    if p.dim > 128:
        return ("overlap", "persistent") if p.causal else ("persistent",)
    tiles = p.batch * p.heads * ceil_div(p.rows, 128)
    if _short(p, tiles):
        return "small_blocks", "overlap"
    if tiles <= MULTIPROCESSORS:
        return "overlap", "persistent"  # a tile each
    work_tiles = p.batch * p.heads * ceil_div(p.rows, TILE_ROWS[64 if p.dim <= 64 else 128])
    if work_tiles >= ROUNDS * MULTIPROCESSORS and (p.causal or (p.keys <= 1024 and p.dim > 64)):
        return "dynamic", "persistent"
    fixed = not p.causal or p.dim <= 64 or tiles <= 2 * MULTIPROCESSORS  # a long and a short tile each
    return ("persistent",) if fixed else ("overlap", "persistent")


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
        merged = min(packed, TILE) * MULTIPROCESSORS // tiles
        return "last_block" if merged <= MOST_MERGED else "split_keys", "online"
    return *_of_many_rows(p), "tensor_core", "online"
