"""Which stage of attention is preferred for a problem."""

from __future__ import annotations

from .problem import AttentionProblem


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    return "persistent", "tensor_core", "online"
