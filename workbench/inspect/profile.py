"""`workbench profile`: what every source line of a stage executes, counted in the emulator."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import linecache
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..catalogue import registry
from ..devices import Fault
from ..devices.emulated import EmulatedDevice
from ..emulator import Statistics, Traced, chrome_trace
from ..emulator.ptx import SourceLocation
from ..emulator.statistics import KINDS, Counts, Line, Profile, profile
from ..harness import Case
from ..model.errors import WrongUsage
from ..model.operation import Operation
from ..model.origin import SOURCES
from ..model.problem import Problem, ProblemError
from ..model.stage import Stage
from ..toolchain.compiler import source_of, translate_stage

SHORT = dict(
    zip(KINDS, ("global", "shared", "memory", "tensor", "arithmetic", "warp", "barrier", "control"), strict=True)
)


def default_problem(stage: Stage[Any]) -> Problem:
    """A small problem that the stage supports: of the timed suite, with extents halved until the emulator can solve it;
    otherwise an edge case. An operation without a suite has a problem of moderate extents instead."""
    operation = registry.operation_of(stage)

    def shrunk(problem: Problem) -> Problem:
        while math.prod(getattr(problem, name) for name in problem.extents) > operation.emulator_size.work:
            before = problem
            for name in problem.extents:
                with contextlib.suppress(ProblemError):
                    problem = dataclasses.replace(problem, **{name: max(1, getattr(problem, name) // 2)})
            if problem == before:
                break
        return problem

    suite = operation.suite or (_moderate(operation),)
    problems: list[Problem] = [*(shrunk(problem) for problem in suite), *stage.edge_cases]
    return next((problem for problem in problems if stage.supports(problem) is None), problems[0])


def _moderate(operation: Operation[Any]) -> Problem:
    """The largest problem whose extents are all 128, 32, 8 or what they are by default, as the operation allows."""
    problem: Problem = operation.problem()
    for extent in (128, 32, 8):
        with contextlib.suppress(ProblemError):
            extents: dict[str, Any] = dict.fromkeys(problem.extents, extent)
            return dataclasses.replace(problem, **extents)
    return problem


def profile_stage(stage: Stage[Any], problem: Problem) -> Profile:
    """Runs the stage's launches in the emulator. Raises CompileError, CompilerUnavailable and Fault for a hazard."""
    compiled = translate_stage(stage, problem)
    case = Case.of(problem)
    bound = EmulatedDevice(counters=True).bind(compiled, stage.plan(problem), case.arrays, case.storage(), problem.seed)
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
    if SOURCES.name in parts and not Path(file).is_file():
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
        "counters": dict(found.counts),
        "lines": [
            {
                "file": _shown(file),
                "line": number,
                "own": line.own.total(),
                "total": line.total.total(),
                "own_by_kind": dict(line.own),
                "total_by_kind": dict(line.total),
                "own_counters": dict(line.own_counts),
                "total_counters": dict(line.total_counts),
                "source": linecache.getline(file, number).rstrip("\n"),
            }
            for (file, number), line in sorted(found.lines.items())
        ],
    }


def annotated(stage: Stage[Any], problem: Problem, found: Profile) -> Iterator[str]:
    """Lines of text: totals, then every source with its counts, the stage's own in full, headers where they ran."""
    yield f"{stage.spec} on {problem}: {found.warp_instructions:,} warp instructions"
    yield from listing(found, str(source_of(stage)))


def listing(found: Profile, source: str) -> Iterator[str]:
    """Totals, the source whose path is `source` in full, and of others the lines that ran. Needs counters."""
    yield f"  {_kinds(found.by_kind)}"
    yield from (f"  {line}" for line in summary(found.counts))
    columns = [c for c in COLUMNS if any(c.cell(line, found) for line in found.lines.values())]
    yield from (f"  {column.name}: {column.meaning}" for column in columns)
    head = " ".join(f"{column.name:>{column.width}}" for column in columns)
    files = sorted(found.files(), key=lambda file: file != source)
    for file in files:
        counted = {number: line for (name, number), line in found.lines.items() if name == file}
        last = len(linecache.getlines(file))
        numbers = list(range(1, last + 1)) if file == source and last else sorted(counted)
        yield ""
        yield _shown(file)
        yield f"{head} line"
        before = 0
        for number in numbers:
            if before and number > before + 1:
                yield f"{'':>{len(head)}}  ..."
            before = number
            text = linecache.getline(file, number).rstrip("\n")
            line = counted.get(number)
            cells = " ".join(f"{c.cell(line, found) if line else '':>{c.width}}" for c in columns)
            yield f"{cells} {number:>4}  {text}".rstrip()


@dataclasses.dataclass(frozen=True)
class Column:
    """What is shown of a line; nothing where it has nothing of the kind."""

    name: str
    width: int
    meaning: str
    cell: Callable[[Line, Profile], str]


def _ratio(what: str, by: str, form: str = ".1f") -> Callable[[Line, Profile], str]:
    def cell(line: Line, _: Profile) -> str:
        below = _sum(line.total_counts, by)
        return format(_sum(line.total_counts, what) / below, form) if below else ""

    return cell


