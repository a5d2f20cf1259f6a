"""`workbench watch`: on every save a stage is compiled, verified, timed and kept, until the next save.

Each run has a process of its own, forked from one in which everything but the declarations is loaded: it reads them as
they are on disk, and what it does, hangs in or dies of ends with it. The next one is started before it is needed, and
waits with its device open. A save in the middle of a run kills the run's process."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .. import harness
from ..catalogue import registry
from ..devices import Device, DeviceUnavailable, open_device
from ..model import errors
from ..model.errors import WorkbenchError, file_of
from ..model.problem import Problem, ProblemError
from ..model.results import StageResult, Verdict, Verification
from ..model.stage import Stage
from ..records import versions
from ..records.versions import Version
from ..report import derived
from ..sandbox.processes import end_with_parent, ignore_interrupts, server
from ..toolchain import compiler, compiling
from . import verifier
from .timer import TimedSession
from .verifier import Session, Silent

FIRST, FIRST_DRAWN, FIRST_VARIANTS = 10, 14, 2
"""So many problems are tried first, the smallest of so many drawn, and of no more compiled variants than the last says:
compiling takes longer than solving them."""

HEADERS = (".cuh", ".cu", ".h", ".hpp", ".inl")
"""Files that may be what a source includes and did not find."""

STEP_MS, DEBOUNCE_MS = 20, 200
"""Writes that follow each other within the first are one save, for no longer than the second."""


class WatchUnavailable(WorkbenchError, RuntimeError):
    """The package that watches files is missing; the message says how to install it."""


@dataclass(frozen=True)
class Job:
    """What is done on every save."""

    spec: str
    device: str
    examples: int
    seed: int
    problem: str | None
    isolate: bool = False


# ------------------------------------------------------------------------------------------------ what is told


@dataclass(frozen=True)
class Began:
    """A run has begun, on what lies in these files now; `saved` are those that have changed, and `cancelled` says that
    the run before was not over."""

    saved: list[str]
    cancelled: bool


@dataclass(frozen=True)
class First:
    """The smallest problems are done. Nothing is kept yet."""

    spec: str
    verification: Verification
    seconds: float


@dataclass(frozen=True)
class Against:
    """Another version beside this one: by problem, how many times as fast this one is; and the registers of both."""

    name: str
    gains: dict[str, float]
    registers: tuple[list[int], list[int]]


@dataclass(frozen=True)
class Whole:
    """All problems are done, and, where `timed`, the times are taken. `version` is what it was kept as."""

    result: StageResult
    seconds: float
    version: str | None
    timed: bool
    against: list[Against]


@dataclass(frozen=True)
class Trouble:
    """The run could not be made, for this reason."""

    message: str


@dataclass(frozen=True)
class Idle:
    """The run is over; the next save begins another one."""


@dataclass(frozen=True)
class _Files:
    """The files that matter to the stage, and the folders in which more of them may appear."""

    files: frozenset[Path]
    folders: frozenset[Path]


Event = Began | First | Whole | Trouble | Idle


def as_dict(event: Event) -> dict[str, Any]:
    """An event for JSON."""
    return {"event": type(event).__name__.lower(), **dataclasses.asdict(event)}


# ------------------------------------------------------------------------------------------------ one run


def first_problems(stage: Stage[Any], device: Device, seed: int) -> list[Problem]:
    """The problems with which a verification begins: small, their types and layouts those of the smallest ones."""
    drawn = harness.drawn(stage, device, examples=FIRST_DRAWN, seed=seed)
    drawn.sort(key=lambda p: p.cost.flops + p.cost.bytes)
    models = list({_variant(stage, p): p for p in reversed(drawn)}.values())[-FIRST_VARIANTS:]
    changed = [_like(models[i % len(models) :] + models[: i % len(models)], p, stage) for i, p in enumerate(drawn)]
    others = [p for p, c in zip(drawn, changed, strict=True) if c is None]
    return list(dict.fromkeys([*filter(None, changed), *others]))[:FIRST]


def _like(models: Sequence[Problem], problem: Problem, stage: Stage[Any]) -> Problem | None:
    """The problem with the types and layouts of the first model with which it is one that the stage takes."""
    for model in models:
        with suppress(ProblemError):
            changed = dataclasses.replace(problem, **{name: getattr(model, name) for name in problem.words()})
            if stage.supports(changed) is None:
                return changed
    return None


def _variant(stage: Stage[Any], problem: Problem) -> tuple[tuple[str, str | int], ...]:
    return tuple(sorted(stage.defines(problem).items()))


def _compile_ahead(stage: Stage[Any], problems: Iterable[Problem]) -> None:
    """Compile the variants of the problems all at once; what is wrong with one is said by who needs it."""
    variants = {_variant(stage, p) for p in problems}

    def compile_one(variant: tuple[tuple[str, str | int], ...]) -> None:
        with suppress(compiler.CompileError, compiler.CompilerUnavailable, OSError):
            compiler.compile_source(compiler.source_of(stage), dict(variant))

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, variants))


def files_of(stage: Stage[Any]) -> _Files:
    """The source, its headers and the modules of the declaration; and where headers are looked for."""
    sources = {compiler.source_of(stage)}
    with suppress(OSError):
        sources |= set(compiler.with_headers(compiler.source_of(stage)))
    loaded = registry.loaded()
    module = loaded.modules.get(stage.operation)
    modules = {module.__file__} if module else set()
    if loaded.project and stage.operation in loaded.own:
        names = map(file_of, list(sys.modules.values()))
        root = loaded.project.root.resolve()
        modules |= {n for n in names if n and _is_of(Path(n).resolve(), root)}
        sources.add(root / "pyproject.toml")
    files = frozenset(p.resolve() for p in (*sources, *(Path(m) for m in modules if m)))
    folders = {p.parent for p in files} | {f.resolve() for f in compiler.header_folders(compiler.source_of(stage))}
    return _Files(files, frozenset(folders))


def _is_of(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and not {"site-packages", "dist-packages"} & set(path.parts)


class _Listener(Silent):
    """Tells that all problems are done when the first of them is about to be timed."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told: Callable[[], None] | None = told

    def timing(self, label: str) -> None:
        if self._told:
            self._told()
            self._told = None


