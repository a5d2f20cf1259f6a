"""The pages of `benchmarks/` say what their records have: which row is as declared, and which kernel is faster."""

from __future__ import annotations

import re
from functools import partial
from types import ModuleType
from typing import Any

import call_time
import conv2d_layers
import gemm_limits
import model_blocks
import numpy as np
import peers
import pytest
import random_calls
import random_problems
import recorded
import template
from emulated_gpu import EmulatedGpu

from workbench import ops
from workbench.catalogue import registry


def test_the_page_on_the_template_says_beside_which_kernel_it_is_slower() -> None:
    record = _record(template)
    assert "**faster than** `plain`" in template.reading(record)
    assert "**slower than** `vectorized`" in template.reading(record)
    for row in record["rows"]:
        row["cold_us"] = [{"plain": 20.0, "vectorized": 10.0}.get(row["name"], 11.0)]
    assert "- cold, 1.10 on 4096x4096; 1.10 on 16384x8192; 1.10 on 20000x13704" in template.reading(record)
    first = next(row for row in record["rows"] if row["name"].startswith("template"))
    first["cold_us"] = [1.0]
    assert "**not always slower than** `vectorized`" in template.reading(record)


def _record(script: ModuleType) -> dict[str, Any]:
    return recorded.read(script.RECORD)


@pytest.mark.parametrize("operation", registry.operations())
def test_the_stages_of_the_bench_are_in_ladder_order(operation: str) -> None:
    ladder = [stage.name for stage in registry.operations()[operation].stages]
    found = [result.stage for result, _ in recorded.bench(operation)]
    assert found == [name for name in ladder if name in found]


def test_a_product_whose_clock_is_the_same_on_zeros_is_not_said_to_be_held_back_by_power() -> None:
    record = recorded.read(gemm_limits.RECORD)
    clock = gemm_limits.METRICS["SM clock, GHz"]
    last = record["times"][-1]["problem"]

    def not_held_back() -> list[str]:
        return re.findall(r"Power does not hold back (.*?): the clock", gemm_limits.page(record))

    assert last.split(",")[0] not in " ".join(not_held_back())
    for (problem, data), row in zip(gemm_limits.launches(record), gemm_limits.counted_launches(record), strict=True):
        if problem == last and data == "random":
            row["metrics"][clock] = 1.8e9
    (found,) = not_held_back()
    assert last.split(",")[0] in found.split(", ")


def test_the_page_on_calls_has_the_slower_kind_of_arrays_by_matmul() -> None:
    record = recorded.read(gemm_limits.RECORD)
    record |= {"torch": "2.0", "first": {"gemm": 812.4, "softmax": 90.0}}
    record["rows"] = [
        {"operation": "gemm", "cupy": 8.0, "torch": 9.0, "matmul": 18.0, "theirs": 18.0},
        {"operation": "rotary", "cupy": 7.04, "torch": 6.0, "matmul": 20.0},
    ]
    page = call_time.page(record)
    assert re.search(r"\| gemm +\| +8.0 \| +9.0 \| +18.0 \| +0.50 \|", page)
    assert re.search(r"\| rotary +\| +7.0 \| +6.0 \| +- \| +0.35 \|", page)
    assert "the median of `torch.matmul` is 19.0 us" in page and "gemm 812 us, softmax 90 us" in page


def test_the_page_on_blocks_has_the_faster_way_of_each_side_and_keeps_the_last_run_of_a_mode() -> None:
    def run(mode: str, *called: float) -> dict[str, Any]:
        ways = ("PyTorch", "torch.compile", "workbench.ops", "workbench.ops, torch.compile")
        times = dict(zip(ways, called, strict=True))
        errors = {way: {"mean": 0.003 if way == "workbench.ops" else 0.004, "largest": 0.1} for way in ways}
        row = {"block": "Mamba-2", "batch": 3, "positions": 70, "errors": errors}
        record = recorded.read(gemm_limits.RECORD)
        made = {"environment": record["environment"], "device": record["device"], "torch": "2.0", "mode": mode}
        return made | {"rows": [row | {"called": times, "replayed": times}]}

    before = {"runs": [run("default", 9.0, 9.0, 9.0, 9.0), run("other", 8.0, 6.0, 3.0, 4.0)]}
    page = model_blocks.page(model_blocks.merge(before, {"runs": [run("default", 40.0, 60.0, 50.0, 20.0)]}))
    assert re.findall(r"Mamba-2 +\| +3 x 70 .* ([\d.]+) \|", page) == ["2.00"] * 4
    assert re.search(r"\| +40 \| +60 \| +50 \| +20 \|", page) and not re.search(r"\| +9 \|", page)
    assert "error by `workbench.ops` is 0.0030. Divided by that of PyTorch in bfloat16, errors are 0.750" in page


