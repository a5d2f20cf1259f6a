"""On a GPU: a kernel that hangs, traps or writes where it may not is a verdict, and the stage after it passes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench import harness
from workbench.catalogue import registry
from workbench.checks import hazards
from workbench.devices import Device, open_device
from workbench.kernels.vector_add import VectorAddProblem
from workbench.measure import timing
from workbench.model.results import Measurement, Verdict
from workbench.toolchain.compiler import compile_stage

pytestmark = pytest.mark.gpu

STATEMENT = "if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));"


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """The GPU, in a worker process that has already launched something."""
    opened = open_device("cuda")
    (right,) = registry.select(["vector_add:naive"])
    assert harness.verify(right, opened, examples=3, seed=0).verdict is Verdict.PASS
    yield opened
    opened.close()  # type: ignore[attr-defined]


def planted(tmp_path: Path, statement: str) -> Any:
    """vector_add:naive with another statement in place of its only one."""
    (stage,) = registry.select(["vector_add:naive"])
    text = stage.path.read_text()
    assert text.count(STATEMENT) == 1
    source = tmp_path / "planted.cu"
    source.write_text(text.replace(STATEMENT, statement))
    return dataclasses.replace(stage, source=str(source))


@pytest.mark.parametrize(
    ("statement", "verdicts"),
    [
        ("for (;;) __nanosleep(100);", {Verdict.TIMEOUT}),
        ("*reinterpret_cast<volatile int*>(16) = 1;", {Verdict.ILLEGAL_ACCESS}),
        ("*reinterpret_cast<volatile int*>(reinterpret_cast<char*>(c) + 1) = 1;", {Verdict.MISALIGNED}),
        ("__trap();", {Verdict.TRAP, Verdict.CRASH}),
        (STATEMENT.replace("i < n", "i <= n"), {Verdict.OUT_OF_BOUNDS}),
        (STATEMENT.replace("i < n", "i < n - 1"), {Verdict.MISMATCH}),
    ],
    ids=["hang", "illegal", "misaligned", "trap", "red_zone", "never_written"],
)
def test_a_failure_costs_its_own_verdict_only(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, verdicts: set[Verdict]
) -> None:
    monkeypatch.setattr(harness, "SHRINK_SECONDS", 1.0)
    stage = planted(tmp_path, statement)
    compile_stage(stage, VectorAddProblem(n=1))
    started = time.monotonic()
    outcome = hazards.beside(stage, device, examples=5, seed=0)
    took = time.monotonic() - started
    assert outcome.verdict in verdicts, outcome
    assert "the emulator" in outcome.failure.message
    if outcome.verdict is Verdict.TIMEOUT:
        assert took < 5 + 5
    (right,) = registry.select(["vector_add:vectorized"])
    assert harness.verify(right, device, examples=3, seed=0).verdict is Verdict.PASS


def test_wrong_arguments_never_reach_the_gpu(device: Device, tmp_path: Path) -> None:
    stage = planted(tmp_path, STATEMENT)
    plan = stage.plan_for
    short = dataclasses.replace(
        stage, plan_for=lambda p, size: dataclasses.replace(plan(p, size), args=plan(p, size).args[:-1])
    )
    outcome = harness.verify(short, device, examples=2, seed=0)
    assert outcome.verdict is Verdict.LAUNCH_ERROR
    assert "4 parameters" in outcome.failure.message


def test_a_stage_is_timed_in_the_worker_and_a_hang_there_is_a_reason(device: Device, tmp_path: Path) -> None:
    problem = VectorAddProblem(n=1 << 20, dtype="fp32")
    effort = timing.Effort(seconds=0.1, warm_up_seconds=0.01, sustained_seconds=0.01, enough=9, most=9)
    (right,) = registry.select(["vector_add:naive"])
    assert isinstance(timing.bench(right, device, problem, effort), Measurement)
    reason = timing.bench(planted(tmp_path, "for (;;) __nanosleep(100);"), device, problem, effort)
    assert "was stopped" in str(reason)
    assert isinstance(timing.bench(right, device, problem, effort), Measurement)
