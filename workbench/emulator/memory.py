"""Global memory of the emulated device.

Every allocation has storage of its own and an address far from its neighbours, so that an index past its end, even by a
row, falls between allocations and is found. Storage is shared with the engine: a launch writes into it directly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .allocation import Allocation
from .tensor_bytes import tensor_bytes
from .tensor_map import TensorMap

__all__ = ["Memory"]

_FIRST_ADDRESS = 0x7A00_0000_0000
_RED_ZONE = 1 << 20


class Memory:
    """Emulated global memory. Allocations live until they are freed; launches read and write them in place.

    Memories with different ``place`` give different addresses to the same allocations.
    """

    def __init__(self, place: int = 0) -> None:
        self._addresses: list[int] = []
        self._allocations: list[Allocation] = []
        self._freed: list[Allocation] = []
        self._next = _FIRST_ADDRESS + place * _RED_ZONE
        self.tensor_maps: dict[int, TensorMap] = {}
        self.modules: dict[Any, dict[str, Allocation]] = {}  # variables of the programs that have been loaded

    def allocate(
        self,
        nbytes: int,
        name: str = "",
        *,
        align: int = 256,
        element_size: int = 4,
        shape: Sequence[int] | None = None,
        writable: bool = True,
    ) -> Allocation:
        """Uninitialised memory of ``nbytes`` bytes at an address that is a multiple of ``align``."""
        if nbytes < 0 or align < 1 or align & (align - 1):
            raise ValueError(
                f"an allocation has a size and an alignment that is a power of two, not {nbytes} and {align}"
            )
        address = -(-self._next // max(align, 256)) * max(align, 256)
        if align < 256:  # no better aligned than asked for, so that a kernel that hopes for more is found
            address += align
        self._next = address + nbytes + max(_RED_ZONE, nbytes)
        allocation = Allocation(
            address,
            nbytes,
            name or f"allocation {len(self._addresses)}",
            element_size,
            tuple(shape) if shape is not None else (nbytes // element_size,),
            _aligned_bytes(nbytes),
            np.zeros(nbytes, np.uint8),
            writable,
        )
        self._addresses.append(address)
        self._allocations.append(allocation)
        return allocation

    def upload(self, array: npt.NDArray[Any] | TensorMap, name: str = "", *, writable: bool = True) -> Allocation:
        """A copy of an array's bytes in C order. A ``TensorMap`` is placed so that a kernel can take it by pointer."""
        if isinstance(array, TensorMap):
            allocation = self.allocate(128, name, align=256, element_size=128, writable=False)
            self.tensor_maps[allocation.address] = array
            allocation.data[:128] = list(tensor_bytes(array))
            allocation.written = None
            return allocation
        array = np.asarray(array, order="C")
        allocation = self.allocate(
            array.nbytes, name, element_size=array.itemsize, shape=array.shape, writable=writable
        )
        self.write(allocation, array)
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Frees memory: a later access by a kernel is out of bounds."""
        index = self._addresses.index(allocation.address)
        del self._addresses[index], self._allocations[index]
        allocation.freed = True
        self.tensor_maps.pop(allocation.address, None)
        self._freed.append(allocation)

    def write(self, where: int | Allocation, array: npt.NDArray[Any]) -> None:
        """Stores an array's bytes, in C order, at an allocation's start or at an address inside one."""
        raw = np.frombuffer(np.asarray(array, order="C").tobytes(), np.uint8)
        allocation, offset = self._at(where, raw.nbytes)
        allocation.data[offset : offset + raw.nbytes] = raw
        if allocation.written is not None:
            allocation.written[offset : offset + raw.nbytes] = 1
            if raw.nbytes == allocation.nbytes:
                allocation.written = None

    def read(
        self, where: int | Allocation, dtype: npt.DTypeLike, shape: int | Sequence[int] | None = None
    ) -> npt.NDArray[Any]:
        """A copy of memory as an array; of the whole allocation when no shape is given."""
        dtype = np.dtype(dtype)
        if shape is None:
            allocation, offset = self._at(where, 0)
            shape = ((allocation.nbytes - offset) // dtype.itemsize,)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = prod(shape) * dtype.itemsize
        allocation, offset = self._at(where, nbytes)
        return allocation.data[offset : offset + nbytes].copy().view(dtype).reshape(shape)

    def initialised(self, allocation: Allocation) -> npt.NDArray[np.bool_]:
        """For each byte, whether something has been stored there."""
        if allocation.written is None:
            return np.ones(allocation.nbytes, np.bool_)
        return allocation.written.astype(np.bool_)

    def forget(self, allocation: Allocation) -> None:
        """Makes memory uninitialised again."""
        allocation.data[:] = 0xFF
        allocation.written = np.zeros(allocation.nbytes, np.uint8)

    def settle(self) -> None:
        """Forgets which bytes have been stored where all of them have: checking nothing is faster."""
        for allocation in self._allocations:
            if allocation.written is not None and allocation.written.all():
                allocation.written = None

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """What is allocated now, by address."""
        return tuple(self._allocations)

    def find(self, address: int) -> Allocation | None:
        """The allocation that the address lies in."""
        index = bisect_right(self._addresses, address) - 1
        if index >= 0 and address < self._allocations[index].end:
            return self._allocations[index]
        return None

    def nearest(self, address: int) -> Allocation | None:
        """The allocation, freed ones included, that the address lies in or is nearest to."""

        def distance(allocation: Allocation) -> tuple[int, bool]:
            return max(allocation.address - address, address - (allocation.end - 1), 0), allocation.freed

        return min((*self._allocations, *self._freed), key=distance, default=None)

    def _at(self, where: int | Allocation, nbytes: int) -> tuple[Allocation, int]:
        address = int(where)
        allocation = where if isinstance(where, Allocation) else self.find(address)
        if allocation is None or allocation.freed:
            raise ValueError(f"nothing is allocated at {address:#x}")
        if address + nbytes > allocation.end:
            raise ValueError(
                f"{nbytes} bytes do not fit into {allocation.name}, which has {allocation.end - address} from there on"
            )
        return allocation, address - allocation.address


def _aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Storage that starts at a multiple of 128 bytes, filled so that floats are NaN and integers -1."""
    raw = np.full(nbytes + 128, 0xFF, np.uint8)
    start = -raw.ctypes.data % 128
    return raw[start : start + nbytes]
