"""Timelines: that viewers can open them, and that they show what happened."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke as workbench

from workbench.emulator import Output, Report, Traced, chrome_trace, launch

Json = dict[str, Any]
PROBLEM = "128x256x512,dtype=bf16"  # one block of tma_pipeline, eight slices


def stage_trace(folder: Path, *arguments: str) -> Json:
    target = folder / "trace.json"
    result = workbench("trace", *arguments, "-o", str(target))
    assert result.exit_code == 0, result.output
    assert str(target) in result.stdout
    return checked(json.loads(target.read_text()))


def test_a_trace_is_named_for_its_stage(here: Path) -> None:
    assert workbench("trace", "vector_add:naive", "--problem", "n=4").exit_code == 0
    assert [path.name for path in here.iterdir()] == ["trace-vector_add-naive.json"]


def of(report: Report) -> Json:
    assert report.statistics.timeline is not None
    return checked(chrome_trace([report.statistics.timeline]))


def slices(trace: Json, category: str | None = None) -> list[Json]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and category in (None, e["cat"])]


def names(trace: Json, kind: str) -> dict[tuple[int, int], str]:
    found = [e for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == kind]
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in found}


def checked(trace: Json) -> Json:
    """The trace, if it is one that the format allows: every track in order and without overlaps, every arrow whole."""
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert "warp instruction" in trace["otherData"]["time"]
    tracks: dict[tuple[int, int], list[Json]] = defaultdict(list)
    ends: dict[int, dict[str, Json]] = defaultdict(dict)
    for event in trace["traceEvents"]:
        assert {"ph", "pid", "tid", "name"} <= set(event)
        assert event["ph"] in "XMsf"
        if event["ph"] == "X":
            assert event["dur"] >= 1
            tracks[event["pid"], event["tid"]].append(event)
        elif event["ph"] != "M":
            assert event["ph"] not in ends[event["id"]]
            ends[event["id"]][event["ph"]] = event
    for track in tracks.values():
        for before, after in pairwise(track):
            assert before["ts"] + before["dur"] <= after["ts"]
    assert set(names(trace, "thread_name")) == set(tracks)
    assert {pid for pid, _ in names(trace, "process_name")} == {pid for pid, _ in tracks}
    for pair in ends.values():
        assert set(pair) == {"s", "f"}
        assert pair["f"]["bp"] == "e"
        at = {}
        for which, end in pair.items():
            inside = [e for e in tracks[end["pid"], end["tid"]] if e["ts"] <= end["ts"] < e["ts"] + e["dur"]]
            assert len(inside) == 1
            at[which] = inside[0]
        assert (at["s"]["cat"], at["f"]["cat"]) == ("load", "wait")
        assert at["s"]["ts"] + at["s"]["dur"] <= at["f"]["ts"] + at["f"]["dur"]
    return trace


def test_a_pipeline_shows_its_warps_barriers_copies_and_products(tmp_path: Path) -> None:
    trace = stage_trace(tmp_path, "gemm:tma_pipeline", "--problem", PROBLEM)
    assert list(names(trace, "process_name").values()) == ["block (0, 0, 0)"]
    tracks = set(names(trace, "thread_name").values())
    assert {f"warp {w}" for w in range(12)} <= tracks
    assert {"bulk copies", "warp 4: tensor cores", "warp 11: tensor cores"} <= tracks
    assert sum(name.startswith("mbarrier at ") for name in tracks) == 8  # a full and an empty one for each of 4 slices
    assert sum(e["args"]["bytes"] for e in slices(trace, "load")) == 512 * (128 + 256) * 2
    assert len(slices(trace, "products")) == 8 * 8  # one group for each slice and consumer warp
    assert {e["name"] for e in slices(trace, "products")} == {"group of 4"}
    assert any("KTile<IN>::multiply" in e["name"] for e in slices(trace, "run"))
    arrows = [e for e in trace["traceEvents"] if e["ph"] == "f"]
    waits = {(e["pid"], e["tid"], e["ts"] + e["dur"]) for e in slices(trace, "wait") if "mbarrier" in e["name"]}
    assert arrows
    assert {(e["pid"], e["tid"], e["ts"] + 0.5) for e in arrows} <= waits
    # no slice of k is multiplied before it has landed
    landed = sorted(e["ts"] + e["dur"] for e in slices(trace, "load"))
    for warp in range(4, 12):
        begun = sorted(e["ts"] for e in slices(trace, "products") if e["tid"] // 16 == (1 << 17) // 16 + warp)
        assert all(landed[2 * k + 1] <= time for k, time in enumerate(begun))


@pytest.mark.parametrize("spec", ["gemm:cp_async", "gemm:split_k", "gemm:tma_store", "matvec:split_k"])
def test_every_kind_of_stage_can_be_traced(tmp_path: Path, spec: str) -> None:
    two_blocks = "256x64" if spec.startswith("matvec") else "256x256x64"
    problem = f"{two_blocks},dtype=bf16,out=bf16"
    trace = stage_trace(tmp_path, spec, "--problem", problem, "--block", "0", "--block", "1", "--seed", "3")
    assert trace["otherData"]["seeds"] == [3]
    kinds = {e["cat"] for e in slices(trace)}
    assert "run" in kinds
    assert ("copies" in kinds) == (spec == "gemm:cp_async")
    assert ("load" in kinds) == ("stores" in kinds) == (spec in ("gemm:split_k", "gemm:tma_store"))


SUM = """
extern "C" __global__ void k(const float* x, float* y, int rounds) {
    __shared__ float kept;
    if (threadIdx.x == 32) {
        float sum = 0;
        for (int i = 0; i < rounds; ++i) sum += x[i];  // long
        kept = sum;
    }
    __syncthreads();  // meet
    if (threadIdx.x < 32) y[threadIdx.x] = kept;
}"""


def traced_sum(seed: int = 0, **options: Any) -> Report:
    x, y = np.ones(64, np.float32), np.empty(32, np.float32)
    return launch(SUM, "k", 2, 64, [x, Output(y), 64], seed=seed, trace=Traced(**options))


def test_a_wait_lasts_until_the_last_has_come_in_every_order_of_warps() -> None:
    found = set()
    for seed in range(6):
        trace = of(traced_sum(seed))
        (wait,) = slices(trace, "wait")
        assert wait["name"] == "wait: barrier 0"
        assert wait["args"]["line"].endswith(":9")
        (meets,) = [e for e in slices(trace, "run") if e["tid"] == 1 and e["name"].startswith("9: ")]
        assert wait["ts"] + wait["dur"] == meets["ts"] + meets["dur"]
        found.add((wait["tid"], wait["ts"], wait["dur"]))
    assert len(found) == 1


def test_each_instruction_of_a_block_takes_one_unit_of_its_warp() -> None:
    report = traced_sum(blocks=(0, 1))
    trace = of(report)
    assert sum(e["dur"] for e in slices(trace, "run")) == report.statistics.warp_instructions
    assert sorted(names(trace, "process_name").values()) == ["block (0, 0, 0)", "block (1, 0, 0)"]
    assert {e["pid"] for e in slices(of(traced_sum(blocks=(1,))))} == {2}


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    trace = of(traced_sum(events=3))
    assert trace["otherData"]["cut"]
    assert len(slices(trace)) == 3
    target = tmp_path / "t.json"
    arguments = ("gemm:tma_pipeline", "--problem", PROBLEM, "--events", "20", "-o", str(target))
    assert "left out" in workbench("trace", *arguments).stdout


def test_a_deadlock_ends_in_the_wait_that_never_ends(tmp_path: Path) -> None:
    source = tmp_path / "hang.cu"
    source.write_text(
        'extern "C" __global__ void hang() {\n'
        "    if (threadIdx.x < 32)\n"
        '        asm volatile("bar.sync 1, 64;");\n'
        "    else\n"
        '        asm volatile("bar.sync 2, 64;");\n'
        "}\n"
    )
    target = tmp_path / "t.json"
    result = workbench("emulate", str(source), "--grid", "1", "--block", "64", "--trace", str(target))
    assert result.exit_code == 1
    trace = checked(json.loads(target.read_text()))
    assert sorted(e["name"] for e in slices(trace, "wait")) == ["wait: barrier 1", "wait: barrier 2"]


def test_no_timeline_is_recorded_unless_asked_for() -> None:
    x, y = np.ones(64, np.float32), np.empty(32, np.float32)
    assert launch(SUM, "k", 2, 64, [x, Output(y), 64]).statistics.timeline is None


@pytest.mark.parametrize("command", ["trace", "emulate"])
def test_a_block_that_is_not_in_the_grid_is_wrong_usage(command: str, tmp_path: Path) -> None:
    source, target = tmp_path / "k.cu", tmp_path / "t.json"
    source.write_text('extern "C" __global__ void k() {}')
    arguments = ["vector_add:naive", "--problem", "n=600", "-o", target, "--block", "0", "--block", "3"]
    if command == "emulate":
        arguments = [source, "--grid", "3", "--block", "32", "--trace", target, "--trace-block", "3"]
    result = workbench(command, *map(str, arguments))
    assert (result.exit_code, "Error: there is no block 3: the last one is 2" in result.stderr) == (2, True)
    assert not target.exists()


def test_wrong_usage_ends_with_2() -> None:
    assert workbench("trace", "gemm").exit_code == 2
    assert workbench("trace", "gemm:naive", "--problem", "8").exit_code == 2
