"""Work that a cluster, or threads of this process, do before a verification asks for it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .. import harness
from ..devices import Device, machine_for
from ..harness import REPEAT_EVERY, Judgement
from ..judge.case import Case
from ..judge.draw import Trial
from ..model.errors import BadOperation
from ..model.problem import Problem
from ..model.stage import Stage
from .cluster import Cluster

TOGETHER = 2 * REPEAT_EVERY
"""So many problems make a task for a cluster: one of few milliseconds would not be worth sending."""


@dataclass
class Prefetch:
    """Has a cluster solve the problems of a stage before its verification asks for them: it is the `call` of that."""

    cluster: Cluster
    stage: Stage[Any]
    pending: dict[tuple[Problem, bool], tuple[Future[list[Judgement]], int]]

    @classmethod
    def of(cls, cluster: Cluster, stage: Stage[Any], *, examples: int, seed: int, problem: Problem | None) -> Prefetch:
        """What `verify` with the same arguments asks of a stage that is right. Raises OSError, ClusterUnavailable."""
        made = cls(cluster, stage, {})
        wanted: list[tuple[Problem, bool]] = []
        with contextlib.suppress(BadOperation):  # the verification comes to it, too, and says so
            if problem is not None:
                supported = stage.on(machine_for(stage, cluster.device)).supports(problem) is None
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


class CasesAhead:
    """Has threads draw the inputs and compute the references of the problems that a verification comes to: it is the
    `call` of that, and `begin` its `before`. NumPy lets go of the interpreter while it computes, so several problems
    take the time of one."""

    def __init__(self, threads: int) -> None:
        self._pool, self._window = ThreadPoolExecutor(threads), 2 * threads
        self._begun: dict[Problem, Future[Case]] = {}

    def __enter__(self) -> CasesAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """The trials, each when the cases of some behind it have been begun, too."""
        waiting = deque[Trial]()
        for trial in trials:
            problems = [trial.problem.with_tier(tier) for tier in trial.tiers]
            self._begun |= {problem: self._pool.submit(Case.of, problem) for problem in problems}
            waiting.append(trial)
            if len(self._begun) >= self._window:
                yield waiting.popleft()
        yield from waiting

    def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What `function` gives, with the case of a problem that was begun."""
        if function is not harness.run_problem:
            return function(*arguments, **named)
        stage, device, problem = arguments
        begun = self._begun.pop(problem, None)
        try:
            case = begun.result() if begun else None
        except BadOperation:  # whoever makes the case again says so
            case = None
        return harness.run_case(stage, device, case, **named) if case else function(*arguments, **named)


def _run_problems(stage: Stage[Any], device: Device, problems: Sequence[tuple[Problem, bool]]) -> list[Judgement]:
    """`run_problem` of each, up to the first that fails."""
    judged: list[Judgement] = []
    for problem, twice in problems:
        judged.append(harness.run_problem(stage, device, problem, twice=twice))
        if judged[-1][0]:
            break
    return judged
