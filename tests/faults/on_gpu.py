"""The planted faults on a GPU: each alone, and under the four tools of compute-sanitizer. Writes JSON.

    python tests/faults/on_gpu.py OUTPUT.json [--jobs 8] [--seconds 15] [--budget 330] [KEY ...]

Every run is a process of its own, since a faulty kernel takes its CUDA context down, or hangs: then it is killed after
`--seconds`. No run is started after `--budget` seconds; the file is rewritten while the runs go on, so that what is
there is kept whatever happens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from catalogue import CATALOGUE
from planting import Scenario
from scenarios import SCENARIOS

from workbench.checks.sanitizer import SanitizerUnavailable, find

TOOLS = ("none", "memcheck", "racecheck", "synccheck", "initcheck")
LOG_LINES, LOG_WIDTH = 14, 240
"""Most lines of a tool's output that are kept, and their length."""


def scenarios() -> dict[str, Callable[[], Scenario]]:
    """Everything that is run, by key: the faults, and after them the kernels without any, as ``correct-NAME``."""
    planted = {fault.key: partial(getattr, fault, "planted") for fault in CATALOGUE}
    return planted | {f"correct-{make.__name__}": make for make in SCENARIOS}


# ------------------------------------------------------------------------------------------------- in the child


def run_one(key: str) -> str:
    """Launches one scenario on the GPU; ``right``, ``wrong``, or what CUDA or the compiler says."""
    import cupy
    import numpy as np

    from workbench.devices.tensor_maps import encoded
    from workbench.model.tensor_map import TensorMap
    from workbench.toolchain.compiler import CompileError, compile_source

    scenario = scenarios()[key]()
    try:
        compiled = compile_source(scenario.source, scenario.defines)
    except CompileError as error:
        return f"does not compile: {error}"
    cupy.cuda.set_allocator(None)  # no pool: every array is an allocation that memcheck knows the end of
    buffers: dict[str, Any] = {}
    arrays = {**scenario.arrays, **scenario.plan.scratch}
    for name, array in arrays.items():
        buffers[name] = cupy.empty(array.nbytes, np.uint8)  # outputs stay uninitialised, for initcheck
        if name in scenario.storage:
            buffers[name].set(scenario.storage[name].view(np.uint8))
    module = cupy.RawModule(path=str(compiled.cubin_path))
    try:
        for launch in scenario.plan.launches:
            function = module.get_function(launch.kernel)
            if launch.shared_bytes > 48 * 1024:
                function.max_dynamic_shared_size_bytes = launch.shared_bytes
            arguments = []
            for argument in launch.args:
                if isinstance(argument, TensorMap):
                    array, pointer = arrays[argument.array], buffers[argument.array].data.ptr
                    arguments.append(encoded(argument, array, pointer))
                else:
                    arguments.append(np.uintp(buffers[argument].data.ptr) if isinstance(argument, str) else argument)
            function(launch.grid, launch.block, tuple(arguments), shared_mem=launch.shared_bytes)
        cupy.cuda.runtime.deviceSynchronize()
    except Exception as error:
        return f"error: {error}"
    wrong = scenario.wrong(lambda name: buffers[name].get().view(scenario.arrays[name].dtype.numpy))
    return "wrong" if wrong else "right"


# ------------------------------------------------------------------------------------------------ in the parent


@dataclass
class GpuRun:
    """One process. `answer` is what the child said, empty where it was killed or died; `log` what the tool said."""

    key: str
    tool: str
    answer: str
    hung: bool
    seconds: float
    log: list[str]


def run_child(key: str, tool: str, seconds: float) -> GpuRun:
    """Runs one scenario under one tool, in a process that is killed after so many seconds."""
    command = [sys.executable, __file__, "--one", key]
    if tool != "none":
        command = [str(find()), "--tool", tool, "--show-backtrace", "device", "--print-limit", "3", *command]
    start = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    hung = False
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        hung = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired as late:  # the driver takes its time to end a hanging kernel
            output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
    lines = [line.rstrip()[:LOG_WIDTH] for line in output.splitlines()]
    answers = [line.removeprefix("ANSWER ") for line in lines if line.startswith("ANSWER ")]
    log = [line.removeprefix("=========").rstrip() for line in lines if line.startswith("=========")]
    log = [line for line in log if line.strip() and "COMPUTE-SANITIZER" not in line]
    if not answers and not hung:
        log += lines[-3:]
    return GpuRun(key, tool, answers[-1] if answers else "", hung, round(time.monotonic() - start, 2), log[:LOG_LINES])


def versions() -> dict[str, str]:
    """The GPU, its driver and the version of the tool, as they name themselves."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    asked = {"gpu": query, "sanitizer": [str(find()), "--version"]}
    said = {name: subprocess.run(c, capture_output=True, text=True, check=False).stdout for name, c in asked.items()}
    gpu, _, driver = said["gpu"].strip().partition(", ")
    version = next((line for line in said["sanitizer"].splitlines() if "ersion" in line), "")
    return {"gpu": gpu, "driver": driver, "sanitizer": version.strip()}


def write(output: Path, head: dict[str, Any], runs: list[GpuRun]) -> None:
    """Replaces the file in one step."""
    order = {key: number for number, key in enumerate(scenarios())}
    ordered = sorted(runs, key=lambda run: (order[run.key], TOOLS.index(run.tool)))
    temporary = output.with_name(output.name + ".part")
    temporary.write_text(json.dumps({**head, "runs": [asdict(run) for run in ordered]}, indent=1) + "\n")
    temporary.replace(output)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the planted faults on a GPU, alone and under compute-sanitizer.")
    parser.add_argument("output", type=Path, nargs="?")
    parser.add_argument("keys", nargs="*")
    parser.add_argument("--one", metavar="KEY", help="run one scenario in this process, and say what came of it")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--budget", type=float, default=330)
    options = parser.parse_intermixed_args()  # keys may follow options
    if options.one:
        print("ANSWER", " ".join(run_one(options.one).split()), flush=True)
        return
    if options.output is None:
        parser.error("the output file is missing")
    try:
        find()
    except SanitizerUnavailable as error:
        raise SystemExit(str(error)) from None
    start, runs = time.monotonic(), []
    head = {**versions(), "seconds": options.seconds}
    wanted = options.keys or list(scenarios())
    with ThreadPoolExecutor(options.jobs) as pool:

        def job(key: str, tool: str) -> GpuRun | None:
            late = time.monotonic() - start > options.budget
            return None if late else run_child(key, tool, options.seconds)

        # one tool after the other, so that a run cut short still has whole columns
        futures = [pool.submit(job, key, tool) for tool in TOOLS for key in wanted]
        for number, future in enumerate(as_completed(futures), 1):
            if (run := future.result()) is not None:
                runs.append(run)
            if number % 20 == 0:
                write(options.output, head, runs)
                print(f"{number} of {len(futures)} runs after {time.monotonic() - start:.0f} s", flush=True)
    write(options.output, head, runs)
    print(f"{len(runs)} of {len(futures)} runs in {time.monotonic() - start:.0f} s: {options.output}")


if __name__ == "__main__":
    main()
