"""Verification with a memory: what failed before is tried first, what passed is kept and need not be verified again."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .. import harness
from ..catalogue import registry
from ..checks import hazards
from ..devices import Device
from ..model import errors
from ..model.problem import Problem, ProblemError, Size
from ..model.results import Run, StageResult, Verification
from ..model.stage import Stage
from ..records import versions
from ..records.store import comparable
from ..report.evidence import NOT_OF_A_PROBLEM

UNKEPT = "versions and failures are not kept: {}"
"""All that is said, once, where the database cannot be used."""


def keep(stage: Stage[Any], before: versions.Snapshot, result: StageResult, run: Run) -> versions.Version | None:
    """Keep a version that has passed; `before` is what it was when it began to be verified.

    None where it has changed since: nobody can tell which of the two passed. A database that cannot be used is a
    warning: what was verified does not depend on it.
    """
    try:
        if stage.code is None and versions.Snapshot.of(stage).digest == before.digest:
            return versions.of(stage).keep(before, replace(run, stages=[result], peers=[], host=[]))
    except OSError as error:
        errors.warn(f"this version was not kept: {error}")
    except versions.VersionsError as error:
        errors.warn(UNKEPT.format(error))
    return None


def passed_before(
    stage: Stage[Any], snapshot: versions.Snapshot, run: Run, any_seed: bool = False
) -> Verification | None:
    """The verification that exactly this has passed, by the same code, on the same device, as `run` would verify it, or
    with another seed where any will do.

    None as well where the stage has failed on any problem since. `date` of what is returned is when it was made.
    """
    with _warned():
        for old in versions.of(stage).passed(snapshot):
            if comparable(old, run, any_seed):
                made = old.stages[0].verification
                made.date = made.date or old.environment.date
                return made
    return None


def passes(stage: Stage[Any]) -> list[Run]:
    """The records of what has passed of exactly this stage, on any device, the newest first.

    None where it has failed on any problem since. Raises OSError where its sources cannot be read, and VersionsError.
    """
    return versions.of(stage).passed(versions.Snapshot.of(stage))


def verify(stage: Stage[Any], device: Device, *, remembers: bool = True, **how: Any) -> Verification:
    """`harness.verify`, on a GPU with a search for hazards beside it. What is verified first, where it `remembers`, are
    the problems that the stage has failed on before; a new one is kept."""
    verified = hazards.beside if device.name == "cuda" else harness.verify
    if not remembers or stage.code is not None:
        return verified(stage, device, **how)
    again = [] if how.get("problem") else failed_before(stage, device)
    outcome = verified(stage, device, again=again, **how)
    failure = outcome.failure
    if failure and failure.verdict not in NOT_OF_A_PROBLEM:
        with _warned():
            versions.of(stage).remember(stage, device.name, failure)
    return outcome


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    try:
        yield
    except versions.VersionsError as error:
        errors.warn(UNKEPT.format(error))


def failed_before(stage: Stage[Any], device: Device) -> list[Problem]:
    """The problems that a stage has failed on, the last one first; for the emulator those of its size."""
    operation, found = registry.operation_of(stage), []
    with _warned():
        for failure in versions.of(stage).failures():
            if failure.spec != stage.spec:
                continue
            try:
                problem = operation.problem.parse(failure.problem)
            except ProblemError:  # problems of the operation are not what they were
                continue
            if failure.device == device.name or device.name != "emulator" or _small(problem, operation.emulator_size):
                found.append(problem)
    return found


def _small(problem: Problem, size: Size) -> bool:
    work: int = math.prod(getattr(problem, name) for name in problem.extents)
    return work <= size.work
