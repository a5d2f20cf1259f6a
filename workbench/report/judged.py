"""Verdicts for programs: what each stage, or a kernel that was emulated, is guilty of, where, and what it is worth."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..catalogue import registry
from ..model.errors import WorkbenchError
from ..model.results import Failure, Hazard, Run, StageResult, Verdict
from ..toolchain.compiler import source_of
from . import derived
from .evidence import failed, unsupported_reasons
from .meanings import VERDICTS

_DIAGNOSTIC = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic |fatal )?error", re.MULTILINE)
"""How NVRTC names a line."""

_KERNEL = re.compile(r"\b__global__\b")


@dataclass
class Judged:
    """The verdict of one stage, or of one kernel that was emulated.

    `code` is a verdict, and `ok` says that it is not a failure. `message` is the evidence as text, and `advice` says
    what to do. `file` (a path from the working directory) and `line` say where the fault is: the line of the hazard or
    of the compiler's error, otherwise the first kernel of the source. They are empty and 0 if no source is to blame.
    `problem` is the smallest problem that fails, and `replay` the command that solves it again. `findings` is what the
    emulator found. `problems` counts the solved problems. `speed_ratio` is the geometric mean, over the timed problems,
    of the vendor's cold median time divided by the stage's. `reward` is 0 unless `code` is `pass`. Then it is
    `speed_ratio`, or 1 without one.
    """

    spec: str
    code: Verdict
    ok: bool
    message: str = ""
    advice: str = ""
    file: str = ""
    line: int = 0
    problem: str = ""
    replay: str = ""
    looks_like: str = ""
    findings: list[Hazard] = field(default_factory=list)
    problems: int = 0
    speed_ratio: float | None = None
    reward: float = 0.0


def of_run(run: Run) -> list[Judged]:
    """The verdicts of the stages of a run, in its order."""
    return [_of_stage(result) for result in run.stages]


def _of_stage(result: StageResult) -> Judged:
    v = result.verification
    spec, failure = f"{result.operation}:{result.stage}", v.failure
    judged = Judged(spec, v.verdict, not failed(v), advice=VERDICTS[v.verdict][1], problems=v.problems)
    if v.verdict is Verdict.PASS:
        judged.advice = ""
        judged.speed_ratio = speed_ratio(result)
        judged.reward = 1.0 if judged.speed_ratio is None else judged.speed_ratio
        return judged
    if failure is None:
        judged.message = unsupported_reasons(v) or "no problem was tried"
        return judged
    judged.message, judged.problem, judged.replay = failure.message.rstrip(), failure.problem, failure.replay
    judged.looks_like = failure.looks_like
    source = _source(spec)
    judged.findings = [_opening(hazard, source) for hazard in failure.hazards]
    judged.file, judged.line = _place(failure, judged.findings, source)
    return judged


def speed_ratio(result: StageResult) -> float | None:
    """How many times as fast as the vendor's library a stage is: the geometric mean over the problems on which both
    were timed, of cold medians; None where there are none."""
    shares = [share for m in result.measurements if (share := derived.share_of_vendor(m))]
    return math.exp(sum(map(math.log, shares)) / len(shares)) if shares else None


def of_findings(spec: str, findings: Sequence[Hazard], message: str, replay: str = "", strict: bool = False) -> Judged:
    """The verdict of a kernel that was emulated by itself: that of its first error, with `strict` else of its first
    strict finding, or that it passed."""
    errors = [hazard for hazard in findings if hazard.severity == "error"]
    errors = errors or [hazard for hazard in findings if strict and hazard.severity == "strict"]
    code = Verdict(errors[0].code) if errors else Verdict.PASS
    judged = Judged(spec, code, not errors, findings=[_opening(hazard, None) for hazard in findings])
    if errors:
        first = judged.findings[findings.index(errors[0])]
        judged.message, judged.advice, judged.replay = message, first.advice, replay
        judged.file, judged.line = first.file, first.line
    else:
        judged.problems, judged.reward = 1, 1.0
    return judged


def of_source(spec: str, code: Verdict, message: str, file: Path) -> Judged:
    """The verdict of a source that cannot be executed: the line is the first that the compiler names."""
    judged = Judged(spec, code, False, message, VERDICTS[code][1], opening(str(file)))
    if match := _DIAGNOSTIC.search(message):
        judged.file, judged.line = opening(match["file"]), int(match["line"])
    elif match := re.match(rf"{re.escape(file.name)}:(\d+): ", message):  # ptxas, or the decoder of PTX
        judged.line = int(match[1])
    return judged


def _place(failure: Failure, hazards: Sequence[Hazard], source: Path | None) -> tuple[str, int]:
    for hazard in hazards:
        if hazard.file:
            return hazard.file, hazard.line
    if failure.verdict is Verdict.COMPILE_ERROR and (match := _DIAGNOSTIC.search(failure.message)):
        return opening(match["file"], source), int(match["line"])
    if source is None or failure.verdict in (Verdict.OPERATION_ERROR, Verdict.WEAK_CHECK, Verdict.TAMPERING):
        return "", 0
    return opening(str(source)), kernel_line(source)


def kernel_line(source: Path) -> int:
    """The line of the first kernel of a source; 1 where there is none, or no source."""
    try:
        lines = source.read_text(errors="replace").splitlines()
    except OSError:
        return 1
    code = (number for number, line in enumerate(lines, 1) if _KERNEL.search(line.partition("//")[0]))
    return next(code, 1)


def _opening(hazard: Hazard, source: Path | None) -> Hazard:
    files = {name: opening(file, source) for name in ("file", "other_file") if (file := getattr(hazard, name))}
    return Hazard(**{**vars(hazard), **files})


def opening(file: str, source: Path | None = None) -> str:
    """The path by which a file of a record opens from the working directory: relative to it where it lies below.

    Records have paths relative to the folder above the sources, which is found by the `source` of the stage.
    """
    path = Path(file)
    if not path.is_absolute() and source is not None:
        above = (folder / path for folder in source.absolute().parents if (folder / path).is_file())
        path = next(above, path)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)


def _source(spec: str) -> Path | None:
    try:
        (stage,) = registry.select((spec,))
        return source_of(stage)
    except (WorkbenchError, ValueError, OSError):
        return None  # a record of a stage that is not there any more
