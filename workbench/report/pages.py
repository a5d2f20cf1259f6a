"""Results to Markdown: a page an operation and device, with its charts, and an index over all of them.

Every figure is read from the JSON beside the page. The same JSON gives the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..catalogue import registry
from ..model.errors import file_in
from ..model.results import AgreementRun, ResultsError, Run, Verdict
from ..records import store
from . import derived, frame, freshness
from .derived import three_digits
from .markdown import escaped, sentence, table
from .page import Page, write_charts, write_pictures
from .sections import about, timed, verified

TIMED = ("fastest stage", "best throughput", "beside the library")
"""Columns of the index where something was timed."""


def write(output: Path, only: str | None = None) -> list[Path]:
    """Write the pages of every device folder in `output` (or of `only` that one) and the index; returns their paths.

    Raises ResultsError where there are no results or some cannot be read, OSError where nothing can be written."""
    folders = store.folders(output)
    if not folders:
        raise ResultsError(f"there are no results in {output}; make some with: workbench run --output {output}")
    loaded = {folder: [escaped(run) for run in store.load(folder)] for folder in folders}
    written = []
    for folder, runs in loaded.items():
        if only in (None, folder.name):
            written += _write_folder(folder, runs)
    index = output / "README.md"
    pages = [page for pattern in ("*.md", "experiments/*/*.md") for page in sorted(output.glob(pattern))]
    others = {page.relative_to(output).as_posix(): page.read_text() for page in pages if page != index}
    stale = {path.relative_to(output).as_posix() for folder in folders for path in freshness.mark(folder)}
    index.write_text(_index({folder.name: runs for folder, runs in loaded.items()}, others, stale))
    return [*written, index]


def _write_folder(folder: Path, runs: Sequence[Run]) -> list[Path]:
    """The pages and charts of one device."""
    written = []
    for page in pages_of(runs, agreement_in(folder)):
        charts, pictures = write_charts(page, folder), write_pictures(page, folder)
        target = file_in(folder, f"{page.operation}.md")
        records = freshness.digests(folder, records_of(folder, page))
        target.write_text(_text(page, records, [c.name for c in charts], {p.name for p in pictures}))
        written += [target, *charts, *pictures]
    return written


def agreement_in(folder: Path) -> AgreementRun | None:
    """How far the device agrees with the emulator, where that is known. Raises ResultsError."""
    path = folder / store.AGREEMENT
    return escaped(AgreementRun.load(path)) if path.is_file() else None


def records_of(folder: Path, page: Page) -> list[str]:
    """The files that a page is made of: that of the operation (of a folder of before, a file a run, all), and how far
    the device agrees with the emulator."""
    found = [path for path in store.files(folder) if path.parent == folder or path.stem == page.operation]
    compared = page.agreement and any(s.operation == page.operation for s in page.agreement.stages)
    return [path.relative_to(folder).as_posix() for path in [*found, *([folder / store.AGREEMENT] if compared else [])]]


def pages_of(runs: Sequence[Run], agreement: AgreementRun | None = None) -> list[Page]:
    """A page for each operation that has results, in the registry's order."""
    entries = store.current(runs)
    known = list(registry.operations())
    names = sorted({s.operation for s, _ in entries}, key=lambda n: (known.index(n) if n in known else len(known), n))
    return [Page.of(name, [e for e in entries if e[0].operation == name], runs, agreement) for name in names]


def _text(page: Page, records: Mapping[str, str], charts: Sequence[str], pictures: Collection[str] = ()) -> str:
    """The Markdown of the page; it is made of the files `records`; `charts` and `pictures` were written."""
    parts = [
        f"# {page.operation} on {page.newest.device.name}",
        f"{sentence(page.summary)} {freshness.MADE}; every figure is read from {freshness.linked(records)}.",
        *about.stages(page),
        *verified.verified(page, pictures),
        *timed.timed(page, charts),
        *about.resources(page),
        *about.environment(page),
    ]
    return "\n\n".join(parts) + "\n"


