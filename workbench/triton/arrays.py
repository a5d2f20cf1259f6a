"""Arrays of the host, NumPy's and PyTorch's on the CPU, as Triton and the emulator see them during one launch."""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from ..emulator import Allocation, ArgumentError, Memory, Output

__all__ = ["HostArray", "Placed", "Placement", "as_numpy", "copies", "is_array", "is_descriptor", "mapped", "snapshot"]

Array = np.ndarray[Any, Any]

_LEAST_ADDRESS, _MOST_ADDRESSES = 1 << 32, 1 << 16
_OWN_TYPES = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


@dataclass(frozen=True, slots=True)
class _Dtype:
    """A dtype under the name by which Triton knows it, with what Triton asks of PyTorch's."""

    name: str
    itemsize: int
    is_floating_point: bool

    def __str__(self) -> str:
        return self.name


def is_tensor(value: Any) -> bool:
    """Whether this is a PyTorch tensor; PyTorch is not imported for that."""
    return any(t.__module__ == "torch" and t.__name__ == "Tensor" for t in type(value).__mro__)


def is_array(value: Any) -> bool:
    """Whether a kernel gets a pointer for it."""
    return isinstance(value, np.ndarray | Output | HostArray) or is_tensor(value)


def is_descriptor(value: Any) -> bool:
    """Whether it is Triton's ``TensorDescriptor`` or one made of it."""
    return any(t.__name__ == "TensorDescriptor" and t.__module__.startswith("triton.") for t in type(value).__mro__)


