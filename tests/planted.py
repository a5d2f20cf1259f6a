"""Sources of stages that a fault can be planted in, wherever the line to change stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import workbench
from workbench.model.stage import Stage

INCLUDE = Path(__file__).parents[1] / "cuda_src/include"


def source_with(text: str, path: Path) -> str:
    """A source with the header in place of its inclusion that has the text, and with others by their whole paths."""
    source = path.read_text()
    for name in re.findall(r'#include "(.+?)"', source):
        header = next(
            root / name for root in (path.parent, path.parents[1] / "include", INCLUDE) if (root / name).exists()
        )
        inner = "" if text in source else source_with(text, header)
        put = inner.replace("#pragma once", "") if text in inner else f'#include "{header}"'
        source = source.replace(f'#include "{name}"', put)
    return source


def broken_verdict(stage: Stage[Any], right: str, broken: str, **how: Any) -> str:
    """The verdict in the emulator on a stage whose source, or a header of it, has `broken` for the one `right`."""
    source = source_with(right, stage.path)
    assert source.count(right) == 1
    outcome = workbench.verify(stage, code=source.replace(right, broken), device="emulator", **how)
    return str(outcome.run.stages[0].verification.verdict)
