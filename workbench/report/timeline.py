"""The timeline that `workbench trace` writes, as a picture: a row for each warp, barrier and kind of work under way."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from ..model.errors import WorkbenchError

COLOURS = {
    "run": "#56B4E9",
    "wait": "#D55E00",
    "phase": "#BBBBBB",
    "load": "#009E73",
    "copies": "#009E73",
    "products": "#CC79A7",
    "stores": "#E69F00",
}
MEANINGS = {
    "run": "executes",
    "wait": "waits",
    "phase": "phase of an mbarrier",
    "load": "copy under way",
    "products": "tensor cores",
    "stores": "store under way",
}
OTHER = "#777777"
WIDTH, LABELS, ROW = 1000, 170, 15
"""Of the picture and of the column of names, and the height of a row, in units of the picture."""

MOST_ROWS = 80
"""Rows of a block that are shown."""

LEAST = 0.4
"""Slices of one kind that are nearer to each other than so many units become one."""


class NoTimeline(WorkbenchError, ValueError):
    """A file is not a timeline of `workbench trace`; the message names it."""


@dataclass(frozen=True)
class Slice:
    """Something that lasts, in warp instructions: what it is, and what is said of it."""

    begin: float
    end: float
    kind: str
    text: str

    @classmethod
    def of(cls, event: dict[str, Any]) -> Slice:
        """Raises ValueError or one of other exceptions for what is none."""
        begin, took = float(event["ts"]), float(event["dur"])
        if not (math.isfinite(begin) and 0 <= took < math.inf):
            raise ValueError("a slice without a time")
        line = event.get("args", {}).get("line", "")
        return cls(begin, begin + took, str(event.get("cat", "")), str(event["name"]) + (f" ({line})" if line else ""))


@dataclass
class Block:
    """What is drawn of one block: its rows in order, each with its name and its slices."""

    name: str
    rows: dict[int, tuple[str, list[Slice]]] = field(default_factory=dict)


def load(path: Path) -> tuple[str, list[Block]]:
    """The title of a timeline and its blocks. Raises NoTimeline."""
    try:
        trace = json.loads(path.read_text())
        return str(trace.get("otherData", {}).get("title", "") or path.name), _blocks(trace["traceEvents"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not what `workbench trace` writes"
        raise NoTimeline(f"{path} has no timeline: {what}") from None


def _blocks(events: list[dict[str, Any]]) -> list[Block]:
    """Sorts events; raises one of many exceptions for what is no timeline."""
    metadata = [e for e in events if e["ph"] == "M" and e["name"] in ("process_name", "thread_name")]
    names = {(e["name"], e["pid"], e["tid"]): str(e["args"]["name"]) for e in metadata}
    found: dict[int, Block] = {}
    for event in events:
        if event["ph"] != "X":
            continue
        block = found.setdefault(event["pid"], Block(names.get(("process_name", event["pid"], 0), "")))
        name = names.get(("thread_name", event["pid"], event["tid"]), "")
        block.rows.setdefault(event["tid"], (name, []))[1].append(Slice.of(event))
    if not found:
        raise ValueError("nothing in it")
    for block in found.values():
        block.rows = dict(sorted(block.rows.items()))
    return list(found.values())


def picture(block: Block) -> str:
    """One block as an `svg` element."""
    slices = [s for _, row in block.rows.values() for s in row]
    start, end = min(s.begin for s in slices), max(s.end for s in slices)
    scale = (WIDTH - LABELS - 10) / max(end - start, 1.0)
    shown = list(block.rows.values())[:MOST_ROWS]
    height = ROW * (len(shown) + 3)
    parts = [
        f'<svg class="timeline" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="DejaVu Sans, sans-serif" font-size="9.5">',
        f"<title>{escape(block.name)}</title>",
        *_key({s.kind for s in slices}),
    ]
    for number, (name, row) in enumerate(shown):
        top = ROW * (number + 1.5)
        at = f'x="{LABELS - 6}" y="{top + 11}" text-anchor="end" fill="currentColor"'
        parts.append(f"<text {at}>{escape(name[:28])}</text>")
        parts.append(f'<rect x="{LABELS}" y="{top + 14}" width="{WIDTH - LABELS}" height="0.4" fill="#888888"/>')
        parts += _row(row, top, start, scale)
    parts += _axis(end - start, scale, ROW * (len(shown) + 1.5))
    return "\n".join([*parts, "</svg>"])


def _row(row: list[Slice], top: float, start: float, scale: float) -> Iterator[str]:
    for shown in _merged(sorted(row, key=lambda s: s.begin), LEAST / scale):
        told = shown[0].text if len(shown) == 1 else f"{len(shown)} slices, the first: {shown[0].text}"
        begin, end = shown[0].begin, max(s.end for s in shown)
        yield (
            f'<rect x="{LABELS + (begin - start) * scale:.1f}" y="{top + 1}" '
            f'width="{max((end - begin) * scale, LEAST):.1f}" height="{ROW - 4}" '
            f'fill="{COLOURS.get(shown[0].kind, OTHER)}"><title>{escape(told)}</title></rect>'
        )


def _merged(row: list[Slice], least: float) -> Iterator[list[Slice]]:
    """The slices of a row, those of one kind that cannot be told apart together."""
    shown: list[Slice] = []
    for s in row:
        near = shown and s.kind == shown[0].kind and s.begin - shown[-1].end < least
        if near and (s.end - s.begin < least or shown[-1].end - shown[0].begin < least):
            shown.append(s)
            continue
        if shown:
            yield shown
        shown = [s]
    if shown:
        yield shown


def _key(categories: set[str]) -> Iterator[str]:
    x = float(LABELS)
    for category, meaning in MEANINGS.items():
        if category in categories or (category == "load" and "copies" in categories):
            yield f'<rect x="{x}" y="3" width="10" height="10" fill="{COLOURS[category]}"/>'
            yield f'<text x="{x + 14}" y="12" fill="currentColor">{meaning}</text>'
            x += 34 + 5.6 * len(meaning)


def _axis(length: float, scale: float, top: float) -> Iterator[str]:
    step = next(
        (s * 10**p for p in range(9) for s in (1, 2, 5) if length / (s * 10**p) <= 8),
        length,
    )
    at = 0.0
    while at <= length:
        x = LABELS + at * scale
        yield f'<rect x="{x:.1f}" y="{1.5 * ROW}" width="0.4" height="{top - 1.5 * ROW:.1f}" fill="#88888866"/>'
        yield f'<text x="{x:.1f}" y="{top + 12}" text-anchor="middle" fill="currentColor">{at:,.0f}</text>'
        at += step
    yield f'<text x="{LABELS - 6}" y="{top + 12}" text-anchor="end" fill="currentColor">warp instructions</text>'
