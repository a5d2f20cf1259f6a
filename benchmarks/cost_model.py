"""The cost model of stages beside the times that it was fitted to: makes `reports/cost-model.md` and the constants that
ship, `workbench/records/cost.json`, of the committed benches and of random products.

    python benchmarks/cost_model.py

To fit it to another card, tune there: `workbench tune` keeps times, and predictions on that device are made of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.kernels.gemm import tiling
from workbench.model.cost_model import Constants, Work, predict
from workbench.records import cost, store

ROOT = Path(__file__).parents[1]
PAGE, SUITE = ROOT / "reports/cost-model.md", ROOT / "reports/gemm-suite.json"
RANDOM = ROOT / "reports/gemm-random.json"
"""Random products: the times of stages for each, and the times of some stages with several of their tiles."""

OPERATION = "gemm"
GEMM = registry.operations()[OPERATION]
STAGES = {stage.name: stage for stage in GEMM.stages}
SHARED = {
    "small_tiles": ("WARPS_M", "WARPS_N", tiling.SMALL),
    "split_warp_tiles": ("THREAD_M", "THREAD_N", tiling.SPLIT),
}
"""Of stages with several tiles, what says how one is shared out."""

Made = tuple[str, Work, float]
"""A stage, what it did for a problem, and the microseconds that it took."""


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


def benched() -> Iterator[tuple[str, Made]]:
    """The same with their problems."""
    for name, text, parameters, us in samples():
        problem = GEMM.problem.parse(text)
        if work := cost.work_of(GEMM, STAGES[name].with_parameters(parameters), problem):
            yield text, (name, work, us)


def random_products() -> Iterator[tuple[str, Made]]:
    """Random products, with the tiles that stages take for them."""
    for row in recorded.read(RANDOM)["stages"]["rows"]:
        problem = GEMM.problem.parse(row["problem"])
        for name, us in row["us"].items():
            if name in STAGES and (work := cost.work_of(GEMM, STAGES[name], problem)):
                yield row["problem"], (name, work, us)


def with_several_tiles() -> Iterator[Made]:
    """Random products with tiles that a stage might take: `64x128/4`, which four blocks share."""
    for row in recorded.read(RANDOM)["tiles"]["rows"]:
        problem, stage = GEMM.problem.parse(row["problem"]), STAGES[row["stage"]]
        along_m, along_n, shapes = SHARED[stage.name]
        by_size = {f"{shape[0]}x{shape[1]}": shape for shape in shapes}
        for tile, us in row["us"].items():
            size, parts = tile.split("/")
            m, n, *each = by_size[size]
            sizes = {"BLOCK_M": m, "BLOCK_N": n, along_m: each[0], along_n: each[1], "SPLIT": int(parts)}
            if work := GEMM.work(problem, {**stage.sizes(problem), **sizes}):
                yield stage.name, work, us


@cache
def constants() -> dict[str, dict[str, Constants]]:
    """The constants by device and operation."""
    made = [made for _, made in (*benched(), *random_products())]
    return {cost.USUAL: {OPERATION: cost.fitted_to([*made, *with_several_tiles()])}}


def constants_text() -> str:
    """What `cost.json` has to be."""
    return cost.as_json(constants())


def slower(found: dict[str, Constants], times: Iterator[tuple[str, Made]]) -> dict[str, tuple[Any, ...]]:
    """By problem: the stage predicted to be the fastest, microseconds predicted and measured, then the one measured to
    be the fastest and its microseconds."""
    by_problem: dict[str, dict[str, tuple[float, float]]] = {}
    for text, (name, work, us) in times:
        if of_kind := found.get(cost.key_of(name, work)):
            by_problem.setdefault(text, {})[name] = (predict(work, of_kind, cost.MULTIPROCESSORS).us, us)
    rows = {}
    for text, of_problem in by_problem.items():
        best = min(of_problem, key=lambda name: of_problem[name][0])
        fastest = min(of_problem, key=lambda name: of_problem[name][1])
        rows[text] = best, *of_problem[best], fastest, of_problem[fastest][1]
    return rows


def page() -> str:
    """The Markdown page."""
    found = constants()[cost.USUAL][OPERATION]
    table = [
        [f"`{name}`{comma}{kind}", *_figures(c)]
        for (name, comma, kind), c in ((key.partition(","), c) for key, c in sorted(found.items()))
    ]
    headers = [
        "stage",
        "times",
        "launch, us",
        "tile, us",
        "wait, us",
        "TFLOP/s",
        "loaded, TB/s",
        "memory, TB/s",
        "error",
    ]
    rows = [
        [GEMM.problem.parse(text).label, f"`{best}`", f"{made:.1f}", f"{us:.1f}", f"`{fastest}`", *_beside(us, least)]
        for text, (best, made, us, fastest, least) in slower(found, benched()).items()
    ]
    chosen = ["problem", "predicted fastest", "predicted, us", "measured, us", "fastest", "measured, us", "slower by"]
    return "\n".join(
        (
            "# The cost model of GEMM\n",
            "Written by `benchmarks/cost_model.py` from the committed times of an H200, and from "
            "[those of random products](gemm-random.json). "
            "[The model](../workbench/model/cost_model.py) says what the constants mean. TFLOP/s and loaded bytes are "
            "those of the mainloop on all multiprocessors. A dash is a constant that the fit did not need. The error "
            "is the median of relative ones.\n",
            tabulate(table, headers, tablefmt="pipe", disable_numparse=True, colalign=("left", *["right"] * 8)) + "\n",
            _of_random(found),
            "The last table shows which of the measured stages the model chooses for each problem of the bench:\n",
            tabulate(rows, chosen, tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


def _of_random(found: dict[str, Constants]) -> str:
    """How much slower than the fastest what is chosen for random products is."""
    rows = []
    ratios: dict[str, list[float]] = {}
    for text, (_, _, us, _, least) in slower(found, random_products()).items():
        ratios.setdefault(GEMM.problem.parse(text).dtype, []).append(us / least)
    for dtype, of_type in sorted(ratios.items()):
        high = float(np.percentile(of_type, 95))
        rows.append(
            [
                dtype,
                str(len(of_type)),
                f"{statistics.geometric_mean(of_type):.2f}",
                f"{high:.2f}",
                f"{max(of_type):.2f}",
            ]
        )
    headers = ["random products", "problems", "slower by, geometric mean", "95th percentile", "worst"]
    return (
        "Of random products, this is how much longer the stage takes that the model chooses than the fastest that was "
        "timed:\n\n" + tabulate(rows, headers, tablefmt="pipe", disable_numparse=True) + "\n"
    )


def _beside(us: float, least: float) -> list[str]:
    """The time of the fastest, and how much slower the other one is."""
    return [f"{least:.1f}", f"{us / least:.2f}"]


def _figures(found: Constants) -> list[str]:
    """The cells of a row of the first table."""
    each = (found.launch_us, found.tile_us, found.wait_us)
    return [str(found.samples), *map("{:.2f}".format, each), *_rates(found), f"{100 * found.error:.0f} %"]


def _rates(found: Constants) -> list[str]:
    """Rates of all multiprocessors, in millions of a microsecond, as T a second."""
    each = [cost.MULTIPROCESSORS / us / 1e6 if us else None for us in (found.flop_us, found.loaded_us)]
    return ["-" if rate is None else f"{rate:.0f}" for rate in each] + [f"{found.bandwidth / 1e6:.1f}"]


if __name__ == "__main__":
    cost.SHIPPED.write_text(constants_text())
    PAGE.write_text(page())
