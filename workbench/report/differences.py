"""Two stages, or versions of them, side by side: sources, instructions, resources, times."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..catalogue import registry
from ..model.errors import WrongUsage
from ..model.problem import Problem
from ..model.results import Measurement
from ..model.stage import Stage
from ..records import restoring, versions
from ..records.versions import Snapshot, Version
from ..toolchain import compiler, disassembly
from ..toolchain.compiler import compile_stage
from . import derived

SASS, PTX = "SASS", "PTX"

DECLARATION = "declaration"
"""Stands for the name of a file."""

_SASS_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[\w:]+)*)")
_PTX_STATEMENT = re.compile(r"(?:[\s{}]|[$\w]+:(?!:))*(?:@!?%?\w+\s+)?([a-z]\w*(?:(?:\.|::)\w+)*)")


class NothingInCommon(WrongUsage, ValueError):
    """Two stages cannot be compared; the message says why."""


def sass_counts(text: str) -> Counter[str]:
    """How often each instruction, with its modifiers, occurs in what nvdisasm or cuobjdump printed."""
    return Counter(_SASS_LINE.findall(text))


def ptx_counts(text: str) -> Counter[str]:
    """How often each instruction, with its modifiers, occurs in PTX; neither predicates nor directives count."""
    code = re.sub(r"//[^\n]*|^\s*\.loc[^\n]*", "", text, flags=re.MULTILINE)
    return Counter(found[1] for statement in code.split(";")[:-1] if (found := _PTX_STATEMENT.match(statement)))


@dataclass(frozen=True)
class Side:
    """A stage as it is, or as a version of it was. `measured` has its newest times, by device and problem."""

    name: str
    stage: Stage[Any]
    snapshot: Snapshot
    measured: dict[tuple[str, str], Measurement]

    @classmethod
    def of(cls, text: str) -> Side:
        """What `SPEC` or `SPEC@N` names. Raises UnknownSpec, VersionsError, OSError."""
        stage, version = versions.named(text)
        if version is None:
            snapshot = Snapshot.of(stage)
            kept = next((v for v in versions.listed(stage) if v.digest == snapshot.digest), None)
            return cls(stage.spec, stage, snapshot, kept.measured() if kept else {})
        return cls(version.spec, restoring.unpacked(stage, version), _snapshot(stage, version), version.measured())

    def texts(self) -> dict[str, list[str]]:
        """The lines of the declaration and of every file; the source is called the same on every side."""
        found = {DECLARATION: self.snapshot.declaration.splitlines()}
        for name, content in self.snapshot.files.items():
            called = "source" if name == self.snapshot.source else name.removeprefix(versions.OURS)
            found[called] = content.decode(errors="replace").splitlines()
        return found

    def resources(self, problem: Problem) -> dict[str, int | float | str]:
        """What the kernels of the compiled variant take, one value a line; several kernels are told apart by name."""
        compiled = compile_stage(self.stage, problem)
        found: dict[str, int | float | str] = {}
        for name, usage in compiled.usage.items():
            of = "" if len(compiled.usage) == 1 else f", {name}"
            found |= {f"{key.replace('_', ' ')}{of}": value for key, value in dataclasses.asdict(usage).items()}
        try:
            launches = compiler.resources(self.stage, problem)
        except KeyError:  # the launches that are declared now are of other kernels
            return found
        for r in launches:
            of = "" if len(launches) == 1 else f", {r.kernel}"
            found |= {f"dynamic shared{of}": r.dynamic_shared, f"threads a block{of}": r.block_threads}
            found |= {f"blocks a multiprocessor{of}": r.blocks_per_sm, f"limited by{of}": r.limiter}
        return found


def parent_of(side: Side) -> str:
    """The SPEC of the parent of a side's stage. Raises NothingInCommon for the first of a track."""
    parent = registry.operation_of(side.stage).parent(side.stage)
    if parent is None:
        of = f" of track {side.stage.track}" if side.stage.track else ""
        raise NothingInCommon(f"{side.stage.spec} is the first{of}, so it has no parent: name what to compare it with")
    return parent.spec


