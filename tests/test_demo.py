"""`workbench demo` names what it has planted, and what commands for one file load of the workbench."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import invoke, said

from workbench.cli import demo

LOADED = """
import sys
from workbench.__main__ import main
sys.argv = ["workbench", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
OUTSIDE = "__global__ void f(float* y) { y[threadIdx.x] = 1; }"


def test_the_planted_fault_is_named_at_its_line_and_the_mended_kernel_is_clean(here: Path) -> None:
    shown = invoke("demo")
    assert shown.exit_code == 0, shown.output
    before, _, after = shown.stdout.partition("The mended kernel:")
    assert "row_sum.cu:7: race" in before and "__syncthreads() is missing between" in before
    assert "+  7          __syncthreads();" in after and "row_sum: no hazard found" in after
    found = said(invoke("demo", "--json"))
    assert [one["location"]["line"] for one in found["planted"]["findings"]] == [7]
    assert found["mended"]["ok"] and found["sums_right"]
    assert not list(here.iterdir())


def test_a_demonstration_that_does_not_go_as_it_should_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "row_sum.cu"
    source.write_text(demo.KERNEL.read_text().replace("blockIdx.x * columns + i", "blockIdx.x * columns"))
    monkeypatch.setattr(demo, "KERNEL", source)
    assert invoke("demo").exit_code == 1  # wrong sums
    source.write_text("__global__ void row_sum(const float*, float*, int) {" + demo.PLANTED + "}")
    assert invoke("demo").exit_code == 1  # no hazard


def loaded(folder: Path, *arguments: str) -> tuple[int, set[str]]:
    """The exit code of a command, and the modules that the process which works has loaded: it says so first."""
    command = [sys.executable, "-c", LOADED, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, set(max(done.stderr.splitlines(), key=len).split())


def test_emulating_a_file_loads_the_emulator_and_not_the_workbench(tmp_path: Path) -> None:
    (tmp_path / "f.cu").write_text(OUTSIDE)
    code, modules = loaded(tmp_path, "emulate", "f.cu", "--grid", "1", "--block", "32", "--arg", "f32[31]")
    ours = {name for name in modules if name.split(".")[0] == "workbench"}
    assert code == 1 and len(ours) <= 80, sorted(ours)
    assert {name.split(".")[1] for name in ours if "." in name} == {"__main__", "cli", "emulator", "model"}
    assert "rich" not in modules and "hypothesis" not in modules


@pytest.mark.parametrize("arguments", [("--help",), ("emulate", "--help"), ("demo", "--help"), ("list",)])
def test_help_and_lists_load_no_emulator_and_help_no_numpy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, modules = loaded(tmp_path, *arguments)
    assert code == 0
    unused = ("numpy", "rich", "hypothesis") if "--help" in arguments else ()
    assert not {name for name in modules if name.split(".")[0] in unused or name.startswith("workbench.emulator")}


def test_a_process_of_stages_loads_every_operation_without_hypothesis() -> None:
    every = "import sys; from workbench.catalogue import registry; registry.stages(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", every], capture_output=True, text=True, check=True)
    assert "workbench.kernels.rows.ladder" in done.stdout.split()
    assert not {name for name in done.stdout.split() if name.split(".")[0] == "hypothesis"}
