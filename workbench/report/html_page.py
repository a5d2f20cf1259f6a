"""A run as one page of HTML that needs nothing else: what the pages in Markdown say, charts and timelines inside.

The text is that of `pages`, rendered with HTML switched off; what a record says is escaped before, as it is there. A
content security policy keeps the page from loading or running anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from markdown_it import MarkdownIt

from ..model.results import Run, Verdict
from ..records import store
from . import derived, frame, freshness, timeline
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
    no results or several devices have some, NoTimeline, OSError.
    """
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
    drawn = [(title, blocks) for title, blocks in map(timeline.load, traces)]
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
        from .svg import inline
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

    Open are failures, and the first table of times.
    """
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


def _timelines(drawn: Sequence[tuple[str, Sequence[timeline.Block]]]) -> list[str]:
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
            parts.append(f"<figure>{caption}{timeline.picture(block)}</figure>")
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
