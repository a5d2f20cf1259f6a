"""Whether `workbench compare` sees a stage become 3 % slower, and nothing where nothing changed: `reports/compare.md`.

    python benchmarks/sensitivity.py measure OUTPUT.json [--runs 20]   # on a machine with a GPU
    python benchmarks/sensitivity.py write [OUTPUT.json]               # the page, of that file and nothing else

Runs of a stage as it is and of the same stage with a delay planted alternate, each run in a process of its own, as two
invocations of `workbench bench` would be. The delay is a wait at the beginning of each block, all of which are resident
at once, for 3 % of what the first run took. Each run is compared with the unchanged one before it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.model.results import Run
from workbench.model.stage import Stage
from workbench.report import changes, derived
from workbench.run.timer import TimedSession
from workbench.run.verifier import Silent

RECORD = Path(__file__).parents[1] / "reports/compare.json"

STAGES = {
    "gemm:persistent": "4096x4096x4096,dtype=bf16,out=bf16,layout=nt",
    "vector_add:grid_stride": "268435456,dtype=fp32",
}
"""What is slowed, and the problem that is timed."""

SLOWER_BY = 0.03

WAIT = """
  for (unsigned long long now, end = 0;;) {{
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (end == 0) end = now + {nanoseconds};
    if (now >= end) break;
  }}
"""


def slowed(stage: Stage[Any], folder: Path, microseconds: float) -> Stage[Any]:
    """The stage with a wait at the beginning of its kernel."""
    text = stage.path.read_text()
    begin = text.index("{", text.index("__global__")) + 1
    path = folder / stage.path.name
    path.write_text(text[:begin] + WAIT.format(nanoseconds=round(1000 * microseconds)) + text[begin:])
    return replace(stage, source=str(path))


def run(stage: Stage[Any], problem: str) -> Run:
    """Verify and time a stage on one problem, in a new process."""
    device = open_device("cuda")
    try:
        operation = registry.operation_of(stage)
        problems = {operation.name: (operation.problem.parse(problem),)}
        session = TimedSession(device, examples=2, seed=0, problems=problems)
        result = session.stage(stage, Silent())
        if not result.measurements:
            raise SystemExit(f"{stage.spec} was not timed: {result.verification.failure or result.untimed}")
        return session.run
    finally:
        device.close()


def outcomes(before: Run, after: Run) -> dict[str, Any]:
    """What `workbench compare` says, by kind of timing."""
    found = changes.compare([before], [after])
    return {c.kind: {"outcome": str(c.outcome), "ratio": c.used.estimate, "us": c.after_us} for c in found.changes}


def measure(output: Path, runs: int) -> None:
    """Makes the record; what has been measured is saved at once."""
    device = open_device("cuda")
    record = recorded.begin(device.info(), "rows")
    device.close()
    with tempfile.TemporaryDirectory() as folder:
        for spec, problem in STAGES.items():
            (stage,) = registry.select([spec])
            before = run(stage, problem)
            median = derived.median(before.stages[0].measurements[0].timing.cold_us)
            planted = slowed(stage, Path(folder), SLOWER_BY * median)
            for _ in range(runs):
                slower, again = run(planted, problem), run(stage, problem)
                for name, after in (("slowed", slower), ("unchanged", again)):
                    record["rows"].append({"spec": spec, "problem": problem, "which": name, **outcomes(before, after)})
                before = again
                recorded.save(record, output)
            print(spec, runs, "runs", flush=True)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    lines = []
    for spec in dict.fromkeys(row["spec"] for row in record["rows"]):
        for which in ("slowed", "unchanged"):
            rows = [r for r in record["rows"] if (r["spec"], r["which"]) == (spec, which)]
            for kind in (changes.COLD, changes.SUSTAINED):
                said = Counter(r[kind]["outcome"] for r in rows)
                ratios = [r[kind]["ratio"] for r in rows]
                lines.append(
                    [
                        f"`{spec}` {rows[0]['problem']}",
                        which,
                        kind,
                        len(rows),
                        ", ".join(f"{said[o]} {o}" for o in changes.Outcome if said[o]),
                        f"{np.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
                    ]
                )
    headers = ["stage", "", "timing", "runs", "what compare says", "ratio to the run before: median (range)"]
    return "\n".join(
        (
            "# Does `workbench compare` see 3 %?\n",
            "Written by `benchmarks/sensitivity.py` from [the JSON beside it](compare.json). Runs of an unchanged "
            f"stage alternate with runs of the same stage with a planted delay of {100 * SLOWER_BY:.0f} %. Each run "
            "has its own process, and is compared with the unchanged run before it.\n",
            recorded.made_on(record),
            tabulate(lines, headers, tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, lambda o: measure(o.file, o.runs), page, runs={"type": int, "default": 20})
