"""The cells of tables of a run, as text."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.results import Run
from . import derived
from .evidence import tiers

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


def timing_cells(ladder: derived.Ladder, metric: str) -> Cells:
    """Headers, and one line a stage or other implementation that was timed on this problem."""
    rows = [
        (
            rung.place.shown(rung.stage) if rung.place else rung.stage,
            derived.duration(rung.cold_us),
            derived.duration(rung.sustained_us) if rung.sustained_us else "-",
            derived.three_digits(derived.throughput(rung.measurement, rung.cold_us, metric)),
            derived.percent(derived.share_of_vendor(rung.measurement)),
            derived.percent(derived.share_of_roofline(rung.measurement)),
            f"{rung.gain:.2f}x" if rung.gain else "-",
        )
        for rung in (*ladder.rungs, *ladder.peers)
    ]
    return ("stage", "cold", "sustained", metric, "of vendor", "of roofline", "gain"), rows
