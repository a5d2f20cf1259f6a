"""What limits large products of bf16: times on other data, and counters, beside cuBLAS: `reports/gemm-limits.md`.

    python benchmarks/gemm_limits.py measure OUTPUT.json   # on a machine with a GPU and ncu
    python benchmarks/gemm_limits.py write [OUTPUT.json]   # the page, of that file and nothing else

The same launches on random numbers, on small whole ones and on zeros differ in nothing but the power that they draw.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from pandas import DataFrame
from tabulate import tabulate

from workbench import ops
from workbench.catalogue import registry
from workbench.devices.cuda import CudaDevice, CudaPlan
from workbench.measure.timing import Effort
from workbench.measure.timing import measure as race
from workbench.model.arrays import Arrays
from workbench.model.problem import Problem
from workbench.model.results import Conditions
from workbench.model.stage import Stage
from workbench.report import derived, frame
from workbench.toolchain.compiler import compile_stage

RECORD = Path(__file__).parents[1] / "reports/gemm-limits.json.gz"

SIZES = (
    *("64x8192x8192", "128x8192x8192", "512x8192x8192", "4608x14336x4096", "5120x4096x14336"),
    *(f"{size}x{size}x{size}" for size in (1024, 2048, 4096, 6144, 8192)),
)
PROBLEMS = [f"{size},dtype=bf16,out=bf16,layout=nt" for size in SIZES]

DATA = ("random", "whole", "zero")
"""Normal random numbers; the same rounded to whole numbers; zeros."""

KERNELS = "gemm|nvjet|cutlass|xmma"
"""Ours, and what cuBLAS calls its own."""

PEAK = ".avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "time, us": "gpu__time_duration.sum",
    "cycles": "sm__cycles_elapsed.max",
    "SM clock, GHz": "smsp__cycles_elapsed.avg.per_second",
    "tensor cores busy, %": f"sm__pipe_tensor_cycles_active{PEAK}",
    "issue slots, %": f"sm__issue_active{PEAK}",
    "shared memory read, %": f"l1tex__data_bank_reads{PEAK}",
    "shared memory written, %": f"l1tex__data_bank_writes{PEAK}",
    "L2, %": f"lts__t_sectors{PEAK}",
    "device memory, %": f"dram__bytes{PEAK}",
}
WARPS = ("cp_async", "register_prefetch")
"""The stages on mma.sync."""

LARGEST = PROBLEMS[-1]

OF_WARPS = {**METRICS, "L1 and shared memory move data, %": f"l1tex__data_pipe_lsu_wavefronts{PEAK}"}
"""What is shown of these: besides, how busy the way is that loads, stores and ldmatrix share."""

TRIED = ("4096x4096x4096 bf16 nt", "8192x8192x8192 bf16 nt")
"""Labels of problems of the bench."""

HELD_BACK = 0.95
"""Of the clock on zeros: where that on random numbers is lower, power holds it back."""

UNITS = {"time, us": 1e-3, "SM clock, GHz": 1e-9}
"""What ncu's nanoseconds and hertz are multiplied by."""


def storage(problem: Problem, data: str) -> Arrays:
    """The arrays of a problem, its inputs of such data."""
    inputs = problem.inputs()
    if data == "whole":
        inputs = {name: np.round(x.astype(np.float32)).astype(x.dtype) for name, x in inputs.items()}
    elif data == "zero":
        inputs = {name: np.zeros_like(x) for name, x in inputs.items()}
    return recorded.storage(problem, inputs)


def bound(device: CudaDevice, stage: Stage[Any], problem: Problem, data: str) -> CudaPlan:
    """The stage, ready to be launched on such data."""
    compiled = compile_stage(stage, problem)
    return device.bind(compiled, stage.plan(problem), problem.arrays(), storage(problem, data))


