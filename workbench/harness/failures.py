"""Failures that are not of an answer: of a declaration that cannot be used, and of code that changes what judges it."""

from __future__ import annotations

from typing import Any

from ..devices import Device
from ..judge.case import BadBound
from ..model.origin import BadOperation
from ..model.results import Failure, Verdict
from ..model.stage import Stage

ANY = "any"
"""In the place of the problem of a failure that is not of one."""


def unusable(stage: Stage[Any], device: Device, problem: str, error: BadOperation) -> Failure:
    """The failure of an operation whose Python code cannot be used."""
    verdict = Verdict.WEAK_CHECK if isinstance(error, BadBound) else Verdict.OPERATION_ERROR
    return Failure(verdict, problem, str(error), replay_command(stage, device, problem))


def replay_command(stage: Stage[Any], device: Device, problem: str) -> str:
    """The command that solves a problem once more, or, where it is `any`, all of them."""
    chosen = "" if problem == ANY else f" --problem '{problem}'"
    return f"workbench verify {stage.spec} --device {device.name}{chosen}"


def tampering(stage: Stage[Any], changed: list[str]) -> Failure:
    """The failure of a stage that has changed these names."""
    message = (
        f"the Python code of the stage has changed {', '.join(changed)}, which judges or times it; no answer and no "
        "time of this stage can be believed"
    )
    return Failure(Verdict.TAMPERING, "any", message, f"workbench verify {stage.spec}")
