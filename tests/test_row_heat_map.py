"""The heat map of operations on rows: which cells are asked, who has a time in them, and what the page says."""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grids
import pytest
import recorded
import row_heat_map
from row_heat_map import COMPILER, LIGER, OPERATIONS, OURS, Contestant


def contestant(name: str, answer: Any) -> Contestant:
    """Answers with a number, or raises."""

    def solve() -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return dict(zip("yz", answer, strict=False))

    return Contestant(name, lambda: name, solve)


def timed(*contestants: Contestant) -> dict[str, Any]:
    """On a clock by which a call takes as many microseconds as its contestant's name has letters."""
    right = {"y": 1.0, "z": 2.0}

    def medians(calls: Sequence[Callable[[], Any]]) -> list[float]:
        return [float(len(call())) for call in calls]

    return row_heat_map.timed(contestants, right, 0.01, lambda found, wanted: abs(found - wanted), medians)


def test_who_is_wrong_or_fails_has_no_time() -> None:
    cell = timed(
        contestant("right", (1.0, 2.001)),
        contestant("second output wrong", (1.0, 2.1)),
        contestant("NaN", (1.0, math.nan)),
        contestant("one output alone", (1.0,)),
        contestant("broken", RuntimeError("no such kernel\nand more")),
    )
    assert cell["us"] == {"right": 5.0, "one output alone": 16.0}
    assert cell["wrong"] == {"second output wrong": "0.1", "NaN": "nan"}
    assert cell["failed"] == {"broken": "no such kernel"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_grid_has_what_moves_at_most_a_gigabyte(name: str) -> None:
    found = list(row_heat_map.cells(name))
    places = {(p.dtype, p.rows, p.columns) for p in found}
    assert len(places) == len(found)
    assert max(p.cost.bytes for p in found) <= 1 << 30
    assert {("bf16", 1, 64), ("fp32", 1 << 16, 64), ("bf16", 1 << 20, 64), ("bf16", 1, 1 << 26)} <= places
    assert ("fp32", 1 << 16, 1 << 16) not in places
    assert sum(row_heat_map.compiles(p) for p in found) == len(row_heat_map.COMPILED)


def test_what_compiles_for_each_length_is_asked_of_few_cells() -> None:
    by_place = {(p.dtype, p.rows, p.columns): row_heat_map.asked(p) for p in row_heat_map.cells("softmax")}
    assert by_place["bf16", 16, 64] == {"PyTorch", "PyTorch autograd"}
    assert LIGER in by_place["fp32", 256, 1024] and COMPILER not in by_place["fp32", 4096, 4096]
    assert {LIGER, COMPILER} <= by_place["bf16", 4096, 4096]


class Measured:
    """`measure` without a device: cells of softmax and scan take a second each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.order = 0.0, list[tuple[str, str]]()
        torch = SimpleNamespace(__version__="2.9", cuda=SimpleNamespace(empty_cache=lambda: None))
        monkeypatch.setitem(sys.modules, "torch", torch)
        made = {"device": {"name": "made up", "driver": "1"}, "environment": {"commit": "a" * 40, "date": "2026-11-26"}}
        monkeypatch.setattr(recorded, "begin", lambda device, *lists: made | {name: [] for name in lists})
        monkeypatch.setattr(row_heat_map, "open_device", lambda name: SimpleNamespace(info=lambda: None))
        monkeypatch.setattr(row_heat_map, "find_spec", lambda name: None)
        monkeypatch.setattr(row_heat_map, "compile_ahead", lambda names, seconds: None)
        monkeypatch.setattr(row_heat_map, "Stopwatch", lambda torch, flushed: None)
        monkeypatch.setattr(row_heat_map, "copied", lambda torch, watch: 2000.0)
        monkeypatch.setattr(row_heat_map, "measured", self.measured)
        monkeypatch.setattr(row_heat_map.time, "monotonic", lambda: self.now)

    def measured(self, torch: Any, watch: Any, name: str, problem: Any) -> dict[str, Any]:
        self.now += 1
        self.order.append((name, problem.label))
        cell = row_heat_map.key(name, problem) | {"bytes": problem.cost.bytes, "stage": "made_up"}
        ours = problem.cost.bytes / 1e6  # at 1,000 GB/s, half of the copy
        theirs = {"PyTorch": 2 * ours, LIGER: 1.5 * ours} if name == "softmax" else {"PyTorch": 0.5 * ours}
        return cell | {"us": {OURS: ours} | theirs}

    def run(self, file: Path, *only: str, seconds: float = 1000.0) -> Any:
        row_heat_map.measure(Namespace(file=file, only=list(only), seconds=seconds))
        return recorded.read(file)


def test_compiled_cells_come_last_and_what_was_found_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench, file = Measured(monkeypatch), tmp_path / "rows.json.gz"
    record = bench.run(file, "softmax", "scan")
    every = [("softmax", p.label) for p in row_heat_map.cells("softmax")]
    every += [("scan", p.label) for p in row_heat_map.cells("scan")]
    assert sorted(bench.order) == sorted(every)
    assert {label for _, label in bench.order[-6:]} == {"4096x4096 bf16", "256x65536 bf16", "16x1048576 bf16"}
    assert len(bench.run(file, "softmax")["cells"]) == len(record["cells"]) == len(every)  # in place of those before


def test_at_the_end_of_its_time_it_saves_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench, file = Measured(monkeypatch), tmp_path / "rows.json"
    assert len(bench.run(file, "softmax", "scan", seconds=9.5)["cells"]) == 10
    monkeypatch.setattr(row_heat_map.pytorch, "version_of", lambda name: "0.8.5")
    monkeypatch.setattr(row_heat_map, "find_spec", lambda name: object())
    assert len(bench.run(file, "scan", seconds=1.5)["cells"]) == 2  # with another library nothing goes on


def test_a_cell_has_its_number_and_a_word_where_there_is_none() -> None:
    panel = grids.Grid("made up", grids.RATIO, {(0, 0): 1.234, (0, 1): 31.4}, {(0, 0): "unseen", (1, 0): "wrong"})
    share = grids.Grid("made up", grids.SHARE, {(0, 0): 0.934, (1, 1): 0.021})
    figure = grids.figure([panel, share], ("rows", (1, 1 << 16)), ("columns", (1000, 1 << 20)))
    texts = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert texts == [["1.23", "31", "wrong", ""], ["93", "", "", "2.1"]]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["1", "64k"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1000", "1M"]
