"""What a stage asks a device to run: a plan of launches over named arrays. Knows neither operations nor devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .arrays import BEST_ALIGNMENT, Array
from .tensor_map import Im2col as Im2col
from .tensor_map import TensorMap as TensorMap

Dim3 = tuple[int, int, int]

MOST_BLOCKS: Dim3 = (2**31 - 1, 65_535, 65_535)
"""Blocks that a grid may have along x, y and z, on every device that there is."""


Argument = str | np.generic | TensorMap
"""A kernel argument: the name of an array (its pointer is passed), a NumPy scalar, or a tensor map passed by value."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `kernel` is the `extern "C"` entry point; sizes in blocks, threads, bytes and blocks.

    `cluster` is what the kernel is compiled for, with `__cluster_dims__`.

    A `persistent` kernel is right for any number of blocks along x, in clusters for any number of those, and the more
    of them the grid has, the less each has to do: the device launches no more than it can hold at once, and of these
    no more than its rounds of work need.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: Dim3 = (1, 1, 1)
    persistent: bool = False

    def beyond_limits(self) -> str | None:
        """Why no device takes a grid of this size, or None where it is not too large."""
        for axis, blocks, most in zip("xyz", self.grid, MOST_BLOCKS, strict=True):
            if blocks > most:
                return f"the grid of {self.kernel} has {blocks:,} blocks in {axis}; a device takes {most:,}"
        return None

    def persistent_blocks(self, resident: int) -> int:
        """How many blocks along x a device launches that holds `resident` of them at once: whole clusters."""
        most = max(self.cluster[0], resident - resident % self.cluster[0])
        return min(self.grid[0], most) if self.persistent else self.grid[0]

    def even_blocks(self, resident: int) -> int:
        """How many of them it takes for as few rounds, in which each then works on as many items as the others."""
        blocks = self.persistent_blocks(resident)
        each = ceil_div(self.grid[0], ceil_div(self.grid[0], blocks))
        return ceil_div(each, self.cluster[0]) * self.cluster[0]


@dataclass(frozen=True)
class Plan:
    """The launches of a stage for one problem, in stream order, and the scratch arrays they hand data over in.

    Even a slow stage is expected to be done after `expected_seconds`; a multiple of it is the deadline. `alignments`
    has the bytes of which an array's address is a multiple, and of no more; what it does not name starts at a multiple
    of 256 bytes.
    """

    launches: tuple[Launch, ...]
    scratch: Mapping[str, Array] = field(default_factory=dict)
    expected_seconds: float = 0.0
    alignments: Mapping[str, int] = field(default_factory=dict)

    def alignment(self, name: str, array: Array) -> int:
        """The bytes at a multiple of which an array starts; never less than an element has."""
        return max(self.alignments.get(name, BEST_ALIGNMENT), array.dtype.itemsize)


def ceil_div(a: int, b: int) -> int:
    """The number of tiles of size `b` that cover `a`."""
    return -(-a // b)
