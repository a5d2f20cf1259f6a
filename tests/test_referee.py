"""Answers to large problems: judged wholly beside a reference of the device, and by NumPy at places that are drawn.

The device is the host here: arrays of NumPy, in the process of the test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workbench.catalogue import registry
from workbench.judge.drawn import ALONE, STRATUM, dense
from workbench.judge.whole import Whole
from workbench.kernels.attention import AttentionProblem
from workbench.kernels.attention.problem import Layout
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.softmax import SoftmaxProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.measure import referee
from workbench.measure.referee import Judge, Referee, Unprepared
from workbench.model.parts import MOST_BYTES, MOST_PLACES
from workbench.model.problem import Problem

TILE = 64
GEMM = GemmProblem(m=1000, n=520, k=40, dtype="bf16", out="bf16")
VECTOR = VectorAddProblem(n=1_000_003, dtype="fp32")
SOFTMAX = SoftmaxProblem(rows=700, columns=130, dtype="fp32")
ATTENTION = AttentionProblem(batch=2, heads=4, group=2, rows=300, keys=300, dim=64, causal=True, layout=Layout.BSHD)
PROBLEMS: list[Problem] = [GEMM, VECTOR, SOFTMAX, ATTENTION]


class Direct(Referee):
    """A referee in this process."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.judge_here = judge

    def _ask_there(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.judge_here, *arguments)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referee, "LARGE_ELEMENTS", 1)


def on_host() -> Judge:
    return Judge(np, np.random.default_rng, 1 << 34)


def answer_of(judge: Judge, problem: Problem) -> dict[str, np.ndarray[Any, Any]]:
    """The right answer: the reference, rounded once."""
    prepared = judge.prepare(problem)
    given = {n: judge._on_host(a, prepared.storage[n], None) for n, a in prepared.arrays.items() if a.given}
    right = prepared.problem.reference(given)
    return {n: prepared.arrays[n].pack(prepared.arrays[n].dtype.rounded(values)) for n, values in right.items()}


def element(problem: Problem, answer: dict[str, np.ndarray[Any, Any]]) -> tuple[str, np.ndarray[Any, Any]]:
    """The first output of an answer, as the array has its elements."""
    name = next(iter(answer))
    return name, problem.arrays()[name].view(answer[name])


def wrong(values: np.ndarray[Any, Any], at: Any) -> None:
    values[at] = (values[at].astype(np.float32) + 1).astype(values.dtype)


def one_in_the_tail(values: np.ndarray[Any, Any]) -> None:
    wrong(values, tuple(extent - 1 for extent in values.shape))


