"""A stage's sources with something else in place of a part of them: what was tried, or what it takes to look inside."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.model.operation import SOURCES, Stage
from workbench.toolchain.compiler import Compiled, compile_source


@dataclass(frozen=True)
class Change:
    """Of a file below `cuda_src`: what stands in it, once, and what stands there instead."""

    file: str
    old: str
    new: str


def source(changes: Sequence[Change], stage: Stage[Any], folder: Path) -> Path:
    """The stage's source in a copy of all sources below `folder`, changed. Raises ValueError where a change has no
    place."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    for change in changes:
        text = (folder / change.file).read_text()
        if text.count(change.old) != 1:
            raise ValueError(f"{change.file} has {text.count(change.old)} times, not once:\n{change.old}")
        (folder / change.file).write_text(text.replace(change.old, change.new))
    return folder / stage.path.relative_to(SOURCES)


def compiled(changes: Sequence[Change], stage: Stage[Any], defines: Mapping[str, str | int]) -> Compiled:
    """The stage's source with these changes, compiled. Raises what `source` and compile_source raise."""
    if not changes:
        return compile_source(stage.path, defines)
    with tempfile.TemporaryDirectory() as folder:
        return compile_source(source(changes, stage, Path(folder)), defines)
