"""One stage that asks for too much, or raises what nobody expects, is one verdict; the other stages get theirs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke, said

from workbench.catalogue import registry
from workbench.catalogue.registry import SECONDS, ImportTooLong, imported
from workbench.cli import sessions
from workbench.devices import emulated
from workbench.devices.emulated import EmulatedDevice
from workbench.model.arrays import Array
from workbench.model.dtypes import FP32
from workbench.model.errors import WrongUsage
from workbench.model.launch import Launch, Plan
from workbench.model.stage import Stage

Change = Callable[[Stage[Any]], Stage[Any]]


class Rude(BaseException):
    """What no handler of Exception catches."""


def _raising(error: BaseException) -> Change:
    def plan_for(problem: Any, sizes: Any) -> Launch:
        raise error

    return lambda stage: dataclasses.replace(stage, plan_for=plan_for)


def _scratch(*shape: int) -> Change:
    def change(stage: Stage[Any]) -> Stage[Any]:
        def plan_for(problem: Any, sizes: Any) -> Plan:
            launch = stage.plan_for(problem, sizes)
            assert isinstance(launch, Launch)
            return Plan((launch,), scratch={"scratch": Array(shape, FP32)})

        return dataclasses.replace(stage, plan_for=plan_for)

    return change


def _no_array(stage: Stage[Any]) -> Stage[Any]:
    def plan_for(problem: Any, sizes: Any) -> Plan:
        launch = stage.plan_for(problem, sizes)
        assert isinstance(launch, Launch)
        return Plan((launch,), scratch={"scratch": 3})  # type: ignore[dict-item]

    return dataclasses.replace(stage, plan_for=plan_for)


def _variable(stage: Stage[Any]) -> Stage[Any]:
    """4 GiB of device memory in the source."""
    text = "__device__ float large[1 << 30];\n" + stage.path.read_text()
    return dataclasses.replace(stage, source="large.cu", code=text)


def _asking(error: BaseException) -> Change:
    def accepts(problem: Any) -> str | None:
        raise error

    return lambda stage: dataclasses.replace(stage, accepts=accepts)


STAGES: dict[str, tuple[Change, str, str]] = {
    "variable": (_variable, "launch_error", "an array does not have 4294967296 elements"),
    "negative": (_scratch(-1), "launch_error", "every extent has to be at least 1"),
    "gigabytes": (_scratch(5 << 30), "out_of_memory", "the scratch arrays have 21,474,836,480 bytes"),
    "no array": (_no_array, "launch_error", "it has to be an Array"),
    "generator exit": (_raising(GeneratorExit()), "launch_error", "GeneratorExit"),
    "system exit": (_raising(SystemExit(0)), "launch_error", "SystemExit"),
    "base exception": (_raising(Rude("rude")), "launch_error", "Rude: rude"),
    "memory": (_raising(MemoryError("of the stage")), "out_of_memory", "there is not enough memory"),
    "asked": (_asking(GeneratorExit()), "operation_error", "GeneratorExit"),
}


@pytest.mark.parametrize("name", STAGES)
def test_it_is_a_verdict_of_its_stage_and_the_next_one_passes(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, verdict, message = STAGES[name]
    operation = registry.operations()["vector_add"]
    monkeypatch.setattr(sessions, "open_device", lambda name: EmulatedDevice())
    right = operation.stages[0]
    monkeypatch.setattr(operation, "stages", [dataclasses.replace(change(right), name="rude"), right])
    done = invoke("run", "vector_add", "--device", "emulator", "--examples", "1", "--json")
    assert done.exit_code == 1
    rude, other = said(done)["stages"]
    assert (rude["verification"]["verdict"], other["verification"]["verdict"]) == (verdict, "pass")
    assert message in rude["verification"]["failure"]["message"]
    (saved,) = (here / "reports").glob("*/results/vector_add.json")
    assert [s["stage"] for s in json.loads(saved.read_text())["runs"][0]["stages"]] == ["rude", right.name]


def test_arrays_that_the_emulator_cannot_hold_are_a_verdict(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "MOST_BYTES", 64)
    monkeypatch.setattr(sessions, "open_device", lambda name: EmulatedDevice())
    done = invoke("verify", "vector_add:naive", "--problem", "n=1000", "--json")
    (stage,) = said(done)["stages"]
    assert done.exit_code == 1 and stage["verification"]["verdict"] == "out_of_memory"


@pytest.mark.parametrize(
    "text", ["while True:\n    pass\n", "while True:\n    try:\n        1 / 0\n    except Exception:\n        pass\n"]
)
def test_an_import_that_does_not_end_is_stopped(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(SECONDS, "0.2")
    (tmp_path / "endless_module.py").write_text(text)
    with pytest.raises(ImportTooLong, match=r"has not ended after 0\.2 s"):
        imported("endless_module")
    assert "endless_module" not in sys.modules
    assert imported("json") is json


def _project(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text('[tool.workbench]\nkernels = ["rude_kernels"]\n')
    (folder / "rude_kernels.py").write_text(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("while True:\n    pass\n", "has not ended after 0.2 s"),
        ("open('pipe').read()\n", "has not ended after 0.2 s"),
        ("raise GeneratorExit('rude')\n", "GeneratorExit: rude"),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
        ("raise BaseException('rude')\n", "BaseException: rude"),
    ],
)
def test_a_module_of_kernels_that_is_rude_is_a_trouble_of_the_project(
    text: str, said: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS, "0.2")
    os.mkfifo(here / "pipe")
    _project(here, text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = registry._load.__wrapped__(str(here))
    assert "vector_add" in found.operations
    (trouble,) = found.troubles
    assert "rude_kernels cannot be imported" in trouble and said in trouble


@pytest.mark.parametrize("text", ["soon", "0", "-1"])
def test_a_limit_of_imports_that_is_none_is_said_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, text)
    registry.reload()
    try:
        with pytest.raises(WrongUsage, match=f"^{SECONDS} is '{text}'; it has to be a positive number"):
            registry.select(["vector_add"])
    finally:
        registry.reload()
