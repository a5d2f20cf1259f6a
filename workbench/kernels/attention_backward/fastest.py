"""Which stage of attention_backward is preferred for a problem."""

from __future__ import annotations

from typing import Any


def fastest(p: Any) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    return ("naive",)
