"""What does a wrong result look like? All zeros, transposed, a tail or a tile missing, terms of the sum dropped ...

A diagnosis is a guess from the values and from a few more launches; what is certain is only that the answer is wrong.
There is a module for each kind of thing that is looked for, and `LOOKS` is the order in which that is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...model.arrays import Arrays
from ...model.results import WrongCells
from ..case import Case
from . import memory, numbers, order, places, precision, scale, sums
from .evidence import Evidence, Solve
from .maps import cells, draw, wrong_cells

__all__ = ["LOOKS", "Diagnosis", "Evidence", "Solve", "cells", "diagnose", "draw"]


@dataclass(frozen=True)
class Diagnosis:
    """What the wrong result looks like, and where its wrong elements are: a map, and cells for a picture."""

    looks_like: str
    map: str
    cells: WrongCells


LOOKS: tuple[Callable[[Evidence], str | None], ...] = (
    memory.right_this_time,
    memory.never_written,
    numbers.computed_nan,
    numbers.gaps_read,
    numbers.overflow,
    memory.all_zeros,
    memory.unstable,
    memory.stale,
    order.outputs_swapped,
    order.transposed,
    order.shifted,
    places.tail,
    order.permuted,
    sums.half_warp,
    sums.terms,
    scale.base_two,
    precision.narrow,
    sums.known_fault,
    precision.rounding,
    scale.factor,
    places.region,
)
"""What is looked for, in this order: the first that is found is the diagnosis."""


def diagnose(case: Case, name: str, after: Arrays, solve: Solve) -> Diagnosis:
    """Explain why output `name` of a case is wrong. `solve` may raise what the device raises."""
    evidence = Evidence.of(case, name, after, solve)
    found = next(filter(None, (look(evidence) for look in LOOKS)), None)
    return Diagnosis(found or places.scattered(evidence), draw(evidence.bad), wrong_cells(evidence))
