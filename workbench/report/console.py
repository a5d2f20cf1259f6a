"""What the command line shows: tables on stdout, progress and messages on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..model.results import Resources, Run, StageResult, Verdict
from . import derived
from .changes import Comparison
from .evidence import explain, failed, tiers
from .history import HEADERS, VERSIONS, Line

if TYPE_CHECKING:
    from ..measure.tuning import Tuning
    from ..records.tuned import Listed
    from ..records.versions import Remembered
    from .differences import Difference, Row

Cells = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]
"""Headers and rows of a table, as text."""

UNWRAPPED = 180
"""Columns where the output is no terminal and nobody has set COLUMNS."""


def console(stream: IO[str] | None = None) -> Console:
    """A console on `stream` (default stdout) that takes no text for markup."""
    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else UNWRAPPED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


@dataclass(frozen=True)
class Fitting:
    """A table; a list of its rows, a line a cell, where it is too narrow for the words of the table."""

    table: Table
    headers: Sequence[str]
    rows: Sequence[Sequence[Text]]
    named: int
    """So many cells of a row say which row it is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for narrow in (False, True):
            self.table.collapse_padding = narrow
            least = Measurement.get(console, options.update(max_width=WIDE), self.table).minimum
            if least <= options.max_width + (BROKEN if narrow else 0):
                yield self.table
                return
        headers = self.headers[self.named :]
        width = max(map(len, headers), default=0)
        for row in self.rows:
            yield Text("\n" + "  ".join(cell.plain for cell in row[: self.named]), "bold")
            for header, cell in zip(headers, row[self.named :], strict=True):
                if cell.plain not in ("", "-"):
                    yield Text.assemble(f"  {header:<{width}}  ", cell)


WIDE = 100_000
"""Columns that everything fits into."""

BROKEN = 4
"""So many columns may be missing: a word is broken, not each of them."""


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[str] = (), unwrapped: int = 1
) -> Fitting:
    """A table; columns named in `numeric` are right-aligned, the first `unwrapped` never wrap. Cells may be rich."""
    made, cells = Table(box=box.SIMPLE_HEAD, pad_edge=False), []
    for i, header in enumerate(headers):
        made.add_column(
            header, justify="right" if header in numeric else "left", overflow="fold", no_wrap=i < unwrapped
        )
    for row in rows:
        cells.append([cell if isinstance(cell, Text) else Text(str(cell)) for cell in row])
        made.add_row(*cells[-1])
    return Fitting(made, headers, cells, unwrapped)


def verdict_text(verdict: Verdict) -> Text:
    """The verdict, coloured; the word itself says everything."""
    style = {Verdict.PASS: "green", Verdict.UNSUPPORTED: "yellow"}.get(verdict, "bold red")
    return Text(verdict, style)


def verification_cells(run: Run) -> Cells:
    """Headers, and one line a stage, its verdict second."""
    headers = ("stage", "verdict", "problems", "comparisons", "not supported", "worst error / bound", "seconds")
    rows = [
        (
            f"{s.operation}:{s.stage}",
            str(s.verification.verdict),
            str(s.verification.problems or "-"),
            tiers(s.verification.tiers),
            str(sum(s.verification.unsupported.values())),
            f"{s.verification.worst_error:.3f}" if s.verification.tiers.get("bounded") else "-",
            f"on {s.verification.date[:10]}" if s.verification.date else f"{s.verification.seconds:.1f}",
        )
        for s in run.stages
    ]
    return headers, rows


def verification_table(run: Run) -> Fitting:
    """`verification_cells` with coloured verdicts."""
    headers, rows = verification_cells(run)
    coloured = [(spec, verdict_text(Verdict(verdict)), *others) for spec, verdict, *others in rows]
    return table(headers, coloured, headers[2:3] + headers[4:])


def show_verification(run: Run) -> None:
    """The table of verdicts, then everything known about each failure, then why stages took nothing."""
    out = console()
    out.print(verification_table(run))
    for s in run.stages:
        if failed(s.verification):
            out.rule(characters="─", style="red")
            out.print(explain(f"{s.operation}:{s.stage}", s.verification, kept=True), soft_wrap=True)
        elif s.verification.verdict is Verdict.UNSUPPORTED:
            out.print(explain(f"{s.operation}:{s.stage}", s.verification, kept=True), soft_wrap=True)


