"""Launches of a plan that overlap, by programmatic dependent launch."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu

from workbench import Launch, Plan, simple_operation
from workbench.devices import open_device
from workbench.harness import verify
from workbench.model.arrays import Array
from workbench.model.calls import Call
from workbench.model.dtypes import FP32
from workbench.model.operation import Operation
from workbench.model.results import Verdict

DOUBLED = """#include "ptx/grid_dependency.cuh"
extern "C" __global__ void first(const float* x, float* between, int n) {
  grid_dependency_launch();
  int i = blockIdx.x * 32 + threadIdx.x;
  if (i < n) between[i] = 2 * x[i];
}
extern "C" __global__ void second(const float* between, float* y, int n) {
  int i = blockIdx.x * 32 + threadIdx.x;
  WAIT
  if (i < n) y[i] = between[n - 1 - i];
}"""

WAIT = "grid_dependency_wait();"


def operation(wait: str = WAIT, programmatic: tuple[bool, bool] = (False, True)) -> Operation[Any]:
    """Twice the numbers, backwards, by two kernels of which the second is launched programmatically."""
    made: Operation[Any] = simple_operation("backwards", "x: n fp32 -> y: n fp32")(lambda x: 2 * x[::-1])

    @made.stage("two_kernels", code=DOUBLED.replace("WAIT", wait), idea="two kernels", architecture=90)
    def two_kernels(p: Any, size: Mapping[str, int]) -> Plan:
        arguments, grid = (("x", "between"), ("between", "y")), (-(-p.n // 32), 1, 1)
        launches = tuple(
            Launch(kernel, grid, (32, 1, 1), (*given, np.int32(p.n)), programmatic=early)
            for kernel, given, early in zip(("first", "second"), arguments, programmatic, strict=True)
        )
        return Plan(launches, {"between": Array((p.n,), FP32, output=True)})

    made.function(lambda x: Call(made.problem(n=x.shape[0]), {"x": x}))
    return made


@pytest.mark.parametrize(
    ("wait", "programmatic", "verdict"),
    [
        (WAIT, (False, True), Verdict.PASS),
        ("", (False, True), Verdict.RACE),
        ("", (False, False), Verdict.PASS),
        (WAIT, (True, True), Verdict.LAUNCH_ERROR),
    ],
)
def test_a_programmatic_launch_of_a_plan_has_to_wait_for_the_one_before_it(
    wait: str, programmatic: tuple[bool, bool], verdict: Verdict
) -> None:
    (stage,) = operation(wait, programmatic).stages
    found = verify(stage, open_device("emulator"), examples=20, seed=1)
    assert found.verdict is verdict
    if verdict is Verdict.LAUNCH_ERROR:
        assert "first is the first launch of the plan" in str(found.failure)


def test_calls_hand_a_programmatic_launch_to_the_driver(gpu: EmulatedGpu) -> None:
    solve = operation().called
    assert solve is not None
    x = gpu.upload(np.arange(70, dtype=np.float32))
    for _ in range(2):  # the second one in C++
        gpu.programmatic.clear()
        assert (gpu.download(solve(x)) == 2 * np.arange(69, -1, -1)).all()
        assert gpu.programmatic == [False, True]


def test_a_launch_that_is_prepared_alone_is_programmatic_too(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    (stage,) = operation().stages
    problem = stage.owner.problem(n=70)
    plan = stage.plan(problem)
    arrays = {**problem.arrays(), **plan.scratch}
    memory = {name: gpu.upload(np.arange(70, dtype=np.float32)) for name in arrays}
    pointers = {name: array.data.ptr for name, array in memory.items()}
    stream = SimpleNamespace(ptr=3)
    current = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream))
    monkeypatch.setattr(gpu, "_cupy", current, raising=False)
    enqueue = gpu.prepare(gpu.compile(stage, problem), plan.launches[1], arrays, pointers)
    for _ in range(2):
        enqueue()
    assert gpu.programmatic == [True, True] and gpu.launched[-1] == (3, "second")
    assert (gpu.download(memory["y"]) == np.arange(69, -1, -1)).all()
