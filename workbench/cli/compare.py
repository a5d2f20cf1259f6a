"""Two results, or two versions of stages, side by side; and the report of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from ..catalogue import registry
from ..experiments import page
from ..inspect.profile import default_problem
from ..model.errors import WrongUsage
from ..model.results import ResultsError, Run
from ..records import store
from ..report import changes, derived, differences, pages
from ..report.changes import By, Comparison
from ..report.differences import Difference, Row
from . import documents
from .console import OUTCOMES, console, table
from .main import Number, ResultFile, options
from .sessions import problems_of

COMPARE_VERDICTS = """\b
SAME       within the tolerance; a change of twice the tolerance is ruled out
SLOWER     beyond the tolerance, and "no change" is ruled out
FASTER     the same in the other direction
AMBIGUOUS  anything else: measure again, or measure longer"""


@click.command(epilog=COMPARE_VERDICTS)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--tolerance",
    type=Number(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Smaller changes count as the same.",
)
@click.option(
    "--by",
    type=click.Choice([by.value for by in By]),
    default=By.DRIFT.value,
    show_default=True,
    help="What times are divided by: drift is the change of the vendor's library from A to B over all its "
    "measurements, vendor is its time on the same problem, time is nothing.",
)
@options("json")
def compare(before: str, after: str, tolerance: float, by: str, as_json: bool) -> None:
    """Say for every stage and problem whether B is as fast as A, from their samples.

    A and B are results: a JSON file, the folder of a report, or COMMIT:path for a state in git.

    Exit codes: 0 nothing is slower, 1 something is SLOWER, 2 wrong usage, or the results cannot be compared."""
    try:
        runs = store.read(before), store.read(after)
        found = changes.compare(*runs, tolerance=tolerance / 100, by=By(by))
    except (ResultsError, changes.StatisticsUnavailable) as error:
        raise WrongUsage(str(error)) from None
    if as_json:
        documents.result({**dataclasses.asdict(found), "summary": found.summary, "slower": found.slower})
    else:
        show_comparison(found, runs)
    if found.slower:
        raise click.exceptions.Exit(1)


def show_comparison(found: Comparison, runs: tuple[Sequence[Run], Sequence[Run]]) -> None:
    """What was compared, what differs besides the code, what times are divided by, a line a row, and a summary."""
    out = console()
    for name, side in zip("AB", runs, strict=True):
        for run in side:
            e = run.environment
            dirty = " with uncommitted changes" if e.dirty else ""
            out.print(f"{name}: {run.device.name}, {e.date}, commit {e.commit[:12]}{dirty}", soft_wrap=True)
    for note in found.notes:
        out.print(f"differs: {note}", soft_wrap=True)
    several = len({(drift.before, drift.after) for drift in found.drifts}) > 1
    for drift in found.drifts:
        dates = f" (A of {drift.before}, B of {drift.after})" if several else ""
        out.print(f"{drift.operation}, {drift.kind}{dates}: {drift.reason}", soft_wrap=True)
    headers = ("stage", "problem", "", "A", "B", "B / A", "of vendor", "judged by", "")
    rows = [
        (
            f"{c.operation}:{c.stage}",
            c.label,
            c.kind,
            derived.duration(c.before_us),
            derived.duration(c.after_us),
            f"{c.time.estimate:.3f}",
            f"{c.of_vendor.estimate:.3f}" if c.of_vendor else "-",
            str(c.used),
            Text(c.outcome, OUTCOMES[c.outcome]),
        )
        for c in found.changes
    ]
    if rows:
        out.print(table(headers, rows, headers[3:7], 2))
    for name, missing in (("A", found.only_before), ("B", found.only_after)):
        for row in missing:
            out.print(f"only in {name}: {row}", soft_wrap=True)
    out.print(found.summary)


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="[B]", required=False)
@options("problem", "json")
def diff(before: str, after: str | None, problem_text: str | None, as_json: bool) -> None:
    """Show two stages, or versions of them, side by side: sources, instructions, resources, times.

    A and B are SPEC, the current state of a stage, or SPEC@N, a kept version. A alone is compared with its parent.
    Instructions are SASS if nvdisasm or cuobjdump is installed, otherwise PTX. They are those of the variant for
    --problem, or for the first timed problem that both support. An operation without timed problems has one of moderate
    extents instead. Times are those of the kept versions."""
    last = differences.Side.of(after or before)
    sides = differences.Side.of(before if after else differences.parent_of(last)), last
    problem = problems_of([sides[0].stage], problem_text).get(sides[0].stage.operation)
    if not (problem or registry.operation_of(last.stage).suite):
        problem = default_problem(last.stage)
    found = differences.compare(*sides, problem)
    if as_json:
        documents.result(dataclasses.asdict(found))
    else:
        show_difference(found)


def show_difference(found: Difference) -> None:
    """The diff of the sources, then what differs of parameters, instructions, resources and times."""
    out = console()
    for line in found.source:
        out.print(Text(line, DIFF.get(line[:1], "")), soft_wrap=True)
    if not found.source:
        out.print("the sources and declarations are the same")
    sides = (found.before, found.after)
    instructions = found.instructions if any(r.before != r.after for r in found.instructions) else []
    compiled = f", compiled for {found.problem}"
    for title, rows in (
        ("parameters", found.parameters),
        (f"{found.instructions_of} instructions that differ{compiled}", instructions),
        (f"resources{compiled}", found.resources),
    ):
        if rows:
            cells = [(r.name, _shown(r.before), _shown(r.after), _change(r)) for r in rows]
            out.print(f"\n{title}", style="bold", soft_wrap=True)
            out.print(table(("", *sides, "change"), cells, (*sides, "change")))
    if not instructions:
        out.print(f"every {found.instructions_of} instruction occurs equally often in both{compiled}", soft_wrap=True)
    if found.times:
        out.print("\ncold times", style="bold")
        times = [
            (
                t.device,
                t.problem,
                *(derived.duration(us) if us else "-" for us in (t.before_us, t.after_us)),
                f"{t.gain:.2f}x" if t.gain else "-",
            )
            for t in found.times
        ]
        out.print(table(("on", "problem", *sides, "gain"), times, (*sides, "gain"), 2))
    else:
        out.print("neither was timed in its current state")


DIFF = {"+": "green", "-": "red", "@": "cyan"}


def _shown(value: float | str | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _change(row: Row) -> str:
    if isinstance(row.before, int) and isinstance(row.after, int):
        return f"{row.after - row.before:+,}" if row.after != row.before else ""
    return "" if row.before == row.after else "differs"


@click.command()
@click.option(
    "--html", "as_html", is_flag=True, help="Write one HTML page that needs no other file: OUTPUT/<device>/report.html."
)
@click.option("-o", "target", type=ResultFile(), metavar="FILE", help="With --html: the file to write.")
@click.option(
    "--trace",
    "traces",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="With --html: show this timeline of `workbench trace`, too; can be repeated. Those in OUTPUT/<device>/traces "
    "are shown anyway.",
)
@options("json", "output")
def report(as_html: bool, target: Path | None, traces: tuple[Path, ...], as_json: bool, output: Path) -> None:
    """Write the report again from the results in OUTPUT, without running anything.

    OUTPUT is a folder of reports; with --html it may also be the folder of one device."""
    if as_html:
        from ..report import html_page  # with a parser of Markdown, which no other command needs

        written = html_page.write(output, target, traces)
    elif target or traces:
        raise click.UsageError(f"{'-o' if target else '--trace'} is for the page of --html; add it")
    else:
        written = [*page.write(output), *pages.write(output)]
    if as_json:
        documents.result({"written": written, "notes": []})
    else:
        for path in written:
            click.echo(path)