COLUMNS = (
    Column(
        "own",
        11,
        "warp instructions of the line itself",
        lambda line, _: f"{own:,}" if (own := line.own.total()) else "",
    ),
    Column(
        "total",
        11,
        "with those that are inlined into it, as in all that follows",
        lambda line, _: f"{line.total.total():,}",
    ),
    Column("share", 6, "of all", lambda line, found: f"{line.total.total() / found.warp_instructions:.1%}"),
    Column("lanes", 5, "that take part in an instruction", _ratio("thread_instructions", "warp_instructions")),
    Column("sect", 5, "sectors a request of global memory", _ratio(r"global_\w+_sectors", r"global_\w+_requests")),
    Column(
        "wave", 5, "wavefronts a request of shared memory", _ratio(r"shared_\w+_wavefronts", r"shared_\w+_requests")
    ),
    Column(
        "confl",
        5,
        "share of these wavefronts that bank conflicts cost",
        _ratio(r"shared_\w+_conflicts", r"shared_\w+_wavefronts", ".0%"),
    ),
    Column("bulk", 6, "bytes of bulk copies", lambda line, _: short(_sum(line.total_counts, r"bulk_\w+_bytes"))),
    Column("tensor", 6, "operations of tensor cores", lambda line, _: short(line.total_counts["tensor_operations"])),
    Column("waits", 6, "times that a warp had to wait", lambda line, _: short(line.total_counts["blocked_waits"])),
)


def summary(counts: Counts) -> Iterator[str]:
    """Memory by space and direction, tensor operations, divergence and waits, a line of text each."""
    for space, passes in (("global", "sectors"), ("local", "sectors"), ("shared", "wavefronts"), ("bulk", "sectors")):
        for verb in ("load", "store", "atomic", "copy"):
            name = f"{space}_{verb}"
            if requests := counts[f"{name}_requests"]:
                text = (
                    f"{space} {verb}: {requests:,} requests, {counts[f'{name}_{passes}'] / requests:.1f} {passes} each"
                )
                if conflicts := counts[f"{name}_conflicts"]:
                    text += f", of these {conflicts / counts[f'{name}_{passes}']:.0%} for bank conflicts"
                yield f"{text}; {short(counts[f'{name}_bytes'])}B"
    if counts["remote_requests"]:
        yield f"other blocks' shared memory: {counts['remote_requests']:,} requests, {short(counts['remote_bytes'])}B"
    if counts["tensor_operations"]:
        yield f"tensor cores: {counts['tensor_operations']:,} operations"
    for verb in ("load", "store", "copy"):
        if requests := counts[f"tensor_memory_{verb}_requests"]:
            yield f"tensor memory {verb}: {requests:,} requests; {short(counts[f'tensor_memory_{verb}_bytes'])}B"
    if counts["warp_instructions"]:
        lanes = counts["thread_instructions"] / counts["warp_instructions"]
        divergent = f"{counts['divergent_branches']:,} of {counts['branches']:,} branches divergent"
        waits = f"{counts['blocked_waits']:,} of {counts['waits']:,} waits blocked"
        yield f"{lanes:.1f} lanes an instruction; {divergent}; {waits}"


def short(number: float) -> str:
    """Three digits and a decimal prefix; nothing for 0."""
    if not number:
        return ""
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5:
            return f"{number:.3g}{prefix}"
        number /= 1000
    return f"{number:,.0f}P"


def _sum(counts: Counts, pattern: str) -> int:
    return sum(value for name, value in counts.items() if re.fullmatch(pattern, name))


def _kinds(counts: Counter[str]) -> str:
    total = counts.total() or 1
    return ", ".join(f"{SHORT[kind]} {count / total:.0%}" for kind, count in counts.most_common())


def _shown(file: str) -> str:
    return str(SourceLocation(file, 0, 0)).rpartition(":")[0] if Path(file).is_absolute() else file


# ------------------------------------- `workbench trace`: the timeline of a stage's launches, recorded in the emulator


class NoSuchBlock(WrongUsage, ValueError):
    """A block to trace is not in the grid; the message says how many blocks there are."""


def check_blocks(blocks: Sequence[int], count: int) -> None:
    """Raises NoSuchBlock unless a grid of so many blocks has these."""
    if absent := [str(block) for block in blocks if block >= count]:
        raise NoSuchBlock(f"there is no block {' and no block '.join(absent)}: the last one is {count - 1}")


def trace_stage(stage: Stage[Any], problem: Problem, traced: Traced, seed: int) -> tuple[dict[str, Any], Fault | None]:
    """The timeline as a JSON object, and the hazard that ended it.

    Raises CompileError, CompilerUnavailable, NoSuchBlock, and Fault where nothing ran."""
    compiled = translate_stage(stage, problem)
    case = Case.of(problem)
    device = EmulatedDevice(trace=traced)
    bound = device.bind(compiled, stage.plan(problem), case.arrays, case.storage(), seed)
    fault = None
    try:
        bound.run()
    except Fault as hazard:
        if not bound.statistics:
            raise
        fault = hazard
    finally:
        bound.close()
    if fault is None:
        check_blocks(traced.blocks, max(math.prod(s.timeline.grid) for s in bound.statistics if s.timeline))
    return as_json(bound.statistics, f"{stage.spec} on {problem}"), fault


def as_json(statistics: Sequence[Statistics], title: str) -> dict[str, Any]:
    """The JSON object of launches that were traced."""
    return chrome_trace([each.timeline for each in statistics if each.timeline is not None], title)


def save(trace: dict[str, Any], target: Path) -> str:
    """Writes the file; returns what to tell. Raises OSError."""
    target.write_text(json.dumps(trace, separators=(",", ":")))
    slices = sum(event["ph"] == "X" for event in trace["traceEvents"])
    cut = "; more were left out, ask for fewer blocks or more --events" if trace["otherData"]["cut"] else ""
    return f"{target}: {slices:,} slices{cut}; open it with ui.perfetto.dev or chrome://tracing"
