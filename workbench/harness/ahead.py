"""Work that a cluster does before a verification asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..catalogue import registry
from ..devices import Device
from ..model.origin import BadOperation
from ..model.problem import Problem
from ..model.stage import Stage
from ..workers.cluster import Cluster
from . import solving
from .drawing import drawn, size_of
from .repeats import REPEAT_EVERY, Turns
from .solving import Judgement

TOGETHER = 2 * REPEAT_EVERY
"""So many problems make a task for a cluster: one of few milliseconds would not be worth sending."""


@dataclass
class Ahead:
    """Has a cluster solve the problems of a stage before its verification asks for them."""

    cluster: Cluster
    stage: Stage[Any]
    pending: dict[tuple[Problem, bool], tuple[Future[list[Judgement]], int]]

    @classmethod
    def of(cls, cluster: Cluster, stage: Stage[Any], *, examples: int, seed: int, problem: Problem | None) -> Ahead:
        """What `verify` with the same arguments asks of a stage that is right. Raises OSError, ClusterUnavailable."""
        made = cls(cluster, stage, {})
        wanted: list[tuple[Problem, bool]] = []
        with contextlib.suppress(BadOperation):  # the verification comes to it, too, and says so
            if problem is not None:
                supported = stage.supports(problem, cluster.device.architecture) is None
                wanted = [(problem, True)] if supported else []
            else:
                found = drawn(stage, cluster.device, examples=examples, seed=seed)
                turns = Turns.of(size_of(registry.operation_of(stage), cluster.device.name))
                twice = [turns.take(p) for p in found]
                wanted = [(p.with_tier(t), again) for p, again in zip(found, twice, strict=True) for t in p.tiers]
        for first in range(0, len(wanted), TOGETHER):
            part = wanted[first : first + TOGETHER]
            future = cluster.submit(_run_problems, stage, cluster.device, part)
            made.pending |= {which: (future, place) for place, which in enumerate(part)}
        return made

    def judge(self, problem: Problem, twice: bool) -> Judgement:
        """`run_problem` on a worker, at once where it was not foreseen: while a failure is made smaller."""
        future, place = self.pending.get((problem, twice), (None, 0))
        if future and len(judged := future.result()) > place:
            return judged[place]
        judgement: Judgement = self.call(solving.run_problem, self.stage, self.cluster.device, problem, twice=twice)
        return judgement

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What is to be done on a worker now; nothing else of this stage is needed any more."""
        self.cancel()
        return self.cluster.call(function, *arguments, **named)

    def cancel(self) -> None:
        """Give up what has not been asked for."""
        while self.pending:
            self.pending.popitem()[1][0].cancel()


def _run_problems(stage: Stage[Any], device: Device, problems: Sequence[tuple[Problem, bool]]) -> list[Judgement]:
    """`run_problem` of each, up to the first that fails."""
    judged: list[Judgement] = []
    for problem, twice in problems:
        judged.append(solving.run_problem(stage, device, problem, twice=twice))
        if judged[-1][0]:
            break
    return judged
