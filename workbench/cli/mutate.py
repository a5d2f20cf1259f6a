"""Mutants of the CUDA sources."""

from __future__ import annotations

import dataclasses

import click

from ..catalogue import registry
from ..checks import mutate as mutation
from ..records import environment
from ..workers.cluster import Processes
from . import documents
from .console import StageProgress, console
from .main import options, specs_argument
from .sessions import connected, opened


@click.command()
@specs_argument
@click.option(
    "--examples",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Number of problems to try on each mutant.",
)
@click.option("--limit", type=click.IntRange(1), help="Try only this many mutants, chosen by the seed.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Number of processes that try mutants (default: 1), or of workers of --cluster local (default: one for "
    "each core).",
)
@options("cluster", "seed", "json")
def mutate(
    specs: tuple[str, ...],
    examples: int,
    limit: int | None,
    jobs: int | None,
    cluster: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Change the CUDA sources in small ways, and check in the emulator whether verification notices.

    Every mutant that passes is shown. If its change has no effect, add an entry that says why to equivalent/NAME.toml
    beside the source NAME. Otherwise the problems or checks of the operation have a gap. The exit code is 1 while a
    mutant is unexplained."""
    stages = registry.select(specs)
    opened("emulator")  # says what is missing, before any process is started
    with (
        connected(cluster, "emulator", jobs=jobs) if cluster else Processes(jobs or 1) as pool,
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
        documents.result({**made, **outcome.as_dict()})
    else:
        show_mutants(outcome)
    if outcome.survivors or outcome.count(mutation.Outcome.LOST) or not outcome.compiled:
        raise click.exceptions.Exit(1)


def show_mutants(outcome: mutation.Report) -> None:
    """The mutants that survived or were lost, those that are explained, and a summary."""
    out = console()
    for survivor in outcome.survivors:
        out.print(f"survived: {survivor.mutant.operator}\n{survivor.mutant.diff}\n", soft_wrap=True)
    for lost in (j for j in outcome.judged if j.outcome is mutation.Outcome.LOST):
        out.print(f"{lost.mutant.file}:{lost.mutant.line} {lost.mutant.operator}: {lost.reason}", soft_wrap=True)
    for explained in outcome.explained:
        where = f"{explained.mutant.file}:{explained.mutant.line}"
        out.print(f"{where} {explained.mutant.operator} passes: {explained.reason}", soft_wrap=True)
    out.print(outcome.summary, soft_wrap=True)
