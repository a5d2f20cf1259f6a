"""Which stage solves a problem on a device, and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..catalogue import registry
from ..model.calls import Function
from ..model.launch import machine
from ..model.operation import Operation
from ..model.problem import Problem
from ..model.stage import Stage
from ..records import cost, tuned
from .prepared import Prepared

ALIKE = 1.05
"""What the operation prefers is taken where another stage is predicted to be no more than so much faster: the model is
good to that. It is taken, too, where its time cannot be told."""

TABLE, TUNED = "the table of what is fastest that ships", "what was tuned on this device"
MODEL, PREFERRED = "the cost model predicts the least time", "the operation prefers it for such problems"
LADDER = "the last stage of the ladder that takes it"


@dataclass(frozen=True)
class Candidate:
    """A stage that might solve a problem. `refused` says why it cannot, where it cannot; `us` is the time predicted,
    and `bound` by what, where there is a model."""

    stage: Stage[Any]
    refused: str | None
    us: float | None = None
    bound: str = ""


@dataclass(frozen=True)
class Explanation:
    """Why a stage solves a problem: `why`, and in `candidates` what else there is, in the order of the ladder.

    `us` is the time predicted in microseconds, None where the operation has no cost model."""

    problem: Problem
    device: str
    stage: Stage[Any]
    why: str
    us: float | None
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        from tabulate import tabulate

        parameters = ", ".join(f"{name}={value}" for name, value in self.stage.parameters.items())
        measured = cost.measured_on(self.device)
        there = "" if measured == self.device else f" by the constants of {measured}"
        time = "" if self.us is None else f"; predicted{there}: {self.us:,.1f} us"
        head = f"{self.stage.spec} ({parameters}) solves {self.problem.label} on {self.device}: {self.why}{time}"
        rows = [
            [c.stage.name, "-" if c.us is None else f"{c.us:,.1f}", c.bound or "-", c.refused or ""]
            for c in self.candidates
        ]
        headers = ["stage", "predicted, us", "bound by", "cannot, since"]
        align = ("left", "right", "left", "left")
        return f"{head}\n\n{tabulate(rows, headers, disable_numparse=True, colalign=align)}"

    __repr__ = __str__


class Choice:
    """The stages of an operation for a problem on a device of this architecture and full name. `alignment` in bytes
    divides the address of every array."""

    def __init__(
        self, operation: Operation[Any], problem: Problem, architecture: int, alignment: int, device: str
    ) -> None:
        self.operation, self.problem, self.device = operation, problem, device
        self.machine, self.alignment = replace(machine(), architecture=architecture), alignment
        self.beyond: dict[str, str] = {}
        """What could not be launched, and why."""
        self.predictor = cost.predictor(device, operation)

    def refused(self, stage: Stage[Any]) -> str | None:
        """Why a stage cannot solve the problem, or None."""
        if all(stage.name != known.name for known in self.operation.stages):
            return "it is not among the stages that may"
        if reason := stage.on(self.machine).supports(self.problem):
            return reason
        if self.alignment % stage.alignment:
            return f"arrays start at a multiple of {self.alignment} bytes, and have to at one of {stage.alignment}"
        if reason := stage.beyond_limits(self.problem):
            self.beyond[stage.name] = reason
        return reason

    def usual(self) -> Iterator[tuple[Stage[Any], str]]:
        """Stages that solve the problem, in the order in which they are taken, and why: without what was tuned here."""
        operation, problem = self.operation, self.problem
        picked = tuned.hand_picked(self.device, operation.name, problem)
        if picked and self.refused(picked) is None:
            yield picked, TABLE
        names = operation.fastest(problem) if callable(operation.fastest) else operation.fastest
        by_name = {stage.name: stage for stage in operation.stages}
        preferred = self._able(by_name[name] for name in names if name in by_name)
        first = next(preferred, None)
        told = self.predictor.of(operation, first, problem) if first else None
        predicted = self.predictor.fastest_first(operation, problem, self.machine)
        fastest = list(itertools.islice(predicted, 1))
        if first and (told is None or told.prediction.us <= ALIKE * fastest[0].prediction.us):
            yield first, PREFERRED
        yield from ((stage, MODEL) for stage in self._able(p.stage for p in itertools.chain(fastest, predicted)))
        yield from ((stage, PREFERRED) for stage in preferred)
        yield from ((stage, LADDER) for stage in self._able(reversed(operation.stages)))

    def _able(self, stages: Iterable[Stage[Any]]) -> Iterator[Stage[Any]]:
        """Those that solve the problem."""
        return (stage for stage in stages if self.refused(stage) is None)

    def made(self) -> tuple[Stage[Any], str]:
        """The stage that is taken, and why. Raises ValueError where there is none."""
        found = next(self.usual(), None)
        if found is None:
            limits = "".join(f"; {name}: {reason}" for name, reason in self.beyond.items())
            label = self.problem.label
            raise ValueError(f"no stage of {self.operation.name} supports {label} on this device{limits}")
        of_class = tuned.found(self.device, self.operation.name, tuned.problem_class(self.problem))
        measured = [stage for _, stage in of_class if self.refused(stage) is None]
        # a time of some other stage alone does not say that it is faster than the usual one
        return (measured[0], TUNED) if found[0].name in {stage.name for stage in measured} else found


def choose(
    operation: str | Operation[Any], problem: Problem, architecture: int, alignment: int = 256, device: str = ""
) -> Stage[Any]:
    """The fastest stage that supports `problem`, with the parameters for its class of problems on the device named.

    Usually that is the stage of the table that ships, else the one that the cost model predicts to be the fastest, or
    that the operation prefers where the model sees no difference, else the last one of the ladder. Where it has been
    tuned on this device, it gets the parameters found, or makes room for another stage that was tuned as well and is
    faster. `alignment` in bytes divides the address of every array. Raises ValueError where no stage supports the
    problem, or those that do cannot be launched for it; the message has the limits."""
    found = registry.operations()[operation] if isinstance(operation, str) else operation
    return Choice(found, problem, architecture, alignment, device).made()[0]


def explained(
    operation: Operation[Any], problem: Problem, architecture: int, alignment: int = 256, device: str = ""
) -> Explanation:
    """Why `choose` takes the stage that it takes. Raises what `choose` raises."""
    choice = Choice(operation, problem, architecture, alignment, device)
    stage, why = choice.made()
    candidates = []
    predicted = {p.stage.name: p.prediction for p in choice.predictor.fastest_first(operation, problem, choice.machine)}
    for other in operation.stages:
        prediction = predicted.get(other.name)
        figures = (prediction.us, prediction.bound) if prediction else (None, "")
        candidates.append(Candidate(other, choice.refused(other), *figures))
    us = predicted[stage.name].us if stage.name in predicted else None
    return Explanation(problem, device or "an unknown device", stage, why, us, tuple(candidates))


# -------------------------------------------------------------------- why a call is solved by the stage that solves it


ARCHITECTURE = 90
"""Compute capability, times ten, of a device that is named and not there."""


def explain(function: Function, *arrays: Any, **options: Any) -> Explanation:
    """Which stage solves a call of `function` with these arguments, why, and what time is predicted.

    Instead of arrays there may be a problem, or its text, and the full name of a `device`: then no GPU is needed.
    `print` shows the stage and every other one, with its predicted time or why it cannot take the problem. Times are
    predicted where the operation has a cost model; they are of a cold L2. Raises what a call raises; launches nothing.

    >>> from workbench import ops
    >>> found = ops.explain(ops.gemm, "3000x3000x3000,dtype=bf16,out=bf16", device="NVIDIA H200")
    >>> found.stage.name, found.why
    ('stream_k', 'the cost model predicts the least time')"""
    if len(arrays) == 1 and isinstance(arrays[0], str | Problem):
        problem = function.operation.problem.parse(arrays[0]) if isinstance(arrays[0], str) else arrays[0]
        return explained(function.among, problem, ARCHITECTURE, device=options.get("device", ""))
    prepared: Prepared = function.prepare(*arrays, **options)
    own = prepared.stage.operation == function.operation.name
    among = function.among if own else registry.operations()[prepared.stage.operation]
    return explained(among, prepared.problem, *prepared.asked)
