"""The command line: what each command does, and that every wrong input ends in one message and the right exit code."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import Result
from command_line import invoke
from fakes import NumpyDevice
from synthetic import emulated_run, timed_run

from workbench import harness
from workbench.catalogue import registry
from workbench.cli import inspect, sessions
from workbench.cli import main as cli
from workbench.devices import DeviceUnavailable
from workbench.measure import timing, tuning
from workbench.model.results import AgreementRun, Run, Verdict
from workbench.records import store, tuned
from workbench.toolchain import compiler, disassembly
from workbench.toolchain.compiler import CompilerUnavailable

Workbench = Callable[..., Result]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[NumpyDevice]:
    """The device that every command gets; a test changes it to be wrong or to be a GPU."""
    made = NumpyDevice()
    monkeypatch.setattr(sessions, "open_device", lambda name: made)
    yield made


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """Run a command line in an empty folder; an exception that is no message fails the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    return invoke


def _one_message(result: Result, code: int, *parts: str) -> None:
    """The command ended with this code and a single message, without traceback, that contains all `parts`."""
    assert result.exit_code == code, result.output
    assert result.stderr.count("Error: ") == 1, result.stderr
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


# what the commands do


def test_list_shows_every_stage(workbench: Workbench) -> None:
    result = workbench("list")
    assert result.exit_code == 0
    for stage in registry.stages():
        assert stage.idea in result.stdout
        assert stage.source in result.stdout
    listed = json.loads(workbench("list", "--json", "naive").stdout)
    assert [entry["spec"] for entry in listed] == [f"{name}:naive" for name in sorted(registry.operations())]


def test_verify_passes_and_says_how_much_was_tried(workbench: Workbench, device: NumpyDevice) -> None:
    result = workbench("verify", "vector_add:naive", "--examples", "12", "--seed", "3")
    assert result.exit_code == 0
    (row,) = [line.split() for line in result.stdout.splitlines() if "vector_add:naive" in line]
    assert row[1:7] == ["pass", "12", "exact", "12,", "bounded", "12"]
    assert result.stderr.startswith("vector_add:naive pass: 12 problems")


def test_verify_shows_the_whole_evidence_of_a_failure(workbench: Workbench, device: NumpyDevice) -> None:
    device.wrong_after = 5
    result = workbench("verify", "vector_add:naive", "--examples", "20")
    assert result.exit_code == 1
    assert "vector_add:naive: mismatch" in result.stdout
    assert "smallest failing problem: n=6," in result.stdout
    assert "1 of 6 elements of c are wrong" in result.stdout
    assert "c[5]" in result.stdout
    (replay,) = [line for line in result.stdout.splitlines() if line.startswith("replay: ")]
    assert replay.startswith("replay: workbench verify vector_add:naive --device emulator --problem 'n=6,")


def test_the_replay_command_fails_alike(workbench: Workbench, device: NumpyDevice) -> None:
    import shlex

    device.wrong_after = 5
    first = json.loads(workbench("verify", "vector_add:naive", "--json").stdout)["stages"][0]["verification"]
    again = workbench(*shlex.split(first["failure"]["replay"])[1:], "--json")
    assert again.exit_code == 1
    failed_again = json.loads(again.stdout)["stages"][0]["verification"]["failure"]
    for failure in (failed_again, first["failure"]):  # what it looks like is seen in the largest failing problem
        assert failure.pop("looks_like")
        assert "#" in failure.pop("map")
        assert failure.pop("cells")["wrong_count"]
    assert failed_again == first["failure"]


def test_a_fault_of_the_device_is_the_verdict(workbench: Workbench, device: NumpyDevice) -> None:
    device.fault = "two threads write [c + 4] at stage.cu:7"
    result = workbench("verify", "vector_add:naive")
    assert result.exit_code == 1
    assert "race" in result.stdout
    assert device.fault in result.stdout


