"""The command line. Every command is a few calls into the rest of the package; errors become messages in one place.

Exit codes: 0 all pass, 1 something failed or the machine cannot do it, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .. import __version__
from ..catalogue import registry
from ..catalogue.project import BadProject
from ..catalogue.project import reports as reports_folder
from ..checks.mutate import BadExplanation
from ..devices import NAMES as DEVICE_NAMES
from ..devices import Device, DeviceUnavailable, Fault, open_device
from ..model.declared import BadOperation, declared, trouble
from ..model.operation import Problem, ProblemError, Stage
from ..model.results import Resources, ResultsError, Run
from ..records import store, versions
from ..records.store import AGREEMENT, Folder, slug
from ..records.tuned import TableError, TuningError
from ..records.versions import VersionsError
from ..report.changes import By
from ..report.evidence import tiers
from ..run.api import NO_TIMES
from ..run.session import Session
from ..run.watch import WatchUnavailable
from ..toolchain.compiler import CompileError, CompilerUnavailable, compile_source
from ..workers.cluster import LOCAL, Cluster, ClusterUnavailable, Lost, Processes, connect
from . import new

if TYPE_CHECKING:
    from ..measure.tuning import Here, There

F = TypeVar("F", bound=Callable[..., Any])


class Failed(click.ClickException):
    """Something failed, or this machine cannot do it."""

    exit_code = 1


class Interrupted(Failed):
    """The user pressed Ctrl-C."""

    exit_code = 130


FORESEEN = (
    DeviceUnavailable,
    CompilerUnavailable,
    CompileError,
    BadOperation,
    ResultsError,
    BadExplanation,
    TableError,
    TuningError,
    VersionsError,
    WatchUnavailable,
    ClusterUnavailable,
    Lost,
    Fault,
)
"""What can go wrong on any machine; the messages say what to do."""


class WorkbenchGroup(click.Group):
    """Turns what can foreseeably go wrong into one message and an exit code; what is wrong in the code of
    an operation is shown as far as it is in that code; anything else keeps its traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (registry.UnknownSpec, BadProject, ProblemError, new.CannotMake) as error:
            raise click.UsageError(str(error)) from None
        except FORESEEN as error:
            raise Failed(str(error)) from None
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe has gone
        except OSError as error:
            if error.filename is None:
                raise
            raise Failed(f"{error.filename}: {error.strerror}") from None
        except MemoryError as error:
            raise Failed(f"there is not enough memory for this problem ({error})") from None
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None
        except Exception as error:
            if said := trouble(error):
                raise Failed(said) from None
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], names, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the commands are {', '.join(names)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _options(*names: str) -> Callable[[F], F]:
    """The common options of these names, in this order."""
    known = {
        "device": click.option(
            "--device",
            "device_name",
            type=click.Choice(DEVICE_NAMES),
            default="auto",
            show_default=True,
            help="Where to run; auto is the GPU where there is one, else the emulator.",
        ),
        "seed": click.option(
            "--seed", type=click.IntRange(0), default=0, show_default=True, help="Which random problems are drawn."
        ),
        "examples": click.option(
            "--examples",
            type=click.IntRange(1),
            default=50,
            show_default=True,
            help="Random problems a stage, each judged in both tiers.",
        ),
        "problem": click.option(
            "--problem",
            "problem_text",
            metavar="TEXT",
            help="One problem instead of the usual ones: `64x32x7,dtype=bf16` or `m=64,n=32,k=7`.",
        ),
        "json": click.option(
            "--json", "as_json", is_flag=True, help="Print JSON and nothing else on stdout; messages go to stderr."
        ),
        "isolate": click.option(
            "--isolate",
            is_flag=True,
            help="Use the emulator, too, from a process of its own, as is always done with the GPU.",
        ),
        "sanitize": click.option(
            "--sanitize",
            is_flag=True,
            help="Also run NVIDIA's compute-sanitizer, where it is installed, and show what it finds. Needs a GPU.",
        ),
        "baselines": click.option(
            "--baselines",
            type=click.Choice(("vendor", "all")),
            default="vendor",
            show_default=True,
            help="The vendor's library is timed in turns with each stage; all adds those of cuBLASLt, cuDNN, "
            "torch.compile, Triton and NumPy that are found, once a problem.",
        ),
        "cluster": click.option(
            "--cluster",
            metavar="ADDRESS",
            help="Spread the work over the workers of the Dask scheduler at ADDRESS; local starts one here, with a "
            "worker for each GPU, or for each core where there is none.",
        ),
        "fresh": click.option(
            "--fresh",
            is_flag=True,
            help="Make everything again, also what an earlier run of the same code has done already.",
        ),
        "output": click.option(
            "--output",
            type=click.Path(path_type=Path),
            default=reports_folder,
            show_default="reports",
            help="Folder of the reports.",
        ),
    }

    def decorate(command: F) -> F:
        for name in reversed(names):
            command = known[name](command)
        return command

    return decorate


EMULATE_ARGUMENTS = """Arguments, one --arg for each parameter of the kernel, in their order:

\b
  f32[1024]=random      an array, its shape and what it holds: zeros, ones,
                        random, arange, nan or uninitialised
  f32[64,32]            the same, uninitialised: to read an element before
                        one was written is a hazard
  f32[1024]=@x.npy      what a .npy file holds; f32=@x.npy takes its shape
  f32[1024] => y.npy    and save what it holds afterwards
  C:f32[64,64]          and be called C in findings
  i32=1024   f32=0.5    a number

\b
Types: i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16 e4m3 e5m2

\b
workbench emulate scale.cu --grid 4 --block 256 --arg x:f32[1000]=random \\
    --arg y:f32[1000] --arg f32=2 --arg i32=1000 --print 0:4"""


def _trace_options(prefix: str) -> Callable[[F], F]:
    """Which blocks a timeline shows, and how much of them."""

    def decorate(command: F) -> F:
        command = click.option(
            f"--{prefix}events",
            "events",
            type=click.IntRange(1),
            default=200_000,
            show_default=True,
            help="Most events of a launch in the timeline.",
        )(command)
        return click.option(
            f"--{prefix}block",
            "blocks",
            type=click.IntRange(0),
            multiple=True,
            metavar="N",
            help="Show this block in the timeline, counted along x first; can be repeated. Without it: block 0.",
        )(command)

    return decorate


def _named(_: click.Context, __: click.Parameter, specs: tuple[str, ...]) -> tuple[str, ...]:
    """The specs; what of the project cannot be used is said, and keeps nobody from what is named."""
    if specs and registry.known(specs):  # a name that is unknown is said with them
        for trouble in registry.troubles():
            _notice(trouble)
    return specs


_specs = click.argument("specs", nargs=-1, metavar="[SPEC]...", callback=_named)


@click.group(cls=WorkbenchGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="workbench")
def main() -> None:
    """Develop CUDA kernels in stages: verified against NumPy on random problems, then timed, then reported.

    SPEC names what to work on: an operation (`gemm`), a stage (`gemm:tma_pipeline`), or a stage of every operation
    that has it (`naive`). Without SPEC it is every stage; in a project with a `[tool.workbench]` in its pyproject.toml,
    every stage of its own.

    Exit codes: 0 all pass, 1 something failed, 2 wrong usage, 130 interrupted.
    """


@main.command("list")
@_specs
@_options("json")
def list_stages(specs: tuple[str, ...], as_json: bool) -> None:
    """List operations and their stages in ladder order, with where they come from."""
    stages = registry.select(specs) if specs else registry.stages()
    origins = {name: operation.origin for name, operation in registry.operations().items()}
    if as_json:
        _print_json(
            [
                {"spec": s.spec, "idea": s.idea, "source": s.source, "architecture": s.architecture}
                | {"parameters": dict(s.parameters), "origin": origins[s.operation]}
                for s in stages
            ]
        )
    else:
        from ..report.console import console, table

        out = console()
        for operation in registry.operations().values():
            chosen = [s for s in stages if s.operation == operation.name]
            head = f"{operation.name}: {operation.summary} ({operation.origin}"
            if chosen:
                out.print(f"{head})", style="bold")
                out.print(table(("stage", "idea", "source"), [(s.name, s.idea, s.source) for s in chosen]))
            elif not specs:
                out.print(f"{head}; no stages yet)", style="bold")
    if not specs and registry.troubles():
        raise BadProject("\n".join(registry.troubles()))


@main.command()
@_specs
@_options("device", "seed", "examples", "problem", "isolate", "sanitize", "cluster", "json")
def verify(
    specs: tuple[str, ...],
    device_name: str,
    seed: int,
    examples: int,
    problem_text: str | None,
    isolate: bool,
    sanitize: bool,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Check stages against NumPy on random problems, or on the one given by --problem.

    A failure is shown with its smallest problem, the first wrong elements and the command that replays it.
    """
    stages = registry.select(specs)
    problems = _problems(stages, problem_text)
    if sanitize and cluster:
        raise click.UsageError("compute-sanitizer looks at kernels on this machine; leave out --cluster or --sanitize")
    with _device(device_name, isolate, cluster) as (device, workers):
        session = _session(device, examples, seed, problems, cluster=workers)
        if sanitize:
            _check_sanitizer(session)
        with _finish(session, as_json):
            _work(session, stages, 1 if problems else examples)


@main.command()
@_specs
@_options("device", "seed", "examples", "problem", "baselines", "fresh", "cluster", "json", "output")
def bench(
    specs: tuple[str, ...],
    device_name: str,
    seed: int,
    examples: int,
    problem_text: str | None,
    baselines: str,
    fresh: bool,
    cluster: str | None,
    as_json: bool,
    output: Path,
) -> None:
    """Verify stages on random problems, then time those that passed. Needs a GPU.

    A stage that has passed before exactly as it is now, by the same code on the same device, is not verified again.

    --problem replaces the suite of timed problems. Results are saved like those of `run`; no report is written. After
    an interruption the same command goes on where it was.
    """
    stages = registry.select(specs)
    problems = _problems(stages, problem_text)
    with _device(device_name, False, cluster) as (device, workers):
        if device.name == "emulator":
            raise Failed(NO_TIMES)
        session = _session(device, examples, seed, problems, output, fresh, workers)
        session.rely = True
        with _finish(session, as_json):
            _work(session, stages, examples, peers=baselines == "all")


@main.command()
@_specs
@_options("device", "seed", "examples", "problem", "baselines", "isolate", "fresh", "json", "output")
def run(
    specs: tuple[str, ...],
    device_name: str,
    seed: int,
    examples: int,
    problem_text: str | None,
    baselines: str,
    isolate: bool,
    fresh: bool,
    as_json: bool,
    output: Path,
) -> None:
    """Verify, then time where there is a GPU, then write the report: the main job.

    Results are saved after every stage in OUTPUT/<device>/results/<operation>.json. With SPEC only those stages are
    replaced: the others stay as the earlier run found them, and the report says which run each figure is from.

    --problem replaces the suite of timed problems; where nothing is timed, it replaces the random ones. After an
    interruption the same command goes on where it was.
    """
    from ..report.pages import write

    stages = registry.select(specs)
    problems = _problems(stages, problem_text)
    session = _session(_open(device_name, isolate), examples, seed, problems, output, fresh)
    with _finish(session, as_json):
        _work(session, stages, 1 if problems and not session.timed else examples, peers=baselines == "all")
        if session.folder and not specs:
            session.folder.discard_earlier_stages()
        _notice(f"wrote {', '.join(str(p) for p in write(output, slug(session.run.device)) if p.suffix == '.md')}")


@main.command()
@_specs
@_options("seed", "examples", "json", "output")
def agree(specs: tuple[str, ...], seed: int, examples: int, as_json: bool, output: Path) -> None:
    """Solve the same problems on the GPU and in the emulator and compare the answers. Needs a GPU.

    Bit-equal in the exact tier, both within the bound in the other. Saved as OUTPUT/<device>/agreement.json, which the
    report quotes.
    """
    from .. import harness
    from ..model.results import AgreementRun
    from ..records import environment
    from ..report.console import StageProgress, console, table

    stages = registry.select(specs)
    gpu, emulator = open_device("cuda"), open_device("emulator")
    folder = _folder(gpu, output)
    record = AgreementRun(gpu.info(), environment.describe())
    with StageProgress(len(stages), examples) as progress:
        for stage in stages:
            progress.begin(stage.spec)
            found = harness.agree(stage, gpu, emulator, examples=examples, seed=seed, on_problem=progress.verified)
            progress.end_with(found.disagreement or f"agrees on {found.problems} problems")
            record.stages.append(found)
            record.save(folder.path / AGREEMENT)
    if as_json:
        _print_json(dataclasses.asdict(record))
    else:
        rows = [
            (f"{s.operation}:{s.stage}", str(s.problems), tiers(s.tiers), s.disagreement or "they agree")
            for s in record.stages
        ]
        console().print(table(("stage", "problems", "agreeing comparisons", "outcome"), rows))
    if any(s.disagreement or not s.problems for s in record.stages):
        raise click.exceptions.Exit(1)


@main.command()
@_specs
@click.option(
    "--examples", type=click.IntRange(1), default=30, show_default=True, help="Problems that a mutant is tried on."
)
@click.option("--limit", type=click.IntRange(1), help="Try so many mutants, drawn from the seed, instead of all.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Processes that try mutants, one by default; workers of --cluster local, one a core by default.",
)
@_options("cluster", "seed", "json")
def mutate(
    specs: tuple[str, ...],
    examples: int,
    limit: int | None,
    jobs: int | None,
    cluster: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Change the CUDA sources in small ways and see whether verification notices, in the emulator.

    Every mutant that passes is shown: either it changes nothing that matters, and equivalent/NAME.toml beside the
    source NAME gets an entry that says why, or the problems or checks of the operation have a hole. Exit code 1 while
    one is unexplained.
    """
    from ..checks import mutate as mutation
    from ..records import environment
    from ..report.console import StageProgress, console

    stages = registry.select(specs)
    open_device("emulator")  # says what is missing, before any process is started
    with (
        _connect(cluster, "emulator", jobs=jobs) if cluster else Processes(jobs or 1) as pool,
        StageProgress(1, 0) as progress,
    ):
        done = 0

        def judged(_: mutation.Judged) -> None:
            nonlocal done
            done += 1
            progress.verified(done)

        outcome = mutation.mutate(
            stages,
            pool,
            examples=examples,
            seed=seed,
            limit=limit,
            on_start=lambda mutants: progress.count("mutants", mutants),
            on_mutant=judged,
        )
    if as_json:
        made = {
            "environment": dataclasses.asdict(environment.describe()),
            "specs": specs,
            "examples": examples,
            "limit": limit,
            "seed": seed,
        }
        _print_json({**made, **outcome.as_dict()})
    else:
        out = console()
        for survivor in outcome.survivors:
            out.print(f"survived: {survivor.mutant.operator}\n{survivor.mutant.diff}\n", soft_wrap=True)
        for lost in (j for j in outcome.judged if j.outcome is mutation.Outcome.LOST):
            out.print(f"{lost.mutant.file}:{lost.mutant.line} {lost.mutant.operator}: {lost.reason}", soft_wrap=True)
        for explained in outcome.explained:
            where = f"{explained.mutant.file}:{explained.mutant.line}"
            out.print(f"{where} {explained.mutant.operator} passes: {explained.reason}", soft_wrap=True)
        out.print(outcome.summary, soft_wrap=True)
    if outcome.survivors or outcome.count(mutation.Outcome.LOST) or not outcome.compiled:
        raise click.exceptions.Exit(1)


def _budget(_: click.Context, __: click.Parameter, text: str) -> float:
    from ..measure.tuning import parse_budget

    try:
        return parse_budget(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@main.command()
@_specs
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    metavar="TIME",
    callback=_budget,
    help="Time for each stage and class of problems: 60s, 5m, 1h.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Processes that compile, one a core by default; workers of --cluster local, one a GPU by default.",
)
@click.option("--show", is_flag=True, help="Show what was found so far, and tune nothing.")
@_options("device", "cluster", "seed", "problem", "json")
def tune(
    specs: tuple[str, ...],
    budget: float,
    jobs: int | None,
    show: bool,
    device_name: str,
    cluster: str | None,
    seed: int,
    problem_text: str | None,
    as_json: bool,
) -> None:
    """Search for the parameters with which stages are fastest, for workbench.ops to use. Needs a GPU to time.

    Every configuration is verified before it is timed. Without --problem, every class of the suite's problems is tuned
    for. What was found stays, whatever ends the search. On the emulator configurations are compiled and verified and
    nothing is timed; the exit code is 1 when one is rejected, or the time is up before all were verified.
    """
    from ..measure import tuning
    from ..records import tuned
    from ..report.console import StageProgress, show_tuned, show_tuning

    stages = registry.select(specs)
    table = tuned.table_for(stages)
    if show:
        if as_json:
            _print_json(tuned.as_dict(table, stages))
        else:
            show_tuned(tuned.listing(table, stages))
        return
    if not specs:
        raise click.UsageError("name what is to be tuned, for example: workbench tune gemm:fitted_tiles")
    problems = _problems(stages, problem_text)
    found: list[tuning.Tuning] = []
    with _place(device_name, cluster, jobs) as place:
        searches = tuning.searches(stages, problems, place.device)
        _notice(f"searches to make: {len(searches)}, of about {budget:.0f} s each")
        try:
            with tuning.interrupts() as interrupted, StageProgress(len(searches), 0) as progress:
                options: dict[str, Any] = {"seconds": budget, "seed": seed, "interrupted": interrupted}
                if place.at_once == 1:
                    options["on_trial"] = progress.verified
                    options["on_start"] = lambda count: progress.count("configurations", count)
                for outcome in tuning.tune_each(searches, place, table, **options):
                    progress.begin(outcome.spec)
                    progress.end_with(outcome.summary)
                    found.append(outcome)
                    if outcome.interrupted:
                        break
        finally:
            if as_json:
                _print_json([dataclasses.asdict(f) | {"ok": f.ok} for f in found])
            elif found:
                show_tuning(found)
    if place.device.name == "emulator":
        _notice("the emulator verifies and does not time: nothing was timed, and nothing is used by workbench.ops")
    if found[-1].interrupted:
        kept = f"what was found is in {table.path}" if found[-1].timed else "the configurations were not all verified"
        raise Interrupted(f"interrupted; {kept}")
    for f in found:
        if not f.timed and f.left and not f.trouble:
            _notice(
                f"{f.spec} on {f.problem_class}: the time was up before {f.left} of {f.allowed} configurations were "
                "verified; give it more with --budget"
            )
    if not all(f.ok for f in found):
        raise click.exceptions.Exit(1)


COMPARE_VERDICTS = """\b
SAME       within the tolerance, and a change of twice the tolerance is ruled out
SLOWER     beyond the tolerance, and "no change" is ruled out
FASTER     the same in the other direction
AMBIGUOUS  anything else: measure again, or for longer"""


@main.command(epilog=COMPARE_VERDICTS)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Which change matters.",
)
@click.option(
    "--by",
    type=click.Choice([by.value for by in By]),
    default=By.DRIFT.value,
    show_default=True,
    help="What times are divided by: how far the vendor's library drifted from A to B in all its measurements, its own "
    "time on the same problem, or nothing.",
)
@_options("json")
def compare(before: str, after: str, tolerance: float, by: str, as_json: bool) -> None:
    """Say of every stage and problem whether B is as fast as A, from their samples.

    A and B are results: a JSON file, a folder of a report, or COMMIT:path for what git has of them.

    Exit codes: 0 nothing is slower, 1 something is SLOWER, 2 wrong usage, or results that cannot be compared.
    """
    from ..report import changes
    from ..report.console import show_comparison

    try:
        runs = store.read(before), store.read(after)
        found = changes.compare(*runs, tolerance=tolerance / 100, by=By(by))
    except (ResultsError, changes.Incomparable, changes.StatisticsUnavailable) as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        _print_json({**dataclasses.asdict(found), "summary": found.summary, "slower": found.slower})
    else:
        show_comparison(found, runs)
    if found.slower:
        raise click.exceptions.Exit(1)


@main.command()
@_specs
@click.option(
    "-o",
    "target",
    type=click.Path(path_type=Path),
    metavar="FILE.md",
    help="Also write it as Markdown, with a picture beside it.",
)
@click.option(
    "--problem",
    "problem_text",
    metavar="TEXT",
    help="Only this problem: `4096x4096x4096,dtype=bf16,out=bf16`.",
)
@_options("json", "output")
def history(specs: tuple[str, ...], target: Path | None, problem_text: str | None, as_json: bool, output: Path) -> None:
    """Show the versions of stages that are kept here, and their times over commits.

    Every version that passed is kept; `workbench restore SPEC@N` brings one back. Times over commits are those of the
    results that git has in the report folder, and those in it now; --output may also be the folder of one device. A
    measurement is one line, named by the commit that was measured.
    """
    from ..report import history as past
    from ..report.changes import StatisticsUnavailable
    from ..report.console import show_history, show_versions

    stages = registry.select(specs)
    kept = {s.spec: known for s in stages if (known := versions.listed(s))}
    names = {(s.operation, s.name) for s in stages}
    labels = {name: problem.label for name, problem in _problems(stages, problem_text).items()}
    states: list[list[Run]] = []
    unread: list[str] = []
    missing = ""
    try:
        states, unread = past.records(str(output))
    except store.SeveralDevices as error:
        missing = f"{error}, with --output"
    except ResultsError as error:
        missing = str(error)
    try:
        found = past.lines(
            states,
            lambda s, m: (not specs or (s.operation, s.stage) in names) and labels.get(s.operation, m.label) == m.label,
        )
    except StatisticsUnavailable as error:
        raise Failed(str(error)) from None
    for reason in unread:
        _notice(f"left out: {reason}")
    if not found:
        missing = missing or f"no results in {output} or its history have a time of {' '.join(specs) or 'anything'}"
        if states and labels:
            near = past.near_labels(states, names, list(labels.values()))
            missing += f" on {' or '.join(dict.fromkeys(labels.values()))}"
            missing += f"; they have times on {', '.join(near)}" if near else ""
        if not kept:
            raise Failed(missing)
        _notice(f"no times are shown: {missing}")
    if as_json:
        times = [
            {"operation": x.operation, "stage": x.stage, "problem": x.label}
            | {"points": [p.as_dict() for p in x.points]}
            for x in found
        ]
        _print_json({"versions": [past.version_dict(v) for known in kept.values() for v in known], "times": times})
    else:
        for spec, known in kept.items():
            show_versions(spec, past.version_cells(known, labels.get(spec.partition(":")[0])))
        show_history(found)
    if target:
        _notice(f"wrote {', '.join(map(str, past.write(found, target)))}")


@main.command()
@click.argument("name", metavar="SPEC@N")
def restore(name: str) -> None:
    """Bring back version N of a stage, as `workbench history SPEC` lists them, byte for byte.

    What is there now is kept as a version first, so that nothing is lost.
    """
    stage, version = versions.named(name)
    if version is None:
        raise click.UsageError(f"which version? {stage.spec}@N, as workbench history {stage.spec} lists them")
    made = versions.restore(stage, version)
    if made.before and made.written:
        click.echo(f"what was there is {made.before.spec}")
    for path in made.written:
        click.echo(f"wrote {path}")
    if not made.written:
        click.echo(f"{version.spec} is what is there")
    for note in made.notes:
        _notice(note)


@main.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@_options("problem", "json")
def diff(before: str, after: str, problem_text: str | None, as_json: bool) -> None:
    """Show two stages, or versions of them, side by side: sources, instructions, resources, times.

    A and B are SPEC, which is the stage as it is now, or SPEC@N. Instructions are SASS where nvdisasm or cuobjdump is
    installed, else PTX, of the variant for --problem, or for the first timed problem that both take. Times are those
    of the versions that are kept.
    """
    from ..report import differences
    from ..report.console import show_difference

    sides = differences.Side.of(before), differences.Side.of(after)
    problem = _problems([sides[0].stage], problem_text).get(sides[0].stage.operation)
    try:
        found = differences.compare(*sides, problem)
    except differences.NothingInCommon as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        _print_json(dataclasses.asdict(found))
    else:
        show_difference(found)


@main.command()
@click.argument("identity", required=False, metavar="[ID]")
@_options("device", "isolate", "json")
def replay(identity: str | None, device_name: str, isolate: bool, as_json: bool) -> None:
    """Solve a problem again that a stage has failed on, on either device; without ID, list those that are kept.

    What fails is kept and tried first whenever the stage is verified. The exit code is 1 while it still fails.
    """
    if identity is None:
        kept = versions.every_failure()
        if as_json:
            _print_json([dataclasses.asdict(failure) for failure in kept])
        else:
            from ..report.console import show_failures

            show_failures(kept)
        return
    failure = versions.remembered(identity)
    stages = registry.select((failure.spec,))
    session = _session(_open(device_name, isolate), 1, 0, _problems(stages, failure.problem))
    with _finish(session, as_json):
        _work(session, stages, 1)


@main.command()
@click.argument("spec")
@_options("device", "seed", "examples", "problem", "isolate", "json")
def watch(
    spec: str, device_name: str, seed: int, examples: int, problem_text: str | None, isolate: bool, as_json: bool
) -> None:
    """Verify a stage whenever its source, a header or its declaration is saved; on a GPU time it, too.

    The smallest problems come first, then --examples random ones, then times, set beside those of the last good version
    and of the stage before. Every version that passes is kept. A save in the middle of a run begins it again; Ctrl-C
    ends it. With --json every event is a line of its own.
    """
    from ..run import watch as watching

    sys.dont_write_bytecode = True  # it is told from its source by the second, and there may be two saves in one
    saves = watching.Saves()
    stage, _ = _one_stage(spec, problem_text)
    job = watching.Job(stage.spec, device_name, examples, seed, problem_text, isolate)

    def show(event: watching.Event) -> None:
        if as_json:
            click.echo(json.dumps(watching.as_dict(event), default=os.fspath))
        else:
            for line in watching.lines(event):
                click.echo(line)

    watching.Watch(job, saves, show).follow()


@main.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--examples", type=click.IntRange(1), default=10, show_default=True, help="Random problems a point, in both tiers."
)
@_options("device", "seed", "json", "output")
def experiment(names: tuple[str, ...], examples: int, device_name: str, seed: int, as_json: bool, output: Path) -> None:
    """Show one effect each with short kernels: coalescing, bank conflicts, swizzles, divergence, occupancy ...

    Every point of an experiment is verified, then counted in the emulator, then timed where there is a GPU. Results and
    their page are in OUTPUT/experiments/<device>. With NAME only those are made again.
    """
    from .. import experiments
    from ..experiments import page, study
    from ..report.console import StageProgress, console, table
    from ..report.evidence import explain, failed

    open_device("emulator")  # says what is missing where the engine is not built
    chosen, device = experiments.select(names), open_device(device_name)
    _check_writable(page.folder(output, slug(device.info())))
    found = []
    try:
        with StageProgress(len(chosen), 0) as progress:
            for each in chosen:
                progress.begin(each.name)
                points = len(each.operation.stages) * len(each.values(device.info().sm_count))
                progress.count(each.name, points)
                made = study.study(each, device, examples=examples, seed=seed, on_point=progress.verified)
                page.save(output, made)
                found.append((each, made))
                progress.end_with("ok" if study.ok(made) else "failed")
    finally:
        written = page.write(output) if found else []
    if as_json:
        _print_json([dataclasses.asdict(made) for _, made in found])
    else:
        out = console()
        for each, made in found:
            out.print(each.operation.summary, style="bold")
            out.print(table(*page.rows(each, made)))
    for _, made in found:
        for point in made.points:
            if failed(point.verification):
                _notice(explain(f"{made.name}, {point.series}, {point.value}", point.verification))
            elif point.untimed and device.name != "emulator":
                _notice(f"{made.name}, {point.series}, {point.value} was not timed: {point.untimed}")
    _notice(f"wrote {', '.join(str(path) for path in written if path.suffix == '.md')}")
    if not all(study.ok(made) for _, made in found):
        raise click.exceptions.Exit(1)


