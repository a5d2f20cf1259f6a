"""Where the wrong elements of a matrix are: as a map of characters, and as cells of a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...model.results import CELL_CODES, WrongCells
from .evidence import Evidence, Values

MAP_ROWS, MAP_COLUMNS = 16, 48
MOST_CELLS = 128
"""Cells along each axis of what a picture is made from."""


def draw(bad: Values) -> str:
    """A map of a matrix of at most 16 x 48 characters: `#` where an element is wrong, `.` where all are right."""
    rows, columns = (min(n, most) for n, most in zip(bad.shape, (MAP_ROWS, MAP_COLUMNS), strict=True))
    row_of, column_of = (np.arange(n) * cells // n for n, cells in zip(bad.shape, (rows, columns), strict=True))
    cells = np.zeros((rows, columns), bool)
    wrong = np.nonzero(bad)
    cells[row_of[wrong[0]], column_of[wrong[1]]] = True
    return "\n".join("".join("#" if cell else "." for cell in row) for row in cells)


def cells(bad: Values, unwritten: Values, size: Sequence[int]) -> list[str]:
    """The cells of a matrix as `WrongCells` has them, from two masks; `size` is that of a cell, in rows and columns."""
    starts = [np.arange(0, extent, step) for extent, step in zip(bad.shape, size, strict=True)]
    heights, widths = (np.diff(s, append=extent) for s, extent in zip(starts, bad.shape, strict=True))
    wrong, missing = (
        np.add.reduceat(np.add.reduceat(mask, starts[0], axis=0, dtype=np.int64), starts[1], axis=1)
        for mask in (bad, bad & unwritten)
    )
    ninths = -(-9 * wrong // np.outer(heights, widths))
    return ["".join(row) for row in np.array(list(CELL_CODES))[ninths + 9 * (missing > 0)]]


def wrong_cells(e: Evidence) -> WrongCells:
    """Powers of two are the sizes of cells, so that the edges of tiles are edges of cells too."""
    size = [1 << (-(-extent // MOST_CELLS) - 1).bit_length() for extent in e.bad.shape]
    return WrongCells(
        problem=str(e.case.problem),
        output=e.name,
        shape=list(e.array.shape),
        cell=size,
        wrong_count=int(e.bad.sum()),
        unwritten_count=int((e.bad & e.unwritten).sum()),
        cells=cells(e.bad, e.unwritten, size),
    )
