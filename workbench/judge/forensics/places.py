"""Where the wrong elements lie: a tail, a tile, the share of a warp."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ...model.results import CELL_CODES, WrongCells
from .evidence import MOSTLY, Evidence, Values, agree


def tail(e: Evidence) -> str | None:
    """The last rows or columns."""
    for axis, noun in e.nouns:
        wrong: Values = np.asarray(e.bad.any(axis=1 - axis))
        count = int(wrong.sum())
        at_the_end = 0 < count < len(wrong) and bool(wrong[-count:].all())
        if at_the_end and e.bad.take(np.flatnonzero(wrong), axis).mean() > MOSTLY:
            what = "are wrong" if np.nan_to_num(e.got[e.bad]).any() else "are missing"
            return f"the last {count} of {len(wrong)} {noun}s {what}"
    return None


def region(e: Evidence) -> str | None:
    """A rectangle, or a part of every tile."""
    where = place(e.bad)
    values = e.got[e.bad]
    what = "zeros stand" if not values.any() else "elements are wrong"
    return f"{what} {where}" if where else None


def scattered(e: Evidence) -> str:
    """What is said where nothing is found."""
    return f"no pattern that is known: {e.bad.sum():,} of {e.bad.size:,} elements are wrong"


def place(bad: Values) -> str:
    """Where the wrong elements lie, when they fill a rectangle or every so-manieth rows or columns; else nothing."""
    rows, columns = np.asarray(bad.any(axis=1)), np.asarray(bad.any(axis=0))
    if not bad.any() or bad[np.ix_(rows, columns)].mean() < MOSTLY:
        return ""
    if rows.all() and columns.all():
        return ""
    nouns = ("row", "column") if len(rows) > 1 else ("row", "element")
    texts = [_along(wrong, noun) for wrong, noun in zip((rows, columns), nouns, strict=True)]
    if not all(text is not None for text in texts):
        return ""
    found = "in " + ", ".join(text for text in texts if text)
    if _one_range(rows) and _one_range(columns):
        height, width = int(rows.sum()), int(columns.sum())
        if not rows.all() and not columns.all() and height * width > 1:
            found += f": one tile of {height} x {width}"
    else:
        found += ": the share of one warp or thread in every tile"
    return found


def _along(wrong: Values, noun: str) -> str | None:
    """The wrong rows or columns: nothing where all are, None where they follow no rule."""
    if wrong.all():
        return ""
    if _one_range(wrong):
        which = np.flatnonzero(wrong)
        return f"{noun}{'s' if len(which) > 1 else ''} {ranges(which)}"
    for period in range(2, len(wrong) // 2 + 1):
        if np.array_equal(wrong[period:], wrong[:-period]):
            return f"{noun}s {ranges(np.flatnonzero(wrong[:period]))} of every {period}"
    return None


def _one_range(wrong: Values) -> bool:
    where = np.flatnonzero(wrong)
    return bool(where[-1] - where[0] + 1 == len(where))


def ranges(numbers: Values) -> str:
    """`0 to 3, 7` for 0, 1, 2, 3, 7."""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    texts = [f"{p[0]}" if len(p) == 1 else f"{p[0]} to {p[-1]}" for p in parts]
    return ", ".join(texts[:8]) + (" ..." if len(texts) > 8 else "")


# ----------------------------------------------------- answers that nobody wrote, or that are kept from another launch


def never_written(e: Evidence) -> str | None:
    """Nothing but what was in memory before."""
    held = "NaN" if np.isnan(e.got[e.bad]).any() else "what was there before"
    if e.unwritten.all():
        return f"never written: every element still holds {held}"
    if e.unwritten[e.bad].all():
        return f"partly not written: {held} is left {place(e.bad) or 'in the wrong elements'}"
    return None


def all_zeros(e: Evidence) -> str | None:
    """Zeros everywhere."""
    return "all zeros: nothing that is computed reaches the output" if not e.got.any() else None


UNSTABLE = "it differs from run to run: a race, or memory that was never written"


def right_this_time(e: Evidence) -> str | None:
    """Wrong before, and now right."""
    return None if e.bad.any() else UNSTABLE


def unstable(e: Evidence) -> str | None:
    """Another answer to the same inputs."""
    return None if np.array_equal(e.output(e.case), e.got, equal_nan=True) else UNSTABLE


def stale(e: Evidence) -> str | None:
    """The same answer to other inputs."""
    other = type(e.case).of(dataclasses.replace(e.case.problem, seed=e.case.problem.seed + 1))
    if np.array_equal(other.expected[e.name].reshape(e.got.shape), e.expected):
        return None
    if np.array_equal(e.output(other), e.got, equal_nan=True):
        return "it does not depend on the inputs: others of the same shape give the same output"
    return None


# ------------------------- where the wrong elements of a matrix are: as a map of characters, and as cells of a picture


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


# ---------------------------------------------------------------------------------------- right values in wrong places


TILES = (128, 64, 32, 16, 8, 4, 2, 1)
"""Extents of tiles that are looked for, the largest first."""

MOST_TILES = 128
"""Tiles that are compared with one another: each with each."""

SAMPLED = 16
"""Elements of a tile that have to agree before all are compared."""

NAMED = 4
"""Tiles of a permutation that are named."""


def outputs_swapped(e: Evidence) -> str | None:
    """What belongs into another output."""
    for other, array in e.case.arrays.items():
        if other == e.name or not array.output or array.shape != e.array.shape:
            continue
        right, bound = (v[other].astype(np.float64).reshape(e.got.shape) for v in (e.case.expected, e.case.bound))
        if not agree(e.got, right, np.maximum(bound, e.bound)):
            continue
        theirs = array.view(e.after[other]).astype(np.float64).reshape(e.got.shape)
        if agree(theirs, e.expected, np.maximum(bound, e.bound)):
            return f"outputs swapped: {e.name} holds what belongs into {other}, and {other} what belongs into {e.name}"
        return f"the wrong output: {e.name} holds what belongs into {other}"
    return None


def transposed(e: Evidence) -> str | None:
    """Rows for columns."""
    if min(e.got.shape) < 2 or e.got.size < 9:
        return None
    right, bound = (v.T.reshape(e.got.shape) for v in (e.expected, e.bound))
    if agree(e.got, right, bound):
        return "transposed: rows and columns are swapped"
    return None


def shifted(e: Evidence) -> str | None:
    """Everything one place further."""
    for axis, noun in e.nouns:
        extent = e.got.shape[axis]
        if extent < 4:
            continue
        for by, where in ((1, "late"), (-1, "early")):
            here = np.arange(max(0, by), extent + min(0, by))
            there = here - by
            if agree(e.got.take(here, axis), e.expected.take(there, axis), e.bound.take(there, axis)):
                return f"shifted by one {noun}: every element is one {noun} too {where}"
    return None


def permuted(e: Evidence) -> str | None:
    """Tiles, or slices along an outer axis (heads, batches), in each other's place."""
    for noun, tiles in _divisions(e):
        places = _places(*tiles)
        if places is None or all(i == j for i, j in enumerate(places)):
            continue
        moved = [f"{i} holds what belongs into {j}" for i, j in enumerate(places) if i != j]
        more = f" and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
        return f"permuted: {noun} are in each other's place: {', '.join(moved[:NAMED])}{more}"
    return None


