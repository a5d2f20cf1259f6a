"""What is said of a failure: inputs where they are few, the smallest problem where it is, what to do about a race."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench
from workbench import Arrays, simple_operation
from workbench.emulator import Output, launch
from workbench.judge.case import Case
from workbench.judge.forensics import diagnose
from workbench.model.problem import Tier
from workbench.report.evidence import explain

ADD = """
#include "tile/convert.cuh"
extern "C" __global__ void vector_add_naive(const IN* x, const IN* y, IN* z, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) z[i] = from_float<IN>(to_float(x[i]) + to_float(y[i]) + (i == 0));
}
"""
SHARED = """
__global__ void k(const int* x, int* y, int n) {
    __shared__ int s[64];
    s[threadIdx.x % 64] = 0;
    __syncthreads();
    #pragma unroll 1
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        LINE  // here
    }
    __syncthreads();
    if (threadIdx.x < 64) y[threadIdx.x] = s[threadIdx.x];
}
"""


def said(**options: Any) -> str:
    (stage,) = workbench.verify("vector_add:naive", code=ADD, device="emulator", **options).run.stages
    return explain("vector_add:naive", stage.verification)


def test_a_failure_of_a_tiny_problem_shows_its_inputs_and_one_element_is_no_factor() -> None:
    text = said(examples=5, seed=0)
    assert "\nsmallest failing problem: n=1," in text
    assert "\na = [" in text and "\nb = [" in text
    assert "times what is right" not in text


def test_a_problem_that_was_asked_for_is_not_called_the_smallest() -> None:
    text = said(problem="n=20,dtype=fp32,seed=3")
    assert "\nfailing problem: n=20," in text and "smallest" not in text
    assert "\na = [" not in text  # 40 elements


def _scaled() -> Any:
    def bound(p: Any, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": 2.0**-24 * np.abs(expected["y"])}

    return simple_operation("scaled", "x: n fp32 -> y: n fp32", bound=bound, not_exact="not tried")(lambda x: 3 * x)


@pytest.mark.parametrize(("error", "says"), [(3 * 2.0**-24, "the bound may be too tight"), (2.0**-8, "")])
def test_an_error_of_the_size_of_rounding_may_be_that_of_the_bound(error: float, says: str) -> None:
    def solve(case: Case) -> Arrays:
        answer = case.expected["y"].copy()
        answer[5:9] *= 1 + error
        return {"x": case.inputs["x"], "y": answer.astype(np.float32)}

    case = Case.of(_scaled().problem(n=64, tier=Tier.BOUNDED))
    found = diagnose(case, "y", solve(case), solve).looks_like
    assert ("the bound may be too tight" in found) == bool(says), found


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("s[x[i] % 64] += 1;", "several threads have this element, and no barrier changes that: use an atomic"),
        ("s[i % 32] = i;", "several threads have this element"),
        ("s[threadIdx.x] = s[(threadIdx.x + 32) % 64] + 1;", "__syncthreads() is missing"),
    ],
)
def test_threads_that_share_an_element_are_told_of_atomics_and_not_of_barriers(line: str, advice: str) -> None:
    source = SHARED.replace("LINE", line)
    x, y = (np.arange(256) % 32).astype(np.int32), np.zeros(64, np.int32)
    found = launch(source, "k", 1, 64, [x, Output(y), np.int32(256)]).findings
    here = [f for f in found if f.location and f.location.line == source[: source.index("// here")].count("\n") + 1]
    assert here, found
    if "+ 32" in line:
        assert not any("several threads" in f.advice for f in here)
    assert all(advice in f.advice for f in here), here
