"""What the stages are measured against. Each baseline is optional and found at run time."""

from __future__ import annotations

from .base import Baseline, current_stream
from .vendor import VENDOR

__all__ = ["Baseline", "baselines_for", "current_stream"]


def baselines_for(operation: str) -> list[Baseline]:
    """The baselines of an operation that this machine can run, the vendor's library first."""
    return [b for b in VENDOR.get(operation, []) if b.version() is not None]
