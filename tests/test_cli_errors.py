"""What wrong input and broken surroundings get: one message, an exit code, and nothing lost."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from command_line import Workbench, interrupt, one_message, said
from fakes import NumpyDevice

from workbench import harness
from workbench.catalogue import registry
from workbench.cli import main as cli
from workbench.cli import sessions
from workbench.devices import DeviceUnavailable
from workbench.ops import export
from workbench.records import store
from workbench.toolchain import disassembly
from workbench.toolchain.compiler import CompilerUnavailable


def test_sources_that_hide_the_installed_package_say_so(tmp_path: Path) -> None:
    sources = Path(cli.__file__).parents[1]
    shutil.copytree(sources, tmp_path / "workbench", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    packages = os.pathsep.join(str(Path(package.__file__).parents[1]) for package in (np, click))  # no .pth is read
    (tmp_path / "cuda_src").symlink_to(sources.parent / "cuda_src")
    command = [sys.executable, "-S", "-m", "workbench", "verify", "vector_add:naive", "--device", "emulator"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": packages}
    )
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"`pip install -e .` in {tmp_path}, or start Python in another folder" in line


@pytest.mark.parametrize("command", ["list", "verify", "bench", "run", "inspect", "tune"])
def test_an_unknown_stage_gets_the_nearest(command: str, workbench: Workbench, device: NumpyDevice) -> None:
    one_message(workbench(command, "gemm:niave"), 2, "'gemm:niave'", "did you mean gemm:naive")
    one_message(workbench("experiment", "coalesing"), 2, "no experiment 'coalesing'; did you mean coalescing?")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("list", "xyzzy"), "the operations are attention, "),
        (("list", "gemm:xyzzy"), "the stages of gemm are naive, "),
        (("new", "mine", "--from", "xyzzy"), "the operations are attention, "),
        (("new", "gemm:mine", "--from", "xyzzy"), "the stages of gemm are naive, "),
        (("experiment", "xyzzy"), "the experiments are coalescing, "),
    ],
)
def test_a_name_without_a_near_one_gets_all_of_them(
    arguments: tuple[str, ...], part: str, workbench: Workbench
) -> None:
    result = workbench(*arguments)
    one_message(result, 2, "'xyzzy'" if "gemm:xyzzy" not in arguments else "'gemm:xyzzy'", part)
    assert "did you mean" not in result.stderr


def test_an_unknown_command_gets_the_nearest(workbench: Workbench) -> None:
    one_message(workbench("verfy"), 2, "there is no command 'verfy'", "did you mean verify")
    one_message(workbench("xyzzy"), 2, "the commands are", "doctor")


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
    one_message(workbench("verify", *options), 2, *parts)


@pytest.mark.parametrize(
    ("spec", "problem", "parts"),
    [
        ("gemm", "m=4,dtype=fp8", ["dtype is 'fp8'", "bf16, fp16, fp32"]),
        (
            "naive",
            "k=4",
            [
                "is a problem of gemm, gemm_block_scaled, gemm_fp8, matvec and not of ",
                "vector_add",
                "select one operation",
            ],
        ),
    ],
)
def test_a_wrong_problem_says_what_would_be_right(
    spec: str, problem: str, parts: list[str], workbench: Workbench, device: NumpyDevice
) -> None:
    one_message(workbench("verify", spec, "--problem", problem), 2, *parts)


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
        one_message(workbench(command, "--device", "cuda"), 1, "use --device emulator")
    result = workbench("agree")  # which has no such option
    one_message(result, 1, "agree needs a GPU, and no CUDA device can be used here; without one: workbench verify")
    assert "--device" not in result.stderr


def test_bench_without_a_gpu(workbench: Workbench, device: NumpyDevice) -> None:
    one_message(workbench("bench"), 1, "bench needs a GPU")


def test_a_tolerance_that_is_no_number_lets_nothing_pass(workbench: Workbench) -> None:
    one_message(workbench("compare", "a", "b", "--tolerance", "nan"), 2, "nan is not a finite number")


@pytest.mark.parametrize("command", [["list"], ["--help"], ["list", "--json"]], ids=" ".join)
def test_a_full_stdout_is_one_message(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            cli.main.main(command)
    assert ended.value.code == 1
    assert capfd.readouterr().err == "Error: the output cannot be written: No space left on device\n"


def test_a_file_that_cannot_be_copied_is_named_by_where_it_goes(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "kept.cubin", None, "package/kept.cubin")

    monkeypatch.setattr(export, "export", full)
    one_message(workbench("export", "vector_add"), 1, "package/kept.cubin cannot be written: No space left on device")


@pytest.mark.parametrize(
    ("line", "code", "stderr"),
    [
        ("{} list vector_add >&-", 0, ""),
        ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {} list transpose", 0, ""),  # branches have an arrow
        # imports end with Ctrl-C
        ("mkdir click && echo raise KeyboardInterrupt > click/__init__.py && {} list", 130, "Error: interrupted\n"),
        (
            "mkdir gone && cd gone && rmdir ../gone && {} list",
            1,
            "Error: the working directory does not exist any more; change to another one\n",
        ),
    ],
    ids=["no stdout", "no Unicode", "no time", "no working directory"],
)
def test_a_shell_without_what_a_command_takes_for_granted(line: str, code: int, stderr: str, tmp_path: Path) -> None:
    shell = line.format(f'"{sys.executable}" -m workbench')
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(shell, shell=True, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, stderr)


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "vector_add:naive", "--sarif"),
        ("emulate", "kept.cu", "--grid", "1", "--block", "1", "--sarif"),
        ("emulate", "kept.cu", "--grid", "1", "--block", "1", "--trace"),
        ("trace", "vector_add:naive", "-o"),
        ("history", "-o"),
        ("report", "--html", "-o"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_no_result_is_written_over_a_source(
    command: tuple[str, ...], workbench: Workbench, device: NumpyDevice, tmp_path: Path
) -> None:
    (tmp_path / "kept.cu").write_text("weeks of work")
    one_message(workbench(*command, "kept.cu"), 2, "kept.cu is a source, which would be lost; name another file")
    one_message(workbench(*command, ""), 2, "is a folder; name a file")
    assert (tmp_path / "kept.cu").read_text() == "weeks of work"


def test_a_missing_compiler(workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*arguments: object) -> None:
        raise CompilerUnavailable("NVRTC cannot be loaded; install it with: pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr("workbench.toolchain.compiler.compile_source", unavailable)
    for command in ("verify", "run", "inspect"):
        one_message(workbench(command, "vector_add:naive"), 1, "pip install nvidia-cuda-nvrtc")


def test_a_message_does_not_tell_where_the_checkout_lies(workbench: Workbench, device: NumpyDevice) -> None:
    first = registry.stages()[0]
    device.fault = f"two threads write at {first.path}:7"
    result = workbench("verify", "vector_add:naive", "--json")
    failure = said(result)["stages"][0]["verification"]["failure"]
    assert failure["message"] == f"two threads write at cuda_src/{first.source}:7"


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
    one_message(workbench("inspect", "vector_add:naive"), 1, "broken.cu(2)")


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
    for command in (("run", "--output"), ("experiment", "--device", "emulator", "--output")):
        for output in ("file", "file/deeper"):
            one_message(workbench(*command, output), 1, f"reports cannot be written in {output}", "--output")


@pytest.mark.parametrize("name", ["results/vector_add.json", "results.json"])
def test_a_damaged_record_is_not_overwritten(
    name: str, workbench: Workbench, device: NumpyDevice, tmp_path: Path
) -> None:
    path = tmp_path / "reports" / "emulator" / name
    path.parent.mkdir(parents=True)
    path.write_text("{ broken")
    one_message(workbench("run", "vector_add:naive"), 1, f"{name} is not JSON")
    one_message(workbench("report"), 1, f"{name} is not JSON")
    result = workbench("run", "vector_add:naive", "--fresh")
    one_message(result, 1, "it was left as it is: bring it back (git checkout -- ")
    (remedy,) = re.findall(r"put it aside \(mv (\S+) (\S+)\)", result.stderr)
    assert path.read_text() == "{ broken"
    Path(remedy[0]).rename(remedy[1])
    assert workbench("run", "vector_add:naive").exit_code == 0
    assert Path(remedy[1]).read_text() == "{ broken"


def test_report_without_results(workbench: Workbench) -> None:
    one_message(workbench("report"), 1, "there are no results in reports")


def test_sass_without_a_disassembler(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "find", lambda: None)
    result = workbench("inspect", "vector_add:naive", "--problem", "n=100", "--sass")
    one_message(result, 1, "nvdisasm was not found", "pip install nvidia-cuda-nvdisasm")


@pytest.mark.parametrize("n", [10**13, 10**30])
def test_too_large_a_problem(n: int, workbench: Workbench, device: NumpyDevice) -> None:
    result = workbench("verify", "vector_add:naive", "--problem", f"n={n}")
    one_message(result, 1, f"not enough memory for n={n}", "GiB")


def test_memory_that_runs_out(workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: Any, **options: Any) -> None:
        raise MemoryError("Unable to allocate 36.4 TiB")

    monkeypatch.setattr(harness, "verify", exhausted)
    one_message(workbench("verify", "vector_add:naive"), 1, "not enough memory", "36.4 TiB")


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
    one_message(result, 130, "interrupted after 2 finished stages")
    assert "vector_add:vectorized" in result.stdout
    if command == "run":
        assert "their results are in reports/emulator/results" in result.stderr
        (saved,) = store.load(tmp_path / "reports" / "emulator")
        assert [s.stage for s in saved.stages] == ["naive", "vectorized"]


def test_an_interrupt_keeps_the_earlier_results_of_stages_not_reached(
    workbench: Workbench, device: NumpyDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workbench("run", "vector_add", "--examples", "2").exit_code == 0
    monkeypatch.setattr(harness, "verify", interrupt)
    assert workbench("run", "vector_add", "--examples", "2").exit_code == 130
    runs = store.load(tmp_path / "reports" / "emulator")
    assert [s.stage for s, _ in store.current(runs)] == ["naive", "vectorized", "grid_stride"]


def test_an_unknown_exception_keeps_its_traceback(
    workbench: Workbench, device: NumpyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a bug of ours")

    monkeypatch.setattr(harness, "verify", broken)
    with pytest.raises(AssertionError, match="a bug of ours"):
        workbench("verify", "vector_add:naive")
