"""Every version of a stage that passed, and every problem that a stage ever failed on.

A version is the source with the headers it includes, the parameters, and the text of the declaration, known by the
digest of all that; what was found of it, with times where there are any, is kept beside it as the record of a run. All
of it is in one database, of the project or of this user: a change is made as a whole or not at all, whatever ends the
process that makes it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..catalogue import registry
from ..model.errors import WorkbenchError, text_of
from ..model.launch import H200
from ..model.problem import Problem
from ..model.results import Failure, Measurement, ResultsError, Run
from ..model.stage import Stage
from ..sandbox import integrity, plain
from ..toolchain.compiler import INCLUDE, cache_folder, contents, source_of, sources_of
from .environment import now, project_files
from .store import comparable


class DatabaseError(WorkbenchError, RuntimeError):
    """The file cannot be read or written; the message says why."""


class Damaged(DatabaseError):
    """The file is not a database, or it is damaged."""


class Foreign(DatabaseError):
    """The tables have other columns than expected: the file belongs to another program."""


class OtherVersion(DatabaseError):
    """The file was written by another version of the workbench."""


@contextlib.contextmanager
def transaction(path: Path, tables: str, version: int, *, alone: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection whose changes are all made at the end, or none of them where the body raises.

    A file that is new gets `tables` (CREATE TABLE IF NOT EXISTS ...), and gives back to the disk what is deleted in it.
    `alone`: nobody else writes from the beginning on, which is needed where what is written depends on what was read.
    Raises DatabaseError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            if _schema_version(connection) == 0:
                connection.executescript(
                    f"PRAGMA auto_vacuum = FULL; BEGIN IMMEDIATE; {tables} PRAGMA user_version = {version}; COMMIT;"
                )
            if _schema_version(connection) != version:
                raise OtherVersion(f"{path} was written by another version of the workbench")
            connection.execute("BEGIN IMMEDIATE" if alone else "BEGIN")
            yield connection
            connection.execute("COMMIT")  # without it, to close is to roll back
        finally:
            connection.close()
    except (sqlite3.OperationalError, OSError) as error:
        other_columns = "no such column" in str(error) or "has no column" in str(error)
        raise (Foreign if other_columns else DatabaseError)(str(error)) from None
    except sqlite3.Error as error:
        raise Damaged(str(error)) from None


def _schema_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def marks(count: int) -> str:
    """So many placeholders of a statement."""
    return ", ".join("?" * count)


FOLDER, FILE = ".workbench", "versions.sqlite3"
"""Where the database is in a project, and what it is called."""

ELSEWHERE = "WORKBENCH_VERSIONS"
"""Environment variable for another folder of the database, of every project's."""

SIZE, DEFAULT_MB = "WORKBENCH_VERSIONS_MB", 64.0
"""Environment variable for the most megabytes that the database may take, and what holds without it."""

MOST_FAILURES = 20
"""Problems that are remembered of a stage; the ones that failed last stay."""

OURS = "<workbench>/"
"""Begins the names of headers that belong to the workbench and not to the stage's project."""

VERSION = 1
"""Of the database's tables."""

TABLES = """
CREATE TABLE IF NOT EXISTS versions (
    id INTEGER PRIMARY KEY, operation TEXT, stage TEXT, number INTEGER, digest TEXT, source TEXT, parameters TEXT,
    declaration TEXT, date TEXT, used INTEGER, UNIQUE (operation, stage, number), UNIQUE (operation, stage, digest));
CREATE TABLE IF NOT EXISTS numbers (operation TEXT, stage TEXT, last INTEGER, PRIMARY KEY (operation, stage));
CREATE TABLE IF NOT EXISTS files (version INTEGER, name TEXT, object TEXT, PRIMARY KEY (version, name));
CREATE TABLE IF NOT EXISTS objects (digest TEXT PRIMARY KEY, content BLOB);
CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, version INTEGER, device TEXT, record TEXT);
CREATE INDEX IF NOT EXISTS runs_of ON runs (version);
CREATE INDEX IF NOT EXISTS users_of ON files (object);
CREATE TABLE IF NOT EXISTS failures (
    id TEXT PRIMARY KEY, operation TEXT, stage TEXT, problem TEXT, device TEXT, verdict TEXT, message TEXT, date TEXT,
    used INTEGER);
"""

