"""Where the wrong elements lie: a tail, a tile, the share of a warp."""

from __future__ import annotations

import numpy as np

from .evidence import MOSTLY, Evidence, Values


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
