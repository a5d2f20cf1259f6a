"""Versions of stages that are kept, and their times over commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.text import Text

from ..catalogue import registry
from ..model.errors import WorkbenchError
from ..model.results import ResultsError, Run
from ..records import restoring, store, versions
from ..report import history as past
from ..report import history_page
from ..report.changes import StatisticsUnavailable
from . import documents
from .console import OUTCOMES, console, notice, table
from .main import ResultFile, options, specs_argument
from .sessions import problems_of


@click.command()
@specs_argument
@click.option(
    "-o",
    "target",
    type=ResultFile(),
    metavar="FILE.md",
    help="Also write the tables as Markdown, with a picture beside them.",
)
@click.option(
    "--problem", "problem_text", metavar="TEXT", help="Only this problem: `4096x4096x4096,dtype=bf16,out=bf16`."
)
@options("json", "output")
def history(specs: tuple[str, ...], target: Path | None, problem_text: str | None, as_json: bool, output: Path) -> None:
    """Show the versions of stages that are kept here, and their times over commits.

    Every version that passed is kept; `workbench restore SPEC@N` brings one back. Times over commits come from the
    results in the report folder, as git has them and as they are now. --output may also be the folder of one device.
    Each measurement is one line, with the commit that was measured."""
    stages = registry.select(specs)
    kept = {s.spec: known for s in stages if (known := versions.listed(s))}
    names = {(s.operation, s.name) for s in stages}
    labels = {name: problem.label for name, problem in problems_of(stages, problem_text).items()}
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
        raise WorkbenchError(str(error)) from None
    for reason in unread:
        notice(f"left out: {reason}")
    if not found:
        missing = missing or f"no results in {output} or its history have a time of {' '.join(specs) or 'anything'}"
        if states and labels:
            near = past.near_labels(states, names, list(labels.values()))
            missing += f" on {' or '.join(dict.fromkeys(labels.values()))}"
            missing += f"; they have times on {', '.join(near)}" if near else ""
        if not kept:
            raise WorkbenchError(missing)
        notice(f"no times are shown: {missing}")
    if as_json:
        times = [
            {"operation": x.operation, "stage": x.stage, "problem": x.label}
            | {"points": [p.as_dict() for p in x.points]}
            for x in found
        ]
        documents.result({"versions": [past.version_dict(v) for known in kept.values() for v in known], "times": times})
    else:
        for spec, known in kept.items():
            show_versions(spec, past.version_cells(known, labels.get(spec.partition(":")[0])))
        show_history(found)
    if target:
        notice(f"wrote {', '.join(map(str, history_page.write(found, target)))}")


def show_versions(spec: str, rows: Iterable[Sequence[str]]) -> None:
    """A table of the versions of a stage that are kept."""
    out = console()
    out.print(f"\n{spec}: kept versions", style="bold")
    out.print(table(past.VERSIONS, rows, ("registers", *past.VERSIONS[7:]), 2))


def show_history(lines: Iterable[past.Line]) -> None:
    """A table for each stage and problem, a line a measurement."""
    out = console()
    for line in lines:
        out.print(f"\n{line.name}", style="bold")
        rows = [
            (*cells[:-1], Text(cells[-1], OUTCOMES.get(cells[-1], ""))) for cells in (p.cells() for p in line.points)
        ]
        out.print(table(past.HEADERS, rows, past.HEADERS[2:6], 2))


@click.command()
@click.argument("name", metavar="SPEC@N")
@options("json")
def restore(name: str, as_json: bool) -> None:
    """Bring back version N of a stage, as `workbench history SPEC` lists them, byte for byte.

    The current files are kept as a version first. So nothing is lost. The stages of installed packages are not changed.
    """
    stage, version = versions.named(name)
    if version is None:
        raise click.UsageError(f"which version? {stage.spec}@N, as workbench history {stage.spec} lists them")
    made = restoring.restore(stage, version)
    if as_json:
        before = [f"what was there is {made.before.spec}"] if made.before and made.written else []
        documents.result({"written": made.written, "notes": [*before, *made.notes]})
        return
    if made.before and made.written:
        click.echo(f"what was there is {made.before.spec}")
    for path in made.written:
        click.echo(f"wrote {path}")
    if not made.written:
        click.echo(f"{version.spec} is what is there")
    for note in made.notes:
        notice(note)
