"""Work that is done before a verification asks for it: by threads, other processes, or the workers of a cluster."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

from .. import harness
from ..devices import Device, DeviceUnavailable, machine_for
from ..harness import Judgement
from ..judge.case import Case
from ..judge.draw import Trial, one_thread
from ..model.errors import BadOperation
from ..model.problem import Problem
from ..model.stage import Stage
from ..sandbox import integrity
from .cluster import Cluster, Processes

T = TypeVar("T")


class Ahead(Generic[T]):
    """Begins what a verification comes to, problem by problem: it is the `call` of that, and `begin` its `before`."""

    def __init__(self, pool: Executor, at_once: int) -> None:
        self._pool, self._window = pool, 2 * at_once
        self._begun: dict[tuple[Problem, bool], Future[T]] = {}

    def cancel(self) -> None:
        """Give up what has not been asked for."""
        for future in self._begun.values():
            future.cancel()

    def begin(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        """The trials, each when some behind it have been begun, too."""
        waiting = deque[Trial]()
        for trial in trials:
            for tier in trial.tiers:
                which = trial.problem.with_tier(tier), trial.twice
                self._begun[which] = self._submit(*which)
            waiting.append(trial)
            if len(self._begun) >= self._window:
                yield waiting.popleft()
        yield from waiting

    def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What `function` gives; where a problem is to be solved that was begun, by what there is of it."""
        found = self._begun.pop((arguments[2], named["twice"]), None) if function is harness.run_problem else None
        if found is None:
            return self._otherwise(function, *arguments, **named)
        self._wait(found)
        try:
            return self._end(found.result(), *arguments, **named)
        except (BadOperation, BrokenExecutor, DeviceUnavailable):  # whoever does it again says so
            return self._otherwise(function, *arguments, **named)

    def _otherwise(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    def _wait(self, found: Future[T]) -> None:
        """Until it is done, or a little less."""

    def _submit(self, problem: Problem, twice: bool) -> Future[T]:
        raise NotImplementedError

    def _end(self, begun: T, *arguments: Any, **named: Any) -> Judgement:
        raise NotImplementedError


class CasesAhead(Ahead[Case]):
    """Threads draw the inputs and compute the references, and have variants compiled. NumPy lets go of the interpreter
    while it computes, so several problems take the time of one."""

    def __init__(self, pool: Executor, at_once: int, stage: Stage[Any], device: Device) -> None:
        super().__init__(pool, at_once)
        self._stage, self._device = stage.on(machine_for(stage, device)), device
        self._compilers, self._compiled = ThreadPoolExecutor(at_once), dict[tuple[Any, ...], Future[Any]]()

    def _variant(self, problem: Problem) -> Future[Any] | None:
        with contextlib.suppress(Exception):  # who launches it says what is wrong
            variant = tuple(self._stage.defines(problem).items())
            if variant not in self._compiled:
                self._compiled[variant] = self._compilers.submit(self._device.compile, self._stage, problem)
            return self._compiled[variant]
        return None

    def _submit(self, problem: Problem, twice: bool) -> Future[Case]:
        self._variant(problem)
        return self._pool.submit(Case.of, problem)

    def _end(self, begun: Case, *arguments: Any, **named: Any) -> Judgement:
        stage, device, problem = arguments
        if compiling := self._variant(problem):
            wait([compiling])  # whoever asks for it now would compile it once more
        return harness.run_case(stage, device, begun, **named)


class SolvedAhead(Ahead[Judgement]):
    """Others solve and judge the problems, each on a device of its own: processes, which this one helps, or the workers
    of a cluster, who do everything else, too."""

    def __init__(self, pool: Processes | Cluster, at_once: int, stage: Stage[Any], device: Device) -> None:
        self._cluster, self._about = pool if isinstance(pool, Cluster) else None, (stage, device)
        super().__init__(pool, at_once if self._cluster else 2)
        self._most = 3 * at_once  # so that some are not handed over yet, which this process can take

    def _submit(self, problem: Problem, twice: bool) -> Future[Judgement]:
        return self._pool.submit(_run_there, *self._about, problem, twice)

    def _otherwise(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return self._cluster.call(function, *arguments, **named) if self._cluster else function(*arguments, **named)

    def _wait(self, found: Future[Judgement]) -> None:
        if self._cluster or found.done():
            return
        self._window = min(self._window + 2, self._most)  # a pool has no more processes than it has had tasks at once
        for which, later in reversed(self._begun.copy().items()):
            if found.done():
                return
            if later.cancel():
                self._begun[which] = Future()
                self._begun[which].set_result(harness.run_problem(*self._about, which[0], twice=which[1]))

    def _end(self, begun: Judgement, *arguments: Any, **named: Any) -> Judgement:
        return begun


def _run_there(stage: Stage[Any], device: Device, problem: Problem, twice: bool) -> Judgement:
    watch = integrity.Watch()
    try:
        with one_thread():
            return harness.run_problem(stage, device, problem, twice=twice)
    finally:
        if changed := watch.restore():
            raise integrity.Tampered(*changed)
