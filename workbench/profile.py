"""`workbench profile`: what every source line of a stage executes, counted in the emulator."""

from __future__ import annotations

import dataclasses
import linecache
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import registry
from .compiler import compile_source
from .devices.emulated import EmulatedDevice
from .emulator.profile import KINDS, Profile, profile
from .emulator.ptx import SourceLocation
from .harness import Case
from .operation import SOURCES, Problem, Stage

SHORT = dict(
    zip(KINDS, ("global", "shared", "memory", "tensor", "arithmetic", "warp", "barrier", "control"), strict=True)
)


def default_problem(stage: Stage[Any]) -> Problem:
    """The first problem of the timed suite, its sizes halved until it is one for the emulator."""
    operation = registry.operations()[stage.operation]
    problem: Problem = operation.suite[0]
    while math.prod(getattr(problem, name) for name in problem.extents) > operation.emulator_size.work:
        halved = {name: max(1, getattr(problem, name) // 2) for name in problem.extents}
        problem = dataclasses.replace(problem, **halved)
    return problem


def profile_stage(stage: Stage[Any], problem: Problem) -> Profile:
    """Runs the stage's launches in the emulator. Raises CompileError, CompilerUnavailable and Fault for a hazard."""
    compiled = compile_source(stage.path, stage.defines(problem))
    case = Case.of(problem)
    bound = EmulatedDevice().bind(compiled, stage.plan(problem), case.arrays, case.storage(), problem.seed)
    try:
        bound.run()
        found = profile(bound.statistics)
    finally:
        bound.close()
    found.lines = {(_here(file), number): line for (file, number), line in found.lines.items()}
    return found


def _here(file: str) -> str:
    """A source of ours where it lies now: compiled code that is kept may come from another copy of this checkout."""
    parts = Path(file).parts
    if SOURCES.name in parts:
        after = parts[len(parts) - parts[::-1].index(SOURCES.name) :]
        if (SOURCES.joinpath(*after)).is_file():
            return str(SOURCES.joinpath(*after))
    return file


def as_dict(stage: Stage[Any], problem: Problem, found: Profile) -> dict[str, Any]:
    """The profile in types that JSON has."""
    return {
        "spec": stage.spec,
        "problem": str(problem),
        "warp_instructions": found.warp_instructions,
        "by_kind": dict(found.by_kind),
        "lines": [
            {
                "file": _shown(file),
                "line": number,
                "own": line.own.total(),
                "total": line.total.total(),
                "own_by_kind": dict(line.own),
                "total_by_kind": dict(line.total),
                "source": linecache.getline(file, number).rstrip("\n"),
            }
            for (file, number), line in sorted(found.lines.items())
        ],
    }


def annotated(stage: Stage[Any], problem: Problem, found: Profile) -> Iterator[str]:
    """Lines of text: totals, then every source with its counts, the stage's own in full, headers where they ran."""
    everything = found.warp_instructions
    yield f"{stage.spec} on {problem}: {everything:,} warp instructions"
    yield f"  {_kinds(found.by_kind, len(KINDS))}"
    yield "  own: of the line itself, together all; total: with what is inlined into it; share and kinds: of the total"
    source = str(stage.path)
    files = sorted(found.files(), key=lambda file: file != source)
    for file in files:
        counted = {number: line for (name, number), line in found.lines.items() if name == file}
        last = len(linecache.getlines(file))
        numbers = list(range(1, last + 1)) if file == source and last else sorted(counted)
        yield ""
        yield _shown(file)
        yield f"{'own':>13} {'total':>13} {'share':>6}  {'kinds':<34} line"
        before = 0
        for number in numbers:
            if before and number > before + 1:
                yield f"{'':>70} ..."
            before = number
            text = linecache.getline(file, number).rstrip("\n")
            if line := counted.get(number):
                own, total = line.own.total(), line.total.total()
                counts = f"{f'{own:,}' if own else '':>13} {total:>13,} {total / everything:>6.1%}"
                yield f"{counts}  {_kinds(line.total, 2):<34} {number:>4}  {text}".rstrip()
            else:
                yield f"{'':>70}{number:>4}  {text}".rstrip()


def _kinds(counts: Counter[str], most: int) -> str:
    total = counts.total() or 1
    return ", ".join(f"{SHORT[kind]} {count / total:.0%}" for kind, count in counts.most_common(most))


def _shown(file: str) -> str:
    return str(SourceLocation(file, 0, 0)).rpartition(":")[0] if Path(file).is_absolute() else file
