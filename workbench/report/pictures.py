"""The charts of a page, and pictures of wrong elements, as files beside it."""

from __future__ import annotations

from pathlib import Path

from ..model.errors import file_in
from ..model.results import StageResult
from .page import Page


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
