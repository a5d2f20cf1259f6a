"""Writes docs/operations/: a page for every operation, and their index. python tools/operations.py

A page has the ladder, and for every stage what the head comment of its source says; charts are those of the report on
an H200, where there is one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from workbench.catalogue import registry
from workbench.model.launch import H200
from workbench.model.operation import Operation
from workbench.model.stage import Stage
from workbench.toolchain.compiler import target_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/operations"
DEVICE = "nvidia-h200"
REPORTS = ROOT / "reports/README.md"
CHARTS = {
    "ladder": "Throughput of every stage, beside the vendor's library and the physical limit.",
    "heat-map": "Throughput of every stage on every problem, in percent of the vendor's library.",
    "roofline": "Throughput over arithmetic intensity, with the limits of the device.",
}
ROWS = (
    "cross_entropy",
    "layer_norm",
    "residual_rms_norm",
    "rms_norm",
    "rotary",
    "softmax",
    "transpose",
    "reduce",
    "scan",
)
MADE = "<!-- made by tools/operations.py from the declarations and the head comments of the sources; change those -->"
NAMES = {
    "dim",
    "dk",
    "dq",
    "ds",
    "dstate",
    "dv",
    "dw",
    "dx",
    "dy",
    "ldmatrix",
    "ldx",
    "ldy",
    "lse",
    "stmatrix",
    "wgmma",
}
"""Words that begin a sentence in small letters, since they are names."""

INDEX = f"""# Operations

{MADE}

Each operation has a page with its ladder, what each stage adds and what limits it, its source, and charts if it was
timed. The stages of a ladder form a tree. A stage adds one idea to its parent, and `workbench diff STAGE` shows the
change. [A table](../ladder.md) says how large the change of each stage is.

Times are those of an H200. The fastest stage is given on the problem where the operation reaches most. It is compared
with the vendor's library, or with PyTorch (eager, without `torch.compile`), in the same run; [random
problems](../../reports/random-problems.md) and [known problems](../../reports/peers.md) have more libraries.

| operation | what it computes | stages | fastest on an H200 | beside the library | timed |
|---|---|---|---|---|---|
"""


def fastest(operation: str) -> tuple[str, str]:
    """What the index of the reports says of the fastest stage on an H200, and of its time beside a library's."""
    line = next((x for x in REPORTS.read_text().splitlines() if x.startswith(f"| [{operation}]({DEVICE}/")), None)
    if line is None:
        return "-", "-"
    stage, best, share = (cell.strip() for cell in line.split("|")[2:5])
    return f"{stage}: {best}", in_times(share)


def in_times(share: str) -> str:
    """`2073.1 % of PyTorch` as `20.7 times PyTorch`: a share above 200 % is read as a factor."""
    found = re.fullmatch(r"([\d.]+) % of (.+)", share)
    return f"{float(found[1]) / 100:.1f} times {found[2]}" if found and float(found[1]) > 200 else share


def comment_of(source: str) -> list[str]:
    """The paragraphs of the head comment of a CUDA source, each on one line."""
    lines = []
    for line in source.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
    return [" ".join(p.split()) for p in re.split(r"\n\s*\n", "\n".join(lines)) if p.strip()]


def prose(paragraph: str) -> str:
    """A paragraph of a head comment as Markdown: sentences begin with a capital, and nothing in it is markup."""
    lead, colon, rest = paragraph.partition(": ")
    if colon and re.fullmatch(r"what (it gains|limits it)|(stage \d+[\w ]*, )?[\w ,.-]{1,40}", lead):
        return f"**{_escaped(_sentence(lead))}.** {_escaped(_sentence(rest))}"
    return _escaped(_sentence(paragraph))


def _sentence(text: str) -> str:
    """With capitals at the beginning of sentences, where those are words and not names."""

    def capital(match: re.Match[str]) -> str:
        word = match[2]
        return match[0] if word in NAMES or (len(word) == 1 and word != "a") else match[1] + word.capitalize()

    return re.sub(r"(^|(?<=[\w)`])\. )([a-z]+)(?=[ -]|, |\.(?: |$)|$)(?! [=+])", capital, text)


