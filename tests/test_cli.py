"""The command line: what each command does and shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import Workbench, said
from fakes import NumpyDevice
from synthetic import emulated_run, timed_run

from workbench.catalogue import registry
from workbench.cli import main as cli
from workbench.measure import timing
from workbench.model.results import AgreementRun, Run, Verdict
from workbench.records import store
from workbench.toolchain import compiler, disassembly
from workbench.toolchain.compiler import CompilerUnavailable


def test_list_shows_every_stage(workbench: Workbench) -> None:
    result = workbench("list")
    assert result.exit_code == 0
    for stage in registry.stages():
        assert stage.idea in result.stdout
        assert stage.source in result.stdout
    listed = said(workbench("list", "--json", "naive"))["stages"]
    assert [entry["spec"] for entry in listed] == [f"{name}:naive" for name in sorted(registry.operations())]


def test_verify_passes_and_says_how_much_was_tried(workbench: Workbench, device: NumpyDevice) -> None:
    result = workbench("verify", "vector_add:naive", "--examples", "12", "--seed", "3")
    assert result.exit_code == 0
    (row,) = [line.split() for line in result.stdout.splitlines() if "vector_add:naive" in line]
    assert row[1:4] == ["pass", "12", "exact"] and 3 < int(row[4].rstrip(",")) <= 12  # those that have such inputs
    assert row[5:7] == ["bounded", "12"]
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
    first = said(workbench("verify", "vector_add:naive", "--json"))["stages"][0]["verification"]
    again = workbench(*shlex.split(first["failure"]["replay"])[1:], "--json")
    assert again.exit_code == 1
    failed_again = said(again)["stages"][0]["verification"]["failure"]
    for failure in (failed_again, first["failure"]):  # what it looks like is seen in the largest failing problem
        assert failure.pop("looks_like")
        assert "#" in failure.pop("map")
        assert failure.pop("cells")["wrong_count"]
    # the replay solves this problem alone, and tries no smaller one
    assert (first["failure"].pop("smallest"), failed_again.pop("smallest")) == (True, False)
    assert failed_again == first["failure"]


def test_a_fault_of_the_device_is_the_verdict(workbench: Workbench, device: NumpyDevice) -> None:
    device.fault = "two threads write [c + 4] at stage.cu:7"
    result = workbench("verify", "vector_add:naive")
    assert result.exit_code == 1
    assert "race" in result.stdout
    assert device.fault in result.stdout


def test_json_is_all_there_is_on_stdout(workbench: Workbench, device: NumpyDevice, tmp_path: Path) -> None:
    result = workbench("verify", "vector_add", "--examples", "3", "--json")
    assert [s["verification"]["verdict"] for s in said(result)["stages"]] == ["pass"] * 3
    (tmp_path / "copy.json").write_text(result.stdout)
    assert [s.stage for s in Run.load(tmp_path / "copy.json").stages] == ["naive", "vectorized", "grid_stride"]


def test_verify_takes_one_problem(workbench: Workbench, device: NumpyDevice) -> None:
    result = workbench("verify", "vector_add:naive", "--problem", "17,dtype=bf16,tier=exact", "--json")
    verified = said(result)["stages"][0]["verification"]
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


def test_the_last_line_of_a_run_says_what_passed_and_which_page_to_open(
    workbench: Workbench, device: NumpyDevice
) -> None:
    result = workbench("run", "vector_add", "--examples", "2")
    assert result.stderr.splitlines()[-1] == "3 of 3 stages passed; open reports/README.md"


def test_help_has_every_command_in_a_section_with_a_whole_sentence_that_fits(workbench: Workbench) -> None:
    text = workbench("--help").stdout.partition("Options:")[2]
    sentences = dict(re.findall(r"^  ([a-z]+) +(.*)$", text, re.MULTILINE))
    assert set(cli.main.commands) <= set(sentences)
    for name in cli.main.commands:
        assert sentences[name].endswith(".") and not sentences[name].endswith("..."), name
    for shown in (text, *(workbench(name, "--help").stdout for name in cli.main.commands)):
        assert max(map(len, shown.splitlines())) <= 80, shown


def test_run_of_everything_forgets_stages_that_are_gone(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = registry.operations()["vector_add"]
    assert workbench("run", "vector_add", "--examples", "2").exit_code == 0
    monkeypatch.setattr(registry, "stages", lambda: operation.stages[:1])
    assert workbench("run", "--examples", "2").exit_code == 0
    (run,) = store.load(tmp_path / "reports" / "emulator")
    assert [s.stage for s in run.stages] == ["naive"]


@pytest.mark.long
@pytest.mark.parametrize("command", ["bench", "run"])
def test_a_stage_is_timed_on_the_problem_with_the_most_work_where_nobody_asks_for_the_suite(
    workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    device.name, calls = "cuda", []
    monkeypatch.setattr(timing, "bench", _fake_bench(calls))
    assert workbench(command, "vector_add", "--examples", "3").exit_code == 0
    assert calls == [f"vector_add:{name} 268435456 fp32" for name in ("naive", "vectorized", "grid_stride")]


@pytest.mark.long
def test_run_on_a_gpu_times_what_passed(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.name, calls = "cuda", []
    monkeypatch.setattr(timing, "bench", _fake_bench(calls))
    result = workbench("run", "vector_add", "--examples", "3", "--suite")
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
    assert said(result)["stages"][0]["verification"]["problems"] == 4
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
    assert said(workbench("report", "--json"))["written"] == result.stdout.split()


@pytest.mark.long
def test_inspect_shows_resources_and_ptx(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = workbench("inspect", "vector_add:naive", "--problem", "n=100", "--ptx")
    assert result.exit_code == 0
    assert "blocks/SM" in result.stdout
    result_of_gemm = workbench("inspect", "gemm:flexible_multicast", "--problem", "512x512x64,dtype=bf16,out=bf16")
    (head, *_) = (line for line in result_of_gemm.stdout.splitlines() if line.strip())
    assert head.split()[:6] == ["stage", "variant", "registers", "static", "dynamic", "spills"]
    assert head.split()[6:] == ["threads", "blocks/SM", "occupancy", "limited", "by"]  # whole, in 120 columns
    assert ".visible .entry vector_add" in result.stdout
    shown = said(workbench("inspect", "vector_add:naive", "--json"))
    variants = sorted(r["variant"] for r in shown["resources"])
    assert ["bfloat16" in v for v in variants] == [True, False]  # one for each type of the suite
    assert shown["listings"] == []


@pytest.mark.parametrize("package", ["nvidia/cu13/bin", "triton/backends/nvidia/bin", None])
def test_inspect_prints_sass_through_a_disassembler_of_the_toolkit_or_a_package(
    package: str | None, workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / (package or "") / "nvdisasm"
    tool.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text('#!/bin/sh\necho "code of $*"\n')
    tool.chmod(0o755)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    if package:
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        of_it = [pattern for pattern in disassembly.PACKAGED if fnmatch(package, pattern)]  # not what is installed
        monkeypatch.setattr(disassembly, "PACKAGED", of_it)
    else:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = workbench("inspect", "vector_add:naive", "--problem", "n=100", "--sass")
    assert result.exit_code == 0
    _, options, cubin = result.stdout.partition("code of ")[2].split()[:3]
    assert options == "-g" and cubin.endswith(".cubin")


def test_doctor_says_what_is_missing_and_the_remedy(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CompilerUnavailable("NVRTC cannot be loaded; install it with: pip install this")

    monkeypatch.setattr(compiler, "nvrtc_version", missing)
    result = workbench("doctor")
    assert result.exit_code == 1
    assert "install it with: pip install this" in result.stdout
    assert "The emulator can execute PTX here, but no stage can be compiled" in result.stdout
    diagnosis = said(workbench("doctor", "--json"))
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
    for word in ("gemm:tma_pipeline", "TRANS_B=1", "229,440", "occupancy", "memory", "shipped"):
        assert word in words


def test_what_was_not_judged_has_no_figure(workbench: Workbench, device: NumpyDevice) -> None:
    device.wrong_after = 0
    result = workbench("verify", "vector_add:naive", "--problem", "n=6,tier=exact")
    assert "0.000" not in result.stdout
    assert "0 problems" not in result.stderr
