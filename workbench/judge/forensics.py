"""What does a wrong result look like? All zeros, transposed, a tail or a tile missing, terms of the sum dropped ...

A diagnosis is a guess from the values and from a few more launches; what is certain is only that the answer is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.problem import Tier
from ..model.results import CELL_CODES, WrongCells
from .case import Case
from .comparison import errors

Values = np.ndarray[Any, Any]
Solve = Callable[[Case], Arrays]

MAP_ROWS, MAP_COLUMNS = 16, 48
MOST_CELLS = 128
"""Cells along each axis of what a picture is made from."""

MOST_PROBES = 16
"""Launches spent on finding out which terms of a sum are missing."""

MOSTLY = 0.5
"""Share of wrong elements from which a region counts as wrong: small integers are right by chance now and then."""


@dataclass(frozen=True)
class Diagnosis:
    """What the wrong result looks like, and where its wrong elements are: a map, and cells for a picture."""

    looks_like: str
    map: str
    cells: WrongCells


@dataclass(frozen=True)
class Evidence:
    """An output seen as a matrix: what was got, what is right and within which bound, and which elements are wrong, or
    as they are where nothing has been written."""

    case: Case
    name: str
    array: Array
    got: Values
    expected: Values
    bound: Values
    bad: Values
    unwritten: Values
    solve: Solve

    @classmethod
    def of(cls, case: Case, name: str, after: Arrays, solve: Solve) -> Evidence:
        """The evidence for output `name` in the storage `after`; `solve` runs the stage on another case."""
        array = case.arrays[name]
        got, expected, bound = array.view(after[name]), case.expected[name], case.bound[name]
        bad = ~(errors(array, got, expected, bound, case.problem.tier) <= 1.0)
        shape = (-1, array.shape[-1])
        unwritten = array.dtype.unwritten(got).reshape(shape)
        got, expected, bound = (v.astype(np.float64).reshape(shape) for v in (got, expected, bound))
        return cls(case, name, array, got, expected, bound, bad.reshape(shape), unwritten, solve)

    @property
    def nouns(self) -> tuple[tuple[int, str], ...]:
        """What lies along each axis."""
        return ((0, "row"), (1, "column")) if len(self.array.shape) > 1 else ((1, "element"),)

    def output(self, case: Case) -> Values:
        """The output that the stage gives for another case of the same shape, as a matrix."""
        values = self.array.view(self.solve(case)[self.name]).astype(np.float64)
        return values.reshape(self.got.shape)


def diagnose(case: Case, name: str, after: Arrays, solve: Solve) -> Diagnosis:
    """Explain why output `name` of a case is wrong. `solve` may raise what the device raises."""
    evidence = Evidence.of(case, name, after, solve)
    found = next(filter(None, (look(evidence) for look in LOOKS)), None)
    return Diagnosis(found or _scattered(evidence), draw(evidence.bad), _wrong_cells(evidence))


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


def _wrong_cells(e: Evidence) -> WrongCells:
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


# ---------------------------------------------------------------------------------------- what it may look like


def _never_written(e: Evidence) -> str | None:
    held = "NaN" if np.isnan(e.got[e.bad]).any() else "what was there before"
    if e.unwritten.all():
        return f"never written: every element still holds {held}"
    if e.unwritten[e.bad].all():
        return f"partly not written: {held} is left {_place(e.bad) or 'in the wrong elements'}"
    return None


def _unstable(e: Evidence) -> str | None:
    again = e.output(e.case)
    if np.array_equal(again, e.got, equal_nan=True):
        return None
    return "it differs from run to run: a race, or memory that nobody wrote"


def _all_zeros(e: Evidence) -> str | None:
    return "all zeros: nothing that is computed reaches the output" if not e.got.any() else None


def _stale(e: Evidence) -> str | None:
    other = type(e.case).of(dataclasses.replace(e.case.problem, seed=e.case.problem.seed + 1))
    if np.array_equal(other.expected[e.name].reshape(e.got.shape), e.expected):
        return None
    if np.array_equal(e.output(other), e.got, equal_nan=True):
        return "stale: other inputs of the same shape give the same output"
    return None


def _transposed(e: Evidence) -> str | None:
    if min(e.got.shape) < 2 or e.got.size < 9:
        return None
    right, bound = (v.T.reshape(e.got.shape) for v in (e.expected, e.bound))
    if _agree(e.got, right, bound):
        return "transposed: rows and columns are swapped"
    return None


def _shifted(e: Evidence) -> str | None:
    for axis, noun in e.nouns:
        extent = e.got.shape[axis]
        if extent < 4:
            continue
        for by, where in ((1, "late"), (-1, "early")):
            here = np.arange(max(0, by), extent + min(0, by))
            there = here - by
            if _agree(e.got.take(here, axis), e.expected.take(there, axis), e.bound.take(there, axis)):
                return f"shifted by one {noun}: every element is one {noun} too {where}"
    return None


def _tail(e: Evidence) -> str | None:
    for axis, noun in e.nouns:
        wrong: Values = np.asarray(e.bad.any(axis=1 - axis))
        count = int(wrong.sum())
        at_the_end = 0 < count < len(wrong) and bool(wrong[-count:].all())
        if at_the_end and e.bad.take(np.flatnonzero(wrong), axis).mean() > MOSTLY:
            what = "are wrong" if np.nan_to_num(e.got[e.bad]).any() else "are missing"
            return f"the last {count} of {len(wrong)} {noun}s {what}"
    return None


def _terms_dropped(e: Evidence) -> str | None:
    problem = e.case.problem
    terms, cells = problem.terms, e.got.size
    batch = min(terms, cells)
    if terms < 2 or e.bad.mean() < 0.3 or 2 * -(-terms // batch) > MOST_PROBES:
        return None
    seen = np.full((2, terms), np.nan)
    for first in range(0, terms, batch):
        chosen = np.arange(first, min(first + batch, terms))
        for i, at in enumerate((np.arange(len(chosen)), cells - 1 - np.arange(len(chosen)))):
            order = np.full(cells, -1)
            order[at] = chosen
            probe = problem.probe(order)
            seen[i, chosen] = e.output(dataclasses.replace(e.case, inputs=probe)).reshape(-1)[at]
    for value, what in ((0.0, "are dropped"), (2.0, "are counted twice")):
        which = np.flatnonzero((seen == value).all(axis=0))
        if 0 < len(which) < terms:
            return f"terms of the sum {what}: {_ranges(which)} of k = 0 to {terms - 1}"
    return None


def _known_wrong_result(e: Evidence) -> str | None:
    for name, answer in e.case.problem.negative_controls(e.case.inputs, e.case.expected).items():
        candidate = answer[e.name].reshape(e.got.shape)
        if not _agree(e.expected, candidate, e.bound) and _agree(e.got, candidate, e.bound):
            return f"as a kernel with this fault would answer: {name}"
    return None


def _imprecise(e: Evidence) -> str | None:
    if e.case.problem.tier is Tier.EXACT or Tier.EXACT not in e.case.problem.tiers or not np.isfinite(e.got).all():
        return None
    spread = float(np.sqrt(np.mean(e.expected**2)))
    error = np.abs(e.got - e.expected)
    if error.max() > 0.05 * spread:
        return None
    exact = type(e.case).of(e.case.problem.with_tier(Tier.EXACT))
    right = exact.expected[e.name].astype(e.array.dtype.numpy).astype(np.float64).reshape(e.got.shape)
    if not np.array_equal(e.output(exact), right):
        return None
    return (
        "precision is lost: small integers come out right, real numbers with an error of "
        f"{float(np.sqrt(np.mean(error**2))) / spread:.1g} of their size; "
        "an accumulator or something in between is narrower than fp32"
    )


def _regions(e: Evidence) -> str | None:
    place = _place(e.bad)
    values = e.got[e.bad]
    what = "zeros stand" if not values.any() else "elements are wrong"
    return f"{what} {place}" if place else None


LOOKS: tuple[Callable[[Evidence], str | None], ...] = (
    _never_written,
    _all_zeros,
    _unstable,
    _stale,
    _transposed,
    _shifted,
    _tail,
    _terms_dropped,
    _known_wrong_result,
    _imprecise,
    _regions,
)


def _scattered(e: Evidence) -> str:
    return f"no pattern that is known: {e.bad.sum():,} of {e.bad.size:,} elements are wrong"


# ---------------------------------------------------------------------------------------- where it is wrong


def _agree(got: Values, right: Values, bound: Values) -> bool:
    """Whether all of `got` is within the bound of something that is not just zeros."""
    with np.errstate(invalid="ignore"):  # of infinities
        return bool(((got == right) | (np.abs(got - right) <= bound)).all()) and bool(right.any())


def _place(bad: Values) -> str:
    """Where the wrong elements lie, when they fill a rectangle or every so-manieth rows or columns; else nothing."""
    rows, columns = np.asarray(bad.any(axis=1)), np.asarray(bad.any(axis=0))
    if not bad.any() or bad[np.ix_(rows, columns)].mean() < MOSTLY:
        return ""
    if rows.all() and columns.all():
        return ""
    texts = [_along(wrong, noun) for wrong, noun in ((rows, "rows"), (columns, "columns"))]
    if not all(text is not None for text in texts):
        return ""
    place = "in " + ", ".join(text for text in texts if text)
    if _one_range(rows) and _one_range(columns):
        height, width = int(rows.sum()), int(columns.sum())
        if not rows.all() and not columns.all() and height * width > 1:
            place += f": one tile of {height} x {width}"
    else:
        place += ": the share of one warp or thread in every tile"
    return place


def _along(wrong: Values, noun: str) -> str | None:
    """The wrong rows or columns: nothing where all are, None where they follow no rule."""
    if wrong.all():
        return ""
    if _one_range(wrong):
        return f"{noun} {_ranges(np.flatnonzero(wrong))}"
    for period in range(2, len(wrong) // 2 + 1):
        if np.array_equal(wrong[period:], wrong[:-period]):
            return f"{noun} {_ranges(np.flatnonzero(wrong[:period]))} of every {period}"
    return None


def _one_range(wrong: Values) -> bool:
    where = np.flatnonzero(wrong)
    return bool(where[-1] - where[0] + 1 == len(where))


def _ranges(numbers: Values) -> str:
    """`0 to 3, 7` for 0, 1, 2, 3, 7."""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    texts = [f"{p[0]}" if len(p) == 1 else f"{p[0]} to {p[-1]}" for p in parts]
    return ", ".join(texts[:8]) + (" ..." if len(texts) > 8 else "")
