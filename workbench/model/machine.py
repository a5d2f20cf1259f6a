"""What a plan is told of the device that it is for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar


@dataclass(frozen=True)
class Machine:
    """A device, as far as sizes and launches depend on it.

    `architecture` is the compute capability times ten. `multiprocessors` is their number. A block may have
    `shared_bytes` bytes of shared memory. A multiprocessor has that many 32-bit `registers`.
    """

    architecture: int
    multiprocessors: int
    shared_bytes: int
    registers: int = 2**16


H200 = Machine(architecture=90, multiprocessors=132, shared_bytes=232_448)
"""An NVIDIA H200, or an H100 (SXM): the machine of a stage that nobody has moved to another one."""

_machine: ContextVar[Machine] = ContextVar("machine", default=H200)

A = ParamSpec("A")
R = TypeVar("R")


def machine() -> Machine:
    """The device that sizes or launches are being made for: what functions of a stage or an operation may depend on.

    Outside of them it is an H200.
    """
    return _machine.get()


@contextlib.contextmanager
def planning_for(chosen: Machine) -> Iterator[None]:
    """Within, `machine()` is this one."""
    before = _machine.set(chosen)
    try:
        yield
    finally:
        _machine.reset(before)


def kept_by_machine(most: int | None = None) -> Callable[[Callable[A, R]], Callable[A, R]]:
    """A cache, as `functools.lru_cache` is, of a function whose results depend on the machine, too."""

    def decorate(function: Callable[A, R]) -> Callable[A, R]:
        @lru_cache(most)
        def kept(_: Machine, *args: Any, **keywords: Any) -> R:
            return function(*args, **keywords)

        @wraps(function)
        def called(*args: A.args, **keywords: A.kwargs) -> R:
            return kept(_machine.get(), *args, **keywords)  # type: ignore[arg-type]

        return called

    return decorate
