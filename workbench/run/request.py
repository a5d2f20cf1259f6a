"""What a session is asked to do, and who does its work; the seed from which problems are drawn."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..catalogue import registry
from ..devices import Device
from ..model.errors import WrongUsage
from ..model.operation import Operation
from ..model.origin import BadStage
from ..model.problem import Problem
from ..model.stage import Stage
from ..records.store import Folder
from ..report import derived
from ..workers.cluster import Cluster

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


def by_work(operation: Operation[Any]) -> list[Problem]:
    """The suite of an operation, the problem with the most work first: bytes or operations, whichever is its metric."""

    def work(problem: Problem) -> int:
        return problem.cost.bytes if operation.metric == derived.GBPS else problem.cost.flops

    return sorted(operation.suite, key=work, reverse=True)


def takes(stage: Stage[Any], problem: Problem, architecture: int, unsaid: bool = False) -> bool:
    """Whether a stage takes a problem; `unsaid` for one that cannot say it."""
    try:
        return stage.supports(problem, architecture) is None
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
    the suite, else on the one with the most work that it takes.
    """

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

    def to_time(self, stage: Stage[Any]) -> tuple[Problem, ...]:
        """The problems on which a stage is timed."""
        operation = registry.operation_of(stage)
        if self.whole_suite or operation.name in self.problems:
            return self.suite(operation)
        architecture = self.device.architecture
        return tuple([problem for problem in by_work(operation) if takes(stage, problem, architecture)][:1])

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
