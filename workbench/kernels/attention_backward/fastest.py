"""Which stage of attention_backward is preferred for a problem."""

from __future__ import annotations

from ..attention.problem import AttentionProblem

SHORT = 64
"""Queries and keys of the longest sequence that is short."""


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first. A block that owns
    all keys of a head is the fastest for short sequences: 2048 heads of 20 keys take 34 us so, and 156 in
    `specialised`; of 64 keys 129 and 170 with a dim of 64, and as long with one of 128 (H200)."""
    if p.dim <= 128 and p.keys <= SHORT and p.rows <= SHORT:
        return "all_keys", "specialised", "tensor_core", "naive"
    return "wide" if p.dim > 128 else "specialised", "tensor_core", "naive"
