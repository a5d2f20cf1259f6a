"""A run with a budget: stages are verified in rounds, on every core at once; on a GPU headline problems are timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any, Protocol

import threadpoolctl

from ..catalogue import registry
from ..devices import Device, IsolatedDevice, open_device
from ..model.launch import planning_for
from ..model.problem import Problem
from ..model.results import StageResult, Verdict
from ..model.stage import Stage
from ..workers.cluster import Processes
from .rounds import Rounds, Step, headline
from .timer import TimedSession
from .verifier import ALL, Listener, Session, Silent

GRACE = 0.2
"""Share of the budget by which the steps at work when it ends may exceed it, before they are given up."""

TIMED_AFTER = 5
"""Problems on which a stage is verified before it is timed on the headline problem of its operation."""

TIMING_SECONDS = 10.0
"""Longest that a stage usually takes to be timed on one problem, with the library of the vendor beside it."""


class BudgetListener(Listener, Protocol):
    """Is told how far a run has come."""

    def begun(self, step: Step) -> None:
        """A stage is being verified."""

    def ended(self, step: Step, result: StageResult) -> None:
        """It has been."""

    def over(self, operation: str, left: float) -> None:
        """A round of an operation has ended; so many seconds are left."""


class Budget:
    """Verifies stages for so many seconds; `processes` of them at once, or in this process where there is one.

    The session goes on with what an interrupted run has left in its folder. Each step is saved when it has ended."""

    def __init__(
        self, session: Session, stages: Sequence[Stage[Any]], seconds: float, told: BudgetListener, processes: int = 1
    ) -> None:
        self._session, self._stages, self._told, self._processes = session, stages, told, processes
        self._seconds, self._until = seconds, time.monotonic() + seconds
        session.whole_suite = True
        self._timed = session if isinstance(session, TimedSession) else None
        self._headlines = self._found() if self._timed else {}
        self.rounds = Rounds(stages, session.examples, self._headlines)
        self._begun = False
        self._results = {stage.spec: result for stage, result in session.take_over(stages)}
        for stage in stages:
            if stage.spec in self._results:
                self.rounds.known(stage, self._results[stage.spec])

    def _found(self) -> dict[str, Problem]:
        """The headline problem of each operation, by the stage that is timed on it."""
        device, chosen = self._session.device, {stage.spec for stage in self._stages}
        operations = dict.fromkeys(stage.operation for stage in self._stages)
        with planning_for(device.machine):
            found = [headline(registry.operations()[o], device.info().name, device.machine) for o in operations]
        return {stage.spec: problem for stage, problem in filter(None, found) if stage.spec in chosen}

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return self._until - time.monotonic()

    def work(self) -> bool:
        """Work until the time is up or everything is done; whether it is.

        Raises CompilerUnavailable."""
        for stage in self._stages:
            self._time_headline(stage)
        while not self._verified():
            pass  # a process has ended: others go on
        if not self.rounds.done:
            return False
        if self._timed is None:
            return True
        for whole in (False, True):
            self._session.whole_suite = whole
            for stage in self._stages:
                result = self._results[stage.spec]
                if self.left > 0 and result.verification.verdict is Verdict.PASS:
                    self._timed.time(stage, result, self._told, None, lambda: self.left < 0)
        return self.left > 0

    def _verified(self) -> bool:
        """Verify until the time is up or everything is verified. False where a process ended, whatever ended it."""
        if self._processes == 1:
            while step := self._next():
                self._end(step, _verified(step.stage, self._session.device, *self._how(step), self._told))
            return True
        isolate = isinstance(self._session.device, IsolatedDevice)
        running: dict[Future[StageResult], Step] = {}
        try:
            with Processes(self._processes) as pool:
                while self._fill(pool, running, isolate):
                    # a run that ends with no result at all would not go further: the first is waited for
                    patience = max(0.0, self.left + GRACE * self._seconds) if self._results else None
                    done, _ = wait(running, patience, FIRST_COMPLETED)
                    if not done:
                        raise _Late
                    for future in done:
                        self._end(running[future], future.result())
                        del running[future]
        except _Late:
            return True
        except BrokenProcessPool:
            for step in running.values():  # one of them ended it: in a process of its own, that is its verdict
                device = open_device(self._session.device.name, isolate=True)
                self._end(step, _verified(step.stage, device, *self._how(step), self._told))
            return False
        return True

    def _fill(self, pool: Executor, running: dict[Future[StageResult], Step], isolate: bool) -> bool:
        """Let every process have a step; whether one has."""
        name = self._session.device.name
        while len(running) < self._processes and (step := self._next()):
            running[pool.submit(_there, step.stage, name, isolate, *self._how(step))] = step
        return bool(running)

    def _next(self) -> Step | None:
        """The next step that there is time for. The first one is taken in any case: each run goes further."""
        step = self.rounds.next(self.left if self._begun else float("inf"))
        if step:
            self._begun = True
            self._told.begun(step)
        return step

    def _how(self, step: Step) -> tuple[int, int, bool, bool]:
        return step.problems, self._session.seed, self._session.keep, step.problems == self._session.examples

    def _end(self, step: Step, result: StageResult) -> None:
        if step.problems != self._session.examples:
            result.verification.examples = step.problems
        if self._timed and result.verification.verdict is not Verdict.PASS:
            result.untimed[ALL] = f"verification ended with {result.verification.verdict}"
        self._session.enter(result)
        self._results[step.stage.spec] = result
        self.rounds.ended(step, result)
        self._told.ended(step, result)
        self._time_headline(step.stage)
        if self.rounds.over(step.stage.operation, step.phase):
            self._told.over(step.stage.operation, self.left)

    def _time_headline(self, stage: Stage[Any]) -> None:
        """Time a stage on the headline problem of its operation, where it is to be and has not been."""
        result, problem = self._results.get(stage.spec), self._headlines.get(stage.spec)
        if result is None or problem is None or any(m.problem == str(problem) for m in result.measurements):
            return
        verification = result.verification
        verified = not verification.examples or verification.examples >= TIMED_AFTER
        if self._timed and verified and verification.verdict is Verdict.PASS and self.left > TIMING_SECONDS:
            self._timed.time(stage, result, self._told, [problem], lambda: False)


class _Late(Exception):
    """The time is up, and steps at work have not ended."""


def _verified(
    stage: Stage[Any], device: Device, examples: int, seed: int, keep: bool, resources: bool, told: Listener
) -> StageResult:
    """A stage verified by a session that saves nothing."""
    return Session(device, examples, seed, keep=keep, resources=resources).stage(stage, told)


def _there(
    stage: Stage[Any], device: str, isolate: bool, examples: int, seed: int, keep: bool, resources: bool
) -> StageResult:
    """The same in a process of a pool."""
    return _verified(stage, _opened(device, isolate), examples, seed, keep, resources, Silent())


@cache
def _opened(device: str, isolate: bool) -> Device:
    """The device of a process of a pool, which has one core."""
    threadpoolctl.threadpool_limits(1, "blas")
    return open_device(device, isolate=isolate)
