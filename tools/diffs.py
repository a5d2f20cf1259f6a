"""Writes docs/gemm-in-seven-diffs.md: from a naive GEMM to stream-K, by what stages change. python tools/diffs.py

Sentences are those of the head comments of the sources, diffs are of their code, and gains are those of the report on
an H200.
"""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

import workbench
from workbench.catalogue import registry
from workbench.model.stage import Stage

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/gemm-in-seven-diffs.md"
REPORT = ROOT / "reports/nvidia-h200"
STEPS = (
    "coalesced",
    "smem_tiling",
    "thread_tile",
    "persistent",
    "multicast",
    "deferred_epilogue",
    "stream_k",
)
"""Each is compared with its parent; between two of them are stages that the page only names."""

HEAD = """# GEMM in seven diffs

<!-- Written by tools/diffs.py from the sources and the report; do not edit. -->

A fast matrix product is a slow one and a few ideas. Each stage of [GEMM](operations/gemm.md) is a program of its own
that adds one idea to its parent. These are seven of them on the way from the first stage, `naive`, to the last one,
`stream_k`. The diffs leave out comments and the name of the kernel. `workbench diff gemm:STAGE` shows any other one.
What is there for a shape or a type lies in [`cuda_src/gemm/tuned`](../cuda_src/gemm/tuned).
"""


def code(stage: Stage) -> list[str]:
    """The lines of a source without its head comment, and with one name for all kernels."""
    lines = stage.path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    return [re.sub(rf"\bgemm_{stage.name}\b", "gemm", line) for line in lines[first:]]


def between(stage: Stage, last: str) -> list[str]:
    """The stages on the way to this one from the one before on the page, in order."""
    stages = {other.name: other for other in registry.operations()["gemm"].stages}
    names: list[str] = []
    while (parent := stage.parent) is not None and parent != last:
        names.insert(0, parent)
        stage = stages[parent]
    return names


def gain(stage: Stage) -> str:
    """The largest gain that the report has of a stage, where it was timed in one run with its parent."""
    rows = workbench.results(REPORT)
    rows = rows[(rows.operation == "gemm") & (rows.stage == stage.name) & rows.gain.notna()]
    if rows.empty:
        return f"`{stage.parent}` was timed in another run: the [report](../reports/nvidia-h200/gemm.md) has both."
    best = rows.loc[rows.gain.idxmax()]
    return (
        f"On {best.label} it is {best.gain:.2f} times as fast as `{stage.parent}` (NVIDIA H200, "
        f"[report](../reports/nvidia-h200/gemm.md), commit {best.commit[:8]}; the best of {len(rows)} problems)."
    )


def page() -> str:
    """The page as it should be."""
    sys.path.insert(0, str(Path(__file__).parent))
    from operations import comment_of, prose

    stages = {stage.name: stage for stage in registry.operations()["gemm"].stages}
    parts, last = [HEAD.rstrip()], "naive"
    for number, name in enumerate(STEPS, 1):
        stage = stages[name]
        parts.append(f"## {number}. {name}")
        if passed := between(stage, last):
            links = ", ".join(f"[{n}](operations/gemm.md#{n})" for n in passed)
            begins = stages[passed[0]].parent is None
            parts.append(f"In between: {links}{', which begins anew, on tensor cores' if begins else ''}.")
        parts += [prose(paragraph) for paragraph in comment_of(stage.path.read_text())[1:]]
        one, other = code(stages[stage.parent or ""]), code(stage)
        changed = list(difflib.unified_diff(one, other, lineterm="", n=2))[2:]
        parts += ["\n".join(("```diff", *changed, "```")), gain(stage)]
        last = name
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