@main.command()
@_options("json", "output")
def report(as_json: bool, output: Path) -> None:
    """Write the report again from the results in OUTPUT, without running anything."""
    from ..experiments import page
    from ..report.pages import write

    written = [*page.write(output), *write(output)]
    if as_json:
        _print_json([str(path) for path in written])
    else:
        for path in written:
            click.echo(path)


@main.command()
@_specs
@click.option("--ptx", "show_ptx", is_flag=True, help="Print the PTX.")
@click.option("--sass", "show_sass", is_flag=True, help="Print the SASS, where nvdisasm or cuobjdump is installed.")
@_options("problem", "json")
def inspect(specs: tuple[str, ...], show_ptx: bool, show_sass: bool, problem_text: str | None, as_json: bool) -> None:
    """Show registers, shared memory, spills and occupancy of the compiled kernels, and their PTX or SASS.

    Every variant that the timed problems need is shown; --problem picks one. Occupancy is for compute capability 9.0.
    """
    from ..report.console import console, notice, resources_table
    from ..report.derived import variants
    from ..toolchain import disassembly, occupancy

    stages = registry.select(specs)
    problems = _problems(stages, problem_text)
    found: dict[str, list[Resources]] = {}
    compiled_variants = {}
    for stage in stages:
        chosen = problems.get(stage.operation)
        suite = (chosen,) if chosen else registry.operation_of(stage).suite
        if chosen and (reason := stage.supports(chosen)):
            notice(f"{stage.spec} does not take {chosen}: {reason}")
            continue
        if resources := occupancy.suite_resources(stage, suite):
            found[stage.spec] = resources
        for problem in suite:
            if stage.supports(problem) is None:
                compiled = compile_source(stage.path, stage.defines(problem))
                compiled_variants[stage.spec, compiled.variant] = compiled
    if not found:
        raise Failed("there is nothing to show: no stage takes this problem")
    listings = [("PTX", spec, variant, c.ptx) for (spec, variant), c in compiled_variants.items() if show_ptx]
    if show_sass:
        try:
            listings += [
                ("SASS", spec, variant, disassembly.sass(c.cubin_path))
                for (spec, variant), c in compiled_variants.items()
            ]
        except disassembly.DisassemblerUnavailable as error:
            raise Failed(str(error)) from None
    if as_json:
        _print_json(
            {
                "resources": [
                    {"spec": spec, **dataclasses.asdict(r)} for spec, resources in found.items() for r in resources
                ],
                "listings": [
                    {"kind": k, "spec": spec, "variant": variant, "text": text} for k, spec, variant, text in listings
                ],
            }
        )
        return
    out = console()
    out.print(resources_table(found.items()))
    for spec, resources in found.items():
        if shared := variants(resources)[0]:
            out.print(f"{spec}: {shared}", soft_wrap=True)
    for kind, spec, variant, text in listings:
        click.echo(f"\n// {kind} of {spec}, {variant}\n{text}")