def mapped(value: Any, change: Callable[[Any, str], Any], name: str) -> Any:
    """An argument with every array in it, in tuples and descriptors too, replaced; ``change`` gets it and its name."""
    if is_array(value):
        return change(value, name)
    if is_descriptor(value):
        changed = copy.copy(value)  # which does not check again
        changed.base = change(value.base, name)
        return changed
    if isinstance(value, tuple | list):
        parts = [mapped(part, change, f"{name}[{number}]") for number, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.item() if isinstance(value, np.generic) else value


def as_numpy(value: Any) -> Array:
    """The memory of an array as NumPy has it. Raises ``ArgumentError`` for memory that is not on the CPU."""
    if isinstance(value, Output | HostArray):
        return value.array
    if isinstance(value, np.ndarray):
        return value
    if value.device.type != "cpu":
        raise ArgumentError(f"a tensor is on {value.device}; kernels that are emulated take tensors on the CPU")
    if str(value.layout) != "torch.strided":
        raise ArgumentError(f"a tensor has the layout {value.layout}; a kernel takes dense ones")
    name = str(value.dtype).removeprefix("torch.")
    try:
        dtype = _OWN_TYPES.get(name) or np.dtype(name)
    except TypeError:
        raise ArgumentError(f"a tensor has the dtype {name}, which the emulator does not know") from None
    strides = tuple(step * dtype.itemsize for step in value.stride())
    storage = value.untyped_storage()
    if not value.numel() or not storage.nbytes():
        return np.empty(tuple(value.shape), dtype)
    memory = _bytes_at(storage.data_ptr(), storage.nbytes())
    return np.ndarray(tuple(value.shape), dtype, memory, value.data_ptr() - storage.data_ptr(), strides)


def _bytes_at(address: int, nbytes: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


@dataclass(eq=False, slots=True)
class HostArray:
    """A NumPy array that looks to Triton like a tensor, so that a ``TensorDescriptor`` takes it."""

    array: Array

    @property
    def dtype(self) -> _Dtype:
        """Its dtype, as Triton names it."""
        return _dtype_of(self.array)

    def data_ptr(self) -> int:
        """Where its first element lies on the host."""
        return int(self.array.ctypes.data)


def _dtype_of(array: Array) -> _Dtype:
    floating = array.dtype.kind == "f" or array.dtype.name in _OWN_TYPES
    return _Dtype(array.dtype.name, array.itemsize, floating)


@dataclass(eq=False, slots=True)
class Placed:
    """An array in emulated memory: what stands for it where Triton specialises a kernel for its arguments."""

    name: str
    array: Array
    output: bool
    address: int = 0

    @property
    def dtype(self) -> _Dtype:
        """Its dtype, as Triton names it."""
        return _dtype_of(self.array)

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
        offset = self.low - _beginning(first)
        self.allocation = memory.allocate(
            self.high - self.low,
            ", ".join(dict.fromkeys(member.name for member in self.members)),
            align=min(offset & -offset, 256) if offset else 256,
            element_size=first.itemsize,
            shape=first.shape if self.alike else None,
            writable=self.writable,
        )

    def fill(self, memory: Memory) -> None:
        """With what the host has; nothing has been stored in arrays that are an ``Output``."""
        outputs = [member for member in self.members if member.output]
        if self.allocation is None or self.low == self.high or (outputs and self.alike):
            return
        memory.write(self.allocation, _bytes_at(self.low, self.high - self.low))
        if outputs:
            self.allocation.written = np.ones(self.allocation.nbytes, np.uint8)
        for member in outputs:
            stored = self.written(member)
            assert stored is not None
            stored[...] = 0

    def written(self, member: Placed) -> Array | None:
        """For each byte of each element of a member whether something is stored there; None: everywhere."""
        if self.allocation is None or self.allocation.written is None:
            return None
        size, start = (*member.array.shape, member.array.itemsize), member.array.ctypes.data - self.low
        return np.ndarray(size, np.uint8, self.allocation.written, start, (*member.array.strides, 1))

    def copy_back(self) -> None:
        allocation = self.allocation
        if allocation is None or not allocation.nbytes:
            return
        host = _bytes_at(self.low, allocation.nbytes)
        if allocation.written is None:
            host[:] = allocation.data
        else:
            stored = allocation.written.astype(np.bool_)
            host[stored] = allocation.data[stored]


@dataclass(slots=True)
class Placement:
    """The arrays of one launch on their way to emulated memory and back.

    Every array gets memory of its own, from its first byte to its last; arrays that overlap share it as they do on the
    host. Addresses are as well aligned as an array's distance from the beginning of the memory that it is a view of:
    that begins at a multiple of 256 bytes, as memory of a GPU does. Addresses of arrays in 8-byte integers, numbers and
    elements of arrays alike, are those in emulated memory while the kernel runs.
    """

    memory: Memory
    arrays: dict[str, Array] = field(default_factory=dict)
    _placed: list[Placed] = field(default_factory=list)
    _groups: list[_Group] = field(default_factory=list)

    def arguments(self, given: Mapping[str, Any], reachable: Sequence[Any] = ()) -> dict[str, Any]:
        """The arguments with a ``Placed`` for every array; kernels may know of ``reachable`` arrays by their addresses.

        Raises ``ArgumentError``.
        """
        changed = {name: mapped(value, self._noted, name) for name, value in given.items()}
        numbers = [array for array in self.arrays.values() if _may_hold_addresses(array)]
        for number, value in enumerate((*reachable, *_tensors_at(numbers))):
            mapped(value, self._noted, f"reachable[{number}]")
        self._place()
        return {name: self._translated(value) for name, value in changed.items()}

    def _noted(self, value: Any, name: str) -> Placed:
        array = as_numpy(value)
        if array.dtype.hasobject:
            raise ArgumentError(f"{name} holds Python objects; a kernel takes numbers")
        self.arrays[name] = array
        self._placed.append(Placed(name, array, isinstance(value, Output)))
        return self._placed[-1]

    def _place(self) -> None:
        for low, high, placed in sorted(((*_bounds(p.array), p) for p in self._placed), key=lambda found: found[:2]):
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
        for group in self._groups:
            group.fill(self.memory)
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
                group.copy_back()

    def unwritten(self) -> dict[str, Array]:
        """For each ``Output``, which of its elements no store has reached."""
        found: dict[str, Array] = {}
        for group in self._groups:
            for member in group.members:
                stored = group.written(member)
                if member.output and stored is not None and not stored.all():
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
    return [t for t in tensors if t.device.type == "cpu" and t.numel() and t.data_ptr() in wanted]


def _bounds(array: Array) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high) if array.size else int(low)


def _beginning(array: Array) -> int:
    """The address of the memory that an array is a view of."""
    for owner in _owners(array):
        array = owner
    return int(np.lib.array_utils.byte_bounds(array)[0])


def _owners(array: Array) -> Iterator[Array]:
    owner = array.base
    while isinstance(owner, np.ndarray):
        yield owner
        owner = owner.base


def copies(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments with a copy of every array, as NumPy arrays."""
    return {name: mapped(value, lambda array, _: as_numpy(array).copy(), name) for name, value in given.items()}


def snapshot(values: list[Any]) -> list[tuple[Array, Array]]:
    """Every array among the values, and a copy of it."""
    found: list[tuple[Array, Array]] = []

    def note(value: Any, _: str) -> Any:
        array = as_numpy(value)
        if array.flags.writeable:
            found.append((array, array.copy()))
        return value

    for value in values:
        mapped(value, note, "")
    return found
