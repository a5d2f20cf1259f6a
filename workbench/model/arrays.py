"""Arrays in device memory: their shape, how it lies in memory, and what is in it before anybody has written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .dtypes import DType

Arrays = dict[str, np.ndarray[Any, Any]]

BEST_ALIGNMENT = 256
"""Bytes at a multiple of which fresh memory of a device starts."""


@dataclass(frozen=True)
class Array:
    """An array in device memory: logical `shape`, its rows `leading` elements apart (the leading dimension).

    The storage ends with the last element of the last row: nothing behind it may be touched. A plan finds scratch that
    is `zero` all zero, and leaves it so: then nobody has to clear it between two launches.
    """

    shape: tuple[int, ...]
    dtype: DType
    leading: int | None = None
    output: bool = False
    zero: bool = False

    def __post_init__(self) -> None:
        if self.leading is not None and self.leading < self.shape[-1]:
            raise ValueError(f"leading dimension {self.leading} is smaller than a row of {self.shape[-1]} elements")

    @property
    def row_stride(self) -> int:
        """Elements from one row to the next."""
        return self.shape[-1] if self.leading is None else self.leading

    @property
    def rows(self) -> int:
        """Rows of the array seen as a matrix (all dimensions but the last, flattened)."""
        return prod(self.shape[:-1])

    @property
    def storage_elements(self) -> int:
        """Elements from the first to the last, the padding between rows included."""
        return (self.rows - 1) * self.row_stride + self.shape[-1]

    @property
    def nbytes(self) -> int:
        """Bytes of the storage."""
        return self.storage_elements * self.dtype.itemsize

    def view(self, storage: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The logical array, shape `self.shape`, as a view of its one-dimensional storage."""
        if storage.shape != (self.storage_elements,):
            raise ValueError(f"storage has shape {storage.shape}, not ({self.storage_elements},)")
        size = storage.itemsize  # not the dtype's: a mask over the storage can be viewed as well
        rows = np.lib.stride_tricks.as_strided(storage, (self.rows, self.shape[-1]), (self.row_stride * size, size))
        return rows.reshape(self.shape)

    def poisoned(self) -> np.ndarray[Any, Any]:
        """Fresh storage in which nothing has been written: every element is NaN, or the filler of an integer type;
        zero where it has to be."""
        return np.full(self.nbytes, 0 if self.zero else self.dtype.filler, np.uint8).view(self.dtype.numpy)

    def pack(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Storage that holds `values` (shape `self.shape`), with the padding between rows unwritten."""
        storage = self.poisoned()
        self.view(storage)[...] = values
        return storage


def element_bytes(arrays: Iterable[Array]) -> int:
    """What the elements of all arrays take, without the padding between rows."""
    return sum(prod(array.shape) * array.dtype.itemsize for array in arrays)
