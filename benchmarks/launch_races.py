"""Faults between launches, on a GPU and in the emulator: makes `reports/launch-races.md`.

    python benchmarks/launch_races.py measure OUTPUT.json   # on a machine with a GPU of compute capability 9.0
    python benchmarks/launch_races.py write [OUTPUT.json]   # the page, of that file and nothing else

Each case is a process of its own with a deadline. Its first kernel triggers, and stores after a loop that a clock ends.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from tabulate import tabulate

from workbench.emulator import Report, Session, load

RECORD = Path(__file__).parents[1] / "reports/launch-races.json"
N, BLOCKS, ROUNDS, SECONDS = 1024, 8, 20, 120
WORDS = ("x", "y", "z", "w")

SOURCE = f"""
#ifdef FIXED
#define WAIT cudaGridDependencySynchronize();
#else
#define WAIT
#endif
constexpr int N = {N};
#define I const int i = blockIdx.x * blockDim.x + threadIdx.x;
#define BEGIN I cudaTriggerProgrammaticLaunchCompletion(); for (long long t = clock64(); clock64() - t < CYCLES;);
#define KERNEL(name) extern "C" __global__ void name(int* x, int* y, int* z, int* w)
KERNEL(store) {{ BEGIN y[i] = x[i]; }}
KERNEL(reversed) {{ BEGIN y[i] = x[N - 1 - i]; }}
KERNEL(count) {{ BEGIN atomicAdd(w, x[i]); }}
KERNEL(early) {{ I WAIT int v = y[i]; cudaGridDependencySynchronize(); z[i] = v; }}
KERNEL(apart) {{ I cudaTriggerProgrammaticLaunchCompletion(); WAIT w[i] = 1; }}
KERNEL(last) {{ I cudaGridDependencySynchronize(); z[i] = y[i]; }}
KERNEL(overwrite) {{ I WAIT x[i] = -1; }}
KERNEL(reset) {{ I WAIT if (i == 0) w[0] = 0; }}
"""
"""Every kernel has a trigger and a wait, but for the wait that FIXED brings."""
CALLS = (("cudaGridDependencySynchronize", "wait"), ("cudaTriggerProgrammaticLaunchCompletion", "launch_dependents"))
"""Functions that NVRTC does not declare, and their instructions."""


@dataclass(frozen=True)
class Case:
    """What is wrong, the kernels of one stream, and the words of the array that tells, where all is right."""

    what: str
    kernels: tuple[str, ...]
    array: str
    right: tuple[int, ...]


UP = tuple(range(1, N + 1))
CASES = {
    "read": Case("a read before the wait", ("store", "early"), "z", UP),
    "middle": Case("a kernel between two others that never waits", ("store", "apart", "last"), "z", UP),
    "overwritten": Case("an input is overwritten while it is read", ("reversed", "overwrite"), "y", UP[::-1]),
    "counter": Case("a counter is reset too early", ("count", "reset"), "w", (0,)),
}


def emulated(case: Case, fixed: bool) -> list[str]:
    """What the emulator finds, one line each."""
    arrays = {name: np.array(UP if name == "x" else [0] * N, np.int32) for name in WORDS}
    defines = {"CYCLES": 0, **({"FIXED": 1} if fixed else {})}
    session, reports = Session(load(SOURCE, defines=defines)), list[Report]()
    for number, kernel in enumerate(case.kernels):
        launched = {"stream": 1, "programmatic": number > 0}
        reports.append(session.launch(kernel, BLOCKS, N // BLOCKS, arrays, **launched))
    session.synchronize()
    return [str(finding).splitlines()[0] for report in reports for finding in report.findings]


def on_gpu(case: Case, fixed: bool) -> int:
    """How many of the rounds have a wrong answer."""
    import cupy

    from workbench.devices.cuda import LIBRARY
    from workbench.devices.ready import LaunchConfig

    calls = [f'#define {name}() asm volatile("griddepcontrol.{what};" ::: "memory")' for name, what in CALLS]
    options = ("-std=c++17", "-DCYCLES=1000000", *(["-DFIXED"] if fixed else []))
    module = cupy.RawModule(code="\n".join((*calls, SOURCE)), options=options)
    buffers = {name: cupy.zeros(N, np.int32) for name in WORDS}
    pointers = [ctypes.c_void_p(buffer.data.ptr) for buffer in buffers.values()]
    arguments = (ctypes.c_void_p * len(WORDS))(*(ctypes.addressof(pointer) for pointer in pointers))
    stream, wrong = cupy.cuda.Stream(non_blocking=True), 0
    attribute = (ctypes.c_uint64 * 9)(6, 1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: allowed
    for _ in range(ROUNDS):
        for name, buffer in buffers.items():
            buffer[:] = cupy.arange(1, N + 1) if name == "x" else 0
        cupy.cuda.runtime.deviceSynchronize()
        for number, kernel in enumerate(case.kernels):
            shape = (BLOCKS, 1, 1), (N // BLOCKS, 1, 1), 0, stream.ptr
            config = LaunchConfig(*shape, ctypes.addressof(attribute), int(number > 0))
            function = ctypes.c_void_p(module.get_function(kernel).kernel.ptr)
            if status := ctypes.CDLL(LIBRARY).cuLaunchKernelEx(ctypes.byref(config), function, arguments, None):
                raise SystemExit(f"the launch of {kernel} was rejected: {status}")
        stream.synchronize()
        wrong += not np.array_equal(buffers[case.array].get()[: len(case.right)], case.right)
    return wrong


def measure(output: Path) -> None:
    """Makes the record. A case that does not end within its deadline has hung."""
    from workbench.devices.cuda import CudaDevice

    record = recorded.begin(CudaDevice().info(), "rows")
    for key, case in CASES.items():
        for fixed in (False, True):
            command = [sys.executable, __file__, "case", key, *(["fixed"] if fixed else [])]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
                wrong = int(done.stdout)
            except subprocess.TimeoutExpired:
                wrong = None
            except subprocess.CalledProcessError as error:
                raise SystemExit(f"{key} failed: {error.stderr[-2000:]}") from None
            record["rows"].append({"case": key, "fixed": fixed, "wrong": wrong, "found": emulated(case, fixed)})
            print(record["rows"][-1], flush=True)
            recorded.save(record, output)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    table = []
    for row in record["rows"]:
        seen = "hung" if row["wrong"] is None else f"{row['wrong']} of {ROUNDS} wrong"
        name = CASES[row["case"]].what + (", mended" if row["fixed"] else "")
        table.append([name, seen, "; ".join(f"`{line}`" for line in row["found"]) or "no hazard"])
    seen_wrong = {row["case"] for row in record["rows"] if row["wrong"] != 0 and not row["fixed"]}
    text = (
        "# Faults between launches\n\nKernels of one stream by programmatic dependent launch, each case as it is and "
        f"with the missing wait. {len(seen_wrong)} of {len(CASES)} faults are seen on the GPU. Written by "
        "`benchmarks/launch_races.py` from [the JSON beside it](launch-races.json).\n"
    )
    return "\n".join((text, recorded.made_on(record), tabulate(table, ["case", "GPU", "emulator"], "pipe") + "\n"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["case"]:
        print(on_gpu(CASES[sys.argv[2]], "fixed" in sys.argv))
    else:
        recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
