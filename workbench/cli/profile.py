"""What the emulator counts and sees of a stage: a profile by source line, and a timeline."""

from __future__ import annotations

from pathlib import Path

import click

from .. import emulator
from ..inspect import profile as profiling
from ..inspect import trace as tracing
from ..model.errors import WrongUsage, shown
from ..report import judged
from . import documents
from .options import OutputFile, options, trace_options, unwritable
from .sessions import one_stage, opened


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
            click.echo(shown(line))


@click.command()
@click.argument("spec")
@click.option(
    "-o",
    "target",
    type=OutputFile(),
    show_default="trace-OPERATION-STAGE.json",
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
    target: Path | None,
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
    target = target or Path(f"trace-{stage.operation}-{stage.name}.json")
    if reason := unwritable(target):
        raise WrongUsage(reason)
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
