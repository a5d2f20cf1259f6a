"""What stages compile to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from .. import emulator
from ..catalogue import registry
from ..inspect import profile as profiling
from ..inspect.profile import default_problem
from ..model.errors import WorkbenchError, WrongUsage, shown
from ..model.results import Resources
from ..report import derived, judged
from ..toolchain import compiler, disassembly
from ..toolchain.compiler import compile_stage
from . import documents
from .console import Fitting, console, notice, table
from .main import OutputFile, options, specs_argument, trace_options, unwritable
from .sessions import one_stage, opened, problems_of

BYTES = ("static", "dynamic", "spills")
"""Columns of the table of resources that are in bytes."""


@click.command()
@specs_argument
@click.option("--ptx", "show_ptx", is_flag=True, help="Print the PTX.")
@click.option("--sass", "show_sass", is_flag=True, help="Print the SASS, where nvdisasm or cuobjdump is installed.")
@options("problem", "json")
def inspect(specs: tuple[str, ...], show_ptx: bool, show_sass: bool, problem_text: str | None, as_json: bool) -> None:
    """Show registers, shared memory, spills and occupancy of the compiled kernels, and their PTX or SASS.

    Every variant that the timed problems need is shown; --problem picks one. Occupancy is for compute capability 9.0.
    """
    stages = registry.select(specs)
    problems = problems_of(stages, problem_text)
    found: dict[str, list[Resources]] = {}
    compiled_variants = {}
    for stage in stages:
        chosen = problems.get(stage.operation)
        suite = (chosen,) if chosen else registry.operation_of(stage).suite or (default_problem(stage),)
        if chosen and (reason := stage.supports(chosen)):
            notice(f"{stage.spec} does not take {chosen}: {reason}")
            continue
        if resources := compiler.suite_resources(stage, suite):
            found[stage.spec] = resources
        for problem in suite:
            if stage.supports(problem) is None:
                compiled = compile_stage(stage, problem)
                compiled_variants[stage.spec, compiled.variant] = compiled
    if not found:
        raise WorkbenchError("there is nothing to show: no stage takes this problem")
    listings = [("PTX", spec, variant, c.ptx) for (spec, variant), c in compiled_variants.items() if show_ptx]
    if show_sass:
        try:
            listings += [
                ("SASS", spec, variant, disassembly.sass(c.cubin_path))
                for (spec, variant), c in compiled_variants.items()
            ]
        except disassembly.DisassemblerUnavailable as error:
            raise WorkbenchError(str(error)) from None
    if as_json:
        documents.result(
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
    out.print("static and dynamic shared memory and spills are in bytes")
    for spec, resources in found.items():
        if shared := derived.variants(resources)[0]:
            out.print(f"{spec}: {shared}", soft_wrap=True)
    for kind, spec, variant, text in listings:
        click.echo(shown(f"\n// {kind} of {spec}, {variant}\n{text}"))


def resources_table(stages: Iterable[tuple[str, Sequence[Resources]]]) -> Fitting:
    """Registers, bytes of shared memory and spills, and occupancy of each stage's variants, named by what they do not
    share; the name of the kernel where a stage has several."""
    shown = [(spec, resources, derived.variants(resources)[1]) for spec, resources in stages]
    several = any(len({r.kernel for r in resources}) > 1 for _, resources, _ in shown)
    headers = ("stage", *(("kernel",) if several else ()), "variant", "registers", *BYTES)
    more = ("threads", "blocks/SM", "occupancy", "limited by")
    cells = [
        (
            spec,
            *((r.kernel,) if several else ()),
            variant or "-",
            r.registers,
            f"{r.static_shared:,}",
            f"{r.dynamic_shared:,}",
            f"{r.spill_bytes:,}",
            r.block_threads,
            r.blocks_per_sm,
            f"{100 * r.occupancy:.0f} %",
            r.limiter,
        )
        for spec, resources, variants in shown
        for r, variant in zip(resources, variants, strict=True)
    ]
    return table((*headers, *more), cells, ("registers", *BYTES, *more[:3]), 2 if several else 1)


# ------------------------------ what the emulator counts and sees of a stage: a profile by source line, and a timeline


@click.command("profile")
@click.argument("spec")
@options("problem", "json")
def profile_(spec: str, problem_text: str | None, as_json: bool) -> None:
    """Count exactly, in the emulator, what every source line of a stage executes and what it asks of memory.

    SPEC is one stage. It solves a small problem, or --problem. Instructions of an inlined function count at its own
    line ("own"), and in the "total" of each line that it was inlined into."""
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
    """Write the timeline of a stage, as executed in the emulator, for ui.perfetto.dev or chrome://profiling.

    The timeline shows what every warp does and waits for, phases of mbarriers, and copies and tensor-core work in
    flight. A hazard ends it, and the exit code is 1. SPEC is one stage. It solves a small problem, or --problem."""
    opened("emulator")  # says what is missing where the engine is not built
    stage, problem = one_stage(spec, problem_text)
    target = target or Path(f"trace-{stage.operation}-{stage.name}.json")
    if reason := unwritable(target):
        raise WrongUsage(reason)
    try:
        found, fault = profiling.trace_stage(stage, problem, emulator.Traced(blocks or (0,), events), seed)
    except profiling.NoSuchBlock as error:
        raise WrongUsage(f"{error} for {problem}") from None
    saved = profiling.save(found, target)
    hazards = fault.hazards if fault else ()
    if as_json:
        said = judged.of_findings(stage.spec, hazards, str(fault or ""))
        said.problem = str(problem)
        documents.result({"written": [target], "notes": [saved]}, [said])
    else:
        click.echo(saved)
    if fault is not None:
        raise fault
