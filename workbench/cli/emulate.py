"""What the emulator counts and sees: any kernel, a profile or a timeline of a stage."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .. import __version__, emulator
from ..devices.emulated import hazard_of
from ..emulator.statistics import profile as count_lines
from ..inspect import emulate as shell
from ..inspect import profile as profiling
from ..inspect import trace as tracing
from ..model.errors import WrongUsage
from ..model.results import Verdict
from ..report import judged, sarif
from ..report.judged import Judged
from . import documents
from .console import notice
from .options import Number, OutputFile, options, trace_options
from .problems import one_stage
from .sessions import opened

if TYPE_CHECKING:
    from ..triton.launching import Launched

EMULATE_ARGUMENTS = """Arguments, one --arg for each parameter of the kernel, in their order:

\b
  f32[1024]=random      an array, its shape and its values: zeros, ones,
                        random, arange, nan or uninitialised
  f32[64,32]            an uninitialised array: reading an element before
                        it was written is a hazard
  f32[1024]=@x.npy      values from a .npy file; f32=@x.npy takes its shape
  f32[1024] => y.npy    save the array to this file afterwards
  C:f32[64,64]          an array with the name C in findings
  i32=1024   f32=0.5    a number
  {x:f32[8]=ones; n:i32=8}   a struct, with a pointer to x
  A:bf16[256,64]=random as map[64,64] swizzle=128
                        a tensor map of an array, and its box
  A                     the array that was named before

\b
--set coefficients:f32[4]=@c.npy gives a __constant__ or __device__ variable
its value. --then 'reduce --grid 1 --block 256 --arg y --arg z:f32[1]'
launches another kernel afterwards; y is the array that was named before.

\b
Types: i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16 e4m3 e5m2

