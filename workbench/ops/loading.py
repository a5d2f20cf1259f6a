"""Operations of a project as functions, solved by stages that have been verified."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from ..catalogue import registry
from ..model.calls import Function
from ..model.errors import WrongUsage
from ..model.operation import Operation
from ..model.origin import BUILT_IN
from ..model.results import Run
from ..model.stage import Stage
from .dispatch import Operators
from .inferred import function_of


class Unverified(WrongUsage, ValueError):
    """No stage that may be called has passed verification in its current state; the message says what to do."""


def load(name: str, *, stage: str | None = None, unverified: bool = False) -> Function:
    """An operation of the project, of an installed package or of the workbench, as a function like those here.

    It uses the best of the stages that have passed `workbench verify` in their current state: source, headers,
    parameters and declaration. The best is the stage that `fastest` names, otherwise the fastest that was timed,
    otherwise the last of the ladder. `stage` names the only stage to use. With `unverified`, stages are used that were
    not verified. The stages of the workbench itself are verified with every release.

    Arguments are the inputs in the order of their declaration. Fields that do not follow from them are options. An
    operation may declare another function. A change of the sources has an effect only at the next `load`. Raises
    UnknownSpec for an unknown name, BadProject for a project that cannot be used, and Unverified.

    >>> from workbench import ops
    >>> ops.load("vector_add").operation.name
    'vector_add'"""
    operation, stages = usable(name, stage, unverified)
    if operation.origin == BUILT_IN and operation.called and stage is None:
        return operation.called
    declared = operation.called or function_of(operation)
    limited = dataclasses.replace(operation, stages=list(stages), called=None)
    return Function(operation, declared.build, limited, Operators())


def usable(name: str, stage: str | None, unverified: bool) -> tuple[Operation[Any], Sequence[Stage[Any]]]:
    """An operation and those of its stages that may solve calls, the best one last. Raises what `load` raises."""
    spec = name if stage is None else f"{name}:{stage}"
    stages = registry.select([spec])
    operation = registry.operation_of(stages[0])
    if name != operation.name:
        raise registry.UnknownSpec(f"{name!r} is no operation; there are {', '.join(registry.operations())}")
    if operation.origin == BUILT_IN:
        return operation, [registry.local(s) for s in stages]
    return operation, stages if unverified else _verified(spec, stages)


def _verified(spec: str, stages: Sequence[Stage[Any]]) -> list[Stage[Any]]:
    """The stages that have passed as they are now: those without times as they stand in the ladder, then the others,
    the fastest last. Raises Unverified."""
    from ..run import verifier  # with all that verification needs: calls of other operations load none of it

    found = [(stage, runs) for stage in stages if (runs := verifier.passes(stage))]
    if not found:
        names = ", ".join(stage.spec for stage in stages)
        raise Unverified(
            f"no stage of {spec} has passed verification as it is now ({names}): run `workbench verify {spec}`, or "
            "take what has not passed: unverified=True (in a shell: --unverified)"
        )
    timed = _slowness({stage.name: runs for stage, runs in found})
    order = sorted(found, key=lambda pair: -timed.get(pair[0].name, float("inf")))
    return [stage for stage, _ in order]


def _slowness(runs: dict[str, list[Run]]) -> dict[str, float]:
    """The time of each stage that has been timed by that of the fastest, in the mean over the problems that it shares
    with others, on the same device."""
    times: dict[tuple[str, str], dict[str, float]] = {}
    for name, of_stage in runs.items():
        for run in reversed(of_stage):  # the newest counts
            for m in run.stages[0].measurements:
                times.setdefault((run.device.name, m.problem), {})[name] = statistics.median(m.timing.cold_us)
    shares: dict[str, list[float]] = {}
    for of_problem in times.values():
        for name, us in of_problem.items():
            shares.setdefault(name, []).append(us / min(of_problem.values()))
    return {name: statistics.geometric_mean(found) for name, found in shares.items()}


class Project:
    """The operations of the project around the working directory, by name: `project.rms_norm` is `load("rms_norm")`."""

    def __getattr__(self, name: str) -> Function:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return load(name)
        except registry.UnknownSpec as error:
            raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        return list(registry.loaded().own)
