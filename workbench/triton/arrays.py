"""Arrays of the host on their way to emulated memory, for one launch, and back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..emulator import Allocation, ArgumentError, Memory, Output
from .host import Array, as_numpy, bounds_of, bytes_at, dtype_of, is_dense, is_reinterpreted, mapped, owner_of
from .unwritten import Unwritten

_LEAST_ADDRESS, _MOST_ADDRESSES = 1 << 32, 1 << 16


@dataclass(eq=False, slots=True)
class Placed:
    """An array in emulated memory: what stands for it where Triton specialises a kernel for its arguments."""

    name: str
    array: Array
    given_dtype: Any = None
    address: int = 0
    is_placed = True

    @property
    def dtype(self) -> Any:
        """Its dtype, as Triton names it, or the one that it was given by ``triton.reinterpret``."""
        return self.given_dtype or dtype_of(self.array)

    def data_ptr(self) -> int:
        """Where its first element lies in emulated memory."""
        return self.address


@dataclass(slots=True)
class _Group:
    """Bytes of the host from ``low`` on that one allocation holds: an array, or several that overlap."""

    low: int
    high: int
    members: list[Placed]
    allocation: Allocation | None = None

    @property
    def start(self) -> int:
        """Where ``low`` lies in emulated memory."""
        return self.allocation.address if self.allocation is not None else 0

    @property
    def writable(self) -> bool:
        return any(member.array.flags.writeable for member in self.members)

    @property
    def alike(self) -> bool:
        """Whether all members are the same elements, without gaps."""
        first, nbytes = self.members[0].array, self.high - self.low
        return first.flags.c_contiguous and all(
            member.array.shape == first.shape and member.array.nbytes == nbytes for member in self.members
        )

    def allocate(self, memory: Memory) -> None:
        first = self.members[0].array
        lowest, highest = bounds_of(owner_of(first))
        offset = self.low - lowest
        names = ", ".join(dict.fromkeys(member.name for member in self.members))
        self.allocation = memory.allocate(
            self.high - self.low,
            names if any(bounds_of(m.array)[0] == self.low for m in self.members) else f"the storage of {names}",
            align=min(offset & -offset, 256) if offset else 256,
            element_size=first.itemsize,
            shape=first.shape if self.alike else None,
            writable=self.writable,
            room=(max(offset, 0), max(highest - self.high, 0)),
        )
        self.allocation.identity = self.low

    def fill(self, memory: Memory, unwritten: Unwritten | None) -> None:
        """With what the host has stored."""
        if self.allocation is None or self.low == self.high:
            return
        stored = unwritten.within(self.low, self.high) if unwritten is not None else None
        memory.write(self.allocation, bytes_at(self.low, self.high - self.low))
        if stored is not None:
            self.allocation.written = stored
            self.allocation.data[stored == 0] = 0xFF

    def written(self, member: Placed) -> Array | None:
        """For each byte of each element of a member whether something is stored there; None: everywhere."""
        if self.allocation is None or self.allocation.written is None:
            return None
        size, start = (*member.array.shape, member.array.itemsize), member.array.ctypes.data - self.low
        return np.ndarray(size, np.uint8, self.allocation.written, start, (*member.array.strides, 1))

    def copy_back(self, unwritten: Unwritten | None) -> None:
        allocation = self.allocation
        if allocation is None or not allocation.nbytes:
            return
        host = bytes_at(self.low, allocation.nbytes)
        if allocation.written is None:
            host[:] = allocation.data
        else:
            stored = allocation.written.astype(np.bool_)
            host[stored] = allocation.data[stored]
        if unwritten is not None:
            all_of_it = np.ones(allocation.nbytes, np.uint8)
            unwritten.stored(self.low, all_of_it if allocation.written is None else allocation.written)


@dataclass(slots=True)
class Placement:
    """The arrays of one launch on their way to emulated memory and back.

    Every array gets memory of its own, from its first byte to its last; arrays that overlap share it as they do on the
    host. Addresses are as well aligned as an array's distance from the beginning of the memory that it is a view of:
    that begins at a multiple of 256 bytes, as memory of a GPU does. Addresses of arrays in 8-byte integers, numbers and
    elements of arrays alike, are those in emulated memory while the kernel runs.

    ``whole``: memory goes from the first to the last byte of the storage that an array is a view of. ``unwritten``:
    what the host has not stored in; None: nothing."""

    memory: Memory
    unwritten: Unwritten | None = None
    whole: bool = False
    arrays: dict[str, Array] = field(default_factory=dict)
    _placed: list[Placed] = field(default_factory=list)
    _groups: list[_Group] = field(default_factory=list)

    def arguments(self, given: Mapping[str, Any], reachable: Sequence[Any] = (), filled: bool = True) -> dict[str, Any]:
        """The arguments with a ``Placed`` for every array; kernels may know of ``reachable`` arrays by their addresses.

        Unless ``filled``, memory holds nothing: of arrays only their types and addresses matter. Raises
        ``ArgumentError``."""
        changed = {name: mapped(value, self._noted, name) for name, value in given.items()}
        numbers = [array for array in self.arrays.values() if _may_hold_addresses(array)]
        for number, value in enumerate((*reachable, *_tensors_at(numbers))):
            mapped(value, self._noted, f"reachable[{number}]")
        self._place(filled)
        return {name: self._translated(value) for name, value in changed.items()}

    def _noted(self, value: Any, name: str) -> Placed:
        array = as_numpy(value)
        if array.dtype.hasobject:
            raise ArgumentError(f"{name} holds Python objects; a kernel takes numbers")
        self.arrays[name] = array
        if isinstance(value, Output) and self.unwritten is not None:
            self.unwritten.note(value)
        self._placed.append(Placed(name, array, value.dtype if is_reinterpreted(value) else None))
        return self._placed[-1]

    def _place(self, filled: bool) -> None:
        bounds = [(*bounds_of(owner_of(p.array) if self.whole else p.array), p) for p in self._placed]
        for low, high, placed in sorted(bounds, key=lambda found: found[:2]):
            last = self._groups[-1] if self._groups else None
            if last is not None and low < last.high and high > low:
                last.high = max(last.high, high)
                last.members.append(placed)
            else:
                self._groups.append(_Group(low, high, [placed]))
        for group in self._groups:
            group.allocate(self.memory)
            for placed in group.members:
                placed.address = group.start + placed.array.ctypes.data - group.low
        for group in self._groups if filled else ():
            group.fill(self.memory, self.unwritten)
            self._exchange(group, to_host=False)

    def _translated(self, value: Any) -> Any:
        if isinstance(value, tuple):
            parts = [self._translated(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if type(value) is int and value >= _LEAST_ADDRESS:
            return next((value - g.low + g.start for g in self._groups if g.low <= value < g.high), value)
        return value

    def _exchange(self, group: _Group, to_host: bool) -> None:
        """Addresses that a group's arrays of integers hold: of the host for those of emulated memory, or back."""
        for member in group.members:
            if not _may_hold_addresses(member.array) or group.allocation is None or not group.high > group.low:
                continue
            where = member.array.ctypes.data - group.low, member.array.strides
            held = np.ndarray(member.array.shape, np.uint64, group.allocation.data, *where)
            before = held.copy()
            for other in self._groups:
                old, new = (other.start, other.low) if to_host else (other.low, other.start)
                inside = (before >= old) & (before < old + other.high - other.low)
                held[inside] = before[inside] - np.uint64(old) + np.uint64(new)

    def copy_back(self) -> None:
        """What the kernel stored, to the host."""
        for group in self._groups:
            self._exchange(group, to_host=True)
            if group.writable:
                group.copy_back(self.unwritten)

    def goes_on(self, address: int) -> bool:
        """Whether an address in emulated memory, outside of a view, lies inside of the storage that is viewed."""
        for group in self._groups:
            low, high = bounds_of(owner_of(group.members[0].array))
            if low <= address - group.start + group.low < high:
                return True
        return False

    def missing(self) -> dict[str, Array]:
        """For each array that is not stored as a whole, which of its elements no store has reached."""
        found: dict[str, Array] = {}
        for group in self._groups:
            for member in group.members:
                stored = group.written(member)
                if stored is not None and not stored.all():
                    found[member.name] = np.asarray(~stored.all(axis=-1))
        return found


def _may_hold_addresses(array: Array) -> bool:
    return array.dtype in (np.int64, np.uint64) and 0 < array.size <= _MOST_ADDRESSES


def _tensors_at(numbers: list[Array]) -> list[Any]:
    """PyTorch's tensors on the CPU whose addresses stand in arrays, as those of a grouped product do."""
    torch = sys.modules.get("torch")
    wanted = {int(n) for array in numbers for n in array.flat if int(n) >= _LEAST_ADDRESS}
    if torch is None or not wanted:
        return []
    tensors = [found for found in gc.get_objects() if type(found) in (torch.Tensor, torch.nn.Parameter)]
    return [t for t in tensors if is_dense(t) and t.numel() and t.data_ptr() in wanted]
