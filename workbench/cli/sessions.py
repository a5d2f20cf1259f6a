"""Devices, workers and sessions of a command, and what is shown of them."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from .. import __version__
from ..catalogue import registry
from ..checks import sanitizer
from ..devices import Device, open_device
from ..inspect.profile import default_problem
from ..measure.places import Here, There
from ..model.errors import WorkbenchError, declared
from ..model.problem import Problem, ProblemError
from ..model.results import Run, Verdict
from ..model.stage import Stage
from ..records import environment, store
from ..records.store import Folder, slug
from ..report import derived, frame, freshness, sarif
from ..report.evidence import explain, failed, timing_cells, untested, verification_cells
from ..report.judged_runs import of_run
from ..run.timer import TimedSession
from ..run.verifier import Session, asked, chosen
from ..sandbox import host
from ..workers.cluster import LOCAL, Cluster, Processes, connect
from . import documents
from .budget import Rounds
from .console import Fitting, StageProgress, console, notice, table
from .main import Interrupted


def opened(name: str, isolate: bool = False) -> Device:
    """The device of this name, in a process of its own where `isolate` says so. Raises DeviceUnavailable."""
    host.begin()
    return open_device(name, isolate=True) if isolate else open_device(name)


@contextmanager
def connected(address: str, device: str, isolate: bool = False, jobs: int | None = None) -> Iterator[Cluster]:
    """The cluster at this address; what it is made of is said."""
    if jobs and address != LOCAL:
        raise click.UsageError(f"--jobs is how many workers --cluster {LOCAL} starts; those of {address} are there")
    with connect(address, device, isolate=isolate, workers=jobs) as cluster:
        dashboard = f"; dashboard: {cluster.client.dashboard_link}" if find_spec("bokeh") else ""
        notice(f"workers: {cluster.count} x {cluster.device.info().name}{dashboard}")
        yield cluster


@contextmanager
def device_or_cluster(name: str, isolate: bool, address: str | None) -> Iterator[tuple[Device, Cluster | None]]:
    """The device to run on: of this machine, or of a cluster's workers."""
    if address is None:
        yield opened(name, isolate), None
        return
    with connected(address, name, isolate) as cluster:
        yield cluster.device, cluster


@contextmanager
def place_of(name: str, address: str | None, jobs: int | None) -> Iterator[Here | There]:
    """Where configurations are judged."""
    if address:
        with connected(address, name, jobs=jobs) as cluster:
            yield There(cluster)
        return
    count = jobs or environment.core_count()
    with Processes(count) as pool:
        yield Here(opened(name), pool, count)


def session_on(
    device: Device,
    examples: int,
    seed: int | None,
    problems: dict[str, tuple[Problem, ...]],
    output: Path | None = None,
    fresh: bool = False,
    cluster: Cluster | None = None,
    suite: bool = False,
) -> Session:
    """A session on the device; with `output` it is saved in the device's folder there, and timed on a GPU."""
    folder = None if output is None else folder_of(device, output)
    timed = folder is not None and device.times
    return (TimedSession if timed else Session)(
        device,
        examples,
        chosen(seed),
        problems,
        folder,
        fresh=fresh,
        keep=True,
        cluster=cluster,
        any_seed=asked(seed) is None,
        whole_suite=suite,
    )


def folder_of(device: Device, output: Path) -> Folder:
    """The folder of a device's results. Raises WorkbenchError where it cannot be written."""
    path = output / slug(device.info())
    check_writable(path)
    return Folder(path)


def check_writable(path: Path) -> None:
    """Raises WorkbenchError where reports cannot be written in a folder, or are in git and would be of no commit."""
    if environment.unpublishable(path):
        raise WorkbenchError(
            f"git has the reports in {path}, and the checkout has uncommitted changes, so a report would name a commit "
            "that it is not of; commit the changes first, or choose another folder with --output"
        )
    try:
        store.check_writable(path)
    except OSError as error:
        raise WorkbenchError(
            f"reports cannot be written in {path} ({error.strerror or error}); choose another folder with --output"
        ) from None


def use_sanitizer(session: Session) -> None:
    """Let the session use compute-sanitizer. Raises WorkbenchError where that is not possible."""
    if not session.device.times:
        raise WorkbenchError("compute-sanitizer looks at kernels on a GPU; the emulator finds such hazards by itself")
    sanitizer.find()
    session.sanitize = True


TABLES, CHARTS = ("pandas",), ("pandas", "..report.plots")
"""Modules that show times."""


def _import(names: Sequence[str]) -> None:
    with suppress(ImportError):  # whoever needs them says so
        for name in names:
            import_module(name, __package__)


