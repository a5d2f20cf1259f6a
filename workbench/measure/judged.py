"""Who judges what was timed: NumPy in this process, or the referee where a problem is large."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ..judge.case import Case
from ..model.problem import Problem
from ..model.results import Failure
from .referee import Referee

Outputs = Mapping[str, Any]
"""The storage of outputs, by name: on the host, or lent by the process that has the device."""

SECRET = secrets.randbits(31)
"""Makes the inputs of what is timed others in each process: whoever wrote a kernel can know the seeds of a suite."""


class _Cases:
    """Remembers the last problem with its reference, on inputs that are this process's own: all stages of a ladder are
    timed on the same ones."""

    def __init__(self) -> None:
        self._cases: dict[Problem, Case] = {}

    def __call__(self, problem: Problem) -> Case:
        if problem not in self._cases:
            if len(self._cases) >= 16:
                self._cases.pop(next(iter(self._cases)))
            self._cases[problem] = Case.of(dataclasses.replace(problem, seed=problem.seed ^ SECRET))
        return self._cases[problem]


_case = _Cases()


def solved(problem: Problem) -> Case:
    """The problem with its inputs and reference, from memory where it was timed lately."""
    return _case(problem)


def constant_inputs(case: Case) -> list[str]:
    """Inputs that hold one value only: arithmetic on them draws less power and is faster."""
    some = {name: values.reshape(-1)[:4096] for name, values in case.inputs.items()}
    return [name for name, values in some.items() if values.size > 16 and (values == values[0]).all()]


class Judge(Protocol):
    """Judges answers to one problem. With `lends` they are lent by the process that has the device. All may raise
    Unprepared."""

    lends: bool

    def constant(self) -> list[str]:
        """The inputs that hold one value only."""

    def inputs(self) -> AbstractContextManager[Outputs]:
        """The storage of the inputs, for the device."""

    def wrong(self, outputs: Outputs) -> Failure | None:
        """What is wrong with an answer."""

    def said(self) -> str:
        """How answers are judged, where that is not the whole answer by NumPy."""


class HostJudge:
    """NumPy, in this process."""

    lends = False

    def __init__(self, case: Case) -> None:
        self._case = case

    def constant(self) -> list[str]:
        return constant_inputs(self._case)

    @contextlib.contextmanager
    def inputs(self) -> Iterator[Outputs]:
        yield self._case.storage()

    def wrong(self, outputs: Outputs) -> Failure | None:
        """The same answer, such as that of a library beside every stage of a ladder, is judged once."""
        digest = hashlib.sha256()
        for name in sorted(outputs):
            digest.update(outputs[name].view(np.uint8).data)
        said, key = _said.setdefault(self._case.problem, {}), digest.digest()
        if key not in said:
            said[key] = self._case.judge(outputs.__getitem__)[0]
        return said[key]

    def said(self) -> str:
        return ""


_said: dict[Problem, dict[bytes, Failure | None]] = {}
"""What was said of answers to a problem, by their digests."""


class RefereeJudge:
    """The referee, in its own process."""

    lends = True

    def __init__(self, referee: Referee, problem: Problem) -> None:
        self._referee, self._problem = referee, problem

    def constant(self) -> list[str]:
        return self._referee.constant(self._problem)

    def inputs(self) -> AbstractContextManager[Outputs]:
        return self._referee.inputs(self._problem)

    def wrong(self, outputs: Outputs) -> Failure | None:
        return self._referee.judge(self._problem, outputs)

    def said(self) -> str:
        return self._referee.said(self._problem)
