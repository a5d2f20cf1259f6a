"""What limits matrix-vector products, beside cuBLAS: makes `reports/matvec-limits.md`.

    python benchmarks/matvec_limits.py measure OUTPUT.json   # on a machine with a GPU and ncu
    python benchmarks/matvec_limits.py write [OUTPUT.json]   # the page, of that file and nothing else

A flush that writes leaves the L2 full of what has to go to memory before anything else finds room. So each product is
timed after such a flush, which is how everything is timed here, and after one that only reads.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from tabulate import tabulate

from workbench import derived, registry
from workbench.compiler import compile_source
from workbench.devices.cuda import CudaDevice
from workbench.harness import Case
from workbench.operation import Problem
from workbench.timing import Stopwatch

RECORD = Path(__file__).parents[1] / "reports/matvec-limits.json"

PROBLEMS = [f"{size},dtype={t},out={t}" for t in ("bf16", "fp32") for size in ("16384x16384", "28672x8192")]

FLUSHES = ("written", "read")
"""What is in the L2 before a launch: lines that were written, or that were only read."""

ONCE = (False, True)
"""Whether B is the first to leave the L2."""

VARIANTS: dict[str, dict[str, int]] = {
    "as declared": {},
    "4 loads in flight": {"UNROLL": 4},
    "1 load in flight": {"UNROLL": 1},
    "512 threads": {"THREADS": 512},
    "a warp a row": {"MOST": 1},
}

SAMPLES = 24
KERNELS = "matvec|gemv|gemm|nvjet|dot|reduce_1Block|splitK"
METRICS = {
    "read, MB": "dram__bytes_read.sum",
    "written, MB": "dram__bytes_write.sum",
    "time, us": "gpu__time_duration.sum",
}
UNITS = {"read, MB": 1e-6, "written, MB": 1e-6, "time, us": 1e-3}

Enqueue = Callable[[], object]


class AfterReading(Stopwatch):
    """Flushes by reading: what is left in the L2 need not be written anywhere."""

    def cold(self, work: Enqueue) -> float:
        """See Stopwatch."""
        self._flush.view("uint64").max()
        return self._time(work, 1)


def contestants(problem: Problem, variants: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, Enqueue, Any]]:
    """Name, what enqueues a launch, and what has to live as long: our stage, each way of it, and cuBLAS."""
    device, stage = CudaDevice(), next(s for s in registry.operations()["matvec"].stages if s.name == "streamed")
    arrays = problem.arrays()
    storage = Case(problem, arrays, problem.inputs(), {}, {}).storage()
    for name, parameters in variants.items():
        chosen = stage.with_parameters({**stage.parameters, **parameters})
        compiled, plan = compile_source(chosen.path, chosen.defines(problem)), chosen.plan(problem)
        (launch,) = plan.launches
        for once in ONCE:
            told = dataclasses.replace(launch, args=(*launch.args[:-1], np.int32(once)))
            bound = device.bind(compiled, dataclasses.replace(plan, launches=(told,)), arrays, storage)
            yield f"{name}, B leaves first" if once else name, bound.enqueue, bound
    yield from recorded.libraries("matvec", bound, problem)


def launch_all() -> None:
    """Launches everything once, on a flushed L2. This is what ncu watches."""
    watch = Stopwatch(CudaDevice().info().l2_bytes)
    for text in PROBLEMS:
        for _, enqueue, plan in contestants(registry.operations()["matvec"].problem.parse(text), {"as declared": {}}):
            watch.cold(enqueue)
            del plan


def measure(output: Path) -> None:
    """Makes the record; what has been measured is saved at once."""
    info = CudaDevice().info()
    record = recorded.begin(info, "times", "counters")
    watches = dict(zip(FLUSHES, (Stopwatch(info.l2_bytes), AfterReading(info.l2_bytes)), strict=True))
    for text in PROBLEMS:
        problem = registry.operations()["matvec"].problem.parse(text)
        found = list(contestants(problem, VARIANTS))
        for flush, watch in watches.items():
            samples: dict[str, list[float]] = {name: [] for name, *_ in found}
            for _ in range(SAMPLES // 2 + 1):
                for name, enqueue, _ in (*found, *reversed(found)):
                    samples[name].append(watch.cold(enqueue))
            for name, times in samples.items():  # the first round warms up
                row = {"problem": text, "bytes": problem.cost.bytes, "flush": flush, "name": name}
                record["times"].append({**row, "cold_us": times[2:]})
        recorded.save(record, output)
        del found
    recorded.count(record, output, __file__, METRICS.values(), KERNELS, seconds=100.0)


def _short(problem: str) -> str:
    return problem.split(",out")[0].replace(",dtype=", " ")


def reading(record: dict[str, Any], medians: dict[tuple[str, str, str], float], moved: dict[str, int]) -> str:
    """What the tables say, in words."""
    rates: dict[str, list[float]] = {flush: [] for flush in FLUSHES}
    for (problem, name, flush), us in medians.items():
        if name == "as declared":
            rates[flush].append(moved[problem] / us / 1e3)
    metrics = [row["metrics"] for row in record["counters"] if "streamed" in row["kernel"]][:: len(ONCE)]
    read, written, time = (metric.removesuffix(".sum") for metric in METRICS.values())
    beside = [m[written] / 1e6 for m in metrics]
    total = [(m[read] + m[written]) / m[time] for m in metrics]
    smallest = min(moved, key=lambda problem: moved[problem])
    benched = (measurement for result, _ in recorded.bench("matvec") for measurement in result.measurements)
    launch = derived.median([measurement.conditions.launch_overhead_us for measurement in benched])
    best = (moved[smallest] / 1e6 + min(beside)) / max(total) * 1e3 + launch
    return (
        f"Each byte of B is read once, and memory is what limits it. The launches write {min(beside):.0f} to "
        f"{max(beside):.0f} MB that are not theirs: what the flush left in the L2, which has to leave before B finds "
        f"room. With those, memory moves {min(total):,.0f} to {max(total):,.0f} GB/s of the "
        f"{record['device']['peak_bytes_per_s'] / 1e9:,.0f} that its clock and width make; of B alone "
        f"{min(rates['written']):,.0f} to {max(rates['written']):,.0f} GB/s arrive, and {min(rates['read']):,.0f} to "
        f"{max(rates['read']):,.0f} after a flush that only reads. The smaller the product, the more what is not B "
        f"weighs, and the {launch:.1f} us that a launch of nothing takes in the [bench](nvidia-h200/matvec.md): the "
        f"smallest here, {_short(smallest)}, would take {best:.0f} us at the highest of these rates, and "
        f"{moved[smallest] / best / 1e3:,.0f} GB/s of B would arrive.\n"
    )


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    medians = {(r["problem"], r["name"], r["flush"]): derived.median(r["cold_us"]) for r in record["times"]}
    moved = {row["problem"]: row["bytes"] for row in record["times"]}
    library = record["times"][-1]["name"]
    times = []
    for problem, name in dict.fromkeys((p, n) for p, n, _ in medians):
        cells = [_short(problem), name]
        for flush in FLUSHES:
            us = medians[problem, name, flush]
            theirs = medians[problem, library, flush]
            cells += [f"{us:,.1f}", f"{moved[problem] / us / 1e3:,.0f}", f"{theirs / us:.3f}"]
        times.append(cells)
    counted, ours = [], 0
    for row in record["counters"]:
        ours += "streamed" in row["kernel"]
        problem = PROBLEMS[(ours - 1) // len(ONCE)]  # ours come first with each problem
        values = (row["metrics"].get(metric.removesuffix(".sum")) for metric in METRICS.values())
        cells = ["-" if v is None else derived.three_digits(v * u) for v, u in zip(values, UNITS.values(), strict=True)]
        counted.append([_short(problem), f"`{row['kernel'][:40]}`", *cells])
    figures = ("us", "GB/s", f"{library} / this")
    headers = ["problem", "", *(f"{figure}, L2 {flush}" for flush in FLUSHES for figure in figures)]
    return "\n".join(
        (
            "# What limits matrix-vector products\n",
            "Written by `benchmarks/matvec_limits.py` from [the JSON beside it](matvec-limits.json): `matvec:streamed` "
            f"with other parameters and policies, and {library}, on copies of the same arrays, in turns.\n",
            recorded.made_on(record),
            reading(record, medians, moved),
            "## Cold medians\n",
            "Before each launch twice as much as the L2 holds is written, as in every bench here, or only read. What "
            "was written has to go to memory while B comes from there: the difference is what that costs.\n",
            tabulate(times, headers, tablefmt="pipe", disable_numparse=True) + "\n",
            "## What goes to and from memory in one launch after the flush that writes\n",
            tabulate(counted, ["problem", "kernel", *METRICS], tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["launch"]:
        launch_all()
    else:
        recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
