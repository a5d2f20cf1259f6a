"""The cost model of stages beside the times that it was fitted to: makes `reports/cost-model.md` and the constants that
ship, `workbench/records/cost.json`, of the committed benches and of random products.

    python benchmarks/cost_model.py measure OUTPUT.json [--seed N] [--count N] [--only gemm-bf16 ...]     # on a GPU
    python benchmarks/cost_model.py write [OUTPUT.json]                # the page and the constants, of all times so far

Measured are all stages that may be the fastest for random products, as `random_problems.py` draws them, beside
`torch.matmul`. To fit the model to another card, tune there: `workbench tune` keeps times, and predictions on that
device are made of them.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import random_calls
import random_problems
import recorded
from tabulate import tabulate

from workbench import ops
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.kernels.gemm import tiling
from workbench.model.calls import Function
from workbench.model.cost_model import Constants, Work, misfit, predict
from workbench.model.launch import H200, ceil_div
from workbench.ops.dispatch import Operators
from workbench.records import cost, store
from workbench.toolchain.compiling import CompileError

ROOT = Path(__file__).parents[1]
SUITE, RANDOM = ROOT / "reports/gemm-suite.json", ROOT / "reports/cost-model.json.gz"
"""Random products on each card: the times of stages, of those with several tiles by tile: `64x128/4`, which four blocks
share."""

WHAT = "cold medians of several, in turns with torch.matmul, L2 flushed before each"

OPERATION = "gemm"
GEMM = registry.operations()[OPERATION]
STAGES = {stage.name: stage for stage in GEMM.stages}
BY_WARPS, BY_THREADS = ("WARPS_M", "WARPS_N"), ("THREAD_M", "THREAD_N")
SHARED: dict[str, tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]] = {
    "small_tiles": (BY_WARPS, tiling.SMALL),
    "shifted_tiles": (BY_WARPS, tiling.SMALL),
    "split_warp_tiles": (BY_THREADS, tiling.SPLIT),
    "fitted_pipeline": (BY_THREADS, tiling.FITTED),
    "shifted_pipeline": (BY_THREADS, tiling.FITTED),
    "fitted_tiles": ((), ()),
    "flexible_tiles": ((), ()),
    "flexible_multicast": ((), ()),
    "realigned": ((), ()),
}
"""Of stages with several tiles, what says how one is shared out, for each of them."""

CARDS = (cost.USUAL, "NVIDIA H100 80GB HBM3")
"""Whose times there are, by their full names."""

LAUNCH_US = 4.1
"""What `launch_us` is of runs on an otherwise idle machine. Of another run, the difference is taken from all times: a
host that is busy, or slow, adds as much to each."""

ENOUGH = 20
"""Times of a kind of work of a stage with which a card needs none of another one."""

Made = tuple[str, Work, float]
"""A stage, what it did for a problem, and the microseconds that it took."""

parsed = cache(GEMM.problem.parse)
"""The problem of a text, which stands beside many times."""


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
    """The same with their problems. When they were measured, `fitted_tiles` had other tiles: those are left out that it
    would not take now."""
    for name, text, parameters, us in samples():
        problem = parsed(text)
        if name == "fitted_tiles" and tiling.wide(problem, 128) != _widest(problem):
            continue
        stage = STAGES[name]
        known = {parameter: value for parameter, value in parameters.items() if parameter in stage.parameters}
        if work := cost.work_of(GEMM, stage.with_parameters(known), problem):
            yield text, (name, work, us)


def _widest(p: Any) -> tuple[int, int, int]:
    """The tile of 128 rows and the blocks of which there are the most, of at most 128."""

    def blocks(width: int, split: int) -> int:
        found = ceil_div(p.m, 128) * ceil_div(p.n, width) * split
        return found if found <= 128 and split <= ceil_div(p.k, 64) else 0

    return (128, *max(((256, 1), (256, 2), (128, 1), (128, 2)), key=lambda choice: blocks(*choice)))


@cache
def random_products(card: str) -> tuple[tuple[str, str, Made], ...]:
    """Random products on a card: the problem, the tile or nothing, and what a stage did."""
    return tuple(_random_products(card))


def _random_products(card: str) -> Iterator[tuple[str, str, Made]]:
    for run in recorded.read(RANDOM)["cards"]:
        if run["device"] != card:
            continue
        late = max(0.0, launch_us(run["rows"]) - LAUNCH_US)
        for row in run["rows"]:
            problem = parsed(row["problem"])
            for name, times in row["us"].items():
                for tile, us in times.items() if isinstance(times, dict) else (("", times),):
                    if name in STAGES and (work := GEMM.work(problem, _sizes(name, problem, tile))):
                        yield row["problem"], tile, (name, work, us - late)


def launch_us(rows: list[recorded.Record]) -> float:
    """What a launch takes in a run, by products so small that nothing else does: a quarter of them take less."""
    least = []
    for row in rows:
        p = parsed(row["problem"])
        if p.m * p.n * p.k <= 2**18 and row["us"]:
            least.append(min(us for t in row["us"].values() for us in (t.values() if isinstance(t, dict) else (t,))))
    return float(np.percentile(least, 25)) if least else LAUNCH_US


def _sizes(name: str, problem: Any, tile: str) -> dict[str, int]:
    """The sizes of a stage with a tile, of `64x128/4`, or those that it takes."""
    sizes = dict(STAGES[name].sizes(problem))
    if tile:
        size, _, shared = tile.partition("/")
        m, n = (int(extent) for extent in size.split("x"))
        names, shapes = SHARED[name]
        each = next((shape[2:] for shape in shapes if shape[:2] == (m, n)), ())
        sizes |= {"BLOCK_M": m, "BLOCK_N": n, **dict(zip(names, each, strict=True))}
        parts, _, clusters = shared.partition("x")
        if name == "flexible_multicast":
            sizes |= {"SHARING": int(parts[:-1]), "SHARE_A": int(parts.endswith("A"))}
        else:
            sizes["SPLIT"] = int(parts)
        if "CLUSTERS" in sizes:
            sizes["CLUSTERS"] = int(clusters or 1)
        if "SWAPPED" in sizes:
            sizes["SWAPPED"] = int(tiling.is_swapped(m, tiling.HIGH if name == "flexible_tiles" else tiling.HIGHER))
    return sizes


def with_present_tiles(card: str) -> Iterator[tuple[str, Made]]:
    """Those of random products with the tile that the stage takes now."""
    for text, _, (name, work, us) in random_products(card):
        if work == cost.work_of(GEMM, STAGES[name], parsed(text)):
            yield text, (name, work, us)


ALIKE, EXACT = 0.1, 1e-6
"""Part by which the misfit may be larger and constants fit as well: errors that are 5 % larger; and the misfit of a
time that is met."""


@cache
def constants() -> dict[str, Constants]:
    """The constants of the usual card. Where it has few times of a kind, those of the other count as well."""
    made, other = (list(_made_on(card)) for card in CARDS)
    count = Counter(cost.key_of(name, work) for name, work, _ in made)
    more = [one for one in other if count[cost.key_of(one[0], one[1])] < ENOUGH]
    return kept(cost.shipped().get(cost.USUAL, {}).get(OPERATION, {}), [*made, *more])


def kept(shipped: Mapping[str, Constants], times: Sequence[Made]) -> dict[str, Constants]:
    """What fits these times, but the constants that ship where they fit them as well. Works that are all alike do not
    tell apart what an iteration takes: among such fits the last digits of a processor's arithmetic decide."""
    found = cost.fitted_to(times)
    for key, new in found.items():
        before = shipped.get(key, new)
        of_key = [(work, us) for name, work, us in times if cost.key_of(name, work) == key]
        ours, theirs = (misfit(of_key, constants, H200.multiprocessors) for constants in (new, before))
        if before.samples == new.samples and theirs <= (1 + ALIKE) * ours + EXACT * len(of_key):
            found[key] = before
    return found


