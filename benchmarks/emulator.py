"""How fast the emulator is, with all its checks on: `python benchmarks/emulator.py [-o reports/emulator-speed.md]`.

Each row is a stage of GEMM on a cube (bf16, the first of the suite), warm, on one thread: the median of several
launches, beside the time that is aimed at. Every launch gets new memory, since what it has written decides what it
may read. Launches are timed by the processor's clock of this process, so that other work on the machine hardly counts;
compilation, which takes place in a process of its own, by the wall's.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices.emulated import EmulatedDevice
from workbench.harness import Case
from workbench.model.problem import Problem
from workbench.model.stage import Stage
from workbench.records import environment

TENSOR, CUDA_CORE = ("cp_async", "tma_pipeline"), ("naive", "warp_parallel", "vectorized")
BARS_MS: dict[tuple[str, int], float] = {
    **{(s, n): bar for s in TENSOR for n, bar in ((64, 1), (256, 15), (512, 100))},
    **{(s, n): bar for s in CUDA_CORE for n, bar in ((64, 4), (256, 220), (512, 1800))},
    ("tma_pipeline", 2048): 8000,
}
MEMORY_BAR_MB, THREADS_BAR, COLD_BAR_S, CACHED_BAR_MS = 200, 1.8, 0.5, 10
LEAST_SECONDS, MOST_LAUNCHES, PROCESSES = 1.0, 200, 3

Table = list[list[str]]


def stage_and_problem(name: str, size: int) -> tuple[Stage[Problem], Problem]:
    """A stage of GEMM and a cube for it."""
    (stage,) = registry.select([f"gemm:{name}"])
    first = registry.operations()["gemm"].suite[0]
    return stage, dataclasses.replace(first, **dict.fromkeys(first.extents, size))


def launcher(name: str, size: int) -> Callable[[], float]:
    """A function that runs the stage once on new memory and returns the seconds that the launch took."""
    from workbench.toolchain.compiler import compile_stage

    stage, problem = stage_and_problem(name, size)
    compiled, case = compile_stage(stage, problem), Case.of(problem)
    device = EmulatedDevice()

    def run() -> float:
        bound = device.bind(compiled, stage.plan(problem), case.arrays, case.storage(), problem.seed)
        start = time.process_time()
        bound.run()
        seconds = time.process_time() - start
        bound.close()
        return seconds

    return run


def sampled(run: Callable[[], float]) -> list[float]:
    """Seconds of launches after the first, for about a second."""
    run()
    samples: list[float] = []
    while len(samples) < MOST_LAUNCHES and (len(samples) < 3 or sum(samples) < LEAST_SECONDS):
        samples.append(run())
    return samples


def launches() -> Table:
    """A row for each stage and size."""
    rows = []
    for (name, size), bar in BARS_MS.items():
        samples = sampled(launcher(name, size))
        median = 1e3 * statistics.median(samples)
        rows.append(
            [f"{name} {size}^3", f"{median:.2f} ms", f"{1e3 * min(samples):.2f} ms", *judged(median, bar, "ms")]
        )
    return rows


def judged(value: float, bar: float, unit: str, least: bool = False) -> list[str]:
    """The bar, and whether the value keeps it."""
    met = value >= bar if least else value <= bar
    return [f"{'>=' if least else '<='} {bar:g} {unit}", "yes" if met else "**no**"]


def two_threads() -> list[str]:
    """How many times the launches of one thread two threads get done, on problems of their own."""
    runs = [launcher("tma_pipeline", 256) for _ in range(2)]

    def rate(count: int) -> float:
        def work(run: Callable[[], float]) -> None:
            for _ in range(40):
                run()

        threads = [threading.Thread(target=work, args=(run,)) for run in runs[:count]]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 40 * count / (time.perf_counter() - start)

    rate(1)
    gain = statistics.median(rate(2) / rate(1) for _ in range(11))
    return ["two threads, tma_pipeline 256^3", f"{gain:.2f} x", "", *judged(gain, THREADS_BAR, "x", least=True)]


def _memory_growth(size: int) -> float:
    """MB by which the process grows while a launch runs: shadows of races and the engine's own."""
    from workbench.toolchain.compiler import compile_stage

    stage, problem = stage_and_problem("tma_pipeline", size)
    compiled, case = compile_stage(stage, problem), Case.of(problem)
    bound = EmulatedDevice().bind(compiled, stage.plan(problem), case.arrays, case.storage(), problem.seed)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _status("VmRSS")
    bound.run()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def memory() -> Table:
    """Peak memory of a launch beyond the operands; the shadows in which races are looked for are counted in."""
    rows = []
    for size in (512, 2048):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            grown = pool.apply(_memory_growth, (size,))
        rows.append(
            [
                f"memory beyond the operands, tma_pipeline {size}^3",
                f"{grown:.0f} MB",
                "",
                *judged(grown, MEMORY_BAR_MB, "MB"),
            ]
        )
    return rows