def timing_cells(ladder: derived.Ladder, metric: str) -> Cells:
    """Headers, and one line a stage or other implementation that was timed on this problem."""
    rows = [
        (
            rung.stage,
            derived.duration(rung.cold_us),
            derived.duration(rung.sustained_us) if rung.sustained_us else "-",
            derived.three_digits(derived.throughput(rung.measurement, rung.cold_us, metric)),
            derived.percent(derived.share_of_vendor(rung.measurement)),
            derived.percent(derived.share_of_floor(rung.measurement)),
            f"{rung.gain:.2f}x" if rung.gain else "-",
        )
        for rung in (*ladder.rungs, *ladder.peers)
    ]
    return ("stage", "cold", "sustained", metric, "of vendor", "of floor", "gain"), rows


def show_timing(run: Run, metrics: dict[str, str]) -> None:
    """A table a problem size, and what was not timed."""
    out = console()
    for operation in dict.fromkeys(s.operation for s in run.stages):
        metric = metrics.get(operation, derived.TFLOPS)
        stages = [s for s in run.stages if s.operation == operation]
        for ladder in derived.ladders([(s, run) for s in stages], runs=[run]):
            out.print(f"\n{operation} {ladder.label}")
            headers, rows = timing_cells(ladder, metric)
            out.print(table(headers, rows, headers[1:]))
            for timing, _ in ladder.host:
                out.print(f"{timing.name} on the CPU: {derived.duration(derived.median(timing.samples_us))}")
        for s in stages:
            for label, reason in s.untimed.items():
                out.print(f"{s.operation}:{s.stage} not timed on {label}: {reason}", soft_wrap=True)
        for peer in (p for p in run.peers if p.operation == operation):
            for label, reason in peer.untimed.items():
                out.print(f"{peer.name} not timed on {label}: {reason}", soft_wrap=True)


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


def show_versions(spec: str, rows: Iterable[Sequence[str]]) -> None:
    """A table of the versions of a stage that are kept."""
    out = console()
    out.print(f"\n{spec}: kept versions", style="bold")
    out.print(table(VERSIONS, rows, ("registers", *VERSIONS[7:]), 2))


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
        out.print(f"the {found.instructions_of} instructions are as many of each{compiled}", soft_wrap=True)
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
        out.print("neither has been timed since it is what it is")


DIFF = {"+": "green", "-": "red", "@": "cyan"}


