"""What is between timed samples: a launch cannot tell one from another, and what it gave in one of them is judged."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench.devices.cuda import CudaPlan
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.measure import judged, plausibility, sample_reset, timing
from workbench.measure.sample_reset import SampleReset
from workbench.model.arrays import Array
from workbench.model.dtypes import FP32, INT32
from workbench.model.results import Conditions, DeviceInfo, Timing

ARRAYS = {"x": Array((1000,), FP32), "where": Array((1000,), INT32), "y": Array((1000,), FP32, output=True)}
SAMPLES = 8


def bytes_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values.copy().view(np.uint8)


@pytest.fixture
def plan() -> CudaPlan:
    """The plan of a GPU, in host memory."""
    made = CudaPlan.__new__(CudaPlan)
    made._device, made._first, made._turned = SimpleNamespace(rolled=np.roll), {}, 0  # type: ignore[assignment]
    made.arrays = ARRAYS
    x, where = np.arange(1000, dtype=np.float32), np.arange(1000, dtype=np.int32)
    made.buffers = {"x": bytes_of(x), "where": bytes_of(where), "y": bytes_of(x)}
    return made


def held(plan: CudaPlan, name: str) -> np.ndarray[Any, Any]:
    return plan.buffers[name].view(ARRAYS[name].dtype.numpy)


@pytest.fixture(autouse=True)
def in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(memory: np.ndarray[Any, Any], filler: bytes) -> None:
        memory[:] = np.resize(np.frombuffer(filler, np.uint8), memory.shape)

    monkeypatch.setattr("secrets.randbelow", random.Random(1).randrange)  # one turn in 1000 moves nothing
    monkeypatch.setattr("workbench.devices.cuda.forget", forget)
    monkeypatch.setattr(CudaPlan, "host", lambda plan, name, buffer: buffer.view(ARRAYS[name].dtype.numpy))


def sampled(plan: CudaPlan, kernel: Callable[[np.ndarray[Any, Any]], Any]) -> np.ndarray[Any, Any]:
    """What is kept of a kernel y = f(x) that is timed beside another."""
    then = SampleReset(plan, "a", SAMPLES)
    for _ in range(SAMPLES):
        then("a")
        held(plan, "y")[:] = kernel(held(plan, "x"))
        then("b")
    then("")
    return plan.host("y", then.kept["y"])


def test_inputs_are_moved_along_from_where_they_were_at_first_and_places_are_not(plan: CudaPlan) -> None:
    for elements in (5, 3, 1007, 0):
        plan.turn(elements)
        assert (held(plan, "x") == np.roll(np.arange(1000), elements)).all()
        assert (held(plan, "where") == np.arange(1000)).all()


def test_every_sample_finds_inputs_of_its_own_and_outputs_unwritten(plan: CudaPlan) -> None:
    seen = []

    def kernel(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert np.isnan(held(plan, "y")).all()
        seen.append(x.tobytes())
        return 2 * x

    kept = sampled(plan, kernel)
    assert len(set(seen)) > SAMPLES // 2
    assert (kept == 2 * np.arange(1000)).all()
    assert seen.count(np.arange(1000, dtype=np.float32).tobytes()) == 1


def test_any_sample_may_be_the_one_that_is_kept(plan: CudaPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    for chosen in range(SAMPLES):
        launches = iter(range(SAMPLES))
        drawn = iter([chosen])
        with monkeypatch.context() as patch:
            patch.setattr("secrets.randbelow", lambda most, drawn=drawn: next(drawn, 6))
            kept = sampled(plan, lambda x, launches=launches: np.full(1000, next(launches)))
        assert (kept == chosen).all()
        plan.turn(0)


def test_what_gives_an_answer_again_to_inputs_that_it_has_seen_is_told_by_the_one_that_is_kept(plan: CudaPlan) -> None:
    answers: list[np.ndarray[Any, Any]] = []

    def replay(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        answers.append(2 * x)
        return answers[0]

    sample_reset.turn(plan)
    replay(held(plan, "x"))
    assert (sampled(plan, replay) != 2 * np.arange(1000)).any()


def test_inputs_that_are_timed_are_not_those_of_the_problems_seed() -> None:
    problem = VectorAddProblem(n=1000, seed=7)
    case = judged.solved(problem)
    assert case.problem != problem
    assert (case.inputs["a"] != problem.inputs()["a"]).any()
    assert judged.solved(problem) is case


H200 = DeviceInfo("cuda", "NVIDIA H200", "sm_90", 132, peak_bytes_per_s=4.9e12, peak_flops={"bf16": 1e15, "fp32": 6e13})
GEMM = GemmProblem(m=4096, n=4096, k=4096, dtype="bf16", out="bf16")
BOUND = 2 * 4096**3 / 1e15 * 1e6


@pytest.mark.parametrize(
    ("cold", "sustained", "says"),
    [
        ([BOUND * 1.3, BOUND * 1.31] * 5, [BOUND * 1.2], None),
        ([BOUND * 1.3] * 10, [], None),  # the clock is coarse
        ([BOUND * 1.02, BOUND * 1.03] * 5, [], None),
        ([BOUND * 1.02] * 4, [], None),
        ([BOUND * 1.02, BOUND * 1.0201] * 5, [], "such uniform times"),
        ([BOUND * 1.3, BOUND * 0.99] * 5, [], "below the roofline bound"),
        ([BOUND * 1.3, BOUND * 1.31] * 5, [BOUND, BOUND * 0.98], "back to back, below the roofline bound"),
    ],
)
def test_times_that_cannot_be_or_are_flat_at_the_bound_are_refused(
    cold: list[float], sustained: list[float], says: str | None
) -> None:
    found = plausibility.too_fast(Timing("a", cold, sustained_us=sustained), GEMM, H200)
    assert found is None if says is None else says in (found or "")


def test_what_a_launch_reads_may_come_from_the_l2_when_it_is_sustained() -> None:
    problem = VectorAddProblem(n=2**20, dtype="fp32")
    memory, compute = plausibility.roofline_bounds(problem, H200)
    assert compute < memory
    for l2_bytes, share, right in ((16 << 20, 0.01, True), (3 << 20, 0.5, False), (3 << 20, 0.8, True)):
        device = dataclasses.replace(H200, l2_bytes=l2_bytes)
        found = plausibility.too_fast(Timing("a", [2 * memory], sustained_us=[share * memory]), problem, device)
        assert (found is None) == right


def test_a_measurement_wrong_in_the_sample_that_was_kept_has_no_time() -> None:
    problem = VectorAddProblem(n=100, dtype="fp32", seed=3)
    case = judged.solved(problem)
    right = case.arrays["c"].pack(case.expected["c"])
    plan = SimpleNamespace(apply=lambda function, *arguments, seconds: {"c": right})

    def measured(kept: np.ndarray[Any, Any]) -> Any:
        made = plausibility.TimingOutcome(
            {"a": Timing("a", [9.0] * 3)}, Conditions(), 0.0, 9.0, 9.0, sampled={"c": kept}
        )
        return timing.measurement("a", problem, plan, made, H200, timing.Effort())

    assert measured(right.copy()).problem == str(problem)
    wrong = right.copy()
    wrong[5] += 1
    assert "wrong while it was timed, in a sample that was drawn: 1 of 100 elements" in measured(wrong)
