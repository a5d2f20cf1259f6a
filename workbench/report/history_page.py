"""The history of stages as a page, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .history import HEADERS, Line
from .markdown import table


def page(found: Sequence[Line], chart: str | None) -> str:
    """The lines as Markdown, with the picture of this name where there is one."""
    parts = [
        "# History",
        "Cold and sustained medians by the commit that was measured (star: with uncommitted changes). *Change* is the "
        "ratio to the measurement before, cold, with its 95 % confidence interval, as `workbench compare` judges it.",
        *([f"![cold medians over commits]({chart})"] if chart else []),
        *([] if found else ["Nothing was timed."]),
    ]
    for line in found:
        rows = [(date, f"`{commit}`", *rest) for date, commit, *rest in (p.cells() for p in line.points)]
        parts += [f"## {line.name}", table(HEADERS, rows, HEADERS[2:6])]
    return "\n\n".join(parts) + "\n"


def write(found: Sequence[Line], target: Path) -> list[Path]:
    """Write the page, and its picture beside it where there are times and matplotlib is installed. Returns their paths;
    raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    chart = None
    if found:
        with suppress(ImportError):
            from . import plots

            chart = plots.save(plots.history(found), target.with_suffix(".png"))
    target.write_text(page(found, chart.name if chart else None))
    return [target, *([chart] if chart else [])]
