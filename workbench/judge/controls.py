"""Negative controls: would the comparison notice a broken kernel?"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..model.declared import declared
from ..model.distribution import Distribution
from ..model.launch import ceil_div
from ..model.problem import Problem
from . import soundness
from .case import Case

EXTENT, MOST_FLOPS = 16, 2**25
"""Extents below the first are enlarged (a negative control of a tiny problem may be right by chance); no problem with
more work than the second is taken."""


def small(problem: Problem) -> bool:
    """Whether negative controls are tried on the problem: it is no large one. Raises BadOperation."""
    return telling(problem).cost.flops <= MOST_FLOPS


def weakness(problem: Problem) -> tuple[str, int]:
    """Why the comparison would not notice a broken kernel, or nothing where it would; and how many of them it rejected.

    Raises BadOperation.
    """
    asked = telling(problem)
    case = Case.of(asked)
    soundness.check(case)
    rejected, accepted = case.negative_controls()
    if accepted:
        message = (
            f"the comparison accepts the negative control `{'`, `'.join(accepted)}` of {asked}; "
            "the bound of the operation has to be so tight that it is rejected"
        )
    elif not rejected:
        message = (
            "negative_controls of the operation has none that differs from the right one; "
            "it has to give some, so that the comparison can be tried on them"
        )
    else:
        message = ""
    return message, rejected


def telling(problem: Problem) -> Problem:
    """The problem with ordinary inputs, its extents enlarged until its negative controls are certain to be wrong: to
    multiples of what they were, so that what divides one, as groups of heads do, still does."""
    enlarged: dict[str, Any] = {}
    for name in problem.extents:
        extent = getattr(problem, name)
        enlarged[name] = ceil_div(EXTENT, extent) * extent if extent < EXTENT else extent
    with declared(f"{problem} with extents of {EXTENT} at least, on which negative controls are tried,"):
        return dataclasses.replace(problem, distribution=Distribution.NORMAL, **enlarged)