def work(
    session: Session, stages: Sequence[Stage[Any]], examples: int, peers: bool = False, shows: Sequence[str] = TABLES
) -> None:
    """Verify the stages, time them where the session does, and the other implementations with `peers`. The modules
    that show times are imported while others work."""
    timed = session if peers and isinstance(session, TimedSession) else None
    operations = list(dict.fromkeys(stage.operation for stage in stages)) if timed else []
    session.expect(stages)
    if session.timed:
        threading.Thread(target=_import, args=(shows,)).start()
    with StageProgress(len(stages) + len(operations), examples) as progress:
        for stage in stages:
            progress.begin(stage.spec)
            progress.end(session.stage(stage, progress))
        for operation in operations:
            progress.begin(f"{operation}, other implementations")
            assert timed is not None
            timed.peers(operation, progress)
            found = ", ".join(f"{p.name} {len(p.measurements)}" for p in session.run.peers if p.operation == operation)
            progress.end_with(f"problems timed: {found or 'none was found'}")
    session.finish()
    _say_taken_over(session)


def _say_taken_over(session: Session) -> None:
    """Say what was not done again."""
    if session.taken_over:
        notice(
            f"{session.taken_over} verifications and measurements are those of a run of {session.run.environment.date} "
            "that was interrupted (--fresh makes them again)"
        )
    if session.relied_on:
        notice(f"{session.relied_on} stages had passed before, as they are now (--fresh verifies them again)")


@contextmanager
def marking_stale(folder: Folder | None) -> Iterator[None]:
    """Mark pages in the folder that are not those of its records when the body has ended, and say so."""
    try:
        yield
    finally:
        if folder and (stale := freshness.mark(folder.path)):
            pages = ", ".join(map(str, stale))
            notice(f"not up to date, and marked so: {pages}; write them again with: workbench report")


@contextmanager
def finishing(
    session: Session, as_json: bool, sarif_file: Path | None = None, rounds: Rounds | None = None
) -> Iterator[list[Path]]:
    """Show what the session has done, however the body ends, and choose the exit code; write it as SARIF, too. The body
    adds the pages that it writes to the list; the last line names the first. Of a run in `rounds` the table has a line
    for each operation, and the last lines say how far it has come and what goes further."""
    pages: list[Path] = []

    def said() -> list[str]:
        return [*(rounds.last_lines(session.run) if rounds else ()), *(f"open {page}" for page in pages[:1])]

    try:
        with marking_stale(session.folder):
            yield pages
    except KeyboardInterrupt:
        _show_and_write(session.run, as_json, sarif_file, rounds)
        where = f"; their results are in {session.saved}" if session.saved else ""
        count = len(session.run.stages)
        lines = "".join(f"\n{line}" for line in said())
        raise Interrupted(f"interrupted after {count} finished stage{'s' * (count != 1)}{where}{lines}") from None
    except Exception:
        if session.run.stages:
            _show_and_write(session.run, as_json, sarif_file, rounds)
        if session.saved:
            notice(f"results so far are in {session.saved}")
        raise
    _show_and_write(session.run, as_json, sarif_file, rounds)
    if session.any_seed:
        notice(f"problems were drawn from seed {session.run.seed}; --seed {session.run.seed} draws the same ones")
    for spec, reason in session.trouble.items():
        notice(f"{spec} passed and could not be timed: {reason}")
    if session.saved:
        notice(f"results are in {session.saved}")
    if rounds:
        for line in said():
            notice(line)
    else:
        notice(summary(session.run) + "".join(f"; open {page}" for page in pages[:1]))
    if not session.ok():
        raise click.exceptions.Exit(1)


def summary(run: Run) -> str:
    """How many stages passed and failed, and how many were timed: `3 of 4 stages passed, 1 failed, 3 timed`."""
    found = [s.verification for s in run.stages]
    counts = {
        "failed": sum(map(failed, found)),
        "not supported here": sum(not failed(v) for v in found if v.verdict is Verdict.UNSUPPORTED),
        "timed": sum(bool(s.measurements) for s in run.stages),
    }
    parts = [f"{sum(v.verdict is Verdict.PASS for v in found)} of {len(found)} stages passed"]
    return ", ".join(parts + [f"{count} {what}" for what, count in counts.items() if count])


def _show_and_write(run: Run, as_json: bool, sarif_file: Path | None, rounds: Rounds | None) -> None:
    show(run, as_json, rounds.table(run) if rounds else None)
    if sarif_file:
        sarif.write(sarif_file, of_run(run), "verify", __version__)


def show(run: Run, as_json: bool, overview: Fitting | None = None) -> None:
    """The run as tables, or as JSON; with an `overview` instead of the table of verdicts."""
    if as_json:
        documents.result(dataclasses.asdict(run), of_run(run))
        return
    show_verification(run, overview)
    if run.peers or run.host or any(s.measurements or s.untimed for s in run.stages):
        show_timing(run, {name: o.metric for name, o in registry.operations().items()})


