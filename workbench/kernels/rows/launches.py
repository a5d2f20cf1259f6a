"""Launches of stages whose blocks take rows: a thread, a warp or a group of threads a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ...model.launch import Argument, Launch, ceil_div
from . import groups
from .problem import RowProblem

WARP = 32


class PartsLaunch(Protocol):
    """A launch with a block for each part of every row."""

    def __call__(self, kernel: str, args: tuple[Argument, ...], after: tuple[Argument, ...] = ()) -> Launch: ...


def thread_rows(kernel: str, p: RowProblem, size: Mapping[str, int], args: tuple[Argument, ...]) -> Launch:
    """A thread takes a row."""
    return Launch(kernel, (ceil_div(p.rows, size["THREADS"]), 1, 1), (size["THREADS"], 1, 1), args)


def warp_rows(kernel: str, p: RowProblem, size: Mapping[str, int], args: tuple[Argument, ...]) -> Launch:
    """A warp takes a row."""
    return Launch(kernel, (ceil_div(p.rows, size["THREADS"] // WARP), 1, 1), (size["THREADS"], 1, 1), args)


def held_rows(kernel: str, p: RowProblem, size: Mapping[str, int], args: tuple[Argument, ...]) -> Launch:
    """GROUP threads of each of BLOCKS blocks, which are a cluster, take a row."""
    blocks = ceil_div(p.rows, size["THREADS"] // size["GROUP"]) * size["BLOCKS"]
    return Launch(kernel, (blocks, 1, 1), (size["THREADS"], 1, 1), args, cluster=(size["BLOCKS"], 1, 1))


def on_parts(p: RowProblem, size: Mapping[str, int]) -> tuple[int, PartsLaunch]:
    """Into how many parts a row is split, and what launches a kernel with a block for each part of every row. The
    kernel gets that number and the vectors of a part after its `args`, and before what else it is given."""
    count, each = groups.parts(p, size)
    split = np.int32(count), np.int32(each)

    def launch(kernel: str, args: tuple[Argument, ...], after: tuple[Argument, ...] = ()) -> Launch:
        return Launch(kernel, (p.rows * count, 1, 1), (size["THREADS"], 1, 1), (*args, *split, *after))

    return count, launch
