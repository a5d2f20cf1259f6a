"""The cost model of stages beside the times that it was fitted to: makes `reports/cost-model.md` and the constants that
ship, `workbench/records/cost.json`, of the committed benches.

    python benchmarks/cost_model.py

To fit it to another card, tune there: `workbench tune` keeps times, and predictions on that device are made of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.model.cost_model import predict
from workbench.records import cost, store

ROOT = Path(__file__).parents[1]
PAGE, SUITE = ROOT / "reports/cost-model.md", ROOT / "reports/gemm-suite.json"
OPERATION = "gemm"


def samples() -> Iterator[cost.Sample]:
    """The cold medians of the bench and of the suite beside cuBLAS."""
    for result, _ in store.current(store.load(ROOT / "reports/nvidia-h200")):
        if result.operation == OPERATION:
            for m in result.measurements:
                yield result.stage, m.problem, {}, statistics.median(m.timing.cold_us)
    for row in recorded.read(SUITE)["rows"]:
        if "measurement" in row:
            us = statistics.median(row["measurement"]["timing"]["cold_us"])
            yield row["stage"], row["problem"], row["parameters"], us


def constants() -> dict[str, dict[str, dict[str, Any]]]:
    """The constants by device and operation."""
    return {cost.USUAL: {OPERATION: cost.fitted(registry.operations()[OPERATION], samples())}}


def constants_text() -> str:
    """What `cost.json` has to be."""
    return cost.as_json(constants())


def page() -> str:
    """The Markdown page."""
    operation, found = registry.operations()[OPERATION], constants()[cost.USUAL][OPERATION]
    table = [
        [f"`{n}`", c.samples, f"{c.launch_us:.1f}", f"{c.tile_us:.2f}", *_rates(c), f"{100 * c.error:.0f} %"]
        for n, c in found.items()
    ]
    headers = ["stage", "times", "launch, us", "tile, us", "TFLOP/s", "loaded, TB/s", "memory, TB/s", "largest error"]
    stages = {stage.name: stage for stage in operation.stages}
    times: dict[str, dict[str, tuple[float, float]]] = {}
    for name, text, parameters, us in samples():
        problem = operation.problem.parse(text)
        work = cost.work_of(operation, stages[name].with_parameters(parameters), problem)
        if work and name in found:
            made = predict(work, found[name], cost.MULTIPROCESSORS).us
            times.setdefault(problem.label, {})[name] = (made, us)
    rows = []
    for label, of_problem in times.items():
        best = min(of_problem, key=lambda name: of_problem[name][0])
        fastest = min(of_problem, key=lambda name: of_problem[name][1])
        (made, us), least = of_problem[best], of_problem[fastest][1]
        rows.append(
            [label, f"`{best}`", f"{made:.1f}", f"{us:.1f}", f"`{fastest}`", f"{least:.1f}", f"{us / least:.2f}"]
        )
    chosen = ["problem", "predicted fastest", "predicted, us", "measured, us", "fastest", "measured, us", "slower by"]
    return "\n".join(
        (
            "# The cost model of GEMM\n",
            "Written by `benchmarks/cost_model.py` from the committed times of an H200. "
            "[The model](../workbench/model/cost_model.py) says what the constants mean. TFLOP/s and loaded bytes are "
            "those of the mainloop on all multiprocessors. A dash is a constant that the fit did not need.\n",
            tabulate(table, headers, tablefmt="pipe", disable_numparse=True, colalign=("left", *["right"] * 7)) + "\n",
            "The second table shows which of the measured stages the model chooses for each measured problem:\n",
            tabulate(rows, chosen, tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


def _rates(found: Any) -> list[str]:
    """Rates of all multiprocessors, in millions of a microsecond, as T a second."""
    each = [cost.MULTIPROCESSORS / us / 1e6 if us else None for us in (found.flop_us, found.loaded_us)]
    return ["-" if rate is None else f"{rate:.0f}" for rate in each] + [f"{found.bandwidth / 1e6:.1f}"]


if __name__ == "__main__":
    cost.SHIPPED.write_text(constants_text())
    PAGE.write_text(page())
