"""The tools of compute-sanitizer on the cases of `benchmarks/suites.py`, on a machine with a GPU. Needs Python alone.

    python benchmarks/suite_tools.py PACK OUTPUT.json --sanitizer PROGRAM [--budget 330] [--seconds 20]

PACK is what `suite_pack.py` has made; the output is `reports/suite-tools.json`. Each case runs once under each tool, as
a process that is killed after a time limit. None starts after the budget, and what has not run is not in the record.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

OPTIONS = {
    "racecheck": (
        "--racecheck-detect-level info --racecheck-report analysis --print-level info --racecheck-memcpy-async yes "
        "--racecheck-fence-proxy-async yes --racecheck-deadlock-timeout 2000 --racecheck-continue-on-deadlock no"
    ),
    "synccheck": "",
    "memcheck": "--padding 512 --check-cache-control --report-api-errors explicit",
    "initcheck": "--initcheck-address-space all",
}
COMMON = "--check-bulk-copy yes --check-tensor-ops yes --check-warpgroup-mma yes"
KINDS = {
    "race": "Race reported|hazard|Missing fence.proxy",
    "deadlock": "Deadlock detected",
    "out_of_bounds": r"Invalid (__\w+__|\w+) (read|write|atomic|access|reduction)|out of bounds|Address .* out of",
    "misaligned": "[Mm]isaligned|is not aligned",
    "uninitialised": "Uninitialized",
    "barrier_misuse": "Barrier error|Divergent thread|Invalid arguments|[Bb]arrier|sequence error",
    "assertion": "[Aa]ssert",
    "trap": "[Tt]rap|[Bb]reakpoint|[Ii]llegal [Ii]nstruction|LAUNCH_FAILED",
}
"""What a message is about, in the words of `workbench`; the first that fits."""


def launch(launches: list[dict[str, Any]]) -> None:
    """Launches kernels of cubins by the driver's interface. Ends the program where CUDA refuses something."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *given: object) -> None:
        if code := getattr(cuda, name)(*given):
            said = ctypes.c_char_p()
            cuda.cuGetErrorName(code, ctypes.byref(said))
            sys.exit(f"launcher: {name}: {(said.value or b'').decode()}")

    context, module, kernel = (ctypes.c_void_p() for _ in range(3))
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    for one in launches:
        call("cuModuleLoad", ctypes.byref(module), one["cubin"].encode())
        call("cuModuleGetFunction", ctypes.byref(kernel), module, one["entry"].encode())
        addresses, words = [], []
        for size, what in one["arrays"]:
            at = ctypes.c_uint64()
            call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
            addresses.append(at.value.to_bytes(8, "little"))
            if what != "none":
                values = bytes(size) if what == "zero" else Path(what).read_bytes()
                call("cuMemcpyHtoD_v2", at, values, ctypes.c_size_t(size))
        for value, pointers in one["parameters"]:
            raw = bytearray.fromhex(value)
            for offset, array in pointers:
                raw[offset : offset + 8] = addresses[array]
            words.append(ctypes.create_string_buffer(bytes(raw)))
        given = (ctypes.c_void_p * (len(words) + 1))(*map(ctypes.addressof, words))
        *shape, shared, cooperative = one["shape"]
        if shared > 48 << 10:
            call("cuFuncSetAttribute", kernel, 8, shared)
        if cooperative:
            call("cuLaunchCooperativeKernel", kernel, *shape, shared, None, given)
        else:
            call("cuLaunchKernel", kernel, *shape, shared, None, given, None)
        call("cuCtxSynchronize")
    print("launcher: done")


def verdict(log: str, kinds: list[str], hung: bool) -> tuple[str, str]:
    """What a run says of its case: `found`, `warned`, `nothing`, `failed` or `no answer`, and the message."""
    told = []
    for line in log.splitlines():
        head = re.match(r"=========\s(?:(\w+): )?(\S.*)", line)  # what goes on is indented
        if head and "SUMMARY" not in line:
            kind = next((kind for kind, words in KINDS.items() if re.search(words, line)), "")
            if kind in kinds:
                told.append((head[1] not in ("Warning", "Info"), head[2][:100]))
    if told:
        error, text = max(told, key=lambda one: one[0])
        return "found" if error else "warned", text
    if hung:
        return "no answer", ""
    launched = "launcher:" not in log or re.search("launcher: (done|cuCtxSynchronize)", log)  # one that faults, too
    return "nothing" if "SUMMARY" in log and launched else "failed", ""


def run(command: list[str], kinds: list[str], seconds: float) -> list[Any]:
    """The verdict on a process, which is killed with its children after so many seconds, and the seconds it took."""
    start, hung = time.monotonic(), False
    with tempfile.TemporaryFile() as kept:  # a pipe could be held open by what does not die
        process = subprocess.Popen(command, stdout=kept, stderr=kept, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            hung = True
        taken = time.monotonic() - start
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        kept.seek(0)
        return [*verdict(kept.read().decode(errors="replace"), kinds, hung), round(taken, 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--sanitizer", required=True)
    parser.add_argument("--budget", type=float, default=330, help="No run starts after so many seconds.")
    parser.add_argument("--seconds", type=float, default=20, help="Of a run.")
    chosen = parser.parse_args()
    end, output, script = time.monotonic() + chosen.budget, chosen.output.resolve(), str(Path(__file__).resolve())
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, version = (
        subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        for words in (asked, [chosen.sanitizer, "--version"])
    )
    record: dict[str, Any] = {"gpu": gpu, "sanitizer": re.findall(r"Version (\S+)", version)[0], "options": OPTIONS}
    record |= {"common": COMMON, "seconds": chosen.seconds, "runs": {}}
    os.chdir(chosen.pack)
    cases = json.loads(Path("cases.json").read_text())
    for case in cases:
        record["runs"].setdefault(case["suite"], {})[case["case"]] = {"shared": case["shared"]}

    def work(number: int, tool: str, index: int) -> None:
        case = cases[index]
        program = case.get("program", [sys.executable, script, "launch", str(index)])
        follow = "all" if "program" in case else "application-only"
        options = ["--port", str(49152 + 20 * (number % 800)), "--target-processes", follow, "--show-backtrace=device"]
        options += f"{COMMON} {OPTIONS[tool]}".split()
        if time.monotonic() < end:
            told = run([chosen.sanitizer, "--tool", tool, *options, *program], case["kinds"], chosen.seconds)
            record["runs"][case["suite"]][case["case"]][tool] = told

    jobs = [(tool, index) for tool in OPTIONS for index in range(len(cases))]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(len(jobs)), *zip(*jobs, strict=True)))
    output.write_text(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["launch"]:
        launch(json.loads(Path("cases.json").read_text())[int(sys.argv[2])]["launches"])
    else:
        main()
