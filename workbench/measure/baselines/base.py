"""The interface of what runs a baseline, and what all of them share."""

from __future__ import annotations

import functools
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model import operation as model
from ...model.arrays import Array
from ...model.problem import Problem


@dataclass(frozen=True)
class Prepared:
    """`enqueue` puts the work on the current stream; `deliver` puts the answer into the outputs, where that leaves it
    elsewhere, and is not timed."""

    enqueue: Callable[[], None]
    deliver: Callable[[], None] = lambda: None


class Baseline(ABC):
    """Somebody else's implementation of an operation, or one that is no stage, as it is `declared`.

    `solves` is False for a yardstick that does not compute the operation (a plain copy): its output is not compared."""

    def __init__(self, declared: model.Baseline[Any]) -> None:
        self.declared, self.name, self.solves = declared, declared.name, declared.solves

    @abstractmethod
    def version(self) -> str | None:
        """Version of the library behind it, None where it cannot run here."""

    def refuses(self, problem: Problem) -> str | None:
        """Why it cannot take the problem, None where it can."""
        return self.declared.refuses(problem)

    @abstractmethod
    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        """The work for a problem that is not refused.

        `buffers` are CuPy arrays of bytes holding the storage of each array; the outputs are written."""


def first_line(error: Exception) -> str:
    """What an error says, or what it is."""
    return (str(error).strip() or repr(error)).splitlines()[0]


def installed(modules: Iterable[str]) -> bool:
    """Whether all of these modules can be found."""
    return all(importlib.util.find_spec(name) is not None for name in modules)


def prepared(
    declared: model.Baseline[Any],
    problem: Problem,
    arrays: Mapping[str, Array],
    held: Mapping[str, Any],
    copy: Callable[[Any, Any], None],
    call: Callable[..., Any] | None = None,
) -> Prepared:
    """The work of a declared baseline on these arrays; `copy(to, value)` puts an output where it belongs.

    The first call of what is not `prepares` comes with the first `enqueue`. Raises BadOperation."""
    names = [name for name, array in arrays.items() if array.output]
    arguments = declared.arguments(held)
    wrote = declared.prepares and any(name in arguments for name in names)
    answer: list[Any] = []
    if declared.prepares:
        run = declared.call(problem, **arguments)
    else:
        run = functools.partial(call or declared.call, problem, **arguments)

    def enqueue() -> None:
        answer.clear()  # its memory serves for the next
        answer.append(run())

    def deliver() -> None:
        returned = None if wrote or not declared.solves else answer[0]
        for name, value in declared.outputs(returned, names).items():
            copy(held[name], value)

    return Prepared(enqueue, deliver)


@contextmanager
def current_stream(stream: Any) -> Iterator[None]:
    """Make a CuPy stream the current one, also for PyTorch where a baseline has loaded it."""
    torch = sys.modules.get("torch")
    with stream:
        if torch is None:
            yield
        else:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
                yield


# ---------------------------------------------------------------------------------------------------- on arrays of CuPy


class CupyArrays(Baseline):
    """Runs a declared baseline on CuPy arrays over device memory. Types that CuPy does not know come as their bits."""

    def version(self) -> str | None:
        if not installed(self.declared.requires):
            return None
        if self.declared.version:
            return self.declared.version()
        import cupy

        return f"cupy {cupy.__version__}"

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        held = {name: _array(array, buffers[name]) for name, array in arrays.items()}

        def copy(to: Any, value: Any) -> None:
            to[...] = value

        return prepared(self.declared, problem, arrays, held, copy)


def _array(array: Array, buffer: Any) -> Any:
    import cupy

    dtype = array.dtype.numpy if array.dtype.itemsize > 1 or not array.dtype.is_float else np.dtype(np.uint8)
    strides = tuple(step * dtype.itemsize for step in array.element_strides)
    return cupy.ndarray(array.shape, dtype, buffer.data, strides)
