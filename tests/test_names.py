"""No name, whoever gives it, leads out of the folder that it is put into."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from synthetic import emulated_run, timed_run

from workbench.catalogue import registry
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model import compact
from workbench.model.errors import BadName, inside
from workbench.model.launch import Launch
from workbench.model.operation import Operation
from workbench.model.results import ResultsError, Run
from workbench.records import restoring, versions
from workbench.records.store import Folder, load
from workbench.records.versions import Snapshot, Version, Versions
from workbench.report import pages

HOSTILE = (
    "../../escape",
    "/abs",
    "..",
    ".",
    "",
    "a/b",
    "-rf",
    ".hidden",
    "a\nb",
    "a\0b",
    "näme",
    "a" * 101,
    "<b>",
)


def _operation(name: str = "adding") -> Operation[Any]:
    known = registry.operations()["vector_add"]
    return dataclasses.replace(known, name=name, stages=[], baselines=[])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_declaration_cannot_have_a_name_that_leads_elsewhere(name: str) -> None:
    with pytest.raises(BadName, match="an operation is called"):
        _operation(name)
    with pytest.raises(BadName, match="a stage of adding is called"):
        _operation().stage(name, source="x.cu", idea="")(lambda p, s: Launch("k", (1, 1, 1), (1, 1, 1), ()))
    with pytest.raises(BadName, match="another implementation of adding"):
        _operation().baseline(name, requires="numpy")


@pytest.mark.parametrize("name", ("con", "4_bytes", "a.b-c", "4 bytes a thread"))
def test_an_ordinary_name_is_taken(name: str) -> None:
    assert _operation(name).name == name
    assert VectorAddProblem.__name__


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
@pytest.mark.parametrize("field", ("operation", "stage"))
def test_a_record_with_such_a_name_is_refused_and_writes_nothing(name: str, field: str, tmp_path: Path) -> None:
    data = dataclasses.asdict(timed_run())
    data["stages"][0][field] = name
    with pytest.raises(ResultsError, match=f"{field} is called"):
        Run.parse(json.dumps(data), "results.json")
    device = tmp_path / "reports" / "h200"
    device.mkdir(parents=True)
    (device / "results.json").write_bytes(compact.encoded(data, device / "results.json", sort_keys=True))
    with pytest.raises(ResultsError, match=f"{field} is called"):
        pages.write(tmp_path / "reports")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["results.json"]


@pytest.mark.parametrize("number", ["1" + "0" * 400, "NaN", "Infinity", "1e999", '"1"', "[]", "{}", "null", "true"])
def test_a_record_with_a_strange_number_is_a_message_or_a_page(number: str, tmp_path: Path) -> None:
    text = json.dumps(dataclasses.asdict(timed_run()))
    first = json.dumps(timed_run().stages[0].measurements[0].timing.cold_us[0])
    assert first in text
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "results.json").write_text(text.replace(first, number, 1))
    with pytest.raises(ResultsError, match="cold_us"):
        load(tmp_path / "h200")


def test_a_folder_of_results_that_is_a_link_to_elsewhere_is_not_written(tmp_path: Path) -> None:
    elsewhere, device = tmp_path / "elsewhere", tmp_path / "h200"
    elsewhere.mkdir()
    device.mkdir()
    (device / "results").symlink_to(elsewhere)
    with pytest.raises(BadName, match="does not stay in the folder"):
        Folder(device).save(timed_run())
    assert not [*elsewhere.iterdir()]


def test_a_page_that_is_a_link_to_elsewhere_is_not_written(tmp_path: Path) -> None:
    kept = tmp_path / "kept.md"
    kept.write_text("mine")
    Folder(tmp_path / "reports" / "emulator").save(emulated_run("gemm"))
    (tmp_path / "reports" / "emulator" / "gemm.md").symlink_to(kept)
    with pytest.raises(BadName, match="does not stay in the folder"):
        pages.write(tmp_path / "reports")
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("name", ["..", "/abs", "a/../../b", "", "a\0b"])
def test_a_path_inside_of_a_folder_stays_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadName):
        inside(tmp_path, name)
    assert inside(tmp_path, "a/../b") == tmp_path / "b"


def _with_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]) -> tuple[Any, Version]:
    """A stage, and a version of it in a database that somebody has changed: old names of files and new ones."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    stage = registry.select(["vector_add:naive"])[0]
    store = versions.of(stage)
    version = store.keep(Snapshot.of(stage))
    with sqlite3.connect(store.path) as connection:
        for old, new in changes.items():
            connection.execute("UPDATE files SET name = ? WHERE name = ?", (new, old))
        connection.execute("UPDATE objects SET content = content")
    connection.close()
    return stage, version


@pytest.mark.parametrize("target", ["/{}/escape.cu", "../../../../../../../../../../{}/escape.cu"])
def test_a_strangers_database_writes_nothing_outside(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = registry.select(["vector_add:naive"])[0]
    first = next(name for name in Snapshot.of(stage).files if name != stage.path.name)
    stage, version = _with_file(tmp_path, monkeypatch, {first: target.format(str(tmp_path).strip("/"))})
    with pytest.raises(BadName, match="which is no source; nothing was written"):
        restoring.restore(stage, version)
    if target.startswith("/"):
        with pytest.raises(BadName, match="does not stay in the folder"):
            restoring.unpacked(stage, version)
    else:
        restoring.unpacked(stage, version)  # as many folders deep as it goes up
    assert not (tmp_path / "escape.cu").exists()


def test_a_strangers_database_cannot_put_python_among_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = registry.select(["vector_add:naive"])[0]
    first = next(name for name in Snapshot.of(stage).files if name != stage.path.name)
    stage, version = _with_file(tmp_path, monkeypatch, {first: "evil.py"})
    with pytest.raises(BadName, match="no source"):
        restoring.restore(stage, version)
    assert not (stage.path.parent / "evil.py").exists()
    assert isinstance(versions.of(stage), Versions)


def test_the_folder_of_a_version_does_not_depend_on_what_the_database_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, version = _with_file(tmp_path, monkeypatch, {})
    made = restoring.unpacked(stage, dataclasses.replace(version, digest="../../../escape"))
    assert Path(made.source).is_relative_to(tmp_path / "cache" / "versions")
