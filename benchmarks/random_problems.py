"""`workbench.ops` beside the libraries of PyTorch on problems that nobody chose: makes `reports/random-problems.md`.

    python benchmarks/random_problems.py measure OUTPUT.json [--seed N] [--count N] [--only gemm-bf16 ...]   # on a GPU
    python benchmarks/random_problems.py write [OUTPUT.json]                  # the page, of that file and those before

The record keeps, of every device, the last measurement of every kind of problem.

Extents are drawn evenly by their logarithm, one third of them as they fall, the others as multiples of 8; one third of
matrices have gaps between their rows. Each call is timed with the device's events, the L2 flushed before, in turns with
the library's call for the same arrays, whose answer it has to match.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from random_calls import KINDS, Call, drawer
from tabulate import tabulate

from workbench.devices import open_device

RECORD = Path(__file__).parents[1] / "reports/random-problems.json.gz"
SAMPLES, FLUSHED_BYTES, WAIT = 7, 1 << 28, 1_500_000
"""Of a call, cold; what is written before each of them; cycles that the device waits after that, about 0.8 ms: for
longer than a library written in Python takes to enqueue its kernels."""

TOLERANCE = {"bfloat16": 0.02, "float16": 0.005, "float32": 1e-4}
"""Largest distance of two answers of a type, of the norm of the library's."""


class Stopwatch:
    """Microseconds of a call on the device, cold. Before each call it writes `flushed_bytes` and waits `wait` cycles:
    together for longer than the host takes to enqueue the call."""

    def __init__(self, torch: Any, flushed_bytes: int = FLUSHED_BYTES, wait: int = 0) -> None:
        self.torch, self.wait = torch, wait
        self.flushed = torch.empty(flushed_bytes, dtype=torch.uint8, device="cuda")

    def sample(self, call: Call) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flushed.fill_(0)
        if self.wait:
            self.torch.cuda._sleep(self.wait)
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(1000 * begin.elapsed_time(end))

    def medians(self, calls: Sequence[Call]) -> list[float]:
        """Of several calls, in turns."""
        samples = [[self.sample(call) for call in calls] for _ in range(SAMPLES)]
        return [statistics.median(times) for times in zip(*samples, strict=True)]


def apart(torch: Any, ours: Any, theirs: Any) -> float:
    """The distance of two answers, of the norm of theirs."""
    ours, theirs = ours.double(), theirs.double()
    size = torch.linalg.vector_norm(theirs).item() or 1.0
    return float(torch.linalg.vector_norm(ours - theirs).item() / size)


def farthest(torch: Any, ours: Any, theirs: Any) -> float:
    """The same of two calls, whose answers may be several arrays: those that both have, in the same order."""
    pairs = zip(*(found if isinstance(found, tuple | list) else (found,) for found in (ours, theirs)), strict=False)
    return float(np.max([apart(torch, *pair) for pair in pairs]))  # NaN, where there is one


@contextlib.contextmanager
def workers() -> Iterator[Callable[[Callable[[int, int], None]], None]]:
    """What has several processes do a part each, `first` of how many. One alone would take most of the time of a
    measurement to compile."""
    count = min(16, os.cpu_count() or 1)
    with concurrent.futures.ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:

        def by_parts(part: Callable[[int, int], None]) -> None:
            for done in [pool.submit(part, first, count) for first in range(count)]:
                done.result()

        yield by_parts


def compile_part(name: str, options: argparse.Namespace, first: int, step: int) -> None:
    """Compile what a part of the problems of a kind needs."""
    import torch

    draw = drawer(name, options.seed)
    for number in range(options.count):
        with contextlib.suppress(ValueError, ImportError, torch.OutOfMemoryError):
            problem = draw()
            if number % step == first:
                problem.ours()
        torch.cuda.empty_cache()  # other processes share the device


def measure(options: argparse.Namespace) -> None:
    """Fill the record."""
    import torch

    torch.backends.cudnn.benchmark = True
    run = recorded.begin(open_device("cuda").info(), "rows")
    run |= {"seed": options.seed, "torch": torch.__version__}
    watch = Stopwatch(torch, wait=WAIT)
    with workers() as by_parts:
        for name in options.only or KINDS:
            by_parts(partial(compile_part, name, options))
            run["rows"].extend(rows_of(name, options, watch))
            recorded.save({"runs": [run]}, options.file)
            print(name, summary(name, run["rows"]), flush=True)