@main.command(epilog=EMULATE_ARGUMENTS)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--entry", metavar="NAME", help="The kernel; needed where the source has several.")
@click.option("--grid", required=True, metavar="X[,Y[,Z]]", help="Blocks of the grid.")
@click.option("--block", required=True, metavar="X[,Y[,Z]]", help="Threads of a block.")
@click.option("--cluster", default="1", metavar="X[,Y[,Z]]", help="Blocks of a cluster.")
@click.option("--arg", "arguments", multiple=True, metavar="ARG", help="An argument of the kernel: see below.")
@click.option("--shared", type=click.IntRange(0), default=0, metavar="BYTES", help="Dynamic shared memory.")
@click.option("--define", "defines", multiple=True, metavar="X=1", help="A macro for the compiler.")
@click.option("--include", multiple=True, type=click.Path(path_type=Path), help="A folder of headers.")
@click.option("--option", "flags", multiple=True, metavar="FLAG", help="A flag of NVRTC, such as -use_fast_math.")
@click.option("--print", "printed", metavar="0:8", help="Print these elements of every array afterwards.")
@click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="When a kernel counts as hung.")
@click.option(
    "--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Order of warps, and what random arrays hold."
)
@click.option("--counters", is_flag=True, help="Print the source with what every line of it asks of the machine.")
@click.option("--trace", "trace_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the timeline.")
@_trace_options("trace-")
@_options("json")
def emulate(
    file: Path,
    entry: str | None,
    grid: str,
    block: str,
    cluster: str,
    arguments: tuple[str, ...],
    shared: int,
    defines: tuple[str, ...],
    include: tuple[Path, ...],
    flags: tuple[str, ...],
    printed: str | None,
    max_seconds: float | None,
    seed: int,
    counters: bool,
    trace_file: Path | None,
    blocks: tuple[int, ...],
    events: int,
    as_json: bool,
) -> None:
    """Execute any kernel, FILE.cu or FILE.ptx, on the CPU and name its hazards at their source lines.

    Exit codes: 0 no hazard, 1 a hazard or a source that does not compile, 2 wrong usage.
    """
    open_device("emulator")  # says what is missing where the engine is not built
    import numpy as np

    from .. import emulator
    from ..inspect import emulate as shell
    from ..inspect.trace import NoSuchBlock, check_blocks, save
    from ..inspect.trace import as_json as timeline

    rng = np.random.default_rng(seed)
    try:
        chosen = None if printed is None else shell.parse_slice(printed)
        check_blocks(blocks, math.prod(shell.parse_dimensions(grid, "--grid")))
        job = shell.Emulation(
            file,
            entry,
            shell.parse_dimensions(grid, "--grid"),
            shell.parse_dimensions(block, "--block"),
            [shell.parse_argument(text, number, rng) for number, text in enumerate(arguments)],
            shared,
            shell.parse_dimensions(cluster, "--cluster"),
            shell.parse_defines(defines),
            include,
            flags,
            seed,
            counters,
            None if trace_file is None else emulator.Traced(blocks or (0,), events),
            max_seconds,
        )
        report = job.run()
    except (shell.UsageError, NoSuchBlock, emulator.ArgumentError, emulator.LaunchError) as error:
        raise click.UsageError(str(error)) from None
    except (
        emulator.CompileError,
        emulator.CompilerUnavailable,
        emulator.PtxSyntaxError,
        emulator.UnsupportedInstruction,
    ) as error:
        raise Failed(str(error)) from None
    if trace_file is not None:
        _notice(save(timeline([report.statistics], report.kernel), trace_file))
    shown = {a.name: a.array.reshape(-1)[chosen] for a in job.arguments if chosen is not None and a.array is not None}
    if as_json:
        _print_json({**report.as_dict(), "arrays": {name: shell.plain(array) for name, array in shown.items()}})
    else:
        click.echo(report.output, nl=False)
        click.echo(str(report))
        for name, array in shown.items():
            click.echo(f"{name}[{printed}] = {' '.join(map(str, array))}")
        if counters:
            from ..emulator.profile import profile as count_lines
            from ..inspect.profile import listing

            for line in listing(count_lines(report.statistics), str(file)):
                click.echo(line)
    if not report.ok:
        raise click.exceptions.Exit(1)