def _made_on(card: str) -> Iterator[Made]:
    """All that was timed on a card: the benches are those of the H200."""
    if card == cost.USUAL:
        yield from (made for _, made in benched())
    yield from (made for *_, made in random_products(card))


def constants_text() -> str:
    """What `cost.json` has to be."""
    return cost.as_json({cost.USUAL: {OPERATION: constants()}})


def slower(found: dict[str, Constants], times: Iterator[tuple[str, Made]]) -> dict[str, tuple[Any, ...]]:
    """By problem: the stage predicted to be the fastest, microseconds predicted and measured, then the one measured to
    be the fastest and its microseconds."""
    by_problem: dict[str, dict[str, tuple[float, float]]] = {}
    for text, (name, work, us) in times:
        if of_kind := found.get(cost.key_of(name, work)):
            by_problem.setdefault(text, {})[name] = (predict(work, of_kind, H200.multiprocessors).us, us)
    rows = {}
    for text, of_problem in by_problem.items():
        best = min(of_problem, key=lambda name: of_problem[name][0])
        fastest = min(of_problem, key=lambda name: of_problem[name][1])
        rows[text] = best, *of_problem[best], fastest, of_problem[fastest][1]
    return rows


HEADERS = ("stage", "times", "launch, us", "tile, us", "wait, us", "TFLOP/s", "loaded, TB/s", "memory, TB/s", "error")


