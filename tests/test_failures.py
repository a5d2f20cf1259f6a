"""A problem that a stage failed on is kept, tried first the next time, and can be repeated by its id."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from command_line import invoke, said
from fakes import NumpyDevice

from workbench import harness
from workbench.catalogue import registry
from workbench.cli import sessions
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.problem import Tier
from workbench.model.results import Failure, Verdict, Verification
from workbench.model.stage import Stage
from workbench.records import versions
from workbench.records.versions import failure_id
from workbench.run import api, verifier

SPEC = "vector_add:naive"
FAILED = "n=6,dtype=fp32,tier=exact,seed=0"

Workbench = Callable[..., Result]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> NumpyDevice:
    made = NumpyDevice()
    monkeypatch.setattr(sessions, "open_device", lambda name: made)
    monkeypatch.setattr(api, "open_device", lambda name: made)
    return made


@pytest.fixture
def workbench(here: Path, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.setenv("COLUMNS", "200")

    return invoke


def stage() -> Stage:
    (found,) = registry.select([SPEC])
    return found


def remember(problem: str, device: str = "emulator", verdict: Verdict = Verdict.MISMATCH) -> None:
    versions.of(stage()).remember(stage(), device, Failure(verdict, problem, "wrong", ""))


def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The problems that are judged from now on, in order."""
    seen: list[str] = []
    real = harness.run_problem

    def run_problem(*arguments: object, **named: object) -> object:
        seen.append(str(arguments[2]))
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(harness, "run_problem", run_problem)
    return seen


def test_what_failed_is_tried_first_until_it_passes_and_then_on(
    workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.wrong_after = 5
    result = workbench("verify", SPEC)
    (identity,) = re.findall(r"kept as (\w{8}): workbench replay \1", result.stdout)
    (kept,) = versions.every_failure()
    assert (kept.id, kept.spec, kept.verdict) == (identity, SPEC, Verdict.MISMATCH)
    assert kept.problem.startswith("n=6,")
    seen = tried(monkeypatch)
    assert workbench("verify", SPEC).exit_code == 1
    assert set(seen) == {kept.problem}  # nothing is drawn, and nothing is left to be made smaller
    seen.clear()
    device.wrong_after = None
    assert workbench("verify", SPEC, "--examples", "5").exit_code == 0
    assert seen[0] == kept.problem
    count = len(seen)
    assert len({re.sub("tier=[a-z]+", "", problem) for problem in seen[1:]}) == 5
    assert workbench("verify", SPEC, "--examples", "5", "--seed", "9").exit_code == 0
    assert seen[count] == kept.problem


def test_a_failure_is_repeated_by_its_id_or_the_beginning_of_it(workbench: Workbench, device: NumpyDevice) -> None:
    remember(FAILED)
    identity = failure_id(SPEC, FAILED)
    listed = workbench("replay").stdout
    assert identity in listed
    assert FAILED in listed
    device.wrong_after = 5
    for name in (identity, identity[:4]):
        result = workbench("replay", name, "--json")
        assert result.exit_code == 1
        assert said(result)["stages"][0]["verification"]["failure"]["problem"] == FAILED
    device.wrong_after = None
    assert workbench("replay", identity).exit_code == 0
    assert [f["id"] for f in said(workbench("replay", "--json"))["failures"]] == [identity]  # it may come back


def test_an_id_that_there_is_not(workbench: Workbench) -> None:
    result = workbench("replay", "0123")
    assert (result.exit_code, result.stderr.count("Error: ")) == (1, 1)
    assert "no failure 0123 is kept; workbench replay lists those that are" in result.stderr
    assert "no failure is kept" in workbench("replay").stdout
    for n in range(1, 40):
        remember(f"n={n},dtype=fp32,tier=exact,seed=0")
    result = workbench("replay", "")
    assert result.exit_code == 1
    assert "may be any of" in result.stderr


def test_failures_found_from_python_are_kept_too(device: NumpyDevice) -> None:
    device.wrong_after = 5
    outcome = api.verify(SPEC)
    (kept,) = versions.every_failure()
    assert f"kept as {kept.id}" in str(outcome)


@pytest.mark.parametrize("verdict", [Verdict.COMPILE_ERROR, Verdict.WEAK_CHECK, Verdict.TAMPERING])
def test_what_is_no_failure_of_a_problem_is_not_kept(
    verdict: Verdict, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Verification(verdict, 0, failure=Failure(verdict, "n=1", "it fails", ""))
    monkeypatch.setattr(harness, "verify", lambda *_, **__: failing)
    verifier.verify(stage(), device)
    assert versions.every_failure() == []


def test_a_string_in_the_place_of_the_source_is_another_kernel(device: NumpyDevice) -> None:
    device.wrong_after = 5
    other = stage().with_code('extern "C" __global__ void vector_add_naive(float*) {}\n')
    assert verifier.verify(other, device, examples=4).verdict is Verdict.MISMATCH
    assert versions.every_failure() == []


def test_the_last_failures_stay(device: NumpyDevice) -> None:
    for n in range(1, 30):
        remember(f"n={n},dtype=fp32,tier=exact,seed=0")
    remember("n=12,dtype=fp32,tier=exact,seed=0")
    kept = [f.problem.split(",")[0] for f in versions.every_failure()]
    assert kept == ["n=12", *(f"n={n}" for n in range(29, 12, -1)), "n=11", "n=10"]
    assert len(kept) == versions.MOST_FAILURES


def test_large_problems_of_a_gpu_are_not_for_the_emulator(device: NumpyDevice) -> None:
    remember("n=4000000,dtype=fp32,tier=exact,seed=0", "cuda")
    remember("n=7,dtype=fp32,tier=exact,seed=0", "cuda")
    remember("n=30000,dtype=fp32,tier=exact,seed=0", "emulator")
    assert [p.n for p in verifier.failed_before(stage(), device)] == [30000, 7]
    assert [p.n for p in verifier.failed_before(stage(), NumpyDevice("cuda"))] == [30000, 7, 4000000]


def test_a_record_does_not_depend_on_what_is_remembered(device: NumpyDevice) -> None:
    forgetful = harness.verify(stage(), device, examples=5)
    outcome = harness.verify(stage(), device, examples=5, again=[VectorAddProblem(n=6, tier=Tier.EXACT)])
    assert dataclasses.replace(outcome, seconds=forgetful.seconds) == forgetful


def test_a_problem_that_the_operation_no_longer_has_is_passed_over(
    device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember("n=7,order=5")
    remember("n=8,dtype=fp32,tier=exact,seed=0")
    assert [p.n for p in verifier.failed_before(stage(), device)] == [8]
    narrow = dataclasses.replace(stage(), accepts=lambda p: "too long" if p.n > 4 else None)
    seen = tried(monkeypatch)
    problem = VectorAddProblem(n=8, tier=Tier.EXACT)
    assert harness.verify(narrow, device, examples=2, again=[problem]).verdict is Verdict.PASS
    assert str(problem) not in seen
