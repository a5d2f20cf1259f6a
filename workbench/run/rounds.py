"""The order of a run with a budget: the stage that is verified next, and on how many problems."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..model.launch import Machine
from ..model.operation import Operation
from ..model.problem import Problem
from ..model.results import StageResult
from ..model.stage import Stage
from ..records import cost
from ..report.evidence import failed
from ..toolchain.compiler import contents, source_of
from .verifier import by_work, takes

DEPTHS = (1, 5, 20, 50)
"""Problems of a stage in each round."""

FIRST, HEADLINE, EACH = range(3)
"""Phases of the first round: the first stage of each operation and track; on a GPU the stage that is timed on the
headline problem of its operation; every other stage. Each later round is a phase of its own."""

GROWTH = 0.75
"""Exponent of the cost of a round in its number of problems: 5 problems took 2.6 times as long as 1, in the mean over
stages of all kinds, because variants that are compiled already are not compiled again."""

SECONDS_PER_BYTE = 2e-5
"""Time to verify a stage on one problem per byte of its source and headers, until some stages have been verified: most
of that time is the compiler's."""


@dataclass(frozen=True)
class Step:
    """A stage to be verified on `problems` problems."""

    stage: Stage[Any]
    phase: int
    problems: int


def depths(examples: int) -> tuple[int, ...]:
    """The number of problems of a stage in each round of a run that ends with `examples`."""
    return (*(depth for depth in DEPTHS if depth < examples), examples)


class Rounds:
    """The steps of a run that are left. Each stage has one at most; when it has ended, its next one follows.

    `headlines` are the stages that are to be timed early. Phases come one after the other. In a phase the steps that
    should take least time come first: the time of a stage is told by the round before, and in the first round by the
    size of its source and headers."""

    def __init__(self, stages: Sequence[Stage[Any]], examples: int, headlines: Iterable[str] = ()) -> None:
        self.depths = depths(examples)
        self._headlines = frozenset(headlines)
        places = {(stage.operation, stage.track): stage.spec for stage in reversed(stages)}
        self._firsts = frozenset(places.values())
        self._bytes = {stage.spec: _bytes(stage) for stage in stages}
        self._ended: dict[str, tuple[int, float]] = {}
        """Problems and seconds of the last step of each stage."""
        self._spent, self._covered = 0.0, 0
        self._left: dict[str, Step] = {}
        for stage in stages:
            first = FIRST if stage.spec in self._firsts else self._phase(stage, 0)
            self._left[stage.spec] = Step(stage, first, self.depths[0])
        self._at_work: dict[str, Step] = {}

    def _phase(self, stage: Stage[Any], round_: int) -> int:
        if round_ <= 1 and stage.spec in self._headlines:
            return HEADLINE
        return EACH + round_

    def known(self, stage: Stage[Any], result: StageResult) -> None:
        """An earlier run has left this result of a stage: its next step follows."""
        self._left.pop(stage.spec, None)
        self._follow(stage, result)

    def ended(self, step: Step, result: StageResult) -> None:
        """A step has been made, with this result."""
        self._at_work.pop(step.stage.spec, None)
        if step.problems == self.depths[0]:
            self._spent += result.verification.seconds
            self._covered += self._bytes[step.stage.spec]
        self._follow(step.stage, result)

    def _follow(self, stage: Stage[Any], result: StageResult) -> None:
        verification = result.verification
        done = verification.examples or self.depths[-1]
        self._ended[stage.spec] = done, verification.seconds
        deeper = [number for number, depth in enumerate(self.depths) if depth > done]
        if deeper and not failed(verification):
            self._left[stage.spec] = Step(stage, self._phase(stage, deeper[0]), self.depths[deeper[0]])

    def next(self, seconds: float) -> Step | None:
        """The next step that should take no longer than so many seconds; it is at work until it has `ended`."""
        fitting = (step for step in self._left.values() if self.seconds(step) <= seconds)
        step = min(fitting, key=lambda step: (step.phase, self.seconds(step)), default=None)
        if step:
            self._at_work[step.stage.spec] = self._left.pop(step.stage.spec)
        return step

    def seconds(self, step: Step) -> float:
        """How long a step should take."""
        if step.stage.spec in self._ended:
            problems, seconds = self._ended[step.stage.spec]
            return seconds * float((step.problems / problems) ** GROWTH)
        rate = self._spent / self._covered if self._covered else SECONDS_PER_BYTE
        return self._bytes[step.stage.spec] * rate * float((step.problems / self.depths[0]) ** GROWTH)

    def over(self, operation: str, phase: int) -> bool:
        """Whether no step of an operation is left or at work, in this phase or an earlier one."""
        steps = (*self._left.values(), *self._at_work.values())
        return not any(step.stage.operation == operation and step.phase <= phase for step in steps)

    @property
    def done(self) -> bool:
        """Whether no step is left or at work."""
        return not self._left and not self._at_work


def _bytes(stage: Stage[Any]) -> int:
    """The size of the source of a stage, with its headers."""
    with contextlib.suppress(OSError):  # verification says so
        return sum(map(len, contents(source_of(stage)).values()))
    return 1


def headline(operation: Operation[Any], device: str, on: Machine) -> tuple[Stage[Any], Problem] | None:
    """The problem of the suite with the most work, and the stage that should solve it fastest on this device, which
    is such a machine.

    None where the operation has no suite, or no stage takes the problem."""
    for problem in by_work(operation):
        able = {stage.name: stage for stage in operation.stages if takes(stage.on(on), problem)}
        if able:
            named = operation.fastest(problem) if callable(operation.fastest) else operation.fastest
            predicted = cost.predictor(device, operation).fastest_first(operation, problem, on)
            names = (*named, *(p.stage.name for p in predicted), *reversed(able))
            return next(able[name] for name in names if name in able), problem
    return None
