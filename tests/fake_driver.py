"""The driver's library without a driver: functions that record how they are called, and answer as they are told."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


class Function:
    """A C function; `says` answers a call, by its status or nothing for success."""

    def __init__(self, library: FakeLibrary, name: str) -> None:
        self.library, self.name = library, name
        self.argtypes: list[Any] = []

    def __call__(self, *arguments: Any) -> int:
        self.library.calls.append((self.name, arguments))
        says = self.library.answers.get(self.name)
        return (says(*arguments) or 0) if says else 0


class FakeLibrary:
    """Any function by its name."""

    def __init__(self, **answers: Callable[..., int | None]) -> None:
        self.answers, self.calls = answers, []
        self._made: dict[str, Function] = {}

    def __getattr__(self, name: str) -> Function:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._made.setdefault(name, Function(self, name))

    def called(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of a function."""
        return [arguments for other, arguments in self.calls if other == name]


def store(reference: Any, value: Any) -> None:
    """Write through what `ctypes.byref` made."""
    reference._obj.value = value


def text(status: int, reference: Any) -> None:
    """`cuGetErrorString`."""
    reference._obj.value = f"error number {status}".encode()


def numbers(array: ctypes.Array[Any]) -> list[int]:
    """What lies in an array of C."""
    return list(array)
