"""What an operation is told of a caller's array: everything but the values and the address."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ArraySpec:
    """Shape, strides in bytes, dtype and device number of an array. Views are those that NumPy, too, makes without a
    copy; they remember their `source`: the position of the argument, or the name of the output.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int = 0
    source: int | str = ""

    @classmethod
    def whole(cls, shape: tuple[int, ...], dtype: np.dtype[Any], device: int = 0, source: int | str = "") -> ArraySpec:
        """An array in row-major order, without gaps."""
        return cls(shape, row_major(shape, dtype.itemsize), dtype, device, source)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one, for strides that are not negative."""
        return sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)) + self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether it is in row-major order without gaps; the stride of a dimension of one element does not matter."""
        whole = row_major(self.shape, self.itemsize)
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, whole, strict=True))

    @property
    def T(self) -> ArraySpec:  # noqa: N802  # as in NumPy
        return self.transpose()

    def transpose(self, *axes: int) -> ArraySpec:
        """The dimensions in this order, without any in the reverse one."""
        order = axes or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"axes {axes} are not a permutation of {self.ndim} dimensions")
        return replace(self, shape=tuple(self.shape[i] for i in order), strides=tuple(self.strides[i] for i in order))

    def reshape(self, *shape: Any) -> ArraySpec:
        """The elements in another shape, in which one extent may be -1. Raises ValueError for an array with gaps, and
        for a shape of another size."""
        given = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if given == self.shape:
            return self
        known = math.prod(n for n in given if n != -1)
        wanted = tuple(self.size // known if n == -1 and known else n for n in given)
        if math.prod(wanted) != self.size or given.count(-1) > 1:
            raise ValueError(f"an array of shape {self.shape} cannot have the shape {given}")
        if not self.contiguous:
            raise ValueError(f"an array of shape {self.shape} and strides {self.strides} is not without gaps")
        return replace(self, shape=wanted, strides=row_major(wanted, self.itemsize))


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in row-major order, without gaps."""
    steps = [itemsize] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        steps[place] = steps[place + 1] * shape[place + 1]
    return tuple(steps)
