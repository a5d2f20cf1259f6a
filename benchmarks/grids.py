"""Figures over two extents: a number in every cell, and a colour that a colour-blind reader can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from workbench.report.plots import BAR, BEST, INK, VENDOR, VENDOR_PALE, _figure, _style

RATIO, SHARE = "ratio", "share"
"""What cells hold: how many times as fast, white at 1, orange below it and blue above it; or a share of 1, in percent,
the darker, the higher."""

SCALES = {
    RATIO: (LinearSegmentedColormap.from_list(RATIO, (VENDOR, VENDOR_PALE, "#ffffff", BAR, BEST)), -1.0, 1.0),
    SHARE: (LinearSegmentedColormap.from_list(SHARE, ("#ffffff", BAR, BEST, "#003355")), 0.0, 1.2),
}
"""Colours, and the numbers at their ends: of a ratio its logarithm to base 2."""


@dataclass(frozen=True)
class Grid:
    """Cells by their place: a number each, or a word where there is none."""

    title: str
    scale: str
    numbers: Mapping[tuple[int, int], float]
    words: Mapping[tuple[int, int], str] = field(default_factory=dict)


def shown(scale: str, number: float) -> str:
    """The number of a cell in three characters or so."""
    if scale == SHARE:
        return f"{100 * number:.{1 if number < 0.0995 else 0}f}"
    return f"{number:.{2 if number < 9.995 else 0}f}"


def extent(number: int) -> str:
    """A number of elements, by the power of 1024: `64k`."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if number >= size and number % size == 0:
            return f"{number // size}{letter}"
    return str(number)


def figure(grids: Sequence[Grid], down: tuple[str, Sequence[int]], across: tuple[str, Sequence[int]]) -> Figure:
    """The grids two a line. `down` and `across` name an axis, and have its extents."""
    lines = math.ceil(len(grids) / 2)
    with _style():
        made = _figure(lines * (0.32 * len(down[1]) + 1.0))
        panels = made.subplots(lines, 2, squeeze=False)
        for axes in panels.flat[len(grids) :]:
            axes.set_axis_off()
        for axes, grid in zip(panels.flat, grids, strict=False):
            _panel(axes, grid, down, across)
    return made


def _panel(axes: Axes, grid: Grid, down: tuple[str, Sequence[int]], across: tuple[str, Sequence[int]]) -> None:
    colours, least, most = SCALES[grid.scale]
    values = np.full((len(down[1]), len(across[1])), np.nan)
    for place, number in grid.numbers.items():
        values[place] = math.log2(number) if grid.scale == RATIO else number
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, vmin=least, vmax=most, edgecolors="white", linewidth=2)
    for place in np.ndindex(values.shape):
        text = shown(grid.scale, grid.numbers[place]) if place in grid.numbers else grid.words.get(place, "")
        colour = "white" if abs(values[place]) > 0.6 else INK  # where the colour is dark
        axes.text(place[1] + 0.5, place[0] + 0.5, text, ha="center", va="center", color=colour, fontsize=7.5)
    axes.set_xticks(np.arange(len(across[1])) + 0.5, [extent(n) for n in across[1]])
    axes.set_yticks(np.arange(len(down[1])) + 0.5, [extent(n) for n in down[1]])
    axes.set_ylim(len(down[1]), 0)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(across[0])
    axes.set_ylabel(down[0])
    axes.set_title(grid.title)
