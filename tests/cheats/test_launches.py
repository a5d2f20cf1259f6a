"""Kernels that count their launches, and are right only the first few times: found on one problem solved many times."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from harness_planting import planted_stage
from planting import Change

from workbench import Launch, Operation, harness, simple_operation
from workbench.devices import Device, open_device
from workbench.judge.launches import IN_EMULATOR
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.results import Verdict
from workbench.model.stage import Stage

HEAD = 'extern "C" __global__'
ADD = "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));"
RIGHT = 6
"""Launches that are right."""


def counting(answer: str, launches: int = RIGHT) -> Stage[Any]:
    """vector_add, which gives `answer` of the sum s after so many launches in one memory."""
    late = f"atomicAdd(&had[i], 1u) >= {launches}"
    body = f"if (i < n) {{ IN s = from_float<IN>(to_float(a[i]) + to_float(b[i])); c[i] = {late} ? {answer} : s; }}"
    counters = f"__device__ unsigned had[1 << 17];\n{HEAD}"
    return planted_stage("vector_add:naive", Change(HEAD, counters), Change(ADD, body))


@pytest.fixture(scope="module")
def emulator() -> Device:
    return open_device("emulator")


def test_a_kernel_that_is_wrong_from_its_seventh_launch_on_is_found(emulator: Device) -> None:
    result = harness.verify(counting("a[i]"), emulator, examples=10, seed=0)
    assert result.verdict is Verdict.STALE
    assert f"in launch {RIGHT + 1} on the same inputs" in result.failure.message
    again = VectorAddProblem.parse(result.failure.problem)
    assert harness.verify(counting("a[i]"), emulator, problem=again).verdict is Verdict.STALE


def test_what_counts_its_launches_and_is_right_all_the_same_passes(emulator: Device) -> None:
    assert harness.verify(counting("s"), emulator, examples=10, seed=0).verdict is Verdict.PASS
    assert harness.verify(counting("a[i]", IN_EMULATOR), emulator, examples=10, seed=0).verdict is Verdict.PASS


def test_an_answer_that_is_kept_after_several_launches_of_one_size_is_found(emulator: Device) -> None:
    kept = f"__device__ unsigned had[1 << 17]; __device__ float was[1 << 17]; __device__ int size[1 << 17];\n{HEAD}"
    body = """if (i < n) {
      if (size[i] != n) size[i] = n, had[i] = 0;
      if (had[i]++ < 3) was[i] = to_float(a[i]) + to_float(b[i]);
      c[i] = from_float<OUT>(was[i]);
    }"""
    stage = planted_stage("vector_add:naive", Change(HEAD, kept), Change(ADD, body.replace("OUT", "IN")))
    assert harness.run_many(stage, emulator, VectorAddProblem(n=300, dtype="fp32")).failure.verdict is Verdict.STALE  # type: ignore[union-attr]


def test_a_module_that_keeps_the_grid_of_its_first_launch_is_found(emulator: Device) -> None:
    kept = f"__device__ unsigned first;\n{HEAD}"
    body = (
        "unsigned had = atomicCAS(&first, 0u, gridDim.x); "
        "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + (had && had != gridDim.x ? 0.f : to_float(b[i])));"
    )
    stage = planted_stage("vector_add:naive", Change(HEAD, kept), Change(ADD, body))
    result = harness.verify(stage, emulator, examples=10, seed=0)
    assert result.verdict is Verdict.STALE
    assert result.failure is not None and "another grid" in result.failure.message


def test_a_module_that_is_wrong_for_a_third_grid_is_found(emulator: Device) -> None:
    kept = f"__device__ unsigned grids[2];\n{HEAD}"
    body = (
        "unsigned u = atomicCAS(&grids[0], 0u, gridDim.x); bool other = u && u != gridDim.x; "
        "unsigned v = other ? atomicCAS(&grids[1], 0u, gridDim.x) : 0; other = v && v != gridDim.x; "
        "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + (other ? 0.f : to_float(b[i])));"
    )
    stage = planted_stage("vector_add:naive", Change(HEAD, kept), Change(ADD, body))
    found = harness.run_many(stage, emulator, VectorAddProblem(n=300, dtype="fp32")).failure
    assert found is not None and found.verdict is Verdict.STALE


def test_an_answer_that_is_wrong_in_the_first_of_many_launches_is_a_mismatch(emulator: Device) -> None:
    problem = VectorAddProblem(n=300)
    stage = planted_stage("vector_add:naive", Change(ADD, "if (i < n) c[i] = a[i];"))
    failure = harness.run_many(stage, emulator, problem).failure
    assert failure is not None and failure.verdict is Verdict.MISMATCH and failure.problem == str(problem)


def test_a_fault_of_the_problem_with_another_grid_is_that_problems(emulator: Device) -> None:
    problem = VectorAddProblem(n=300)
    body = "if (i < n + (n > 300 ? 500000 : 0)) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));"
    failure = harness.run_many(planted_stage("vector_add:naive", Change(ADD, body)), emulator, problem).failure
    assert failure is not None and failure.verdict is Verdict.OUT_OF_BOUNDS
    assert VectorAddProblem.parse(failure.problem).n > 300


def test_a_given_problem_that_is_right_is_not_blamed_for_the_one_solved_after_it(emulator: Device) -> None:
    problem = VectorAddProblem(n=300, dtype="fp32", seed=1)
    following = dataclasses.replace(problem, seed=2)
    wrong = f"(to_float(a[0]) == {float(following.inputs()['a'][0])!r}f ? 0.f : to_float(b[i]))"
    stage = planted_stage("vector_add:naive", Change("to_float(b[i])", wrong))
    assert harness.run_problem(stage, emulator, problem)[0] is None
    failure = harness.verify(stage, emulator, problem=problem).failure
    assert failure is not None and failure.problem == str(following) and f"{problem} is right" in failure.message


CACHED = """
__device__ unsigned known[3];
__device__ float answer;

extern "C" __global__ void dot(const float* x, const float* y, float* z, int n) {
  unsigned a = 0, b = 0;
  for (int i = 0; i < n; ++i) a += __float_as_uint(x[i]) * 2654435761u, b += __float_as_uint(y[i]) * 2654435761u;
  if (known[0] != n || known[1] != a || known[2] != b) {
    answer = 0;
    for (int i = 0; i < n; ++i) answer += x[i] * y[i];
    known[0] = n, known[1] = a, known[2] = b;
  }
  z[0] = answer;
}
"""


def test_an_answer_that_is_kept_by_a_sum_of_its_inputs_is_found(emulator: Device) -> None:
    dot: Operation[Any] = simple_operation("dot", "x: n fp32, y: n fp32 -> z: 1 fp32", terms="n")(
        lambda x, y: (x * y).sum(keepdims=True)
    )
    stage = dot.stage("kept", code=CACHED, idea="keeps its answer")(
        lambda p, size: Launch("dot", (1, 1, 1), (1, 1, 1), ("x", "y", "z", np.int32(p.n)))
    )
    assert [harness.verify(stage, emulator, examples=50, seed=n).verdict for n in (4, 5)] == [Verdict.STALE] * 2
