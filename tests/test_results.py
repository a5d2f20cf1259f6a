"""The record survives the disk, and a damaged one is refused with the place that is wrong."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from synthetic import emulated_run, timed_run

from workbench.model.results import HostTiming, PeerResult, ResultsError, Run, Runs, WrongCells
from workbench.records import store


@pytest.mark.parametrize("made", [timed_run, emulated_run])
def test_a_run_is_the_same_after_saving_and_loading(made: Any, tmp_path: Path) -> None:
    run = made("gemm")
    run.save(tmp_path / "deep" / "results.json")
    assert Run.load(tmp_path / "deep" / "results.json") == run


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        timed_run("matvec").save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def _set(path: tuple[Any, ...], value: Any) -> Any:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        if value is ...:
            del data[path[-1]]
        else:
            data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_set(("schema",), 99), "schema 99; this version reads schema 1"),
        (_set(("device", "sm_count"), "many"), r"results\.json\.device\.sm_count is str, not int"),
        (_set(("device",), None), r"results\.json\.device is NoneType"),
        (_set(("stages", 0, "verification", "verdict"), "maybe"), r"stages\[0\]\.verification\.verdict"),
        (_set(("stages", 1, "idea"), ...), r"stages\[1\] lacks idea"),
        (_set(("stages", 1, "colour"), "red"), r"stages\[1\] has unknown fields: colour"),
        (_set(("examples",), True), r"examples is bool, not int"),
    ],
)
def test_a_damaged_record_names_the_place(change: Any, complaint: str, tmp_path: Path) -> None:
    data = dataclasses.asdict(emulated_run())
    change(data)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ResultsError, match=complaint):
        Run.load(path)


@pytest.mark.parametrize("change", [{"cells": [".9", "9"]}, {"cells": [".9", "9X"]}, {"cell": [4]}, {"shape": []}])
def test_cells_that_do_not_cover_the_matrix_are_refused(change: Any) -> None:
    right = {"shape": [8, 7], "cell": [4, 4], "cells": [".9", "9."], "wrong_count": 28, "unwritten_count": 0}
    assert WrongCells("m=8", "C", **right)
    with pytest.raises(ResultsError, match="wrong elements of C"):
        WrongCells("m=8", "C", **{**right, **change})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"schema"'])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"results\.json"):
        Run.load(path)
    with pytest.raises(ResultsError, match="cannot read"):
        Run.load(tmp_path / "absent.json")


def test_a_save_that_fails_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    emulated_run().save(path)
    before = path.read_bytes()

    def full(self: Path, text: str) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        timed_run().save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _some(run: Run, *names: str, date: str = "2026-02-03T04:05:06Z") -> Run:
    environment = dataclasses.replace(run.environment, date=date)
    return dataclasses.replace(run, environment=environment, stages=[s for s in run.stages if s.stage in names])


def test_running_one_stage_again_keeps_the_others_in_the_earlier_record(tmp_path: Path) -> None:
    first = emulated_run("vector_add")
    store.Folder(tmp_path).save(first)
    second = _some(emulated_run("vector_add"), "vectorized")
    store.Folder(tmp_path).save(second)
    loaded = store.load(tmp_path)
    assert [path.name for path in store.files(tmp_path)] == ["vector_add.json"]
    assert [[s.stage for s in run.stages] for run in loaded] == [["vectorized"], ["naive", "grid_stride"]]
    dates = {s.stage: run.environment.date for s, run in store.current(loaded)}
    assert dates == {
        "vectorized": second.environment.date,
        "naive": first.environment.date,
        "grid_stride": first.environment.date,
    }


def test_an_earlier_record_disappears_with_its_last_stage(tmp_path: Path) -> None:
    store.Folder(tmp_path).save(_some(emulated_run(), "naive", "smem_tiling"))
    folder, run = store.Folder(tmp_path), _some(emulated_run(), date="2026-03-01T00:00:00Z")
    everything = emulated_run().stages
    for name in ("naive", "smem_tiling"):
        run.stages.append(next(s for s in everything if s.stage == name))
        folder.save(run)
        dates = [r.environment.date for r in Runs.load(tmp_path / "results" / "gemm.json").runs]
        assert dates == ["2026-03-01T00:00:00Z", *(["2026-02-03T04:05:06Z"] if name == "naive" else [])]
    assert store.load(tmp_path) == [run]


def test_a_record_of_nothing_is_not_kept(tmp_path: Path) -> None:
    store.Folder(tmp_path).save(_some(emulated_run()))
    assert store.files(tmp_path) == []
    store.Folder(tmp_path).save(_some(emulated_run(), "naive"))
    store.Folder(tmp_path).save(_some(emulated_run(), "naive"))
    assert len(Runs.load(tmp_path / "results" / "gemm.json").runs) == 1


def test_other_implementations_are_kept_until_a_finished_run_has_timed_them_again(tmp_path: Path) -> None:
    host = HostTiming("vector_add", "NumPy", "numpy 2", "n=1", "1 fp32", 1, 12, [1.0])
    peers = [PeerResult("vector_add", "Triton", "3"), PeerResult("gemm", "cuDNN", "9")]
    store.Folder(tmp_path).save(dataclasses.replace(timed_run("vector_add"), peers=peers, host=[host]))
    folder = store.Folder(tmp_path)
    folder.save(_some(timed_run("vector_add"), "naive", "vectorized", "grid_stride"))
    folder.discard_earlier_stages()
    latest, kept = store.load(tmp_path)
    assert (latest.peers, latest.host) == ([], [])
    assert (kept.stages, kept.peers, kept.host) == ([], peers[::-1], [host])

    again = dataclasses.replace(_some(timed_run("vector_add")), peers=peers[:1], finished=False)
    folder = store.Folder(tmp_path)
    folder.save(again)
    assert store.load(tmp_path)[-1] == kept
    again.finished = True
    folder.save(again)
    assert (store.load(tmp_path)[-1].peers, store.load(tmp_path)[-1].host) == (peers[1:], [])


def test_two_runs_in_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for name in ("naive", "smem_tiling", "warp_parallel"):
        store.Folder(tmp_path).save(_some(emulated_run(), name))
    assert {s.stage for s, _ in store.current(store.load(tmp_path))} == {
        "naive",
        "smem_tiling",
        "warp_parallel",
    }


def test_a_full_run_forgets_stages_that_no_longer_exist(tmp_path: Path) -> None:
    old = emulated_run("vector_add")
    old.stages[0].stage = "renamed_since"
    store.Folder(tmp_path).save(old)
    folder = store.Folder(tmp_path)
    folder.save(emulated_run("vector_add"))
    folder.discard_earlier_stages()
    assert {s.stage for s, _ in store.current(store.load(tmp_path))} == {
        "naive",
        "vectorized",
        "grid_stride",
    }


def _before(folder: Path) -> tuple[Run, Run]:
    """A folder as it was written before: a file a run, of several operations, some of them in both."""
    peers = [PeerResult("gemm", "cuDNN", "9")]
    new, old = timed_run("vector_add"), timed_run("gemm")
    new.environment = dataclasses.replace(new.environment, date="2026-05-06T07:08:09Z")
    new.stages += _some(timed_run("gemm"), "naive").stages
    old.stages = [s for s in old.stages if s.stage != "naive"]
    old.peers = peers
    new.save(folder / "results.json")
    old.save(folder / "results-20260102T030405Z.json")
    return new, old


def test_a_folder_of_before_is_read_and_the_next_run_brings_it_up_to_date(tmp_path: Path) -> None:
    new, old = _before(tmp_path)
    assert store.load(tmp_path) == [new, old]
    run = _some(timed_run("gemm"), "naive", date="2026-06-01T00:00:00Z")
    store.Folder(tmp_path).save(run)
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.json")) == [
        "results/gemm.json",
        "results/vector_add.json",
    ]
    rest = dataclasses.replace(new, stages=[s for s in new.stages if s.operation == "vector_add"])
    assert store.load(tmp_path) == [run, rest, old]


def test_a_folder_that_was_half_brought_up_to_date_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = _before(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, **_: pytest.fail("gone") if path.name == "results.json" else None)
        with pytest.raises(pytest.fail.Exception, match="gone"):
            store.Folder(tmp_path).discard_earlier_stages()
    assert (tmp_path / "results.json").is_file()
    store.Folder(tmp_path).save(_some(emulated_run()))  # of nothing
    assert [path.parent.name for path in store.files(tmp_path)] == ["results", "results"]
    found = {(s.operation, s.stage): (s, run.environment) for s, run in store.current(store.load(tmp_path))}
    assert found == {(s.operation, s.stage): (s, run.environment) for run in (new, old) for s in run.stages}
    assert [len(Runs.load(path).runs) for path in store.files(tmp_path)] == [2, 1]


def test_runs_of_one_date_and_different_circumstances_are_told_apart(tmp_path: Path) -> None:
    one, other = _some(emulated_run("gemm"), "naive"), _some(emulated_run("vector_add"), "naive")
    other.seed = one.seed + 1
    for run in (one, other):
        store.Folder(tmp_path).save(run)
    assert store.load(tmp_path) == [one, other]
    other.seed = one.seed
    store.Folder(tmp_path).save(other)
    assert store.load(tmp_path) == [dataclasses.replace(one, stages=[*one.stages, *other.stages])]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("cuda", "NVIDIA H200", "nvidia-h200"),
        ("cuda", "NVIDIA GeForce RTX 4090 (x/y)", "nvidia-geforce-rtx-4090-x-y"),
        ("emulator", "emulated H200", "emulator"),
        ("cuda", "../..", "device"),
    ],
)
def test_a_device_has_a_folder_name(kind: str, name: str, expected: str) -> None:
    assert store.slug(dataclasses.replace(emulated_run().device, kind=kind, name=name)) == expected
