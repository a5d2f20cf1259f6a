"""Verdicts for programs, of the stages of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..catalogue import registry
from ..model.errors import WorkbenchError
from ..model.results import Failure, Hazard, Run, StageResult, Untested, Verdict
from ..toolchain.compiler import source_of
from . import derived
from .evidence import failed, unsupported_reasons
from .judged import DIAGNOSTIC, Judged, kernel_line, opening, opening_hazard
from .meanings import VERDICTS


def of_run(run: Run) -> list[Judged]:
    """The verdicts of the stages of a run, in its order."""
    return [_of_stage(result) for result in run.stages]


def _of_stage(result: StageResult) -> Judged:
    v = result.verification
    spec, failure = f"{result.operation}:{result.stage}", v.failure
    judged = Judged(spec, v.verdict, not failed(v), advice=VERDICTS[v.verdict][1], problems=v.problems)
    source = _source(spec) if failure or v.untested else None
    judged.untested = [replace(one, file=opening(one.file, source)) for one in v.untested]
    if v.verdict is Verdict.PASS:
        judged.advice = ""
        judged.speed_ratio = speed_ratio(result)
        judged.refused = round(v.refused, 4)
        judged.reward = (1.0 if judged.speed_ratio is None else judged.speed_ratio) * (1 - judged.refused)
        return judged
    if failure is None:
        judged.message = unsupported_reasons(v) or "no problem was tried"
        return judged
    judged.message, judged.problem, judged.replay = failure.message.rstrip(), failure.problem, failure.replay
    judged.looks_like = failure.looks_like
    judged.findings = [opening_hazard(hazard, source) for hazard in failure.hazards]
    judged.file, judged.line = _place(failure, judged.findings, judged.untested, source)
    return judged


def speed_ratio(result: StageResult) -> float | None:
    """How many times as fast as the vendor's library a stage is: the geometric mean over the problems on which both
    were timed, of cold medians; None where there are none."""
    shares = [share for m in result.measurements if (share := derived.share_of_vendor(m))]
    return math.exp(sum(map(math.log, shares)) / len(shares)) if shares else None


def _place(
    failure: Failure, hazards: Sequence[Hazard], untested: Sequence[Untested], source: Path | None
) -> tuple[str, int]:
    for hazard in hazards:
        if hazard.file:
            return hazard.file, hazard.line
    if failure.verdict is Verdict.UNTESTED:
        first = next(one for one in untested if not one.is_bound)
        return first.file, first.line
    if failure.verdict is Verdict.COMPILE_ERROR and (match := DIAGNOSTIC.search(failure.message)):
        return opening(match["file"], source), int(match["line"])
    if source is None or failure.verdict in (Verdict.OPERATION_ERROR, Verdict.WEAK_CHECK, Verdict.TAMPERING):
        return "", 0
    return opening(str(source)), kernel_line(source)


def _source(spec: str) -> Path | None:
    try:
        (stage,) = registry.select((spec,))
        return source_of(stage)
    except (WorkbenchError, ValueError, OSError):
        return None  # a record of a stage that is not there any more
