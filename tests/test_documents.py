"""What commands print with --json, whatever becomes of them: one document, as the schema that is shipped says."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import document, invoke, said
from json_schema import check_document
from synthetic import timed_run

from workbench.cli import main as cli
from workbench.cli import verify
from workbench.cli.shapes import RESULTS
from workbench.model.results import Failure, Hazard, Run, Verdict, WrongElement
from workbench.report import judged_runs

SOURCE = """// reads one element too many
extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = threadIdx.x;
  if (i <= n) y[i] = 2 * x[i];
}
"""
LAUNCH = ("--grid", "1", "--block", "32", "--arg", "x:f32[16]=ones", "--arg", "y:f32[32]", "--arg", "i32=16")


@pytest.fixture(autouse=True)
def here(here: Path) -> Path:
    Path("scale.cu").write_text(SOURCE)
    return here


def test_every_command_takes_json_and_has_a_shape() -> None:
    commands = {name for name, c in cli.main.commands.items() if any("--json" in p.opts for p in c.params)}
    assert commands == set(cli.main.commands) - {"mcp"} == {*RESULTS, "watch"}  # a server has a protocol of its own


def test_a_hazard_has_code_place_advice_and_replay_for_programs() -> None:
    found = document(invoke("emulate", "scale.cu", *LAUNCH, "--json"))
    (verdict,) = found["verdicts"]
    assert (found["ok"], found["exit_code"], found["error"]) == (False, 1, None)
    assert (verdict["code"], verdict["file"], verdict["line"]) == ("out_of_bounds", "scale.cu", 4)
    assert verdict["reward"] == 0 and verdict["replay"].startswith("workbench emulate scale.cu --grid 1")
    (finding,) = verdict["findings"]
    assert (finding["cause"], finding["array"], finding["index"]) == ("out_of_bounds", "x", 16)
    again = invoke(*shlex.split(verdict["replay"])[1:])
    assert again.exit_code == 1 and "scale.cu:4: out of bounds" in again.stdout


def test_a_source_that_does_not_compile_is_an_error_and_a_verdict_at_its_line() -> None:
    Path("scale.cu").write_text(SOURCE.replace("threadIdx.x;", "threadIdx.x"))
    found = document(invoke("emulate", "scale.cu", *LAUNCH, "--json"))
    assert (found["error"]["code"], found["error"]["line"], found["exit_code"]) == ("compile_error", 4, 1)
    (verdict,) = found["verdicts"]
    assert (verdict["code"], verdict["file"], verdict["line"]) == ("compile_error", "scale.cu", 4)
    assert found["result"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code", "command"),
    [
        (["emulate", "nowhere.cu", *LAUNCH], "usage_error", 2, "emulate"),
        (["emulate", "scale.cu", "--grid", "1"], "missing_parameter", 2, "emulate"),
        (["emulate", "scale.cu", *LAUNCH[:-2]], "usage_error", 2, "emulate"),
        (["emulate", "scale.cu", "--grid", "x", "--block", "1"], "usage_error", 2, "emulate"),
        (["--nonsense", "verify"], "no_such_option", 2, "verify"),
        (["verify", "--device"], "bad_parameter", 2, "verify"),
        (["trace", "gemm:niave"], "unknown_spec", 2, "trace"),
        (["new", "9lives"], "cannot_make", 2, "new"),
        (["restore", "gemm:naive"], "usage_error", 2, "restore"),
        (["export", "gem"], "unknown_spec", 2, "export"),
    ],
)
def test_what_cannot_be_done_is_a_document_with_a_stable_code(
    arguments: list[str], code: str, exit_code: int, command: str
) -> None:
    done = invoke(*arguments, "--json")
    found = document(done)
    assert (found["error"]["code"], found["exit_code"], found["command"]) == (code, exit_code, command)
    assert found["error"]["message"].splitlines()[0] in done.stderr


def test_a_remedy_stands_by_itself() -> None:
    error = document(invoke("verify", "gemm:niave", "--json"))["error"]
    assert error["remedy"].startswith("did you mean gemm:naive")
    assert document(invoke("verify", "--nonsense", "--json"))["error"]["remedy"] == "workbench verify --help"


def test_a_mistake_of_the_workbench_is_a_document_with_its_traceback_on_stderr(here: Path) -> None:
    script = "import workbench.cli.main as m, workbench.cli.setup as s; s.registry = None; m.main(['list', '--json'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=here)
    found = json.loads(done.stdout)
    check_document(found)
    assert found["error"]["code"] == "internal_error" and "Traceback" in done.stderr and done.returncode == 1


def test_what_a_captured_program_prints_stands_on_stderr(here: Path) -> None:
    command = [sys.executable, "-m", "workbench", "capture", "--json", sys.executable, "-c", "print('its own words')"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=here)
    check_document(json.loads(done.stdout))
    assert done.stderr == "its own words\n" and done.returncode == 0


def test_what_is_not_finite_is_text() -> None:
    Path("scale.cu").write_text(SOURCE.replace("<=", "<"))
    arguments = [a.replace("ones", "nan") for a in LAUNCH]
    result = invoke("emulate", "scale.cu", *arguments, "--print", "0:2", "--json")
    assert "NaN" not in result.stdout and said(result)["arrays"]["y"] == ["nan", "nan"]


def test_help_is_no_document() -> None:
    done = invoke("verify", "--help", "--json")
    assert done.exit_code == 0 and done.stdout.startswith("Usage:")


def test_the_schema_refuses_what_is_not_described() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    found = document(invoke("list", "vector_add", "--json"))
    for change in ({"more": 1}, {"exit_code": "0"}, {"command": "lst"}, {"result": {"stages": [{"spec": "x"}]}}):
        with pytest.raises(jsonschema.ValidationError):
            check_document({**found, **change})


def test_the_reward_is_nothing_for_a_failure_and_the_speed_beside_the_vendor_for_what_was_timed() -> None:
    run = timed_run("vector_add")
    for stage in run.stages:
        stage.verification.unsupported = {}
    ratios = [judged_runs.speed_ratio(stage) for stage in run.stages]
    assert [v.reward for v in judged_runs.of_run(run)] == ratios and all(ratios)
    (first, *_) = run.stages
    shares = [m.baselines[0].cold_us[0] for m in first.measurements]
    assert len(shares) > 1
    for m in first.measurements:  # half of the vendor's time, then twice as long: one in the middle
        m.timing.cold_us, m.baselines = [10.0], [dataclasses.replace(m.baselines[0], cold_us=[20.0])]
    assert judged_runs.speed_ratio(first) == pytest.approx(2)
    first.measurements[0].baselines[0].cold_us = [5.0]
    assert judged_runs.speed_ratio(first) == pytest.approx((0.5 * 2 ** (len(shares) - 1)) ** (1 / len(shares)))
    first.measurements = []
    assert judged_runs.of_run(run)[0].reward == 1 and judged_runs.of_run(run)[0].speed_ratio is None
    first.verification.unsupported = {"too large": 3 * first.verification.problems}
    refusing = judged_runs.of_run(run)[0]
    assert (refusing.refused, refusing.reward) == (0.75, 0.25)
    first.verification.verdict, first.verification.failure = Verdict.MISMATCH, Failure(Verdict.MISMATCH, "n=1", "", "")
    assert judged_runs.of_run(run)[0].reward == 0


def test_a_wrong_answer_is_at_its_kernel_and_a_hazard_at_its_line() -> None:
    run = timed_run("vector_add")
    (first, *_) = run.stages
    first.verification.verdict = Verdict.MISMATCH
    wrong = [WrongElement("c", [0], "1", "2", 0.0)]
    first.verification.failure = Failure(Verdict.MISMATCH, "n=1", "1 of 1 elements of c are wrong", "replay", wrong)
    found = judged_runs.of_run(run)[0]
    text = Path(found.file).read_text().splitlines()
    assert "__global__" in text[found.line - 1] and found.advice.startswith("Read `looks like:`")
    hazard = Hazard("race", "race", "writes c[0]", "add a barrier", f"cuda_src/{first.source}", 3)
    first.verification.failure = Failure(Verdict.RACE, "n=1", "a race", "replay", hazards=[hazard])
    found = judged_runs.of_run(run)[0]
    assert (Path(found.file).is_file(), found.line, found.findings[0].file) == (True, 3, found.file)


def test_a_compiler_names_the_line(device: Any) -> None:
    message = "1_naive.cu does not compile:\ncuda_src/vector_add/1_naive.cu(13): error: expected a )"
    run = timed_run("vector_add")
    verification = run.stages[0].verification
    verification.verdict, verification.failure = (
        Verdict.COMPILE_ERROR,
        Failure(Verdict.COMPILE_ERROR, "any", message, ""),
    )
    found = judged_runs.of_run(run)[0]
    assert found.file.endswith("cuda_src/vector_add/1_naive.cu") and found.line == 13


def test_what_a_command_has_printed_can_be_compared(here: Path) -> None:
    run = timed_run("vector_add")
    made = {"command": "bench", "result": dataclasses.asdict(run), "schema_version": 1}
    (here / "a.json").write_text(json.dumps(made))
    assert Run.load(here / "a.json") == run
    assert said(invoke("compare", "a.json", "a.json", "--json"))["slower"] is False


def test_an_interrupt_says_what_was_done_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "work", interrupt)
    found = document(invoke("verify", "vector_add:naive", "--device", "emulator", "--json"))
    assert (found["error"]["code"], found["exit_code"], found["result"]["stages"]) == ("interrupted", 130, [])


def test_codes_of_errors_are_the_documented_ones() -> None:
    page = (Path(__file__).parents[1] / "docs" / "json.md").read_text()
    for code in ("unknown_spec", "compile_error", "usage_error", "os_error", "device_unavailable", "interrupted"):
        assert f"| `{code}` " in page
    for verdict in Verdict:
        assert f"[`{verdict}`](verdicts.md#{verdict})" in page
    assert click.UsageError("x").exit_code == 2
