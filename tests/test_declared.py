"""A mistake in the Python code of an operation is a verdict that names its line, and costs its own stages only."""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke, said
from fakes import NumpyDevice
from hypothesis import strategies as st

from workbench import harness
from workbench.catalogue import registry
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.errors import BadOperation
from workbench.model.operation import Operation
from workbench.model.problem import Size
from workbench.model.results import Failure, Verdict
from workbench.model.stage import Stage


def fail(*_: Any, **__: Any) -> Any:
    return undefined  # type: ignore[name-defined]  # noqa: F821


LINE = f'{__file__}", line {fail.__code__.co_firstlineno + 1}, in fail'


def stage() -> Stage[Any]:
    (found,) = registry.select(["vector_add:naive"])
    return found


def failure_of(changed: Stage[Any]) -> Failure:
    outcome = harness.verify(changed, NumpyDevice(), examples=3)
    assert outcome.verdict is Verdict.OPERATION_ERROR
    assert outcome.failure is not None
    return outcome.failure


@pytest.mark.parametrize("method", ["arrays", "inputs", "reference", "bound", "negative_controls", "label", "cost"])
def test_what_raises_is_named_with_its_line(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instead = property(fail) if method in ("label", "cost") else fail
    monkeypatch.setattr(VectorAddProblem, method, instead)
    failure = failure_of(stage())
    assert LINE in failure.message
    assert "NameError: name 'undefined' is not defined" in failure.message
    assert "workbench/harness" not in failure.message
    assert f"--problem '{failure.problem}'" in failure.replay


WRONG: list[tuple[str, Callable[..., Any], str]] = [
    (
        "inputs",
        lambda p: {"a": np.zeros(p.n)},
        "inputs of the operation gives a dict with a; it has to give a dict with a, b",
    ),
    ("inputs", lambda p: None, "inputs of the operation gives None; it has to give a dict with a, b"),
    ("reference", lambda p, i: {"c": np.zeros(p.n + 1)}, "it has to be an array of shape"),
    ("reference", lambda p, i: {"c": 1.0}, "reference of the operation gives c 1.0; it has to be an array of shape"),
    (
        "negative_controls",
        lambda p, i, e: {"shorter": {"c": e["c"][1:]}},
        "negative_controls, for `shorter`, gives c of shape",
    ),
]


@pytest.mark.parametrize(("method", "instead", "says"), WRONG)
def test_what_has_another_form_is_said_with_the_right_one(
    method: str, instead: Callable[..., Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VectorAddProblem, method, instead)
    assert says in failure_of(stage()).message


def of_another(problems: Callable[[Size, tuple[int, ...]], Any]) -> Stage[Any]:
    operation: Operation[Any] = dataclasses.replace(registry.operations()["vector_add"], problems=problems)
    return dataclasses.replace(stage(), owner=operation)


def unlike_the_problem(size: Size, edges: tuple[int, ...]) -> Any:
    return st.builds(VectorAddProblem, m=st.integers(1, 9))


def test_a_strategy_that_fails_is_named_with_its_line() -> None:
    failure = failure_of(of_another(fail))
    assert LINE in failure.message
    failure = failure_of(of_another(unlike_the_problem))
    assert f"{__file__}:{unlike_the_problem.__code__.co_firstlineno}, cannot be used:" in failure.message
    assert failure.message.endswith("TypeError: VectorAddProblem.__init__() got an unexpected keyword argument 'm'")
    assert len(failure.message.splitlines()) == 2
    assert failure.replay == "workbench verify vector_add:naive --device emulator"


def test_what_says_whether_a_problem_is_supported_may_fail_too() -> None:
    assert LINE in failure_of(dataclasses.replace(stage(), accepts=fail)).message


def test_what_the_workbench_raises_while_a_problem_is_judged_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "run_problem", fail)
    with pytest.raises(NameError) as caught:
        harness.verify(stage(), NumpyDevice(), examples=3)
    assert LINE in "".join(traceback.format_exception(caught.value))


def test_the_other_stages_go_on_and_the_results_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VectorAddProblem, "reference", fail)
    arguments = ["vector_add:naive", "matvec:naive", "--device", "emulator", "--examples", "1", "--output", tmp_path]
    result = invoke("run", *arguments, "--json")
    assert result.exit_code == 1
    files = [tmp_path / "emulator" / "results" / f"{name}.json" for name in ("vector_add", "matvec")]
    saved = [stage for file in files for stage in json.loads(file.read_text())["runs"][0]["stages"]]
    for stages in (saved, said(result)["stages"]):
        assert [s["verification"]["verdict"] for s in stages] == ["operation_error", "pass"]
    assert "operation_error" in (tmp_path / "emulator" / "vector_add.md").read_text()


@pytest.mark.parametrize("command", [("profile",), ("inspect", "--problem", "n=4")])
def test_other_commands_say_it_in_one_error(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VectorAddProblem, "arrays" if command[0] == "inspect" else "reference", fail)
    result = invoke(command[0], "vector_add:naive", *command[1:])
    assert (result.exit_code, result.stderr.count("Error: ")) == (1, 1 + result.stderr.count("NameError: "))
    assert LINE in result.stderr


def test_a_function_that_only_some_commands_call_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = registry.loaded()
    own = dataclasses.replace(made, modules={**made.modules, "vector_add": sys.modules[__name__]})
    monkeypatch.setattr(registry, "loaded", lambda: own)
    monkeypatch.setattr(Stage, "defines", fail)
    result = invoke("inspect", "vector_add:naive")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the Python code of an operation fails:\n")
    assert LINE in result.stderr


def test_memory_that_runs_out_is_no_mistake_of_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    def eat(*_: Any) -> Any:
        raise MemoryError("8 TiB")

    monkeypatch.setattr(VectorAddProblem, "reference", eat)
    with pytest.raises(MemoryError):
        harness.Case.of(VectorAddProblem(n=3))
    monkeypatch.setattr(VectorAddProblem, "reference", fail)
    with pytest.raises(BadOperation):
        harness.Case.of(VectorAddProblem(n=3))


def test_a_launch_function_is_named_by_its_own_line_where_a_library_raised() -> None:
    def helper(sizes: list[int]) -> int:
        return int(np.concatenate([sizes, 5]).max())

    def plan_for(problem: Any, size: Any) -> Any:
        return helper([problem.n])

    outcome = harness.verify(dataclasses.replace(stage(), plan_for=plan_for), NumpyDevice(), examples=1)
    assert outcome.failure is not None
    assert outcome.verdict is Verdict.LAUNCH_ERROR
    line = helper.__code__.co_firstlineno + 1
    said = f"{__file__}:{line}: return int(np.concatenate([sizes, 5]).max()): ValueError: all the input"
    assert said in outcome.failure.message


def test_what_a_launch_function_raises_begins_no_line_of_the_output() -> None:
    def plan_for(problem: Any, size: Any) -> Any:
        raise ValueError("no\n1 of 1 stages passed")

    outcome = harness.verify(dataclasses.replace(stage(), plan_for=plan_for), NumpyDevice(), examples=1)
    assert outcome.failure is not None
    lines = outcome.failure.message.splitlines()
    assert "1 of 1 stages passed" in outcome.failure.message and not any(line.startswith("1 of") for line in lines)