def test_json_is_all_there_is_on_stdout(workbench: Workbench, device: NumpyDevice, tmp_path: Path) -> None:
    result = workbench("verify", "vector_add", "--examples", "3", "--json")
    assert [s["verification"]["verdict"] for s in json.loads(result.stdout)["stages"]] == ["pass"] * 3
    (tmp_path / "copy.json").write_text(result.stdout)
    assert [s.stage for s in Run.load(tmp_path / "copy.json").stages] == ["naive", "vectorized", "grid_stride"]


def test_verify_takes_one_problem(workbench: Workbench, device: NumpyDevice) -> None:
    result = workbench("verify", "vector_add:naive", "--problem", "17,dtype=bf16,tier=exact", "--json")
    verified = json.loads(result.stdout)["stages"][0]["verification"]
    assert (verified["problems"], verified["tiers"]) == (1, {"exact": 1})


def test_run_in_the_emulator_writes_a_report_without_times(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path
) -> None:
    result = workbench("run", "vector_add", "--examples", "3", "--output", "out")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "emulator" / "vector_add.md").read_text()
    assert "says nothing about speed" in page
    assert (tmp_path / "out" / "README.md").is_file()
    (run,) = store.load(tmp_path / "out" / "emulator")
    assert [len(s.resources) > 0 for s in run.stages] == [True] * 3
    assert "out/emulator/results" in result.stderr
    assert "vector_add.md" in result.stderr


def _fake_bench(calls: list[str], reason: str | None = None) -> Callable[..., Any]:
    """`timing.bench` that gives synthetic measurements, or `reason` for not timing what is supported."""
    stages = {s.stage: s.measurements for s in timed_run("vector_add").stages}

    def bench(stage: Any, device: Any, problem: Any) -> Any:
        calls.append(f"{stage.spec} {problem.label}")
        measured = {m.label: m for m in stages[stage.name]}
        return reason or measured.get(problem.label, stages[stage.name][0])

    return bench


def test_run_of_one_stage_keeps_the_results_of_the_others(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path
) -> None:
    assert workbench("run", "vector_add", "--examples", "2", "--seed", "1").exit_code == 0
    assert workbench("run", "vector_add:naive", "--examples", "2", "--seed", "2").exit_code == 0
    runs = store.load(tmp_path / "reports" / "emulator")
    seeds = {stage.stage: run.seed for stage, run in store.current(runs)}
    assert seeds == {"naive": 2, "vectorized": 1, "grid_stride": 1}
    assert "| `vectorized` (B)" in (tmp_path / "reports" / "emulator" / "vector_add.md").read_text()


