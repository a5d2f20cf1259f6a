"""What the emulator counts and sees: any kernel, a profile or a timeline of a stage."""

from __future__ import annotations

import math
from pathlib import Path

import click
import numpy as np

from .. import emulator
from ..emulator.profile import profile as count_lines
from ..inspect import emulate as shell
from ..inspect import profile as profiling
from ..inspect import trace as tracing
from ..model.errors import WrongUsage
from .console import notice, print_json
from .options import options, trace_options
from .problems import one_stage
from .sessions import opened

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


@click.command(epilog=EMULATE_ARGUMENTS)
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
@click.option(
    "--arch", metavar="SM", help="The device's: sm_80, 86, 89, 90, 90a, 100, 120; PTX names it, CUDA C++ is for sm_90a."
)
@click.option("--print", "printed", metavar="0:8", help="Print these elements of every array afterwards.")
@click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="When a kernel counts as hung.")
@click.option(
    "--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Order of warps, and what random arrays hold."
)
@click.option("--counters", is_flag=True, help="Print the source with what every line of it asks of the machine.")
@click.option("--trace", "trace_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the timeline.")
@trace_options("trace-")
@options("json")
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
    arch: str | None,
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
    opened("emulator")  # says what is missing where the engine is not built
    rng = np.random.default_rng(seed)
    chosen = None if printed is None else shell.parse_slice(printed)
    tracing.check_blocks(blocks, math.prod(shell.parse_dimensions(grid, "--grid")))
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
        arch,
    )
    report = job.run()
    if trace_file is not None:
        notice(tracing.save(tracing.as_json([report.statistics], report.kernel), trace_file))
    shown = {a.name: a.array.reshape(-1)[chosen] for a in job.arguments if chosen is not None and a.array is not None}
    if as_json:
        print_json({**report.as_dict(), "arrays": {name: shell.plain(array) for name, array in shown.items()}})
    else:
        click.echo(report.output, nl=False)
        click.echo(str(report))
        for name, array in shown.items():
            click.echo(f"{name}[{printed}] = {' '.join(map(str, array))}")
        if counters:
            for line in profiling.listing(count_lines(report.statistics), str(file)):
                click.echo(line)
    if not report.ok:
        raise click.exceptions.Exit(1)


@click.command("profile")
@click.argument("spec")
@options("problem", "json")
def profile_(spec: str, problem_text: str | None, as_json: bool) -> None:
    """Count what every source line of a stage executes and asks of memory, exactly, in the emulator.

    SPEC is one stage; --problem is what it works on, instead of a small one. Instructions of a function that was
    inlined count at its own line ("own"), and in the "total" of each line that it was inlined into.
    """
    opened("emulator")  # says what is missing where the engine is not built
    stage, problem = one_stage(spec, problem_text)
    found = profiling.profile_stage(stage, problem)
    if as_json:
        print_json(profiling.as_dict(stage, problem, found))
    else:
        for line in profiling.annotated(stage, problem, found):
            click.echo(line)


@click.command()
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
@trace_options("")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Order of warps.")
@options("problem")
def trace(spec: str, target: Path, blocks: tuple[int, ...], events: int, seed: int, problem_text: str | None) -> None:
    """Write the timeline of a stage, as executed in the emulator, for ui.perfetto.dev or chrome://tracing.

    It shows what every warp does and waits for, phases of mbarriers, and copies and tensor-core work under way. A
    hazard ends it, and the exit code is 1. SPEC is one stage; --problem is what it works on, instead of a small one.
    """
    opened("emulator")  # says what is missing where the engine is not built
    stage, problem = one_stage(spec, problem_text)
    try:
        found, fault = tracing.trace_stage(stage, problem, emulator.Traced(blocks or (0,), events), seed)
    except tracing.NoSuchBlock as error:
        raise WrongUsage(f"{error} for {problem}") from None
    click.echo(tracing.save(found, target))
    if fault is not None:
        raise fault
