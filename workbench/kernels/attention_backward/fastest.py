"""Which stage of attention_backward is preferred for a problem."""

from __future__ import annotations

from ..attention.problem import AttentionProblem

SHORT = 48
"""Queries and keys of the longest sequence that is short."""


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first. Warps that
    multiply small tiles are the fastest for short sequences: 744 heads of 20 keys take 41 us so, and 59 in
    `specialised`; of 48 keys both take as long, and with a dim of 128 these take longer (H200)."""
    if p.dim <= 64 and p.keys <= SHORT and p.rows <= SHORT:
        return "tensor_core", "specialised", "naive"
    return "wide" if p.dim > 128 else "specialised", "tensor_core", "naive"
