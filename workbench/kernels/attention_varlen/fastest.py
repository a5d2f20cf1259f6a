"""Which stage of attention_varlen is preferred for a problem."""

from __future__ import annotations

from .problem import AttentionVarlenProblem


def fastest(p: AttentionVarlenProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first: as of attention,
    blocks that stay where tiles are alike, or gain more by it than they lose by waiting for the longest."""
    first = ("longest_first", "persistent") if p.causal and p.dim > 64 else ("persistent",)
    return *first, "tensor_core", "naive"
