"""Writes docs/ladder.md: is every stage nearest to its parent? python tools/ladder.py

For every stage but the first of a track, the lines are counted that are changed from its parent, and from each other
stage of the operation that is declared before it. The nearest has to be the parent.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from workbench.catalogue import registry
from workbench.model.operation import Operation
from workbench.model.stage import Stage

PAGE = Path(__file__).parent.parent / "docs/ladder.md"

EXCEPTIONS: dict[str, str] = {
    "attention:two_tiles": "It multiplies by `tcgen05`, as `tensor_memory` does. Its specialised warps hand tiles over "
    "in lines that are nearer to `specialised`, which multiplies by wgmma.",
    "gemm:fp32_pipeline": "It multiplies as `warp_tiles` does. Everything around the multiplications comes from the "
    "pipelines of track wgmma: tensor maps load, warps specialise, blocks are persistent. A short source such as "
    "`naive` is nearer only because it has fewer lines to remove.",
    "gemm:split_warp_tiles": "It multiplies as `warp_tiles` does. It loads through registers, and the blocks of a "
    "cluster split k. A short source such as `naive` is nearer only because it has fewer lines to remove.",
    "transpose:register_blocks": "It does not use the shared memory of `shared_tile`. The two share only the lines of "
    "every kernel with more than one element for each thread.",
}
"""Stages whose parent is not the nearest, and why it is still the parent."""

HEAD = """# Is a stage nearest to its parent?

<!-- made by tools/ladder.py -->

The ladder of an operation is a tree. A stage is its `parent` plus one idea, so the difference between the two is the
lesson (`workbench diff STAGE`). This page measures that difference. It counts the lines to remove, add or replace that
turn one source into the other, without comments, blank lines and indentation. A replaced line counts once.

A stage is compared with all stages that are declared before it in its operation, in any track. The parent must be the
nearest of them, or one of several equally near ones. The first stage of a track has no parent and is not in the table.

"""


@dataclass(frozen=True)
class Distance:
    """How far a stage is from its parent, and from the nearest of all stages before it."""

    stage: Stage[Any]
    nearest: str
    to_parent: int
    to_nearest: int

    @property
    def ok(self) -> bool:
        """Whether no other stage is nearer than the parent."""
        return self.to_parent == self.to_nearest


def lines(source: Path) -> list[str]:
    """The lines of code of a source and of another stage that it includes, without comments and indentation."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source.read_text(), flags=re.DOTALL)
    found = []
    for line in filter(None, map(str.strip, code.splitlines())):
        included = re.fullmatch(r'#include "(\w+\.cu)"', line)
        found += lines(source.with_name(included[1])) if included else [line]
    return found


def changed(one: list[str], other: list[str]) -> int:
    """How many lines have to be taken from one text, added to it or replaced to make the other."""
    codes = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return sum(max(i1 - i0, j1 - j0) for tag, i0, i1, j0, j1 in codes if tag != "equal")


def distances(operation: Operation[Any]) -> list[Distance]:
    """Of every stage that has a parent, in the order of the tree."""
    texts = {stage.name: lines(stage.path) for stage in operation.stages}
    found = {}
    for number, stage in enumerate(operation.stages):
        if stage.parent is None:
            continue
        to = {other.name: changed(texts[stage.name], texts[other.name]) for other in operation.stages[:number]}
        least = min(to.values())
        nearest = stage.parent if to[stage.parent] == least else min(to, key=lambda name: to[name])
        found[stage.name] = Distance(stage, nearest, to[stage.parent], least)
    return [found[name] for name in operation.tree() if name in found]


def measured() -> list[Distance]:
    """Of every stage of this package."""
    return [d for operation in registry.operations().values() for d in distances(operation)]


def page() -> str:
    """The page as it should be."""
    rows = [
        (
            f"`{d.stage.spec}`",
            d.stage.track or "-",
            f"`{d.stage.parent}`",
            f"`{d.nearest}`",
            d.to_parent,
            d.to_nearest,
            "yes" if d.ok else "no",
        )
        for d in measured()
    ]
    headers = ("stage", "track", "parent", "nearest", "lines changed to parent", "to nearest", "ok")
    parts = [HEAD + tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)]
    if apart := [d.stage.spec for d in measured() if not d.ok]:
        parts += ["## Exceptions", *(f"`{spec}`: {EXCEPTIONS.get(spec, 'not explained.')}" for spec in apart)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