def _escaped(text: str) -> str:
    """As Markdown in which nothing is markup but names: those in backticks, and macros such as BLOCK_M, are code."""
    pieces = re.split(r"`([^`]+)`|\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b", text)
    made = []
    for plain, quoted, macro in zip(pieces[::3], [*pieces[1::3], None], [*pieces[2::3], None], strict=True):
        plain = re.sub(r"([\\`*_\[\]|])", r"\\\1", plain).replace("<", "&lt;").replace(">", "&gt;")
        made += [plain, f"`{quoted or macro}`" if quoted or macro else ""]
    return "".join(made)


def notes(name: str) -> str | None:
    """The page under docs/ that says more about an operation, from docs/operations/."""
    base = name.removesuffix("_backward")
    page = f"{name}.md" if (ROOT / f"docs/{name}.md").is_file() else "rows.md" if base in ROWS else None
    return page and f"../{page}"


def index() -> str:
    """The page over all operations."""
    rows = []
    for name, operation in registry.operations().items():
        timed = f"[H200](../../reports/{DEVICE}/{name}.md)" if _timed(name) else "not yet"
        best, share = fastest(name)
        cells = (f"[{name}]({name}.md)", _escaped(operation.summary), len(operation.stages), best, share, timed)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return INDEX + "\n".join(rows) + "\n"


def page(operation: Operation[Any]) -> str:
    """The page of one operation."""
    name = operation.name
    links = [f"`workbench verify {name}`"]
    if operation.called:
        links.append(f"[`workbench.ops.{name}`](../calling.md) in a program")
    if more := notes(name):
        links.append(f"[notes]({more})")
    if _timed(name):
        links.append(f"[report on an H200](../../reports/{DEVICE}/{name}.md)")
    else:
        links.append("not timed yet")
    parts = [
        f"# {name}",
        MADE,
        f"{_escaped(_first(operation.summary))}.",
        " · ".join(links),
        *_charts(name),
        "## Ladder",
    ]
    parts.append(_table(operation))
    seen, track = "", ""
    by_name = {stage.name: stage for stage in operation.stages}
    for stage_name, place in operation.tree().items():
        if place.track and place.track != track:
            track = place.track
            parts.append(f"## Track {track}")
        problem, *paragraphs = comment_of(by_name[stage_name].path.read_text())
        parts += _stage(by_name[stage_name], None if problem == seen else problem, paragraphs, "###" if track else "##")
        seen = problem
    return "\n\n".join(parts) + "\n"


def _stage(stage: Stage[Any], problem: str | None, paragraphs: list[str], heading: str) -> list[str]:
    source = stage.path.relative_to(ROOT).as_posix()
    facts = [f"[`{source}`](../../{source})"]
    if stage.parent:
        facts += [f"parent [{stage.parent}](#{stage.parent})", f"`workbench diff {stage.spec}`"]
    found = [f"{heading} {stage.name}", " · ".join(facts)]
    if stage.misfit(H200.architecture):
        found.append(
            f"No device has run this stage: it was verified in the emulator, for {target_of(stage.architecture)}."
        )
    if problem:
        found.append("> " + _escaped(problem))
    return found + [prose(p) for p in paragraphs]


def _table(operation: Operation[Any]) -> str:
    ideas = {stage.name: stage.idea for stage in operation.stages}
    rows = ["| stage | track | parent | idea |", "|---|---|---|---|"]
    for name, place in operation.tree().items():
        parent = f"[{place.parent}](#{place.parent})" if place.parent else "-"
        rows.append(f"| [{name}](#{name}) | {place.track or '-'} | {parent} | {_escaped(ideas[name])} |")
    return "\n".join(rows)


def _charts(name: str) -> list[str]:
    found = []
    for chart, caption in CHARTS.items():
        if (ROOT / f"reports/{DEVICE}/{name}-{chart}.png").is_file():
            found += [f"![{name} on an H200: {chart}](../../reports/{DEVICE}/{name}-{chart}.png)", f"*{caption}*"]
    return found


def _timed(name: str) -> bool:
    return (ROOT / f"reports/{DEVICE}/{name}.md").is_file()


def _first(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")


def pages() -> dict[str, str]:
    """All pages by their path from the top of the repository."""
    made = {f"docs/operations/{name}.md": page(operation) for name, operation in registry.operations().items()}
    return {"docs/operations/README.md": index(), **made}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        (ROOT / path).write_text(text)