def _index(devices: dict[str, list[Run]], others: Mapping[str, str], stale: Collection[str] = ()) -> str:
    """The page over all devices and operations; `others` are the texts, by path, of pages that are made elsewhere, and
    `stale` the paths of those whose records have changed."""
    pages = {folder: sorted(pages_of(runs), key=lambda page: page.operation) for folder, runs in devices.items()}
    timed = [folder for folder in pages if any(page.timed for page in pages[folder])]
    parts = [
        "# Reports",
        "There is one page for each operation and device, generated by `workbench run` from the JSON in the device's "
        "folder. On the emulator kernels are verified, but never timed.",
        *_explained([page for found in pages.values() for page in found]),
    ]
    for folder in [*timed, *(folder for folder in pages if folder not in timed)]:
        name = pages[folder][0].newest.device.name
        untried = _untried(devices[folder], pages[folder])
        parts += [f"## {name[:1].upper()}{name[1:]}", _device(folder, pages[folder], folder in timed, stale, untried)]
    if others:
        titles = [text.partition("\n")[0].lstrip("# ") for text in others.values()]
        links = [f"- [{title}]({path})" for title, path in zip(titles, others, strict=True)]
        parts += ["## Reports of their own", "\n".join(links)]
    return "\n\n".join(parts) + "\n"


def _untried(runs: Sequence[Run], pages: Sequence[Page]) -> dict[str, int]:
    """Operations of which an unfinished run has no stage yet, each with the number of its stages."""
    if all(run.finished for run in runs):
        return {}
    own = registry.loaded().own or tuple(registry.operations())
    found = Counter(stage.operation for stage in registry.stages() if stage.operation in own)
    return {name: found[name] for name in sorted(found) if all(page.operation != name for page in pages)}


def _device(folder: str, pages: Sequence[Page], timed: bool, stale: Collection[str], untried: Mapping[str, int]) -> str:
    """The table of the operations of one device."""
    headers = ("operation", *(TIMED if timed else ()), "stages passed", "run", "commit")
    rows = []
    for page in pages:
        name = f"{folder}/{page.operation}.md"
        passed = sum(s.verification.verdict is Verdict.PASS for s, _ in page.entries)
        newest, missing = page.newest.environment, page.missing()
        rows.append(
            (
                f"[{page.operation}]({name})" + (" (stale)" if name in stale else ""),
                *(_best(page) if timed else ()),
                f"{passed} of {len(page.entries)}" + (f" ({len(missing)} not tried)" if missing else ""),
                newest.date[:10],
                f"`{newest.commit[:12]}`" + (" *" if newest.dirty else ""),
            )
        )
    for name, count in untried.items():
        rows.append((name, *(["-"] * len(TIMED) if timed else ()), f"0 of 0 ({count} not tried)", "-", "-"))
    return table(headers, rows, ("stages passed",))


def _explained(pages: Sequence[Page]) -> list[str]:
    """What the columns of the index mean, as far as there is something in them."""
    said = []
    if any(page.missing() for page in pages):
        said.append(
            "*Stages passed* counts the stages of the results. *Not tried* counts the other stages of today's ladder."
        )
    if any(page.timed for page in pages):
        said.append(
            "*Best throughput* is that of the fastest stage on the problem in parentheses, where the operation reaches "
            "most. The next column compares it with the fastest library of the vendor, or with PyTorch, in the same "
            "run; a dash says that no library was timed."
        )
    if any(page.newest.environment.dirty for page in pages):
        said.append("A commit with \\* had uncommitted changes.")
    return said


def best_of(page: Page) -> Any:
    """The row of the stage and problem with which the operation is fastest; None where nothing was timed."""
    fastest = [frame.best(rows) for _, rows in frame.ladders(page.times)]
    return max(fastest, key=lambda row: row[frame.column(page.metric)], default=None)


def _best(page: Page) -> tuple[str, str, str]:
    """Stage, throughput and share of the vendor's figure where the operation is fastest."""
    best = best_of(page)
    if best is None:
        return "-", "-", "-"
    speed = three_digits(best[frame.column(page.metric)])
    beside = derived.beside_vendor(best.measurement) or "-"
    return f"`{best.stage}`", f"{speed} {page.metric} ({best.label})", beside
