"""Faults that are easily called by a wrong name (50 to 59): what is said of them has to lead to the cause.

Each is planted in a real stage or in the declaration of its problem. A new one is one more entry; the tests,
`harness_report.py` and the page of verdicts take all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from harness_planting import HEAD, HarnessFault, Restage, Verified
from planting import Change
from wrong_results import relaunched

from workbench.kernels.cross_entropy import CrossEntropyProblem
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.rms_norm import RmsNormProblem
from workbench.kernels.rotary import RotaryProblem
from workbench.kernels.softmax import SoftmaxProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.problem import Problem, Tier
from workbench.model.results import Verdict
from workbench.model.stage import Stage

ADD_LINE = "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));"
MAC = "sum += to_float(a[k]) * to_float(b[k * b_step]);"
STORE = "C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum);"
PRODUCT = GemmProblem(m=16, n=16, k=512, dtype="fp16", out="fp32", tier=Tier.BOUNDED)


class ZeroRow(RmsNormProblem):
    """A row in the middle is all zeros, as padding tokens are."""

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        made = super().inputs()
        made["x"][self.rows // 2] = 0
        return made


class TooTight(GemmProblem):
    """The bound forgets that sums are rounded."""

    def bound(
        self, inputs: Mapping[str, np.ndarray[Any, Any]], expected: Mapping[str, np.ndarray[Any, Any]]
    ) -> dict[str, np.ndarray[Any, Any]]:
        return {"C": 2.0**-24 * np.abs(expected["C"]) + 1e-30}


def stage(spec: str, *changes: tuple[str, str], problem: Problem, restage: Restage = lambda s: s) -> Verified:
    """A stage with pieces of text replaced."""
    return Verified(spec, tuple(Change(*change) for change in changes), problem, restage)


def through_shared(body: str) -> tuple[str, str]:
    """A change to `vector_add:naive`: the sum goes through shared memory, `mine[threadIdx.x]`."""
    return (
        ADD_LINE,
        "__shared__ float mine[THREADS];\n"
        "  const int t = threadIdx.x;\n"
        "  const float sum = i < n ? to_float(a[i]) + to_float(b[i]) : 0.f;\n"
        f"{body}",
    )


HANDED_ROUND = """  float of_others = 0.f;
  for (int round = 0; round < 3; ++round) {
    mine[t] = sum + round;
    __syncthreads();
    of_others += mine[t ^ 1] + mine[THREADS - 1 - t];
  }
  if (i < n) c[i] = from_float<IN>(sum + 0.f * of_others);"""
ROLES = """  if (t < 128) {
    for (int round = 0; round < 2; ++round) {
      mine[t] = sum;
      asm volatile("bar.sync 1, 128;" ::: "memory");
      const float of_another = mine[127 - t];
      if (i < n) c[i] = from_float<IN>(sum + 0.f * of_another);
    }
  } else {
    mine[t] = sum;
    asm volatile("bar.sync 2, 128;" ::: "memory");
    if (i < n) c[i] = from_float<IN>(sum + 0.f * mine[383 - t]);
  }"""
IN_A_BRANCH = """  mine[t] = sum;
  if (i < n / 2) __syncthreads();
  const float of_another = mine[THREADS - 1 - t];
  if (i < n) c[i] = from_float<IN>(sum + 0.f * of_another);"""
GRID_WIDE = """__threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(&arrived, 1u);
    while (*static_cast<volatile unsigned*>(&arrived) < gridDim.x) {}
  }
  __syncthreads();
  """


def misspelt(made: Stage[Any]) -> Stage[Any]:
    def plan_for(problem: Any, size: Mapping[str, int]) -> Any:
        launch: Any = made.plan_for(problem, size)
        return replace(launch, blocks=launch.grid)

    return replace(made, plan_for=plan_for)


def swapped(made: Stage[Any]) -> Stage[Any]:
    def plan_for(problem: Any, size: Mapping[str, int]) -> Any:
        launch: Any = made.plan_for(problem, size)
        other = {"loss": "lse", "lse": "loss"}
        return replace(launch, args=tuple(other.get(a, a) if isinstance(a, str) else a for a in launch.args))

    return replace(made, plan_for=plan_for)


WRONG_DIAGNOSES = (
    HarnessFault("50-computed-nan", "a forgotten eps: a row of zeros is divided by zero", stage("rms_norm:naive",
        ("squares.value() / columns + eps", "squares.value() / columns"),
        problem=ZeroRow(rows=5, columns=40, dtype="fp32", out="fp32")),
        "looks like: NaN is computed in row 2: .*a missing eps"),
    HarnessFault("51-block-barrier", "a missing barrier that shows first within a warp",
        stage("vector_add:naive", through_shared(HANDED_ROUND), problem=VectorAddProblem(n=256, dtype="fp32")),
        r"__syncthreads\(\) is missing between", Verdict.RACE),
    HarnessFault("51-named-barrier", "a missing barrier where warps have roles",
        stage("vector_add:naive", through_shared(ROLES), problem=VectorAddProblem(n=256, dtype="fp32")),
        "a named (barrier of warps? .*|one), bar.sync ID, THREADS", Verdict.RACE),
    HarnessFault("51-barrier-in-branch", "a barrier that only half of the warps come to",
        stage("vector_add:naive", through_shared(IN_A_BRANCH), problem=VectorAddProblem(n=256, dtype="fp32")),
        r"not all threads come to the barrier at \S*1_naive\.cu:\d+: move it out", Verdict.RACE),
    HarnessFault("52-tight-bound", "a right kernel, and a bound that no kernel meets",
        Verified("gemm:naive", (), TooTight(m=16, n=16, k=512, dtype="fp16", out="fp32", tier=Tier.BOUNDED)),
        "the bound of the operation is too tight on .*: by the reference in fp32, C", Verdict.OPERATION_ERROR,
        where="`bound` of gemm"),
    HarnessFault("53-bf16-accumulator", "sums in bf16", stage("gemm:naive",
        (MAC, f"sum = __bfloat162float(__float2bfloat16(sum + {MAC.removeprefix('sum += ').rstrip(';')}));"),
        problem=replace(PRODUCT, dtype="bf16")), "looks like: .*every answer is a number of bf16: the accumulator"),
    HarnessFault("53-fp16-accumulator", "sums in fp16", stage("gemm:naive",
        (MAC, f"sum = __half2float(__float2half(sum + {MAC.removeprefix('sum += ').rstrip(';')}));"),
        problem=PRODUCT), "looks like: .*every answer is a number of fp16: the accumulator"),
    HarnessFault("53-tf32-inputs", "inputs whose last bits are not read", stage("gemm:naive",
        (MAC, "sum += __uint_as_float(__float_as_uint(a[k]) & ~0x1fffu) * to_float(b[k * b_step]);"),
        problem=replace(PRODUCT, dtype="fp32")), "looks like: .*an input is rounded to tf32"),
    HarnessFault("53-half-warp", "a shuffle that begins with half the distance: half of a warp is left out",
        stage("rms_norm:warp_row", ("warp_reduce<Sum>(squares)", "half_warp(squares)"), (HEAD,
        "__device__ float half_warp(float x) {\n"
        "  for (int d = 8; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);\n  return x;\n}\n" + HEAD),
        problem=RmsNormProblem(rows=6, columns=256, dtype="fp32", out="fp32")),
        "looks like: half of every warp is left out: elements 16 to 31 of every 32"),
    HarnessFault("54-row-factor", "rows off by one factor each: the first term is not in the sum",
        stage("softmax:naive",
        ("for (int c = 0; c < columns; ++c) sum.add", "for (int c = 1; c < columns; ++c) sum.add"),
        problem=SoftmaxProblem(rows=8, columns=12, dtype="fp32", out="fp32")),
        "looks like: each row is off by one factor"),
    HarnessFault("55-base-2", "the logarithm to base 2 for the natural one", stage("cross_entropy:naive",
        ("{max, sum.value()}", "{max, exp2f(1.44269504f * log2f(sum.value()))}"),
        problem=CrossEntropyProblem(rows=9, columns=30, dtype="fp32")),
        "looks like: .*a logarithm to base 2 stands for a natural one"),
    HarnessFault("55-exponential", "powers of 2 for powers of e", stage("softmax:naive",
        ("sum.add(exp_of(to_float(from[c])", "sum.add(exp2f(to_float(from[c])"),
        ("from_float<OUT>(exp_of(", "from_float<OUT>(exp2f("),
        problem=SoftmaxProblem(rows=8, columns=12, dtype="fp32", out="fp32")),
        "looks like: an exponential to base 2 stands for e"),
    HarnessFault("56-outputs-swapped", "two outputs in each other's place",
        stage("cross_entropy:naive", problem=CrossEntropyProblem(rows=9, columns=30, dtype="fp32"), restage=swapped),
        "looks like: outputs swapped: loss holds what belongs into lse", where="launch of `cross_entropy:naive`"),
    HarnessFault("57-tiles-permuted", "every tile in the place of its neighbour", stage("gemm:naive",
        (STORE, f"m ^= 8; if (m >= M) return;\n  {STORE}"), ("const int m = blockIdx", "int m = blockIdx"),
        problem=GemmProblem(m=64, n=48, k=20, dtype="fp32", out="fp32", tier=Tier.BOUNDED)),
        "looks like: permuted: tiles of 8 rows are in each other"),
    HarnessFault("57-heads-permuted", "every head in the place of the next one", stage("rotary:naive",
        ("y + b * y_batch + head * y_head", "y + b * y_batch + (head + 1) % heads * y_head"),
        problem=RotaryProblem(batch=2, heads=4, seq=6, half=8, dtype="fp32", tier=Tier.BOUNDED)),
        r"looks like: permuted: the slices along axis \d \(of 4: heads, batches\) are in each other"),
    HarnessFault("58-launch-function", "a mistake in the function that makes the launch",
        stage("vector_add:naive", problem=VectorAddProblem(n=50, dtype="fp32"), restage=misspelt),
        r"wrong_diagnoses\.py:\d+: .*replace\(launch, blocks=launch\.grid\)", Verdict.LAUNCH_ERROR,
        where="declaration of `vector_add:naive`"),
    HarnessFault("59-not-resident", "all blocks wait for each other, and the device does not hold them all",
        stage("vector_add:naive", (HEAD, f"__device__ unsigned arrived;\n{HEAD}"), (ADD_LINE, GRID_WIDE + ADD_LINE),
        problem=VectorAddProblem(n=256 * 140, dtype="fp32"), restage=relaunched(shared_bytes=200_000)),
        r"not resident", Verdict.DEADLOCK, on_gpu=Verdict.TIMEOUT),
)  # fmt: skip