def contestants(problem: Problem, data: str) -> Iterator[tuple[str, Any, Any]]:
    """Name, what enqueues a launch, and what has to live as long: the stage that `workbench.ops` takes, and cuBLAS."""
    device = CudaDevice()
    stage = ops.choose("gemm", problem, device.architecture, device=device.info().name)
    plan = bound(device, stage, problem, data)
    plan.run()
    yield stage.name, plan.enqueue, plan
    for name, enqueue, outputs in recorded.libraries("gemm", plan, problem):
        enqueue()
        plan.wait()
        yield name, enqueue, outputs


def launch_all() -> None:
    """Launches everything on each kind of data. This is what ncu watches."""
    kind = registry.operations()["gemm"].problem
    for text in PROBLEMS:
        for data in DATA:
            for _, enqueue, plan in contestants(kind.parse(text), data):
                del enqueue, plan
    for stage in registry.select([f"gemm:{name}" for name in WARPS]):
        bound(CudaDevice(), stage, kind.parse(LARGEST), "random").run()


def measure(output: Path) -> None:
    """Makes the record; what has been measured is saved at once."""
    info, kind = CudaDevice().info(), registry.operations()["gemm"].problem
    record = recorded.begin(info, "times", "counters")
    for text in PROBLEMS:
        problem = kind.parse(text)
        for data in DATA:
            found = list(contestants(problem, data))
            timings = race({name: enqueue for name, enqueue, _ in found}, info.l2_bytes, Effort(), Conditions())
            for name, timing in timings.items():
                row = {"problem": text, "data": data, "name": name, "cold_us": timing.cold_us}
                record["times"].append({**row, "sustained_us": timing.sustained_us})
            recorded.save(record, output)
    recorded.count(record, output, __file__, OF_WARPS.values(), KERNELS, seconds=200.0)


def of_warps(row: dict[str, Any]) -> bool:
    """Whether the launch is of a stage on mma.sync."""
    return row["kernel"] in [f"gemm_{name}" for name in WARPS]


