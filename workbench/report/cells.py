"""The cells of tables of a run, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model.results import Run
from . import derived, frame
from .evidence import tiers

if TYPE_CHECKING:
    from pandas import DataFrame

Cells = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]
"""Headers and rows of a table, as text."""


def verification_cells(run: Run) -> Cells:
    """Headers, and one line a stage, its verdict second. Where every problem is supported, no column says so."""
    headers: tuple[str, ...]
    headers = ("stage", "verdict", "problems", "by tier", "not supported", "worst error / bound", "seconds")
    rows: list[tuple[str, ...]] = [
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
    if not any(s.verification.unsupported for s in run.stages):
        left_out = headers.index("not supported")
        headers = headers[:left_out] + headers[left_out + 1 :]
        rows = [row[:left_out] + row[left_out + 1 :] for row in rows]
    return headers, rows


def timing_cells(rows: DataFrame, metric: str) -> Cells:
    """Headers, and one line a stage or other implementation that was timed on this problem."""
    cells = [
        (
            row.shown,
            derived.duration(row.time_us),
            derived.duration(row.sustained_us),
            derived.three_digits(getattr(row, frame.column(metric))),
            derived.percent(row.of_vendor),
            derived.percent(row.of_roofline),
            derived.times(row.gain),
        )
        for row in frame.only(rows, frame.STAGE, frame.OTHER).itertuples()
    ]
    return ("stage", "cold", "sustained", metric, "of vendor", "of roofline", "gain"), cells
