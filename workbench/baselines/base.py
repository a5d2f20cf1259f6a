"""The interface of a baseline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from ..launch import Array
from ..operation import Problem


class Baseline(Protocol):
    """Somebody else's implementation of an operation.

    `solves` is False for a yardstick that does not compute the operation (a plain copy): its output is not compared.
    """

    name: str
    solves: bool

    def version(self) -> str | None:
        """Version of the library behind it, None where it cannot run here."""

    def prepare(
        self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]
    ) -> Callable[[], None] | None:
        """A function that enqueues the work on the current stream, or None where the library cannot take the problem.

        `buffers` are CuPy arrays of bytes holding the storage of each array; the outputs are written.
        """


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
