"""What tuning has found, by device, stage and class of problem: a database of this user's or a project's, and a table
that ships.

A class holds the problems of an operation that agree in everything but padding, tier, seed and the exact extents: these
are rounded up to powers of two. Up, because tiles are counted up: 65 to 128 rows are one tile of 128, and 129 are two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..catalogue import registry
from ..model import errors
from ..model.errors import WorkbenchError
from ..model.problem import Problem
from ..model.stage import Stage
from ..toolchain.compiler import cache_folder, source_digest, source_of
from .versions import DatabaseError, OtherVersion, marks, transaction

SHIPPED = Path(__file__).parent / "tuned.json"
"""The hand-picked table: device -> operation -> class of problems -> stage and the parameters that it is to have."""

FILE = "tuned.sqlite3"
"""The database: in this user's cache, or beside the reports of a project."""

VERSION = 1
"""Of the database's tables."""

TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    device TEXT, operation TEXT, stage TEXT, source TEXT, class TEXT, problem TEXT, parameters TEXT, us REAL,
    default_us REAL, vendor_us REAL, flops INTEGER, settled INTEGER, date TEXT,
    PRIMARY KEY (device, operation, stage, source, class));
CREATE TABLE IF NOT EXISTS trials (
    device TEXT, operation TEXT, stage TEXT, source TEXT, class TEXT, problem TEXT, parameters TEXT, us REAL,
    relative REAL, reason TEXT, date TEXT,
    PRIMARY KEY (device, operation, stage, source, class, parameters));
"""


class TableError(WorkbenchError, RuntimeError):
    """The database of tuning results cannot be read or written; the message says which file, and what to do."""


class TuningError(WorkbenchError, RuntimeError):
    """There is nothing to tune, or the package that tunes is missing; the message says which."""


@dataclass(frozen=True)
class Key:
    """What was tuned: `device` by its full name, `source` the digest of the stage's CUDA source and headers."""

    device: str
    operation: str
    stage: str
    source: str
    problem_class: str

    @classmethod
    def of(cls, device: str, stage: Stage[Any], problem: Problem) -> Key:
        """The key of a stage as its source is now. Raises OSError when that cannot be read."""
        return cls(device, stage.operation, stage.name, source_digest(source_of(stage)), problem_class(problem))


@dataclass(frozen=True)
class Trial:
    """One configuration that was tried. `us` is the cold median in microseconds, `relative` that by the one of the
    declared parameters, measured interleaved with it; both None where it was not timed, for the `reason`."""

    parameters: Mapping[str, int]
    us: float | None = None
    relative: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """The best configuration for a class, found on `problem`, with cold medians in microseconds.

    `settled`: it has won the final round, and was verified again after it was timed; otherwise it is the best so far
    of a search that was cut short. `flops` are those of the problem."""

    key: Key
    problem: str
    parameters: Mapping[str, int]
    us: float
    default_us: float
    vendor_us: float | None
    flops: int
    settled: bool
    date: str = field(default="", compare=False)


def problem_class(problem: Problem) -> str:
    """The class of a problem in the text form of problems: `m=4096,n=4096,k=512,dtype=bf16,out=bf16,layout=nt`."""
    up = {name: 1 << (getattr(problem, name) - 1).bit_length() for name in problem.extents}
    words = {name: problem.text(name) for name in problem.words()}
    return ",".join(f"{name}={value}" for name, value in {**up, **words}.items())


class Table:
    """The database, a file that every process may write to at any time. Each call is one transaction, so that nothing
    is lost when a process is killed. Raises TableError."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_folder() / FILE

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with transaction(self.path, TABLES, VERSION) as connection:
                yield connection
        except OtherVersion as error:
            raise TableError(f"{error}: remove it") from None
        except DatabaseError as error:
            raise TableError(
                f"the table of tuned parameters {self.path} cannot be used ({error}); remove it, or set "
                "WORKBENCH_CACHE to a folder that can be written"
            ) from None

    def add_trial(self, key: Key, problem: Problem, trial: Trial, date: str) -> None:
        """Record a configuration that was tried, instead of an earlier try of it."""
        values = (*dataclasses.astuple(key), str(problem), _text(trial.parameters), trial.us, trial.relative)
        with self._open() as connection:
            connection.execute(f"INSERT OR REPLACE INTO trials VALUES ({marks(11)})", (*values, trial.reason, date))

    def add(self, entry: Entry) -> None:
        """Record a best configuration, unless that would put a provisional one in the place of a settled one."""
        values = (*dataclasses.astuple(entry.key), entry.problem, _text(entry.parameters), entry.us, entry.default_us)
        with self._open() as connection:
            connection.execute(
                f"INSERT INTO entries VALUES ({marks(13)}) ON CONFLICT DO UPDATE SET problem = excluded.problem, "
                "parameters = excluded.parameters, us = excluded.us, default_us = excluded.default_us, "
                "vendor_us = excluded.vendor_us, flops = excluded.flops, settled = excluded.settled, "
                "date = excluded.date WHERE excluded.settled >= entries.settled",
                (*values, entry.vendor_us, entry.flops, entry.settled, entry.date),
            )

    def forget(self, key: Key) -> None:
        """Remove all that is known of a key."""
        with self._open() as connection:
            for table in ("entries", "trials"):
                connection.execute(
                    f"DELETE FROM {table} WHERE (device, operation, stage, source, class) = ({marks(5)})",
                    dataclasses.astuple(key),
                )

    def entries(self) -> list[Entry]:
        """Every best configuration, of all devices and of sources that may have changed since."""
        if not self.path.exists():
            return []
        with self._open() as connection:
            rows = connection.execute("SELECT * FROM entries ORDER BY device, operation, stage, class").fetchall()
        return [
            Entry(Key(*key), problem, json.loads(parameters), us, default_us, vendor_us, flops, bool(settled), date)
            for *key, problem, parameters, us, default_us, vendor_us, flops, settled, date in rows
        ]

    def trials(self, key: Key) -> list[Trial]:
        """What was tried, the fastest first and what was not timed last."""
        if not self.path.exists():
            return []
        with self._open() as connection:
            rows = connection.execute(
                "SELECT parameters, us, relative, reason FROM trials WHERE (device, operation, stage, source, class) "
                f"= ({marks(5)}) ORDER BY relative IS NULL, relative",
                dataclasses.astuple(key),
            ).fetchall()
        return [Trial(json.loads(row[0]), *row[1:]) for row in rows]


def table_for(stages: Sequence[Stage[Any]]) -> Table:
    """The table of the project where all of the stages are its own, else this user's, which `workbench.ops` reads."""
    found = registry.loaded()
    if found.project and all(s.operation in found.own for s in stages):
        return Table(found.project.reports / FILE)
    return Table()


