"""Which stage of attention is preferred for a problem."""

from __future__ import annotations

from .problem import AttentionProblem


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first.

    Under a mask work tiles differ in length, and blocks that are kept wait for the longest; tiles of a dim of 64 gain
    more than that (H100).
    """
    first = ("overlap", "persistent") if p.causal and p.dim > 64 else ("persistent",)
    return *first, "tensor_core", "online"
