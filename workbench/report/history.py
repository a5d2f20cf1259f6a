"""A stage over time: its versions that are kept, and over commits: what git has of the results in a report folder."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..model.results import Measurement, ResultsError, Run, StageResult
from ..records import environment, store
from ..records.versions import Version
from . import changes, derived
from .derived import duration, percent

HEADERS = ("date", "commit", "cold", "sustained", "of vendor", "change", "")

VERSIONS = (
    "version",
    "date",
    "commit",
    "verified",
    "on",
    "registers",
    "problem",
    "cold",
    "sustained",
    "of vendor",
    "gain",
)
"""Of the table of versions; gain is over the version before that was timed on the problem on the same device."""


def version_cells(versions: Sequence[Version], label: str | None = None) -> list[tuple[str, ...]]:
    """The versions of a stage as rows under `VERSIONS`: one for each problem timed, or only for that with `label`."""
    rows: list[tuple[str, ...]] = []
    before: dict[tuple[str, str], Measurement] = {}
    for version in sorted(versions, key=lambda v: v.used):
        if not version.passed:
            rows.append((f"@{version.number}", version.date[:16].replace("T", " "), "", "not verified", *[""] * 7))
        for run in version.shown():
            result = run.stages[0]
            head = (
                f"@{version.number}",
                run.environment.date[:16].replace("T", " "),
                commit_of(run),
                f"{(n := result.verification.problems)} problem{'' if n == 1 else 's'}",
                run.device.name,
                " ".join(dict.fromkeys(str(r.registers) for r in result.resources)) or "-",
            )
            for m in result.measurements:
                if label in (None, m.label):
                    earlier = before.get((run.device.name, m.problem))
                    gain = f"{derived.gain(earlier, m):.2f}x" if earlier else "-"
                    rows.append((*head, m.label, *times(m), gain))
                    head = ("",) * 6
            if any(head):
                rows.append((*head, *["-"] * 5))
        before |= {(run.device.name, m.problem): m for run in version.runs for m in run.stages[0].measurements}
    return rows


def version_dict(version: Version) -> dict[str, Any]:
    """A version for JSON, with the records of what was found of it."""
    return {
        "version": version.spec,
        "date": version.date,
        "digest": version.digest,
        "parameters": dict(version.parameters),
        "passed": version.passed,
        "runs": [asdict(run) for run in version.runs],
    }


def commit_of(run: Run) -> str:
    """The commit of a run, shortened; a star stands for uncommitted changes."""
    return run.environment.commit[:12] + ("*" if run.environment.dirty else "")


def times(measurement: Measurement) -> tuple[str, str, str]:
    """Cold and sustained median, and the share of the vendor's."""
    timing = measurement.timing
    return (
        duration(derived.median(timing.cold_us)),
        duration(derived.median(timing.sustained_us)) if timing.sustained_us else "-",
        percent(derived.share_of_vendor(measurement)),
    )


@dataclass(frozen=True)
class Point:
    """One measurement of a stage on a problem; `change` is that of its cold time since the point before."""

    run: Run
    measurement: Measurement
    change: changes.Change | None

    @property
    def commit(self) -> str:
        """The commit that was measured, shortened; a star stands for uncommitted changes."""
        return commit_of(self.run)

    def cells(self) -> tuple[str, ...]:
        """The point as a row under `HEADERS`."""
        return (
            self.run.environment.date[:16].replace("T", " "),
            self.commit,
            *times(self.measurement),
            str(self.change.used) if self.change else "-",
            self.change.outcome if self.change else "-",
        )

    def as_dict(self) -> dict[str, Any]:
        """The point for JSON; times are medians in microseconds."""
        made, timing = self.run.environment, self.measurement.timing
        return {
            "date": made.date,
            "commit": made.commit,
            "dirty": made.dirty,
            "cold_us": derived.median(timing.cold_us),
            "sustained_us": derived.median(timing.sustained_us) if timing.sustained_us else None,
            "of_vendor": derived.share_of_vendor(self.measurement),
            "change": self.change.used.estimate if self.change else None,
            "outcome": self.change.outcome if self.change else None,
        }