@main.command("profile")
@click.argument("spec")
@_options("problem", "json")
def profile_(spec: str, problem_text: str | None, as_json: bool) -> None:
    """Count what every source line of a stage executes and asks of memory, exactly, in the emulator.

    SPEC is one stage; --problem is what it works on, instead of a small one. Instructions of a function that was
    inlined count at its own line ("own"), and in the "total" of each line that it was inlined into.
    """
    open_device("emulator")  # says what is missing where the engine is not built
    from ..inspect import profile as profiling

    stage, problem = _one_stage(spec, problem_text)
    found = profiling.profile_stage(stage, problem)
    if as_json:
        _print_json(profiling.as_dict(stage, problem, found))
    else:
        for line in profiling.annotated(stage, problem, found):
            click.echo(line)


@main.command()
@click.argument("spec")
@click.option(
    "-o",
    "target",
    type=click.Path(path_type=Path),
    default=Path("trace.json"),
    show_default=True,
    metavar="FILE",
    help="Where it is written.",
)
@_trace_options("")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Order of warps.")
@_options("problem")
def trace(spec: str, target: Path, blocks: tuple[int, ...], events: int, seed: int, problem_text: str | None) -> None:
    """Write the timeline of a stage, as executed in the emulator, for ui.perfetto.dev or chrome://tracing.

    It shows what every warp does and waits for, phases of mbarriers, and copies and tensor-core work under way. A
    hazard ends it, and the exit code is 1. SPEC is one stage; --problem is what it works on, instead of a small one.
    """
    open_device("emulator")  # says what is missing where the engine is not built
    from ..emulator import Traced
    from ..inspect import trace as tracing

    stage, problem = _one_stage(spec, problem_text)
    try:
        found, fault = tracing.trace_stage(stage, problem, Traced(blocks or (0,), events), seed)
    except tracing.NoSuchBlock as error:
        raise click.UsageError(f"{error} for {problem}") from None
    click.echo(tracing.save(found, target))
    if fault is not None:
        raise fault