def _divisions(e: Evidence) -> Iterator[tuple[str, list[list[Values]]]]:
    """The output cut up: what the pieces are, and those of what was got, of what is right and of its bound."""
    shape, three = e.array.shape, (e.got, e.expected, e.bound)
    for axis in range(len(shape) - 2):
        if 1 < shape[axis] <= MOST_TILES:
            yield (
                f"the slices along axis {axis} (of {shape[axis]}: heads, batches)",
                [list(np.moveaxis(v.reshape(shape), axis, 0)) for v in three],
            )
    for tile in TILES:
        for axis, noun in e.nouns:
            if 1 < (count := e.got.shape[axis] // tile) <= MOST_TILES and tile * count == e.got.shape[axis]:
                yield f"tiles of {tile} {noun}{'s' if tile > 1 else ''}", [np.split(v, count, axis) for v in three]
    for tile in TILES[:-2]:
        counts = [extent // tile for extent in e.got.shape]
        if min(counts) > 1 and np.prod(counts) <= MOST_TILES and not any(n % tile for n in e.got.shape):
            cut = [[t for row in np.split(v, counts[0]) for t in np.split(row, counts[1], 1)] for v in three]
            yield f"tiles of {tile} x {tile}, counted along rows,", cut


def _places(got: Sequence[Values], right: Sequence[Values], bound: Sequence[Values]) -> list[int] | None:
    """Where each piece belongs, every place taken once; None where one belongs nowhere."""
    size = got[0].size
    sample = np.unique(np.linspace(0, size - 1, min(size, SAMPLED)).astype(int))
    seen, should, within = (np.array([piece.reshape(-1)[sample] for piece in pieces]) for pieces in (got, right, bound))
    with np.errstate(invalid="ignore"):
        near = (np.abs(seen[:, None] - should[None]) <= within[None]).all(axis=-1)
    found: list[int] = []
    for i in range(len(got)):
        mine = sorted(np.flatnonzero(near[i]).tolist(), key=lambda j: j != i)
        fits = (j for j in mine if j not in found and agree(got[i], right[j], bound[j]))
        if (belongs := next(fits, None)) is None:
            return None
        found.append(belongs)
    return found