def _snapshot(stage: Stage[Any], version: Version) -> Snapshot:
    files = versions.of(stage).files(version)
    return Snapshot(version.operation, version.stage, version.source, files, version.parameters, version.declaration)


@dataclass(frozen=True)
class Row:
    """One quantity on both sides; None where a side has none."""

    name: str
    before: int | float | str | None
    after: int | float | str | None


@dataclass(frozen=True)
class Times:
    """One problem on both sides, cold medians in microseconds; `gain` is how many times as fast the second is."""

    device: str
    problem: str
    before_us: float | None
    after_us: float | None
    gain: float | None


@dataclass(frozen=True)
class Difference:
    """Everything about two sides, compiled for `problem`; `instructions_of` is SASS or PTX, `source` a unified diff."""

    before: str
    after: str
    problem: str
    source: list[str]
    parameters: list[Row]
    instructions_of: str
    instructions: list[Row]
    resources: list[Row]
    times: list[Times]


def compare(before: Side, after: Side, problem: Problem | None = None) -> Difference:
    """Compare two sides, compiled for `problem` or for the first of the suite that both take.

    Raises NothingInCommon, CompileError and CompilerUnavailable."""
    chosen = _problem(before, after, problem)
    sides = before, after
    compiled = [compile_stage(s.stage, chosen) for s in sides]
    try:
        language, counts = SASS, [sass_counts(disassembly.sass(c.cubin_path)) for c in compiled]
    except disassembly.DisassemblerUnavailable:
        language, counts = PTX, [ptx_counts(c.ptx) for c in compiled]
    resources = [s.resources(chosen) for s in sides]
    return Difference(
        before.name,
        after.name,
        str(chosen),
        _diff(before, after),
        [r for r in _rows([dict(s.snapshot.parameters) for s in sides]) if r.before != r.after],
        language,
        [Row("all", *(c.total() for c in counts)), *_by_change(counts)],
        _rows(resources),
        _times(before, after),
    )


def _problem(before: Side, after: Side, problem: Problem | None) -> Problem:
    if before.stage.operation != after.stage.operation:
        raise NothingInCommon(
            f"{before.name} and {after.name} are of different operations: nothing of them can be compared"
        )
    suite: tuple[Problem, ...] = (problem,) if problem else registry.operation_of(before.stage).suite
    reasons = []
    for one in suite:
        why = next((f"{s.name}: {r}" for s in (before, after) if (r := s.stage.supports(one))), None)
        if why is None:
            return one
        reasons.append(f"{one.label}: {why}")
    raise NothingInCommon(f"there is no problem that both take ({'; '.join(reasons)}); choose one with --problem")


def _diff(before: Side, after: Side) -> list[str]:
    """A unified diff of the declaration, the source and every header that differs."""
    ours, theirs = before.texts(), after.texts()
    found: list[str] = []
    for name in dict.fromkeys((*ours, *theirs)):
        labels = f"{before.name} {name}", f"{after.name} {name}"
        found += difflib.unified_diff(ours.get(name, []), theirs.get(name, []), *labels, lineterm="")
    return found


def _rows(values: list[dict[str, Any]]) -> list[Row]:
    return [Row(name, *(v.get(name) for v in values)) for name in dict.fromkeys((*values[0], *values[1]))]


def _by_change(counts: list[Counter[str]]) -> list[Row]:
    """The instructions whose number differs, the largest difference first."""
    one, other = counts
    names = sorted(set(one) | set(other), key=lambda n: (-abs(one[n] - other[n]), n))
    return [Row(n, one[n], other[n]) for n in names if one[n] != other[n]]


def _times(before: Side, after: Side) -> list[Times]:
    found = []
    for key in dict.fromkeys((*before.measured, *after.measured)):
        one, other = before.measured.get(key), after.measured.get(key)
        gain = derived.gain(one, other) if one and other else None
        label = next(m.label for m in (one, other) if m)
        found.append(Times(key[0], label, _cold(one), _cold(other), gain))
    return found


def _cold(measurement: Measurement | None) -> float | None:
    return derived.median(measurement.timing.cold_us) if measurement else None
