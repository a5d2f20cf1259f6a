"""Verdicts for programs: what a kernel is guilty of, where, and what it is worth. `judged_runs` has those of stages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..model.results import Hazard, Untested, Verdict
from .meanings import VERDICTS

DIAGNOSTIC = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic |fatal )?error", re.MULTILINE)
"""How NVRTC names a line."""

_KERNEL = re.compile(r"\b__global__\b")


@dataclass
class Judged:
    """The verdict of one stage, or of one kernel that was emulated.

    `code` is a verdict, and `ok` says that it is not a failure. `message` is the evidence as text, and `advice` says
    what to do. `file` (a path from the working directory) and `line` say where the fault is: the line of the hazard or
    of the compiler's error, otherwise the first kernel of the source. They are empty and 0 if no source is to blame.
    `problem` is the smallest problem that fails, and `replay` the command that solves it again. `findings` is what the
    emulator found. `problems` counts the solved problems, and `refused` is the share of the drawn problems that the
    stage does not take. `speed_ratio` is the geometric mean, over the timed problems, of the vendor's cold median time
    divided by the stage's. `reward` is 0 unless `code` is `pass`. Then it is `speed_ratio`, or 1 without one, times the
    share of the problems that are not refused. `untested` are conditions of the kernels that came out one way in all
    problems."""

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
    refused: float = 0.0
    speed_ratio: float | None = None
    reward: float = 0.0
    untested: list[Untested] = field(default_factory=list)


def of_findings(spec: str, findings: Sequence[Hazard], message: str, replay: str = "", strict: bool = False) -> Judged:
    """The verdict of a kernel that was emulated by itself: that of its first error, with `strict` else of its first
    strict finding, or that it passed."""
    errors = [hazard for hazard in findings if hazard.severity == "error"]
    errors = errors or [hazard for hazard in findings if strict and hazard.severity == "strict"]
    code = Verdict(errors[0].code) if errors else Verdict.PASS
    judged = Judged(spec, code, not errors, findings=[opening_hazard(hazard, None) for hazard in findings])
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
    if match := DIAGNOSTIC.search(message):
        judged.file, judged.line = opening(match["file"]), int(match["line"])
    elif match := re.match(rf"{re.escape(file.name)}:(\d+): ", message):  # ptxas, or the decoder of PTX
        judged.line = int(match[1])
    return judged


def kernel_line(source: Path) -> int:
    """The line of the first kernel of a source; 1 where there is none, or no source."""
    try:
        lines = source.read_text(errors="replace").splitlines()
    except OSError:
        return 1
    code = (number for number, line in enumerate(lines, 1) if _KERNEL.search(line.partition("//")[0]))
    return next(code, 1)


def opening_hazard(hazard: Hazard, source: Path | None) -> Hazard:
    """The finding with paths that open from the working directory."""
    files = {name: opening(file, source) for name in ("file", "other_file") if (file := getattr(hazard, name))}
    return Hazard(**{**vars(hazard), **files})


def opening(file: str, source: Path | None = None) -> str:
    """The path by which a file of a record opens from the working directory: relative to it where it lies below.

    Records have paths relative to the folder above the sources, which is found by the `source` of the stage."""
    path = Path(file)
    if not path.is_absolute() and source is not None:
        above = (folder / path for folder in source.absolute().parents if (folder / path).is_file())
        path = next(above, path)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)
