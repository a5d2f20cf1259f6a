"""The folder of one device: `results/<operation>.json` has every run that something current of the operation is from.

A run has one environment, and figures from two environments are never taken for those of one run. So a run of some
stages only leaves the others where they are: the earlier run stays below it in the file, loses every stage that is run
again, and the times of other implementations once a later run has timed those of that operation, and disappears with
the last of both. That holds for a run that was interrupted, too: until another one has made what it holds again, or
taken it over, it is there.

Folders that were written before have `results.json` and `results-<date>.json`, a file a run. They are read as they are,
and the next run that is saved there brings them into the layout of today."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..catalogue import registry
from ..model import compact
from ..model.errors import WorkbenchError, file_in, inside
from ..model.launch import H200
from ..model.problem import ProblemError
from ..model.results import DeviceInfo, HostTiming, PeerResult, ResultsError, Run, Runs, StageResult
from . import environment

RESULTS = "results"
"""The folder with a file for each operation, in that of a device."""

BEFORE = "results*.json"
"""Files of a run each, as folders had them before."""

AGREEMENT = "agreement.json"


class SeveralDevices(ResultsError):
    """A command needs the results of one device, but several devices have results; the message names their folders."""


def slug(device: DeviceInfo) -> str:
    """Name of the device's folder: `emulator`, `nvidia-h200`."""
    name = device.name if device.kind != "emulator" or device.sm_count != H200.multiprocessors else device.kind
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