EVICTABLE = """
SELECT id FROM versions v WHERE used < (
    SELECT MAX(used) FROM versions w WHERE (w.operation, w.stage) = (v.operation, v.stage)) AND used IS NOT (
    SELECT MAX(used) FROM versions w WHERE (w.operation, w.stage) = (v.operation, v.stage)
    AND EXISTS (SELECT 1 FROM runs r WHERE r.version = w.id))
ORDER BY used
"""
"""The oldest first; never the newest of a stage, nor its newest that passed."""

LAST = "(SELECT COALESCE(MAX({}), 0) FROM {})"


class VersionsError(WorkbenchError, RuntimeError):
    """The database of versions cannot be used, or lacks the requested entry; the message says which, and what to do."""


@dataclass(frozen=True)
class Snapshot:
    """A stage as it is at one moment. `files` has the source first; names are relative to the source's folder."""

    operation: str
    stage: str
    source: str
    files: Mapping[str, bytes]
    parameters: Mapping[str, int]
    declaration: str

    @classmethod
    def of(cls, stage: Stage[Any]) -> Snapshot:
        """Read the files of a stage. Raises OSError."""
        files = {_name(path, stage): content for path, content in contents(source_of(stage)).items()}
        return cls(
            stage.operation, stage.name, source_of(stage).name, files, dict(stage.parameters), declaration(stage)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of everything."""
        contents = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        made_of = [self.source, contents, dict(self.parameters), self.declaration]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def declaration(stage: Stage[Any]) -> str:
    """The text of the function that makes the stage's launches, its decorator included; empty where there is none."""
    text = getattr(stage.plan_for, "text", "")  # of a module that is not imported here
    return str(text) or text_of(stage.plan_for)


MOST_PROBLEMS, MOST_DATA = 8, 1 << 20
"""Problems of a suite for which a launch is asked, and bytes of a file that are read: its size counts, too."""


def surroundings(stage: Stage[Any]) -> str:
    """SHA-256 of what a launch of a project's stage depends on beside its source, its parameters and its declaration.

    These are the files of the project's packages but for CUDA sources, with constants and helpers of their modules, and
    macros and launches for problems of the suite. The workbench's own stages have its version."""
    found = registry.loaded()
    if found.project is None:
        return ""
    files = []
    for path in project_files():
        with contextlib.suppress(OSError):
            about = path.stat()
            files.append((path, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    digest = _contents(found.project.root, tuple(files)).copy()
    operation, stage, watch = registry.operation_of(stage), stage.on(H200), integrity.Watch()
    try:
        for problem in operation.suite[:MOST_PROBLEMS] or (operation.problem(),):
            digest.update(json.dumps(_asked(stage, problem), sort_keys=True, default=str).encode())
    finally:
        watch.restore()  # what the stage has changed
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _contents(root: Path, files: tuple[tuple[Path, int, int, int], ...]) -> hashlib._Hash:
    """The hash of files of a project, with their sizes and times of change: read once, not for each of its stages."""
    digest = hashlib.sha256()
    for path, size, *_ in files:
        with contextlib.suppress(OSError):
            digest.update(f"{os.path.relpath(path, root)} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(MOST_DATA))
    return digest


def _asked(stage: Stage[Any], problem: Problem) -> Any:
    """What a stage does with a problem, or how it fails: that is found elsewhere."""
    try:
        return stage.supports(problem) or [dict(stage.defines(problem)), plain.encoded(stage.plan(problem))]
    except Exception as error:
        return type(error).__name__


def _name(path: Path, stage: Stage[Any]) -> str:
    if path.is_relative_to(INCLUDE) and not INCLUDE.is_relative_to(sources_of(stage)):
        return f"{OURS}{path.relative_to(INCLUDE)}"
    return os.path.relpath(path, source_of(stage).parent)


@dataclass(frozen=True)
class Version:
    """A version that is kept. `runs` are the records of what was found of it, newest first, each of this stage alone;
    one without any was kept when another one was put in its place. `date` is when it was first kept."""

    operation: str
    stage: str
    number: int
    digest: str
    source: str
    parameters: Mapping[str, int]
    declaration: str
    date: str
    used: int = field(compare=False)
    runs: tuple[Run, ...] = field(compare=False)

    @property
    def spec(self) -> str:
        """`operation:stage@number`, as the command line takes it."""
        return f"{self.operation}:{self.stage}@{self.number}"

    @property
    def passed(self) -> bool:
        """Whether it was verified."""
        return bool(self.runs)

    def shown(self) -> list[Run]:
        """The records that say something: for each device the strongest pass first, then those with times."""

        def strength(run: Run) -> int:
            return run.stages[0].verification.problems

        found: list[Run] = []
        for device in dict.fromkeys(run.device.name for run in self.runs):
            strongest, *others = sorted((r for r in self.runs if r.device.name == device), key=strength, reverse=True)
            found += [strongest, *(run for run in others if run.stages[0].measurements)]
        return found

    def measured(self) -> dict[tuple[str, str], Measurement]:
        """The newest measurement of each problem, by the name of the device and the problem."""
        found: dict[tuple[str, str], Measurement] = {}
        for run in self.runs:
            for m in run.stages[0].measurements:
                found.setdefault((run.device.name, m.problem), m)
        return found


@dataclass(frozen=True)
class Remembered:
    """A problem on which a stage failed; `id` is the same wherever that happens."""

    id: str
    operation: str
    stage: str
    problem: str
    device: str
    verdict: str
    message: str
    date: str

    @property
    def spec(self) -> str:
        """`operation:stage`."""
        return f"{self.operation}:{self.stage}"


def failure_id(spec: str, problem: str) -> str:
    """What a failure of a stage on a problem is called, on every machine."""
    return hashlib.sha256(f"{spec} {problem}".encode()).hexdigest()[:8]


def database(operation: str) -> Path:
    """Where the versions of an operation's stages are kept: in the project that it belongs to, else in the cache."""
    if chosen := os.environ.get(ELSEWHERE):
        return Path(chosen) / FILE
    found = registry.loaded()
    if found.project and operation in found.own:
        return found.project.root / FOLDER / FILE
    return cache_folder() / FILE


def size_limit() -> int:
    """Bytes that a database may take. Raises VersionsError."""
    text = os.environ.get(SIZE, str(DEFAULT_MB))
    try:
        limit = int(float(text) * 1e6)
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise VersionsError(f"{SIZE} is {text!r}; it has to be a number of megabytes, for example {DEFAULT_MB:g}")
    return limit


class Versions:
    """The database. Each call is one transaction. Raises VersionsError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if self.path.parent.name == FOLDER and not self.path.parent.exists():
            with contextlib.suppress(OSError):  # whoever cannot write there learns it from the database
                self.path.parent.mkdir(parents=True)
                (self.path.parent / ".gitignore").write_text("*\n")
        try:
            with transaction(self.path, TABLES, VERSION, alone=True) as connection:
                yield connection
        except OtherVersion as error:
            raise VersionsError(f"{error}: move it away") from None
        except Foreign as error:
            raise VersionsError(f"{self.path} is of another program ({error}): move it away") from None
        except (Damaged, ValueError, LookupError, TypeError) as error:  # the latter where bits of a text are flipped
            raise VersionsError(f"{self.path} is damaged ({error}); move it away, and a new one is begun") from None
        except DatabaseError as error:
            raise VersionsError(
                f"{self.path} cannot be used ({error}); set {ELSEWHERE} to a folder that can be written"
            ) from None

    # versions

    def keep(self, snapshot: Snapshot, run: Run | None = None) -> Version:
        """Keep a version, or that one is in use again; `run` is the record of what was found, of this stage alone.

        Evicts the oldest versions as long as the database is larger than it may be."""
        limit, key = size_limit(), (snapshot.operation, snapshot.stage)
        with self._open() as c:
            identity = _one(
                c, "SELECT id FROM versions WHERE (operation, stage, digest) = (?, ?, ?)", *key, snapshot.digest
            )
            used = _one(c, "SELECT COALESCE(MAX(used), 0) + 1 FROM versions")
            if identity is None:
                identity = self._insert(c, snapshot, used)
            else:
                c.execute("UPDATE versions SET used = ? WHERE id = ?", (used, identity))
            if run is not None:
                _add_run(c, identity, run)
            for (oldest,) in c.execute(EVICTABLE).fetchall():
                if _bytes(c) <= limit:
                    break
                _evict(c, oldest)
            return _version(c, c.execute("SELECT * FROM versions WHERE id = ?", (identity,)).fetchone())

    def _insert(self, c: sqlite3.Connection, snapshot: Snapshot, used: int) -> int:
        key = (snapshot.operation, snapshot.stage)
        c.execute("INSERT INTO numbers VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET last = last + 1", key)
        number = _one(c, "SELECT last FROM numbers WHERE (operation, stage) = (?, ?)", *key)
        parameters = json.dumps(dict(snapshot.parameters))
        row = (*key, number, snapshot.digest, snapshot.source, parameters, snapshot.declaration, now(), used)
        identity = c.execute(f"INSERT INTO versions VALUES (NULL, {marks(9)})", row).lastrowid
        assert identity is not None
        for name, content in snapshot.files.items():
            digest = hashlib.sha256(content).hexdigest()
            c.execute("INSERT OR IGNORE INTO objects VALUES (?, ?)", (digest, content))
            c.execute("INSERT INTO files VALUES (?, ?, ?)", (identity, name, digest))
        return identity

    def of(self, operation: str, stage: str) -> list[Version]:
        """The versions of a stage, by number."""
        if not self.path.exists():
            return []
        with self._open() as c:
            rows = c.execute(
                "SELECT * FROM versions WHERE (operation, stage) = (?, ?) ORDER BY number", (operation, stage)
            ).fetchall()
            return [_version(c, row) for row in rows]

    def passed(self, snapshot: Snapshot) -> list[Run]:
        """The records of how exactly this has passed since the stage last failed on any problem, the newest first."""
        if not self.path.exists():
            return []
        with self._open() as c:
            records = c.execute(
                "SELECT record FROM runs JOIN versions ON versions.id = runs.version "
                "WHERE (operation, stage, digest) = (?, ?, ?) AND runs.id > (SELECT COALESCE(MAX(f.used), 0) "
                "FROM failures f WHERE (f.operation, f.stage) = (?, ?)) ORDER BY runs.id DESC",
                (snapshot.operation, snapshot.stage, snapshot.digest, snapshot.operation, snapshot.stage),
            ).fetchall()
        return _runs((record for (record,) in records), snapshot.digest)

    def files(self, version: Version) -> dict[str, bytes]:
        """The files of a version, as `Snapshot` has them."""
        with self._open() as c:
            rows = c.execute(
                "SELECT name, object, content FROM files JOIN objects ON objects.digest = files.object "
                "JOIN versions ON versions.id = files.version WHERE (operation, stage, number) = (?, ?, ?)",
                (version.operation, version.stage, version.number),
            ).fetchall()
        found = {name: content for name, _, content in rows}
        whole = all(hashlib.sha256(content).hexdigest() == digest for _, digest, content in rows)
        if version.source not in found or not whole:
            raise VersionsError(f"{version.spec} is damaged in {self.path}")
        return {version.source: found.pop(version.source), **found}

    # failures

    def remember(self, stage: Stage[Any], device: str, failure: Failure) -> Remembered:
        """Keep the problem of a failure."""
        made = Remembered(
            failure_id(stage.spec, failure.problem),
            stage.operation,
            stage.name,
            failure.problem,
            device,
            failure.verdict,
            failure.message[:2000],
            now(),
        )
        with self._open() as c:
            used = _next(c)
            c.execute(f"INSERT OR REPLACE INTO failures VALUES ({marks(9)})", (*asdict(made).values(), used))
            c.execute(
                "DELETE FROM failures WHERE (operation, stage) = (?, ?) AND id NOT IN (SELECT id FROM failures WHERE "
                "(operation, stage) = (?, ?) ORDER BY used DESC LIMIT ?)",
                (*(stage.operation, stage.name) * 2, MOST_FAILURES),
            )
        return made

    def failures(self) -> list[Remembered]:
        """What is remembered of all stages, the last failure first."""
        if not self.path.exists():
            return []
        with self._open() as c:
            rows = c.execute("SELECT * FROM failures ORDER BY used DESC").fetchall()
            return [Remembered(*row[:-1]) for row in rows]


def _one(c: sqlite3.Connection, question: str, *arguments: Any) -> Any:
    row = c.execute(question, arguments).fetchone()
    return row[0] if row else None


def _bytes(c: sqlite3.Connection) -> int:
    """What the file takes when this transaction is over."""
    pages = _one(c, "PRAGMA page_count") - _one(c, "PRAGMA freelist_count")
    return int(pages * _one(c, "PRAGMA page_size"))


def _evict(c: sqlite3.Connection, identity: int) -> None:
    c.execute("DELETE FROM versions WHERE id = ?", (identity,))
    for table in ("files", "runs"):
        c.execute(f"DELETE FROM {table} WHERE version = ?", (identity,))
    c.execute("DELETE FROM objects WHERE NOT EXISTS (SELECT 1 FROM files WHERE files.object = objects.digest)")


def _found(record: str) -> tuple[set[str], int]:
    """The problems that were timed, and how many were passed."""
    (stage,) = json.loads(record)["stages"]
    return {m["problem"] for m in stage["measurements"]}, stage["verification"]["problems"]


def _add_run(c: sqlite3.Connection, identity: int, run: Run) -> None:
    """Add a record; it takes the place of older ones of the device that have no other times and passed no more
    problems, and one without times is not put beside one with that passed as many."""
    before = c.execute(
        "SELECT id, record FROM runs WHERE (version, device) = (?, ?)", (identity, run.device.name)
    ).fetchall()
    record = json.dumps(asdict(run), sort_keys=True)
    timed, passed = _found(record)
    for number, old in before:
        timed_before, passed_before = _found(old)
        if timed_before <= timed and passed_before <= passed:
            c.execute("DELETE FROM runs WHERE id = ?", (number,))
        elif timed_before and not timed and passed_before >= passed:
            if comparable(Run.parse(old, "a record"), run):  # it has passed again
                c.execute("UPDATE runs SET id = ? WHERE id = ?", (_next(c), number))
            return
    c.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", (_next(c), identity, run.device.name, record))


def _next(c: sqlite3.Connection) -> int:
    """The number of what is added now, a record or a failure: which of two came later no clock has to say."""
    return int(_one(c, f"SELECT MAX({LAST.format('id', 'runs')}, {LAST.format('used', 'failures')}) + 1"))


def _version(c: sqlite3.Connection, row: Sequence[Any]) -> Version:
    identity, operation, stage, number, digest, source, parameters, text, date, used = row
    records = c.execute("SELECT record FROM runs WHERE version = ? ORDER BY id DESC", (identity,))
    runs = _runs((record for (record,) in records), f"{operation}:{stage}@{number}")
    return Version(operation, stage, number, digest, source, json.loads(parameters), text, date, used, tuple(runs))


def _runs(records: Iterable[str], of_what: str) -> list[Run]:
    runs = []
    for record in records:
        with contextlib.suppress(ResultsError):  # of another schema: the version itself is what matters
            runs.append(Run.parse(record, of_what))
    return runs


def of(stage: Stage[Any]) -> Versions:
    """The database that a stage belongs to."""
    return Versions(database(stage.operation))


def listed(stage: Stage[Any]) -> list[Version]:
    """The versions of a stage that are kept, by number. Raises VersionsError."""
    return of(stage).of(stage.operation, stage.name)


def remembered(identity: str) -> Remembered:
    """The failure of this id, or of the only one that begins so. Raises VersionsError."""
    known = {f.id: f for f in every_failure()}
    found = [f for name, f in known.items() if name.startswith(identity)]
    if len(found) == 1:
        return found[0]
    if found:
        raise VersionsError(f"{identity} may be any of {', '.join(f.id for f in found)}")
    raise VersionsError(f"no failure {identity} is kept; workbench replay lists those that are")


def every_failure() -> list[Remembered]:
    """What is remembered of the project's stages, then of others. Raises VersionsError."""
    paths = dict.fromkeys(database(name) for name in (*registry.loaded().own, *registry.operations()))
    return [failure for path in paths for failure in Versions(path).failures()]


def named(text: str) -> tuple[Stage[Any], Version | None]:
    """The stage that `SPEC` names, or a version of it that `SPEC@N` names. Raises UnknownSpec and VersionsError."""
    spec, at, number = text.partition("@")
    stages = registry.select((spec,))
    if len(stages) != 1:
        raise registry.UnknownSpec(
            f"{spec} names {len(stages)} stages ({', '.join(s.spec for s in stages)}); choose one"
        )
    if not at:
        return stages[0], None
    known = listed(stages[0])
    for version in known:
        if str(version.number) == number:
            return stages[0], version
    kept = f"kept are {', '.join(f'@{v.number}' for v in known)}" if known else "none is kept yet: verify it first"
    raise VersionsError(f"{stages[0].spec} has no version {number or '(a number is missing)'}; {kept}")
