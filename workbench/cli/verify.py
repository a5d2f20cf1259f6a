"""Verify, time and report stages, or solve a problem again that one has failed on."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from .. import __version__, harness
from ..catalogue import registry
from ..devices import DeviceUnavailable
from ..model.errors import WorkbenchError
from ..model.results import AgreementRun
from ..model.stage import Stage
from ..records import environment, versions
from ..records.store import AGREEMENT, slug
from ..records.versions import Remembered
from ..report import pages, sarif
from ..report.evidence import tiers
from ..run.api import NO_TIMES
from ..run.verifier import Session
from ..run.watch import files_of
from . import budget, documents
from .console import StageProgress, console, notice, table
from .main import options, specs_argument
from .sessions import (
    CHARTS,
    device_or_cluster,
    finishing,
    folder_of,
    marking_stale,
    opened,
    session_on,
    suites_of,
    use_sanitizer,
    work,
)


@click.command()
@specs_argument
@click.option(
    "--files",
    "are_files",
    is_flag=True,
    help="Each SPEC is a file: verify the stages of the project that depend on it, for a hook before a commit.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also fail for conditions of a kernel, such as one on a parameter, that no problem has tried both ways.",
)
@options("device", "secret_seed", "examples", "problem", "isolate", "sanitize", "cluster", "json", "sarif")
def verify(
    specs: tuple[str, ...],
    are_files: bool,
    strict: bool,
    device_name: str,
    seed: int | None,
    examples: int,
    problem_text: str | None,
    isolate: bool,
    sanitize: bool,
    cluster: str | None,
    as_json: bool,
    sarif_file: Path | None,
) -> None:
    """Check stages against NumPy on random problems, or on the one given by --problem.

    A failure is shown with its smallest problem, the first wrong elements, and the command that replays it."""
    stages = affected(registry.select(()), map(Path, specs)) if are_files else registry.select(specs)
    if are_files and not stages:
        notice("no stage depends on these files: there is nothing to verify")
        documents.result(None)
        if sarif_file:
            sarif.write(sarif_file, [], "verify", __version__)
        return
    problems = suites_of(stages, [] if problem_text is None else [problem_text])
    if sanitize and cluster:
        raise click.UsageError("compute-sanitizer looks at kernels on this machine; leave out --cluster or --sanitize")
    if strict and problem_text:
        raise click.UsageError("one problem cannot try conditions both ways; leave out --problem or --strict")
    with device_or_cluster(device_name, isolate, cluster) as (device, workers):
        if strict and device.times:
            raise WorkbenchError("conditions are noted by the emulator; with --strict choose --device emulator")
        session = session_on(device, examples, seed, problems, cluster=workers)
        session.strict = strict
        if sanitize:
            use_sanitizer(session)
        with finishing(session, as_json, sarif_file):
            work(session, stages, 1 if problems else examples)


@click.command()
@specs_argument
@options("device", "secret_seed", "examples", "problems", "suite", "baselines", "fresh", "cluster", "json", "output")
def bench(
    specs: tuple[str, ...],
    device_name: str,
    seed: int | None,
    examples: int,
    problem_texts: tuple[str, ...],
    suite: bool,
    baselines: str,
    fresh: bool,
    cluster: str | None,
    as_json: bool,
    output: Path,
) -> None:
    """Verify stages on random problems, then time those that passed. Needs a GPU.

    A stage is not verified again if it has already passed in its current state, with the same code on the same device.

    A stage is timed on one problem of the operation's suite, the one with the most work that the stage takes, and on
    its own problem, where it names one, beside its parent. --suite times the whole suite, --problem others instead.
    Results are saved like those of `run`; no report is written. After an interruption, the same command continues where
    it stopped."""
    stages = registry.select(specs)
    problems = suites_of(stages, problem_texts)
    with device_or_cluster(device_name, False, cluster) as (device, workers):
        if not device.times:
            raise WorkbenchError(NO_TIMES)
        session = session_on(device, examples, seed, problems, output, fresh, workers, suite)
        session.rely = True
        with finishing(session, as_json):
            work(session, stages, examples, peers=baselines == "all")


@click.command()
@specs_argument
@budget.option
@options("device", "secret_seed", "examples", "problems", "suite", "baselines", "isolate", "fresh", "json", "output")
@click.pass_obj
def run(
    given: list[str],
    specs: tuple[str, ...],
    budget_s: float | None,
    device_name: str,
    seed: int | None,
    examples: int,
    problem_texts: tuple[str, ...],
    suite: bool,
    baselines: str,
    isolate: bool,
    fresh: bool,
    as_json: bool,
    output: Path,
) -> None:
    """Verify, then time if there is a GPU, then write the report: the main job.

    Without SPEC the run has a budget of three minutes. The same command continues where it stopped, until every stage
    has been tried on --examples problems. On a GPU the fastest stage of each operation is timed early, on one problem.

    Results are saved after every stage in OUTPUT/<device>/results/<operation>.json. With SPEC, only the results of
    those stages are replaced. The others stay from the earlier run, and the report says which run each figure is from.

    With SPEC, a stage is timed on one problem of the operation's suite, the one with the most work that the stage
    takes, and on its own problem, where it names one, beside its parent. --suite times the whole suite, --problem
    others instead. If nothing is timed, --problem replaces the random problems. After an interruption, the same command
    continues where it stopped."""
    stages = registry.select(specs)
    seconds = budget.seconds_of(budget_s, specs, problem_texts)
    problems = suites_of(stages, problem_texts)
    session = session_on(opened(device_name, isolate), examples, seed, problems, output, fresh, suite=suite)
    if len(problem_texts) > 1 and not session.timed:
        raise click.UsageError("nothing is timed here, and stages are verified on one problem: give only one --problem")
    rounds = budget.Rounds(stages, shlex.join(["workbench", *given])) if seconds else None
    with finishing(session, as_json, rounds=rounds) as written:
        try:
            if seconds:
                budget.work_within(session, stages, seconds, peers=baselines == "all")
            else:
                count = 1 if problems and not session.timed else examples
                work(session, stages, count, peers=baselines == "all", shows=CHARTS)
        except KeyboardInterrupt:
            if session.saved:
                written += _written(session, output)
            raise
        if session.folder and session.run.finished and not specs:
            session.folder.discard_earlier_stages()
        written += _written(session, output)


def _written(session: Session, output: Path) -> list[Path]:
    """The pages, the index first, which are written of what a session has saved; they are named."""
    found = [p for p in pages.write(output, slug(session.run.device)) if p.suffix == ".md"]
    found.sort(key=lambda page: len(page.parts))
    others = f" and {len(found) - 3} others" if len(found) > 4 else ""
    notice(f"wrote {', '.join(str(p) for p in (found[:3] if others else found))}{others}")
    return found


@click.command()
@specs_argument
@options("seed", "examples", "json", "output")
def agree(specs: tuple[str, ...], seed: int, examples: int, as_json: bool, output: Path) -> None:
    """Solve the same problems on the GPU and in the emulator and compare the answers. Needs a GPU.

    In the exact tier both answers must be bit-equal; in the other, both must be within the bound. The result is saved
    as OUTPUT/<device>/agreement.json, which the report quotes."""
    stages = registry.select(specs)
    try:
        gpu, emulator = opened("cuda"), opened("emulator")
    except DeviceUnavailable as error:
        why = str(error).partition("; use --device")[0]
        raise DeviceUnavailable(f"agree needs a GPU, and {why}; without one: workbench verify") from None
    folder = folder_of(gpu, output)
    record = AgreementRun(gpu.info(), environment.describe())
    with marking_stale(folder), StageProgress(len(stages), examples) as progress:
        for stage in stages:
            progress.begin(stage.spec)
            found = harness.agree(stage, gpu, emulator, examples=examples, seed=seed, on_problem=progress.verified)
            progress.end_with(found.disagreement or f"agrees on {found.problems} problems")
            record.stages.append(found)
            record.save(folder.path / AGREEMENT)
    if as_json:
        documents.result(dataclasses.asdict(record))
    else:
        rows = [
            (f"{s.operation}:{s.stage}", str(s.problems), tiers(s.tiers), s.disagreement or "they agree")
            for s in record.stages
        ]
        console().print(table(("stage", "problems", "agreeing comparisons", "outcome"), rows))
    if any(s.disagreement or not s.problems for s in record.stages):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("identity", required=False, metavar="[ID]")
@options("device", "isolate", "json")
def replay(identity: str | None, device_name: str, isolate: bool, as_json: bool) -> None:
    """Solve a failing problem of a stage again, on either device; without ID, list the failing problems that are kept.

    Failing problems are kept, and tried first whenever the stage is verified. The exit code is 1 while it still fails.
    """
    if identity is None:
        kept = versions.every_failure()
        if as_json:
            documents.result({"failures": [dataclasses.asdict(failure) for failure in kept]})
        else:
            show_failures(kept)
        return
    failure = versions.remembered(identity)
    stages = registry.select((failure.spec,))
    session = session_on(opened(device_name, isolate), 1, 0, suites_of(stages, [failure.problem]))
    with finishing(session, as_json):
        work(session, stages, 1)


def show_failures(kept: Sequence[Remembered]) -> None:
    """A table of the problems that stages have failed on."""
    headers = ("id", "stage", "verdict", "on", "date", "problem")
    rows = [(f.id, f.spec, f.verdict, f.device, f.date[:16].replace("T", " "), f.problem) for f in kept]
    console().print(table(headers, rows, (), 2) if rows else "no failure is kept")


# ----------------------------------------------------------------------------- which stages a change of files is about


def affected(stages: Sequence[Stage[Any]], files: Iterable[Path]) -> list[Stage[Any]]:
    """Those of the stages that are made of one of the files: their source, a header of it, or Python of the project.

    Files that were deleted count where the folder of the operation had them."""
    changed = {path.resolve() for path in files}
    return [stage for stage in stages if changed & files_of(stage).files or _in_package(stage, changed)]


def _in_package(stage: Stage[Any], changed: Iterable[Path]) -> bool:
    """Whether one is a module beside the operation's, where that is a package: stages may be declared there."""
    module = registry.loaded().modules.get(stage.operation)
    if module is None or not module.__file__ or Path(module.__file__).name != "__init__.py":
        return False
    folder = Path(module.__file__).resolve().parent
    sources = (".cu", ".cuh", ".h", ".hpp")  # one that exists belongs to the stages that read it
    return any(
        path.is_relative_to(folder) and (path.suffix == ".py" or (path.suffix in sources and not path.exists()))
        for path in changed
    )
