"""What is known of a wrong output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model.arrays import Array, Arrays
from ...model.errors import declared
from ..case import Case, errors

Values = np.ndarray[Any, Any]
Solve = Callable[[Case], Arrays]

MOSTLY = 0.5
"""Share of wrong elements from which a region counts as wrong: small integers are right by chance now and then."""


@dataclass(frozen=True)
class Evidence:
    """An output seen as a matrix: what was got, what is right and within which bound, and which elements are wrong, or
    as they are where nothing has been written. `after` is the storage of all arrays."""

    case: Case
    name: str
    array: Array
    got: Values
    expected: Values
    bound: Values
    bad: Values
    unwritten: Values
    after: Arrays
    solve: Solve

    @classmethod
    def of(cls, case: Case, name: str, after: Arrays, solve: Solve) -> Evidence:
        """The evidence for output `name` in the storage `after`; `solve` runs the stage on another case."""
        array = case.arrays[name]
        got, expected, bound = array.view(after[name]), case.expected[name], case.bound[name]
        bad = ~(errors(array, got, expected, bound, case.problem.tier) <= 1.0)
        shape = (-1, array.shape[-1])
        unwritten = case.unwritten(name, after, solve).reshape(shape)
        got, expected, bound = (v.astype(np.float64).reshape(shape) for v in (got, expected, bound))
        return cls(case, name, array, got, expected, bound, bad.reshape(shape), unwritten, after, solve)

    @property
    def nouns(self) -> tuple[tuple[int, str], ...]:
        """What lies along each axis."""
        return ((0, "row"), (1, "column")) if len(self.array.shape) > 1 else ((1, "element"),)

    def output(self, case: Case) -> Values:
        """The output that the stage gives for another case of the same shape, as a matrix."""
        values = self.array.view(self.solve(case)[self.name]).astype(np.float64)
        return values.reshape(self.got.shape)

    def with_inputs(self, **inputs: Values) -> Case:
        """The same case with some inputs replaced, solved by the reference; its bound is that of the problem's own.

        Raises BadOperation."""
        given = {**self.case.inputs, **inputs}
        with declared("reference of the operation, on other inputs than it draws,"):
            return dataclasses.replace(self.case, inputs=given, expected=self.case.problem.reference(given))


def agree(got: Values, right: Values, bound: Values) -> bool:
    """Whether all of `got` is within the bound of something that is not just zeros."""
    with np.errstate(invalid="ignore"):  # of infinities
        return bool(((got == right) | (np.abs(got - right) <= bound)).all()) and bool(right.any())
