"""The charts of a report, legible at 800 pixels and without telling colours apart. Same data, same bytes."""

from __future__ import annotations

import io
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..model.results import CELL_CODES, DeviceInfo, WrongCells
from . import derived, frame
from .history import Line

if TYPE_CHECKING:
    from pandas import DataFrame

BARS = frame.STAGE, frame.LIBRARY, frame.OTHER
"""What a chart shows of a problem."""

NINTHS = len(CELL_CODES) // 2
"""Codes of cells with wrong elements, all of them written."""

WIDTH_INCHES = 8.0
DPI = 200
"""1,600 pixels: sharp when a page shows them 800 wide."""

INK, GREY, GRID = "#222222", "#666666", "#dddddd"
BAR, BEST, VENDOR, VENDOR_PALE = "#56B4E9", "#0072B2", "#D55E00", "#F4C29B"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X<>"
"""Okabe and Ito's palette, distinct under colour blindness; every series has a marker of its own as well."""

STYLE: dict[str, Any] = {
    "text.parse_math": False,  # names and labels are no formulas
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def save(figure: Figure, path: Path) -> Path:
    """Write a PNG without anything in it that depends on when or by which version it was made."""
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    return path


def _style() -> AbstractContextManager[None]:
    """Matplotlib's defaults and `STYLE`, whatever the user's own configuration says."""
    rc: Any = {**matplotlib.rcParamsDefault, "backend": "agg", **STYLE}
    return matplotlib.rc_context(rc)


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH_INCHES, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    FigureCanvasAgg(figure)
    return figure


def charts(times: DataFrame, metric: str, device: DeviceInfo) -> dict[str, Figure]:
    """The charts of what was timed of an operation, by name: those that there is something to draw in."""
    drawn = {
        "ladder": ladder(times, metric),
        "heat-map": heat_map(times),
        "roofline": roofline(times, device),
        "spread": spread(times),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def ladder(times: DataFrame, metric: str) -> Figure:
    """Throughput of every stage and baseline, a panel a problem size, with the physical limit as a line.

    Branches are marked, and a thin line stands between two tracks."""
    with _style():
        figure, panels = _panels(times, 0.22)
        for axes, (label, rows) in panels:
            _panel(axes, label, rows, metric, len(panels) == 1)
        key = [Patch(color=BEST, label="fastest stage"), Patch(color=BAR, label="other stages")]
        if any(len(frame.only(rows, frame.LIBRARY)) for _, (_, rows) in panels):
            key.append(Patch(facecolor="white", edgecolor=VENDOR, hatch="////", label="baseline"))
        if any(len(frame.only(rows, frame.OTHER)) for _, (_, rows) in panels):
            key.append(Patch(facecolor="white", edgecolor=GREY, hatch="....", label="other implementation"))
        handles: list[Artist] = [*key]
        if any(rows.measurement.iloc[0].roofline_us > 0 for _, (_, rows) in panels):
            handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1.6, label="physical limit"))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _panels(times: DataFrame, pitch: float) -> tuple[Figure, list[tuple[Axes, tuple[str, DataFrame]]]]:
    """A figure with room for the bars of every problem, two problems side by side, and `pitch` inches a bar."""
    ladders = [(label, frame.only(rows, *BARS)) for label, rows in frame.ladders(times)]
    columns = min(2, len(ladders))
    counts = [len(rows) for _, rows in ladders]
    bars = [max(counts[i : i + columns]) for i in range(0, len(counts), columns)]
    heights = [0.9 + pitch * b for b in bars]
    figure = _figure(sum(heights) + 0.4)
    panels = figure.subplots(len(bars), columns, squeeze=False, height_ratios=heights)
    for axes in panels.flat[len(ladders) :]:
        axes.set_axis_off()
    for axes, most in zip(panels.flat, np.repeat(bars, columns), strict=True):
        axes.set_ylim(most - 0.4, -0.6)
    return figure, list(zip(panels.flat[: len(ladders)], ladders, strict=True))


