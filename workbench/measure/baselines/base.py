"""The interface of a baseline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ...model.arrays import Array
from ...model.problem import Problem


@dataclass(frozen=True)
class Prepared:
    """`enqueue` puts the work on the current stream; `deliver` puts the answer into the outputs, where that leaves it
    elsewhere, and is not timed."""

    enqueue: Callable[[], None]
    deliver: Callable[[], None] = lambda: None


class Baseline(Protocol):
    """Somebody else's implementation of an operation, or one that is no stage.

    `solves` is False for a yardstick that does not compute the operation (a plain copy): its output is not compared.
    """

    name: str
    solves: bool

    def version(self) -> str | None:
        """Version of the library behind it, None where it cannot run here."""

    def refuses(self, problem: Problem) -> str | None:
        """Why it cannot take the problem, None where it can."""

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        """The work for a problem that is not refused.

        `buffers` are CuPy arrays of bytes holding the storage of each array; the outputs are written.
        """


def one_type(problem: Problem) -> str | None:
    """The refusal of a library whose call has one type for inputs and output."""
    types = dict.fromkeys(str(array.dtype) for array in problem.arrays().values() if array.dtype.is_float)
    return None if len(types) == 1 else f"its call has one type for inputs and output, not {' and '.join(types)}"


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