def _shown(value: float | str | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _change(row: Row) -> str:
    if isinstance(row.before, int) and isinstance(row.after, int):
        return f"{row.after - row.before:+,}" if row.after != row.before else ""
    return "" if row.before == row.after else "differs"


def show_failures(kept: Sequence[Remembered]) -> None:
    """A table of the problems that stages have failed on."""
    headers = ("id", "stage", "verdict", "on", "date", "problem")
    rows = [(f.id, f.spec, f.verdict, f.device, f.date[:16].replace("T", " "), f.problem) for f in kept]
    console().print(table(headers, rows, (), 2) if rows else "no failure is kept")


def show_history(lines: Iterable[Line]) -> None:
    """A table for each stage and problem, a line a measurement."""
    out = console()
    for line in lines:
        out.print(f"\n{line.name}", style="bold")
        rows = [
            (*cells[:-1], Text(cells[-1], OUTCOMES.get(cells[-1], ""))) for cells in (p.cells() for p in line.points)
        ]
        out.print(table(HEADERS, rows, HEADERS[2:6], 2))


OUTCOMES = {"SAME": "green", "FASTER": "bold green", "SLOWER": "bold red", "AMBIGUOUS": "yellow"}


def resources_table(stages: Iterable[tuple[str, Sequence[Resources]]]) -> Fitting:
    """Registers, shared memory, spills and occupancy of each stage's variants, named by what they do not share."""
    headers = ("stage", "kernel", "variant", "registers", "static", "dynamic", "spills", "threads", "blocks / SM")
    numeric = (*headers[3:], "occupancy")
    cells = [
        (
            spec,
            r.kernel,
            variant or "-",
            r.registers,
            f"{r.static_shared:,} B",
            f"{r.dynamic_shared:,} B",
            f"{r.spill_bytes:,} B",
            r.block_threads,
            r.blocks_per_sm,
            f"{100 * r.occupancy:.0f} %",
            r.limiter,
        )
        for spec, resources in stages
        for r, variant in zip(resources, derived.variants(resources)[1], strict=True)
    ]
    return table((*headers, "occupancy", "limited by"), cells, numeric, 2)


def show_tuning(searches: Iterable[Tuning]) -> None:
    """What each search found, and why configurations were rejected."""
    searches = list(searches)
    headers = ("stage", "problems", "parameters", "cold", "declared", "gain", "of vendor", "tried", "rejected")
    rows = []
    for s in searches:
        best = s.best
        figures = ("-",) * 5
        if best:
            vendor = derived.percent(best.vendor_us / best.us if best.vendor_us else None)
            times = (derived.duration(best.us), derived.duration(best.default_us))
            figures = (_parameters(best.parameters), *times, f"{best.default_us / best.us:.2f}x", vendor)
        rows.append((s.spec, s.problem_class, *figures, f"{len(s.trials)} of {s.allowed}", len(s.rejected)))
    out = console()
    out.print(table(headers, rows, headers[3:]))
    for s in searches:
        if s.trouble:
            out.print(f"{s.spec} on {s.problem_class}: {s.trouble}", soft_wrap=True)
        for trial in s.rejected:
            out.print(f"{s.spec} {_parameters(trial.parameters)}: {trial.reason}", soft_wrap=True)


def show_tuned(lines: Iterable[Listed]) -> None:
    """The table of tuned parameters."""
    headers = ("device", "stage", "problems", "parameters", "cold", "declared", "of vendor", "state")
    rows = []
    for line in lines:
        entry, figures = line.entry, ("-",) * 3
        if entry:
            share = entry.vendor_us / entry.us if entry.vendor_us else None
            figures = (derived.duration(entry.us), derived.duration(entry.default_us), derived.percent(share))
        rows.append((line.device, line.spec, line.problem_class, _parameters(line.parameters), *figures, line.state))
    console().print(table(headers, rows, headers[4:7], 2))


def _parameters(parameters: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())


class StageProgress:
    """Two bars on a terminal (all stages, and the problems of this one); one line a finished stage elsewhere."""

    def __init__(self, stages: int, examples: int) -> None:
        self._console = console(sys.stderr)
        self._live = self._console.is_terminal
        self._examples = examples
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._all = self._bars.add_task("stages", total=stages)
        self._one = self._bars.add_task("", total=examples)

    def __enter__(self) -> StageProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, spec: str) -> None:
        """A stage starts."""
        self._bars.reset(self._one, total=self._examples, description=f"verify {spec}")
        self._spec = spec

    def count(self, what: str, total: int) -> None:
        """So many things of this kind are counted next, instead of a stage's problems."""
        self._bars.reset(self._one, total=total, description=what)

    def verified(self, problems: int) -> None:
        """So many of its problems have been verified."""
        self._bars.update(self._one, completed=problems)

    def timing(self, label: str) -> None:
        """The problem with this label is being timed."""
        self._bars.update(self._one, description=f"time {self._spec} {label}")

    def end(self, result: StageResult) -> None:
        """A stage is done."""
        v = result.verification
        timed = f", {len(result.measurements)} timed" if result.measurements else ""
        when = f"verified {v.date[:10]}" if v.date else f"{v.seconds:.1f} s"
        solved = f": {v.problems} problem{'s' if v.problems > 1 else ''}" if v.problems else ""
        self.end_with(f"{v.verdict}{solved}{timed}, {when}")

    def end_with(self, outcome: str) -> None:
        """A stage is done, with this outcome."""
        self._bars.advance(self._all)
        if not self._live:
            self._console.print(f"{self._spec} {outcome}", soft_wrap=True)


def notice(message: str, stream: Any = None) -> None:
    """A message to the user, on stderr."""
    console(stream or sys.stderr).print(message, soft_wrap=True)