def test_calls_of_every_operation_are_timed() -> None:
    class Anything:
        """Stands for PyTorch, and for whatever comes of it."""

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            return self

    named = {name for name, _ in call_time.cases(Anything())}
    assert named == {o.name for o in registry.operations().values() if o.called}


def test_a_median_is_of_all_calls_and_waits_between_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_time, "CALLS", 20)
    monkeypatch.setattr(call_time, "TOGETHER", 10)
    clock, said = [0], []

    def now() -> int:
        clock[0] += 1000
        return clock[0]

    def slow() -> None:
        said.append("slow")
        clock[0] += 4000

    monkeypatch.setattr(call_time.time, "perf_counter_ns", now)
    found = call_time.medians({"fast": lambda: said.append("fast"), "slow": slow}, lambda: said.append("wait"))
    assert found == {"fast": 1.0, "slow": 5.0}
    assert said.count("wait") == 4 and said.count("slow") == 30


def test_random_extents_are_even_by_their_logarithm_and_a_third_of_them_odd() -> None:
    class Types:
        float32 = None

    draw = random_calls.Draw(np.random.default_rng(0), Types, "float32")
    found = np.array([draw.extent(16384) for _ in range(6000)])
    assert found.min() == 1 and 15000 < found.max() <= 16384
    assert abs((found < 128).mean() - 0.5) < 0.02  # the root of the largest
    large = found[found >= 128]
    assert abs((large % 8 != 0).mean() - 7 / 8 / 3) < 0.03


def test_a_wrong_answer_counts_as_wrong_and_not_as_fast() -> None:
    rows = [
        {"kind": "softmax", "problem": "1x16", "apart": 0.0, "us": 10.0, "theirs": 20.0},
        {"kind": "softmax", "problem": "2x16", "apart": 0.0, "us": 10.0, "theirs": 5.0},
        {"kind": "softmax", "problem": "3x16", "apart": 0.5},
        {"kind": "softmax", "problem": "4x16", "apart": float("nan")},
        {"kind": "softmax", "refused": "too large"},
    ]
    assert random_problems.summary("softmax", rows)[2:] == ["2", "2", "1.00", "0.57", "0.50"]


def test_a_random_problem_is_solved_by_the_stage_that_its_row_names(gpu: EmulatedGpu) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (gpu.upload(rng.standard_normal((1, 1, 8, 64)).astype(np.float16)) for _ in "qkv")
    problem = random_calls.Problem("b1", ops.attention, (q, k, v), lambda: None, {"causal": True})
    assert [gpu.download(found).shape for found in problem.ours()] == [(1, 1, 8, 64), (1, 1, 8)]
    found = problem.chosen()
    assert found["stage"] in {stage.name for stage in registry.operations()["attention"].stages}
    assert "rows=8,keys=8,dim=64,causal=true" in found["asked"] and found["predicted"] is None


def test_every_operation_has_a_kind_of_random_problems() -> None:
    assert {kind.partition("-")[0] for kind in random_calls.KINDS} == set(registry.operations())


def test_a_random_call_is_beside_the_library_that_the_operation_declares(gpu: EmulatedGpu) -> None:
    rng = np.random.default_rng(0)
    arrays = {"y": gpu.upload(rng.random((3, 5), np.float32)), "dy": gpu.upload(rng.random((3, 5), np.float32))}
    problem = random_calls.beside("PyTorch", "3x5", ops.softmax_backward, arrays)
    (declared,) = (b for b in registry.operations()["softmax_backward"].baselines if b.name == "PyTorch")
    assert isinstance(problem.theirs, partial) and problem.theirs.func is declared.call
    assert problem.theirs.keywords == arrays and (problem.theirs.args[0].rows, problem.theirs.args[0].columns) == (3, 5)
    assert gpu.download(problem.ours()).shape == (3, 5)
    rows = {name: gpu.upload(np.ones((1, 70_000), np.float32)) for name in ("y", "dy")}
    with pytest.raises(ValueError, match=r"^Liger: it takes rows of at most 65,536 elements"):
        random_calls.beside("Liger", "1x70000", ops.softmax_backward, rows)


