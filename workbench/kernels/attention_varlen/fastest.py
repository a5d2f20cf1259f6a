"""Which stage of attention_varlen is preferred for a problem."""

from __future__ import annotations

from .problem import AttentionVarlenProblem


def fastest(p: AttentionVarlenProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first: blocks that draw
    ranked tiles are the fastest of all problems of the suite but one, where they take 1 % more (H100)."""
    return "persistent", "tensor_core", "naive"