\b
workbench emulate scale.cu --grid 4 --block 256 --arg x:f32[1000]=random \\
    --arg y:f32[1000] --arg f32=2 --arg i32=1000 --print 0:4"""


@click.command(epilog=EMULATE_ARGUMENTS)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--entry",
    metavar="NAME",
    help="The kernel, such as scale or ns::scale<float>; needed if the source has several.",
)
@click.option("--grid", metavar="X[,Y[,Z]]", help="Blocks of the grid; needed except with --triton.")
@click.option("--block", metavar="X[,Y[,Z]]", help="Threads of a block; needed except with --triton.")
@click.option("--cluster", default="1", metavar="X[,Y[,Z]]", help="Blocks of a cluster.")
@click.option("--arg", "arguments", multiple=True, metavar="ARG", help="An argument of the kernel: see below.")
@click.option("--shared", type=click.IntRange(0), default=0, metavar="BYTES", help="Dynamic shared memory.")
@click.option("--define", "defines", multiple=True, metavar="X=1", help="A macro for the compiler.")
@click.option(
    "--include",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder of headers.",
)
@click.option("--option", "flags", multiple=True, metavar="FLAG", help="A flag of NVRTC, such as -use_fast_math.")
@click.option("--set", "variables", multiple=True, metavar="NAME:ARG", help="A variable of the source, and its value.")
@click.option(
    "--then", "steps", multiple=True, metavar="'KERNEL ...'", help="Another launch on the same memory: see below."
)
@click.option("--nvcc", is_flag=True, help="Let nvcc compile FILE.cu unchanged, with its host code.")
@click.option(
    "--arch",
    metavar="SM",
    help="Architecture of the device: sm_80, 86, 89, 90, 90a, 100, 120. By default PTX has its own, and CUDA C++ and "
    "Triton have sm_90a.",
)
@click.option("--print", "printed", metavar="0:8", help="Print these elements of every array after the launch.")
@click.option("--max-seconds", type=Number(0, min_open=True), help="A kernel that takes longer counts as hung.")
@click.option(
    "--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Seed of the order of warps and of random arrays."
)
@click.option(
    "--strict", is_flag=True, help="Also fail for strict findings: PTX forbids them, but devices do what is meant."
)
@click.option(
    "--suppress",
    multiple=True,
    metavar="KIND[@FILE:LINE]",
    help="Hide findings of this kind; a comment `// workbench: allow KIND` on the line does the same.",
)
@click.option("--counters", is_flag=True, help="Print the source, with what every line asks of the machine.")
@click.option("--triton", is_flag=True, help="Execute FILE.py, and emulate the Triton kernels that it launches.")
@click.option("--trace", "trace_file", type=OutputFile(), metavar="FILE", help="Write the timeline to this file.")
@trace_options("trace-")
@options("json", "sarif")
def emulate(
    file: Path,
    entry: str | None,
    grid: str | None,
    block: str | None,
    cluster: str,
    arguments: tuple[str, ...],
    shared: int,
    defines: tuple[str, ...],
    include: tuple[Path, ...],
    flags: tuple[str, ...],
    variables: tuple[str, ...],
    steps: tuple[str, ...],
    nvcc: bool,
    arch: str | None,
    printed: str | None,
    max_seconds: float | None,
    seed: int,
    strict: bool,
    suppress: tuple[str, ...],
    counters: bool,
    triton: bool,
    trace_file: Path | None,
    blocks: tuple[int, ...],
    events: int,
    as_json: bool,
    sarif_file: Path | None,
) -> None:
    """Execute any kernel on the CPU and name its hazards at their source lines.

    FILE is a .cu file (with or without host code), a .ptx file, or a fat binary, object, library or program with PTX.

    With --triton, FILE is a Python file. Its launches of Triton kernels are emulated, on arrays of NumPy or PyTorch.

    Exit codes: 0 no hazard, 1 a hazard or a source that does not compile, 2 wrong usage.
    """
    opened("emulator")  # says what is missing where the engine is not built
    if triton:
        how: dict[str, Any] = {"seed": seed, "max_seconds": max_seconds, "strict": strict, "suppress": suppress}
        return _emulate_triton(file, arch or "sm_90a", as_json, **how)
    if grid is None or block is None:
        hint: dict[str, Any] = {"param_hint": "--grid" if grid is None else "--block", "param_type": "option"}
        raise click.MissingParameter("A launch is, for example, --grid 4 --block 256.", **hint)
    rng = np.random.default_rng(seed)
    chosen = None if printed is None else shell.parse_slice(printed)
    tracing.check_blocks(blocks, math.prod(shell.parse_dimensions(grid, "--grid")))
    first = shell.Step(
        entry,
        shell.parse_dimensions(grid, "--grid"),
        shell.parse_dimensions(block, "--block"),
        shell.parse_arguments(arguments, rng),
        shared,
        shell.parse_dimensions(cluster, "--cluster"),
    )
    launches = shell.parse_steps(first, steps, rng)
    job = shell.Emulation(
        file,
        launches,
        [shell.parse_variable(text, rng) for text in variables],
        shell.parse_defines(defines),
        include,
        flags,
        seed,
        counters,
        None if trace_file is None else emulator.Traced(blocks or (0,), events),
        max_seconds,
        nvcc,
        strict,
        suppress,
        arch,
    )
    reports, verdicts = _judged(job, entry, strict, sarif_file)
    if trace_file is not None:
        found = tracing.as_json([report.statistics for report in reports], reports[0].kernel)
        notice(tracing.save(found, trace_file))
    shown = {a.name: a.array.reshape(-1)[chosen] for a in job.arguments if chosen is not None and a.array is not None}
    if as_json:
        arrays = {name: shell.plain(array) for name, array in shown.items()}
        _print_document(reports, arrays, verdicts)
    else:
        _print_reports(reports)
        for name, array in shown.items():
            click.echo(f"{name}[{printed}] = {' '.join(map(str, array))}")
        for report in reports if counters else ():
            for line in profiling.listing(count_lines(report.statistics), str(file)):
                click.echo(line)
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)


def _judged(
    job: shell.Emulation, entry: str | None, strict: bool, sarif_file: Path | None
) -> tuple[list[emulator.Report], list[Judged]]:
    """What the launches did, and their verdicts, also as SARIF. Raises what running them does."""
    verdicts: list[Judged] = []
    again = _again()
    try:
        reports = job.run()
        for report in reports:
            hazards = [*map(hazard_of, report.findings)]
            verdicts.append(judged.of_findings(report.kernel, hazards, _said(report), again, strict))
        return reports, verdicts
    except shell.NotExecuted as error:
        if error.verdict:
            verdicts = [judged.of_source(entry or job.file.name, error.verdict, str(error), job.file)]
            error.file, error.line = verdicts[0].file, verdicts[0].line
            documents.judged(verdicts)
        raise
    finally:
        if sarif_file and verdicts:
            sarif.write(sarif_file, verdicts, f"emulate/{verdicts[0].spec}", __version__)


def _again() -> str:
    """The command that does the same once more, for a reader."""
    return shlex.join(["workbench", *(word for word in click.get_current_context().obj if word != "--json")])


def _print_document(
    reports: Sequence[emulator.Report], arrays: dict[str, list[Any]], verdicts: Sequence[Judged]
) -> None:
    first, *later = (report.as_dict() for report in reports)
    documents.result({**first, "then": later, "arrays": arrays}, verdicts)


def _print_reports(reports: Sequence[emulator.Report]) -> None:
    for report in reports:
        click.echo(report.output, nl=False)
        click.echo(str(report))


def _emulate_triton(file: Path, target: str, as_json: bool, **options: Any) -> None:
    """The file under `workbench.triton.emulate`. Options that say how a kernel is launched are the file's to say."""
    shell.check_paths(file)
    context = click.get_current_context()
    taken = ("file", "triton", "arch", "as_json", *options)
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name)
        if name not in taken and given is click.core.ParameterSource.COMMANDLINE:
            raise WrongUsage(f"{parameter.opts[0]} is not for --triton: {file} itself launches its kernels")
    from ..triton.script import run_script  # which no other command needs

    # what the file prints is no part of the JSON
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        run = run_script(file, target, **options)
    own = sorted({launched.target for launched in run.launches} - {target})
    if own and context.get_parameter_source("arch") is click.core.ParameterSource.COMMANDLINE:
        notice(f"{file} has contexts of its own, for {', '.join(own)}: --arch {target} is not for their launches")
    if as_json:
        documents.result(run.as_dict(), [_of_triton(one, _again(), options["strict"]) for one in run.launches])
    else:
        for launched in run.launches:
            click.echo(launched.output, nl=False)
        click.echo(str(run))
    if not run.ok:
        raise click.exceptions.Exit(1)


