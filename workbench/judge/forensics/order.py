"""Right values in wrong places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .evidence import Evidence, Values, agree

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