def check_writable(folder: Path) -> None:
    """Create `folder` where it is missing and write a file there, so that hours of work are not lost at the end.

    Raises OSError."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".writable.{os.getpid()}"
    probe.touch()
    probe.unlink(missing_ok=True)


def files(folder: Path) -> list[Path]:
    """The files with results in the folder of a device."""
    # of those of before `results.json` is the newest, then by date: "-" sorts before "."
    return [*sorted((folder / RESULTS).glob("*.json")), *sorted(folder.glob(BEFORE), reverse=True)]


def folders(output: Path) -> list[Path]:
    """The folders of devices that have results, in a folder of reports."""
    return [path for path in sorted(output.iterdir()) if path.is_dir() and files(path)] if output.is_dir() else []


def load(folder: Path) -> list[Run]:
    """The runs in a folder, the newest first. Raises ResultsError for a file that holds none."""
    return _joined(_loaded(path) for path in files(folder))


def _loaded(path: Path) -> list[Run]:
    try:
        return Runs.load(path).runs
    except ResultsError as error:
        raise ResultsError(
            f"{error}; it was left as it is: bring it back (git checkout -- {path}, where git has it) or put it aside "
            f"(mv {path} {path}.damaged), and repeat the command"
        ) from None


def everything(where: Path) -> list[Run]:
    """The runs in a file of results, or in every file below a folder that holds measurements of stages: of runs, of
    experiments (an operation each, a stage each series), and of benchmarks that time stages.

    Raises ResultsError where there are none, or for a damaged file."""
    if not where.is_dir():
        return read(str(where))
    files = (path for path in sorted(where.rglob("*.json*")) if path.name != AGREEMENT)
    found = [run for path in files for run in _published(path)]
    if not found:
        raise ResultsError(f"there are no results in {where}; make some with: workbench run --output {where}")
    return found


def _published(path: Path) -> list[Run]:
    """The runs in a file of any kind; none where it holds no measurements of stages."""
    try:
        text = compact.read_text(path) if path.suffix in (".json", compact.COMPRESSED) else ""
        if '"verification"' not in text and '"measurement"' not in text:
            return []
        data = json.loads(text)
    except ValueError as error:
        raise ResultsError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        return []
    if "runs" in data or "stages" in data:
        return Runs.parse(text, str(path)).runs
    made = {name: data[name] for name in ("device", "environment")} if "environment" in data else {}
    if made and "points" in data:
        points = [(data["name"], p["series"] or data["name"], p["timed"], p["verification"]) for p in data["points"]]
    elif made and "rows" in data:
        passed = {"verdict": "pass", "seed": 0}
        points = [
            (_operation(r["stage"], r["problem"]), r["stage"], r.get("measurement"), passed) for r in data["rows"]
        ]
    else:
        return []
    keys = ("operation", "stage", "measurements", "verification")
    blank = {"idea": "", "source": "", "source_sha256": ""}
    stages = [blank | dict(zip(keys, (o, s, [m] if m else [], v), strict=True)) for o, s, m, v in points]
    whole = {**made, "seed": data.get("seed", 0), "examples": data.get("examples", 0), "stages": stages, "schema": 1}
    return [Run.parse(json.dumps(whole), str(path))]


def _operation(stage: str, problem: str) -> str:
    """The operation that has the stage and takes the problem: benchmarks of products do not note it."""
    for name, operation in registry.operations().items():
        with contextlib.suppress(ProblemError):
            if any(known.name == stage for known in operation.stages) and operation.problem.parse(problem):
                return name
    return "unknown"


def _joined(parts: Iterable[list[Run]]) -> list[Run]:
    """Runs whose operations are in several files."""
    found: list[Run] = []
    for run in (run for runs in parts for run in runs):
        same = next((f for f in found if _begins_like(f, run) and not _contents(f) & _contents(run)), None)
        if same is None:
            found.append(replace(run, stages=[*run.stages], peers=[*run.peers], host=[*run.host]))
        else:
            same.stages += run.stages
            same.peers += run.peers
            same.host += run.host
    return sorted(found, key=lambda run: run.environment.date, reverse=True)


def _begins_like(run: Run, other: Run) -> bool:
    return replace(run, stages=[], peers=[], host=[]) == replace(other, stages=[], peers=[], host=[])


def _contents(run: Run) -> set[tuple[str, ...]]:
    return {
        *(("stage", s.operation, s.stage) for s in run.stages),
        *(("peer", p.operation, p.name) for p in run.peers),
        *(("host", t.operation, t.name, t.problem) for t in run.host),
    }


def read(where: str) -> list[Run]:
    """The runs of one device in a file, in a folder (of a device, or of reports with one device), or in `COMMIT:path`.

    `COMMIT:path` is a file or folder as git has it, from the top of the repository around the current folder. Raises
    ResultsError."""
    path = Path(where)
    if path.is_file():
        return Runs.load(path).runs
    if path.is_dir():
        return load(folder(path))
    commit, colon, inside = where.partition(":")
    if not colon or environment.ask_git(Path.cwd(), "cat-file", "-e", where) is None:
        raise ResultsError(f"{where} is no file, no folder, and no COMMIT:path that git knows here")
    return committed(Path.cwd(), commit, inside.rstrip("/"))


def folder(path: Path) -> Path:
    """The folder of a device: `path`, that around it, or the only one in it that has results. Raises ResultsError."""
    if path.name == RESULTS and any(path.glob("*.json")):
        return path.parent
    return _only([path] if files(path) else folders(path), str(path))


def committed(root: Path, commit: str, path: str) -> list[Run]:
    """The same from a commit of the repository at `root`; `path` is from its top. Raises ResultsError."""
    listed = environment.ask_git(root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", path) or ""
    names = [name for name in listed.split("\0") if name]
    found = names
    if names != [path]:
        of = {name: device for name in names if (device := _device(Path(name)))}
        chosen = _only(sorted(set(of.values())), f"{commit}:{path}")
        today = sorted(name for name in of if of[name] == chosen and Path(name).parent.name == RESULTS)
        before = sorted((name for name in of if of[name] == chosen and name not in today), reverse=True)
        found = [*today, *before]
    texts = {name: environment.ask_git(root, "show", f"{commit}:{name}") or "" for name in found}
    return _joined(Runs.parse(text, f"{commit}:{name}").runs for name, text in texts.items())


def _device(path: Path) -> Path | None:
    """The folder of the device whose results the file has; None for another file."""
    if path.parent.name == RESULTS and path.suffix == ".json":
        return path.parent.parent
    return path.parent if path.match(BEFORE) else None


def _only(folders: list[Path], where: str) -> Path:
    if len(folders) == 1:
        return folders[0]
    if not folders:
        raise ResultsError(f"there are no results in {where}")
    raise SeveralDevices(f"{where} has results of several devices; choose one of {', '.join(map(str, folders))}")


class FolderBusy(WorkbenchError, RuntimeError):
    """Another process is saving a run in the folder; the message says which."""


class _Lock:
    """The folder is this process's, as long as this object or the process lives. The folder itself is locked:
    no file is left behind."""

    def __init__(self, path: Path) -> None:
        self._folder = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = _holder(os.fstat(self._folder).st_ino)
            os.close(self._folder)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise FolderBusy(
                f"{who} is saving a run in {path}; wait until it is done, or choose another folder with --output"
            ) from None
        weakref.finalize(self, os.close, self._folder)


def _holder(inode: int) -> str:
    """Who has the lock, as far as the system says it."""
    with contextlib.suppress(OSError, LookupError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, process, file, *_ = line.split()
            if kind == "FLOCK" and file.rpartition(":")[2] == str(inode):
                return f"process {process}"
    return "another process"


_locks: weakref.WeakValueDictionary[Path, _Lock] = weakref.WeakValueDictionary()


def _held(path: Path) -> _Lock:
    """The lock of a folder, one for this process. Raises FolderBusy."""
    where = path.resolve()
    lock = _locks.get(where)
    if lock is None:
        lock = _locks[where] = _Lock(where)
    return lock


class Folder:
    """Where a run is saved while it grows: by one process at a time.

    Raises OSError, ResultsError when it cannot be written or read, FolderBusy."""

    def __init__(self, path: Path) -> None:
        check_writable(path)
        self._lock = _held(path)
        for left in [*path.glob(".*.json.*"), *path.glob(f"{RESULTS}/.*.json.*")]:
            left.unlink(missing_ok=True)  # by a process that was killed while it wrote
        load(path)
        self.path = path
        self.results = path / RESULTS
        self._begun: set[str] = set()
        """Operations whose file begins with the run that is being saved."""

    def save(self, run: Run, unfinished: StageResult | None = None, only: str | None = None) -> Path:
        """Write the run as it is now and drop its stages from earlier ones. Returns the folder of results.

        `unfinished` stands for its last stage, which is being timed and stays in earlier runs until that is done.
        `only` is the operation of which something has changed, where the rest of the run is written already."""
        if unfinished:
            run = replace(run, stages=[*run.stages[:-1], unfinished])
        self._bring_up_to_date()
        done = {(s.operation, s.stage) for s in run.stages if s is not unfinished}
        others = {p.operation for p in run.peers} | {t.operation for t in run.host} if run.finished else set()
        for operation in dict.fromkeys(x.operation for x in _parts(run) if only in (None, x.operation)):
            kept = [
                replace(
                    old,
                    stages=[s for s in old.stages if (s.operation, s.stage) not in done],
                    peers=[p for p in old.peers if p.operation not in others],
                    host=[t for t in old.host if t.operation not in others],
                )
                for old in self._earlier(operation)
            ]
            self._write(operation, [_only_of(run, operation), *kept])
            self._begun.add(operation)
        return self.results

    def interrupted(self, run: Run, any_seed: bool = False) -> list[Run]:
        """The earlier runs that were not finished and that `run` may continue, also those of another seed where any
        will do."""
        return [old for old in load(self.path) if not old.finished and comparable(old, run, any_seed)]

    def discard_earlier_stages(self) -> None:
        """Remove the stages of earlier runs: after a run of every stage, they no longer exist."""
        self._bring_up_to_date()
        for operation in [path.stem for path in files(self.path)]:
            own = self._runs(operation)[:1] if operation in self._begun else []
            self._write(operation, [*own, *(replace(old, stages=[]) for old in self._earlier(operation))])

    def _file(self, operation: str) -> Path:
        inside(self.path, RESULTS)
        return file_in(self.results, f"{operation}.json")

    def _runs(self, operation: str) -> list[Run]:
        path = self._file(operation)
        return _loaded(path) if path.is_file() else []

    def _earlier(self, operation: str) -> list[Run]:
        """The runs in the file of an operation but for that which is being saved."""
        return self._runs(operation)[1 if operation in self._begun else 0 :]

    def _write(self, operation: str, runs: list[Run]) -> None:
        """Replace the file of an operation in one step, or remove it where nothing is left."""
        path = self._file(operation)
        if kept := [run for run in runs if any(_parts(run))]:
            Runs(kept, operation).save(path)
        else:
            path.unlink(missing_ok=True)

    def _bring_up_to_date(self) -> None:
        """Bring a folder of before into the layout of today; what it had is removed last."""
        if before := [path for path in files(self.path) if path.parent == self.path]:
            runs = load(self.path)
            for operation in {x.operation for run in runs for x in _parts(run)}:
                parts = [_only_of(run, operation) for run in runs]
                self._write(operation, [part for number, part in enumerate(parts) if part not in parts[:number]])
            for path in before:
                path.unlink()


def _parts(run: Run) -> list[StageResult | PeerResult | HostTiming]:
    return [*run.stages, *run.peers, *run.host]


def _only_of(run: Run, operation: str) -> Run:
    """The run without other operations."""
    return replace(
        run,
        stages=[s for s in run.stages if s.operation == operation],
        peers=[p for p in run.peers if p.operation == operation],
        host=[t for t in run.host if t.operation == operation],
    )


def comparable(run: Run, other: Run, any_seed: bool = False) -> bool:
    """Whether what was found by two runs may be put into one record: all but their date has to be equal, and where
    any seed will do, all but that."""

    def circumstances(run: Run) -> tuple[object, ...]:
        return run.device, replace(run.environment, date=""), 0 if any_seed else run.seed, run.examples

    return circumstances(run) == circumstances(other)


def current(runs: Iterable[Run]) -> list[tuple[StageResult, Run]]:
    """Each stage once, with the run it is from: where several have it, the first."""
    found: dict[tuple[str, str], tuple[StageResult, Run]] = {}
    for run in runs:
        for stage in run.stages:
            found.setdefault((stage.operation, stage.stage), (stage, run))
    return list(found.values())
