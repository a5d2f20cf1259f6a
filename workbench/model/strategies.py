"""Hypothesis' strategies, which are loaded when the first problem is drawn: the process of stages draws none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["st"]

if TYPE_CHECKING:
    from hypothesis import strategies as st
else:

    class _Strategies:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("hypothesis.strategies"), name)

    st = _Strategies()
