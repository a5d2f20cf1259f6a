"""Short kernels that show one effect each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from .. import experiments
from ..experiments import page, study
from ..records.store import slug
from ..report.evidence import explain, failed
from . import documents
from .console import StageProgress, console, notice, table
from .main import options
from .sessions import check_writable, opened


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--examples",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Random problems for each point, in all tiers.",
)
@options("device", "seed", "json", "output")
def experiment(names: tuple[str, ...], examples: int, device_name: str, seed: int, as_json: bool, output: Path) -> None:
    """Run short kernels that show one effect each: coalescing, bank conflicts, swizzles, divergence, occupancy ...

    Every point of an experiment is verified, then counted in the emulator, then timed if there is a GPU. Results and
    their page are in OUTPUT/experiments/<device>. With NAME, only those experiments run."""
    opened("emulator")  # says what is missing where the engine is not built
    chosen, device = experiments.select(names), opened(device_name)
    check_writable(page.folder(output, slug(device.info())))
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
        documents.result({"outcomes": [dataclasses.asdict(made) for _, made in found]})
    else:
        out = console()
        for each, made in found:
            out.print(each.operation.summary, style="bold")
            out.print(table(*page.rows(each, made)))
    for _, made in found:
        for point in made.points:
            if failed(point.verification):
                notice(explain(f"{made.name}, {point.series}, {point.value}", point.verification))
            elif point.untimed and device.times:
                notice(f"{made.name}, {point.series}, {point.value} was not timed: {point.untimed}")
    notice(f"wrote {', '.join(str(path) for path in written if path.suffix == '.md')}")
    if not all(study.ok(made) for _, made in found):
        raise click.exceptions.Exit(1)
