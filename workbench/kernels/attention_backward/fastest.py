"""Which stage of attention_backward is preferred for a problem."""

from __future__ import annotations

from ...model.launch import ceil_div
from ..attention.problem import AttentionProblem

MOST_TILES = {32: 8, 64: 2}
"""Of 64 queries, by most keys: so many a block of `all_keys` solves one after the other in no more time than three
launches take. Of the problems that this takes, among 75 timed on an H200, one was more than 1 % slower: 16 heads of 512
queries and 20 keys (28 us, 26)."""


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first. A block that owns
    all keys of a head is the fastest for short sequences: 2048 heads of 20 keys take 34 us so, and 156 in
    `specialised`; of 64 keys 129 and 170 with a dim of 64, and as long with one of 128 (H200)."""
    most = next((tiles for keys, tiles in MOST_TILES.items() if p.keys <= keys), 0)
    if p.dim <= 128 and ceil_div(p.rows, 64) * p.group <= most:
        return "all_keys", "specialised", "tensor_core", "naive"
    return "wide" if p.dim > 128 else "specialised", "tensor_core", "naive"
