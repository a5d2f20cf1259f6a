"""Which stage of attention_backward is preferred for a problem."""

from __future__ import annotations

from ..attention.problem import AttentionProblem


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    return "wide" if p.dim > 128 else "specialised", "tensor_core", "naive"
