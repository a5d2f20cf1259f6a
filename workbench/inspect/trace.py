"""`workbench trace`: the timeline of a stage's launches, recorded in the emulator."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..devices import Fault
from ..devices.emulated import EmulatedDevice
from ..emulator import Statistics, Traced, chrome_trace
from ..harness import Case
from ..model.errors import WrongUsage
from ..model.problem import Problem
from ..model.stage import Stage
from ..toolchain.compiler import translate_stage


class NoSuchBlock(WrongUsage, ValueError):
    """A block to trace is not in the grid; the message says how many blocks there are."""


def check_blocks(blocks: Sequence[int], count: int) -> None:
    """Raises NoSuchBlock unless a grid of so many blocks has these."""
    if absent := [str(block) for block in blocks if block >= count]:
        raise NoSuchBlock(f"there is no block {' and no block '.join(absent)}: the last one is {count - 1}")


def trace_stage(stage: Stage[Any], problem: Problem, traced: Traced, seed: int) -> tuple[dict[str, Any], Fault | None]:
    """The timeline as a JSON object, and the hazard that ended it.

    Raises CompileError, CompilerUnavailable, NoSuchBlock, and Fault where nothing ran.
    """
    compiled = translate_stage(stage, problem)
    case = Case.of(problem)
    device = EmulatedDevice(trace=traced)
    bound = device.bind(compiled, stage.plan(problem), case.arrays, case.storage(), seed)
    fault = None
    try:
        bound.run()
    except Fault as hazard:
        if not bound.statistics:
            raise
        fault = hazard
    finally:
        bound.close()
    if fault is None:
        check_blocks(traced.blocks, max(math.prod(s.timeline.grid) for s in bound.statistics if s.timeline))
    return as_json(bound.statistics, f"{stage.spec} on {problem}"), fault


def as_json(statistics: Sequence[Statistics], title: str) -> dict[str, Any]:
    """The JSON object of launches that were traced."""
    return chrome_trace([each.timeline for each in statistics if each.timeline is not None], title)


def save(trace: dict[str, Any], target: Path) -> str:
    """Writes the file; returns what to tell. Raises OSError."""
    target.write_text(json.dumps(trace, separators=(",", ":")))
    slices = sum(event["ph"] == "X" for event in trace["traceEvents"])
    cut = "; more were left out, ask for fewer blocks or more --events" if trace["otherData"]["cut"] else ""
    return f"{target}: {slices:,} slices{cut}; open it with ui.perfetto.dev or chrome://tracing"
