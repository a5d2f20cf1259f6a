"""A stage launched again has to give the same answer, and another one where its inputs are others."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..devices import Device, Fault
from ..judge.case import Case
from ..model.arrays import Arrays
from ..model.problem import Problem, Size
from ..model.results import Failure, Verdict
from ..model.stage import Stage
from .launching import in_one_memory

REPEAT_EVERY = 5
"""Of so many problems one is solved twice, to see whether the answer is the same."""

MUCH = 10
"""Floating-point operations in one step of `Size.work`, beyond which a problem is no ordinary one of its device."""

LAUNCHES, IN_EMULATOR = 100, 12
"""How often one small problem is solved in the same memory: on a GPU, and in the emulator, which takes longer."""


@dataclass
class Turns:
    """Which problems are solved twice: the first, and one in every few after it.

    An edge case or a large extent may be many times the work of what is drawn: it leaves its turn to the next problem,
    which shows as much, but only so often.
    """

    most_flops: float = math.inf
    _since: int = REPEAT_EVERY

    @classmethod
    def of(cls, size: Size) -> Turns:
        """Those of problems that are drawn of this size."""
        return cls(MUCH * size.work)

    def take(self, problem: Problem) -> bool:
        """Whether the next problem is solved twice."""
        due = self._since >= REPEAT_EVERY and (self._since >= 2 * REPEAT_EVERY or self._ordinary(problem))
        self._since = 1 if due else self._since + 1
        return due

    def _ordinary(self, problem: Problem) -> bool:
        try:
            return self.most_flops == math.inf or problem.cost.flops <= self.most_flops
        except Exception:  # who judges the problem says why
            return True


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
        said = f"when launched again, on these inputs or others: {fault}"
        return Failure(fault.verdict, str(case.problem), said, "", hazards=[*fault.hazards])
    message = (
        f"{stale.message} when launched on other inputs in the same memory, though the launch before was right: the "
        "kernel keeps something from one launch to the next (by address or by shape, or it does its work once); let a "
        "launch depend on its arguments only"
    )
    return dataclasses.replace(stale, verdict=Verdict.STALE, problem=str(case.problem), message=message)


def many(stage: Stage[Any], device: Device, case: Case) -> Failure | None:
    """Solve a case over and over in one memory: what depends on the number of launches or on chance is told by that.

    Every answer has to be right, and the same one unless the stage says that it is not deterministic.
    """
    first: Arrays = {}
    number, cases = 0, [case] * (IN_EMULATOR if device.name == "emulator" else LAUNCHES)
    try:
        for number, after in enumerate(in_one_memory(stage, device, case, cases), 1):
            differs = _difference(case, first, after) if first else None
            if differs or not first:
                wrong, _ = case.judge(after.__getitem__)
                if wrong:
                    verdict = Verdict.STALE if wrong.verdict is Verdict.MISMATCH else wrong.verdict
                    return dataclasses.replace(wrong, verdict=verdict, message=_of_launch(number, wrong.message))
            if differs and stage.deterministic:
                return differs
            first = first or after
    except Fault as fault:
        said = f"in launch {number + 1} on the same inputs: {fault}"
        return Failure(fault.verdict, str(case.problem), said, "", hazards=[*fault.hazards])
    return None


def _of_launch(number: int, message: str) -> str:
    return (
        f"{message} in launch {number} on the same inputs in the same memory, though launches before it were right: "
        "the answer depends on how often the kernel was launched, or on chance (a clock, the number of an SM, which "
        "block is first); let a launch depend on its arguments only"
    )


def _kept(stage: Stage[Any], device: Device, case: Case, other: Case, after: Arrays) -> bool:
    """Whether a launch on other inputs left the answer to those of the case, or wrote none. Raises Fault."""

    def again(refilled: Case) -> Arrays:
        first = dataclasses.replace(case, arrays=refilled.arrays)
        _, after = in_one_memory(stage, device, first, (first, refilled))
        return after

    outputs = (name for name, array in case.arrays.items() if array.output)
    return case.judge(after.__getitem__)[0] is None or any(other.unwritten(n, after, again).any() for n in outputs)


def _difference(case: Case, first: Arrays, second: Arrays) -> Failure | None:
    """Compare the bits of the outputs of two launches on the same inputs."""
    for name, array in case.arrays.items():
        if not array.output:
            continue
        one, other = (array.view(after[name]) for after in (first, second))
        bits = [v.view(f"u{v.itemsize}") for v in (one, other)]
        if (differ := np.argwhere(bits[0] != bits[1])).size:
            at = tuple(int(i) for i in differ[0])
            message = (
                f"{len(differ)} of {one.size} elements of {name} differ when it is launched a second time on the same "
                f"inputs: {name}{list(at)} was {one[at]}, then {other[at]}; let every element be summed in a fixed "
                "order, or declare the stage deterministic=False"
            )
            return Failure(Verdict.NOT_DETERMINISTIC, str(case.problem), message, "")
    return None
