"""Memory of the host in which nothing has been stored, followed from launch to launch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..emulator import Output
from .host import Array, as_numpy, bounds_of, bytes_at, owner_of

_WINDOW = 16  # bytes that are compared together, of elements that may have any byte's value


@dataclass(eq=False, slots=True)
class _Span:
    """Bytes of the host from ``low`` on: which of them have been stored, and what they held when last looked at."""

    low: int
    element: int
    written: Array
    held: Array
    lives: Callable[[], bool]

    @property
    def high(self) -> int:
        return self.low + self.written.size

    def refresh(self) -> None:
        """What the host has changed, it has stored: whole elements, of which a byte may be as it was."""
        now = bytes_at(self.low, self.written.size)
        changed = now != self.held
        if changed.any():
            whole = self.element if self.element > 1 else _WINDOW
            parts = np.pad(changed, (0, -changed.size % whole)).reshape(-1, whole).any(axis=1)
            self.written |= np.repeat(parts, whole)[: changed.size].view(np.uint8)
            self.held = now.copy()


@dataclass(slots=True)
class Unwritten:
    """Which bytes of the host's arrays hold nothing yet: those of an ``Output``, and those that were declared.

    An ``Output`` says so of its array when it is first given to a kernel. What kernels store is known; what the host
    stores is found by comparing."""

    _spans: list[_Span] = field(default_factory=list)
    _outputs: dict[int, Output] = field(default_factory=dict)

    def note(self, output: Output) -> None:
        """An ``Output`` that a kernel is given; the same one again is no news."""
        if id(output) not in self._outputs:
            self._outputs[id(output)] = output
            self.declare(output.array)

    def declare(self, value: Any) -> None:
        """Nothing is stored in this array: NumPy's, or a tensor of PyTorch on the CPU."""
        array = as_numpy(value)
        low, high = bounds_of(array)
        if low == high:
            return
        self.stored_by_host(array)
        written = np.ones(high - low, np.uint8)
        _elements(array, written, array.ctypes.data - low)[...] = 0
        self._spans.append(_Span(low, array.itemsize, written, bytes_at(low, high - low).copy(), _life_of(value)))

    @property
    def some(self) -> bool:
        """Whether there may be memory that holds nothing."""
        return bool(self._spans)

    def stored_by_host(self, array: Array, which: Array | None = None) -> None:
        """The host has stored in elements of an array, all of them or some, whatever they hold now."""
        low, high = bounds_of(array)
        if not self._spans or low == high:
            return
        stored = np.zeros(high - low, np.uint8)
        _elements(array, stored, array.ctypes.data - low)[...] = 1 if which is None else which[..., None]
        self.stored(low, stored)

    def stored(self, low: int, written: Array) -> None:
        """Bytes from an address on have been stored where ``written`` is 1; the host holds what they are."""
        for span, start, end in self._over(low, low + written.size):
            part = span.written[start - span.low : end - span.low]
            part |= written[start - low : end - low]
            span.held[start - span.low : end - span.low] = bytes_at(start, end - start)
        self._spans = [span for span in self._spans if not span.written.all()]

    def within(self, low: int, high: int) -> Array | None:
        """Of the bytes from ``low`` to ``high`` whether each has been stored; None where all have."""
        self._spans = [span for span in self._spans if span.lives()]
        written = None
        for span, start, end in self._over(low, high):
            span.refresh()
            if written is None:
                written = np.ones(high - low, np.uint8)
            written[start - low : end - low] &= span.written[start - span.low : end - span.low]
        return None if written is None or written.all() else written

    def elements(self, array: Array) -> Array | None:
        """Of each element of an array whether all of it has been stored; None where all have."""
        low, high = bounds_of(array)
        written = self.within(low, high) if self._spans and high > low else None
        if written is None:
            return None
        each = _elements(array, written, array.ctypes.data - low).all(axis=-1)
        return None if each.all() else np.asarray(each)

    def saved(self) -> list[tuple[_Span, Array, Array]]:
        """What is known now, for ``restore``."""
        return [(span, span.written.copy(), span.held.copy()) for span in self._spans]

    def restore(self, saved: list[tuple[_Span, Array, Array]]) -> None:
        """Goes back to what was known, where arrays hold what they held."""
        for span, written, held in saved:
            span.written, span.held = written.copy(), held.copy()
        self._spans = [span for span, _, _ in saved]

    def _over(self, low: int, high: int) -> Iterator[tuple[_Span, int, int]]:
        for span in self._spans:
            start, end = max(low, span.low), min(high, span.high)
            if start < end:
                yield span, start, end


def _elements(array: Array, flags: Array, start: int) -> Array:
    """The bytes of an array's elements in flags of the bytes of its memory."""
    return np.ndarray((*array.shape, array.itemsize), np.uint8, flags, start, (*array.strides, 1))


def _life_of(value: Any) -> Callable[[], bool]:
    """Whether the memory of an array is still that array's."""
    if not isinstance(value, np.ndarray) and hasattr(value, "untyped_storage"):
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = StorageWeakRef(value.untyped_storage())
        return lambda: not storage.expired()
    owner = weakref.ref(owner_of(as_numpy(value)))
    return lambda: owner() is not None