@main.command("new")
@click.argument("name", metavar="OPERATION[:STAGE]")
@click.option("--from", "previous", metavar="NAME", help="The operation, or the stage of it, to begin with.")
@click.option("--like", type=click.Choice(new.KINDS), help="What a new operation is like.  [default: elementwise]")
def new_(name: str, previous: str | None, like: str | None) -> None:
    """Write the files of a new operation, or of the next stage of one, for you to fill in. Nothing is overwritten.

    OPERATION gets a folder with a declaration, a NumPy reference, a first CUDA source without its kernel, and a test
    that fails until that is written. OPERATION:STAGE --from STAGE copies the source and the declaration of a stage.
    """
    if ":" in name:
        if not previous or like:
            raise click.UsageError(f"a stage begins as a copy of another: workbench new {name} --from STAGE")
        made = new.stage(name, previous)
    else:
        if previous and like:
            raise click.UsageError("give either --from or --like")
        made = new.operation(name, like=like or new.KINDS[0], base=previous)
    for path in made.written:
        click.echo(f"wrote {path}")
    for path in made.added:
        click.echo(f"added to {path}")
    for number, step in enumerate(made.next, 1):
        click.echo(f"{number}. {step}")


@main.command()
@_options("json", "output")
def doctor(as_json: bool, output: Path) -> None:
    """Say what this machine can do, what is missing, and the remedy. Exit code 1 when it can do nothing."""
    from rich.text import Text

    from ..report.console import console, table
    from .doctor import State, examine

    diagnosis = examine(output)
    if as_json:
        _print_json({**dataclasses.asdict(diagnosis), "usable": diagnosis.usable, "summary": diagnosis.summary})
    else:
        styles = {State.OK: "green", State.MISSING: "bold red", State.OPTIONAL: "yellow"}
        rows = [(c.name, Text(c.state, styles[c.state]), c.found, c.remedy) for c in diagnosis.checks]
        out = console()
        out.print(table(("", "state", "found", "remedy"), rows))
        out.print(diagnosis.summary)
    if not diagnosis.usable:
        raise click.exceptions.Exit(1)


