"""Outcomes to Markdown: a page a device, with a chart for each experiment. The same JSON gives the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..model.results import Measurement, ResultsError
from ..records import store
from ..report import derived
from ..report.derived import duration, three_digits
from ..report.evidence import explain, failed, tiers
from ..report.markdown import table
from . import EXPERIMENTS
from .base import Experiment, Outcome, Point, Quantity

FOLDER = "experiments"
"""Inside of the folder of reports; in it, one a device."""

PAGE = "README.md"


def folder(output: Path, outcome_device: str) -> Path:
    """Where outcomes of a device are kept, one JSON file each, with their page."""
    return output / FOLDER / outcome_device


def write(output: Path) -> list[Path]:
    """Write the pages of all devices that have outcomes in `output`, with their charts; returns the paths.

    Raises ResultsError for a file that is no outcome, OSError where nothing can be written."""
    folders = sorted({path.parent for path in (output / FOLDER).glob("*/*.json")})
    return [path for each in folders for path in _write_folder(each)]


def _write_folder(where: Path) -> list[Path]:
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    outcomes = [Outcome.load(path) for path in sorted(where.glob("*.json"))]
    if unknown := [outcome.name for outcome in outcomes if outcome.name not in known]:
        raise ResultsError(
            f"{where} has results of {', '.join(unknown)}, which is not an experiment (any more): remove them"
        )
    by_name = {outcome.name: outcome for outcome in outcomes}
    pairs = [(experiment, by_name[name]) for name, experiment in known.items() if name in by_name]
    charts = _write_charts(where, pairs)
    page = where / PAGE
    page.write_text(_text(pairs, {path.name for path in charts}))
    return [page, *charts]


def _write_charts(where: Path, pairs: Sequence[tuple[Experiment, Outcome]]) -> list[Path]:
    try:
        from ..report import plots
    except ImportError:
        return []  # the page says so
    written = []
    for experiment, outcome in pairs:
        shown = _shown(experiment, outcome)
        panels = [plots.Panel(q.name, _lines(outcome, partial(_value, q)), log=q.log) for q in shown]
        if any(point.timed for point in outcome.points):
            metric = experiment.operation.metric
            cold, warm = (_lines(outcome, partial(_throughput, pick, metric)) for pick in (_cold, _sustained))
            panels.append(plots.Panel(metric, cold, warm))
        path = where / f"{experiment.name}.png"
        path.unlink(missing_ok=True)
        if any(panel.lines for panel in panels):
            written.append(plots.save(plots.sweep(panels, experiment.axis, experiment.even), path))
    return written


def _lines(outcome: Outcome, value: Callable[[Point], float | None]) -> dict[str, list[tuple[int, float]]]:
    """By series, (swept value, what `value` says of the point) where it says something."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for point in outcome.points:
        if (y := value(point)) is not None:
            lines.setdefault(point.series, []).append((point.value, y))
    return lines


def _shown(experiment: Experiment, outcome: Outcome) -> tuple[Quantity, ...]:
    """What the emulator counted, and what the hardware did, where it was asked."""
    return experiment.quantities + (experiment.measured if any(p.hardware for p in outcome.points) else ())


def _value(quantity: Quantity, point: Point) -> float | None:
    """None where the point has not the counts."""
    for counts in (point.counts, point.hardware):
        with suppress(KeyError):
            return quantity.of(counts)
    return None


def _cold(measurement: Measurement) -> Sequence[float]:
    return measurement.timing.cold_us


def _sustained(measurement: Measurement) -> Sequence[float]:
    return measurement.timing.sustained_us


def _throughput(pick: Callable[[Measurement], Sequence[float]], metric: str, point: Point) -> float | None:
    if point.timed is None or not pick(point.timed):
        return None
    return derived.throughput(point.timed, derived.median(pick(point.timed)), metric)