def test_answers_of_several_arrays_are_as_far_apart_as_the_farthest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_problems, "apart", lambda torch, ours, theirs: abs(ours - theirs))
    assert random_problems.farthest(None, 1.0, 1.5) == 0.5
    assert random_problems.farthest(None, (1.0, 5.0), [1.0, 2.0]) == 3.0
    assert random_problems.farthest(None, (1.0, 5.0), 3.0) == 2.0  # a library without the second output
    assert np.isnan(random_problems.farthest(None, (float("nan"), 1.0), (1.0, 1.0)))


def test_a_kind_that_is_measured_again_on_a_device_replaces_what_the_record_had_of_it() -> None:
    def run(device: str, *kinds: str) -> dict[str, Any]:
        return {"device": {"name": device}, "rows": [{"kind": kind} for kind in kinds]}

    before = {"runs": [run("H100", "scan", "softmax"), run("H200", "scan", "softmax"), run("H200", "conv2d")]}
    found = random_problems.merge(before, {"runs": [run("H200", "scan", "conv2d")]})["runs"]
    assert found == [run("H200", "scan", "conv2d"), run("H100", "scan", "softmax"), run("H200", "softmax")]


def test_known_problems_have_means_of_what_each_library_takes() -> None:
    rows = [
        {"kind": "decode", "problem": "b1", "stage": "last_block", "us": 10.0, "theirs": {"cuDNN": 20.0}},
        {
            "kind": "decode",
            "problem": "b2",
            "stage": "last_block",
            "us": 10.0,
            "theirs": {"cuDNN": 5.0, "FlashAttention-3": 8.0},
        },
        {"kind": "decode", "problem": "b3", "apart": 0.5, "refused": {}},
        {"kind": "ssd", "problem": "b4", "stage": "tma", "us": 10.0, "theirs": {}},
    ]
    assert peers.means("decode", rows) == (
        "Geometric means: 1.000 of cuDNN (lowest 0.500), 0.800 of FlashAttention-3 (lowest 0.800)."
    )
    assert peers.means("ssd", rows) == "No library was timed."
    made = {"commit": "0" * 40, "date": "2026-01-01T00:00:00Z"}
    text = peers.page({"runs": [{"device": {"name": "H200"}, "environment": made, "torch": "2", "rows": rows}]})
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| b")]
    assert ["b2", "`last_block`", "10.0", "5.0", "8.0", "0.50", "0.80"] in cells
    assert ["b3", "wrong", "-", "-", "-", "-", "-"] in cells


def test_known_problems_are_beside_libraries_that_their_operations_declare() -> None:
    declared = {baseline.name for operation in registry.operations().values() for baseline in operation.baselines}
    assert {library for kind in peers.KINDS.values() for library in kind.libraries} <= declared


def test_the_timed_convolutions_have_a_table_and_means_beside_the_drawn_layers() -> None:
    record = _record(conv2d_layers)
    drawn = [row for row in record["rows"] if row["problem"] in {str(p) for _, p in conv2d_layers.layers([])}]
    suite = [problem for _, problem in conv2d_layers.problems(["suite"])]
    assert len(drawn) == 20 and len(suite) == 10 and len(list(conv2d_layers.problems(["unet", "suite"]))) == 15
    timed = [{**drawn[0], "problem": str(problem), "label": problem.label} for problem in suite]
    layers, _, table = conv2d_layers.page({**record, "rows": [*drawn, *timed]}).partition("## The timed problems")
    assert "over 20 layers:" in layers and all(problem.label not in layers for problem in suite)
    assert all(f"| {problem.label} " in table for problem in suite)
    for mean in ("over 10 problems:", "over 8 dense problems:", "over 2 depthwise problems:"):
        assert mean in table
    assert "timed problems" not in conv2d_layers.page({**record, "rows": drawn})
