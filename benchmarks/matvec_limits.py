"""What limits matrix-vector products, beside cuBLAS: makes `reports/matvec-limits.md`.

    python benchmarks/matvec_limits.py measure OUTPUT.json   # on a machine with a GPU and ncu
    python benchmarks/matvec_limits.py write [OUTPUT.json]   # the page, of that file and nothing else

A flush that writes leaves the L2 full of what has to go to memory before anything else finds room. So each product is
timed after such a flush, which is how everything is timed here, and after one that only reads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

from workbench import derived, registry
from workbench.compiler import compile_source
from workbench.devices.cuda import CudaDevice
from workbench.harness import Case
from workbench.operation import Problem
from workbench.timing import Enqueue, Stopwatch

RECORD = Path(__file__).parents[1] / "reports/matvec-limits.json"

PROBLEMS = [f"{size},dtype={t},out={t}" for t in ("bf16", "fp32") for size in ("16384x16384", "28672x8192")]

FLUSHES = ("written", "read")
"""What is in the L2 before a launch: lines that were written, or that were only read."""

ONCE = {"": 0, ", B leaves first": 1}
"""Whether B is the first to leave the L2, and what the names of such rows end with."""

VARIANTS: dict[str, dict[str, int]] = {
    "as declared": {},
    "2 loads in flight, twice as many threads": {"UNROLL": 2, "RESIDENT": 2048},
    "256 threads": {"THREADS": 256},
    "8 warps a row": {"MOST": 8},
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
        for suffix, once in ONCE.items():
            compiled = compile_source(chosen.path, {**chosen.defines(problem), "READ_ONCE": once})
            bound = device.bind(compiled, chosen.plan(problem), arrays, storage)
            yield name + suffix, bound.enqueue, bound
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
    stays, leaves = ONCE

    def rates(suffix: str, flush: str) -> str:
        wanted = (f"as declared{suffix}", flush)
        found = [moved[p] / us / 1e3 for (p, name, f), us in medians.items() if (name, f) == wanted]
        return f"{min(found):,.0f} to {max(found):,.0f} GB/s"

    read, written, time = (metric.removesuffix(".sum") for metric in METRICS.values())
    counted = [row["metrics"] for row in record["counters"] if "streamed" in row["kernel"]]
    counts = {suffix: counted[once :: len(ONCE)] for suffix, once in ONCE.items()}

    def beside(suffix: str) -> str:
        found = [m[written] / 1e6 for m in counts[suffix]]
        return f"{min(found):.0f} to {max(found):.0f} MB"

    total = [(m[read] + m[written]) / m[time] for m in counts[stays]]
    dirty, clean = FLUSHES
    return (
        "Each byte of B is read once, and memory is what limits it. Where B takes its place in the L2 like any other "
        f"array, the launches write {beside(stays)} that are not theirs: what the flush left in the L2 has to leave "
        f"before B finds room. With those, memory moves {min(total):,.0f} to {max(total):,.0f} GB/s of the "
        f"{record['device']['peak_bytes_per_s'] / 1e9:,.0f} that its clock and width make; of B alone "
        f"{rates(stays, dirty)} arrive, and {rates(stays, clean)} after a flush that only reads. Where B is the first "
        f"to leave, {beside(leaves)} are written, and {rates(leaves, dirty)} of B arrive: a smaller B gains by that, a "
        f"larger one loses, as the little that is written comes between its own reads.\n"
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
        counted.append([_short(problem), *recorded.counted(row, METRICS, UNITS)])
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
