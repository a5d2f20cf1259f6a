"""A stage launched again has to give the same answer, and another one where its inputs are others."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..devices import Device, Fault
from ..judge.case import Case
from ..model.arrays import Arrays
from ..model.results import Failure, Verdict
from ..model.stage import Stage
from .launching import in_one_memory

REPEAT_EVERY = 5
"""Of so many problems one is solved twice, to see whether the answer is the same."""


def repeat(stage: Stage[Any], device: Device, case: Case, first: Arrays) -> Failure | None:
    """Solve a case once more on fresh memory, and then another one with its inputs in the same memory."""
    other = Case.of(dataclasses.replace(case.problem, seed=case.problem.seed + 1))
    try:
        second, third = in_one_memory(stage, device, case, (case, other))
        if stage.deterministic and (failure := _difference(case, first, second)):
            return failure
        stale, _ = other.judge(third.__getitem__)
        if stale is None:
            return None
        if not _kept(stage, device, case, other, third):
            (alone,) = in_one_memory(stage, device, case, (other,))
            wrong, _ = other.judge(alone.__getitem__)
            if wrong:  # without a launch before it, too
                return dataclasses.replace(wrong, problem=str(case.problem))
    except Fault as fault:
        return Failure(fault.verdict, str(case.problem), f"when launched again, on these inputs or others: {fault}", "")
    message = (
        f"{stale.message} when launched on other inputs in the same memory, though the launch before was right: the "
        "kernel keeps something from one launch to the next (by address or by shape, or it does its work once); let a "
        "launch depend on its arguments only"
    )
    return dataclasses.replace(stale, verdict=Verdict.STALE, problem=str(case.problem), message=message)


def _kept(stage: Stage[Any], device: Device, case: Case, other: Case, after: Arrays) -> bool:
    """Whether a launch on other inputs left the answer to those of the case, or wrote none. Raises Fault."""

    def again(refilled: Case) -> Arrays:
        first = dataclasses.replace(case, arrays=refilled.arrays)
        return in_one_memory(stage, device, first, (first, refilled))[1]

    outputs = (name for name, array in case.arrays.items() if array.output)
    return case.judge(after.__getitem__)[0] is None or any(other.unwritten(n, after, again).any() for n in outputs)


def _difference(case: Case, first: Arrays, second: Arrays) -> Failure | None:
    """Compare the bits of the outputs of two launches on the same inputs."""
    for name, array in case.arrays.items():
        if not array.output:
            continue
        one, other = (np.ascontiguousarray(array.view(after[name])) for after in (first, second))
        bits = [v.view(np.uint8).reshape(*v.shape, v.itemsize) for v in (one, other)]
        if (differ := np.argwhere((bits[0] != bits[1]).any(axis=-1))).size:
            at = tuple(int(i) for i in differ[0])
            message = (
                f"{len(differ)} of {one.size} elements of {name} differ when it is launched a second time on the same "
                f"inputs: {name}{list(at)} was {one[at]}, then {other[at]}; let every element be summed in a fixed "
                "order, or declare the stage deterministic=False"
            )
            return Failure(Verdict.NOT_DETERMINISTIC, str(case.problem), message, "")
    return None
