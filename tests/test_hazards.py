"""While a GPU verifies a stage, the emulator looks for hazards that right answers hide."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import wait

import pytest
from fakes import NumpyDevice

from workbench import harness
from workbench.catalogue import registry
from workbench.checks import hazards
from workbench.devices import open_device
from workbench.judge.case import Case
from workbench.judge.draw import Trial
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.problem import Problem, Size
from workbench.model.results import Verdict
from workbench.model.stage import Stage

RACES = """
#include "tile/convert.cuh"
extern "C" __global__ void vector_add_naive(const IN* a, const IN* b, IN* c, long long n) {
  __shared__ float zeros[THREADS];
  zeros[threadIdx.x] = 0;
  const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]) + zeros[threadIdx.x ^ 32]);
}
"""
"""On a device whose shared memory holds zeros its answers are right."""


@pytest.fixture(autouse=True)
def _small_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the size that is for a GPU take the emulator seconds."""
    monkeypatch.setattr(registry.operations()["vector_add"], "cuda_size", Size(300, 300))


def naive() -> Stage[VectorAddProblem]:
    return registry.operations()["vector_add"].stages[0]


def test_a_hazard_that_the_emulator_finds_names_what_is_wrong_on_the_gpu() -> None:
    result = hazards.beside(naive().with_code(RACES), NumpyDevice("cuda", wrong_after=0), examples=5)
    assert result.verdict is result.failure.verdict is Verdict.RACE
    assert "\nthe GPU's answers: mismatch: " in result.failure.message
    assert result.failure.hazards[0].code == "race"


def test_a_wrong_result_of_the_gpu_in_which_the_emulator_finds_nothing_keeps_its_name() -> None:
    result = hazards.beside(naive(), NumpyDevice("cuda", wrong_after=0), examples=5)
    assert result.verdict is Verdict.MISMATCH
    assert "the emulator finds nothing wrong with the same problem" in result.failure.message


def test_the_emulator_looks_while_the_gpu_is_still_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()
    run_problem = harness.run_problem

    class Waiting(NumpyDevice):
        def run(self) -> None:
            assert looked.wait(60)

    def noted(stage: Stage[VectorAddProblem], device: object, *arguments: object, **named: object) -> object:
        if not isinstance(device, Waiting):
            looked.set()
        return run_problem(stage, device, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(harness, "run_problem", noted)
    assert hazards.beside(naive(), Waiting("cuda"), examples=3).verdict is Verdict.PASS


def test_references_are_computed_by_threads_and_change_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    made, of = list[bool](), Case.of

    def noted(problem: Problem) -> Case:
        made.append(threading.current_thread() is threading.main_thread())
        return of(problem)

    monkeypatch.setattr(hazards, "HazardSearch", lambda stage, seed: contextlib.nullcontext())
    monkeypatch.setattr(Case, "of", noted)
    outcome = hazards.beside(naive(), NumpyDevice("cuda"), examples=8, seed=3)
    assert made.count(False) == sum(outcome.tiers.values()) > 8
    alone = harness.verify(naive(), NumpyDevice("cuda"), examples=8, seed=3)
    alone.seconds = outcome.seconds
    assert outcome == alone


def test_processes_that_help_change_no_verdict() -> None:
    device, verified = open_device("emulator", isolate=True), []
    with hazards._ahead(naive(), device, 2) as ahead:
        for how in ({}, {"call": ahead, "before": ahead.begin}):
            verified.append(harness.verify(naive(), device, examples=12, seed=5, **how))
            verified[-1].seconds = 0
    assert verified[0] == verified[1] and verified[0].verdict is Verdict.PASS
    assert not ahead._begun


def test_each_variant_is_compiled_once_ahead_of_its_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(NumpyDevice, "compile", lambda device, stage, problem: compiled.append(problem.dtype))
    problems = [VectorAddProblem(n=n, dtype=dtype) for n in (3, 5) for dtype in ("fp32", "fp16")]
    with hazards._ahead(naive(), NumpyDevice("cuda"), 0) as ahead:
        assert len([*ahead.begin(iter([Trial(p, (p.tier,), False) for p in problems]))]) == 4
        wait(ahead._compiled.values())  # type: ignore[attr-defined]
    assert sorted(compiled) == ["fp16", "fp32"]
