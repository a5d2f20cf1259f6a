"""Other tools on the suites' cases: what is packed, how it is launched and run, and what a table makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import suite_pack  # noqa: E402
import suites  # noqa: E402
from suite_cases import Case  # noqa: E402

PROGRAM = [sys.executable, str(BENCHMARKS / "suite_tools.py")]
RACY = """
__global__ void copy(const float* x, float* y, short n) {
    __shared__ float kept[64];
    kept[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = kept[63 - threadIdx.x] + n;
}
"""
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int cuInit(int f) { return 0; } int cuDevicePrimaryCtxRetain(void **c, int d) { return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAlloc_v2(void **p, size_t n) { *p = memset(malloc(n), 7, n); return 0; }
int cuMemcpyHtoD_v2(void *p, const void *h, size_t n) { memcpy(p, h, n); return 0; }
int cuModuleLoad(void **m, const char *p) { return 0; }
int cuModuleGetFunction(void **f, void *m, const char *n) { *f = strdup(n); return 0; }
int cuGetErrorName(int c, const char **n) { *n = "CUDA_ERROR_OF_TEST"; return 0; }
int cuCtxSynchronize(void) { return getenv("FAIL") ? 719 : 0; }
int cuLaunchKernel(void *f, int a, int b, int c, int d, int e, int g, int s, void *t, void **p, void **x) {
  float *in = **(float ***)p;
  printf("%s %d %d %d %d %d %d %d: %g %g %d %d\\n", (char *)f, a, b, c, d, e, g, s, in[0], in[63],
         ***(unsigned char ***)(p + 1), *(short *)p[2]);
  return fflush(stdout);
}
"""
"""Functions of the driver that only say what they are given."""

SANITIZER = """#!{python}
import signal, sys
if "--version" in sys.argv:
    sys.exit(print("Version 2026.4.0"))
tool, case = sys.argv[2], sys.argv[-1]
print("========= COMPUTE-SANITIZER")
if case == "hangs" and tool == "racecheck":
    signal.pause()
if case in ("racy", "warned") and tool == "racecheck":
    print("=========", "Error:" if case == "racy" else "Warning:", "Race reported between Write access at copy")
if case == "racy" and tool == "memcheck":
    print("========= Invalid __global__ read of size 4 bytes")
print("launcher: cuModuleLoad: CUDA_ERROR" if case == "refused" else "launcher: done")
print("========= ERROR SUMMARY: 0 errors")
"""
"""A program that takes the words of compute-sanitizer."""


def test_a_launch_is_packed_and_made_with_the_arrays_that_the_emulator_is_given(tmp_path: Path) -> None:
    (tmp_path / "racy.cu").write_text(RACY)
    words = ["--grid=2", "--block=64", "--arg=x:f32[64]=arange", "--arg=y:f32[64]", "--arg=n:i16=-3"]
    row = suite_pack.packed(Case("racy", tmp_path / "racy.cu", True, [words, words]), [], tmp_path)
    assert row and row["shared"] and len(row["launches"]) == 1, "one launch, though it is asked for twice"
    (tmp_path / "cases.json").write_text(json.dumps([row]))
    (tmp_path / "driver.c").write_text(DRIVER)
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-olibcuda.so.1", "driver.c"], cwd=tmp_path, check=True)
    for failing, said in (
        ({}, "launcher: done\n"),
        ({"FAIL": "1"}, "launcher: cuCtxSynchronize: CUDA_ERROR_OF_TEST\n"),
    ):
        environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)} | failing
        done = subprocess.run([*PROGRAM, "launch", "0"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.stdout + done.stderr == f"_Z4copyPKfPfs 2 1 1 64 1 1 0: 0 63 7 -3\n{said}"


def test_runs_are_judged_by_what_counts_and_stand_beside_ours(tmp_path: Path) -> None:
    names = ("racy", "warned", "right", "hangs", "refused")
    of = {"suite": "Faial", "kinds": ["race", "deadlock"], "shared": True}
    (tmp_path / "cases.json").write_text(json.dumps([of | {"case": name, "program": [name]} for name in names]))
    for name, text in (
        ("sanitizer", SANITIZER.format(python=sys.executable)),
        ("nvidia-smi", "#!/bin/sh\necho GPU, 580"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    command = [*PROGRAM, str(tmp_path), "tools.json", "--sanitizer", str(tmp_path / "sanitizer"), "--seconds=8"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    made = json.loads((tmp_path / "tools.json").read_text())
    told = {name: made["runs"]["Faial"][name]["racecheck"][0] for name in names}
    assert told == dict(zip(names, ("found", "warned", "nothing", "no answer", "failed"), strict=True))
    assert made["runs"]["Faial"]["racy"]["memcheck"][0] == "nothing", "the case is not about addresses"
    rows = [{"case": name, "faulty": name != "right", "as": "missed", "seconds": 9 * k} for k, name in enumerate(names)]
    page = suites.beside({"suites": {"Faial": {"rows": rows}}}, made)

    def cells(first: str) -> list[int]:
        return [int(cell) for cell in re.findall(rf"^\| {first} .*", page, re.MULTILINE)[0].split("|")[3:9]]

    assert cells(r"Faial +\| kernel-workbench") == [0, 0, 1, 0, 0, 4], "nine seconds are more than eight"
    assert cells(r"all +\| racecheck") == [1, 1, 0, 0, 1, 2]
    assert cells(r"executed by both +\| racecheck") == [1, 0, 0, 0, 0, 0]
