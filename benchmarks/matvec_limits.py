"""What limits matrix-vector products, beside cuBLAS: makes `reports/matvec-limits.md`.

    python benchmarks/matvec_limits.py measure OUTPUT.json   # on a machine with a GPU and ncu
    python benchmarks/matvec_limits.py write [OUTPUT.json]   # the page, of that file and nothing else

A flush that writes leaves the L2 full of what has to go to memory before anything else finds room. So each product is
timed after such a flush, which is how everything is timed here, and after one that only reads. When each row was done
is found by a kernel that stores the time in place of the sum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import changed
import numpy as np
import recorded
from changed import Change
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices.cuda import CudaDevice, CudaPlan
from workbench.measure.timing import Enqueue, Stopwatch
from workbench.model.operation import Problem, Stage
from workbench.report import derived
from workbench.toolchain.compiler import Compiled

RECORD = Path(__file__).parents[1] / "reports/matvec-limits.json"

PROBLEMS = [f"{size},dtype={t},out={t}" for t in ("bf16", "fp32") for size in ("16384x16384", "28672x8192")]

FLUSHES = ("written", "read")
"""What is in the L2 before a launch: lines that were written, or that were only read."""

ONCE = {"B stays in the L2": 0, "B leaves first": 1}
"""READ_ONCE by what the names of rows end with: whether B is the first to leave the L2."""

DECLARED = ""
"""The variant with the parameters that the stage declares. What it declares of B, it declares by the size of B."""


@dataclass(frozen=True)
class Variant:
    """The stage with other parameters or other sources, timed with B treated in these ways."""

    parameters: Mapping[str, int] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    of_b: tuple[str, ...] = tuple(ONCE)


STAYS, LEAVES = ONCE

KERNEL, LOADS = "matvec/5_streamed.cu", "include/tile/vector.cuh"

_PLACE = "  const int n = blockIdx.x * ROWS + warp / SHARE;\n"


def _with(file: str, old: str, new: str) -> Variant:
    """Another source, where B leaves first."""
    return Variant(changes=(Change(file, old, new),), of_b=(LEAVES,))


VARIANTS: dict[str, Variant] = {
    DECLARED: Variant(),
    "2 loads in flight, twice as many threads": Variant({"UNROLL": 2, "RESIDENT": 2048}),
    "256 threads": Variant({"THREADS": 256}),
    "8 warps a row": Variant({"MOST": 8}),
    "a warp a row": Variant({"MOST": 1}),
    "by a policy, L2::evict_first": _with(
        LOADS,
        '  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"\n'
        '               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)\n'
        '               : "l"(from));\n',
        '  unsigned long long first;\n  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));\n'
        '  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"\n'
        '               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)\n'
        '               : "l"(from), "l"(first));\n',
    ),
    "the L2 fetches 256 bytes": _with(LOADS, "L1::no_allocate.v4.b32", "L1::no_allocate.L2::256B.v4.b32"),
    "132 stretches of B at once": _with(
        KERNEL,
        _PLACE,
        "  const int each = gridDim.x / 132, whole = 132 * each;\n"
        "  const int block = blockIdx.x < whole ? blockIdx.x % 132 * each + blockIdx.x / 132 : blockIdx.x;\n"
        + _PLACE.replace("blockIdx.x", "block"),
    ),
    "the L2 asked for rows 264 blocks ahead": _with(
        KERNEL,
        _PLACE,
        _PLACE + "  const long long ahead = (blockIdx.x + 264ll) * ROWS;\n"
        "  if (threadIdx.x == 0 && ahead + ROWS <= N && ldb == K && K * sizeof(IN) % VECTOR_BYTES == 0)\n"
        '    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(B + ahead * ldb),\n'
        '                 "r"(static_cast<int>(ROWS * K * sizeof(IN))));\n',
    ),
}

_STORE = "  if (lane == 0 && n < N) c[n] = "

CLOCK = Variant(
    changes=(
        Change(
            KERNEL,
            _STORE + "from_float<OUT>(sum);\n",
            '  unsigned long long now;\n  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");\n'
            + _STORE
            + "sum < 1e30f ? static_cast<float>(now & 0xffffff) : 0.f;\n",
        ),
    )
)
"""Stores the nanosecond in which a sum was done, modulo 2**24, which fp32 holds, in place of the sum."""

CLOCKED, EACH_US, ROUNDS = "16384x16384,dtype=bf16,out=fp32", 10, 5
"""What it is launched for; microseconds that are counted together; launches."""

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


def streamed(parameters: Mapping[str, int] | None = None) -> Stage[Any]:
    """The stage that is looked at, with other parameters where some are given."""
    (stage,) = registry.select(["matvec:streamed"])
    return stage.with_parameters({**stage.parameters, **(parameters or {})})


def parsed(problem: str) -> Problem:
    """The product of this name."""
    found: Problem = registry.operations()["matvec"].problem.parse(problem)
    return found


def titled(variant: str, of_b: str) -> str:
    """What a row is called: the variant, and what happens to B."""
    return ", ".join(filter(None, (variant, of_b)))


def declared(problem: str) -> str:
    """The name of the row that is as the stage declares it for a problem."""
    once = streamed().sizes(parsed(problem))["READ_ONCE"]
    return titled(DECLARED, next(name for name, value in ONCE.items() if value == once))


def compiled(variant: Variant, of_b: str, problem: Problem) -> Compiled:
    """The code of a variant for a problem, with B treated as named."""
    stage = streamed(variant.parameters)
    return changed.compiled(variant.changes, stage, {**stage.defines(problem), "READ_ONCE": ONCE[of_b]})


def bound(problem: Problem, variants: Mapping[str, Variant]) -> Iterator[tuple[str, CudaPlan]]:
    """Each variant in each of its ways, bound to the same arrays; their sources are compiled side by side."""
    device, arrays = CudaDevice(), problem.arrays()
    storage = recorded.storage(problem, problem.inputs())
    todo = [(name, variant, of_b) for name, variant in variants.items() for of_b in variant.of_b]
    with ThreadPoolExecutor() as pool:
        codes = list(pool.map(lambda each: compiled(each[1], each[2], problem), todo))
    first = None
    for (name, variant, of_b), code in zip(todo, codes, strict=True):
        found = device.bind(code, streamed(variant.parameters).plan(problem), arrays, storage, beside=first)
        first = first or found
        yield titled(name, of_b), found


def contestants(problem: Problem, variants: Mapping[str, Variant]) -> Iterator[tuple[str, Enqueue, Any]]:
    """Name, what enqueues a launch, and what has to live as long: our stage, each way of it, and cuBLAS."""
    for name, plan in bound(problem, variants):
        yield name, plan.enqueue, plan
    yield from recorded.libraries("matvec", plan, problem)


def launch_all() -> None:
    """Launches everything once, on a flushed L2. This is what ncu watches."""
    watch = Stopwatch(CudaDevice().info().l2_bytes)
    for text in PROBLEMS:
        for _, enqueue, plan in contestants(parsed(text), {DECLARED: VARIANTS[DECLARED]}):
            watch.cold(enqueue)
            del plan


def done(clocks: np.ndarray[Any, Any]) -> list[int]:
    """How many rows were done in each whole microsecond from that on in which the first was; of nanoseconds, modulo
    2**24, that are less than half of that apart."""
    half = 1 << 23
    since = (clocks.astype(np.int64) - int(clocks[0]) + half) % (2 * half) - half
    return [int(n) for n in np.bincount((since - since.min()) // 1000)]


def progress(watches: Mapping[str, Stopwatch]) -> Iterator[dict[str, Any]]:
    """When rows were done, by what happens to B and what is in the L2 before."""
    problem = parsed(CLOCKED)
    b = problem.arrays()["B"]
    for name, plan in bound(problem, {DECLARED: CLOCK}):
        for flush, watch in watches.items():
            rows = []
            for _ in range(ROUNDS):
                watch.cold(plan.enqueue)
                rows.append(done(plan.read("c")))
            row = {"problem": CLOCKED, "row_bytes": b.nbytes // b.rows, "name": name, "flush": flush}
            yield {**row, "rows_each_us": rows}


def measure(output: Path) -> None:
    """Makes the record; what has been measured is saved at once."""
    info = CudaDevice().info()
    record = recorded.begin(info, "times", "progress", "counters")
    watches = dict(zip(FLUSHES, (Stopwatch(info.l2_bytes), AfterReading(info.l2_bytes)), strict=True))
    for text in PROBLEMS:
        problem, as_declared = parsed(text), declared(text)
        found = list(contestants(problem, VARIANTS))
        for flush, watch in watches.items():
            samples: dict[str, list[float]] = {name: [] for name, *_ in found}
            for _ in range(SAMPLES // 2 + 1):
                for name, enqueue, _ in (*found, *reversed(found)):
                    samples[name].append(watch.cold(enqueue))
            for name, times in samples.items():  # the first round warms up
                row = {"problem": text, "bytes": problem.cost.bytes, "flush": flush, "name": name}
                record["times"].append({**row, "declared": name == as_declared, "cold_us": times[2:]})
        recorded.save(record, output)
        del found
    record["progress"] = list(progress(watches))
    recorded.count(record, output, __file__, METRICS.values(), KERNELS, seconds=100.0)


def _short(problem: str) -> str:
    return problem.split(",out")[0].replace(",dtype=", " ")


def arriving(row: Mapping[str, Any]) -> list[float]:
    """GB/s at which B arrived, in each stretch of EACH_US that all launches were busy for to its end, by the median
    launch."""
    rates = []
    for start in range(0, min(map(len, row["rows_each_us"])) - EACH_US, EACH_US):
        found = [sum(launch[start : start + EACH_US]) * row["row_bytes"] for launch in row["rows_each_us"]]
        rates.append(derived.median(found) / EACH_US / 1e3)
    return rates


def over_time(record: dict[str, Any]) -> list[str]:
    """When B arrives, as a section of the page."""
    rates = {(row["name"], row["flush"]): arriving(row) for row in record["progress"]}
    dirty, clean = FLUSHES

    def span(of_b: str, flush: str) -> str:
        return f"{min(rates[of_b, flush]):,.0f} to {max(rates[of_b, flush]):,.0f} GB/s"

    latest = rates[STAYS, dirty][-1]
    share = latest * 1e9 / record["device"]["peak_bytes_per_s"]
    most = max(map(len, rates.values()))
    table = [
        [name, f"L2 {flush}", *(f"{rate:,.0f}" for rate in found), *[""] * (most - len(found))]
        for (name, flush), found in rates.items()
    ]
    headers = ["", "before", *(f"{i * EACH_US} to {(i + 1) * EACH_US} us" for i in range(most))]
    slow = sum(rate < 0.97 * latest for rate in rates[STAYS, dirty]) * EACH_US
    return [
        "## When B arrives\n",
        f"GB/s of B in a launch of {_short(CLOCKED)}, from when its first row is done; median of {ROUNDS} launches. "
        f"Where B stays in the L2, what was written leaves in the first {slow} us; then B arrives at {latest:,.0f} "
        f"GB/s, {share:.0%} of what the memory's clock and width make. Where B leaves first, little is written, but "
        f"all the time: {span(LEAVES, dirty)} to the end. After a flush that only reads it is {span(LEAVES, clean)}.\n",
        tabulate(table, headers, tablefmt="pipe", disable_numparse=True) + "\n",
    ]


def reading(
    record: dict[str, Any],
    medians: dict[tuple[str, str, str], float],
    moved: dict[str, int],
    as_declared: list[tuple[str, str]],
) -> str:
    """What the tables say, in words."""

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

    def gains(wanted: bool) -> str:
        found = (p for p in moved if (medians[p, LEAVES, dirty] < medians[p, STAYS, dirty]) == wanted)
        return " and ".join(map(_short, found)) or "none"

    dirty, clean = FLUSHES
    total = [(m[read] + m[written]) / m[time] for m in counts[STAYS]]
    return (
        "Each byte of B is read once, and memory is what limits it. Where B takes its place in the L2 like any other "
        f"array, the launches write {beside(STAYS)} that are not theirs: what the flush left in the L2 has to leave "
        f"before B finds room. With those, memory moves {min(total):,.0f} to {max(total):,.0f} GB/s of the "
        f"{record['device']['peak_bytes_per_s'] / 1e9:,.0f} that its clock and width make; of B alone "
        f"{rates(STAYS, dirty)} arrive, and {rates(STAYS, clean)} after a flush that only reads. Where B is the first "
        f"to leave, {beside(LEAVES)} are written, and {rates(LEAVES, dirty)} of B arrive: the little that is written "
        f"comes between its own reads. With the parameters of the stage that makes {gains(True)} faster, "
        f"{gains(False)} slower.\n\n"
        f"As declared, B leaves first for {for_which(titled(DECLARED, LEAVES))}, and stays in the L2 for "
        f"{for_which(titled(DECLARED, STAYS))}; each was timed both ways.\n"
    )


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = record["times"]
    medians = {(r["problem"], r["name"], r["flush"]): derived.median(r["cold_us"]) for r in rows}
    as_declared = [(r["problem"], r["name"]) for r in rows if r["declared"]]
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
            "Written by `benchmarks/matvec_limits.py`, which has the changes to sources, from [the JSON beside it]"
            f"(matvec-limits.json): `matvec:streamed` with other parameters, policies and sources, and {library}, on "
            "the same arrays, in turns.\n",
            recorded.made_on(record),
            reading(record, medians, moved, as_declared),
            "## Cold medians\n",
            "Before each launch twice as much as the L2 holds is written, as in every bench here, or only read. What "
            "was written has to go to memory while B comes from there: the difference is what that costs.\n",
            tabulate(times, headers, tablefmt="pipe", disable_numparse=True) + "\n",
            *over_time(record),
            "## What goes to and from memory in one launch after the flush that writes\n",
            tabulate(counted, ["problem", "kernel", *METRICS], tablefmt="pipe", disable_numparse=True) + "\n",
        )
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["launch"]:
        launch_all()
    else:
        recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
