"""Parts of a large problem, drawn at random and solved by NumPy: what an answer, or a reference, is judged by."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..model.arrays import Array, Arrays
from ..model.parts import Part
from ..model.problem import Problem, Tier
from ..model.results import WrongElement
from .case import Comparison, bound_of, compare
from .comparative import Worst, allowed, rows_of, worst_of_all

STRATUM, ALONE = 64, 16
"""Of so many neighbouring places one is drawn: a tile of a launch has as many rows. Where nothing else judges the
answer, one of fewer."""

Fetch = Callable[[Part], Arrays]
"""The inputs, or the outputs, of a part on the host."""


@dataclass(frozen=True)
class Solved:
    """A part with its float64 reference and error bound."""

    part: Part
    expected: Arrays
    bound: Arrays


@dataclass(frozen=True)
class Drawn:
    """Drawn parts of a problem, solved by NumPy. `worst` is what the model of the comparative tier errs by there."""

    problem: Problem
    solved: Sequence[Solved]
    worst: Worst

    @classmethod
    def of(cls, problem: Problem, parts: Sequence[Part], inputs: Fetch) -> Drawn:
        """Solve parts by the reference, several at once. Raises BadOperation."""
        given = [inputs(part) for part in parts]
        several, cores = len(parts) > 4, max(1, (os.cpu_count() or 1) - 2)  # two are left to who launches

        def expected(number: int) -> Arrays:
            found: Arrays = parts[number].problem.reference(given[number])
            return found

        with threadpool_limits(1 if several else cores), ThreadPoolExecutor(cores if several else 1) as pool:
            right, numbers = list(pool.map(expected, range(len(parts)))), range(len(parts))
            if problem.tier is Tier.COMPARATIVE:
                rows = list(pool.map(lambda n: rows_of(parts[n].problem, given[n], right[n]), numbers))
                worst, times = worst_of_all(parts[0].problem, rows)
                bounds = [allowed(parts[n].problem, rows[n], worst, times, right[n]) for n in numbers]
            else:
                worst = {}
                bounds = list(pool.map(lambda n: bound_of(parts[n].problem, given[n], right[n]), numbers))
        solved = zip(parts, right, bounds, strict=True)
        return cls(problem, [Solved(p, *(_without(p, values) for values in both)) for p, *both in solved], worst)

    @property
    def elements(self) -> int:
        """How many elements of outputs are judged."""
        return sum(values.size for solved in self.solved for values in solved.expected.values())

    def compare(self, outputs: Fetch) -> dict[str, Comparison]:
        """Compare the answer at the drawn places, by output; `outputs` gives it for a part."""
        arrays, found = self.problem.arrays(), dict[str, Comparison]()
        for solved in self.solved:
            got = outputs(solved.part)
            for name, right in solved.expected.items():
                array = Array(right.shape, arrays[name].dtype, output=True)
                one = compare(name, array, got[name], right, solved.bound[name], self.problem.tier)
                one = dataclasses.replace(one, wrong=[_moved(wrong, solved.part) for wrong in one.wrong])
                found[name] = _together(found.get(name), one)
        return found

    def differs(self, reference: Fetch) -> str:
        """Where another float64 reference is not NumPy's, or nothing: it may differ by so little of the error that is
        allowed as makes no verdict another one."""
        for solved in self.solved:
            other = reference(solved.part)
            for name, right in solved.expected.items():
                with np.errstate(invalid="ignore"):
                    away = np.abs(other[name] - right) > NEGLIGIBLE * solved.bound[name]
                away &= ~((other[name] == right) | (np.isnan(other[name]) & np.isnan(right)))
                away |= np.isfinite(other[name]) != np.isfinite(right)
                if away.any():
                    at = tuple(int(i) for i in np.argwhere(away)[0])
                    place = solved.part.place(name, at)
                    return f"{name}{place} is {other[name][at]!r} there, and {right[at]!r} by NumPy"
        return ""


NEGLIGIBLE = 2.0**-8
"""Of the error that is allowed: by how much two references in float64 may differ."""


def _without(part: Part, arrays: Arrays) -> Arrays:
    return {name: values for name, values in arrays.items() if name not in part.without}


def _moved(wrong: WrongElement, part: Part) -> WrongElement:
    """The element by its place in the whole array."""
    return WrongElement(wrong.output, part.place(wrong.output, wrong.index), wrong.got, wrong.expected, wrong.bound)


def _together(first: Comparison | None, second: Comparison) -> Comparison:
    if first is None:
        return second
    return Comparison(
        max(first.worst, second.worst),
        first.wrong_count + second.wrong_count,
        first.element_count + second.element_count,
        [*first.wrong, *second.wrong][:8],
    )


def dense(problem: Problem, parts: Sequence[Part], stratum: int) -> bool:
    """Whether the first of the parts has a place of each `stratum` neighbouring ones, so that it touches every tile."""
    if not parts or not problem.axes():
        return False
    axis = problem.axes()[0]
    name, dimension = next(iter(axis.arrays.items()))
    index = parts[0].index.get(name, ())
    places = index[dimension] if dimension < len(index) else None
    if not isinstance(places, np.ndarray):
        return False
    gaps = np.diff(np.concatenate([[-1], places, [problem.arrays()[name].shape[dimension]]]))
    return bool(gaps.max() <= 2 * stratum)


def on_host(part: Part, arrays: Mapping[str, Any]) -> Arrays:
    """What belongs to a part of these arrays, of NumPy or CuPy, in the memory of the host."""
    return {name: values.get() if hasattr(values, "get") else values for name, values in part.of(arrays).items()}
