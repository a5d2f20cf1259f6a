"""What the command line shows: tables on stdout, progress and messages on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..model.errors import shown
from ..model.results import StageResult

UNWRAPPED = 180
"""Columns where the output is no terminal and nobody has set COLUMNS."""

OUTCOMES = {"SAME": "green", "FASTER": "bold green", "SLOWER": "bold red", "AMBIGUOUS": "yellow"}


class _Console(Console):
    """Writes control characters of texts out."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(shown(one) if isinstance(one, str) else one for one in objects), **how)


def console(stream: IO[str] | None = None) -> Console:
    """A console on `stream` (default stdout) that takes no text for markup."""
    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else UNWRAPPED
    return _Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


WIDE = 100_000
"""Columns that everything fits into."""

BROKEN = 4
"""So many columns may be missing: a word is broken, not each of them. Rich measures tables too small by as many."""


@dataclass(frozen=True)
class Fitting:
    """A table. Its headers are in one piece where there is room for that, and no word of them is broken. Where there is
    no room for their words either, a list of its rows, a line a cell."""

    table: Table
    headers: Sequence[str]
    rows: Sequence[Sequence[Text]]
    named: int
    """So many cells of a row say which row it is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for whole, narrow in ((True, False), (True, True), (False, False), (False, True)):
            self.table.collapse_padding = narrow
            for column, header in zip(self.table.columns, self.headers, strict=True):
                column.min_width = len(header) if whole else max(map(len, header.split()), default=0)
            least = Measurement.get(console, options.update(max_width=WIDE), self.table).minimum
            if least <= options.max_width + (-BROKEN if whole else BROKEN if narrow else 0):
                yield self.table
                return
        headers = self.headers[self.named :]
        width = max(map(len, headers), default=0)
        for row in self.rows:
            yield Text("\n" + "  ".join(cell.plain for cell in row[: self.named]), "bold")
            for header, cell in zip(headers, row[self.named :], strict=True):
                if cell.plain not in ("", "-"):
                    yield Text.assemble(f"  {header:<{width}}  ", cell)


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
        cells.append([cell if isinstance(cell, Text) else Text(shown(str(cell))) for cell in row])
        made.add_row(*cells[-1])
    return Fitting(made, headers, cells, unwrapped)


SILENCE = 2.0
"""Seconds after which a line says what is being done, where the output is no terminal."""


class StageProgress:
    """Two bars on a terminal (all stages, and the problems of this one); elsewhere one line a finished stage, and
    others in between where that takes long."""

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
        self._said = time.monotonic()
        self._spec = ""
        self._all = self._bars.add_task("stages", total=stages)
        self._one = self._bars.add_task("", total=examples)

    def __enter__(self) -> Self:
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
        self._spec = ""

    def verified(self, problems: int) -> None:
        """So many of its problems have been verified."""
        self._bars.update(self._one, completed=problems)
        if self._spec and not self._live and time.monotonic() - self._said > SILENCE:
            self._say(f"{self._spec} is verified: {problems} problems so far")

    def timing(self, label: str) -> None:
        """The problem with this label is being timed."""
        self._bars.update(self._one, description=f"time {self._spec} {label}")
        if not self._live and time.monotonic() - self._said > SILENCE:
            self._say(f"{self._spec} is timed on {label}")

    def _say(self, line: str) -> None:
        """A line where the output is no terminal, at once."""
        self._said = time.monotonic()
        self._console.print(line, soft_wrap=True)
        self._console.file.flush()

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
            self._say(f"{self._spec} {outcome}")


def notice(message: str, stream: Any = None) -> None:
    """A message to the user, on stderr."""
    console(stream or sys.stderr).print(message, soft_wrap=True)
