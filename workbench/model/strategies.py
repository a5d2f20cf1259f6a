"""Hypothesis' strategies, which are loaded when the first problem is drawn: the process of stages draws none."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

__all__ = ["drawn", "st"]

if TYPE_CHECKING:
    from hypothesis import strategies as st
else:

    class _Strategies:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("hypothesis.strategies"), name)

    st = _Strategies()

P = ParamSpec("P")
T = TypeVar("T")


def drawn(draw: Callable[Concatenate[st.DrawFn, P], T]) -> Callable[P, st.SearchStrategy[T]]:
    """What returns the strategy of values that a function draws: `hypothesis.strategies.composite`, when it is used."""
    return lambda *given, **named: st.composite(draw)(*given, **named)
