"""Sums of which terms are missing or counted twice."""

from __future__ import annotations

import dataclasses

import numpy as np

from .evidence import MOSTLY, Evidence, Values, agree
from .places import ranges

CHANGED = 16.0
"""An answer counts as changed where it is so many times its bound away."""

MOST_PROBES = 16
"""Launches spent on finding out which terms of a sum are missing."""

WARP, WIDTHS = 32, (1, 2, 4, 8)
"""Lanes of a warp, and how many neighbouring elements a lane may take at once."""


def half_warp(e: Evidence) -> str | None:
    """A reduction over half a warp: what the upper lanes take does not count.

    Input elements of the upper half of lanes are changed. A right answer changes with them, by much more than may be
    rounding; one that stays what it is does not depend on them.
    """
    if e.bad.mean() < MOSTLY:
        return None
    inputs = {n: v for n, v in e.case.inputs.items() if e.case.arrays[n].dtype.is_float and v.ndim > 1}
    name = max(inputs, key=lambda n: inputs[n].size, default=None)
    if name is None or inputs[name].shape[-1] < WARP:
        return None
    values = inputs[name]
    for width in WIDTHS:
        upper = np.arange(values.shape[-1]) // width % WARP >= WARP // 2
        if not upper.any():
            break
        other = e.with_inputs(**{name: np.where(upper, -3 * values.astype(np.float32), values).astype(values.dtype)})
        asked = np.broadcast_to(~upper if e.got.shape[1] == len(upper) else True, e.got.shape)
        with np.errstate(invalid="ignore"):
            change = np.abs(other.expected[e.name].reshape(e.got.shape) - e.expected)
            asked = asked & (change > CHANGED * e.bound)
            if asked.mean() <= MOSTLY / 4:
                continue
            same = np.abs(e.output(other) - e.got) <= e.bound
        if same[asked].all():
            return (
                f"half of every warp is left out: elements {WARP // 2 * width} to {WARP * width - 1} of every "
                f"{WARP * width} along the rows of {name} do not count; look for a shuffle over half a warp, which "
                "begins with distance 8 or has a width of 16"
            )
    return None


def terms(e: Evidence) -> str | None:
    """Which terms are dropped or counted twice, of an operation that can be probed for each."""
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
            seen[i, chosen] = e.output(dataclasses.replace(e.case, inputs=problem.probe(order))).reshape(-1)[at]
    return _named(seen, terms)


def _named(seen: Values, terms: int) -> str | None:
    for value, what in ((0.0, "are dropped"), (2.0, "are counted twice")):
        which = np.flatnonzero((seen == value).all(axis=0))
        if 0 < len(which) < terms:
            return f"terms of the sum {what}: {ranges(which)} of k = 0 to {terms - 1}"
    return None


def known_fault(e: Evidence) -> str | None:
    """What one of the operation's negative controls is."""
    for name, answer in e.case.problem.negative_controls(e.case.inputs, e.case.expected).items():
        candidate = answer[e.name].reshape(e.got.shape)
        if not agree(e.expected, candidate, e.bound) and agree(e.got, candidate, e.bound):
            return f"as a kernel with this fault would answer: {name}"
    return None
