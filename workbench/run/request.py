"""What a session is asked to do, who does its work, what an interrupted one has done of it, and the seed."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from ..catalogue import registry
from ..devices import Device
from ..measure.timing import Effort
from ..model.errors import BadStage, WrongUsage
from ..model.operation import Operation
from ..model.problem import Problem
from ..model.results import HostTiming, Measurement, PeerResult, Run, StageResult
from ..model.stage import Stage
from ..records import store
from ..records.store import Folder
from ..report import derived
from ..workers.cluster import Cluster

ALL = "every problem"
"""Key of `StageResult.untimed` for a reason that holds for the whole suite."""

VARIABLE = "WORKBENCH_SEED"
"""Environment variable for the seed of everything that is given none. No stage is told it."""


class BadSeed(WrongUsage, ValueError):
    """The environment variable `WORKBENCH_SEED` does not hold a seed."""


def asked(seed: int | None) -> int | None:
    """The seed that is asked for, or None. Raises BadSeed."""
    if seed is not None or VARIABLE not in os.environ:
        return seed
    if not (text := os.environ[VARIABLE]).isdecimal():
        raise BadSeed(f"{VARIABLE} is {text!r}; it has to be a whole number from 0 on")
    return int(text)


def chosen(seed: int | None) -> int:
    """The seed that is asked for, else a fresh one of 32 bits. Raises BadSeed."""
    found = asked(seed)
    return secrets.randbits(32) if found is None else found


class Listener(Protocol):
    """Is told how far a stage has come."""

    def verified(self, problems: int) -> None:
        """So many problems of the stage have been verified."""

    def timing(self, label: str) -> None:
        """The problem with this label is being timed."""


class Silent(Listener):
    """Is told, and says nothing."""

    def verified(self, problems: int) -> None: ...
    def timing(self, label: str) -> None: ...


def by_work(operation: Operation[Any]) -> list[Problem]:
    """The suite of an operation, the problem with the most work first: bytes or operations, whichever is its metric."""

    def work(problem: Problem) -> int:
        return problem.cost.bytes if operation.metric == derived.GBPS else problem.cost.flops

    return sorted(operation.suite, key=work, reverse=True)


def takes(stage: Stage[Any], problem: Problem, unsaid: bool = False) -> bool:
    """Whether a stage takes a problem on its machine; `unsaid` for one that cannot say it."""
    try:
        return stage.supports(problem) is None
    except BadStage:
        return unsaid


@dataclass
class Request:
    """`problems` holds those asked for, by operation; none means the usual ones. Where nothing is timed, it is one.

    With a `cluster` its workers solve problems and time: the device is theirs, and what comes out is the same.
    What an interrupted run of the same code in the same environment left in the folder is taken over, unless `fresh`.
    With `keep`, versions of stages that pass are kept, and what fails is tried first the next time. With `rely`, too,
    what passed before just as it is now is not verified again, unless `fresh`. With `any_seed` that may have been with
    another seed, and an interrupted run goes on with its own. Without `resources` nothing is
    assembled to tell what a stage takes of a multiprocessor. With `whole_suite` a stage is timed on every problem of
    the suite, else on the one with the most work that it takes, and on its own problem and those of its children.
    `strict`: a stage with a condition that no problem has tried both ways has failed."""

    device: Device
    examples: int
    seed: int
    timed: bool = False
    problems: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    folder: Folder | None = None
    sanitize: bool = False
    fresh: bool = False
    cluster: Cluster | None = None
    keep: bool = False
    rely: bool = False
    any_seed: bool = False
    resources: bool = True
    whole_suite: bool = False
    strict: bool = False

    def to_time(self, stage: Stage[Any]) -> tuple[Problem, ...]:
        """The problems on which a stage is timed."""
        operation = registry.operation_of(stage)
        if self.whole_suite or operation.name in self.problems:
            return self.suite(operation)
        there = stage.on(self.device.machine)
        usual = [problem for problem in by_work(operation) if takes(there, problem)][:1]
        own = (s.problem for s in operation.stages if stage.name in (s.name, s.parent) and s.problem)
        return tuple(dict.fromkeys((*usual, *(problem for problem in own if takes(there, problem)))))

    def suite(self, operation: Operation[Any]) -> tuple[Problem, ...]:
        """The problems that were asked for, or those of the operation."""
        return self.problems.get(operation.name, operation.suite)

    def only_problem(self, stage: Stage[Any]) -> Problem | None:
        """Where times follow, random problems come first even when only one problem is timed."""
        return None if self.timed or stage.operation not in self.problems else self.problems[stage.operation][0]

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)`, on a worker where there are some."""
        return self.cluster.call(function, *arguments) if self.cluster else function(*arguments)

    def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """`function(*a)` for each of the arguments, in their order: here when asked for, on workers all at once."""
        if self.cluster is None:
            return itertools.starmap(function, arguments)
        futures = [self.cluster.submit(function, *a) for a in arguments]
        return (future.result() for future in futures)


class Interrupted:
    """The results of interrupted runs of the same code in the same environment as `run`."""

    def __init__(self, earlier: list[Run], run: Run) -> None:
        self._run = run
        self._stages = {(s.operation, s.stage): (s, old) for s, old in (store.current(earlier) if earlier else ())}
        self._peers = [peer for old in earlier for peer in old.peers]
        self._host = [timing for old in earlier for timing in old.host]
        self.taken_over = 0
        """Verifications and measurements that were not made again."""

    def result(self, stage: Stage[Any], digest: str) -> StageResult | None:
        """What was found of a stage with this source, on as many problems as the run asks for."""
        found = self.at_any_depth(stage, digest)
        return found if found and not found.verification.examples else None

    def at_any_depth(self, stage: Stage[Any], digest: str) -> StageResult | None:
        """What was found of a stage with this source, on however many problems."""
        result, _ = self._stages.get((stage.operation, stage.name), (None, None))
        return result if result and result.source_sha256 == digest else None

    def take_over(self, stage: Stage[Any]) -> None:
        """Count it; a record has one date, which is that of its oldest figure."""
        _, old = self._stages[stage.operation, stage.name]
        self._run.environment.date = min(self._run.environment.date, old.environment.date)
        self.taken_over += 1

    def measurement(
        self, stage: Stage[Any], problem: Problem, digest: str, binary: Callable[[], str]
    ) -> Measurement | None:
        """The measurement of the same binary on this problem, with the effort of today; it is taken over."""
        before = self.result(stage, digest)
        for measurement in before.measurements if before else ():
            alike = measurement.problem == str(problem) and measurement.effort == asdict(Effort())
            if alike and measurement.binary_sha256 == binary():
                self.take_over(stage)
                return measurement
        return None

    def peer(self, peer: PeerResult, problem: Problem) -> Measurement | None:
        """The measurement of the same version of another implementation, with the effort of today."""
        wanted = (peer.operation, peer.name, peer.version)
        made = (m for p in self._peers if (p.operation, p.name, p.version) == wanted for m in p.measurements)
        return next((m for m in made if m.problem == str(problem) and m.effort == asdict(Effort())), None)

    def host(self, operation: str, problem: Problem) -> HostTiming | None:
        """The time of NumPy on this problem."""
        return next((t for t in self._host if (t.operation, t.problem) == (operation, str(problem))), None)
