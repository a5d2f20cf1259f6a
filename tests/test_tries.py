"""What `benchmarks/gemm_tries.py` times is a kernel that computes a product, and its page is made of its record."""

from __future__ import annotations

import json
from pathlib import Path

import changed
import gemm_tries
import pytest

from workbench.devices import open_device
from workbench.harness import Case
from workbench.toolchain.compiler import compile_source


@pytest.mark.parametrize("attempt", gemm_tries.TRIES, ids=lambda a: f"{a.stage}, {a.idea}")
def test_a_try_changes_the_stage_and_still_solves_a_problem(attempt: gemm_tries.Try, tmp_path: Path) -> None:
    problem = gemm_tries.parsed(attempt.small)
    usual, tried = gemm_tries.stages(attempt, problem, "NVIDIA H200")
    compiled = compile_source(changed.source(attempt.changes, tried, tmp_path), tried.defines(problem))
    before = compile_source(usual.path, usual.defines(problem))
    plan = gemm_tries.plan(attempt, tried, problem)
    assert compiled.ptx != before.ptx or plan != usual.plan(problem)
    case = Case.of(problem)
    bound = open_device("emulator").bind(compiled, plan, case.arrays, case.storage(), problem.seed)
    bound.run()
    failure, _ = case.judge(bound.read)
    assert failure is None, failure


def test_the_page_is_made_of_its_record() -> None:
    record = json.loads(gemm_tries.RECORD.read_text())
    assert gemm_tries.page(record) == gemm_tries.RECORD.with_suffix(".md").read_text()


def test_a_try_that_computes_something_else_is_on_the_page_without_times() -> None:
    record = json.loads(gemm_tries.RECORD.read_text())
    wrong = {"idea": "a mistake", "stage": "multicast", "problem": "4096x4096x4096"}
    (line,) = [x for x in gemm_tries.page({**record, "rows": [wrong]}).splitlines() if "a mistake" in x]
    assert [cell.strip() for cell in line.strip("|").split("|")][3:] == ["-", "wrong", "-", "-", "-"]


def test_a_change_without_a_place_is_an_error(tmp_path: Path) -> None:
    first = gemm_tries.TRIES[0]
    stage = gemm_tries.stages(first, gemm_tries.parsed(first.small), "NVIDIA H200")[0]
    with pytest.raises(ValueError, match="0 times"):
        changed.source([changed.Change("include/epilogue/tiles.cuh", "not there", "")], stage, tmp_path)


def test_tries_are_chosen_by_words_of_their_ideas() -> None:
    both = {t.idea for t in gemm_tries.chosen(["tiles of 64 x 256", "tiles of 256 x 128"])}
    assert both == {"tiles of 64 x 256", "tiles of 256 x 128"}
    assert gemm_tries.chosen([]) == list(gemm_tries.TRIES)
    with pytest.raises(SystemExit, match=r"no try's idea contains nonsense; there are: .*tiles of 64 x 256"):
        gemm_tries.chosen(["nonsense"])
