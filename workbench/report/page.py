"""What a page of a report is about: one operation on one device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING

from ..catalogue import registry
from ..model.errors import file_in
from ..model.results import AgreementRun, Run, StageResult
from . import derived, frame

if TYPE_CHECKING:
    from pandas import DataFrame

Entry = tuple[StageResult, Run]

GAIN = "the speed-up over its parent, or over the nearest ancestor timed on the problem in the same run"


@dataclass(frozen=True)
class Page:
    """One operation on one device. `entries` are its stages in ladder order, each with the run it is from, and
    `times` is the table of what was timed (`frame.table`)."""

    operation: str
    summary: str
    metric: str
    entries: list[Entry]
    runs: list[Run]
    times: DataFrame
    agreement: AgreementRun | None = None

    @classmethod
    def of(cls, name: str, entries: list[Entry], runs: Sequence[Run], agreement: AgreementRun | None = None) -> Page:
        """A page; an operation that the registry no longer has is reported all the same."""
        operation = registry.operations().get(name)
        tree = registry.tree(name)
        order = list(tree)
        entries = sorted(entries, key=lambda e: order.index(e[0].stage) if e[0].stage in order else len(order))
        labels = [p.label for p in operation.suite] if operation else []
        times = frame.table(entries, tree, labels, runs)
        shown = [*(run for _, run in entries), *frame.only(times, frame.OTHER, frame.HOST).run]
        used = [run for run in runs if any(r is run for r in shown)]
        return cls(
            name,
            operation.summary if operation else "",
            operation.metric if operation else derived.TFLOPS,
            entries,
            used,
            times,
            agreement,
        )

    @property
    def timed(self) -> bool:
        """Whether something was."""
        return bool(self.times.time_us.notna().any())

    @property
    def newest(self) -> Run:
        """The run whose device the page describes."""
        return self.runs[0]

    def missing(self) -> list[str]:
        """Stages that are declared and that no run has."""
        found = {s.stage for s, _ in self.entries}
        return [name for name in registry.tree(self.operation) if name not in found]

    def mark(self, run: Run) -> str:
        """`A`, `B` ... for the run, where there are several."""
        return next(ascii_uppercase[i % 26] for i, r in enumerate(self.runs) if r is run)

    def key(self, runs: Iterable[Run]) -> list[str]:
        """What the marks of these runs in a table stand for, as a line below it; nothing where there is one run."""
        if len(self.runs) == 1:
            return []
        marks = sorted({(self.mark(run), run.environment.date) for run in runs})
        return [f"The letter behind a stage is its run: {', '.join(f'{mark} of {date}' for mark, date in marks)}."]

    def name(self, stage: str, run: Run) -> str:
        """A stage's name in a table, with the mark of its run where there are several."""
        return f"`{stage}`" + (f" ({self.mark(run)})" if len(self.runs) > 1 else "")


# --------------------------------------------------------------------------------------------- pictures beside the page


def write_charts(page: Page, folder: Path) -> list[Path]:
    """The charts, where something was timed: ladder, heat map, roofline, spread of samples."""
    if not page.timed:
        return []
    try:
        from . import plots
    except ImportError:
        return []  # the page says so

    charts = plots.charts(page.times, page.metric, page.newest.device)
    return [plots.save(figure, file_in(folder, f"{page.operation}-{name}.png")) for name, figure in charts.items()]


def write_pictures(page: Page, folder: Path) -> list[Path]:
    """A picture of each stage's wrong elements; those of stages that no longer have any are removed."""
    written = []
    for s, _ in page.entries:
        path = file_in(folder, picture_name(s))
        path.unlink(missing_ok=True)
        failure = s.verification.failure
        if failure and failure.cells:
            try:
                from . import plots
            except ImportError:
                continue  # the page has the map in characters
            written.append(plots.save(plots.wrong_elements(f"{s.operation}:{s.stage}", failure.cells), path))
    return written


def picture_name(s: StageResult) -> str:
    """The file with the picture of a stage's wrong elements."""
    return f"{s.operation}-{s.stage}-wrong-elements.png"


def alt(chart: str) -> str:
    """What a picture shows, from the name of its file."""
    return Path(chart).stem.replace("-", " ")