@dataclass
class Line:
    """One stage on one problem, oldest measurement first."""

    operation: str
    stage: str
    label: str
    points: list[Point] = field(default_factory=list)

    @property
    def name(self) -> str:
        """`gemm:naive 1024x1024x1024 bf16 nt`."""
        return f"{self.operation}:{self.stage} {self.label}"


def records(where: str) -> tuple[list[list[Run]], list[str]]:
    """Every state of a device's folder, oldest first, the present one last; and what could not be read, and why.

    `where` is the folder, or one of reports with one device in it. Raises ResultsError where it has no results."""
    folder = store.folder(Path(where))
    found: list[list[Run]] = []
    unread: list[str] = []
    prefix = environment.ask_git(folder, "rev-parse", "--show-prefix")
    commits = environment.ask_git(folder, "log", "--reverse", "--format=%H", "--", ".") or ""
    for commit in commits.split():
        try:
            found.append(store.committed(folder, commit, (prefix or "").strip().rstrip("/")))
        except ResultsError as error:
            unread.append(str(error))
    return [*found, store.load(folder)], unread


def lines(states: Sequence[Sequence[Run]], wanted: Callable[[StageResult, Measurement], bool]) -> list[Line]:
    """The measurements that are wanted, over all states of a folder. A measurement that stays is one point.

    Raises StatisticsUnavailable without SciPy."""
    made: dict[changes.Key, Line] = {}
    latest: dict[changes.Key, int] = {}
    operations = {s.operation for runs in states for run in runs for s in run.stages if any(_chosen(s, wanted))}
    states = [_only(runs, operations) for runs in states]

    @cache
    def since(one: int, other: int) -> dict[changes.Key, changes.Change]:
        try:
            found = changes.compare(states[one], states[other]).changes
        except changes.Incomparable:
            return {}
        return {c.key: c for c in found if c.kind == changes.COLD}

    for number, runs in enumerate(states):
        for stage, run in store.current(runs):
            for m in _chosen(stage, wanted):
                key = (stage.operation, stage.stage, m.problem)
                line = made.setdefault(key, Line(stage.operation, stage.stage, m.label))
                before = line.points[-1] if line.points else None
                if before and before.measurement == m and before.run.environment == run.environment:
                    continue
                change = since(latest[key], number).get(key) if before else None
                line.points.append(Point(run, m, change))
                latest[key] = number
    order = list(dict.fromkeys((x.operation, x.stage) for x in made.values()))
    return sorted(made.values(), key=lambda x: (_first(order, x.operation), order.index((x.operation, x.stage))))


def near_labels(states: Sequence[Sequence[Run]], stages: set[tuple[str, str]], labels: Sequence[str]) -> list[str]:
    """The problems with times of these stages (operation and name), those most like `labels` first, three at most."""
    timed = dict.fromkeys(
        m.label
        for runs in states
        for run in runs
        for s in run.stages
        if (s.operation, s.stage) in stages
        for m in s.measurements
    )
    near = (x for label in labels for x in difflib.get_close_matches(label, timed, 3))
    return list(dict.fromkeys([*near, *timed]))[:3]


def _first(order: Sequence[tuple[str, str]], operation: str) -> int:
    return next(i for i, (name, _) in enumerate(order) if name == operation)


def _chosen(stage: StageResult, wanted: Callable[[StageResult, Measurement], bool]) -> Iterator[Measurement]:
    return (m for m in stage.measurements if wanted(stage, m))


def _only(runs: Sequence[Run], operations: set[str]) -> list[Run]:
    """The runs with nothing but these operations: drift is that of an operation, and the rest costs time."""
    return [replace(run, stages=[s for s in run.stages if s.operation in operations]) for run in runs]
