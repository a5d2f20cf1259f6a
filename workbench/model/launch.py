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
    """One kernel launch. `kernel` is the `extern "C"` entry point. `grid` counts blocks, `block` counts threads, and
    `cluster` counts blocks.

    `cluster` is the size for which the kernel is compiled, with `__cluster_dims__`.

    A `persistent` kernel gives the right result for any number of blocks along x (of clusters, if it has clusters).
    `grid` is the number of blocks with which each does one piece of the work. The device launches no more blocks than
    it can hold at once, and no more than the same number of rounds needs.

    A `programmatic` launch may begin when every block of the launch before it in its plan has triggered or ended
    (`cudaLaunchAttributeProgrammaticStreamSerialization`). Its kernel sees what that one wrote only behind
    `griddepcontrol.wait`. The first launch of a plan cannot be one."""

    kernel: str
    grid: Dim3
    block: Dim3
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: Dim3 = (1, 1, 1)
    persistent: bool = False
    programmatic: bool = False

    def beyond_limits(self) -> str | None:
        """Why no device takes a grid of this size, or None where it is not too large."""
        for axis, blocks, most in zip("xyz", self.grid, MOST_BLOCKS, strict=True):
            if blocks > most:
                return f"the grid of {self.kernel} has {blocks:,} blocks in {axis}; a device takes {most:,}"
        return None

    def persistent_blocks(self, resident: int) -> int:
        """The number of blocks along x that a device launches if it holds `resident` blocks at once: whole clusters."""
        most = max(self.cluster[0], resident - resident % self.cluster[0])
        return min(self.grid[0], most) if self.persistent else self.grid[0]

    def even_blocks(self, resident: int) -> int:
        """The smallest number of blocks that needs no more rounds; each block then does the same amount of work."""
        blocks = self.persistent_blocks(resident)
        each = ceil_div(self.grid[0], ceil_div(self.grid[0], blocks))
        return ceil_div(each, self.cluster[0]) * self.cluster[0]


@dataclass(frozen=True)
class Plan:
    """The launches of a stage for one problem, in stream order, and the scratch arrays that pass data between them.

    Even a slow stage should end within `expected_seconds`; the deadline is a multiple of it. `alignments` names arrays
    whose address is a multiple of these bytes, and below 256 of no larger power of two. All other arrays start at a
    multiple of 256 bytes. `aliases` names inputs that begin with the same bytes as another one, and may be the same
    memory."""

    launches: tuple[Launch, ...]
    scratch: Mapping[str, Array] = field(default_factory=dict)
    expected_seconds: float = 0.0
    alignments: Mapping[str, int] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def alignment(self, name: str, array: Array) -> int:
        """An array starts at a multiple of this number of bytes, which is at least the size of an element."""
        return max(self.alignments.get(name, BEST_ALIGNMENT), array.dtype.itemsize)


def ceil_div(a: int, b: int) -> int:
    """The number of tiles of size `b` that cover `a`."""
    return -(-a // b)
