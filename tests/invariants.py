"""What an invariant has to tell apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.harness import Case
from workbench.model.arrays import Arrays
from workbench.model.problem import Problem


def holds_of_the_reference_alone(problem: Problem, name: str, spoil: Callable[[Any, Arrays], Arrays]) -> None:
    """Asserts that an invariant of the problem holds of the reference's answers, and not of those that `spoil` makes of
    them and of the inputs that they answer."""
    case = Case.of(problem)
    (invariant,) = (i for i in problem.invariants() if i.name == name)
    related = invariant.related(case.inputs)
    first, other = case.expected, problem.reference(related)
    assert invariant.holds(first, other, case.bound)
    assert not invariant.holds(spoil(first, case.inputs), spoil(other, related), case.bound)