def _text(parameters: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(parameters.items())))


@cache
def shipped() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """The table that ships, as `SHIPPED` describes it."""
    table: dict[str, dict[str, dict[str, dict[str, Any]]]] = json.loads(SHIPPED.read_text())
    return table


def hand_picked(device: str, operation: str, problem: Problem) -> Stage[Any] | None:
    """The stage that the shipped table names for a problem on a device, with its parameters; None where it has none.

    The table is about the largest problems of classes, which were timed: what is best for 1024^3 of fp32 took 76 us for
    1000x611x784 on an H200, and the stage that is predicted to be the fastest 50 on an H100."""
    if any(getattr(problem, name).bit_count() != 1 for name in problem.extents):  # not the largest of its class
        return None
    choice = shipped().get(device, {}).get(operation, {}).get(problem_class(problem))
    return None if choice is None else _configured(operation, choice["stage"], choice["parameters"])


@lru_cache(maxsize=4096)
def found(device: str, operation: str, of_class: str) -> tuple[tuple[float, Stage[Any]], ...]:
    """The stages tuned on this device for a class of problems: seconds a million operations, and the stage with the
    parameters found, fastest first. Stages whose source has changed since are left out, and without a table that can
    be read there is a warning and none."""
    try:
        entries = Table().entries()
    except TableError as error:
        errors.warn(str(error))
        return ()
    stages = []
    for entry in entries:
        key = entry.key
        if (key.device, key.operation, key.problem_class) == (device, operation, of_class) and is_current(entry):
            stage = _configured(operation, key.stage, entry.parameters)
            if stage is not None:
                stages.append((entry.us / entry.flops, stage))
    return tuple(sorted(stages, key=lambda pair: pair[0]))


def is_current(entry: Entry) -> bool:
    """Whether the stage is still there and its source is what it was when it was tuned."""
    stage = _configured(entry.key.operation, entry.key.stage, entry.parameters)
    with contextlib.suppress(OSError):
        return stage is not None and source_digest(source_of(stage)) == entry.key.source
    return False


def _configured(operation: str, name: str, parameters: Mapping[str, int]) -> Stage[Any] | None:
    """A stage with these parameters, None where there is no such stage or it has no such parameters."""
    known = registry.operations().get(operation)
    for stage in known.stages if known else ():
        if stage.name == name and set(parameters) <= set(stage.parameters):
            return stage.with_parameters(parameters)
    return None


@dataclass(frozen=True)
class Listed:
    """A line of `workbench tune --show`: `entry` is None where the choice is the shipped table's."""

    device: str
    spec: str
    problem_class: str
    parameters: Mapping[str, int]
    state: str
    entry: Entry | None = None


def listing(table: Table, stages: Sequence[Stage[Any]]) -> list[Listed]:
    """What is known of these stages: what was tuned here, then what ships. Raises TableError."""
    specs = {s.spec for s in stages}
    lines = []
    for entry in table.entries():
        key = entry.key
        state = "settled" if entry.settled else "provisional"
        spec, parameters = f"{key.operation}:{key.stage}", entry.parameters
        state = state if is_current(entry) else "the source has changed since"
        lines.append(Listed(key.device, spec, key.problem_class, parameters, state, entry))
    for device, operations in shipped().items():
        for operation, classes in operations.items():
            for of_class, choice in classes.items():
                spec = f"{operation}:{choice['stage']}"
                lines.append(Listed(device, spec, of_class, choice["parameters"], "shipped"))
    return [line for line in lines if line.spec in specs]


def as_dict(table: Table, stages: Sequence[Stage[Any]]) -> list[dict[str, Any]]:
    """`listing` for JSON, with every trial of what was tuned here. Raises TableError."""
    return [
        {
            **dataclasses.asdict(line),
            "trials": [dataclasses.asdict(t) for t in table.trials(line.entry.key)] if line.entry else [],
        }
        for line in listing(table, stages)
    ]