def _panel(axes: Axes, label: str, rows: DataFrame, metric: str, alone: bool) -> None:
    """One problem; a panel that is `alone` has twice the width, so fewer numbers come near the line of the limit."""
    near = 0.88 if alone else 0.76
    m, stages = rows.measurement.iloc[0], frame.only(rows, frame.STAGE)
    values = list(rows[frame.column(metric)])
    limit = derived.throughput(m, m.roofline_us, metric) if m.roofline_us > 0 else 0.0
    own, others = len(stages), len(frame.only(rows, frame.STAGE, frame.LIBRARY))
    fastest = frame.best(rows).name
    colours = [BEST if place == fastest else BAR for place in stages.index]
    axes.barh(range(own), values[:own], color=colours, height=0.7)
    outlined: dict[str, Any] = {"facecolor": "white", "height": 0.62}
    axes.barh(range(own, others), values[own:others], edgecolor=VENDOR, hatch="////", **outlined)
    axes.barh(range(others, len(values)), values[others:], edgecolor=GREY, hatch="....", **outlined)
    if limit:
        axes.axvline(limit, color=INK, linestyle="--", linewidth=1.6)
    for position, value in enumerate(values):
        beside = limit if near * limit < value < limit else value  # no number stands on the limit's line
        text = derived.three_digits(value)
        axes.annotate(text, (beside, position), (5, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), rows.shown)
    for position, (above, below) in enumerate(itertools.pairwise(stages.track)):
        if above != below:
            axes.axhline(position + 0.5, color=GREY, linewidth=0.6, gid="between tracks")
    axes.set_xlim(0, max([*values, limit]) * 1.25)
    axes.set_xlabel(f"{metric}, cold median")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_title(label)


def heat_map(times: DataFrame) -> Figure | None:
    """The share of the vendor's throughput that every stage and other implementation reaches on every problem.

    The share stands in its cell, in percent; the darker the cell, the higher it is. None where no library was timed."""
    shared = times[times.of_vendor.notna()]
    if shared.empty:
        return None
    rows = dict.fromkeys((*frame.only(shared, frame.STAGE).stage, *frame.only(shared, frame.OTHER).stage))
    shares = shared.pivot_table(index="label", columns="stage", values="of_vendor", aggfunc="last").loc[
        shared.label.unique(), list(rows)
    ]
    labels = shares.index
    with _style():
        figure = _figure(0.36 * len(labels) + 2.0)
        axes = figure.subplots()
        values = shares.to_numpy()
        colours = LinearSegmentedColormap.from_list("shares", ("#ffffff", BAR, BEST, "#003355"))
        axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, vmin=0.0, vmax=1.2, edgecolors="white", linewidth=2)
        for y, x in np.ndindex(values.shape):
            share = values[y, x]
            colour = "white" if share > 0.7 else INK
            text = "-" if math.isnan(share) else f"{100 * share:.{1 if share < 0.0995 else 0}f}"  # small cells
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", color=colour, fontsize=8.5)
        axes.set_xticks(np.arange(len(rows)) + 0.5, rows, rotation=60, ha="left", rotation_mode="anchor")
        axes.xaxis.tick_top()
        axes.set_yticks(np.arange(len(labels)) + 0.5, labels)
        axes.set_ylim(len(labels), 0)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.supxlabel("throughput in percent of the vendor's library, cold medians", fontsize=9.5)
    return figure


SPREAD = 0.99
"""Share of all samples that a chart of their spread has room for; the others lie at its edge."""