def rows(experiment: Experiment, outcome: Outcome) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers, and a row for every point: the swept value, the quantities, and times where there are some."""
    several = len({point.series for point in outcome.points}) > 1
    timed = any(point.timed for point in outcome.points)
    headers = (experiment.axis, *(["series"] if several else []), *(q.name for q in _shown(experiment, outcome)))
    if timed:
        headers += ("cold", "sustained", f"{experiment.operation.metric}, cold")
    found = []
    for point in outcome.points:
        cells = [f"{point.value:,}", *([point.series] if several else [])]
        for quantity in _shown(experiment, outcome):
            value = _value(quantity, point)
            cells.append("-" if value is None else _number(value))
        if timed:
            cells += _times(point, experiment.operation.metric)
        found.append(tuple(cells))
    return headers, found


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else three_digits(value)


def _times(point: Point, metric: str) -> tuple[str, str, str]:
    if point.timed is None:
        return "-", "-", "-"
    timing, speed = point.timed.timing, _throughput(_cold, metric, point)
    sustained = duration(derived.median(timing.sustained_us)) if timing.sustained_us else "-"
    return duration(derived.median(timing.cold_us)), sustained, three_digits(speed or 0)


def _text(pairs: Sequence[tuple[Experiment, Outcome]], charts: set[str]) -> str:
    device = pairs[0][1].device
    parts = [
        f"# Experiments on {device.name}",
        "Short kernels that show one effect each: one parameter is swept and everything else stays. Generated by "
        "`workbench experiment`; every figure is read from the JSON named with it.",
        "Each point was first verified against float64 NumPy, on random problems and on the one that is counted. "
        "Counts are exact, of the PTX on a small problem in the emulator; a sector is 32 bytes of global memory, a "
        "wavefront one pass of shared memory. What a multiprocessor holds is that of compute capability 9.0.",
    ]
    if any(point.timed for _, outcome in pairs for point in outcome.points):
        parts.append(
            "Times are medians, of a larger problem on the device. Cold: the L2 is flushed before every sample. "
            "Sustained: launches back to back."
        )
    else:
        parts.append(
            "Nothing was timed, and nothing is said of hits in the L2: the emulator has neither times nor caches. On a "
            "machine with a GPU `workbench experiment` times every point as well."
        )
    for experiment, outcome in pairs:
        parts += _section(experiment, outcome, f"{experiment.name}.png" in charts)
    return "\n\n".join(parts) + "\n"


def _section(experiment: Experiment, outcome: Outcome, chart: bool) -> list[str]:
    headers, cells = rows(experiment, outcome)
    numeric = [header for header in headers if header != "series"]
    name = experiment.name
    picture = f"![{name}]({name}.png)"
    missing = "There is no chart: matplotlib was not installed (`pip install 'kernel-workbench[plots]'`)."
    summary = experiment.operation.summary
    return [
        f"## {summary[:1].upper()}{summary[1:]}",
        experiment.idea,
        picture if chart else missing,
        f"What to see: {experiment.see}",
        table(headers, cells, numeric),
        _provenance(experiment, outcome),
        *_troubles(outcome),
    ]


def _provenance(experiment: Experiment, outcome: Outcome) -> str:
    made, name = outcome.environment, outcome.name
    sources = ", ".join(dict.fromkeys(f"`cuda_src/{stage.source}`" for stage in experiment.operation.stages))
    comparisons: Counter[str] = Counter()
    for point in outcome.points:
        comparisons.update(point.verification.tiers)
    problems = sum(point.verification.problems for point in outcome.points)
    passed = sum(not failed(point.verification) for point in outcome.points)
    timed = dict.fromkeys(f"`{point.timed.problem}`" for point in outcome.points if point.timed)
    of = f" Timed: {', '.join(timed)}." if 0 < len(timed) <= 2 else ""
    return (
        f"{sources}; swept is `{experiment.swept}`. {passed} of {len(outcome.points)} points are right on "
        f"{problems:,} problems ({tiers(comparisons)}). Counted: `{experiment.counted}`.{of} "
        f"[{name}.json]({name}.json), {made.date}, commit `{made.commit[:12]}`"
        + (" with uncommitted changes." if made.dirty else ".")
    )


def _troubles(outcome: Outcome) -> list[str]:
    """What failed, and what could not be timed or counted on a GPU."""
    lines = [
        f"- **{point.series}, {point.value:,}**: {' '.join(explain(outcome.name, point.verification).split())}"
        for point in outcome.points
        if failed(point.verification)
    ]
    if outcome.device.kind != "emulator":
        lines += [
            f"- {point.series}, {point.value:,} was not timed: {' '.join(point.untimed.split())}"
            for point in outcome.points
            if point.untimed
        ]
    lines += [
        f"- ncu counted nothing: {reason}" for reason in dict.fromkeys(p.uncounted for p in outcome.points) if reason
    ]
    return ["\n".join(lines)] if lines else []


def save(output: Path, outcome: Outcome) -> Path:
    """Keep an outcome in the place of an earlier one of the same device. Raises OSError."""
    path = folder(output, store.slug(outcome.device)) / f"{outcome.name}.json"
    outcome.save(path)
    return path