def show_verification(run: Run, overview: Fitting | None = None) -> None:
    """The table of verdicts, then everything known about each failure, then why stages took nothing."""
    out = console()
    out.print(overview or verification_table(run))
    for s in run.stages:
        if failed(s.verification):
            out.rule(characters="─", style="red")
            out.print(explain(f"{s.operation}:{s.stage}", s.verification, kept=True), soft_wrap=True)
        elif said := untested(f"{s.operation}:{s.stage}", s.verification):
            out.print(said, soft_wrap=True)
        elif s.verification.verdict is Verdict.UNSUPPORTED and not overview:
            out.print(explain(f"{s.operation}:{s.stage}", s.verification, kept=True), soft_wrap=True)


def verification_table(run: Run) -> Fitting:
    """`verification_cells` with coloured verdicts."""
    headers, rows = verification_cells(run)
    coloured = [(spec, verdict_text(Verdict(verdict)), *others) for spec, verdict, *others in rows]
    return table(headers, coloured, (headers[2], *headers[4:]), unwrapped=2)


def verdict_text(verdict: Verdict) -> Text:
    """The verdict, coloured; the word itself says everything."""
    style = {Verdict.PASS: "green", Verdict.UNSUPPORTED: "yellow"}.get(verdict, "bold red")
    return Text(verdict, style)


def show_timing(run: Run, metrics: dict[str, str]) -> None:
    """A table a problem size, and what was not timed."""
    out = console()
    for operation in dict.fromkeys(s.operation for s in run.stages):
        metric = metrics.get(operation, derived.TFLOPS)
        stages = [s for s in run.stages if s.operation == operation]
        for label, rows in frame.of_operation(run, operation):
            out.print(f"\n{operation} {label}")
            headers, cells = timing_cells(rows, metric)
            out.print(table(headers, cells, headers[1:]))
            for row in frame.only(rows, frame.HOST).itertuples():
                out.print(f"{row.stage} on the CPU: {derived.duration(row.time_us)}")
        for s in stages:
            for label, reason in s.untimed.items():
                out.print(f"{s.operation}:{s.stage} not timed on {label}: {reason}", soft_wrap=True)
        for peer in (p for p in run.peers if p.operation == operation):
            for label, reason in peer.untimed.items():
                out.print(f"{peer.name} not timed on {label}: {reason}", soft_wrap=True)


def one_stage(spec: str, problem_text: str | None) -> tuple[Stage[Any], Problem]:
    """The one stage that is named and the problem that it is to work on, a small one where none is given."""
    stages = registry.select((spec,))
    if len(stages) != 1:
        raise click.UsageError(f"{spec} names {len(stages)} stages ({', '.join(s.spec for s in stages)}); choose one")
    (stage,) = stages
    problem = problems_of(stages, problem_text).get(stage.operation) or default_problem(stage)
    if reason := stage.supports(problem):
        raise click.UsageError(f"{stage.spec} does not take {problem}: {reason}")
    return stage, problem


def problems_of(stages: Sequence[Stage[Any]], text: str | None) -> dict[str, Problem]:
    """`text` as a problem of every operation that the stages belong to. Raises ProblemError."""
    if text is None:
        return {}
    parsed: dict[str, Problem] = {}
    wrong: dict[str, str] = {}
    for name in dict.fromkeys(s.operation for s in stages):
        try:
            parsed[name] = registry.operations()[name].problem.parse(text)
            _check_memory(parsed[name])
        except ProblemError as error:
            wrong[name] = str(error)
    if wrong and parsed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in wrong.items())
        raise ProblemError(
            f"--problem {text!r} is a problem of {', '.join(parsed)} and not of {', '.join(wrong)} ({reasons}); "
            f"select one operation, for example: {next(iter(parsed))}"
        )
    if wrong:
        raise ProblemError(f"--problem {text!r}: " + "; ".join(f"{name}: {reason}" for name, reason in wrong.items()))
    return parsed


def suites_of(stages: Sequence[Stage[Any]], texts: Sequence[str]) -> dict[str, tuple[Problem, ...]]:
    """The texts as problems of every operation that the stages belong to. Raises ProblemError."""
    parsed = [problems_of(stages, text) for text in texts]
    return {name: tuple(problems[name] for problems in parsed) for name in (parsed[0] if parsed else ())}


def _check_memory(problem: Problem) -> None:
    """Refuse a problem whose float64 reference alone is larger than the machine's memory. Raises WorkbenchError."""
    with declared("arrays of the operation"):
        needed = sum(8 * math.prod(array.shape) for array in problem.arrays().values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        gib = f"{needed / 2**30:,.0f} GiB for its NumPy reference and this machine has {memory / 2**30:,.0f}"
        raise WorkbenchError(f"there is not enough memory for {problem}: it needs at least {gib}")