def spread(times: DataFrame) -> Figure:
    """Every cold sample as its distance from the median of its row, with the quartiles; a panel a problem."""
    with _style():
        figure, panels = _panels(times, 0.2)
        away = [abs(d) for _, (_, rows) in panels for samples in rows.samples_us for d in _deviations(samples)]
        limit = max(float(np.quantile(away, SPREAD)), 0.5)
        for axes, (label, rows) in panels:
            for position, samples in enumerate(rows.samples_us):
                found = np.clip(_deviations(samples), -limit, limit)
                low, high = np.clip(np.percentile(_deviations(samples), [25, 75]), -limit, limit)
                axes.plot([low, high], [position] * 2, color=BAR, linewidth=7, solid_capstyle="butt")
                axes.plot(
                    found, [position] * len(found), linestyle="none", marker="|", markersize=6, color=INK, alpha=0.5
                )
            axes.set_yticks(range(len(rows)), rows.stage)
            axes.set_xlim(-1.05 * limit, 1.05 * limit)
            axes.set_xlabel("distance from the median in %, cold")
            axes.tick_params(axis="y", length=0)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.grid(True, color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.set_title(label)
        handles = [
            Line2D([], [], linestyle="none", marker="|", color=INK, label="sample (beyond the edge: at it)"),
            Line2D([], [], color=BAR, linewidth=7, label="first to third quartile"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _deviations(samples: Sequence[float]) -> list[float]:
    """Distances from the median, in per cent of it."""
    middle = derived.median(samples)
    return [100 * (sample / middle - 1) for sample in samples]


def history(lines: Sequence[Line]) -> Figure:
    """Cold medians over the runs that measured them, with quartiles; a panel a problem, a series a stage."""
    runs = sorted({(p.run.environment.date, p.commit) for line in lines for p in line.points})
    labels = list(dict.fromkeys((line.operation, line.label) for line in lines))
    stages = list(dict.fromkeys((line.operation, line.stage) for line in lines))
    with _style():
        columns = min(2, len(labels))
        rows = -(-len(labels) // columns)
        figure = _figure(2.5 * rows + 0.9)
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(panels.flat, labels, strict=False):
            for line in (x for x in lines if (x.operation, x.label) == panel):
                _line(axes, line, runs, stages.index((line.operation, line.stage)))
            low, high = axes.dataLim.intervaly
            margin = 1.07  # what is within the noise shall not look like a change
            if high > 4 * low:
                axes.set_yscale("log")
                margin = 1.6
            axes.set_ylim(low / margin, high * margin)
            axes.set_xticks(range(len(runs)), [commit[:7] for _, commit in runs], rotation=60, fontsize=8)
            axes.set_xlim(-0.5, len(runs) - 0.5)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: derived.duration(value)))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.grid(True, color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.set_title(" ".join(panel))
        for axes in list(panels.flat)[len(labels) :]:
            axes.set_axis_off()
        several = len({operation for operation, _ in stages}) > 1
        handles = [_series(i, f"{name}:{stage}" if several else stage) for i, (name, stage) in enumerate(stages)]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), frameon=False)
        figure.supxlabel("commit that was measured", fontsize=9.5)
        figure.supylabel("cold median", fontsize=9.5)
    return figure


def _line(axes: Axes, line: Line, runs: Sequence[tuple[str, str]], number: int) -> None:
    xs = [runs.index((p.run.environment.date, p.commit)) for p in line.points]
    samples = [p.measurement.timing.cold_us for p in line.points]
    middle = [derived.median(s) for s in samples]
    quartiles = [derived.quartiles(s) for s in samples]
    errors = [[m - q[0] for m, q in zip(middle, quartiles, strict=True)]]
    errors.append([q[1] - m for m, q in zip(middle, quartiles, strict=True)])
    axes.errorbar(xs, middle, errors, color=SERIES[number % len(SERIES)], marker=MARKERS[number % len(MARKERS)])


def _series(number: int, name: str) -> Line2D:
    """The key of a series."""
    return Line2D(
        [], [], marker=MARKERS[number % len(MARKERS)], color=SERIES[number % len(SERIES)], label=name, linewidth=1.5
    )


@dataclass(frozen=True)
class Panel:
    """One quantity over a swept parameter: lines by name, each of (x, y). Of a throughput that is cold, and `hollow`
    sustained."""

    title: str
    lines: Mapping[str, Sequence[tuple[int, float]]]
    hollow: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    log: bool = False


def sweep(panels: Sequence[Panel], axis: str, even: bool) -> Figure:
    """What depends on a parameter, a panel a quantity; `even` has its values side by side, whatever they are.

    Lines of the same name look alike in all panels."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    values = sorted({x for panel in panels for line in panel.lines.values() for x, _ in line})
    with _style():
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        several = len(names) > 1 or any(panel.hollow for panel in panels)
        figure = _figure(2.6 * rows + (0.6 if several else 0.3))
        drawn = figure.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(drawn.flat, panels, strict=False):
            for lines, hollow in ((panel.lines, False), (panel.hollow, True)):
                for name, line in lines.items():
                    at = [values.index(x) if even else x for x, _ in line]
                    number = names.index(name)
                    axes.plot(
                        at,
                        [y for _, y in line],
                        color=SERIES[number % len(SERIES)],
                        marker=MARKERS[number % len(MARKERS)],
                        markerfacecolor="white" if hollow else None,
                        linestyle="--" if hollow else "-",
                    )
            if even:
                axes.set_xticks(range(len(values)), [f"{x:,}" for x in values])
            else:
                axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            if panel.log:
                axes.set_yscale("log", base=2)
            else:
                axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
                axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axes.grid(True, color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.set_title(panel.title)
        for axes in list(drawn.flat)[len(panels) :]:
            axes.set_axis_off()
        if several:
            handles = [_series(i, name) for i, name in enumerate(names)]
            if any(panel.hollow for panel in panels):
                handles.append(Line2D([], [], color=GREY, linestyle="-", label="cold"))
                handles.append(Line2D([], [], color=GREY, linestyle="--", label="sustained"))
            figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)), frameon=False)
        figure.supxlabel(axis, fontsize=9.5)
    return figure


def roofline(times: DataFrame, device: DeviceInfo) -> Figure | None:
    """Attained against attainable FLOP/s over arithmetic intensity; None where the device's peaks are unknown, or where
    nothing is computed.

    Points of the input type with the highest peak are filled, those of other types hollow. Of problems with much the
    same intensity a stage has its best; what would cover another point stands to its right."""
    measured = frame.only(times, frame.STAGE)
    measured = measured[(measured.flops > 0) & measured.time_us.notna()]
    types = set(measured.measurement.map(derived.dtype))
    peaks = {t: device.peak_flops[t] for t in sorted(types) if device.peak_flops.get(t)}
    bandwidth = device.peak_bytes_per_s
    if not peaks or not bandwidth:
        return None
    fastest = _fastest(measured)
    stages = list(measured.stage.unique())
    ys, xs = zip(*fastest.values(), strict=True)
    with _style():
        figure = _figure(5.4)
        axes = figure.subplots()
        span = _span(xs, [peak / bandwidth for peak in peaks.values()])
        groups = _roofs(axes, peaks, bandwidth, span)
        axes.plot(xs, ys, linestyle="none")
        _log_axes(axes, span)
        axes.set_xlabel(
            "arithmetic intensity: FLOP for each byte that has to be moved\n"
            "(a stage's best of problems with much the same; what would cover a point stands to its right)"
        )
        axes.set_ylabel("TFLOP/s, cold median")
        handles = _roofline_handles(stages, groups)
        figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)), frameon=False)
        figure.draw_without_rendering()  # from here on it is known where the points lie
        points = axes.transData.transform(list(zip(xs, ys, strict=True)))
        shown = axes.transData.inverted().transform(_apart(points, 8 * figure.dpi / 72))
        highest = max(groups)
        for (x, y), (stage, dtype, _) in zip(shown, fastest, strict=True):
            _point(axes, x, y, stages.index(stage), filled=peaks.get(dtype, highest) == highest)
    return figure


def _fastest(measured: DataFrame) -> dict[tuple[str, str, str], tuple[float, float]]:
    """By stage, input type and rounded intensity: the highest speed in TFLOP/s, and the intensity of that problem."""
    fastest: dict[tuple[str, str, str], tuple[float, float]] = {}
    for row in measured.itertuples():
        intensity = row.flops / row.bytes
        of = (row.stage, derived.dtype(row.measurement), f"{intensity:.2g}")
        fastest[of] = max(fastest.get(of, (0.0, 0.0)), (row.tflops, intensity))
    return fastest


def _span(xs: Sequence[float], ridges: Sequence[float]) -> tuple[float, float]:
    """What the axis of intensities shows: the points, and ridges that are not far from every point."""
    near = [ridge for ridge in ridges if min(xs) / 5 < ridge < max(xs) * 8]
    return min([*xs, *near]) / 2.5, max([x * 2.5 for x in xs] + [ridge * 6 for ridge in near])


def _roofs(
    axes: Axes, peaks: Mapping[str, float], bandwidth: float, span: tuple[float, float]
) -> dict[float, list[str]]:
    """A roof for each peak and the slope of the memory; the types that have each peak."""
    groups: dict[float, list[str]] = {}
    for name, peak in peaks.items():
        groups.setdefault(peak, []).append(name)
    for peak, names in groups.items():
        _roof(axes, f"{' and '.join(names)} {derived.three_digits(peak / 1e12)} TFLOP/s", peak, bandwidth, span)
    _slope(axes, min(max(groups), span[1] * bandwidth), bandwidth, span[0])
    return groups


def _roofline_handles(stages: Sequence[str], groups: Mapping[float, Sequence[str]]) -> list[Line2D]:
    """Of the legend: the marker of each stage, and where there are several peaks, which points are filled."""
    handles = [
        Line2D([], [], linestyle="none", marker=MARKERS[i % len(MARKERS)], color=SERIES[i % len(SERIES)], label=s)
        for i, s in enumerate(stages)
    ]
    if len(groups) > 1:
        for peak, names in groups.items():
            handles.append(Line2D([], [], linestyle="none", marker="o", color=GREY, label=", ".join(names)))
            handles[-1].set_markerfacecolor(GREY if peak == max(groups) else "white")
    return handles


def _point(axes: Axes, x: float, y: float, series: int, *, filled: bool) -> None:
    colour = SERIES[series % len(SERIES)]
    axes.plot(
        [x],
        [y],
        linestyle="none",
        marker=MARKERS[series % len(MARKERS)],
        markersize=6.5,
        markeredgewidth=1.2,
        markeredgecolor=colour,
        markerfacecolor=colour if filled else "white",
        zorder=3,
    )


def _apart(points: Iterable[tuple[float, float]], distance: float) -> list[tuple[float, float]]:
    """The points, each moved to the right, away from a roof, until it is `distance` from those before it."""
    placed: list[tuple[float, float]] = []
    for x, y in points:
        places = ((x + n * distance / 4, y) for n in itertools.count())
        placed.append(next(p for p in places if all(math.dist(p, other) >= distance for other in placed)))
    return placed


def wrong_elements(spec: str, wrong: WrongCells) -> Figure:
    """Which elements of an output are wrong: the darker a cell, the more of it; hatched where some are unwritten.

    The lines lie at multiples of a power of two, as the edges of tiles do."""
    extents = (math.prod(wrong.shape[:-1]), wrong.shape[-1])
    edges = [np.append(np.arange(0, n, step), n) for n, step in zip(extents, wrong.cell, strict=True)]
    codes = np.array([[CELL_CODES.index(code) for code in row] for row in wrong.cells])
    shares = np.where(codes > NINTHS, codes - NINTHS, codes) / NINTHS
    with _style():
        vector = len(wrong.shape) == 1
        figure = _figure(2.1 if vector else min(max(6.6 * extents[0] / extents[1], 1.5), 7.0) + 1.3)
        axes = figure.subplots()
        without = np.ma.masked_where((codes == 0) | (codes > NINTHS), shares)
        unwritten = np.ma.masked_where(codes <= NINTHS, shares)
        for shown, tints in ((without, (VENDOR_PALE, VENDOR)), (unwritten, (BAR, BEST))):
            colours = LinearSegmentedColormap.from_list("tints", tints)
            axes.pcolormesh(edges[1], edges[0], shown, cmap=colours, vmin=0.0, vmax=1.0, rasterized=True)
        if len(hatched := np.argwhere(codes > NINTHS)):
            corners = hatched[:, None] + ((0, 0), (0, 1), (1, 1), (1, 0))
            outline = Outline.make_compound_path_from_polys(
                np.stack([edges[1][corners[..., 1]], edges[0][corners[..., 0]]], axis=-1)
            )
            axes.add_patch(PathPatch(outline, facecolor="none", edgecolor="white", hatch="////", linewidth=0))
        axes.set(xlim=(0, extents[1]), ylim=(extents[0], 0))
        axes.spines[:].set_visible(True)
        axes.set_axisbelow(False)
        for axis, extent in ((axes.xaxis, extents[1]), (axes.yaxis, extents[0])):
            _count_elements(axis, extent)
        axes.set_xlabel(f"index in {wrong.output}" if vector else f"column n of {wrong.output}")
        if vector:
            axes.set_yticks([])
        else:
            axes.set_ylabel(f"row m of {wrong.output}")
        total = math.prod(extents)
        axes.set_title(f"{spec}: {wrong.wrong_count:,} of {total:,} elements of {wrong.output} are wrong\n")
        axes.annotate(wrong.problem, (0, 1), (0, 5), "axes fraction", textcoords="offset points", color=GREY)
        left = wrong.unwritten_count
        handles = [
            Patch(facecolor="white", edgecolor=GREY, label="right"),
            Patch(facecolor=VENDOR, edgecolor=GREY, label=f"wrong ({wrong.wrong_count - left:,})"),
            Patch(facecolor=BEST, edgecolor="white", hatch="////", label=f"never written, or NaN ({left:,})"),
        ]
        height, width = wrong.cell
        key = f"cells of {height} x {width}: the darker, the more is wrong" if height * width > 1 else ""
        figure.legend(handles=handles, title=key, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _count_elements(axis: Axis, extent: int) -> None:
    """Lines before, and labels in the middle of, every so-manieth element."""
    step = 1 << max(0, math.ceil(math.log2(extent / 10)))
    axis.set_major_locator(FixedLocator([i + 0.5 for i in range(0, extent, step)]))
    axis.set_major_formatter(FuncFormatter(lambda at, _: f"{int(at):,}"))
    axis.set_minor_locator(FixedLocator(range(0, extent, step)))
    axis.grid(True, which="minor", color=GREY, linewidth=0.5)
    axis.set_tick_params(which="minor", length=0)


def _roof(axes: Axes, text: str, peak: float, bandwidth: float, span: tuple[float, float]) -> None:
    """The flat part of a roof, named at its right end; nothing where it begins outside the chart."""
    ridge = peak / bandwidth
    if ridge < span[1]:
        axes.plot([max(ridge, span[0]), span[1]], [peak / 1e12] * 2, color=GREY, linewidth=1.6)
        axes.annotate(text, (span[1], peak / 1e12), (-4, 4), textcoords="offset points", ha="right", fontsize=9)


def _slope(axes: Axes, top: float, bandwidth: float, left: float) -> None:
    """The slanted part of all roofs, up to the highest one in FLOP/s."""
    xs = [left, top / bandwidth]
    axes.plot(xs, [x * bandwidth / 1e12 for x in xs], color=GREY, linewidth=1.6)
    text = f"{derived.three_digits(bandwidth / 1e9)} GB/s"
    middle = (xs[0] * xs[1]) ** 0.5
    axes.annotate(
        text, (middle, middle * bandwidth / 1e12), (-8, 6), textcoords="offset points", ha="right", fontsize=9
    )


def _log_axes(axes: Axes, span: tuple[float, float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*span)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 1.3)
    for axis, (least, most) in ((axes.xaxis, span), (axes.yaxis, (low, high))):
        axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if most / least < 300 else (1,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


# ------------- figures as SVG that stands in the text of a page: nothing is loaded, and ids of two figures do not meet


SVG_DPI = 150
"""Of what is drawn as pixels in a figure: cells that would be thousands of shapes."""


def inline(figure: Figure, name: str) -> str:
    """The figure as an `svg` element, its text as text. `name` tells its ids from those of other figures on the page.

    The same figure gives the same text: there is no date in it, and ids come from what they name."""
    written = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label may be longer than the chart
        figure.savefig(written, format="svg", dpi=SVG_DPI, transparent=True, metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text, count=1)
    used = set(re.findall(r"(?:url\(|href=\")#([^\")]+)", text))
    text = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", text)
    return _shorter(text).strip()


def _shorter(text: str) -> str:
    """The same picture in a third of the characters: hundredths of a point, and the style of many marks said once."""
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), text)
    alike = r'<use [^>]*?style="([^"]*)"/>\s*(?:<use [^>]*?style="\1"/>\s*)+'

    def group(marks: re.Match[str]) -> str:
        style = f' style="{marks[1]}"'
        return f"<g{style}>{marks[0].replace(style, '')}</g>"

    return re.sub(r"\s*\n\s*", "\n", re.sub(alike, group, text))
