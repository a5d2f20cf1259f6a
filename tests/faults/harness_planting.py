"""A fault that a weak harness does not see: what is judged, and what ours has to say of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from planting import Change, Outcome, plant

from workbench.catalogue import registry
from workbench.devices import Device
from workbench.model.problem import Problem
from workbench.model.results import Verdict
from workbench.model.stage import Stage
from workbench.report.evidence import explain
from workbench.run import verifier

EXAMPLES = 12
"""Random problems of a fault that has no problem of its own."""

Restage = Callable[[Stage[Any]], Stage[Any]]


def planted_stage(spec: str, *changes: Change) -> Stage[Any]:
    """A stage of the catalogue, its source changed."""
    (stage,) = registry.select([spec])
    return replace(stage, source=str(plant(stage.path, changes))) if changes else stage


@dataclass(frozen=True)
class Verified:
    """A stage that has to fail, on `problem` or on random ones. `restage` changes its declaration."""

    spec: str
    changes: tuple[Change, ...] = ()
    problem: Problem | None = None
    restage: Restage = lambda stage: stage

    @property
    def stage(self) -> Stage[Any]:
        return self.restage(planted_stage(self.spec, *self.changes))

    def __call__(self, device: Device) -> Outcome:
        result = verifier.verify(self.stage, device, remembers=False, examples=EXAMPLES, seed=0, problem=self.problem)
        if result.failure is None:
            return Outcome(result.verdict)
        _, problem, *evidence = explain(self.spec, result).splitlines()
        return Outcome(result.verdict, "\n".join((*evidence, problem)))


@dataclass(frozen=True)
class HarnessFault:
    """What deceives a weak harness, and what ours has to say of it.

    `key` begins with the number of the class of fault. `judge` tries it on a device; the verdict has to be `verdict`,
    on a GPU `on_gpu` where that is given, and every pattern of `says` has to be in the message. `where` names what the
    fault is planted in, where that is not the source of the stage.
    """

    key: str
    title: str
    judge: Callable[[Device], Outcome]
    says: str | tuple[str, ...]
    verdict: str = Verdict.MISMATCH
    where: str = ""
    on_gpu: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", self.where or f"`{getattr(self.judge, 'spec', '')}`")

    @property
    def number(self) -> int:
        return int(self.key.partition("-")[0])

    def found_by(self, outcome: Outcome, on_gpu: bool = False) -> bool:
        """Whether the outcome is the right verdict, for the fault's own reason."""
        wanted = self.on_gpu if on_gpu and self.on_gpu else self.verdict
        says = (self.says,) if isinstance(self.says, str) else self.says
        return outcome.verdict == wanted and all(re.search(text, outcome.message) for text in says)


HEAD = 'extern "C" __global__'
