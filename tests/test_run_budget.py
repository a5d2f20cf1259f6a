"""A run with a budget: every operation first and cheap stages before dear ones, and the next run goes on from there."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import Result
from fakes import NumpyDevice
from synthetic import timed_run

from workbench import harness
from workbench.catalogue import registry
from workbench.cli import sessions
from workbench.devices import Device, open_device
from workbench.measure import timing
from workbench.model.launch import H200, MACHINES
from workbench.model.results import Run, StageResult, Verdict, Verification
from workbench.records import store
from workbench.run import budget, rounds
from workbench.run.rounds import EACH, FIRST, HEADLINE, Rounds, Step, depths
from workbench.run.verifier import Request, Session
from workbench.toolchain import compiler

VERIFY = harness.verify
ADD = registry.operations()["vector_add"]
NAMES = [stage.name for stage in ADD.stages]


def _result(step: Step, seconds: float = 1.0, verdict: Verdict = Verdict.PASS, last: int = 50) -> StageResult:
    verification = Verification(verdict, 0, step.problems, seconds=seconds)
    verification.examples = 0 if step.problems == last else step.problems
    return StageResult(step.stage.operation, step.stage.name, "", "", "", verification)


def _all(order: Rounds, seconds: Callable[[Step], float] = lambda step: 1.0) -> list[Step]:
    """Every step, each ended before the next one begins."""
    made = []
    while step := order.next(float("inf")):
        made.append(step)
        order.ended(step, _result(step, seconds(step), last=order.depths[-1]))
    return made


def test_a_stage_of_each_operation_and_track_comes_first_and_all_are_tried_before_one_is_tried_deeper() -> None:
    stages = registry.stages()
    steps = _all(Rounds(stages, 50))
    tracks = {(stage.operation, stage.track) for stage in stages}
    assert [(s.stage.operation, s.stage.track) in tracks for s in steps[: len(tracks)]] == [True] * len(tracks)
    assert {(s.stage.operation, s.stage.track) for s in steps[: len(tracks)]} == tracks
    assert [s.problems for s in steps] == [n for n in (1, 5, 20, 50) for _ in stages]


def test_cheap_stages_come_before_dear_ones_by_their_sources_and_later_by_their_time() -> None:
    stages = registry.stages()
    sizes = {stage.spec: sum(map(len, compiler.contents(stage.path).values())) for stage in stages}
    took = {stage.spec: float(number) for number, stage in enumerate(stages, 1)}
    steps = _all(Rounds(stages, 5), lambda step: took[step.stage.spec])
    for phase in (FIRST, EACH):
        known = [sizes[step.stage.spec] for step in steps if step.phase == phase]
        assert known == sorted(known)
    deeper = [took[step.stage.spec] for step in steps if step.problems == 5]
    assert deeper == sorted(deeper)


@pytest.mark.parametrize(("examples", "expected"), [(1, (1,)), (5, (1, 5)), (7, (1, 5, 7)), (200, (1, 5, 20, 50, 200))])
def test_the_last_round_has_as_many_problems_as_are_asked_for(examples: int, expected: tuple[int, ...]) -> None:
    assert depths(examples) == expected


def test_a_step_that_should_take_longer_than_what_is_left_is_not_begun() -> None:
    order = Rounds(ADD.stages, 50)
    for _ in ADD.stages:
        step = order.next(float("inf"))
        assert step
        order.ended(step, _result(step, {"naive": 1.0, "vectorized": 30.0, "grid_stride": 40.0}[step.stage.name]))
    step = order.next(10.0)
    assert step and (step.stage.name, step.problems) == ("naive", 5)
    assert order.next(10.0) is None
    assert not order.done


@pytest.mark.parametrize(("verdict", "goes_on"), [(Verdict.MISMATCH, False), (Verdict.UNSUPPORTED, True)])
def test_a_stage_that_failed_is_not_tried_deeper_and_one_without_a_problem_is(verdict: Verdict, goes_on: bool) -> None:
    order = Rounds(ADD.stages[:1], 50)
    step = order.next(1e9)
    assert step
    order.ended(step, _result(step, verdict=verdict))
    assert (order.next(1e9) is not None) == goes_on


def test_a_headline_stage_is_verified_for_its_times_before_other_stages_are_tried() -> None:
    order = Rounds(ADD.stages, 50, ["vector_add:grid_stride"])
    steps = _all(order)[:4]
    assert [(s.stage.name, s.phase, s.problems) for s in steps[:3]] == [
        ("naive", FIRST, 1),
        ("grid_stride", HEADLINE, 1),
        ("grid_stride", HEADLINE, 5),
    ]
    assert steps[3].phase == EACH


@pytest.mark.parametrize("name", registry.operations())
def test_each_operation_has_a_headline_with_the_most_work_that_some_stage_takes(name: str) -> None:
    operation = registry.operations()[name]
    stage, problem = rounds.headline(operation, "NVIDIA H200", H200) or pytest.fail(f"{name} has none")
    assert stage.supports(problem) is None
    able = [p for p in operation.suite if any(s.on(H200).supports(p) is None for s in operation.stages)]
    work = "bytes" if operation.metric == "GB/s" else "flops"
    assert getattr(problem.cost, work) == max(getattr(p.cost, work) for p in able)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The stages that were verified, in order, each on how many problems. Entry 99 of it is Ctrl-C."""
    calls: list[tuple[str, int]] = []

    def verify(stage: Any, device: Any, *, examples: int, seed: int, **options: Any) -> Verification:
        if len(calls) == int(os.environ.get("STOP", -1)):
            raise KeyboardInterrupt
        calls.append((stage.name, examples))
        return Verification(Verdict.PASS, seed, examples, {"exact": examples}, seconds=0.01)

    monkeypatch.setattr(harness, "verify", verify)
    return calls