def rows_of(name: str, options: argparse.Namespace, watch: Stopwatch) -> Iterator[dict[str, Any]]:
    """The rows of a kind: an answer that is not the library's has no time."""
    draw = drawer(name, options.seed)
    for _ in range(options.count):
        row: dict[str, Any] = {"kind": name}
        try:
            problem = draw()
            row["problem"] = problem.label
            row["apart"] = farthest(watch.torch, problem.ours(), problem.theirs())
            if row["apart"] <= TOLERANCE[KINDS[name][1]]:
                row["us"], row["theirs"] = watch.medians((problem.ours, problem.theirs))
                row |= problem.chosen()
        except (ValueError, ImportError, watch.torch.OutOfMemoryError) as error:
            row["refused"] = str(error).splitlines()[0]
        yield row
        watch.torch.cuda.empty_cache()


def of_kind(name: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (row for row in rows if row["kind"] == name)


def summary(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """A line of the table: how many, and theirs / ours as geometric mean, 5th percentile and worst."""
    every = list(of_kind(name, rows))
    ratios = sorted(row["theirs"] / row["us"] for row in every if "us" in row)
    wrong = sum("apart" in row and "us" not in row for row in every)
    if not ratios:
        return [name, KINDS[name][2], "0", str(wrong), "-", "-", "-"]
    figures = statistics.geometric_mean(ratios), float(np.percentile(ratios, 5)), ratios[0]
    return [name, KINDS[name][2], str(len(ratios)), str(wrong), *(f"{figure:.2f}" for figure in figures)]


def merge(before: recorded.Record, record: recorded.Record) -> recorded.Record:
    """The runs of before without what has been measured again on the same device, behind those of the record."""
    runs = list(record["runs"])
    for run in before["runs"]:
        again = {
            r["kind"] for new in record["runs"] if new["device"]["name"] == run["device"]["name"] for r in new["rows"]
        }
        if rows := [row for row in run["rows"] if row["kind"] not in again]:
            runs.append(run | {"rows": rows})
    return {"runs": runs}


def of_device(runs: list[dict[str, Any]]) -> str:
    """The tables of the runs on one device."""
    kinds = [(name, run) for name in KINDS for run in runs if any(of_kind(name, run["rows"]))]
    table, worst = [], []
    for name, run in kinds:
        made = run["environment"]
        table.append([*summary(name, run["rows"]), str(run["seed"]), f"`{made['commit'][:12]}`, {made['date'][:10]}"])
        timed = [row for row in of_kind(name, run["rows"]) if "us" in row]
        for row in sorted(timed, key=lambda row: row["theirs"] / row["us"])[:3]:
            us, theirs = row["us"], row["theirs"]
            stage = f"`{row['stage']}`" if "stage" in row else "-"
            worst.append([name, row["problem"], stage, f"{us:.1f}", f"{theirs:.1f}", f"{theirs / us:.2f}"])
    device = runs[0]["device"]
    headers = ["problems", "beside", "timed", "wrong", "geometric mean", "5th percentile", "worst", "seed", "commit"]
    slowest = ["", "problem", "stage", "us", "theirs", "ratio"]
    return "\n".join(
        (
            f"## {device['name']}\n",
            f"Driver {device['driver']}, PyTorch {', '.join(sorted({run['torch'] for run in runs}))}.\n",
            tabulate(table, headers, tablefmt="pipe", disable_numparse=True) + "\n",
            "The slowest three of each:\n",
            tabulate(worst, slowest, tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


def page(record: recorded.Record) -> str:
    """The Markdown page."""
    devices = dict.fromkeys(run["device"]["name"] for run in record["runs"])
    return "\n".join(
        (
            "# Random problems beside the libraries\n",
            "Written by `benchmarks/random_problems.py` from [the JSON beside it](random-problems.json.gz). Extents "
            "are drawn evenly by their logarithm, from the seed in the table; one third of them is odd, one third of "
            "matrices has gaps between rows. A ratio is the library's time divided by ours: above 1 ours is faster. A "
            f"time is the median of {SAMPLES} calls, alternating with the library's, between events of the device, "
            "with the L2 flushed before each.\n",
            *(of_device([run for run in record["runs"] if run["device"]["name"] == name]) for name in devices),
        )
    )


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        merge=merge,
        seed={"type": int, "default": 0},
        count={"type": int, "default": 100},
        only={"nargs": "*", "default": [], "choices": list(KINDS)},
    )