def _one_stage(spec: str, problem_text: str | None) -> tuple[Stage[Any], Problem]:
    """The one stage that is named and the problem that it is to work on, a small one where none is given."""
    from ..inspect.profile import default_problem

    stages = registry.select((spec,))
    if len(stages) != 1:
        raise click.UsageError(f"{spec} names {len(stages)} stages ({', '.join(s.spec for s in stages)}); choose one")
    (stage,) = stages
    problem = _problems(stages, problem_text).get(stage.operation) or default_problem(stage)
    if reason := stage.supports(problem):
        raise click.UsageError(f"{stage.spec} does not take {problem}: {reason}")
    return stage, problem


def _problems(stages: Sequence[Stage[Any]], text: str | None) -> dict[str, Problem]:
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


def _check_sanitizer(session: Session) -> None:
    """Let the session use compute-sanitizer. Raises Failed where that is not possible."""
    from ..checks import sanitizer

    if session.device.name != "cuda":
        raise Failed("compute-sanitizer looks at kernels on a GPU; the emulator finds such hazards by itself")
    try:
        sanitizer.find()
    except sanitizer.SanitizerUnavailable as error:
        raise Failed(str(error)) from None
    session.sanitize = True


def _open(name: str, isolate: bool) -> Device:
    return open_device(name, isolate=True) if isolate else open_device(name)