def test_run_of_everything_forgets_stages_that_are_gone(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = registry.operations()["vector_add"]
    assert workbench("run", "vector_add", "--examples", "2").exit_code == 0
    monkeypatch.setattr(registry, "stages", lambda: operation.stages[:1])
    assert workbench("run", "--examples", "2").exit_code == 0
    (run,) = store.load(tmp_path / "reports" / "emulator")
    assert [s.stage for s in run.stages] == ["naive"]


def test_run_on_a_gpu_times_what_passed(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.name, calls = "cuda", []
    monkeypatch.setattr(timing, "bench", _fake_bench(calls))
    result = workbench("run", "vector_add", "--examples", "3")
    assert result.exit_code == 0, result.output
    ladder = registry.operations()["vector_add"]
    assert calls == [f"{stage.spec} {problem.label}" for stage in ladder.stages for problem in ladder.suite]
    assert "GB/s" in result.stdout
    folder = tmp_path / "reports" / "nvidia-h200"
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*.*")} == {
        "results/vector_add.json",
        "vector_add.md",
        *(f"vector_add-{chart}.png" for chart in ("ladder", "heat-map", "roofline", "spread")),
    }


def test_bench_does_not_time_a_stage_that_fails(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.name, device.wrong_after, calls = "cuda", 0, []
    monkeypatch.setattr(timing, "bench", _fake_bench(calls))
    result = workbench("bench", "vector_add:naive", "--examples", "3")
    assert result.exit_code == 1
    assert calls == []
    assert "not timed on every problem: verification ended with mismatch" in result.stdout
    (saved,) = store.load(tmp_path / "reports" / "nvidia-h200")
    assert saved.stages[0].verification.verdict is Verdict.MISMATCH


def test_bench_verifies_random_problems_even_when_one_problem_is_timed(
    workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.name, calls = "cuda", []
    monkeypatch.setattr(timing, "bench", _fake_bench(calls))
    result = workbench("bench", "vector_add:naive", "--examples", "4", "--problem", "n=64", "--json")
    assert json.loads(result.stdout)["stages"][0]["verification"]["problems"] == 4
    assert len(calls) == 1


def test_a_stage_that_cannot_be_timed_is_a_failure(
    workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.name = "cuda"
    monkeypatch.setattr(timing, "bench", _fake_bench([], "wrong after timing: 3 elements"))
    result = workbench("bench", "vector_add:naive", "--examples", "2")
    assert result.exit_code == 1
    assert "vector_add:naive passed and could not be timed" in result.stderr
    assert "wrong after timing: 3 elements" in result.stderr


def test_report_is_made_again_from_results(workbench: Workbench, tmp_path: Path) -> None:
    emulated_run().save(tmp_path / "reports" / "emulator" / "results.json")
    result = workbench("report")
    assert result.exit_code == 0
    assert result.stdout.split() == ["reports/emulator/gemm.md", "reports/README.md"]
    assert json.loads(workbench("report", "--json").stdout) == result.stdout.split()


def test_inspect_shows_resources_and_ptx(workbench: Workbench) -> None:
    result = workbench("inspect", "vector_add:naive", "--problem", "n=100", "--ptx")
    assert result.exit_code == 0
    assert "blocks / SM" in result.stdout
    assert ".visible .entry vector_add" in result.stdout
    shown = json.loads(workbench("inspect", "vector_add:naive", "--json").stdout)
    variants = sorted(r["variant"] for r in shown["resources"])
    assert ["bfloat16" in v for v in variants] == [True, False]  # one for each type of the suite
    assert shown["listings"] == []


def test_inspect_prints_sass_through_a_disassembler(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text('#!/bin/sh\necho "SASS of $1"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = workbench("inspect", "vector_add:naive", "--problem", "n=100", "--sass")
    assert result.exit_code == 0
    assert ".cubin" in result.stdout.split("SASS of", 2)[2]


def test_doctor_says_what_is_missing_and_the_remedy(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CompilerUnavailable("NVRTC cannot be loaded; install it with: pip install this")

    monkeypatch.setattr(compiler, "nvrtc_version", missing)
    result = workbench("doctor")
    assert result.exit_code == 1
    assert "install it with: pip install this" in result.stdout
    diagnosis = json.loads(workbench("doctor", "--json").stdout)
    assert not diagnosis["usable"]
    (check,) = [c for c in diagnosis["checks"] if c["name"] == "NVRTC"]
    assert check["state"] == "missing"


def test_doctor_is_content_with_an_engine_and_a_compiler(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import types

    engine = types.SimpleNamespace(best_isa=lambda: "x86-64-v3")
    monkeypatch.setitem(sys.modules, "workbench.emulator", types.ModuleType("workbench.emulator"))
    monkeypatch.setitem(sys.modules, "workbench.emulator._engine", engine)  # type: ignore[arg-type]
    result = workbench("doctor")
    assert result.exit_code == 0
    assert "instruction set x86-64-v3" in result.stdout
    assert not (tmp_path / "reports").exists()


# what wrong input gets


def test_sources_that_hide_the_installed_package_say_so(tmp_path: Path) -> None:
    sources = Path(cli.__file__).parents[1]
    shutil.copytree(sources, tmp_path / "workbench", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    packages = [str(Path(package.__file__).parents[1]) for package in (np, click)]  # of which no .pth is read
    alone = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}
    command = [sys.executable, "-S", "-m", "workbench", "list"]
    done = subprocess.run(command, capture_output=True, text=True, env=alone, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"`pip install -e .` in {tmp_path}, or start Python in another folder" in line


@pytest.fixture
def empty_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuned.Table:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tuned.Table()


def test_tune_without_a_gpu_verifies_and_says_that_nothing_was_timed(
    workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table
) -> None:
    result = workbench("tune", "vector_add:vectorized", "--problem", "100", "--jobs", "1")
    assert result.exit_code == 0
    (row,) = [line.split() for line in result.stdout.splitlines() if "vector_add:vectorized" in line]
    assert row[1:] == ["n=128,dtype=fp32", *"-----", "5", "of", "5", "0"]
    assert "nothing was timed" in result.stderr
    assert not empty_table.entries()


def test_tune_fails_where_a_configuration_is_wrong(
    workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table
) -> None:
    device.wrong_after = 5
    result = workbench("tune", "vector_add:vectorized", "--problem", "100", "--jobs", "1", "--json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)
    assert not found["ok"]
    assert "right as it is declared: mismatch" in found["trouble"]
    assert "elements of c are wrong" in found["trials"][0]["reason"]


@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_tune_without_a_gpu_fails_where_the_time_is_up_before_all_is_verified(
    json_option: tuple[str, ...], workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table
) -> None:
    arguments = ("vector_add:vectorized", "--problem", "100", "--jobs", "1", "--budget", "0.000001")
    result = workbench("tune", *arguments, *json_option)
    assert result.exit_code == 1
    said = "vector_add:vectorized on n=128,dtype=fp32: the time was up before 4 of 5 configurations were verified"
    assert f"{said}; give it more with --budget" in result.stderr


def test_an_interrupted_tune_without_a_gpu_promises_nothing(
    workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = tuning.Tuning("vector_add:vectorized", "n=100", "n=128", False, 5, interrupted=True)
    monkeypatch.setattr(tuning, "tune", lambda *_, **__: stopped)
    result = workbench("tune", "vector_add:vectorized", "--problem", "100", "--jobs", "1")
    assert (result.exit_code, "what was found is in" in result.stderr) == (130, False)
    assert "Error: interrupted; the configurations were not all verified" in result.stderr


def test_tune_shows_what_it_found_and_show_shows_it_again(
    workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.name = "cuda"
    interrupted = False

    def tune(stage: Any, place: Any, problem: Any, table: tuned.Table, **options: Any) -> tuning.Tuning:
        assert options["seconds"] == 300
        key = tuned.Key.of(place.device.info().name, stage, problem)
        parameters = {"THREADS": 512}
        best = tuned.Entry(key, str(problem), parameters, 80.0, 100.0, 84.0, problem.cost.flops, True, "today")
        trial = tuned.Trial({"THREADS": 1024}, reason="spills 4 bytes of registers")
        table.add(best)
        table.add_trial(key, problem, trial, "today")
        return tuning.Tuning(
            stage.spec, str(problem), key.problem_class, True, 5, trials=[trial], best=best, interrupted=interrupted
        )

    monkeypatch.setattr(tuning, "tune", tune)
    command = ("tune", "vector_add:vectorized", "--problem", "100", "--budget", "5m", "--jobs", "1")
    result = workbench(*command)
    assert result.exit_code == 0
    for part in ("THREADS=512", "80.0 µs", "100 µs", "1.25x", "105.0 %", "1 of 5"):
        assert part in result.stdout
    assert "vector_add:vectorized THREADS=1024: spills 4 bytes of registers" in result.stdout
    shown = workbench("tune", "--show", "vector_add").stdout
    (row,) = [line for line in shown.splitlines() if "THREADS=512" in line]
    assert row.split()[-1] == "settled"
    assert "n=1048576,dtype=fp32" in shown  # which ships
    first = json.loads(workbench("tune", "--show", "vector_add", "--json").stdout)[0]
    assert first["entry"]["us"] == 80.0
    assert first["trials"][0]["reason"] == "spills 4 bytes of registers"
    interrupted = True
    _one_message(workbench(*command), 130, "what was found is in", str(empty_table.path))


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ([], 2, "name what is to be tuned"),
        (["gemm", "--budget", "soon"], 2, "write 60s, 5m or 1h"),
        (["vector_add:naive"], 1, "there is nothing to tune"),
        (["gemm:tensor_core", "--problem", "64x64x64,dtype=fp32,out=fp32"], 1, "there is nothing to tune"),
    ],
)
def test_what_cannot_be_tuned_is_said(
    arguments: list[str], code: int, part: str, workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table
) -> None:
    _one_message(workbench("tune", *arguments), code, part)


def test_a_table_that_cannot_be_read(workbench: Workbench, empty_table: tuned.Table) -> None:
    empty_table.path.parent.mkdir()
    empty_table.path.write_text("no database at all" * 100)
    _one_message(workbench("tune", "--show"), 1, "tuned.sqlite3 cannot be used", "remove it")


@pytest.mark.parametrize("command", ["list", "verify", "bench", "run", "inspect", "tune"])
def test_an_unknown_stage_gets_the_nearest(command: str, workbench: Workbench, device: NumpyDevice) -> None:
    _one_message(workbench(command, "gemm:niave"), 2, "'gemm:niave'", "did you mean gemm:naive")


def test_an_unknown_command_gets_the_nearest(workbench: Workbench) -> None:
    _one_message(workbench("verfy"), 2, "there is no command 'verfy'", "did you mean verify")
    _one_message(workbench("xyzzy"), 2, "the commands are", "doctor")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--device", "gpu"], ["'gpu' is not one of", "emulator"]),
        (["--examples", "0"], ["--examples"]),
        (["--examples", "many"], ["--examples", "integer"]),
        (["--seed", "-1"], ["--seed"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_a_wrong_option_is_wrong_usage(
    options: list[str], parts: list[str], workbench: Workbench, device: NumpyDevice
) -> None:
    _one_message(workbench("verify", *options), 2, *parts)


@pytest.mark.parametrize(
    ("spec", "problem", "parts"),
    [
        ("gemm", "m=4,dtype=fp8", ["dtype is 'fp8'", "bf16, fp16, fp32"]),
        ("gemm", "m=4,layout=tt", ["layout is 'tt'", "nn, nt"]),
        ("gemm", "m=0", ["m is 0", "at least 1"]),
        ("gemm", "64x32", ["64x32", "mxnxk"]),
        ("gemm", "mm=4", ["unknown field 'mm'"]),
        ("gemm", "m=four", ["m is 'four'", "whole number"]),
        ("gemm", "m=4,tier=sloppy", ["tier is 'sloppy'", "exact"]),
        ("naive", "k=4", ["is a problem of gemm, gemm_fp8, matvec and not of vector_add", "select one operation"]),
    ],
)
def test_a_wrong_problem_says_what_would_be_right(
    spec: str, problem: str, parts: list[str], workbench: Workbench, device: NumpyDevice
) -> None:
    _one_message(workbench("verify", spec, "--problem", problem), 2, *parts)


def test_a_problem_that_no_stage_takes_is_not_a_pass(
    workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive = registry.operations()["vector_add"].stages[0]
    picky = dataclasses.replace(naive, accepts=lambda problem: "only on Sundays")
    monkeypatch.setattr(registry.operations()["vector_add"], "stages", [picky])
    result = workbench("verify", "vector_add:naive", "--problem", "n=4")
    assert result.exit_code == 1
    assert "unsupported (only on Sundays)" in result.stdout


def test_a_device_that_is_not_there(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(name: str) -> None:
        raise DeviceUnavailable("no CUDA device can be used here; use --device emulator")

    monkeypatch.setattr(sessions, "open_device", unavailable)
    for command in ("verify", "bench", "run"):
        _one_message(workbench(command, "--device", "cuda"), 1, "use --device emulator")


def test_bench_without_a_gpu(workbench: Workbench, device: NumpyDevice) -> None:
    _one_message(workbench("bench"), 1, "bench needs a GPU")


def test_a_missing_compiler(workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*arguments: object) -> None:
        raise CompilerUnavailable("NVRTC cannot be loaded; install it with: pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(harness, "compile_source", unavailable)
    monkeypatch.setattr(inspect, "compile_source", unavailable)
    monkeypatch.setattr("workbench.toolchain.occupancy.compile_source", unavailable)
    for command in ("verify", "run", "inspect"):
        _one_message(workbench(command, "vector_add:naive"), 1, "pip install nvidia-cuda-nvrtc")


def test_a_message_does_not_tell_where_the_checkout_lies(workbench: Workbench, device: NumpyDevice) -> None:
    device.fault = f"two threads write at {registry.stages()[0].path}:7"
    result = workbench("verify", "vector_add:naive", "--json")
    failure = json.loads(result.stdout)["stages"][0]["verification"]["failure"]
    assert failure["message"] == "two threads write at cuda_src/gemm/1_naive.cu:7"


def _with_source(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Give the first stage of vector_add another source."""
    operation = registry.operations()["vector_add"]
    first = dataclasses.replace(operation.stages[0], source=str(path))
    monkeypatch.setattr(operation, "stages", [first, *operation.stages[1:]])


def test_a_source_that_does_not_compile_fails_alone(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('// first line\nextern "C" __global__ void vector_add() { undeclared = 1; }\n')
    _with_source(monkeypatch, source)
    result = workbench("verify", "vector_add", "--examples", "2")
    assert result.exit_code == 1
    assert "compile_error" in result.stdout
    assert "broken.cu(2)" in result.stdout
    assert "undeclared" in result.stdout
    assert result.stderr.count(" pass: ") == 2
    _one_message(workbench("inspect", "vector_add:naive"), 1, "broken.cu(2)")


def test_a_source_that_is_missing_fails_alone(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_source(monkeypatch, tmp_path / "absent.cu")
    result = workbench("verify", "vector_add", "--examples", "2")
    assert result.exit_code == 1
    assert f"cannot read the source {tmp_path / 'absent.cu'}: No such file" in result.stdout
    assert result.stderr.count(" pass: ") == 2


def test_a_report_folder_that_cannot_be_written_is_found_before_the_work(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(harness, "verify", lambda *a, **k: pytest.fail("work was done that cannot be saved"))
    for output in ("file", "file/deeper"):
        _one_message(workbench("run", "--output", output), 1, f"reports cannot be written in {output}", "--output")


@pytest.mark.parametrize("name", ["results/vector_add.json", "results.json"])
def test_a_damaged_record_is_not_overwritten(
    name: str, workbench: Workbench, device: NumpyDevice, tmp_path: Path
) -> None:
    path = tmp_path / "reports" / "emulator" / name
    path.parent.mkdir(parents=True)
    path.write_text("{ broken")
    _one_message(workbench("run", "vector_add:naive"), 1, f"{name} is not JSON")
    _one_message(workbench("report"), 1, f"{name} is not JSON")
    result = workbench("run", "vector_add:naive", "--fresh")
    _one_message(result, 1, "it was left as it is: bring it back (git checkout -- ")
    (remedy,) = re.findall(r"put it aside \(mv (\S+) (\S+)\)", result.stderr)
    assert path.read_text() == "{ broken"
    Path(remedy[0]).rename(remedy[1])
    assert workbench("run", "vector_add:naive").exit_code == 0
    assert Path(remedy[1]).read_text() == "{ broken"


def test_report_without_results(workbench: Workbench) -> None:
    _one_message(workbench("report"), 1, "there are no results in reports")


def test_sass_without_a_disassembler(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "find", lambda: None)
    result = workbench("inspect", "vector_add:naive", "--problem", "n=100", "--sass")
    _one_message(result, 1, "nvdisasm was not found", "CUDA toolkit")


@pytest.mark.parametrize("n", [10**13, 10**30])
def test_too_large_a_problem(n: int, workbench: Workbench, device: NumpyDevice) -> None:
    result = workbench("verify", "vector_add:naive", "--problem", f"n={n}")
    _one_message(result, 1, f"not enough memory for n={n}", "GiB")


def test_memory_that_runs_out(workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: Any, **options: Any) -> None:
        raise MemoryError("Unable to allocate 36.4 TiB")

    monkeypatch.setattr(harness, "verify", exhausted)
    _one_message(workbench("verify", "vector_add:naive"), 1, "not enough memory", "36.4 TiB")


@pytest.mark.parametrize("command", ["verify", "run"])
def test_an_interrupted_run_keeps_what_is_done(
    command: str, workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = harness.verify

    def verify(stage: Any, *arguments: Any, **options: Any) -> Any:
        if stage.name == "grid_stride":
            raise KeyboardInterrupt
        return real(stage, *arguments, **options)

    monkeypatch.setattr(harness, "verify", verify)
    result = workbench(command, "vector_add", "--examples", "2")
    _one_message(result, 130, "interrupted after 2 finished stages")
    assert "vector_add:vectorized" in result.stdout
    if command == "run":
        assert "their results are in reports/emulator/results" in result.stderr
        (saved,) = store.load(tmp_path / "reports" / "emulator")
        assert [s.stage for s in saved.stages] == ["naive", "vectorized"]


def test_an_interrupt_keeps_the_earlier_results_of_stages_not_reached(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workbench("run", "vector_add", "--examples", "2").exit_code == 0
    monkeypatch.setattr(harness, "verify", _interrupt)
    assert workbench("run", "vector_add", "--examples", "2").exit_code == 130
    runs = store.load(tmp_path / "reports" / "emulator")
    assert [s.stage for s, _ in store.current(runs)] == ["naive", "vectorized", "grid_stride"]


def _interrupt(*arguments: Any, **options: Any) -> None:
    raise KeyboardInterrupt


def test_an_unknown_exception_keeps_its_traceback(
    workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a bug of ours")

    monkeypatch.setattr(harness, "verify", broken)
    with pytest.raises(AssertionError, match="a bug of ours"):
        workbench("verify", "vector_add:naive")


def test_every_command_and_option_has_help(workbench: Workbench) -> None:
    assert "Exit codes" in workbench("--help").stdout
    for name, command in cli.main.commands.items():
        assert workbench(name, "--help").exit_code == 0
        assert command.help
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help, (name, parameter.name)  # type: ignore[attr-defined]


def test_agree_compares_two_devices_and_the_report_quotes_it(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path
) -> None:
    device.name = "cuda"
    emulated_run("vector_add").save(tmp_path / "reports" / store.slug(device.info()) / "results.json")
    result = workbench("agree", "vector_add:naive", "--examples", "7")
    assert result.exit_code == 0, result.output
    assert "they agree" in result.stdout
    record = AgreementRun.load(tmp_path / "reports" / store.slug(device.info()) / store.AGREEMENT)
    assert record.stages[0].tiers == {"exact": 7, "bounded": 7}
    assert workbench("report").exit_code == 0
    page = (tmp_path / "reports" / store.slug(device.info()) / "vector_add.md").read_text()
    assert "| `naive` |          7 | exact 7, bounded 7" in page


def test_devices_that_disagree_fail(workbench: Workbench, device: NumpyDevice) -> None:
    device.wrong_after = 3
    result = workbench("agree", "vector_add:naive", "--examples", "20")
    assert result.exit_code == 1
    assert "elements of c are wrong" in result.stdout


@pytest.mark.parametrize("columns", ["60", "80", "100", "180"])
def test_a_narrow_terminal_breaks_no_word_into_pieces(
    columns: str, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = workbench("inspect", "gemm:tma_pipeline").stdout + workbench("tune", "--show", "gemm").stdout
    words = shown.split()
    for word in ("gemm_tma_pipeline", "TRANS_B=1", "229,440", "occupancy", "memory", "shipped"):
        assert word in words


def test_what_was_not_judged_has_no_figure(workbench: Workbench, device: NumpyDevice) -> None:
    device.wrong_after = 0
    result = workbench("verify", "vector_add:naive", "--problem", "n=6,tier=exact")
    assert "0.000" not in result.stdout
    assert "0 problems" not in result.stderr
