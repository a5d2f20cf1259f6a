"""NVIDIA's compute-sanitizer on a stage: its four tools, and what they find, merged by line of the CUDA source.

`python -m workbench.checks.sanitizer SPEC PROBLEM` is what runs under a tool: it solves the problem once, on the GPU.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.errors import WorkbenchError
from ..model.problem import Problem
from ..model.results import Failure, Verdict, Verification
from ..model.stage import Stage
from ..toolchain.disassembly import toolkit_program

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

SECONDS = 300.0
"""Longest that one tool may take for one problem; it slows a kernel down a hundredfold."""

PROBLEMS = 2
"""Problems of a stage that passed which are looked at."""


class SanitizerUnavailable(WorkbenchError, RuntimeError):
    """compute-sanitizer is not installed; the message says where it comes from."""


@dataclass(frozen=True)
class Report:
    """One thing that a tool reported: its first line, where the kernel was, and the lines that follow."""

    tool: str
    what: str
    file: str
    line: int
    details: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What this is called here."""
        if any("misaligned" in text for text in self.details):
            return Verdict.MISALIGNED
        kinds = (
            ("Race reported", Verdict.RACE),
            ("Potential", Verdict.RACE),
            ("Uninitialized", Verdict.UNINITIALISED),
            ("Barrier error detected. Divergent", Verdict.DIVERGENT_COLLECTIVE),
            ("Barrier error detected. Missing wait", Verdict.MBARRIER_MISUSE),
            ("Barrier error", Verdict.BARRIER_MISUSE),
            ("Illegal instruction", Verdict.TRAP),
            ("Invalid", Verdict.OUT_OF_BOUNDS),
        )
        return next((verdict for text, verdict in kinds if text in self.what), Verdict.ILLEGAL_ACCESS)


def find() -> Path:
    """The path of compute-sanitizer. Raises SanitizerUnavailable."""
    found = toolkit_program("compute-sanitizer")
    if found is None:
        raise SanitizerUnavailable(
            "compute-sanitizer was not found; it comes with the CUDA toolkit (package cuda-sanitizer)"
        )
    return found


PREFIX = "========="
PLACE = re.compile(r"\b(?:at|in) (?:(?:0x[0-9a-f]+|[^\n]*?\+0x[0-9a-f]+) in )?(?P<file>/?[^\s:]+\.cuh?):(?P<line>\d+)")


def parse(tool: str, output: str) -> list[Report]:
    """What a tool printed, as reports; those that name no line of a CUDA source are left out.

    A report begins with a line that is not indented after the prefix `=========`, and has its details indented."""
    found: list[Report] = []
    for block in _blocks(output):
        places = [(match["file"], int(match["line"])) for text in block for match in [PLACE.search(text)] if match]
        if places:
            details = tuple(text.strip() for text in block[1:] if "Host Frame" not in text and "backtrace" not in text)
            what = re.sub(r"^(?:Error|Warning): ", "", block[0].strip())
            found.append(Report(tool, what, *places[0], details))
    return found


def _blocks(output: str) -> Iterable[list[str]]:
    block: list[str] = []
    for line in output.splitlines():
        if not line.startswith(PREFIX):
            continue
        text = line.removeprefix(PREFIX)
        if not text.startswith("  "):  # the first line of a report, or the empty one after its last
            if block:
                yield block
            block = []
        if text.strip():
            block.append(text)
    if block:
        yield block


def merged(reports: Iterable[Report]) -> str:
    """Reports in words, one paragraph a source line, the same thing said once with its count."""
    by_line: dict[tuple[str, int], dict[tuple[str, str], list[Report]]] = {}
    for report in reports:
        by_line.setdefault((report.file, report.line), {}).setdefault((report.tool, report.what), []).append(report)
    parts = []
    for (file, line), said in sorted(by_line.items()):
        parts.append(f"{file}:{line}:{_quoted(file, line)}")
        for (tool, what), same in said.items():
            times = f" ({len(same)} times)" if len(same) > 1 else ""
            parts.append(f"  {tool}: {what}{times}")
            parts += [f"    {detail}" for detail in same[0].details]
    return "\n".join(parts)


def _quoted(file: str, line: int) -> str:
    try:
        return f" {Path(file).read_text().splitlines()[line - 1].strip()}"
    except (OSError, IndexError):
        return ""


def look(stage: Stage[Any], problem: Problem) -> tuple[list[Report], list[str]]:
    """What the tools report of one problem, and why a tool gave no answer. Raises SanitizerUnavailable."""
    found, trouble = [], []
    executable = find()
    for tool in TOOLS:
        target = [sys.executable, "-m", __name__, stage.spec, str(problem)]
        command = [str(executable), "--tool", tool, "--show-backtrace", "device", "--print-limit", "20", *target]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            trouble.append(f"{tool} was not done after {SECONDS:.0f} s")
            continue
        found += parse(tool, done.stdout + done.stderr)
        if "SUMMARY" not in done.stdout + done.stderr:
            trouble.append(f"{tool} gave no summary: {(done.stderr or done.stdout).strip()[-500:]}")
    return found, trouble


def add(stage: Stage[Any], verification: Verification, problems: Iterable[Problem]) -> None:
    """Look at problems of a verified stage; what is found fails a stage that passed, and is told with one that failed.

    Raises SanitizerUnavailable."""
    for problem in problems:
        reports, trouble = look(stage, problem)
        message = "\n".join([*([merged(reports)] if reports else []), *trouble])
        if reports and verification.failure is None:
            replay = f"workbench verify {stage.spec} --device cuda --sanitize --problem '{problem}'"
            verification.verdict = reports[0].verdict
            verification.failure = Failure(reports[0].verdict, str(problem), f"compute-sanitizer:\n{message}", replay)
            return
        if verification.failure:
            said = message or "finds nothing wrong with the same problem"
            verification.failure.message = f"{verification.failure.message.rstrip()}\ncompute-sanitizer: {said}"
            return


def _solve(spec: str, text: str) -> None:
    """Solve a problem once, every array in an allocation of its own that ends where the array does."""
    import cupy

    from .. import harness
    from ..catalogue import registry
    from ..devices.cuda import CudaDevice

    cupy.cuda.set_allocator(None)
    (stage,) = registry.select([spec])
    problem = registry.operation_of(stage).problem.parse(text)
    harness.solve(stage, CudaDevice(bare=True), harness.Case.of(problem))


if __name__ == "__main__":
    _solve(*sys.argv[1:])
