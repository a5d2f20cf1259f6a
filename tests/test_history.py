"""The history of a report folder in git: a point for every measurement, with what changed since the one before."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import git, invoke, said
from fakes import NumpyDevice
from rich.console import Console
from synthetic import H200, environment, timed_run

from workbench.catalogue import registry
from workbench.cli import console, sessions
from workbench.model.results import Run
from workbench.records import store
from workbench.report import history as past

FOLDER = Path("reports/nvidia-h200")
LABELS = [m.label for m in timed_run("vector_add").stages[0].measurements]


@pytest.fixture
def history(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Result:
        return invoke("history", *arguments)

    return run


def _commit() -> None:
    git("add", ".")
    git("commit", "-m", "results")


def _run(day: int, factor: float = 1.0, *stages: str, **changes: Any) -> Run:
    """A run of a day in January, in which every stage takes `factor` times as long; with names, only these stages."""
    made = timed_run("vector_add")
    for m in (m for s in made.stages for m in s.measurements):
        m.timing.cold_us = [factor * x for x in m.timing.cold_us]
    made.stages = [s for s in made.stages if not stages or s.stage in stages]
    made.environment = environment(date=f"2026-01-{day:02}T00:00:00Z", commit=f"{day:040}")
    return dataclasses.replace(made, **changes)


@pytest.fixture
def repository(history: Any) -> None:
    """Three commits and a working tree: everything, then `naive` again and 10 % slower, then damaged, then faster."""
    git("init")
    store.Folder(FOLDER).save(_run(1))
    _commit()
    store.Folder(FOLDER).save(_run(2, 1.1, "naive"))
    _commit()
    (record,) = store.files(FOLDER)
    healthy = record.read_text()
    record.write_text("{")
    _commit()
    record.write_text(healthy)
    store.Folder(FOLDER).save(_run(4, 0.9, "naive"))


def _points(result: Result) -> dict[tuple[str, str], list[tuple[str, str | None]]]:
    """Date and outcome of every point, by stage and problem."""
    assert result.exit_code == 0, result.output
    return {
        (x["stage"], x["problem"]): [(p["date"][:10], p["outcome"]) for p in x["points"]] for x in said(result)["times"]
    }


@pytest.mark.usefixtures("repository")
def test_every_measurement_is_one_point(history: Any) -> None:
    result = history("vector_add", "--json")
    found = _points(result)
    assert set(found) == {(s, label) for s in ("naive", "vectorized", "grid_stride") for label in LABELS}
    for label in LABELS[1:]:
        assert found["naive", label] == [("2026-01-01", None), ("2026-01-02", "SLOWER"), ("2026-01-04", "FASTER")]
        assert found["vectorized", label] == [("2026-01-01", None)]  # it was not measured again
    assert result.stderr.count("left out: ") == 1
    assert "results/vector_add.json is not JSON" in result.stderr


@pytest.mark.usefixtures("repository")
def test_a_stage_and_a_problem_can_be_chosen(history: Any) -> None:
    shown = _points(history("vector_add:naive", "--problem", "67108864,dtype=bf16", "--json"))
    assert list(shown) == [("naive", "67108864 bf16")]
    assert list(_points(history("naive", "--json", "--output", str(FOLDER)))) == [("naive", label) for label in LABELS]


@pytest.mark.usefixtures("repository")
def test_the_table_and_the_page_say_the_same(history: Any) -> None:
    result = history("vector_add:naive", "-o", "page/history.md")
    page = Path("page/history.md").read_text()
    for text in (result.stdout, page):
        assert f"vector_add:naive {LABELS[1]}" in text
        for cell in ("2026-01-02 00:00", f"{2:040}"[:12], "SLOWER", "FASTER"):
            assert cell in text
    assert "![cold medians over commits](history.png)" in page
    before = Path("page/history.png").read_bytes()
    assert before.startswith(b"\x89PNG")
    history("vector_add:naive", "-o", "page/history.md")
    assert (Path("page/history.md").read_text(), Path("page/history.png").read_bytes()) == (page, before)


@pytest.mark.parametrize("width", [118, 120, 121, 124, 127])
def test_headers_are_in_one_piece_where_there_is_room(width: int) -> None:
    row = ("@1", "2026-11-30 03:24", 12 * "f", "50 problems", "emulated NVIDIA H200", "29 32", "4096x4096", *4 * ("-",))
    out = Console(file=io.StringIO(), width=width)
    out.print(console.table(past.VERSIONS, [row], (), 2))
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert any(re.fullmatch(r" *" + r"  +".join(past.VERSIONS) + r" *", line) for line in lines)


def test_without_git_there_is_the_present(history: Any) -> None:
    store.Folder(FOLDER).save(_run(1))
    assert _points(history("naive", "--json")) == {("naive", label): [("2026-01-01", None)] for label in LABELS}


def test_another_device_starts_anew(history: Any) -> None:
    git("init")
    store.Folder(FOLDER).save(_run(1, device=dataclasses.replace(H200, name="NVIDIA B200")))
    _commit()
    for record in store.files(FOLDER):
        record.unlink()
    store.Folder(FOLDER).save(_run(2))
    assert _points(history("naive", "--json"))["naive", LABELS[1]] == [("2026-01-01", None), ("2026-01-02", None)]


def test_no_results_and_no_times_are_said(history: Any) -> None:
    result = history()
    assert (result.exit_code, "there are no results in reports" in result.stderr) == (1, True)
    store.Folder(FOLDER).save(_run(1))
    result = history("gemm")
    assert result.exit_code == 1
    assert "no results in reports or its history have a time of gemm" in result.stderr


def test_versions_without_times_give_a_page_without_a_picture(history: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _keep_a_version(monkeypatch)
    result = history("vector_add:naive", "-o", "history.md")
    assert result.exit_code == 0, result.output
    assert "vector_add:naive: kept versions" in result.stdout
    assert "no times are shown: there are no results in reports" in result.stderr
    assert "Nothing was timed." in Path("history.md").read_text()
    assert not Path("history.png").exists()


def test_several_devices_are_named_with_the_option_that_chooses_one(
    history: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.Folder(FOLDER).save(_run(1))
    store.Folder(FOLDER.with_name("nvidia-b200")).save(_run(1))
    said = "choose one of reports/nvidia-b200, reports/nvidia-h200, with --output"
    result = history("vector_add:naive")
    assert (result.exit_code, said in result.stderr) == (1, True)
    _keep_a_version(monkeypatch)
    result = history("vector_add:naive")
    assert (
        result.exit_code,
        f"no times are shown: reports has results of several devices; {said}" in result.stderr,
    ) == (
        0,
        True,
    )
    assert history("vector_add:naive", "--output", str(FOLDER)).stdout.count("2026-01-01") == len(LABELS)


def test_a_problem_without_times_is_named_with_those_that_have_some(
    history: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.Folder(FOLDER).save(_run(1))
    said = f"have a time of vector_add:naive on 67108863 bf16; they have times on {LABELS[1]}"
    result = history("vector_add:naive", "--problem", "67108863,dtype=bf16")
    assert (result.exit_code, said in result.stderr) == (1, True), result.stderr
    _keep_a_version(monkeypatch)
    result = history("vector_add:naive", "--problem", "67108863,dtype=bf16")
    assert (result.exit_code, said in result.stderr) == (0, True), result.stderr


def test_the_problems_of_the_examples_are_timed_ones() -> None:
    page = (Path(__file__).parent.parent / "docs" / "comparing.md").read_text()
    told = re.findall(r"history gemm\S* .*--problem (\S+)", page)
    told += re.findall(r"Only this\s+problem:\s+`(\S+)`", invoke("history", "--help").stdout)
    assert len(told) == 2
    gemm = registry.operations()["gemm"]
    assert {gemm.problem.parse(text).label for text in told} <= {problem.label for problem in gemm.suite}


def _keep_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `vector_add:naive`, which has passed and was not timed."""
    monkeypatch.setattr(sessions, "open_device", lambda name: NumpyDevice())
    assert invoke("verify", "vector_add:naive", "--examples", "1").exit_code == 0
