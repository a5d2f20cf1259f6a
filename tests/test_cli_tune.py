"""`workbench tune` on the command line: what it verifies, times, keeps and shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import Workbench, one_message, said
from fakes import NumpyDevice

from workbench.catalogue import registry
from workbench.measure import tuning
from workbench.records import tuned


@pytest.fixture
def empty_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuned.Table:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tuned.Table()


@pytest.mark.long
def test_tune_without_a_gpu_verifies_and_says_that_nothing_was_timed(
    workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table
) -> None:
    result = workbench("tune", "vector_add:vectorized", "--problem", "100", "--jobs", "1")
    assert result.exit_code == 0
    (row,) = [line.split() for line in result.stdout.splitlines() if "vector_add:vectorized" in line]
    assert row[1:] == ["n=128,dtype=fp32", *"-----", "5", "of", "5", "0"]
    assert "nothing was timed" in result.stderr
    assert not empty_table.entries()


@pytest.mark.long
def test_tune_fails_where_a_configuration_is_wrong(
    workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table
) -> None:
    device.wrong_after = 5
    result = workbench("tune", "vector_add:vectorized", "--problem", "100", "--jobs", "1", "--json")
    assert result.exit_code == 1
    (found,) = said(result)["searches"]
    assert not found["ok"]
    assert "right as it is declared: mismatch" in found["trouble"]
    assert "elements of c are wrong" in found["trials"][0]["reason"]


@pytest.mark.long
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
    first = said(workbench("tune", "--show", "vector_add", "--json"))["tuned"][0]
    assert first["entry"]["us"] == 80.0
    assert first["trials"][0]["reason"] == "spills 4 bytes of registers"
    interrupted = True
    one_message(workbench(*command), 130, "what was found is in", str(empty_table.path))


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ([], 2, "name what is to be tuned"),
        (["gemm", "--budget", "soon"], 2, "write 60s, 5m or 1h"),
        (["vector_add:naive"], 1, "there is nothing to tune"),
        (["gemm:cp_async", "--problem", "64x64x64,dtype=fp32,out=fp32"], 1, "there is nothing to tune"),
    ],
)
def test_what_cannot_be_tuned_is_said(
    arguments: list[str], code: int, part: str, workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table
) -> None:
    one_message(workbench("tune", *arguments), code, part)


def test_an_operation_without_a_suite_asks_for_a_problem(
    workbench: Workbench, device: NumpyDevice, empty_table: tuned.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.operations()["gemm"], "suite", ())
    one_message(workbench("tune", "gemm:cp_async"), 1, "nothing to tune: the operation has no suite", "--problem")


def test_a_table_that_cannot_be_read(workbench: Workbench, empty_table: tuned.Table) -> None:
    empty_table.path.parent.mkdir()
    empty_table.path.write_text("no database at all" * 100)
    one_message(workbench("tune", "--show"), 1, "tuned.sqlite3 cannot be used", "remove it")