@pytest.fixture
def run(tmp_path: Path, workbench: Callable[..., Result], device: NumpyDevice) -> Callable[..., Result]:
    def call(*options: str) -> Result:
        return workbench("run", "vector_add", "--output", str(tmp_path / "reports"), *options)

    return call


ROUNDS = [(name, depth) for depth in (1, 5, 20, 50) for name in NAMES]


def _saved(tmp_path: Path, device: str = "emulator") -> Run:
    (found,) = store.load(tmp_path / "reports" / device)
    return found


def test_a_run_with_time_enough_ends_with_every_stage_on_every_problem(
    run: Callable[..., Result], tried: list[tuple[str, int]], tmp_path: Path
) -> None:
    result = run("--budget", "1h")
    assert result.exit_code == 0, result.output
    assert sorted(tried) == sorted(ROUNDS)
    found = _saved(tmp_path)
    assert (
        found.finished and [(s.verification.problems, s.verification.examples) for s in found.stages] == [(50, 0)] * 3
    )
    assert all(s.resources for s in found.stages)
    lines = result.stderr.splitlines()
    said = "vector_add  3 passed, 0 failed of 3, 15 problems; in all 3 passed, 0 failed of 3; "
    assert any(line.startswith(said) and line.endswith(" left") for line in lines)
    assert lines[-3] == "3 passed, 0 failed of 3 stages, 150 problems; 0 not tried"
    assert lines[-2].startswith("more problems of each stage: workbench run vector_add --output")
    assert lines[-2].endswith(" --budget 1h --examples 200")
    assert lines[-1] == f"open {tmp_path / 'reports' / 'README.md'}"


