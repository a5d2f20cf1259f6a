"""Work that a cluster does before a verification asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from .. import harness
from ..devices import Device
from ..harness import REPEAT_EVERY, Judgement
from ..model.origin import BadOperation
from ..model.problem import Problem
from ..model.stage import Stage
from .cluster import Cluster

TOGETHER = 2 * REPEAT_EVERY
"""So many problems make a task for a cluster: one of few milliseconds would not be worth sending."""


@dataclass
class Ahead:
    """Has a cluster solve the problems of a stage before its verification asks for them: it is the `call` of that."""

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
                found = harness.trials(stage, cluster.device, examples=examples, seed=seed)
                wanted = [(trial.problem.with_tier(tier), trial.twice) for trial in found for tier in trial.tiers]
        for first in range(0, len(wanted), TOGETHER):
            part = wanted[first : first + TOGETHER]
            future = cluster.submit(_run_problems, stage, cluster.device, part)
            made.pending |= {which: (future, place) for place, which in enumerate(part)}
        return made

    def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What `function` gives on a worker. A problem may have been solved there already; where that was not foreseen,
        as while a failure is made smaller, nothing else of this stage is needed any more."""
        if function is harness.run_problem:
            future, place = self.pending.get((arguments[2], named["twice"]), (None, 0))
            if future and len(judged := future.result()) > place:
                return judged[place]
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
        judged.append(harness.run_problem(stage, device, problem, twice=twice))
        if judged[-1][0]:
            break
    return judged
