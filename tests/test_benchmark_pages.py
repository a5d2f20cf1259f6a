"""The pages of `benchmarks/` say what their records have: which row is as declared, and which kernel is faster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import call_time
import captured_programs
import found
import launch_races
import numpy as np
import peers
import pytest
import random_calls
import random_problems
import recorded
import suite_cases
import suites
from emulated_gpu import EmulatedGpu

from workbench import ops
from workbench.catalogue import registry


@pytest.mark.parametrize("operation", registry.operations())
def test_the_stages_of_the_bench_are_in_ladder_order(operation: str) -> None:
    ladder = [stage.name for stage in registry.operations()[operation].stages]
    found = [result.stage for result, _ in recorded.bench(operation)]
    assert found == [name for name in ladder if name in found]


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


def test_every_operation_that_a_library_has_has_a_kind_of_random_problems() -> None:
    libraries = {name for name, o in registry.operations().items() if {b.name for b in o.baselines} - {"NumPy"}}
    assert {kind.partition("-")[0] for kind in random_calls.KINDS} == libraries


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


def test_known_problems_are_beside_libraries_that_their_operations_declare() -> None:
    declared = {baseline.name for operation in registry.operations().values() for baseline in operation.baselines}
    assert {library for kind in peers.KINDS.values() for library in kind.libraries} <= declared


def test_every_race_of_launches_is_found_and_mended_and_the_page_counts_those_that_a_gpu_shows() -> None:
    rows = []
    for key, case in launch_races.CASES.items():
        (found,), none = launch_races.emulated(case, False), launch_races.emulated(case, True)
        assert ": race: " in found and none == []
        rows += [{"case": key, "fixed": False, "wrong": 3, "found": [found]}]
        rows += [{"case": key, "fixed": True, "wrong": 0, "found": none}]
    rows[0]["wrong"], rows[2]["wrong"] = None, 0
    made = {"environment": {"commit": "c" * 40, "date": "2026-01-02"}, "device": {"name": "GPU", "driver": "1"}}
    page = launch_races.page(made | {"rows": rows})
    assert "3 of 4 faults are seen on the GPU" in page and "hung" in page and "3 of 20 wrong" in page


def test_a_remedy_is_put_at_its_line_and_refused_where_the_words_are_not_there(tmp_path: Path) -> None:
    case = found.Case("a/b", "0", ".", "k.cu", "", "", "", (("k.cu", 2, "x", "y"), ("k.cu", 2, "", "z;")))
    (tmp_path / "k.cu").write_text("x;\nx;\n")
    found.mend(case, tmp_path)
    assert (tmp_path / "k.cu").read_text() == "x;\ny; z;\n"
    with pytest.raises(ValueError, match=r"k\.cu:2 has no 'x'"):
        found.mend(case, tmp_path)


def test_a_fault_of_a_public_kernel_is_found_with_its_witness_and_its_remedy_is_tried(tmp_path: Path) -> None:
    launch = "--grid 1 --block 64 --arg x:i32[64]=arange --arg y:i32[64]"
    case = found.Case(
        "a/b", "0", "src", "k.cu", "Read too early.", "a barrier", launch, (("k.cu", 2, "", found.BARRIER),)
    )
    source = "__global__ void k(int* x, int* y) { __shared__ int s[64];\ns[threadIdx.x] = x[threadIdx.x];\n"
    (tmp_path / "a+b/src").mkdir(parents=True)
    (tmp_path / "a+b/src/k.cu").write_text(source + "y[threadIdx.x] = s[63 - threadIdx.x]; }\n")
    row = found.row(case, tmp_path)
    assert "k.cu:2: race:" in row["found"] and row["left"] == []
    said = found.entry(1, case, row)
    assert f"`y[{row['witness']['index']}]` becomes" in said and "Remedy: a barrier. With it" in said
    with pytest.raises(ValueError, match="leaves"):
        found.entry(1, case, {**row, "left": [row["found"]]})


RACY = """//xfail:NOT_ALL_VERIFIED
//--blockDim=64 --gridDim=[1,1] -DSHIFT=1
__global__ void shift(int* a, unsigned width) {
    __requires(width == 40);
    if (threadIdx.x < width) a[threadIdx.x] = a[threadIdx.x + SHIFT];
}
"""


def test_a_case_of_a_suite_is_launched_as_its_first_lines_say_and_counted_by_its_label(tmp_path: Path) -> None:
    prelude = tmp_path / "annotations.h"
    prelude.write_text(suite_cases.PRELUDE)
    cases = []
    for name, old, new in (("racy", "", ""), ("right", "SHIFT=1", "SHIFT=0"), ("odd", "int* a", "struct other a")):
        file = tmp_path / f"{name}.cu"
        file.write_text(RACY.replace(old, new))
        cases += suite_cases.annotated(name, file, name != "right", lines=frozenset({5}))
    assert "--grid 1,1 --block 64" in " ".join(cases[0].launches[0]) and "--arg=width:u32=40" in cases[0].launches[0]
    rows = {row["case"]: row for row in suites.judged(cases, [f"--option=--pre-include={prelude}"], 2)}
    assert [rows["racy"][key] for key in ("as", "at", "faulty", "said")] == ["found", True, True, "race at 5"]
    assert 0 < rows["racy"]["seconds"] < 60 and rows["right"]["as"] == "clean" and rows["odd"]["as"] == "not run"
    missed = {"case": "other", "faulty": True, "as": "missed", "said": ""}
    strict = {"case": "equal", "faulty": True, "as": "strict", "said": "race_same_value at 1"}
    counted = suites.figures([*rows.values(), missed, strict])
    assert counted == [5, 1, 1, 1, 0, 1, 1, "0.667", "0.667", "1.000", "1 of 1"]
    assert suites.figures([*rows.values(), missed, strict], 1)[7:9] == ["0.667", "1.000"]
    made = {"environment": {"commit": "c" * 40, "date": "2026-01-02"}, "device": {"name": "emulator", "driver": ""}}
    kept = {"commit": "d" * 40, "judged_by": "e" * 40, "cases": 9, "rows": [*rows.values(), missed]}
    page = suites.page(made | {"suites": {"Faial": kept}})
    assert "| `other` | missed | nothing" in page and "struct other" in page and "`dddddddddddd`" in page
    assert "judged by commit `eeeeeeeeeeee`: 4 of 9 cases" in page


def test_the_page_of_suites_is_made_of_its_record() -> None:
    record = recorded.read(suites.RECORD)
    assert recorded.page_beside(suites.RECORD).read_text() == suites.page(record)
    missed = {f"{n}/{r['case']}" for n, kept in record["suites"].items() for r in kept["rows"] if r["as"] == "missed"}
    assert missed >= suite_cases.NOT_EXECUTED


@pytest.mark.parametrize(
    ("suite", "code", "said", "ended"),
    [
        (captured_programs.SAMPLES, 0, "done", "passes"),
        (captured_programs.SAMPLES, 0, "Test FAILED", "fails, exit code 0"),
        (captured_programs.SAMPLES, 2, "Waiving test", "waives itself"),
        (captured_programs.HECBENCH, 0, "PASS", "passes"),
        (captured_programs.HECBENCH, 0, "done", "fails, exit code 0"),
        (captured_programs.HECBENCH, 3, "PASS", "fails, exit code 3"),
    ],
)
def test_a_captured_program_judges_itself(suite: str, code: int, said: str, ended: str) -> None:
    one = captured_programs.Program(suite, "a")
    finding = {"severity": "error", "text": "a.cu:1: race: x\n  more"}
    result = {"launches": {"k": 2, "l": 1}, "findings": [finding], "host": [], "refused": [], "exit_code": code}
    captured_programs.judge(one, result, said)
    assert (one.ended, one.launches, one.failures) == (ended, 3, ["a.cu:1: race: x"])
