"""Faults that are planted into stages that are right, one for each verdict and each look of a wrong result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import Device, open_device
from workbench.devices.emulated import EmulatedDevice
from workbench.model import origin
from workbench.model.arrays import Array
from workbench.model.dtypes import UINT8
from workbench.model.launch import Plan
from workbench.model.results import Verdict, Verification
from workbench.model.stage import Stage
from workbench.report.evidence import explain

MOST_WARP_INSTRUCTIONS = 1_000_000
"""Of a block before it counts as hung: the faults are small, and the page is written in seconds."""

ADD = "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));"
SUM = "sum += to_float(a[k]) * to_float(b[k * b_step]);"
STORE = "C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum);"
MAXIMUM = "max = fmaxf(max, to_float(from[c]))"
KEEP = 'asm volatile("setmaxnreg.dec.sync.aligned.u32 {};");'
KERNEL = 'extern "C" __global__'

Restage = Callable[[Stage[Any]], Stage[Any]]


@dataclass(frozen=True)
class Plant:
    """A fault: what it is, its stage, pieces of the source with what is put in their place, and a problem.

    `restage` changes the declaration; then the title says how.
    """

    title: str
    spec: str
    changes: tuple[tuple[str, str], ...] = ()
    problem: str | None = None
    restage: Restage | None = None
    isolated: bool = False


def added(title: str, more: str, problem: str | None = None) -> Plant:
    """A line more in `vector_add:naive`."""
    return Plant(title, "vector_add:naive", ((ADD, f"{ADD}\n  {more}"),), problem)


def product(title: str, *changes: tuple[str, str], problem: str = "32x48x20,dtype=fp32,out=fp32") -> Plant:
    """A change of `gemm:naive`."""
    return Plant(title, "gemm:naive", changes, problem)


def replanned(change: Callable[[Any], Any]) -> Restage:
    """The stage with another launch or plan."""

    def restage(stage: Stage[Any]) -> Stage[Any]:
        plan_for = stage.plan_for
        return replace(stage, plan_for=lambda problem, size: change(plan_for(problem, size)))

    return restage


def accepting(launch: Any) -> Any:
    harness.Case.judge = lambda *arguments: (None, 0.0)  # type: ignore[method-assign]
    return launch


PLANTS: dict[Verdict, Plant] = {
    Verdict.UNSUPPORTED: Plant("k is no multiple of 8", "gemm:tma_pipeline", problem="64x64x7,dtype=bf16,out=bf16"),
    Verdict.MISMATCH: Plant(
        "the last terms of the sum are dropped",
        "gemm:naive",
        (("k < K; ++k", "k < K / 4 * 4; ++k"),),
        "12x20x39,dtype=bf16,out=fp32",
    ),
    Verdict.OUT_OF_BOUNDS: Plant("one past the end", "vector_add:naive", (("i < n", "i <= n"),)),
    Verdict.RACE: Plant(
        "nothing keeps a tile from being overwritten while it is read",
        "gemm:vectorized",
        (("    __syncthreads();  // everyone has read the k-tile before\n", ""),),
        "1x1x17,dtype=fp32,out=fp32",
    ),
    Verdict.UNINITIALISED: Plant(
        "c is read before it is written", "vector_add:naive", (("to_float(b[i])", "to_float(c[i])"),)
    ),
    Verdict.LIVELOCK: Plant("a loop without end", "vector_add:naive", ((ADD, "for (;;) __nanosleep(100);"),)),
    Verdict.INPUT_CHANGED: Plant(
        "an input is written to",
        "vector_add:naive",
        ((ADD, f"{ADD}\n  if (i < n) const_cast<IN*>(b)[i] = from_float<IN>(7.f);"), ("__restrict__ b", "b")),
    ),
    Verdict.NOT_DETERMINISTIC: Plant(
        "the answer depends on who comes first",
        "matvec:naive",
        (
            (KERNEL, f"__device__ unsigned arrived;\n{KERNEL}"),
            (
                "c[n] = from",
                "if (sum != rintf(sum) && (atomicAdd(&arrived, 1u) & 32u)) sum = nextafterf(sum, 0.f);\n  c[n] = from",
            ),
        ),
        "256x64,dtype=fp32,out=fp32",
    ),
    Verdict.STALE: Plant(
        "an answer is kept for the next launch",
        "vector_add:naive",
        (
            (KERNEL, f"__device__ float kept[4096];\n__device__ long long kept_n;\n{KERNEL}"),
            (
                ADD,
                "if (i < n && kept_n != n) kept[i] = to_float(a[i]) + to_float(b[i]);\n"
                "  if (i < n) c[i] = from_float<IN>(kept[i]);\n  __syncthreads();\n  if (i == 0) kept_n = n;",
            ),
        ),
        "40,dtype=fp32",
    ),
    Verdict.COMPILE_ERROR: Plant("a bracket is missing", "vector_add:naive", (("b[i])", "b[i]"),), "4,dtype=fp32"),
    Verdict.LAUNCH_ERROR: Plant(
        "the launch passes `a, b, n` to a kernel that takes `a, b, c, n`",
        "vector_add:naive",
        restage=replanned(lambda launch: replace(launch, args=(*launch.args[:-2], launch.args[-1]))),
    ),
    Verdict.MISALIGNED: added(
        "four bytes are read from an odd address",
        "if (i < n) c[i] = *reinterpret_cast<const float*>(reinterpret_cast<const char*>(a) + 1);",
        "9,dtype=fp32",
    ),
    Verdict.TRAP: added("a trap", "if (i == 3) __trap();", "9,dtype=fp32"),
    Verdict.ASSERTION: added("an assertion that does not hold", "assert(i < 3);", "9,dtype=fp32"),
    Verdict.BARRIER_MISUSE: added(
        "a barrier of 9 threads",
        'asm volatile("bar.sync 1, %0;" :: "r"(static_cast<int>(n)) : "memory");',
        "9,dtype=fp32",
    ),
    Verdict.DIVERGENT_COLLECTIVE: added(
        "a shuffle of all lanes, to which odd ones come",
        "if (i % 2) c[i % n] = from_float<IN>(__shfl_sync(~0u, to_float(a[0]), 0));",
        "9,dtype=fp32",
    ),
    Verdict.REGISTER_MISUSE: Plant(
        "more registers are kept than there are",
        "vector_add:naive",
        (
            ("__launch_bounds__(THREADS)", "__launch_bounds__(THREADS, 2)"),
            (ADD, f"{ADD}\n  {KEEP.format(24)}\n  {KEEP.format(40)}"),
        ),
        "9,dtype=fp32",
    ),
    Verdict.DEADLOCK: added(
        "a barrier for two warps, to which one comes",
        'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");',
        "9,dtype=fp32",
    ),
    Verdict.BAD_OPERAND: added(
        "a copy of 4 bytes is to read 9",
        "__shared__ float tile[THREADS];\n"
        '  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"\n'
        '               :: "r"(unsigned(__cvta_generic_to_shared(&tile[threadIdx.x]))), "l"(a),\n'
        '                  "r"(static_cast<int>(n)) : "memory");',
        "9,dtype=fp32",
    ),
    Verdict.TAMPERING: Plant(
        "the function that makes the launch replaces `Case.judge`", "vector_add:naive", restage=replanned(accepting)
    ),
    Verdict.OUT_OF_MEMORY: Plant(
        "8 TiB of scratch",
        "vector_add:naive",
        problem="9,dtype=fp32",
        restage=replanned(lambda one: Plan((one,), scratch={"much": Array((2**43,), UINT8, output=True)})),
        isolated=True,
    ),
}
"""A fault for each verdict that the emulator can give for a small change."""

LOOKS: dict[str, Plant] = {
    "overflow": product(
        "sums in fp16 of large terms", (SUM, f"sum = __half2float(__float2half(sum + 5e4f * {SUM[7:-1]}));")
    ),
    "never written, partly not written": product(
        "columns are left out", ("n >= N) return", "n >= N || n % 8 == 5) return")
    ),
    "NaN is computed": product("0 / 0 in a row", (STORE, f"if (m == 5) sum *= 0.f / (K - K);\n  {STORE}")),
    "gaps between the rows": Plant(
        "a maximum goes on behind a row",
        "softmax:naive",
        (
            (
                MAXIMUM,
                f"{MAXIMUM}, max = row + 1 < rows && columns + c < ldx ? fmaxf(max, to_float(from[columns + c])) : max",
            ),
        ),
        "9x40,dtype=fp32,out=fp32,pad_x=3,seed=1",
    ),
    "all zeros": product("the sum is not taken", (SUM, "sum += 0.f;")),
    "stale": product("no input is read", (SUM, "sum += m + n;")),
    "transposed": product(
        "m and n are swapped",
        (STORE, STORE.replace("(m)", "(n)").replace("+ n", "+ m")),
        problem="24x24x20,dtype=fp32,out=fp32",
    ),
    "shifted by one": product(
        "a row too late", (STORE, f"if (++m == M) m = 0;\n  {STORE}"), ("const int m =", "int m =")
    ),
    "the last N": product(
        "the last columns are not computed",
        ("n >= N) return;", f"n >= N) return;\n  if (n >= N - 3) {{ {STORE.replace('sum', '0.f')} return; }}"),
    ),
    "terms of the sum": product("every fourth term is dropped", ("++k) sum", "++k) if (k % 4 != 3) sum")),
    "permuted": product("tiles of 8 rows are exchanged", (STORE, f"m ^= 8;\n  {STORE}"), ("const int m =", "int m =")),
    "precision is lost": product(
        "sums in bf16", (SUM, f"sum = __bfloat162float(__float2bfloat16(sum + {SUM[7:-1]}));")
    ),
    "as a kernel with this fault would answer": Plant(
        "the weights are forgotten",
        "rms_norm:naive",
        ((" * scale * to_float(w[c])", " * scale"),),
        "9x40,dtype=fp32,out=fp32",
    ),
    "errors of at most N times what is permitted": product(
        "some elements are off by a few roundings",
        (STORE, f"if ((m * 7 + n * 13) % 11 == 0) sum += 2e-5f;\n  {STORE}"),
    ),
    "off by one factor": product("twice", (STORE, f"sum *= 2;\n  {STORE}")),
    "elements are wrong in, zeros stand in": product(
        "a tile is wrong", (STORE, f"if (m / 16 == 1 && n / 16 == 1) sum += 1.f;\n  {STORE}")
    ),
    "no pattern that is known": product(
        "some elements are wrong", (STORE, f"if ((m * 7 + n * 13) % 11 == 0) sum += 1.f;\n  {STORE}")
    ),
}
"""A fault for each look that a change of a naive kernel gives; the others are faults of the catalogue."""


@contextmanager
def sources() -> Iterator[Path]:
    """A copy of the CUDA sources, which every stage then has its own from."""
    kept = origin.SOURCES
    with tempfile.TemporaryDirectory() as folder:
        origin.SOURCES = Path(folder) / "cuda_src"
        shutil.copytree(kept, origin.SOURCES)
        try:
            yield origin.SOURCES
        finally:
            origin.SOURCES = kept


def message(plant: Plant) -> str:
    """What `workbench verify` prints about a plant."""
    kept = origin.SOURCES
    spec, result, folder = judged(plant)
    told = explain(spec, result)
    for root in (folder.parent, kept.parent):
        told = told.replace(f"{root}/", "")
    return "\n".join(line.rstrip() for line in told.splitlines())


def judged(plant: Plant) -> tuple[str, Verification, Path]:
    """The stage in which it is planted, what verification found, and the folder in which the sources were."""
    with sources() as folder:
        (stage,) = registry.select([plant.spec])
        text = stage.path.read_text()
        for old, new in plant.changes:
            assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {stage.source}"
            text = text.replace(old, new)
        stage.path.write_text(text)
        if plant.restage:
            stage = plant.restage(stage)
        problem = registry.operations()[stage.operation].problem.parse(plant.problem) if plant.problem else None
        device: Device = (
            open_device("emulator", isolate=True) if plant.isolated else EmulatedDevice(MOST_WARP_INSTRUCTIONS)
        )
        result = harness.verify(stage, device, examples=12, seed=0, problem=problem)
        return stage.spec, result, folder


def difference(plant: Plant) -> str:
    """The change to the source as a diff; nothing where there is none."""
    lines = []
    for old, new in plant.changes:
        lines += [f"-{line}" for line in old.strip("\n").splitlines()]
        lines += [f"+{line}" for line in new.strip("\n").splitlines()]
    body = "\n".join(lines)
    return f"```diff\n{body}\n```\n" if body else ""
