"""Draws what docs/gallery.md shows and no report has: python tools/gallery.py

Maps of wrong elements are of faults that are planted as for docs/verdicts.md; the timeline is that of a stage in the
emulator.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

import verdict_plants  # noqa: E402

from workbench.catalogue import registry  # noqa: E402
from workbench.emulator import Traced  # noqa: E402
from workbench.inspect.profile import trace_stage  # noqa: E402
from workbench.report import html_page, plots  # noqa: E402

ROOT = Path(__file__).parent.parent
FOLDER = "docs/gallery"
MAPS = {"the last N": "last columns", "elements are wrong in, zeros stand in": "one wrong tile"}
"""Looks of a wrong result, and what the picture of each is called."""

PROBLEM = "48x64x20,dtype=fp32,out=fp32"
TRACED = "gemm:tma_pipeline", "m=128,n=128,k=512"


def maps() -> dict[str, bytes]:
    """Pictures of wrong elements, as PNG."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for look, name in MAPS.items():
            plant = dataclasses.replace(verdict_plants.LOOKS[look], problem=PROBLEM)
            spec, result, _ = verdict_plants.judged(plant)
            assert result.failure and result.failure.cells, f"{look}: {result.verdict}"
            path = plots.save(plots.wrong_elements(spec, result.failure.cells), Path(folder) / "map.png")
            found[f"{FOLDER}/{name.replace(' ', '-')}.png"] = path.read_bytes()
    return found


def timelines() -> dict[str, bytes]:
    """The timeline of a block, as SVG."""
    spec, text = TRACED
    (stage,) = registry.select([spec])
    trace, fault = trace_stage(stage, registry.operations()[stage.operation].problem.parse(text), Traced(), 0)
    assert fault is None, fault
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps(trace))
        _, (block, *_) = html_page.load(path)
    return {f"{FOLDER}/timeline.svg": html_page.picture(block).encode() + b"\n"}


def pictures() -> dict[str, bytes]:
    """All of them, by their path from the top of the repository."""
    return {**maps(), **timelines()}


if __name__ == "__main__":
    (ROOT / FOLDER).mkdir(exist_ok=True)
    for path, content in pictures().items():
        (ROOT / path).write_bytes(content)