@contextmanager
def _connect(address: str, device: str, isolate: bool = False, jobs: int | None = None) -> Iterator[Cluster]:
    """The cluster at this address; what it is made of is said."""
    if jobs and address != LOCAL:
        raise click.UsageError(f"--jobs is how many workers --cluster {LOCAL} starts; those of {address} are there")
    with connect(address, device, isolate=isolate, workers=jobs) as cluster:
        dashboard = f"; dashboard: {cluster.client.dashboard_link}" if find_spec("bokeh") else ""
        _notice(f"workers: {cluster.count} x {cluster.device.info().name}{dashboard}")
        yield cluster


@contextmanager
def _device(name: str, isolate: bool, address: str | None) -> Iterator[tuple[Device, Cluster | None]]:
    """The device to run on: of this machine, or of a cluster's workers."""
    if address is None:
        yield _open(name, isolate), None
        return
    with _connect(address, name, isolate) as cluster:
        yield cluster.device, cluster


@contextmanager
def _place(name: str, address: str | None, jobs: int | None) -> Iterator[Here | There]:
    """Where configurations are judged."""
    from ..measure.tuning import Here, There
    from ..records import environment

    if address:
        with _connect(address, name, jobs=jobs) as cluster:
            yield There(cluster)
        return
    count = jobs or environment.core_count()
    with Processes(count) as pool:
        yield Here(open_device(name), pool, count)


