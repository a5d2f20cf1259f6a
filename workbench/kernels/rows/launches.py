"""Launches of stages whose blocks take rows: a thread, a warp or a group of threads a row."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.launch import Argument, Launch, ceil_div
from . import groups
from .problem import RowProblem

WARP = 32


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


def rows_ahead(kernel: str, p: RowProblem, size: Mapping[str, int], args: tuple[Argument, ...]) -> Launch:
    """Clusters of BLOCKS blocks stay and take row after row, of which the next are fetched ahead."""
    return Launch(
        kernel,
        (p.rows * size["BLOCKS"], 1, 1),
        (size["THREADS"], 1, 1),
        args,
        shared_bytes=groups.bytes_ahead(p, size),
        cluster=(size["BLOCKS"], 1, 1),
        persistent=True,
    )
