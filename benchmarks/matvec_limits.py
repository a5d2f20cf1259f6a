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
from workbench.operation import Problem, Stage
from workbench.timing import Enqueue, Stopwatch

RECORD = Path(__file__).parents[1] / "reports/matvec-limits.json"

PROBLEMS = [f"{size},dtype={t},out={t}" for t in ("bf16", "fp32") for size in ("16384x16384", "28672x8192")]

FLUSHES = ("written", "read")
"""What is in the L2 before a launch: lines that were written, or that were only read."""

ONCE = {"B stays in the L2": 0, "B leaves first": 1}
"""READ_ONCE by what the names of rows end with: whether B is the first to leave the L2."""

DECLARED = ""
"""The variant with the parameters that the stage declares. What it declares of B, it declares by the size of B."""

VARIANTS: dict[str, dict[str, int]] = {
    DECLARED: {},
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


def streamed() -> Stage[Any]:
    """The stage that is looked at."""
    return next(s for s in registry.operations()["matvec"].stages if s.name == "streamed")


def titled(variant: str, of_b: str) -> str:
    """What a row is called: the variant, and what happens to B."""
    return ", ".join(filter(None, (variant, of_b)))


def declared(problem: str) -> str:
    """The name of the row that is as the stage declares it for a problem."""
    parsed = registry.operations()["matvec"].problem.parse(problem)
    once = streamed().sizes(parsed)["READ_ONCE"]
    return titled(DECLARED, next(name for name, value in ONCE.items() if value == once))


def renamed(name: str) -> str:
    """The name of a row of a record, where those of 2026-11-23 have `as declared` for the variant of that name, also
    where B is treated otherwise than declared, and do not say where it stays in the L2."""
    stays, leaves = ONCE
    variant = name.removesuffix(f", {leaves}")
    if variant != "as declared" and variant not in VARIANTS:
        return name  # it says what happens to B, or is the library's
    return titled(DECLARED if variant == "as declared" else variant, stays if variant == name else leaves)


def contestants(problem: Problem, variants: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, Enqueue, Any]]:
    """Name, what enqueues a launch, and what has to live as long: our stage, each way of it, and cuBLAS."""
    device, stage = CudaDevice(), streamed()
    arrays = problem.arrays()
    storage = Case(problem, arrays, problem.inputs(), {}, {}).storage()
    for name, parameters in variants.items():
        chosen = stage.with_parameters({**stage.parameters, **parameters})
        for of_b, once in ONCE.items():
            compiled = compile_source(chosen.path, {**chosen.defines(problem), "READ_ONCE": once})
            bound = device.bind(compiled, chosen.plan(problem), arrays, storage)
            yield titled(name, of_b), bound.enqueue, bound
    yield from recorded.libraries("matvec", bound, problem)


def launch_all() -> None:
    """Launches everything once, on a flushed L2. This is what ncu watches."""
    watch = Stopwatch(CudaDevice().info().l2_bytes)
    for text in PROBLEMS:
        for _, enqueue, plan in contestants(registry.operations()["matvec"].problem.parse(text), {DECLARED: {}}):
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
                row["declared"] = name == declared(text)
                record["times"].append({**row, "cold_us": times[2:]})
        recorded.save(record, output)
        del found
    recorded.count(record, output, __file__, METRICS.values(), KERNELS, seconds=100.0)


def _short(problem: str) -> str:
    return problem.split(",out")[0].replace(",dtype=", " ")


def reading(
    record: dict[str, Any],
    medians: dict[tuple[str, str, str], float],
    moved: dict[str, int],
    as_declared: list[tuple[str, str]],
) -> str:
    """What the tables say, in words."""
    stays, leaves = ONCE

    def rates(of_b: str, flush: str) -> str:
        wanted = (titled(DECLARED, of_b), flush)
        found = [moved[p] / us / 1e3 for (p, name, f), us in medians.items() if (name, f) == wanted]
        return f"{min(found):,.0f} to {max(found):,.0f} GB/s"

    read, written, time = (metric.removesuffix(".sum") for metric in METRICS.values())
    counted = [row["metrics"] for row in record["counters"] if "streamed" in row["kernel"]]
    counts = {of_b: counted[once :: len(ONCE)] for of_b, once in ONCE.items()}

    def beside(of_b: str) -> str:
        found = [m[written] / 1e6 for m in counts[of_b]]
        return f"{min(found):.0f} to {max(found):.0f} MB"

    def for_which(name: str) -> str:
        return " and ".join(dict.fromkeys(_short(p) for p, n in as_declared if n == name)) or "none"

    total = [(m[read] + m[written]) / m[time] for m in counts[stays]]
    dirty, clean = FLUSHES
    return (
        "Each byte of B is read once, and memory is what limits it. Where B takes its place in the L2 like any other "
        f"array, the launches write {beside(stays)} that are not theirs: what the flush left in the L2 has to leave "
        f"before B finds room. With those, memory moves {min(total):,.0f} to {max(total):,.0f} GB/s of the "
        f"{record['device']['peak_bytes_per_s'] / 1e9:,.0f} that its clock and width make; of B alone "
        f"{rates(stays, dirty)} arrive, and {rates(stays, clean)} after a flush that only reads. Where B is the first "
        f"to leave, {beside(leaves)} are written, and {rates(leaves, dirty)} of B arrive: with the parameters of the "
        "stage a smaller B gains by that, a larger one loses, as the little that is written comes between its own "
        "reads.\n\n"
        f"As declared, B leaves first for {for_which(titled(DECLARED, leaves))}, and stays in the L2 for "
        f"{for_which(titled(DECLARED, stays))}; each was timed both ways.\n"
    )


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = [{**row, "name": renamed(row["name"])} for row in record["times"]]
    medians = {(r["problem"], r["name"], r["flush"]): derived.median(r["cold_us"]) for r in rows}
    as_declared = [(r["problem"], r["name"]) for r in rows if r.get("declared", r["name"] == declared(r["problem"]))]
    moved = {row["problem"]: row["bytes"] for row in rows}
    library = rows[-1]["name"]
    times = []
    for problem, name in dict.fromkeys((p, n) for p, n, _ in medians):
        cells = [_short(problem), f"{name} (as declared)" if (problem, name) in as_declared else name]
        for flush in FLUSHES:
            us = medians[problem, name, flush]
            theirs = medians[problem, library, flush]
            cells += [f"{us:,.1f}", f"{moved[problem] / us / 1e3:,.0f}", f"{theirs / us:.3f}"]
        times.append(cells)
    counted, ours = [], 0
    for row in record["counters"]:
        kernel, *figures = recorded.counted(row, METRICS, UNITS)
        if "streamed" in row["kernel"]:  # ours come first with each problem
            kernel, ours = titled(kernel, tuple(ONCE)[ours % len(ONCE)]), ours + 1
        counted.append([_short(PROBLEMS[(ours - 1) // len(ONCE)]), kernel, *figures])
    shown = ("us", "GB/s", f"{library} / this")
    headers = ["problem", "", *(f"{figure}, L2 {flush}" for flush in FLUSHES for figure in shown)]
    return "\n".join(
        (
            "# What limits matrix-vector products\n",
            "Written by `benchmarks/matvec_limits.py` from [the JSON beside it](matvec-limits.json): `matvec:streamed` "
            f"with other parameters and policies, and {library}, on copies of the same arrays, in turns.\n",
            recorded.made_on(record),
            reading(record, medians, moved, as_declared),
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