def _check_memory(problem: Problem) -> None:
    """Refuse a problem whose float64 reference alone is larger than the machine's memory. Raises Failed."""
    with declared("arrays of the operation"):
        needed = sum(8 * math.prod(array.shape) for array in problem.arrays().values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        gib = f"{needed / 2**30:,.0f} GiB for its NumPy reference and this machine has {memory / 2**30:,.0f}"
        raise Failed(f"there is not enough memory for {problem}: it needs at least {gib}")


def _session(
    device: Device,
    examples: int,
    seed: int,
    problems: dict[str, Problem],
    output: Path | None = None,
    fresh: bool = False,
    cluster: Cluster | None = None,
) -> Session:
    """A session on the device; with `output` it is saved in the device's folder there, and timed on a GPU."""
    folder = None if output is None else _folder(device, output)
    timed = folder is not None and device.name != "emulator"
    return Session(device, examples, seed, timed, problems, folder, fresh=fresh, keep=True, cluster=cluster)


def _folder(device: Device, output: Path) -> Folder:
    """The folder of a device's results. Raises Failed where it cannot be written."""
    path = output / slug(device.info())
    _check_writable(path)
    return Folder(path)


def _check_writable(path: Path) -> None:
    """Raises Failed where reports cannot be written in a folder."""
    try:
        store.check_writable(path)
    except OSError as error:
        raise Failed(
            f"reports cannot be written in {path} ({error.strerror or error}); choose another folder with --output"
        ) from None


def _work(session: Session, stages: Sequence[Stage[Any]], examples: int, peers: bool = False) -> None:
    from ..report.console import StageProgress

    operations = list(dict.fromkeys(stage.operation for stage in stages)) if peers and session.timed else []
    session.expect(stages)
    with StageProgress(len(stages) + len(operations), examples) as progress:
        for stage in stages:
            progress.begin(stage.spec)
            progress.end(session.stage(stage, progress))
        for operation in operations:
            progress.begin(f"{operation}, other implementations")
            session.peers(operation, progress)
            found = ", ".join(f"{p.name} {len(p.measurements)}" for p in session.run.peers if p.operation == operation)
            progress.end_with(f"problems timed: {found or 'none was found'}")
    session.finish()
    if session.taken_over:
        _notice(
            f"{session.taken_over} verifications and measurements are those of a run of {session.run.environment.date} "
            "that was interrupted (--fresh makes them again)"
        )
    if session.relied_on:
        _notice(f"{session.relied_on} stages had passed before, as they are now (--fresh verifies them again)")


@contextmanager
def _finish(session: Session, as_json: bool) -> Iterator[None]:
    """Show what the session has done, however the body ends, and choose the exit code."""
    try:
        yield
    except KeyboardInterrupt:
        _show(session.run, as_json)
        where = f"; their results are in {session.saved}" if session.saved else ""
        raise Interrupted(f"interrupted after {len(session.run.stages)} finished stages{where}") from None
    except Exception:
        if session.run.stages:
            _show(session.run, as_json)
        if session.saved:
            _notice(f"results so far are in {session.saved}")
        raise
    _show(session.run, as_json)
    for spec, reason in session.trouble.items():
        _notice(f"{spec} passed and could not be timed: {reason}")
    if session.saved:
        _notice(f"results are in {session.saved}")
    if not session.ok():
        raise click.exceptions.Exit(1)


def _show(run: Run, as_json: bool) -> None:
    if as_json:
        _print_json(dataclasses.asdict(run))
        return
    from ..report.console import show_timing, show_verification

    show_verification(run)
    show_timing(run, {name: o.metric for name, o in registry.operations().items()})


def _notice(message: str) -> None:
    from ..report.console import notice

    notice(message)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, sort_keys=True, default=os.fspath))
