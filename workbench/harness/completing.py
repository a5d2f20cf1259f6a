"""What chance has left out of the problems of a verification: distributions of inputs, and extents as large as those of
the suite."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..model.arrays import Distribution
from ..model.operation import Operation
from ..model.problem import Problem, Size

STEP = 16
"""An extent changes by multiples of so many elements, so that rows stay as well aligned as they were."""

FLOPS = 10
"""Of a problem in one step of `Size.work`, at most."""


EACH, LONGEST = 50, 5000
"""Products of three extents or more have one large problem in so many, of such an extent at most: the emulator computes
whole tiles, which is much more work than the elements. Others have one for each extent."""


class Failed(Exception):
    """Tells Hypothesis that a problem failed; who raises it has the evidence."""


class Drawn:
    """The problems that were drawn so far, of `wanted`, and what none of them has."""

    def __init__(self, operation: Operation[Any], size: Size, wanted: int, seed: int) -> None:
        self.failed = False
        self._wanted, self._size = wanted, size
        self._taken: dict[Problem, None] = {}
        self._missing: dict[Distribution, None] = {}
        self._there: set[Distribution] = set()
        longest = {n: max((getattr(p, n) for p in operation.suite), default=0) for n in operation.problem.extents}
        names = [name for name, extent in longest.items() if extent > size.extent]
        self._longest = {name: longest[name] for name in names}
        if len(longest) > 2:
            first = seed % max(1, len(names))
            chosen = (names[first:] + names[:first])[: wanted // EACH]
            self._longest = {name: min(longest[name], LONGEST) for name in chosen}

    def add(self, problem: Problem) -> None:
        """A supported problem was drawn; after a failure smaller ones are, which do not count."""
        if problem not in self._taken and not self.failed:
            self._taken[problem] = None
            self._there.add(problem.distribution)
            allowed = dict.fromkeys((*self._missing, *distributions(problem)))
            self._missing = {kind: None for kind in allowed if kind not in self._there}

    @property
    def enough(self) -> bool:
        """Whether the problems that are left have to be those that chance leaves out, half of all at most."""
        left = self._wanted - len(self._taken)
        return not self.failed and left <= min(len(self._missing) + len(self._longest), self._wanted // 2)

    def complete(
        self,
        supported: Callable[[Any], bool],
        property_: Callable[[Any], bool],
        property_of_large: Callable[[Any], bool],
    ) -> None:
        """Try problems of what is missing. Where one fails, smaller ones come to fail after it. Raises Failed."""
        if not self.enough:
            return
        taken, count = list(self._taken), 0
        others = [(self._in(kind, taken, number), property_) for number, kind in enumerate(self._missing)]
        others += [(self._long(name, taken, number), property_of_large) for number, name in enumerate(self._longest)]
        for largest_first, holds in others[: self._wanted - len(taken)]:
            problems = [problem for problem in largest_first if supported(problem)]
            if problems and not _tried(problems, holds):
                return
            count += bool(problems)
        left = self._wanted - len(taken) - count
        for problem in taken[len(taken) - left :]:  # what there is none of
            if not property_(dataclasses.replace(problem, seed=problem.seed + 1)):
                return

    def _in(self, kind: Distribution, taken: Sequence[Problem], number: int) -> Iterator[Problem]:
        last = taken[-1 - number % len(taken)]
        smaller = (p for p in sorted(taken, key=_bytes, reverse=True) if _bytes(p) < _bytes(last))
        for problem in (last, *smaller):
            if kind in distributions(problem):
                yield dataclasses.replace(problem, distribution=kind)

    def _long(self, name: str, taken: Sequence[Problem], number: int) -> Iterator[Problem]:
        """A problem with one extent as large as in the suite, as far as the work allows, and then smaller ones"""
        problem = dataclasses.replace(taken[-1 - number % len(taken)], distribution=Distribution.NORMAL)
        for step in (STEP, STEP // 2, 1):  # half of it keeps most rows aligned, and lets the one be longer
            small = {n: _like(getattr(problem, n), step) for n in problem.extents}
            around = math.prod(small.values()) // small[name]
            extent = min(self._longest[name], self._size.work // around)
            if extent == self._longest[name] or (step < STEP and extent > self._size.extent):
                break
        while extent > self._size.extent:
            made = _replaced(problem, {**small, name: _like(getattr(problem, name), extent, STEP)})
            if made and made.cost.flops <= FLOPS * self._size.work:
                yield made
            extent = extent * 3 // 4


def _tried(largest_first: Sequence[Problem], property_: Callable[[Any], bool]) -> bool:
    """Whether there should be more after the first problem. Raises Failed, after the smallest that fails."""
    try:
        return property_(largest_first[0])
    except Failed:
        for smaller in reversed(largest_first[1:]):
            property_(smaller)
        raise


def _like(extent: int, most: int, step: int = 0) -> int:
    """The largest extent of at most `most`, and 1 at least, that is `extent` but for a multiple of `step`."""
    return max(1, most - (most - extent) % (step or most))


def _replaced(problem: Problem, extents: dict[str, Any]) -> Problem | None:
    try:
        return dataclasses.replace(problem, **extents)
    except Exception:  # fields do not go together
        return None


def _bytes(problem: Problem) -> int:
    return problem.cost.bytes


def distributions(problem: Problem) -> tuple[Distribution, ...]:
    """Those that a problem may have; where its arrays cannot be told, whoever makes its case says why."""
    try:
        return problem.distributions()
    except Exception:
        return (Distribution.NORMAL,)
