"""Writes docs/verdicts.md: every verdict and every look of a wrong result, what it means, a message and what to do.

    python tools/verdicts.py

Messages are those of faults that are planted and verified as the page is written, and of the record of
reports/faults.json where that takes a GPU or a longer kernel.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "faults")]

import verdict_plants as plants  # noqa: E402
from harness_report import FAULTS  # noqa: E402
from verdict_texts import LOOKS  # noqa: E402

from workbench.devices.cuda import CudaDevice  # noqa: E402
from workbench.model import compact  # noqa: E402
from workbench.model.results import HAZARDS, Verdict  # noqa: E402
from workbench.report.meanings import VERDICTS  # noqa: E402

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "verdicts.md"

RECORDED: Mapping[Verdict, tuple[str, str]] = {
    Verdict.WEAK_CHECK: ("emulator", "40-inverted"),
    Verdict.OPERATION_ERROR: ("emulator", "52-tight-bound"),
    Verdict.TIMEOUT: ("cuda", "2-phase-never-comes"),
    Verdict.CRASH: ("cuda", "12-no-empty-wait"),
    Verdict.IN_FLIGHT: ("emulator", "19-no-wait"),
    Verdict.ACCUMULATOR_IN_FLIGHT: ("emulator", "15-accumulators-read"),
    Verdict.PROXY_FENCE: ("emulator", "16-wgmma"),
    Verdict.WGMMA_FENCE: ("emulator", "15-no-fence"),
    Verdict.MBARRIER_MISUSE: ("emulator", "13-too-few-bytes"),
    Verdict.DESCRIPTOR: ("emulator", "18-swizzle"),
    Verdict.EXITED_WITH_WORK: ("emulator", "20-exit-before-read"),
}
"""Verdicts whose message is that of a fault of the catalogue, and on which device."""

LOOKS_RECORDED = {
    "outputs swapped, the wrong output": "56-outputs-swapped",
    "half of every warp is left out": "53-half-warp",
    "base 2": "55-base-2",
}
"""Looks whose message is that of a fault of the catalogue."""

UNSHOWN = {
    Verdict.PASS: "It has no message.",
    Verdict.READ_ONLY: "Its message is that of `input_changed`.",
    Verdict.RESOURCES: "It has no message any more.",
    Verdict.UNTESTED: "Its message has a line for each condition, such as ``kernel.cu:14: `argument 3 == 12345` was "
    "never true in 50 problems``: `argument 3` is the fourth parameter of the kernel. A stage that passes shows "
    "the same lines below the table. `untested` of its record and of `--json` has them, with bounds, which are no "
    "failure. [The threat model](threat-model.md) says what a bound is. Only the emulator notes conditions.",
    Verdict.HEAP_MISUSE: "Only kernels that allocate have it: see [the emulator](emulator.md#what-it-checks).",
    Verdict.INDEX_OVERFLOW: "Only arrays of gigabytes have it: see [the emulator](emulator.md#what-it-checks).",
    Verdict.TENSOR_MEMORY: "[Blackwell](blackwell.md) shows its messages.",
}

MOST_TABLE = 2
"""Wrong elements that are shown."""


def brief(text: str) -> str:
    """A message without its map and most of its wrong elements."""
    lines = []
    elements = 0
    for line in text.splitlines():
        if set(line) <= set(".#") or line.startswith(("... and", "(raised at")):
            continue
        elements += bool(re.match(r"\w+\[[\d, ]+\] ", line))
        if elements <= MOST_TABLE or not re.match(r"\w+\[[\d, ]+\] ", line):
            lines.append(line.rstrip())
    return "\n".join(lines)


def recorded(device: str, key: str) -> tuple[str, str]:
    """What a fault of the catalogue is planted in and what it is, and its message in the record."""
    results = compact.read(ROOT / "reports" / "faults.json")[device]["results"]
    (message,) = (result["message"] for result in results if result["key"] == key)
    fault = FAULTS[key]
    return f"Planted in: {fault.where}. {fault.title[0].upper()}{fault.title[1:]}.", message


def shown(verdict: Verdict) -> str:
    """A message of a verdict, below what it is about."""
    if verdict in UNSHOWN:
        return f"{UNSHOWN[verdict]}\n"
    if verdict in plants.PLANTS:
        plant = plants.PLANTS[verdict]
        change = plants.difference(plant)
        about = f"In `{plant.spec}`: {plant.title}.\n\n" + (f"{change}\n" if change else "")
        return f"{about}{quoted(brief(plants.message(plant)))}"
    if verdict is Verdict.ILLEGAL_ACCESS:
        error: Any = SimpleNamespace(status=700)
        text = "cudaErrorIllegalAddress: an illegal memory access was encountered"
        fault = CudaDevice.fault(SimpleNamespace(_lost=None), error, f"the launch failed on the device: {text}")  # type: ignore[arg-type]
        return quoted(str(fault).partition(": namespace")[0])
    device, key = RECORDED[verdict]
    about, message = recorded(device, key)
    return f"{about}{' On a GPU:' if device == 'cuda' else ''}\n\n{quoted(brief(message))}"


def quoted(text: str) -> str:
    return f"```text\n{text}\n```\n"


def look(name: str) -> str:
    """What is said of a wrong result, for a cell of a table."""
    if name in LOOKS_RECORDED:
        message = recorded("emulator", LOOKS_RECORDED[name])[1]
    elif name in plants.LOOKS:
        message = plants.message(plants.LOOKS[name])
    else:
        return ""
    (line,) = (line for line in message.splitlines() if line.startswith("looks like: "))
    return line.removeprefix("looks like: ")


HEAD = """# Verdicts

This page lists every verdict of `workbench verify`, `run` and `watch`, with its meaning and what to do.
`python tools/verdicts.py` writes the page. It plants faults into correct stages, and quotes the messages.

A stage is judged on random problems. The message is about the smallest problem that fails. The command after `replay:`
solves that problem once more. The exit code is 1 if a stage failed, and 0 if nothing failed and something passed.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "| verdict | means |", "|---|---|"]
    parts += [
        f"| [`{v}`](#{v}) | {means.split('. ')[0].rstrip('.').replace('|', chr(92) + '|')} |"
        for v, (means, _) in VERDICTS.items()
    ]
    for verdict, (means, do) in VERDICTS.items():
        found = verdict in HAZARDS and verdict is not Verdict.READ_ONLY
        hazard = " The emulator finds it, also when the stage runs on a GPU." if found else ""
        parts.append(f"\n## {verdict}\n\n{means}{hazard}\n\n**What to do.** {do}\n\n{shown(verdict)}".rstrip("\n"))
    parts += [
        "\n## What a wrong result looks like\n",
        "After a `mismatch`, the workbench examines the largest problem that failed, with a few more launches. The",
        "line `looks like:` has the first of these patterns that it finds. The pattern is a guess. Only one thing is",
        "certain: the answer is wrong.\n",
    ]
    for name, (means, do) in LOOKS.items():
        said = look(name)
        parts.append(f"- **{name}**: {means} {do}" + (f"\n  > {said}" if said else ""))
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
