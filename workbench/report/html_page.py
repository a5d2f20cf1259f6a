"""A run as one page of HTML that needs nothing else: what the pages in Markdown say, charts and timelines inside.

The text is that of `pages`, rendered with HTML switched off; what a record says is escaped before, as it is there. A
content security policy keeps the page from loading or running anything."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from markdown_it import MarkdownIt

from ..model.errors import WorkbenchError
from ..model.results import Run, Verdict
from ..records import store
from . import derived, frame, freshness
from .derived import three_digits
from .evidence import failed
from .markdown import escaped, readable, sentence
from .page import Page, picture_name
from .pages import agreement_in, best_of, pages_of, records_of
from .sections import about, timed, verified

FRAME = Template((Path(__file__).parent / "page.html").read_text())
NAME = "report.html"
"""The page of a device, in its folder."""


def write(output: Path, target: Path | None = None, traces: Sequence[Path] = ()) -> list[Path]:
    """Write a page for each device that has results in `output`, or that of the only one to `target`.

    Timelines are those in the device's folder `traces`, and `traces` beside them. Raises ResultsError where there are
    no results or several devices have some, NoTimeline, OSError."""
    folders = [store.folder(output)] if target or store.files(output) else store.folders(output)
    if not folders:
        folders = [store.folder(output)]  # says that there are none
    written = []
    for folder in folders:
        path = target or folder / NAME
        shown = [*sorted((folder / "traces").glob("*.json")), *traces]
        path.write_text(page(store.load(folder), shown, folder))
        written.append(path)
    return written


def page(runs: Sequence[Run], traces: Sequence[Path] = (), folder: Path | None = None) -> str:
    """The page of the runs of one device; `folder` is where they are kept. Raises NoTimeline."""
    made = pages_of([escaped(run) for run in runs], agreement_in(folder) if folder else None)
    names = dict.fromkeys(name for p in made for name in records_of(folder, p)) if folder else {}
    first = runs[0]
    links = [f'<a href="#operation-{n}">{escape(p.operation)}</a>' for n, p in enumerate(made)]
    drawn = [(title, blocks) for title, blocks in map(load, traces)]
    links += ['<a href="#timelines">Timelines</a>'] if drawn else []
    body = [section for n, p in enumerate(made) for section in _operation(p, n)]
    text = FRAME.substitute(
        records=freshness.listed(freshness.digests(folder, names) if folder else {}),
        title=escape(f"Report: {first.device.name}"),
        device=escape(first.device.name),
        facts=" · ".join(escape(f) for f in _facts(first)),
        links=" ".join(links),
        cards="\n".join(_card(p, n) for n, p in enumerate(made)),
        body="\n".join([*body, *_timelines(drawn)]),
    )
    return readable(text)


def _facts(run: Run) -> list[str]:
    """What a reader wants to know first of a run."""
    environment = run.environment
    dirty = " with uncommitted changes" if environment.dirty else ""
    return [environment.date, f"commit {environment.commit[:12]}{dirty}", environment.host]


def _card(page: Page, number: int) -> str:
    """An operation in short: what passed, and how fast the fastest stage is."""
    bad = [s for s, _ in page.entries if failed(s.verification)]
    passed = sum(s.verification.verdict is Verdict.PASS for s, _ in page.entries)
    lines = [f"{passed} of {len(page.entries)} stages passed"]
    if bad:
        lines.append(f"failed: {', '.join(s.stage for s in bad)}")
    if (best := best_of(page)) is not None:
        speed = three_digits(best[frame.column(page.metric)])
        beside = derived.beside_vendor(best.measurement)
        lines.append(f"{best.stage}: {speed} {page.metric} ({best.label}){f', {beside}' if beside else ''}")
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    state = "fail" if bad else "pass"
    return f'<a class="card {state}" href="#operation-{number}"><h2>{escape(page.operation)}</h2>{said}</a>'


def _operation(page: Page, number: int) -> list[str]:
    """The sections of one operation, as those of its page in Markdown."""
    drawn = _drawn(page)
    pictures = {name for name in drawn if name.endswith("-wrong-elements.png")}
    charts = [name for name in drawn if name not in pictures]
    parts = [
        *about.stages(page),
        *verified.verified(page, pictures),
        *timed.timed(page, charts),
        *about.resources(page),
        *about.environment(page),
    ]
    head = f'<section id="operation-{number}"><h1>{escape(page.operation)}</h1>'
    return [head, _rendered([sentence(page.summary)]), *_folded(parts, drawn), "</section>"]


def _drawn(page: Page) -> dict[str, str]:
    """Every chart and picture of a page as SVG, by the name that it has as a file; none without matplotlib."""
    try:
        from . import plots
        from .plots import inline
    except ImportError:
        return {}  # the page says so

    found: dict[str, Any] = {}
    if page.timed:
        found |= plots.charts(page.times, page.metric, page.newest.device)
    found = {f"{page.operation}-{name}.png": figure for name, figure in found.items()}
    for s, _ in page.entries:
        failure = s.verification.failure
        if failure and failure.cells:
            found[picture_name(s)] = plots.wrong_elements(f"{s.operation}:{s.stage}", failure.cells)
    return {name: inline(figure, name) for name, figure in found.items()}


def _folded(parts: Sequence[str], drawn: Mapping[str, str]) -> list[str]:
    """Rendered paragraphs; what stands below a heading of the third level can be folded away.

    Open are failures, and the first table of times."""
    found: list[str] = []
    inside, times = False, False
    for part in parts:
        if inside and part.startswith("#"):
            found.append("</details>")
            inside = False
        if part.startswith("### "):
            failure = " failed: " in part
            table, times = times and not failure, False
            heading = _rendered([part.removeprefix("### ")]).removeprefix("<p>").removesuffix("</p>")
            found.append(f"<details{' open' if failure or table else ''}><summary>{heading}</summary>")
            inside = True
            continue
        times = times or part == "## What was timed"
        if picture := re.fullmatch(r"!\[([^\]]*)\]\((.+)\)", part):
            if picture[2] in drawn:
                found.append(_figure(picture[1], picture[2], drawn[picture[2]]))
        else:
            found.append(_rendered([part]))
    return [*found, "</details>"] if inside else found


def _figure(label: str, name: str, drawn: str) -> str:
    """A chart; one whose colours go from light to dark stays on white where the page is dark."""
    paper = ' class="paper"' if name.endswith(("-heat-map.png", "-wrong-elements.png")) else ""
    return f'<figure{paper} aria-label="{escape(label)}">{drawn}</figure>'


def _timelines(drawn: Sequence[tuple[str, Sequence[Block]]]) -> list[str]:
    if not drawn:
        return []
    note = (
        "As executed in the emulator: a unit is one warp instruction, clocks are logical, and a wait lasts until the "
        "clock of whoever ended it. It shows what waits for what, and not how long it takes on a GPU."
    )
    parts = ['<section id="timelines"><h1>Timelines</h1>', f"<p>{note}</p>"]
    for title, blocks in drawn:
        for block in blocks:
            caption = f"<figcaption>{escape(title)}, {escape(block.name)}</figcaption>"
            parts.append(f"<figure>{caption}{picture(block)}</figure>")
    return [*parts, "</section>"]


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])


def _rendered(parts: Sequence[str]) -> str:
    """Markdown as HTML: without tags, links and pictures of its own, verdicts marked, tables in a box that scrolls."""
    text = re.sub(r"(?<!!)\[([^\[\]]+)\]\([^()\s]+\)", r"\1", "\n\n".join(parts))  # files that are not beside the page
    html = _markdown().render(text).replace(' style="text-align:left"', "")
    html = html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    words = "|".join(map(re.escape, Verdict))
    html = re.sub(rf"<td>({words})</td>", lambda m: f'<td class="{_state(m[1])}">{m[1]}</td>', html)
    return re.sub(rf"<td><strong>({words})</strong></td>", r'<td class="fail">\1</td>', html).strip()


def _state(verdict: str) -> str:
    return {Verdict.PASS: "pass", Verdict.UNSUPPORTED: "left"}.get(Verdict(verdict), "fail")


# the timeline that `workbench trace` writes, as a picture: a row for each warp, barrier and kind of work under way.


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
    step = next((s * 10**p for p in range(9) for s in (1, 2, 5) if length / (s * 10**p) <= 8), length)
    at = 0.0
    while at <= length:
        x = LABELS + at * scale
        yield f'<rect x="{x:.1f}" y="{1.5 * ROW}" width="0.4" height="{top - 1.5 * ROW:.1f}" fill="#88888866"/>'
        yield f'<text x="{x:.1f}" y="{top + 12}" text-anchor="middle" fill="currentColor">{at:,.0f}</text>'
        at += step
    yield f'<text x="{LABELS - 6}" y="{top + 12}" text-anchor="end" fill="currentColor">warp instructions</text>'