def run(job: Job, device: Device, send: Callable[[Event | _Files], None]) -> None:
    """Verify, time and keep a stage as it is now, and tell how far that is."""
    started = time.monotonic()
    (stage,) = registry.select([job.spec])
    send(files_of(stage))
    kind = registry.operation_of(stage).problem
    chosen = kind.parse(job.problem) if job.problem else None
    timed = device.times
    problems = [chosen] if chosen and not timed else None
    try:
        if problems is None:
            problems = first_problems(stage, device, job.seed)
            _compile_ahead(stage, problems)
        before = versions.Snapshot.of(stage)
    except OSError as error:
        send(Trouble(f"cannot read the source {compiler.source_of(stage)}: {error.strerror or error}"))
        return
    outcome = verifier.verify(stage, device, problems=problems, seed=job.seed)
    send(First(stage.spec, outcome, time.monotonic() - started))
    if outcome.verdict is not Verdict.PASS:
        return
    others = _others(stage, before.digest)
    given = {stage.operation: (chosen,)} if chosen else {}
    session = (TimedSession if timed else Session)(device, job.examples, job.seed, given, keep=True)

    def told(with_times: bool) -> None:
        result = session.run.stages[-1]
        kept = session.kept.spec if session.kept else None
        against = [_against(name, v, result, device.info().name) for name, v in others]
        send(Whole(result, time.monotonic() - started, kept, with_times, against))

    session.stage(stage, _Listener(lambda: told(False)))
    told(timed)


def _others(stage: Stage[Any], digest: str) -> list[tuple[str, Version]]:
    """What the stage is set beside: its last good version, if it is another one, and that of its parent."""
    found = []
    parent = registry.operation_of(stage).parent(stage)
    for other in (stage, *([parent] if parent else [])):
        with suppress(versions.VersionsError):
            good = [v for v in versions.listed(other) if v.passed and v.digest != digest]
            if good:
                last = max(good, key=lambda v: v.used)
                found.append((f"@{last.number}" if other is stage else last.spec, last))
    return found


def _against(name: str, other: Version, result: StageResult, device: str) -> Against:
    measured = other.measured()
    gains = {
        m.label: derived.gain(measured[device, m.problem], m)
        for m in result.measurements
        if (device, m.problem) in measured
    }
    newest = other.runs[0].stages[0]
    registers = tuple(sorted({r.registers for r in r_.resources}) for r_ in (newest, result))
    return Against(name, gains, (registers[0], registers[1]))


# ------------------------------------------------------------------------------------------------ its process