def _of_triton(launched: Launched, again: str, strict: bool) -> Judged:
    """The verdict of one launch: of what was found, and of what differs from the reference."""
    found = judged.of_findings(launched.kernel, [*map(hazard_of, launched.findings)], str(launched), again, strict)
    if found.ok and launched.differences:
        found = replace(found, code=Verdict.MISMATCH, ok=False, message="\n".join(launched.differences), replay=again)
        found.reward = 0.0
    return found


def _said(report: emulator.Report) -> str:
    return "\n".join(map(str, report.findings))


@click.command("profile")
@click.argument("spec")
@options("problem", "json")
def profile_(spec: str, problem_text: str | None, as_json: bool) -> None:
    """Count exactly, in the emulator, what every source line of a stage executes and what it asks of memory.

    SPEC is one stage. It solves a small problem, or --problem. Instructions of an inlined function count at its own
    line ("own"), and in the "total" of each line that it was inlined into.
    """
    opened("emulator")  # says what is missing where the engine is not built
    stage, problem = one_stage(spec, problem_text)
    found = profiling.profile_stage(stage, problem)
    if as_json:
        documents.result(profiling.as_dict(stage, problem, found))
    else:
        for line in profiling.annotated(stage, problem, found):
            click.echo(line)


@click.command()
@click.argument("spec")
@click.option(
    "-o",
    "target",
    type=OutputFile(),
    default=Path("trace.json"),
    show_default=True,
    metavar="FILE",
    help="The file to write.",
)
@trace_options("")
@click.option(
    "--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Seed of the order of warps."
)
@options("problem", "json")
def trace(
    spec: str,
    target: Path,
    blocks: tuple[int, ...],
    events: int,
    seed: int,
    problem_text: str | None,
    as_json: bool,
) -> None:
    """Write the timeline of a stage, as executed in the emulator, for ui.perfetto.dev or chrome://tracing.

    The timeline shows what every warp does and waits for, phases of mbarriers, and copies and tensor-core work in
    flight. A hazard ends it, and the exit code is 1. SPEC is one stage. It solves a small problem, or --problem.
    """
    opened("emulator")  # says what is missing where the engine is not built
    stage, problem = one_stage(spec, problem_text)
    try:
        found, fault = tracing.trace_stage(stage, problem, emulator.Traced(blocks or (0,), events), seed)
    except tracing.NoSuchBlock as error:
        raise WrongUsage(f"{error} for {problem}") from None
    saved = tracing.save(found, target)
    hazards = fault.hazards if fault else ()
    if as_json:
        said = judged.of_findings(stage.spec, hazards, str(fault or ""))
        said.problem = str(problem)
        documents.result({"written": [target], "notes": [saved]}, [said])
    else:
        click.echo(saved)
    if fault is not None:
        raise fault
