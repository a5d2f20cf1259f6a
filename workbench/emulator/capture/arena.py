"""The device's memory in a file that the captured program maps, too."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ..memory import FIRST_ADDRESS, Allocation, Memory

ARENA_BYTES = 1 << 42
"""Of addresses. Pages that nobody touches take no memory."""

_FILLED = 1 << 24
"""Bytes of an allocation that are filled, so that floats without a value are NaN: filling touches every page."""

_UNSET = 0xFFEDFFED
"""A word of memory that the host maps, too, until somebody stores there: NaN as a float of any width, and not -1."""

_DIGESTED = 1 << 28
"""Bytes of all allocations up to which a digest, and a copy, is worth its time."""

_Bytes = npt.NDArray[np.uint8]


class Arena(Memory):
    """Emulated memory whose bytes lie in a file, each at its address less that of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.file = os.memfd_create("device memory")
        os.ftruncate(self.file, ARENA_BYTES)
        self._mapped = mmap.mmap(self.file, ARENA_BYTES)
        self._bytes = np.frombuffer(self._mapped, np.uint8)
        self._of_host: list[Allocation] = []
        self._left: dict[int, int] = {}  # by address, what `left_unwritten` has counted since anything was stored

    def close(self) -> None:
        """Gives the memory back."""
        os.close(self.file)

    def storage(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """The bytes of a new allocation."""
        start = address - FIRST_ADDRESS
        if start + nbytes > ARENA_BYTES:
            raise MemoryError(f"{nbytes} bytes do not fit into the device's memory")
        found = self._bytes[start : start + nbytes]
        if nbytes <= _FILLED:
            found[:] = 0xFF
        return found

    def share(self, allocation: Allocation) -> None:
        """The host stores into new memory without saying so; what it has stored shows by the words that are left."""
        allocation.written = None
        if 4 <= allocation.nbytes <= _FILLED:
            _words(allocation)[:] = _UNSET
            self._of_host.append(allocation)

    @contextmanager
    def unset_known(self) -> Iterator[None]:
        """While a launch runs: which bytes of memory that the host maps have no value."""
        self._left.clear()
        self._of_host = [allocation for allocation in self._of_host if (_words(allocation) == _UNSET).any()]
        for allocation in self._of_host:
            words = _words(allocation)
            allocation.written = np.ones(allocation.nbytes, np.uint8)
            allocation.written[: words.nbytes] = np.repeat(words != _UNSET, 4)
        yield
        for allocation in self._of_host:
            allocation.written = None

    def free(self, allocation: Allocation) -> None:
        """Frees memory, and gives its whole pages back."""
        super().free(allocation)
        self._left.pop(allocation.address, None)
        if allocation in self._of_host:
            self._of_host.remove(allocation)
        start = -(-(allocation.address - FIRST_ADDRESS) // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (allocation.end - FIRST_ADDRESS) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            self._mapped.madvise(mmap.MADV_REMOVE, start, end - start)
        allocation.written = None

    def copy_state(self, to: Sequence[int], source: Sequence[int]) -> None:
        """After a copy on the device: what is copied from bytes that nothing has stored is without a value, too."""
        self._left.clear()
        whole = all(pitch == width for _, pitch, width, _ in (to, source))
        parts = (self._rows(*box, whole=whole) for box in (to, source))
        for (target, there), (origin, here) in zip(*parts, strict=True):
            known = np.uint8(1) if origin.written is None else origin.written[here]
            if target.written is None and origin.written is not None:
                target.written = np.ones(target.nbytes, np.uint8)
            if target.written is not None:
                target.written[there] = known

    def stored(self, address: int, pitch: int, width: int, rows: int) -> None:
        """The host has stored these bytes."""
        self._left.clear()
        for allocation, part in self._rows(address, pitch, width, rows):
            if allocation.written is not None:
                allocation.written[part] = 1
                if part.stop - part.start == allocation.nbytes:
                    allocation.written = None

    def unwritten(self, address: int, pitch: int, width: int, rows: int) -> int:
        """Of these bytes, how many nothing has stored."""
        parts = self._rows(address, pitch, width, rows)
        return sum(int(np.count_nonzero(a.written[part] == 0)) for a, part in parts if a.written is not None)

    def left_unwritten(self, allocation: Allocation) -> int:
        """Of its bytes, how many nothing has stored."""
        if allocation.written is None:
            return 0
        if allocation.address not in self._left:
            self._left[allocation.address] = allocation.nbytes - int(np.count_nonzero(allocation.written))
        return self._left[allocation.address]

    def digest(self) -> bytes:
        """Of everything that is allocated: equal where all bytes are, and which of them have been stored."""
        total = sum(allocation.nbytes for allocation in self.allocations)
        if total > _DIGESTED:
            return b""
        found = hashlib.blake2b()
        for allocation in self.allocations:
            found.update(allocation.address.to_bytes(8, "little"))
            found.update(allocation.data.data)
            if allocation.written is not None:
                found.update(allocation.written.data)
        return found.digest()

    def saved(self) -> list[tuple[Allocation, _Bytes, _Bytes | None]]:
        """All that is allocated, as it is now."""
        return [(a, a.data.copy(), None if a.written is None else a.written.copy()) for a in self.allocations]

    def restore(self, saved: Sequence[tuple[Allocation, _Bytes, _Bytes | None]]) -> None:
        """As it was then."""
        for allocation, data, written in saved:
            allocation.data[:] = data
            allocation.written = written

    def _rows(
        self, address: int, pitch: int, width: int, rows: int, *, whole: bool = True
    ) -> list[tuple[Allocation, slice]]:
        if whole and pitch == width:
            width, rows = width * rows, 1
        allocation = self.find(address)
        if allocation is None:
            return []
        first = address - allocation.address
        return [(allocation, slice(first + row * pitch, first + row * pitch + width)) for row in range(rows)]


def _words(allocation: Allocation) -> npt.NDArray[np.uint32]:
    return allocation.data[: allocation.nbytes // 4 * 4].view(np.uint32)