def one_in_the_last_tile(values: np.ndarray[Any, Any]) -> None:
    wrong(values, tuple(extent - 1 - min(5, extent // 3) for extent in values.shape))


def a_whole_tile(values: np.ndarray[Any, Any]) -> None:
    at = tuple(slice(extent // 3, extent // 3 + TILE) for extent in values.shape)
    values[at] = np.roll(values[at], 1, axis=-1)


def zeros_from_a_block_on(values: np.ndarray[Any, Any]) -> None:
    values[values.shape[0] - max(1, values.shape[0] // 8) :] = 0


PLANTED = (one_in_the_tail, one_in_the_last_tile, a_whole_tile, zeros_from_a_block_on)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: type(p).__name__)
def test_a_right_answer_passes_and_every_planted_fault_is_caught(problem: Problem) -> None:
    judge = on_host()
    whistle = Direct(judge)
    assert whistle.refuses(problem) == ""
    right = answer_of(judge, problem)
    assert whistle.judge(problem, right) is None
    assert "whole answer by CuPy in float64" in whistle.said(problem)
    for plant in PLANTED:
        spoilt = {name: storage.copy() for name, storage in right.items()}
        name, values = element(problem, spoilt)
        plant(values)
        failure = whistle.judge(problem, spoilt)
        assert failure is not None, plant.__name__
        assert f"elements of {name} are wrong" in failure.message
        assert failure.wrong


def test_the_place_of_a_wrong_element_is_that_in_the_whole_array() -> None:
    judge = on_host()
    right = answer_of(judge, GEMM)
    wrong(GEMM.arrays()["C"].view(right["C"]), (733, 419))
    failure = Direct(judge).judge(GEMM, right)
    assert (failure.wrong_count, failure.wrong[0].index) == (1, [733, 419])


def test_an_answer_that_is_right_only_at_the_drawn_places_is_wrong() -> None:
    """Which a stage cannot give, as it has no way to the process that draws: here it is told."""
    for problem in (GEMM, SOFTMAX):
        judge = on_host()
        right = answer_of(judge, problem)
        name = next(iter(right))
        kept = problem.arrays()[name].pack(np.zeros(problem.arrays()[name].shape, right[name].dtype))
        for part in judge.prepare(problem).parts:
            at = part.index[name]
            problem.arrays()[name].view(kept)[at] = problem.arrays()[name].view(right[name])[at]
        failure = Direct(judge).judge(problem, {name: kept})
        assert "at drawn places" not in failure.message


def test_a_stale_answer_is_wrong_since_inputs_are_drawn_anew_in_every_process() -> None:
    first, second = on_host(), on_host()
    stale = answer_of(first, VECTOR)
    assert Direct(first).judge(VECTOR, stale) is None
    assert Direct(second).judge(VECTOR, stale) is not None


@pytest.mark.parametrize("plant", [one_in_the_tail, a_whole_tile, zeros_from_a_block_on])
def test_where_a_library_is_missing_more_rows_are_drawn_and_that_is_said(
    plant: Callable[[np.ndarray[Any, Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*arguments: Any) -> Whole:
        raise ImportError("libcublas.so.13: cannot open shared object file")

    monkeypatch.setattr(Whole, "of", missing)
    judge = on_host()
    whistle = Direct(judge)
    right = answer_of(judge, GEMM)
    assert whistle.judge(GEMM, right) is None
    assert "drawn by NumPy alone" in whistle.said(GEMM)
    assert "libcublas" in whistle.said(GEMM)
    assert dense(GEMM, judge.prepare(GEMM).parts, ALONE)
    plant(GEMM.arrays()["C"].view(right["C"]))
    failure = whistle.judge(GEMM, right)
    assert "at drawn places are wrong" in failure.message


def test_a_reference_of_the_device_that_is_not_numpys_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Whole.of

    def off_by_one_element(*arguments: Any) -> Whole:
        made = real(*arguments)
        made.expected["C"][...] += 1e-2
        return made

    monkeypatch.setattr(Whole, "of", off_by_one_element)
    judge = on_host()
    whistle = Direct(judge)
    assert whistle.judge(GEMM, answer_of(judge, GEMM)) is None
    assert "the reference that CuPy computes is not NumPy's" in whistle.said(GEMM)


def test_what_is_expected_is_solved_wholly_before_there_is_an_answer() -> None:
    whistle = Direct(on_host())
    whistle.expect([GEMM, SOFTMAX])
    whistle.wait()
    assert all(whistle.judge_here.prepared[problem].whole for problem in (GEMM, SOFTMAX))


def test_without_independent_places_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GemmProblem, "axes", lambda problem: ())
    assert "does not say which of its places are independent" in Direct(on_host()).refuses(GEMM)
    with pytest.raises(Unprepared):
        on_host().prepare(GEMM)


def test_memory_is_bounded_and_what_was_forgotten_is_solved_again() -> None:
    judge = Judge(np, np.random.default_rng, 1 << 20)
    whistle = Direct(judge)
    answers = {problem: answer_of(judge, problem) for problem in (GEMM, SOFTMAX)}
    assert len(judge.prepared) < 3
    for problem in (SOFTMAX, GEMM, SOFTMAX):
        fresh = answer_of(judge, problem)
        assert whistle.judge(problem, fresh) is None
    assert answers


@pytest.mark.parametrize("operation", sorted(registry.operations()))
def test_the_drawn_places_of_the_suite_are_enough_and_touch_tiles_where_rows_are_short(operation: str) -> None:
    for problem in registry.operations()[operation].suite:
        parts = problem.drawn_parts(np.random.default_rng(0), STRATUM)
        if not parts:
            continue
        arrays = problem.arrays()
        name = max(parts[0].index or arrays, key=lambda name: arrays[name].size)
        assert sum(part.problem.arrays()[name].size for part in parts) >= min(1 << 16, arrays[name].size)
        extent = getattr(problem, problem.axes()[0].field) if problem.axes() else 1
        stratum = max(STRATUM, extent // MOST_PLACES)
        short = 256 * problem.cost.bytes / extent < MOST_BYTES
        assert not short or len(problem.extents) > 2 or dense(problem, parts, stratum)