def page(record: recorded.Record) -> str:
    """The Markdown page of what is fitted to the record, which is the committed one, and to the benches."""
    found = constants()
    rows = [
        [parsed(text).label, f"`{best}`", f"{made:.1f}", f"{us:.1f}", f"`{fastest}`", *_beside(us, least)]
        for text, (best, made, us, fastest, least) in slower(found, benched()).items()
    ]
    chosen = ["problem", "predicted fastest", "predicted, us", "measured, us", "fastest", "measured, us", "slower by"]
    return "\n".join(
        (
            "# The cost model of GEMM\n",
            "Written by `benchmarks/cost_model.py` from the committed times of an H200, and from "
            "[those of random products](cost-model.json.gz) on an H200 and an H100. "
            "[The model](../workbench/model/cost_model.py) says what the constants mean. TFLOP/s and loaded bytes are "
            "those of the mainloop on all multiprocessors. A dash is a constant that the fit did not need. The error "
            "is the median of relative ones. What the H200 has too few times of is that of the H100.\n",
            f"## {cost.USUAL}\n\n{_of_card()}",
            "## What is chosen\n",
            _of_random(),
            "The last table shows which of the measured stages the model chooses for each problem of the bench, on an "
            "H200:\n",
            tabulate(rows, chosen, tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


def _of_card() -> str:
    """The table of the constants."""
    table = [
        [f"`{name}`{comma}{kind}", *_figures(c)]
        for (name, comma, kind), c in ((key.partition(","), c) for key, c in sorted(constants().items()))
    ]
    align = ("left", *["right"] * 8)
    return tabulate(table, HEADERS, tablefmt="pipe", disable_numparse=True, colalign=align) + "\n"


TRIED = """## What was tried instead

Each was judged by the same times: how much longer the stage takes that is chosen than the fastest that was timed.

| choice | H200: geometric mean | 95th percentile | H100: geometric mean | 95th percentile |
|:-------|---------------------:|----------------:|---------------------:|----------------:|
| the model, with constants of each card | 1.006 | 1.04 | 1.005 | 1.03 |
| the model, with constants of the H200 | 1.006 | 1.04 | 1.006 | 1.03 |
| the same, fitted to half of the products and judged by the other half | 1.006 | 1.04 | - | - |
| the model without kinds of work: 29 sets of constants instead of 139 | 1.012 | 1.08 | 1.010 | 1.06 |
| a tree of 19 to 26 leaves a type, stages in order | 1.017 to 1.027 | 1.13 to 1.19 | 1.016 to 1.020 | 1.08 to 1.13 |
| the order of the seven nearest products | 1.018 to 1.022 | 1.12 to 1.19 | 1.018 to 1.022 | 1.11 to 1.13 |
| the operation's preference alone | 1.23 to 1.24 | 2.5 | 1.22 to 1.27 | 2.5 |

Trees and neighbours were judged by products that they had not seen (four parts; half of the products). Larger trees are
no better: 28 to 39 leaves a type have the same mean. A tree needs none of the code that counts tiles, but loses one or
two percent in the mean, and 10 to 15 % in one of twenty products: what decides is how many rounds of tiles there are,
which changes with every size. So the model stays, with the constants of one card: on the H100 its own chose 0.05 %
better than those of the H200 do. Times predicted there are those of an H200.

"""


def _of_random() -> str:
    """How much slower than the fastest what is chosen for random products is."""
    rows = []
    for card in CARDS:
        ratios: dict[str, list[float]] = {}
        for text, (_, _, us, _, least) in slower(constants(), with_present_tiles(card)).items():
            ratios.setdefault(parsed(text).dtype, []).append(us / least)
        for dtype, of_type in sorted(ratios.items()):
            figures = statistics.geometric_mean(of_type), float(np.percentile(of_type, 95)), max(of_type)
            rows.append([card, dtype, str(len(of_type)), *map("{:.2f}".format, figures)])
    headers = ["card", "random products", "problems", "slower by, geometric mean", "95th percentile", "worst"]
    return (
        "Of random products, this is how much longer the stage takes that the model chooses than the fastest that was "
        "timed, with the tiles that stages take now:\n\n"
        + tabulate(rows, headers, tablefmt="pipe", disable_numparse=True)
        + "\n\n"
        + TRIED
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
    each = [H200.multiprocessors / us / 1e6 if us else None for us in (found.flop_us, found.loaded_us)]
    return ["-" if rate is None else f"{rate:.0f}" for rate in each] + [f"{found.bandwidth / 1e6:.1f}"]


HOPELESS = 2.5
"""A stage that is predicted to take so many times as long as the fastest is not timed."""

TILES = 3
"""Of a stage with several, those are timed that should be the fastest."""

ANY = 1 << 31
"""Blocks that may share the tiles of `fitted_tiles`: more than it takes by itself are timed, too."""

KINDS = tuple(name for name in random_calls.KINDS if name.startswith(f"{OPERATION}-"))


def drawn(name: str, chosen: argparse.Namespace) -> Iterator[random_calls.Problem]:
    """The random products of a type: each call draws the same."""
    draw = random_calls.drawer(name, chosen.seed)
    return (draw() for _ in range(chosen.count))


def candidates(product: random_calls.Problem) -> tuple[Any, Iterator[str]]:
    """The problem, and the stages that may be the fastest for it."""
    found = ops.explain(ops.gemm, *product.arrays, **product.options)
    able = [c for c in found.candidates if c.refused is None and cost.work_of(GEMM, c.stage, found.problem)]
    least = min((c.us for c in able if c.us is not None), default=0.0)
    return found.problem, (c.stage.name for c in able if c.us is None or c.us <= HOPELESS * least)


@cache
def alone(name: str, tile: str = "") -> Any:
    """`ops.gemm` by one stage, with a tile or with the one that it takes."""
    if not tile:
        return ops.load(OPERATION, stage=name)
    stage = replace(STAGES[name], sizes_for=lambda p, sizes: _varying(name, p, tile))
    return Function(GEMM, ops.gemm.build, replace(GEMM, stages=[stage], called=None), Operators())


def _varying(name: str, problem: Any, tile: str) -> dict[str, int]:
    """The sizes of a stage with a tile that are no parameters."""
    return {size: value for size, value in _sizes(name, problem, tile).items() if size not in STAGES[name].parameters}


def tiles(name: str, problem: Any) -> list[str]:
    """Of a stage with several tiles, the one that it takes, and those that should be the fastest by the cycles that it
    chooses one by."""
    p, sizes = problem, STAGES[name].sizes(problem)
    found: Iterator[tuple[Any, ...]]
    if name in ("fitted_tiles", "realigned"):
        found = tiling.wide_choices(p.m, p.n, p.k, most=ANY)
    elif name == "flexible_tiles":
        found = tiling.flexible_choices(p.m, p.n, p.k, p.out == p.dtype, most=ANY)
    elif name == "flexible_multicast":
        found = ((us, shape, _sharing(*by), clusters) for us, shape, *by, clusters in tiling.multicast_choices(p))
    elif name in ("small_tiles", "shifted_tiles"):
        moved = tiling.pieces(p) if name == "small_tiles" else tiling.shifted_pieces(p)
        found = tiling.small_choices(p.m, p.n, p.k, moved)
    elif name == "split_warp_tiles":
        found = tiling.split_choices(p.m, p.n, p.k)
    elif name in ("fitted_pipeline", "shifted_pipeline"):
        shapes = tiling.FITTED if name == "fitted_pipeline" else tiling.FITTED[1:]
        found = tiling.fitted_choices(p.m, p.n, p.k, shapes)
    else:
        return []
    parts = _sharing(sizes["SHARING"], sizes["SHARE_A"]) if "SHARING" in sizes else sizes["SPLIT"]
    taken = named((sizes["BLOCK_M"], sizes["BLOCK_N"]), parts, sizes.get("CLUSTERS", 1))
    fastest = (named(*choice) for _, *choice in sorted(found)[:TILES])
    return list(dict.fromkeys((taken, *fastest)))


def named(shape: tuple[int, ...], parts: int | str, clusters: int = 1) -> str:
    """A tile that `parts` blocks share, or several clusters of as many: `64x128/2x3`; of neighbours `160x256/2B`."""
    return f"{shape[0]}x{shape[1]}/{parts}" + (f"x{clusters}" if clusters > 1 else "")


def _sharing(sharing: int, share_a: int) -> str:
    """So many blocks with tiles that are neighbours, which share k-tiles of A, or of B."""
    return f"{sharing}{'BA'[share_a]}"


def variants(product: random_calls.Problem) -> tuple[Any, list[tuple[str, str]]]:
    """The problem, and the stages that may be the fastest for it, each with its tiles where it has several."""
    problem, names = candidates(product)
    return problem, [(name, tile) for name in names for tile in tiles(name, problem) or [""]]


def compile_part(name: str, chosen: argparse.Namespace, first: int, step: int) -> None:
    """Compile what a part of the random products needs."""
    import torch

    for product in islice(drawn(name, chosen), first, None, step):
        for variant in variants(product)[1]:
            with contextlib.suppress(ValueError, CompileError):  # it cannot be launched
                alone(*variant).prepare(*product.arrays, **product.options)
        torch.cuda.empty_cache()  # other processes share the device


def timed(product: random_calls.Problem, watch: random_problems.Stopwatch, tolerance: float) -> recorded.Record:
    """A row of the record: stages whose answer is wrong have no time."""
    problem, every = variants(product)
    right, answer = {}, product.theirs()
    for variant in every:
        call = partial(alone(*variant), *product.arrays, **product.options)
        with contextlib.suppress(ValueError, CompileError):
            if random_problems.apart(watch.torch, call(), answer) <= tolerance:
                right[variant] = call
    theirs, *times = (round(us, 2) for us in watch.medians((product.theirs, *right.values())))
    us: dict[str, Any] = {}
    for (name, tile), time in zip(right, times, strict=True):
        if tile:
            us.setdefault(name, {})[tile] = time
        else:
            us[name] = time
    return {"problem": str(problem), "torch_us": theirs, "us": us}


def measure(chosen: argparse.Namespace) -> None:
    """Fill the record."""
    import torch

    device, watch = open_device("cuda").info(), random_problems.Stopwatch(torch)
    made = recorded.begin(device)["environment"]["commit"][:8]
    card: recorded.Record = {"device": device.name, "what": WHAT, "commits": [made], "rows": []}
    with random_problems.workers() as by_parts:
        for name in chosen.only or KINDS:
            by_parts(partial(compile_part, name, chosen))
            tolerance = random_problems.TOLERANCE[random_calls.KINDS[name][1]]
            for number, product in enumerate(drawn(name, chosen), 1):
                card["rows"].append(timed(product, watch, tolerance))
                torch.cuda.empty_cache()
                if number % 50 == 0 or number == chosen.count:
                    recorded.save({"cards": [card]}, chosen.file)
            print(name, len(card["rows"]), flush=True)


def merge(before: recorded.Record, record: recorded.Record) -> recorded.Record:
    """The runs before and those that are new."""
    return {"cards": [*before["cards"], *record["cards"]]}


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RANDOM,
        measure,
        page,
        draw=lambda record, folder: cost.SHIPPED.write_text(constants_text()),
        merge=merge,
        seed={"type": int, "default": 0},
        count={"type": int, "default": 100},
        only={"nargs": "*", "default": [], "choices": list(KINDS)},
    )
