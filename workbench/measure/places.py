"""Where configurations are compiled and judged: on this machine, or by the workers of a cluster."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..devices import Device, Fault
from ..model.problem import Problem
from ..model.results import Measurement, Verdict
from ..model.stage import Stage
from ..records.tuned import Trial
from ..workers.cluster import Cluster, Lost
from . import timing
from .configurations import Judge, compile_ahead

About = tuple[Stage[Any], Device, Problem, Sequence[Problem]]
"""What a Judge is made of."""


@dataclass(frozen=True)
class Here:
    """Configurations are compiled by a pool, so many `ahead`, and judged on a device of this machine."""

    device: Device
    pool: Executor
    ahead: int
    judge: Any = None
    at_once = 1
    """How many searches go on at the same time."""

    def about(self, stage: Stage[Any], problem: Problem, problems: Sequence[Problem]) -> Here:
        """The same for one search, with what belongs to it. Raises TuningError."""
        return dataclasses.replace(self, judge=Judge(stage, self.device, problem, problems))

    def begin(self, configuration: dict[str, int]) -> Future[str]:
        """Let the pool compile it."""
        return self.pool.submit(
            compile_ahead, self.judge.stage, configuration, self.judge.problem, self.judge.stage.home.architecture
        )

    def end(self, configuration: dict[str, int], future: Future[str]) -> Trial:
        """Judge what has been compiled."""
        trial: Trial = self.judge.judge(configuration, future.result())
        return trial

    def at_length(self, configurations: Sequence[Mapping[str, int]]) -> list[float]:
        """See Judge."""
        medians: list[float] = self.judge.at_length(configurations)
        return medians

    def bench(self, stage: Stage[Any], problem: Problem) -> Measurement | str:
        """See timing."""
        return timing.bench(stage, self.device, problem)

    def close(self) -> None:
        """Free what is on the device."""
        self.judge.close()


class Shares:
    """The places of so many searches that go on at once. Each has the workers of its place and keeps them: another
    worker would first have to prepare for it, and be late for its own search."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._free = set(range(count))
        self._lock = threading.Lock()

    def take(self) -> int:
        """A place for a search that begins."""
        with self._lock:
            place = min(self._free)
            self._free.remove(place)
            return place

    def free(self, place: int) -> None:
        """The search that has this place is over."""
        with self._lock:
            self._free.add(place)


@dataclass(frozen=True)
class There:
    """Configurations are compiled and judged by the workers of a cluster, of which each search has its share."""

    cluster: Cluster
    what: About | None = None
    shares: Shares = field(default_factory=Shares)
    place: int = 0

    @property
    def device(self) -> Any:
        return self.cluster.device

    @property
    def ahead(self) -> int:
        workers = len(range(self.place, self.cluster.count, self.shares.count))
        slots: int = self.cluster.slots * workers // self.cluster.count
        return max(slots - workers, 2 * workers)  # the last round is to find a slot free, where there are some

    @property
    def at_once(self) -> int:
        return min(self.cluster.count, MOST_JUDGES)

    def shared_by(self, searches: int) -> There:
        """The same for so many searches at once."""
        return dataclasses.replace(self, shares=Shares(searches))

    def about(self, stage: Stage[Any], problem: Problem, problems: Sequence[Problem]) -> There:
        return dataclasses.replace(self, what=(stage, self.device, problem, problems), place=self.shares.take())

    def begin(self, configuration: dict[str, int]) -> Future[Trial]:
        assert self.what is not None
        stage, _, problem, _ = self.what
        compiling = partial(compile_ahead, stage, configuration, problem, stage.home.architecture)
        return self._share().submit_prepared(compiling, _judged, self.what, configuration)

    def end(self, configuration: dict[str, int], future: Future[Trial]) -> Trial:
        try:
            return future.result()
        except Lost as error:
            return Trial(configuration, reason=f"{Verdict.CRASH}: {error}")

    def at_length(self, configurations: Sequence[Mapping[str, int]]) -> list[float]:
        medians: list[float] = self._share().call(_at_length, self.what, configurations)
        return medians

    def bench(self, stage: Stage[Any], problem: Problem) -> Measurement | str:
        outcome: Measurement | str = self._share().call(timing.bench, stage, self.device, problem)
        return outcome

    def close(self) -> None:
        """Workers keep what they have for the next search."""
        self.shares.free(self.place)

    def _share(self) -> Cluster:
        count = self.shares.count
        return self.cluster.among(self.place, count) if count > 1 else self.cluster


MOST_JUDGES = 4
"""So many searches at most go on at once on a cluster; a worker keeps what belongs to each on its device."""

_judges: list[Judge] = []
"""On a worker: of the searches that it has lately worked for."""


def _judge_of(about: About) -> Judge:
    stage, _, *problems = about
    for judge in _judges:
        if judge.stage is stage and [judge.problem, judge.problems] == problems:
            return judge
    while len(_judges) >= MOST_JUDGES:
        _judges.pop(0).close()
    _judges.append(Judge(*about))
    return _judges[-1]


def _judged(about: About, configuration: dict[str, int]) -> Trial:
    return _judge_of(about).try_(configuration)


def _at_length(about: About, configurations: Sequence[Mapping[str, int]]) -> list[float]:
    judge = _judge_of(about)
    if judge.rival is None:  # this worker has not taken part in the search, or was started again
        declared = judge.try_({name: judge.stage.parameters[name] for name in judge.stage.space})
        if declared.reason:
            raise Fault(Verdict.MISMATCH, f"with the declared parameters: {declared.reason}")
    return judge.at_length(configurations)