def counted_launches(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One of each contestant, in the order of `launches`: of several launches of ours the last, which multiplies."""
    rows = [row for row in record["counters"] if not of_warps(row)]
    ours = [row["kernel"].startswith("gemm_") for row in rows]
    return [row for row, own, own_next in zip(rows, ours, [*ours[1:], False], strict=True) if not (own and own_next)]


def launches(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Problem and data of each launch in the order of the counters: ours, then cuBLAS."""
    problems = dict.fromkeys(row["problem"] for row in record["times"])
    return [(problem, data) for problem in problems for data in DATA for _ in range(2)]


def spread(values: list[float], unit: str) -> str:
    """From the least to the most."""
    low, high = (derived.three_digits(value) for value in (min(values), max(values)))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def reading(record: dict[str, Any], times: DataFrame) -> str:
    """What the tables say, in words: of problems whose clock power holds back, and of the others."""
    counted: dict[tuple[str, str, str], list[float]] = {}
    for (problem, data), row in zip(launches(record), counted_launches(record), strict=False):
        for name in ("SM clock, GHz", "tensor cores busy, %", "L2, %", "device memory, %"):
            value = row["metrics"].get(METRICS[name].removesuffix(".sum"))
            if value is not None:
                counted.setdefault((problem, data, name), []).append(value * UNITS.get(name, 1.0))

    def found(problems: list[str], data: str, name: str) -> str:
        unit = "GHz" if name == "SM clock" else "%"
        return spread([value for p in problems for value in counted[p, data, f"{name}, {unit}"]], unit)

    def shorter(problems: list[str]) -> str:
        shares = (1 - times.zero / times.random)[problems]
        return f"{100 * shares.min():.0f} to {100 * shares.max():.0f} % shorter"

    held, free = [], []
    for problem in dict.fromkeys(problem for problem, _, _ in counted):
        drawn, nothing = (max(counted[problem, data, "SM clock, GHz"]) for data in ("random", "zero"))
        (held if drawn < HELD_BACK * nothing else free).append(problem)
    said = []
    if held:
        said.append(
            f"On random numbers the tensor cores are busy {found(held, 'random', 'tensor cores busy')} of the time, "
            f"while the L2 delivers {found(held, 'random', 'L2')} and memory "
            f"{found(held, 'random', 'device memory')} of what they can. The clock is "
            f"{found(held, 'random', 'SM clock')}; on zeros, where the same instructions draw less power, it is "
            f"{found(held, 'zero', 'SM clock')}, and the times are {shorter(held)}, ours and cuBLAS's alike. So it is "
            "power that limits both: what is left to gain is the time in which the tensor cores are not busy, and "
            "energy that a product does not need."
        )
    if free:
        said.append(
            f"Power does not hold back {', '.join(p.split(',')[0] for p in free)}: the clock is "
            f"{found(free, 'random', 'SM clock')}, on zeros {found(free, 'zero', 'SM clock')}, and the times are "
            f"{shorter(free)} there. The tensor cores are busy {found(free, 'random', 'tensor cores busy')} of the "
            f"time, the L2 delivers {found(free, 'random', 'L2')} and memory "
            f"{found(free, 'random', 'device memory')} of what they can."
        )
    return "\n\n".join(said) + "\n"


def tried() -> str:
    """What each stage on tensor cores gave, from the committed bench of the same device."""
    bench = recorded.bench("gemm")
    measured = frame.table(bench, {})
    beside = measured[measured.of_vendor.notna()].set_index(["stage", "label"])[["time_us", "of_vendor"]]
    times: dict[str, list[str]] = {}
    for result, run in bench:
        for key in ((result.stage, label) for label in TRIED if (result.stage, label) in beside.index):
            cells = times.setdefault(f"| `{result.stage}` | {result.idea} | `{run.environment.commit[:12]}` |", [])
            cells.append(" {:,.0f} | {:.3f} |".format(*beside.loc[key]))
    columns = "".join(f" {label.removesuffix(' bf16 nt')}, us | cuBLAS / ours |" for label in TRIED)
    head = f"| stage | what was tried | commit |{columns}\n|---|---|---|{'---|---|' * len(TRIED)}"
    return "\n".join([head, *(row + "".join(cells) for row, cells in times.items())]) + "\n"


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    measured = frame.medians(record["times"])
    by_data = measured.pivot(index=["problem", "name"], columns="data", values="cold_us").loc[
        measured[["problem", "name"]].drop_duplicates().itertuples(index=False), list(DATA)
    ]
    times = [[p, f"`{name}`", *map("{:,.1f}".format, row)] for (p, name), *row in by_data.itertuples()]
    counted = [
        [problem.split(",")[0], data, *recorded.counted(row, METRICS, UNITS)]
        for (problem, data), row in zip(launches(record), counted_launches(record), strict=False)
    ]
    warps = [recorded.counted(row, OF_WARPS, UNITS) for row in record["counters"] if of_warps(row)]
    return "\n".join(
        (
            "# What limits large products\n",
            "Written by `benchmarks/gemm_limits.py` from [the JSON beside it](gemm-limits.json.gz): the stage that "
            "`workbench.ops.gemm` takes, and cuBLAS, on the same arrays.\n",
            recorded.made_on(record),
            reading(record, by_data),
            "## Cold medians in microseconds, on data that draw less and less power\n",
            tabulate(times, ["problem", "", *DATA], tablefmt="pipe", disable_numparse=True) + "\n",
            "## Counters of one launch\n",
            tabulate(counted, ["problem", "data", "kernel", *METRICS], tablefmt="pipe", disable_numparse=True) + "\n",
            "## Stages on mma.sync\n",
            f"{LARGEST.split(',')[0]} on random numbers. Operands reach tensor cores through registers, and "
            "registers through the one data path of L1 and shared memory. `register_prefetch` moves each byte that it "
            "copies over this path three times, cp.async moves it once.\n",
            tabulate(warps, ["kernel", *OF_WARPS], tablefmt="pipe", disable_numparse=True) + "\n",
            "## What was tried\n",
            "Each stage as declared, in the [bench](nvidia-h200/gemm.md), interleaved with cuBLAS. What "
            "a search over the parameters adds is in [tuning](tuning.md), and what was tried on single stages [on a "
            "page of its own](gemm-tries.md).\n",
            tried(),
        )
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["launch"]:
        launch_all()
    else:
        recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
