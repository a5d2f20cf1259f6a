"""Conditions of the kernels of a stage that came out one way in every problem: problems that meet them, and
what a verdict lists."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..model.distributions import Distribution
from ..model.problem import Problem
from ..model.results import Untested
from ..model.stage import Stage
from .boundaries import Places, Values, boundaries, conditions, launched, lines_of, named, together
from .left_out import distributions, flags, replaced

if TYPE_CHECKING:
    from ..emulator.coverage import Outcomes

SMALL, CANDIDATES = 64, 360
"""Extents below the first are tried, and so many problems with several other extents."""

REACHED, MOST_CODES, ROUNDS = 4, 8, 2
"""Problems of a kernel that are drawn at a time, such kernels, and how often that is done: what is behind a condition
that has been met may have others."""

PAIRED = 12
"""Conditions of which two together are met."""

INPUTS, TELLING = 24, (Distribution.MANY_NON_FINITE, Distribution.SUBNORMAL, Distribution.ZEROS, *Distribution)
"""Problems for conditions on data at most, and what their inputs are, in order."""


class Drawn(Protocol):
    """The problems that were drawn before; `longest` is an extent that operations have which say how long theirs are,
    and 0 for others."""

    random: Random
    longest: int
    most_flops: int

    def most(self, longest: int) -> Mapping[str, int]:
        """The largest value of each field."""

    def candidates(
        self, base: Problem, near: Sequence[tuple[str, int]], free: Sequence[str], count: int, longest: int
    ) -> list[Problem]:
        """Problems like one, with other extents."""


class Reaching:
    """Draws problems of a stage; `code` gives the PTX for one."""

    def __init__(self, stage: Stage[Any], code: Callable[[Problem], str], drawn: Drawn) -> None:
        self._stage, self._code, self._drawn = stage, code, drawn

    def codes(self, solved: Iterable[Problem]) -> list[tuple[str, list[Problem]]]:
        """The PTX of kernels, and which of the problems were solved by each."""
        of_codes: dict[str, list[Problem]] = {}
        for problem in solved:
            with contextlib.suppress(Exception):  # who judges the problem says why there is none
                of_codes.setdefault(self._code(problem), []).append(problem)
        return [*of_codes.items()]

    def inputs(self, codes: Iterable[tuple[str, list[Problem]]], places: Places) -> Iterator[Problem]:
        """Problems for conditions on data at these places: that of least work of each kernel, with other inputs."""
        from ..emulator import ptx as reader

        had = [some for ptx, some in codes if any(lines_of(f, places) for f in reader.parse(ptx).functions.values())]
        least = [min(some, key=lambda p: p.cost.flops) for some in had]
        for number, (kind, base) in enumerate(itertools.product(TELLING, least)):
            if kind in distributions(base) and (made := replaced(base, {"distribution": kind, "seed": number})):
                yield made

    def problems(self, ptx: str, solved: list[Problem], places: Places) -> list[Problem]:
        """Problems with this code for which conditions at these places, or two together, come out as for none of those
        that were `solved`, where they are entered. Each time the one is taken for which the most do."""
        try:
            candidates = [p for p in self._candidates(ptx, solved, places) if self._code(p) == ptx] if places else []
            found = list(self._outcomes(ptx, (*solved, *candidates), places)) if candidates else []
        except Exception:  # whoever judges the problem says what is wrong
            return []
        pairs = [
            (a ^ x) & (b ^ y) for a, b in itertools.combinations(found[:PAIRED], 2) for x in (0, 1) for y in (0, 1)
        ]
        new = [c[len(solved) :] != c[0] for c in found + pairs if len(set(c[: len(solved)])) == 1]
        left, chosen = np.array(new, bool).reshape(len(new), len(candidates)), list[Problem]()
        while left.any() and len(chosen) < REACHED:
            best = int(left.sum(axis=0).argmax())
            chosen.append(candidates[best])
            left = left[~left[:, best]]
        solved += reversed(chosen)  # the first one met the most, and others are made of it
        return chosen

    def _candidates(self, ptx: str, problems: Sequence[Problem], places: Places) -> Iterator[Problem]:
        """Problems like the last one: with several other extents, and with one that is small or near a condition."""
        drawn, base = self._drawn, problems[-1]
        near = boundaries(self._stage, ptx, problems, drawn.most(drawn.longest), drawn.random, places)
        yield from drawn.candidates(base, near, flags(self._stage, base), CANDIDATES, drawn.longest)
        small = ((name, value) for name in base.extents for value in range(1, SMALL))
        for name, value in (*small, *near):
            made = replaced(base, {name: value})
            if made and made.cost.flops <= drawn.most_flops and self._stage.supports(made) is None:
                yield made

    def _outcomes(self, ptx: str, problems: Sequence[Problem], places: Places) -> Iterator[Values]:
        """The outcomes of the conditions at these places, by problem."""
        from ..emulator import ptx as reader

        module, plans = reader.parse(ptx), [launched(self._stage, problem) for problem in problems]
        for number, (name, _) in enumerate(plans[0]):
            kernel = module.functions.get(name)
            if kernel is None or any(len(plan) <= number or plan[number][0] != name for plan in plans):
                continue
            lines = lines_of(kernel, places)
            had = together([named(plan[number][1], [p.name for p in kernel.parameters]) for plan in plans])
            every = conditions(kernel, had, joined=True) if lines else {}
            yield from (outcome for line, outcome in every.items() if line in lines)


OUTCOMES = {1: "never false", 2: "never true"}


def listed(outcomes: Outcomes) -> list[Untested]:
    """Those that came out one way, by their place; not those that the shape of a block settles in every launch."""
    found = [
        Untested(c.file, c.line, c.text, OUTCOMES[bits], sorted(c.depends_on), c.is_bound)
        for c, bits in outcomes.items()
        if bits in OUTCOMES and not c.is_settled
    ]
    return sorted(found, key=lambda one: (one.is_bound, one.file, one.line, one.text))