def _serve(connection: Connection, job: Job) -> None:
    """What the process does: open the device, wait for the word, and make one run."""
    errors.plain()
    ignore_interrupts()
    os.dup2(2, 1)  # what kernels print must not get into the JSON on stdout
    sys.dont_write_bytecode = True  # it is told from its source by the second, and there may be two saves in one
    end_with_parent()
    try:
        compiling.begin()
        device = open_device(job.device, isolate=job.isolate)
        connection.recv()
        run(job, device, connection.send)
    except EOFError:
        return
    except DeviceUnavailable as error:
        connection.send(error)
        return
    except (Exception, SystemExit) as error:  # whatever a declaration raises: the next save may mend it
        connection.send(Trouble(_said(error)))
    connection.send(Idle())


def _said(error: BaseException) -> str:
    """A message of ours as it is; of anything else, where it comes from."""
    ours = type(error).__module__.startswith(__name__.partition(".")[0])
    return str(error) if ours else traceback.format_exc(limit=-3).strip()


class _Process:
    """A process for one run, which is started before the run is."""

    def __init__(self, job: Job) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._process = server().Process(target=_serve, args=(theirs, job))
        self._process.start()
        theirs.close()
        self.running = False

    def begin(self) -> None:
        """Let it run. A process that has ended by itself says so when it is listened to."""
        self.running = True
        with suppress(OSError):
            self.connection.send(None)

    def listen(self) -> Event | _Files:
        """What it tells next, which is there. Raises DeviceUnavailable."""
        try:
            told: Event | _Files | DeviceUnavailable = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            self.running = False
            return Trouble(f"the process of the run has ended: {_how(self._process.exitcode)}")
        if isinstance(told, DeviceUnavailable):
            raise told
        if isinstance(told, Idle):
            self.running = False
        return told

    def kill(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _how(code: int | None) -> str:
    return signal.Signals(-code).name if code and code < 0 else f"it exited with code {code}"


# ------------------------------------------------------------------------------------------------ saves


class Saves:
    """Which files in some folders change: `connection` is ready whenever some have. Raises WatchUnavailable."""

    def __init__(self) -> None:
        try:
            import watchfiles
        except ImportError:
            raise WatchUnavailable(
                "watchfiles, which sees when a file is saved, is not installed; "
                "install it with: pip install 'kernel-workbench[watch]'"
            ) from None
        self._watch = watchfiles.watch
        self.connection, self._told = multiprocessing.Pipe(duplex=False)
        self.folders: frozenset[Path] = frozenset()
        self._stop = threading.Event()

    def look_at(self, folders: Iterable[Path]) -> None:
        """From now on look at these folders, and at what becomes of the folders themselves."""
        there = frozenset(_existing(f) for folder in folders for f in (folder, folder.parent))
        self._stop.set()
        self._stop = threading.Event()
        self.folders = there
        threading.Thread(target=self._follow, args=(there, self._stop), daemon=True).start()

    def _follow(self, folders: frozenset[Path], stop: threading.Event) -> None:
        changes = self._watch(
            *folders,
            watch_filter=None,
            recursive=False,
            step=STEP_MS,
            debounce=DEBOUNCE_MS,
            stop_event=stop,
            raise_interrupt=False,
        )
        try:
            for changed in changes:
                if stop.is_set():
                    break
                self._told.send({Path(path) for _, path in changed})
        except FileNotFoundError:  # a folder has gone just now: what looks at the folder above says so
            pass
        except Exception as error:
            self._told.send(WatchUnavailable(f"saves cannot be seen any longer: {error}"))

    def changed(self) -> set[Path]:
        """What has changed, waited for. Raises WatchUnavailable where nothing is looked at any longer."""
        told: set[Path] | WatchUnavailable = self.connection.recv()
        if isinstance(told, WatchUnavailable):
            raise told
        return told

    def close(self) -> None:
        """Look no longer."""
        self._stop.set()


def _existing(folder: Path) -> Path:
    return next(f for f in (folder, *folder.parents) if f.is_dir())


# ------------------------------------------------------------------------------------------------ all of it


@dataclass
class Watch:
    """Run a job now and on every save, until it is interrupted. `show` is told what happens."""

    job: Job
    saves: Saves
    show: Callable[[Event], None]
    _known: _Files = field(default=_Files(frozenset(), frozenset()))
    _contents: Mapping[Path, bytes | None] = field(default_factory=dict)

    def follow(self) -> None:
        """Never returns. Raises KeyboardInterrupt, DeviceUnavailable, WatchUnavailable where no save can be seen."""
        self._learn(files_of(registry.select([self.job.spec])[0]))
        process = _Process(self.job)
        try:
            self._begin(process, [], cancelled=False)
            while True:
                # one that ends before it is needed says so when it is: to start others would help nobody
                ready = wait([self.saves.connection, *([process.connection] if process.running else [])])
                if self.saves.connection in ready:
                    saved = self._relevant(self.saves.changed(), process.running)
                    if not saved:
                        continue
                    if cancelled := process.running:
                        process.kill()
                        process = _Process(self.job)
                    self._begin(process, saved, cancelled)
                    continue
                told = process.listen()
                if isinstance(told, _Files):
                    self._learn(told)
                    continue
                self.show(told)
                if not process.running:
                    if not isinstance(told, Idle):
                        self.show(Idle())
                    process.kill()
                    process = _Process(self.job)
        finally:
            process.kill()
            self.saves.close()

    def _begin(self, process: _Process, saved: Sequence[Path], cancelled: bool) -> None:
        self._contents = _contents(self._known.files)
        self.show(Began([str(p) for p in saved], cancelled))
        process.begin()

    def _learn(self, known: _Files) -> None:
        if known.folders != self._known.folders:
            self.saves.look_at(known.folders)
        self._contents = {**_contents(known.files - self._known.files), **self._contents}
        self._known = known

    def _relevant(self, changed: set[Path], running: bool) -> list[Path]:
        """Those of the paths that matter; while a run is on, only what has another content than when it began."""
        if changed & self._known.folders:  # one has come or gone, and what is in it
            self.saves.look_at(self._known.folders)
            changed = changed | set(self._known.files)
            running = True
        now = _contents(changed & self._known.files)
        new = {p for p in changed - self._known.files if p.suffix in HEADERS and p.parent in self._known.folders}
        mine = {p for p, content in now.items() if not running or content != self._contents.get(p)}
        return sorted(mine | {p for p in new if p.exists()})


def _contents(files: Iterable[Path]) -> dict[Path, bytes | None]:
    """A digest of each file, None where there is none."""
    return {path: _digest(path) for path in files}


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None


def lines(event: Event) -> Iterator[str]:
    """An event in words."""
    from ..report.evidence import explain, failed, tiers

    match event:
        case Began(saved=[], cancelled=False):
            yield "looking at it as it is"
        case Began(saved, cancelled):
            named = [f"{Path(p).name} {'saved' if Path(p).exists() else 'deleted'}" for p in saved]
            stopped = "; the run before was stopped" if cancelled else ""
            yield f"{time.strftime('%H:%M:%S')} {', '.join(named)}{stopped}"
        case First(spec, outcome, seconds):
            if outcome.verdict is Verdict.PASS:
                yield f"{spec}: pass, the smallest {outcome.problems} problems, {seconds:.2f} s"
            else:
                yield explain(spec, outcome, kept=failed(outcome))
        case Whole(result, seconds, version, timed, against):
            spec, outcome = f"{result.operation}:{result.stage}", result.verification
            if outcome.verdict is not Verdict.PASS:
                yield explain(spec, outcome, kept=True)
                return
            if not timed:
                kept = f"; kept as {version}" if version else "; not kept"
                yield f"{spec}: pass, {outcome.problems} problems ({tiers(outcome.tiers)}), {seconds:.1f} s{kept}"
                yield from _resources(result, against)
            else:
                yield from _times(result, against)
        case Trouble(message):
            yield message
        case Idle():
            return


def _resources(result: StageResult, against: Sequence[Against]) -> Iterator[str]:
    variants = derived.variants(result.resources)[1]
    for r, variant in zip(result.resources, variants, strict=True):
        shared = f"{r.static_shared + r.dynamic_shared:,} B shared"
        yield (
            f"  {r.kernel} {variant}".rstrip() + f": {r.registers} registers, {shared}, {r.spill_bytes:,} B spilled, "
            f"{100 * r.occupancy:.0f} % occupancy, limited by {r.limiter}"
        )
    for other in against:
        before, now = other.registers
        if before != now:
            yield f"  {other.name} has {' '.join(map(str, before))} registers"


def _times(result: StageResult, against: Sequence[Against]) -> Iterator[str]:
    for m in result.measurements:
        cold = derived.duration(derived.median(m.timing.cold_us))
        share = derived.share_of_vendor(m)
        parts = [f"  {m.label}: {cold} cold"]
        if share is not None:
            parts.append(f"{derived.percent(share)} of vendor")
        parts += [f"{other.gains[m.label]:.2f}x of {other.name}" for other in against if m.label in other.gains]
        yield ", ".join(parts)
    for label, reason in result.untimed.items():
        yield f"  not timed on {label}: {reason}"
