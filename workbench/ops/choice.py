"""Which stage solves a problem on a device."""

from __future__ import annotations

from typing import Any

from ..catalogue import registry
from ..model.operation import Operation
from ..model.problem import Problem
from ..model.stage import Stage
from ..records import tuned


def choose(
    operation: str | Operation[Any], problem: Problem, architecture: int, alignment: int = 256, device: str = ""
) -> Stage[Any]:
    """The fastest stage that supports `problem`, with the parameters for its class of problems on the device named.

    Usually that is the stage of the table that ships, else one that the operation prefers, else the last one of the
    ladder. Where it has been tuned on this device, it gets the parameters found, or makes room for another stage that
    was tuned as well and is faster. `alignment` in bytes divides the address of every array. Raises ValueError where no
    stage supports the problem, or those that do cannot be launched for it; the message has the limits.
    """
    found = registry.operations()[operation] if isinstance(operation, str) else operation
    name = found.name
    beyond: dict[str, str] = {}  # what could not be launched, and why

    among = {stage.name for stage in found.stages}

    def takes(stage: Stage[Any]) -> bool:
        if stage.name not in among or stage.supports(problem, architecture) is not None or alignment % stage.alignment:
            return False
        if reason := stage.beyond_limits(problem):
            beyond[stage.name] = reason
        return reason is None

    picked = tuned.hand_picked(device, name, problem)
    names = found.fastest(problem) if callable(found.fastest) else found.fastest
    preferred = [stage for wanted in names for stage in found.stages if stage.name == wanted]
    usual = next(filter(takes, [*([picked] if picked else []), *preferred, *reversed(found.stages)]), None)
    if usual is None:
        limits = "".join(f"; {name}: {reason}" for name, reason in beyond.items())
        raise ValueError(f"no stage of {name} supports {problem.label} on this device{limits}")
    measured = [stage for _, stage in tuned.found(device, name, tuned.problem_class(problem)) if takes(stage)]
    # a time of some other stage alone does not say that it is faster than the usual one
    return measured[0] if usual.name in {stage.name for stage in measured} else usual
