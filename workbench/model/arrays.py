"""Arrays in device memory: their shape, how it lies in memory, and what is in it before anybody has written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .dtypes import DType, same_bits

Arrays = dict[str, np.ndarray[Any, Any]]
"""Values of arrays by name."""

BEST_ALIGNMENT, OF_PAGES = 256, 4096
"""Bytes at a multiple of which fresh memory of a device starts, and at a multiple of which some of it starts."""


@dataclass(frozen=True)
class Array:
    """An array in device memory, with a logical `shape` and `strides`: the distance in elements in each dimension.

    Without strides it is in row-major order; `leading` then says how many elements its rows are apart (the leading
    dimension). The storage ends with the last element. A kernel may touch nothing behind it or between elements.

    A kernel gets an input's values and may not write to it; it has to write every element of an `output`. An `inout`
    array is both: its initial values are inputs, the reference gives its final ones. A `prepared` array is an input
    that the operation makes of the others, on the host and once (tables, packed weights).

    `fill` holds the bytes of an unwritten element. The default depends on the type.

    Of packed elements, several in a byte, rows begin at whole bytes, and no array is an output.

    Scratch that is `zero` holds zeros when a plan begins, and the plan leaves zeros there. So it is never cleared."""

    shape: tuple[int, ...]
    dtype: DType
    leading: int | None = None
    output: bool = False
    zero: bool = False
    strides: tuple[int, ...] | None = None
    inout: bool = False
    prepared: bool = False
    fill: bytes = b""

    def __post_init__(self) -> None:
        if self.inout:
            object.__setattr__(self, "output", True)
        if self.dtype.compute_only:
            raise ValueError(f"no memory holds {self.dtype}: declare the array as fp32")
        if self.prepared and self.output:
            raise ValueError("a prepared array is an input: it cannot be an output, too")
        if self.dtype.packing > 1 and (self.output or any(step % self.dtype.packing for step in self._outer_strides)):
            raise ValueError(f"{self.dtype} is packed: an array of it is an input, and its rows begin at whole bytes")
        if min(self.shape, default=1) < 1:
            raise ValueError(f"the array has shape {self.shape}; every extent has to be at least 1")
        if self.leading is not None and self.strides is not None:
            raise ValueError("leading is short for strides: give one of the two")
        if self.leading is not None and self.leading < self.shape[-1]:
            raise ValueError(f"leading dimension {self.leading} is smaller than a row of {self.shape[-1]} elements")
        if self.strides is not None:
            _check_strides(self.shape, self.strides)

    @property
    def given(self) -> bool:
        """Whether the caller gives its values, as inputs."""
        return self.inout or not (self.output or self.prepared)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The distance in elements between neighbours in every dimension, outermost first."""
        if self.strides is not None:
            return self.strides
        steps = [1] * len(self.shape)
        for place in range(len(self.shape) - 2, -1, -1):
            steps[place] = steps[place + 1] * self.shape[place + 1]
            if place == len(self.shape) - 2:
                steps[place] = self.row_stride
        return tuple(steps)

    @property
    def _outer_strides(self) -> tuple[int, ...]:
        """Those of dimensions of several elements, but for the innermost one if its elements lie side by side."""
        every = [step for step, n in zip(self.element_strides, self.shape, strict=True) if n > 1]
        return tuple(every[:-1] if every[-1:] == [1] else every)

    @property
    def row_stride(self) -> int:
        """Elements from one row to the next."""
        if self.strides is not None and len(self.strides) > 1:
            return self.strides[-2]
        return prod(self.shape[-1:]) if self.leading is None else self.leading

    @property
    def rows_contiguous(self) -> bool:
        """Whether the elements of a row are contiguous, and rows have equal distances, as in a matrix."""
        if self.strides is None:
            return True
        rows = max(self.row_stride, self.shape[-1])
        return self.strides == Array(self.shape, self.dtype, rows).element_strides

    @property
    def size(self) -> int:
        """Elements of the array."""
        return prod(self.shape)

    @property
    def storage_elements(self) -> int:
        """The number of elements of memory from the first to the last, including the gaps; bytes of packed ones."""
        last = sum((extent - 1) * step for extent, step in zip(self.shape, self.element_strides, strict=True))
        return 1 + last // self.dtype.packing

    @property
    def padded(self) -> bool:
        """Whether there is memory between elements that belongs to none of them."""
        return self.storage_elements * self.dtype.packing > self.size

    @property
    def nbytes(self) -> int:
        """Bytes of the storage."""
        return self.storage_elements * self.dtype.itemsize

    def view(self, storage: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The logical array, shape `self.shape`, as a view of its one-dimensional storage; a copy if it is packed."""
        if storage.shape != (self.storage_elements,):
            raise ValueError(f"storage has shape {storage.shape}, not ({self.storage_elements},)")
        if self.dtype.packing > 1:
            return self._strided(self.dtype.unpacked(storage).view(self.dtype.numpy))
        return self._strided(storage)

    def _strided(self, storage: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        size = storage.itemsize  # not the dtype's: a mask over the storage can be viewed as well
        steps = tuple(step * size for step in self.element_strides)
        whole = storage.view(f"u{size}")  # NumPy has no name for some of the types
        return np.lib.stride_tricks.as_strided(whole, self.shape, steps).view(storage.dtype)

    @property
    def filler(self) -> bytes:
        """The bytes of an element that was never written."""
        return bytes(self.dtype.itemsize) if self.zero else self.fill or self.dtype.fillers[0]

    def poisoned(self) -> np.ndarray[Any, Any]:
        """Fresh storage in which nothing has been written: every element is the filler, a NaN in floating-point types;
        zero where it has to be."""
        return np.full(self.storage_elements, np.frombuffer(self.filler, f"u{self.dtype.itemsize}")).view(
            self.dtype.storage
        )

    def unwritten(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A mask of `values` (of the array's type): those with the bits of an element that was never written."""
        return same_bits(values, self.filler)

    def pack(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Storage that holds `values` (shape `self.shape`), with the padding between elements unwritten."""
        elements = self.dtype.unpacked(self.poisoned())
        self._strided(elements)[...] = values if self.dtype.packing == 1 else values.view(np.uint8)
        packed: np.ndarray[Any, Any] = self.dtype.packed(elements)
        return packed

    def written_padding(self, storage: np.ndarray[Any, Any]) -> int:
        """How many elements in the gaps of the array no longer hold their filler."""
        if not self.padded:
            return 0
        untouched = self.unwritten(storage)
        self.view(untouched)[...] = True
        return int((~untouched).sum())


def _check_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Raises ValueError for strides with which two elements would be one."""
    if len(strides) != len(shape):
        raise ValueError(f"{len(strides)} strides for {len(shape)} dimensions: give one for each")
    if min(strides, default=0) < 0:
        raise ValueError(f"strides {strides} are negative: kernels get the address of the first element")
    dimensions = sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1)
    run = 0  # elements after the first of those that lie beside each other
    while dimensions and dimensions[0][0] == run + 1:
        step, extent = dimensions.pop(0)
        run += (extent - 1) * step
    reach, nested = run, True  # of the dimensions inside, the last element
    for step, extent in dimensions:
        nested &= step > reach
        reach += (extent - 1) * step
    if nested:
        return
    if dimensions[0][0] > run:  # dimensions may interleave without two elements on one place
        if len(dimensions) == 2:
            overlap = _meet(dimensions[0], dimensions[1], run)
        else:
            places = np.zeros(1, np.int64)
            for step, extent in dimensions:
                places = (places[:, None] + step * np.arange(extent)).ravel()
            overlap = bool((np.diff(np.sort(places)) <= run).any())
        if not overlap:
            return
    raise ValueError(f"with strides {strides} elements of an array of shape {shape} overlap in memory")


def _meet(one: tuple[int, int], other: tuple[int, int], reach: int) -> bool:
    """Whether two of the runs of elements that begin at sums of multiples of two steps have an element in common. A run
    has `reach` elements after its first, and each step comes with its extent."""
    (step, few), (across, many) = sorted((one, other), key=lambda dimension: dimension[1])
    if min(step, across) <= reach:
        return True
    apart = step * np.arange(1, few)
    nearest = apart // across
    return any(bool(((abs(apart - n * across) <= reach) & (n < many)).any()) for n in (nearest, nearest + 1))


def element_bytes(arrays: Iterable[Array]) -> int:
    """What the elements of all arrays take, without the padding between them; what is read and written counts twice."""
    return sum(array.dtype.nbytes(array.size) * (1 + array.inout) for array in arrays)
