"""The folder of one device's results: `results.json`, and earlier runs as long as something in them is current.

A run has one environment, and figures from two environments are never put into one record. So a run of some stages
only leaves the others where they are: the earlier record becomes `results-<date>.json`, loses every stage that is run
again, and the times of other implementations once a later run has timed those of that operation, and disappears with
the last of both. That holds for a run that was interrupted, too: until another one has made what it holds again, or
taken it over, it is there.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..model.results import DeviceInfo, ResultsError, Run, StageResult
from . import git

LATEST = "results.json"
AGREEMENT = "agreement.json"


class SeveralDevices(ResultsError):
    """Results of one device were asked for where several have some; the message names their folders."""


def slug(device: DeviceInfo) -> str:
    """Name of the device's folder: `emulator`, `nvidia-h200`."""
    name = device.name if device.kind != "emulator" else device.kind
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


def check_writable(folder: Path) -> None:
    """Create `folder` where it is missing and write a file there, so that hours of work are not lost at the end.

    Raises OSError.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".writable"
    probe.touch()
    probe.unlink()


def load(folder: Path) -> list[tuple[Path, Run]]:
    """The runs in a folder, `results.json` first, then the newest. Raises ResultsError for a file that is no run."""
    paths = [p for p in [folder / LATEST, *sorted(folder.glob("results-*.json"), reverse=True)] if p.is_file()]
    return [(path, _loaded(path)) for path in paths]


def _loaded(path: Path) -> Run:
    try:
        return Run.load(path)
    except ResultsError as error:
        raise ResultsError(
            f"{error}; it was left as it is: bring it back (git checkout -- {path}, where git has it) or put it aside "
            f"(mv {path} {path}.damaged), and repeat the command"
        ) from None


def read(where: str) -> list[Run]:
    """The runs of one device in a file, in a folder (of a device, or of reports with one device), or in `COMMIT:path`.

    `COMMIT:path` is a file or folder as git has it, from the top of the repository around the current folder. Raises
    ResultsError.
    """
    path = Path(where)
    if path.is_file():
        return [Run.load(path)]
    if path.is_dir():
        return [run for _, run in load(folder(path))]
    commit, colon, inside = where.partition(":")
    if not colon or git.ask(Path.cwd(), "cat-file", "-e", where) is None:
        raise ResultsError(f"{where} is no file, no folder, and no COMMIT:path that git knows here")
    return committed(Path.cwd(), commit, inside.rstrip("/"))


def folder(path: Path) -> Path:
    """The folder of a device: `path`, or the only one in it that has results. Raises ResultsError."""
    found = [path] if (path / LATEST).is_file() else sorted(p.parent for p in path.glob(f"*/{LATEST}"))
    return _only(found, str(path))


def committed(root: Path, commit: str, path: str) -> list[Run]:
    """The same from a commit of the repository at `root`; `path` is from its top. Raises ResultsError."""
    listed = git.ask(root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", path) or ""
    names = [name for name in listed.split("\0") if name]
    if names == [path]:
        found = names
    else:
        folders = sorted({p.parent for name in names if (p := Path(name)).name == LATEST})
        chosen = _only(folders, f"{commit}:{path}")
        inside = [name for name in names if (p := Path(name)).parent == chosen and p.match("results*.json")]
        found = sorted(inside, reverse=True)  # `results.json` first, then the newest: "-" sorts before "."
    return [Run.parse(git.ask(root, "show", f"{commit}:{name}") or "", f"{commit}:{name}") for name in found]


def _only(folders: list[Path], where: str) -> Path:
    if len(folders) == 1:
        return folders[0]
    if not folders:
        raise ResultsError(f"there are no results in {where}")
    raise SeveralDevices(f"{where} has results of several devices; choose one of {', '.join(map(str, folders))}")


class Folder:
    """Where a run is saved while it grows. Raises OSError, ResultsError when it cannot be written or read."""

    def __init__(self, path: Path) -> None:
        check_writable(path)
        for left in path.glob(".*.json.*"):  # by a process that was killed while it wrote
            left.unlink(missing_ok=True)
        load(path)
        self.path = path
        self.latest = path / LATEST
        self._started = False

    def save(self, run: Run, unfinished: StageResult | None = None) -> Path:
        """Write the run as it is now and drop its stages from earlier ones. Returns the path of `results.json`.

        `unfinished` stands for its last stage, which is being timed and stays in earlier records until that is done.
        """
        if unfinished:
            run = replace(run, stages=[*run.stages[:-1], unfinished])
        latest = self.latest
        if not self._started and latest.is_file():
            latest.rename(self._dated(Run.load(latest)))
        run.save(latest)  # before the earlier records lose anything
        self._started = True
        done = {(s.operation, s.stage) for s in run.stages if s is not unfinished}
        others = {p.operation for p in run.peers} | {t.operation for t in run.host} if run.finished else set()
        for path, old in load(self.path):
            if path == latest:
                continue
            kept = replace(
                old,
                stages=[s for s in old.stages if (s.operation, s.stage) not in done],
                peers=[p for p in old.peers if p.operation not in others],
                host=[t for t in old.host if t.operation not in others],
            )
            _reduce(path, old, kept)
        return latest

    def interrupted(self, run: Run) -> list[Run]:
        """The earlier runs that were not finished and that `run` may continue."""
        return [old for _, old in load(self.path) if not old.finished and comparable(old, run)]

    def discard_earlier_stages(self) -> None:
        """Remove the stages of earlier records: after a run of every stage, they no longer exist."""
        for path, old in load(self.path):
            if path.name != LATEST:
                _reduce(path, old, replace(old, stages=[]))

    def _dated(self, run: Run) -> Path:
        date = re.sub(r"[^0-9TZ]", "", run.environment.date)
        path, count = self.path / f"results-{date}.json", 1
        while path.exists():
            count += 1
            path = self.path / f"results-{date}-{count}.json"
        return path


def _reduce(path: Path, old: Run, kept: Run) -> None:
    """Save what is kept of an old record, or remove its file where nothing is."""
    if not (kept.stages or kept.peers or kept.host):
        path.unlink()
    elif kept != old:
        kept.save(path)


def comparable(run: Run, other: Run) -> bool:
    """Whether what was found by two runs may be put into one record: all but their date has to be equal."""

    def circumstances(run: Run) -> tuple[object, ...]:
        return run.device, replace(run.environment, date=""), run.seed, run.examples

    return circumstances(run) == circumstances(other)


def current(runs: Iterable[Run]) -> list[tuple[StageResult, Run]]:
    """Each stage once, with the run it is from: where several have it, the first."""
    found: dict[tuple[str, str], tuple[StageResult, Run]] = {}
    for run in runs:
        for stage in run.stages:
            found.setdefault((stage.operation, stage.stage), (stage, run))
    return list(found.values())
