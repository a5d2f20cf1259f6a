"""`workbench.ops.gemm` against cuBLAS on the sizes that people multiply: makes `reports/gemm-suite.md`.

    python benchmarks/gemm_suite.py measure OUTPUT.json [--only 1024 ...]   # on a machine with a GPU
    python benchmarks/gemm_suite.py write [OUTPUT.json]                     # the page, of that file and nothing else

Each problem is solved by the stage that `workbench.ops` chooses for it on that device, timed cold and interleaved with
cuBLAS as in every bench, and its answer is compared with NumPy's again afterwards. What has been measured is saved at
once, so that a run that is cut off leaves the problems before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import recorded
from pandas import Series
from tabulate import tabulate

from workbench import ops
from workbench.devices import open_device
from workbench.kernels.gemm import GemmProblem
from workbench.measure import timing
from workbench.model.problem import Problem
from workbench.model.results import Measurement
from workbench.report import frame

Product = tuple[str, Problem]
"""An operation by its name, and what it is asked."""

RECORD = Path(__file__).parents[1] / "reports/gemm-suite.json"

SHAPES = (
    *((s, s, s) for s in (1024, 2048, 4096, 6144, 8192)),
    (4608, 14336, 4096),
    (5120, 4096, 14336),
    (512, 8192, 8192),
    (128, 8192, 8192),
    (64, 8192, 8192),
    (4096, 4096, 512),
    (16384, 16384, 16384),  # last: NumPy takes longest for it
)
"""m, n, k."""

EFFORT = timing.Effort(most=400)
"""Small products take one of two times, 0.8 us apart, theirs and ours: medians need more samples than a bench has."""


def suite(only: list[int]) -> Iterator[Product]:
    """Every shape in both layouts, of bf16; those with an extent of `only` where it names some."""
    for m, n, k in SHAPES:
        for layout in ("nt", "nn"):
            if not only or {m, n, k} & set(only):
                yield "gemm", GemmProblem(m=m, n=n, k=k, dtype="bf16", out="bf16", layout=layout)


def measure(output: Path, products: Iterable[Product]) -> None:
    """Times problems, each with the stage that `workbench.ops` takes for it."""
    device = open_device("cuda")
    info = device.info()
    record = recorded.begin(info, "rows")
    for operation, problem in products:
        stage = ops.choose(operation, problem, device.architecture, device=info.name)
        found = timing.bench(stage, device, problem, EFFORT)
        row: dict[str, Any] = {"problem": str(problem), "label": problem.label, "stage": stage.name}
        row["parameters"] = dict(stage.parameters)
        if isinstance(found, Measurement):
            row["measurement"] = asdict(found)
        else:
            row["reason"] = str(found)
        record["rows"].append(row)
        recorded.save(record, output)
        print(problem.label, stage.name, row.get("reason", ""), flush=True)


@dataclass
class Comparison:
    """A table of products beside the library that was timed interleaved with them, and library / ours of each row."""

    table: str
    cold: Series
    sustained: Series

    def means(self, what: str) -> list[str]:
        """The line of the means of what was measured, if anything was."""
        if self.cold.empty:
            return []
        cold, sustained = map(frame.geometric_mean, (self.cold, self.sustained))
        over = f"Geometric mean over {len(self.cold)} {what}"
        return [f"{over}: {cold:.3f} cold, {sustained:.3f} sustained. Lowest: {self.cold.min():.3f} cold.\n"]


def compared(rows: list[dict[str, Any]], library: str) -> Comparison:
    """Products that were measured."""
    measured = [row["measurement"] for row in rows if "measurement" in row]
    ours = frame.medians({"flops": m["flops"], **m["timing"]} for m in measured)
    theirs = frame.medians(m["baselines"][0] for m in measured)
    cold, sustained = theirs.cold_us / ours.cold_us, theirs.sustained_us / ours.sustained_us
    figures = zip(ours.cold_us, theirs.cold_us, ours.flops / ours.cold_us / 1e6, cold, sustained, strict=True)
    shown = (map(str.format, ("{:,.1f}", "{:,.1f}", "{:,.0f}", "{:.3f}", "{:.3f}"), found) for found in figures)
    cells = []
    for row in rows:
        times = next(shown) if "measurement" in row else ["-", "-", "-", f"not timed: {row['reason']}", "-"]
        cells.append([row["label"], f"`{row['stage']}`", *times])
    headers = ["problem", "stage", "cold, us", f"{library}, us", "TFLOP/s", f"{library} / ours, cold", "sustained"]
    align = ("left", "left", *["right"] * 5)
    table = tabulate(cells, headers, tablefmt="pipe", disable_numparse=True, colalign=align) + "\n"
    return Comparison(table, cold, sustained)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    found = compared(record["rows"], "cuBLAS")
    parts = [
        "# GEMM beside cuBLAS\n",
        "Written by `benchmarks/gemm_suite.py` from [the JSON beside it](gemm-suite.json). Each product is computed by "
        "the stage that `workbench.ops.gemm` takes for it and timed interleaved with cuBLAS; above 1 ours is faster. "
        "Cold: the L2 is flushed before each sample, medians; sustained: launches back to back.\n",
        recorded.made_on(record),
        found.table,
    ]
    measured = {row["problem"] for row in record["rows"]}
    if missing := [problem.label for _, problem in suite([]) if str(problem) not in measured]:
        parts.append(f"Not measured in this run: {', '.join(missing)}.\n")
    parts += found.means("problems")
    return "\n".join(parts)


if __name__ == "__main__":
    only = {"type": int, "nargs": "*", "default": []}
    recorded.main(__doc__, RECORD, lambda o: measure(o.file, suite(o.only)), page, only=only)
