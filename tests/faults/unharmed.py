"""What is right has to pass, whatever stands beside it: the part of `reports/faults.md` that is not about faults.

    python tests/faults/unharmed.py neighbours OUTPUT.json   # on a GPU: stages timed with and without one that hangs
    python tests/faults/unharmed.py take FILE ...            # takes over such a file, or what `verify --json` printed

Then `python tests/faults/harness_report.py write`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness_planting import planted_stage
from planting import Change
from tabulate import tabulate
from wrong_results import ADD

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import Device, open_device
from workbench.measure import timing
from workbench.model import compact
from workbench.model.results import Measurement
from workbench.model.stage import Stage
from workbench.records import environment
from workbench.run import verifier

RECORD = Path(__file__).parents[2] / "reports/faults.json"
EXAMPLES = 5
SECONDS = 0.2
"""Of samples for a stage: its median is to be seen, not a record."""

Record = dict[str, Any]


def neighbours() -> Record:
    """Verifies and times stages without one that hangs and, each after it, with it: A B B A."""
    harness.SHRINK_SECONDS = 0.0
    hangs = planted_stage("vector_add:naive", Change(f"if (i < n) c[i] = {ADD};", "for (;;) __nanosleep(100);"))
    stages = registry.select(["vector_add"])
    device = open_device("cuda")
    info = device.info()
    record: Record = {"environment": asdict(environment.describe()), "device": info.name, "hangs": [], "stages": []}
    seen: dict[tuple[str, bool], list[tuple[str, float]]] = {}
    for beside in (False, True, True, False):
        for stage in stages:
            if beside:
                started = time.monotonic()
                verdict = verifier.verify(hangs, device, examples=EXAMPLES, seed=0, remembers=False).verdict
                record["hangs"].append({"verdict": str(verdict), "seconds": round(time.monotonic() - started, 1)})
            seen.setdefault((stage.spec, beside), []).append(_fared(stage, device))
    for stage in stages:
        row: Record = {"spec": stage.spec}
        for beside, key in ((False, "alone"), (True, "beside")):
            verdicts, medians = zip(*seen[stage.spec, beside], strict=True)
            row[key] = {"verdicts": sorted(set(verdicts)), "cold_us": list(medians)}
        record["stages"].append(row)
    return record


def _fared(stage: Stage[Any], device: Device) -> tuple[str, float]:
    """The verdict of a stage, and its cold median in microseconds on the first problem of the suite."""
    verdict = verifier.verify(stage, device, examples=EXAMPLES, seed=0, remembers=False).verdict
    problem = registry.operations()[stage.operation].suite[0]
    effort = dataclasses.replace(timing.Effort(), seconds=SECONDS, sustained_seconds=SECONDS)
    measured = timing.bench(stage, device, problem, effort)
    if not isinstance(measured, Measurement):
        raise RuntimeError(f"{stage.spec} was not timed: {measured}")
    return str(verdict), statistics.median(measured.timing.cold_us)


def taken(record: Record, found: Record) -> None:
    """Puts what a file holds into the record."""
    if "hangs" in found:
        record["neighbours"] = found
        return
    made = found["environment"]
    for stage in found["stages"]:
        spec, result = f"{stage['operation']}:{stage['stage']}", stage["verification"]
        rows = record.setdefault("verified", {}).setdefault(found["device"]["name"], {})
        rows[spec] = {
            "problems": result["problems"],
            "verdict": result["verdict"],
            "worst": result["worst_error"],
            "commit": made["commit"],
            "date": made["date"],
        }


NOT_RUN = "not run"


def sections(record: Mapping[str, Any]) -> list[str]:
    """The end of the page, as Markdown."""
    parts = []
    if verified := record.get("verified"):
        names = sorted(verified, reverse=True)
        cells = {s.spec: [_verified(verified[name].get(s.spec)) for name in names] for s in registry.stages()}
        rows = [[f"`{spec}`", *row] for spec, row in cells.items() if set(row) != {NOT_RUN}]
        newer = len(cells) - len(rows)
        titles = [f"{name}, commit {_commits(verified[name])}" for name in names]
        parts += [
            "## Correct stages pass\n",
            "These stages solved random problems, each in both tiers (`workbench verify`). The number after the "
            "verdict is the largest error / bound.\n",
            tabulate(rows, ["stage", *titles], tablefmt="pipe") + "\n",
            f"{newer} stages are newer than these runs. The tests verify every stage in the emulator.\n" * (newer > 0),
        ]
    if beside := record.get("neighbours"):
        hangs = beside["hangs"]
        slowest = max(hang["seconds"] for hang in hangs)
        verdicts = ", ".join(sorted({hang["verdict"] for hang in hangs}))
        rows = []
        for row in beside["stages"]:
            alone, with_it = (statistics.median(row[key]["cold_us"]) for key in ("alone", "beside"))
            cells = [", ".join(row[key]["verdicts"]) for key in ("alone", "beside")]
            change = f"{100 * (with_it / alone - 1):+.1f} %"
            rows.append([f"`{row['spec']}`", *cells, f"{alone:.2f} us", f"{with_it:.2f} us", change])
        headers = ["stage", "alone", "after one that hangs", "cold", "cold after it", "difference"]
        made = beside["environment"]
        parts += [
            "## A stage that hangs costs the others nothing\n",
            f"{beside['device']}, commit `{made['commit'][:12]}`, {made['date'][:10]}. A kernel that never ends is "
            f"verified before each stage, {len(hangs)} times: {verdicts}, after {slowest:.1f} s at most.\n",
            tabulate(rows, headers, tablefmt="pipe") + "\n",
        ]
    return parts


def _commits(rows: Mapping[str, Record]) -> str:
    return ", ".join(f"`{commit}`" for commit in sorted({row["commit"][:12] for row in rows.values()}))


def _verified(row: Mapping[str, Any] | None) -> str:
    return f"{row['verdict']}, {row['problems']:,} problems, {row['worst']:.3f}" if row else NOT_RUN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("neighbours", "take"))
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    if options.step == "neighbours":
        options.files[0].write_text(json.dumps(neighbours(), indent=1) + "\n")
        return
    record = json.loads(RECORD.read_text())
    for file in options.files:
        found = json.loads(file.read_text())
        taken(record, found.get("result", found))
    compact.write(record, RECORD)


if __name__ == "__main__":
    main()