@pytest.mark.parametrize("stop", [0, 2, 4, 11])
def test_the_same_command_goes_on_after_ctrl_c(
    stop: int,
    run: Callable[..., Result],
    tried: list[tuple[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STOP", str(stop))
    stopped = run("--budget", "1h", "--seed", "7")
    assert stopped.exit_code == 130, stopped.output
    done = list(tried)
    page = tmp_path / "reports" / "emulator" / "vector_add.md"
    if stop:
        assert "go on from here: workbench run vector_add" in stopped.stderr
        assert stopped.stderr.splitlines()[-1] == f"open {tmp_path / 'reports' / 'README.md'}"
        rows = [
            line.split("|")[2].strip()
            for line in page.read_text().splitlines()
            if "| 50 |" in line or "not tried" in line
        ]
        assert rows.count("not tried") == max(0, 3 - stop)
    monkeypatch.delenv("STOP")
    result = run("--budget", "1h", "--seed", "7")
    assert result.exit_code == 0, result.output
    assert sorted(tried) == sorted(ROUNDS) and tried[: len(done)] == done
    assert _saved(tmp_path).finished
    assert ("this run continues that of" in result.stderr) == bool(stop)


def test_a_page_says_how_deep_each_stage_was_tried(
    run: Callable[..., Result], tried: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP", "4")
    run("--budget", "1h")
    page = (tmp_path / "reports" / "emulator" / "vector_add.md").read_text()
    verified = page.partition("## What was verified")[2]
    assert verified.count(" 1 of 50 |") == 2 and verified.count(" 5 of 50 |") == 1


def test_a_budget_of_nearly_nothing_goes_one_step_further_each_time(
    run: Callable[..., Result], tried: list[tuple[str, int]], tmp_path: Path
) -> None:
    for count in (1, 2, 3):
        result = run("--budget", "0.000001s", "--seed", "7")
        assert result.exit_code == 0, result.output
        assert len(tried) == count
        assert f"{3 - count} not tried" in result.stderr.splitlines()[-3]
    assert {depth for _, depth in tried} == {1}
    index = (tmp_path / "reports" / "README.md").read_text()
    assert f"| gemm | 0 of 0 ({len(registry.operations()['gemm'].stages)} not tried)" in " ".join(index.split())


def test_processes_whose_time_is_up_before_any_stage_has_ended_wait_for_the_first(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.cli.budget._processes", lambda *_: 2)
    result = run("--budget", "0.000001s", "--seed", "7")
    assert result.exit_code == 0, result.output
    assert "2 not tried" in result.stderr.splitlines()[-3]


def test_a_run_without_a_budget_does_not_take_a_stage_for_verified_that_was_tried_on_fewer_problems(
    run: Callable[..., Result], tried: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP", "5")
    run("--budget", "1h", "--seed", "7")
    monkeypatch.delenv("STOP")
    tried.clear()
    assert run("--seed", "7").exit_code == 0
    assert tried == [(name, 50) for name in NAMES]


def test_a_run_without_a_budget_continues_without_a_gpu_too(
    run: Callable[..., Result], tried: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP", "2")
    assert run("--seed", "7").exit_code == 130
    monkeypatch.delenv("STOP")
    assert run("--seed", "7").exit_code == 0
    assert tried == [(name, 50) for name in NAMES]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "soon"), "'soon' is no time; write 60s, 5m or 1h, or none"),
        (("--budget", "5m", "--problem", "n=5"), "--problem names what is verified, so nothing is left to a budget"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(options: Any, message: str, run: Callable[..., Result]) -> None:
    result = run(*options)
    assert result.exit_code == 2 and message in result.stderr


def test_a_failure_is_said_at_once_and_ends_the_run_with_1(
    run: Callable[..., Result], device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.wrong_after = 0
    result = run("--budget", "1h", "--examples", "2")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    said = lines.index("vector_add:naive failed: mismatch")
    assert said < next(number for number, line in enumerate(lines) if line.startswith("vector_add  "))
    assert "smallest failing problem" in result.stdout
    assert lines[-3].startswith("0 passed, 3 failed of 3 stages")


@pytest.mark.long
def test_processes_verify_what_one_process_verifies(tmp_path: Path) -> None:
    stages = registry.select(["vector_add"])
    found = []
    for processes in (1, 2):
        session = Session(open_device("emulator"), 2, 7)
        work = budget.Budget(session, stages, 1e6, _Heard(), processes)
        assert work.work()
        found.append({s.stage: dataclasses.replace(s.verification, seconds=0) for s in session.run.stages})
    assert found[0] == found[1] and min(v.problems for v in found[0].values()) == 2  # and edge cases


class _Heard:
    """Hears how far a run has come."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


def _ends(stage: Any, *arguments: Any) -> StageResult:
    """Ends its process at one stage, as a fault of the engine would."""
    if stage.name == "vectorized":
        os._exit(3)
    return _there(stage, *arguments)


_there = budget._there


@pytest.mark.long
def test_a_process_that_ends_costs_neither_the_run_nor_the_stages_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_there", _ends)
    session = Session(open_device("emulator"), 1, 7)
    assert budget.Budget(session, registry.select(["vector_add"]), 1e6, _Heard(), 2).work()
    assert {s.stage: s.verification.verdict for s in session.run.stages} == dict.fromkeys(NAMES, Verdict.PASS)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The problems that were timed on a GPU, in order, with synthetic samples."""
    calls: list[str] = []
    samples = {(s.stage, m.label): m for s in timed_run("vector_add").stages for m in s.measurements}

    def bench(stage: Any, device: Any, problem: Any) -> Any:
        calls.append(f"{stage.name} {problem.label}")
        binary = compiler.compile_source(stage.path, stage.defines(problem)).binary_digest()
        effort = dataclasses.asdict(timing.Effort())
        changes = {"problem": str(problem), "binary_sha256": binary, "effort": effort}
        return dataclasses.replace(samples[stage.name, problem.label], **changes)

    monkeypatch.setattr(timing, "bench", bench)
    return calls


@pytest.mark.long
def test_on_a_gpu_the_headline_problem_is_timed_early_and_the_suite_at_the_end(
    run: Callable[..., Result],
    tried: list[tuple[str, int]],
    timed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "open_device", lambda name: NumpyDevice("cuda"))
    stage, problem = rounds.headline(ADD, "NVIDIA H200", H200) or pytest.fail("vector_add has none")
    early = f"{stage.name} {problem.label}"
    monkeypatch.setenv("STOP", "5")
    assert run("--budget", "1h", "--seed", "7").exit_code == 130
    assert timed == [early]
    assert (
        tried.index((stage.name, 5)) < tried.index(("grid_stride" if stage.name != "grid_stride" else "naive", 1)) + 2
    )
    monkeypatch.delenv("STOP")
    result = run("--budget", "1h", "--seed", "7")
    assert result.exit_code == 0, result.output
    assert sorted(timed) == sorted(f"{s.name} {p.label}" for s in ADD.stages for p in ADD.suite)
    found = _saved(tmp_path, "nvidia-h200")
    assert found.finished and all(len(s.measurements) == len(ADD.suite) and not s.untimed for s in found.stages)


def test_a_stage_and_its_parent_are_timed_on_the_problem_that_its_idea_is_for() -> None:
    device = cast(Device, SimpleNamespace(machine=MACHINES[90]))
    merge, parent, other = registry.select(["attention:overlapped_merge", "attention:split_keys", "attention:tma"])
    request = Request(device, 1, 0)
    assert merge.problem in request.to_time(merge) and merge.problem in request.to_time(parent)
    assert len(request.to_time(merge)) == 2 and merge.problem not in request.to_time(other)
