"""What does a wrong result look like? All zeros, transposed, a tail or a tile missing, terms of the sum dropped ...

A diagnosis is a guess from the values and from a few more launches; what is certain is only that the answer is wrong.
`places` looks at where the wrong elements are, `numbers` at their values; `LOOKS` is the order in which that is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...model.arrays import Arrays
from ...model.results import WrongCells
from ..case import Case
from . import numbers, places
from .evidence import Evidence, Solve
from .places import cells, draw, wrong_cells

__all__ = ["LOOKS", "Diagnosis", "Evidence", "Solve", "cells", "diagnose", "draw"]


@dataclass(frozen=True)
class Diagnosis:
    """What the wrong result looks like, and where its wrong elements are: a map, and cells for a picture."""

    looks_like: str
    map: str
    cells: WrongCells


LOOKS: tuple[Callable[[Evidence], str | None], ...] = (
    places.right_this_time,
    places.never_written,
    numbers.computed_nan,
    numbers.gaps_read,
    numbers.overflow,
    places.all_zeros,
    places.unstable,
    places.stale,
    places.outputs_swapped,
    places.transposed,
    places.shifted,
    places.tail,
    places.permuted,
    numbers.half_warp,
    numbers.terms,
    numbers.base_two,
    numbers.narrow,
    numbers.known_fault,
    numbers.rounding,
    numbers.factor,
    places.region,
)
"""What is looked for, in this order: the first that is found is the diagnosis."""


def diagnose(case: Case, name: str, after: Arrays, solve: Solve) -> Diagnosis:
    """Explain why output `name` of a case is wrong. `solve` may raise what the device raises."""
    evidence = Evidence.of(case, name, after, solve)
    found = next(filter(None, (look(evidence) for look in LOOKS)), None)
    return Diagnosis(found or places.scattered(evidence), draw(evidence.bad), wrong_cells(evidence))
