"""Wrong results that a weak harness passes (24 to 40).

Each is planted in a real stage, or in whatever would deceive: its launch, its declaration, the tolerance of its
problem. A new one is one more entry; the tests and `harness_report.py` take all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from harness_planting import HEAD, HarnessFault, Restage, Verified
from planting import Change

from workbench.kernels.gemm import GemmProblem
from workbench.kernels.matvec import MatvecProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.launch import Launch
from workbench.model.problem import Problem, Tier
from workbench.model.results import Verdict
from workbench.model.stage import Stage

ADD = "from_float<IN>(to_float(a[i]) + to_float(b[i]))"
SUM = "sum += to_float(a[k]) * to_float(b[k * b_step])"
LINE = r"1_naive\.cu:\d+"
FIFTY = VectorAddProblem(n=50, dtype="fp32", tier=Tier.BOUNDED)


def add(*changes: tuple[str, str], restage: Restage = lambda stage: stage, problem: Problem = FIFTY) -> Verified:
    """vector_add:naive with pieces of text replaced."""
    return Verified("vector_add:naive", tuple(Change(*c) for c in changes), problem, restage)


def gemm(*changes: tuple[str, str], problem: Problem | None) -> Verified:
    return Verified("gemm:naive", tuple(Change(*c) for c in changes), problem)


def relaunched(**changes: Any) -> Restage:
    """The stage with other fields in its launch."""

    def restage(stage: Stage[Any]) -> Stage[Any]:
        def plan_for(problem: Any, size: Mapping[str, int]) -> Launch:
            launch = stage.plan_for(problem, size)
            assert isinstance(launch, Launch)
            return replace(launch, **changes)

        return replace(stage, plan_for=plan_for)

    return restage


def raises(stage: Stage[Any]) -> Stage[Any]:
    def broken(problem: Any, size: Mapping[str, int]) -> Launch:
        raise ZeroDivisionError("n // 0")

    return replace(stage, plan_for=broken)


def unchecked(stage: Stage[Any]) -> Stage[Any]:
    return replace(stage, parameters={**stage.parameters, "NDEBUG": 1})


def tolerant(bound: Callable[[np.ndarray[Any, Any]], Any]) -> VectorAddProblem:
    """Fifty elements, whose tolerance is `bound(right answer)`."""
    methods = {"bound": lambda problem, inputs, expected: bound(expected["c"])}
    kind: type[VectorAddProblem] = type("Tolerant", (VectorAddProblem,), methods)
    return kind(n=50, dtype="fp32")


KEPT_SUM = """__device__ long long kept_n;
__device__ float kept[4096];
extern "C" __global__"""
KEEP_SUM = (
    "if (i < n) { if (kept_n != n) kept[i] = to_float(a[i]) + to_float(b[i]); c[i] = from_float<IN>(kept[i]); } "
    "__syncthreads(); if (i == 0) kept_n = n;"
)
CLEAR = "if (blockIdx.x == 0 && threadIdx.x == 0) for (int i = 0; i < N; ++i) c[i] = OUT();\n  if (n >= N) return;"
LATE = (
    "if (sum != rintf(sum) && (atomicAdd(&arrived, 1u) & 32u)) sum = __int_as_float(__float_as_int(sum) ^ 1);\n"
    "  c[n] = from_float<OUT>(sum);"
)
BETWEEN_ROWS = "float sum = m + 1 < M && lda > K ? 0.f * to_float(a[K]) : 0.f;"  # times zero, for all who find zeros
FAST_PATH = """const auto where = reinterpret_cast<unsigned long long>(a);
  if (where % 64 == 0) { if (i < n) c[i] = a[i]; return; }
  if (i < n) c[i] ="""
HALF = f"sum = __half2float(__float2half(sum + {SUM.removeprefix('sum += ')}))"
NAN = "from_float<IN>(__int_as_float(0x7fc00000))"


def tolerance(name: str, title: str, bound: Callable[[Any], Any], says: str) -> HarnessFault:
    title, judge = f"a tolerance typed wrongly: {title}", add(problem=tolerant(bound))
    return HarnessFault(f"40-{name}", title, judge, says, Verdict.WEAK_CHECK, where="`bound` of vector_add")


WRONG_RESULTS = (
    HarnessFault("24-idle", "does nothing, where memory may still hold the answer",
        add((f"if (i < n) c[i] = {ADD};", "")), ("50 of 50 elements", "written", r"c\[0\] +nan")),
    HarnessFault("25-half", "writes every second element, over what was right",
        add(("if (i < n) c[i]", "if (i < n && i % 2) c[i]")), ("25 of 50 elements", r"c\[0\] +nan")),
    *(
        HarnessFault(
            f"26-zeros-{tier}",
            f"zeros, judged in the {tier} tier",
            gemm((SUM, "sum += 0.f"), problem=GemmProblem(m=9, n=7, k=40, tier=tier)),
            (r"(4[1-9]|5\d|6[0-3]) of 63 elements", r"C\[0, 0\] +0 "),
        )
        for tier in GemmProblem.tiers
    ),
    HarnessFault("27-nan", "NaN, which compares as neither larger nor different", add((ADD, NAN)),
        ("50 of 50 elements", r"c\[0\] +nan")),
    HarnessFault("28-input-changed", "changes its inputs",
        add((f"c[i] = {ADD};", f"{{ c[i] = {ADD}; const_cast<IN*>(b)[i] = from_float<IN>(7.f); }}"),
        ("const IN* __restrict__ b", "const IN* b")), (LINE, r"writes b\[0\], which must not change"),
        Verdict.INPUT_CHANGED),
    HarnessFault("29-write-past-end", "writes past the end",
        add((f"if (i < n) c[i] = {ADD};", f"if (i <= n) c[i] = i < n ? {ADD} : IN();")),
        (LINE, r"writes 4 bytes at c\[50\]: c\[50\] is one past the end of c"), Verdict.OUT_OF_BOUNDS),
    HarnessFault("29-read-past-end", "reads past the end",
        add(("to_float(b[i])", "to_float(b[i + 1]) * 0.f + to_float(b[i])")),
        (LINE, r"b\[50\] is one past the end of b"), Verdict.OUT_OF_BOUNDS),
    HarnessFault("29-read-between-rows", "reads between the rows of an input, where zeros would hide it",
        gemm(("float sum = 0.f;", BETWEEN_ROWS), problem=GemmProblem(m=3, n=2, k=4, pad_a=1)),
        ("4 of 6 elements", r"C\[0, 0\] +nan")),
    HarnessFault("30-last-terms", "drops the last two of 512 terms", gemm(("k < K; ++k", "k < K - K / 256; ++k"),
        problem=GemmProblem(m=16, n=16, k=512, dtype="bf16", out="fp32", tier=Tier.BOUNDED)), r"looks like: .*\bk\b"),
    HarnessFault("31-fp16-accumulator", "an accumulator of half the width",
        gemm((SUM, HALF), problem=GemmProblem(m=16, n=16, k=512, dtype="fp16", out="fp32", tier=Tier.BOUNDED)),
        "looks like: .*(precision|fp16)"),
    HarnessFault("32-one-tile", "one wrong tile of 128 in a right matrix",
        gemm(("from_float<OUT>(sum)", "from_float<OUT>(m / 8 == 3 && n / 8 == 2 ? -sum : sum)"),
        problem=GemmProblem(m=128, n=64, k=8, tier=Tier.BOUNDED)), r"(49|5\d|6[0-4]) of 8192 elements"),
    HarnessFault("33-stale", "keeps the answer by shape: right for the first inputs, stale for others",
        add((HEAD, KEPT_SUM), (f"if (i < n) c[i] = {ADD};", KEEP_SUM)),
        ("keeps something from one launch to the next", r"\d+ of 50 elements"), Verdict.STALE),
    HarnessFault("34-another-kernel", "launches another kernel than that of its source",
        Verified("vector_add:vectorized", (), FIFTY, relaunched(kernel="vector_add_naive")),
        ("no kernel vector_add_naive", "vector_add_vectorized"), Verdict.LAUNCH_ERROR,
        where="launch of `vector_add:vectorized`"),
    HarnessFault("35-refused", "a launch that is refused, and leaves old data",
        add(restage=relaunched(shared_bytes=300_000)), ("300000", "232448"), Verdict.LAUNCH_ERROR,
        where="launch of `vector_add:naive`"),
    HarnessFault("35-raises", "a declaration that raises, so that nothing is launched", add(restage=raises),
        ("declaration of the stage", "n // 0"), Verdict.LAUNCH_ERROR, where="declaration of `vector_add:naive`"),
    HarnessFault("36-cleared-while-added", "cleared by one block while the others write", Verified("matvec:naive",
        (Change("if (n >= N) return;", CLEAR),), MatvecProblem(n=600, k=3, dtype="fp32", out="fp32")), LINE,
        Verdict.RACE),
    HarnessFault("37-not-deterministic", "the last bit depends on who comes first", Verified("matvec:naive",
        (Change(HEAD, f"__device__ unsigned arrived;\n{HEAD}"), Change("c[n] = from_float<OUT>(sum);", LATE)),
        MatvecProblem(n=2048, k=64, dtype="fp32", out="fp32", tier=Tier.BOUNDED)), "launched a second time",
        Verdict.NOT_DETERMINISTIC),
    HarnessFault("38-badly-aligned-only",
        "right for arrays that start at odd addresses, wrong where they are aligned",
        Verified("vector_add:naive", (Change("if (i < n) c[i] =", FAST_PATH),)), "elements of c are wrong"),
    HarnessFault("38-16-bit-only", "right in fp32, wrong in the 16-bit types",
        gemm(("from_float<OUT>(sum)", "from_float<OUT>(sizeof(IN) == 2 ? sum + 1.f : sum)"), problem=None),
        "problem: .*dtype=(bf16|fp16)"),
    HarnessFault("38-nt-only", "right in nn layout, wrong in nt",
        gemm(("from_float<OUT>(sum)", "from_float<OUT>(TRANS_B ? sum + 1.f : sum)"), problem=None),
        "problem: .*layout=nt"),
    HarnessFault("39-ndebug", "defines NDEBUG, which would remove a check by assert",
        add((ADD, "from_float<IN>(to_float(a[i]))"), restage=unchecked), r"\d+ of 50 elements"),
    tolerance("set", "a set", lambda right: {"c": {1e-3}}, r"bound of c is \{0\.001\}"),
    tolerance("number", "a number for an array", lambda right: {"c": 1e-3}, r"bound of c is 0\.001"),
    tolerance("no-dict", "not one for each output", lambda right: {1e-3}, r"gives \{0\.001\}"),
    tolerance("negative", "the sign", lambda right: {"c": -1.0 - abs(right)}, "negative"),
    tolerance("inverted", "2^8 for 2^-8", lambda right: {"c": np.full(right.shape, 2.0**8)}, "all zeros"),
)  # fmt: skip