_COMPILE = """
import sys, time
from workbench.catalogue import registry
from workbench.devices.emulated import EmulatedDevice
from workbench.emulator.program import Program
from workbench.harness import drawn
from workbench.toolchain import compiler
(stage,) = registry.select([sys.argv[1]])
# some stages take nothing of the suite: few tiles, rows that begin anywhere
solved = [p for p in registry.operations()[stage.operation].suite if stage.supports(p) is None]
problem = max(solved or drawn(stage, EmulatedDevice(), examples=8, seed=0), key=lambda p: p.cost.flops)
compiler.nvrtc_version()
start = time.perf_counter()
compiled = compiler.compile_stage(stage, problem)
if sys.argv[2] == "cold":
    Program.from_ptx(compiled.ptx, compiled.source)
print(time.perf_counter() - start)
"""


def compilation() -> Table:
    """Compiling and parsing a stage for the first time, and finding it in the cache, each time in a new process."""
    rows = []
    for name in (stage.name for stage in registry.operations()["gemm"].stages):
        found: dict[str, list[float]] = {"cold": [], "cached": []}
        for _ in range(PROCESSES):
            with tempfile.TemporaryDirectory() as folder:
                for kind, seconds in found.items():
                    command = [sys.executable, "-c", _COMPILE, f"gemm:{name}", kind]
                    environ = {**os.environ, "WORKBENCH_CACHE": folder}
                    seconds.append(float(subprocess.run(command, env=environ, check=True, capture_output=True).stdout))
        cold = statistics.median(found["cold"])
        rows.append(
            [
                f"compile and parse {name}",
                f"{cold:.2f} s",
                f"{min(found['cold']):.2f} s",
                *judged(cold, COLD_BAR_S, "s"),
            ]
        )
        cached = 1e3 * statistics.median(found["cached"])
        rows.append(
            [
                f"the same, compiled before: {name}",
                f"{cached:.1f} ms",
                f"{1e3 * min(found['cached']):.1f} ms",
                *judged(cached, CACHED_BAR_MS, "ms"),
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write the table there as Markdown too")
    chosen = parser.parse_args()
    gc.disable()
    rows = [*launches(), two_threads(), *memory(), *compilation()]
    table = tabulate(rows, ["what", "median", "fastest", "bar", "kept"], tablefmt="pipe", disable_numparse=True)
    print(table)
    if chosen.output:
        found = environment.describe()
        where = f"commit {found.commit}{' with changes' if found.dirty else ''}, {found.date}, {found.host}"
        chosen.output.write_text(
            f"# How fast the emulator is\n\nWritten by `benchmarks/emulator.py`: {where}, Python {found.python}. "
            f"All checks are on, races included; a launch runs on one thread and is timed by the processor's clock.\n\n"
            f"{table}\n"
        )


if __name__ == "__main__":
    main()
