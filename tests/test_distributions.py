"""Inputs in every distribution: what they hold, that their problems replay from text, and how they are judged."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import configuration

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.harness import Case, drawn
from workbench.judge import soundness
from workbench.judge.case import compare
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.gemm.problem import Activation
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.arrays import Array
from workbench.model.distributions import WITHOUT_NUMBERS, Distribution, NonFinite, distributed
from workbench.model.dtypes import BF16, FP16, FP32
from workbench.model.problem import Problem, ProblemError, Size, Tier
from workbench.model.short import simple_operation
from workbench.model.stage import Stage

KINDS = [kind for kind in Distribution if kind is not Distribution.NORMAL]


def inputs(kind: Distribution, dtype: str = "fp32", seed: int = 0, tier: Tier = Tier.BOUNDED) -> np.ndarray[Any, Any]:
    given = VectorAddProblem(n=4096, dtype=dtype, seed=seed, distribution=kind, tier=tier).given()
    return np.concatenate([values.astype(np.float64) for values in given.values()])


def test_a_problem_keeps_its_distribution_in_its_text_and_its_inputs_in_its_seed() -> None:
    for kind in Distribution:
        problem = GemmProblem(m=5, n=6, k=7, distribution=kind, seed=3)
        assert GemmProblem.parse(str(problem)) == problem
        assert ("distribution" in str(problem)) == (kind is not Distribution.NORMAL)
        assert problem.given()["A"].tobytes() == problem.given()["A"].tobytes()
        if kind is not Distribution.NORMAL:
            ordinary = dataclasses.replace(problem, distribution=Distribution.NORMAL).given()
            changed = [name for name in ("A", "B") if problem.given()[name].tobytes() != ordinary[name].tobytes()]
            assert changed or kind in WITHOUT_NUMBERS


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_each_distribution_holds_what_it_says(dtype: str) -> None:
    least_normal = {"bf16": 2.0**-126, "fp16": 2.0**-14, "fp32": 2.0**-126}[dtype]
    for kind in KINDS:
        seen = np.concatenate([inputs(kind, dtype, seed) for seed in range(12)])
        assert np.isfinite(seen).all() == (kind not in WITHOUT_NUMBERS)
        if kind is Distribution.ZEROS:
            assert {True, False} == set(np.signbit(seen[seen == 0]))
        if kind is Distribution.SUBNORMAL:
            assert ((seen != 0) & (np.abs(seen) < least_normal)).mean() > 0.05
        if kind is Distribution.LARGE:
            assert np.median(np.abs(seen)) > 2.0**10
        if kind is Distribution.NON_FINITE:
            assert np.isnan(seen).any() and {np.inf, -np.inf} <= set(seen[np.isinf(seen)])


@pytest.mark.parametrize("kind", WITHOUT_NUMBERS)
def test_nan_has_both_signs(kind: Distribution) -> None:
    seen = np.concatenate([inputs(kind, seed=seed).astype(np.float32) for seed in range(12)])
    assert set(np.signbit(seen[np.isnan(seen)])) == {True, False}


def test_what_stands_out_is_often_the_first_or_the_last() -> None:
    places = [int(np.argmax(np.abs(inputs(Distribution.OUTLIER, seed=seed)[:4096]))) for seed in range(60)]
    assert min(places.count(place) for place in (0, 4095)) >= 5


@pytest.mark.parametrize("kind", [Distribution.CONSTANT, Distribution.POSITIVE])
def test_terms_of_a_sum_over_several_axes_have_one_scale(kind: Distribution) -> None:
    """Many equal terms that are just too small to be added to what another axis has added up would all be lost."""
    drawn = [
        distributed(np.ones((3, 4, 5), np.float32), FP32, kind, (-40, 40), np.random.default_rng(n)) for n in range(20)
    ]
    exponents = [np.frexp(np.abs(values.astype(np.float64)))[1] for values in drawn]
    assert all((of_one == of_one[:, :1, :1]).all() for of_one in exponents)
    assert any(np.unique(of_one[:, 0, 0]).size > 1 for of_one in exponents)


def test_numbers_that_are_close_together_leave_what_is_infinite() -> None:
    masked = np.array([[1, -np.inf, 3], [-np.inf] * 3], np.float32)
    found = distributed(masked, FP32, Distribution.CLOSE, (-4, 4), np.random.default_rng(0))
    assert np.array_equal(np.isneginf(found), np.isneginf(masked)) and np.isfinite(found).sum() == 2


def test_integers_that_do_not_depend_on_the_conversion_of_nan_are_made_of_it() -> None:
    top = simple_operation("top", "x: n m fp32 -> y: n int32")(lambda x: np.argmax(x, axis=1))
    above = simple_operation("above", "x: n m fp32 -> y: n int32")(lambda x: (x > 0.5).sum(axis=1))
    cast = simple_operation("cast", "x: n fp32 -> y: n int32")(lambda x: np.rint(x).astype(np.int32))
    rounded = simple_operation("rounded", "x: n fp32 -> y: n int8")(lambda x: np.clip(np.rint(x), -128, 127))
    for operation, has in ((top, True), (above, True), (cast, False), (rounded, False)):
        assert (Distribution.NON_FINITE in operation.problem(n=3).distributions()) == has
    case = Case.of(top.problem(n=20, m=30, distribution=Distribution.MANY_NON_FINITE))
    assert (case.expected["y"] == np.argmax(case.inputs["x"], axis=1)).all()


def test_the_exact_tier_keeps_small_integers() -> None:
    for kind in KINDS:
        values = inputs(kind, tier=Tier.EXACT)
        assert set(values[np.isfinite(values)]) <= {-2, -1, 0, 1, 2}
    zeros = inputs(Distribution.ZEROS, tier=Tier.EXACT)
    assert set(np.signbit(zeros[zeros == 0])) == {True, False}


@pytest.mark.parametrize("operation", registry.operations())
def test_every_operation_states_its_policy_and_passes_its_own_comparison(operation: str) -> None:
    problem = registry.operations()[operation].problem
    assert any("non_finite" in vars(kind) for kind in problem.mro()[:-1] if kind.__name__ != "Problem")
    for kind in KINDS:
        for seed, tier in ((s, t) for s in range(4) for t in problem.tiers):
            made = problem(seed=seed, tier=tier, **dict.fromkeys(problem.extents, 9))
            if kind not in made.distributions():
                continue
            case = Case.of(dataclasses.replace(made, distribution=kind))
            for name, array in case.arrays.items():
                if array.output:
                    right = array.dtype.rounded(case.expected[name])
                    found = compare(name, array, right, case.expected[name], case.bound[name], tier)
                    assert found.wrong_count == 0, (str(case.problem), found.wrong)


def test_a_verification_draws_every_distribution_and_the_same_ones_for_a_seed() -> None:
    device = open_device("emulator")
    for spec in ("vector_add:naive", "softmax:naive", "gemm:tma_pipeline"):
        (stage,) = registry.select([spec])
        for seed in range(2):
            problems = drawn(stage, device, examples=25, seed=seed)
            assert len(problems) == 25 + len(stage.edge_cases)
            assert {p.distribution for p in problems} == set(problems[0].distributions())
            assert problems == drawn(stage, device, examples=25, seed=seed)


def test_what_hypothesis_keeps_while_problems_are_drawn_is_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    kept: list[Path] = []

    class Noting(Stage[Any]):
        def supports(self, problem: Problem) -> str | None:
            kept.append(configuration.storage_directory("constants").path)
            return None

    before = configuration.storage_directory("constants").path
    (stage,) = registry.select(["vector_add:naive"])
    noting = Noting(**{f.name: getattr(stage, f.name) for f in dataclasses.fields(stage)})
    drawn(dataclasses.replace(noting, edge_cases=()), open_device("emulator"), examples=2, seed=0)
    assert kept[0] == tmp_path / "hypothesis" / "constants"
    assert configuration.storage_directory("constants").path == before


def test_a_seed_draws_the_same_problems_whatever_modules_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage,) = registry.select(["vector_add:naive"])
    device = open_device("emulator")
    before = [drawn(stage, device, examples=20, seed=seed) for seed in range(4)]
    (tmp_path / "numbers_of_others.py").write_text(f"NUMBERS = {list(range(100, 1000))}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("numbers_of_others")
    assert [drawn(stage, device, examples=20, seed=seed) for seed in range(4)] == before


def test_negative_controls_are_tried_on_ordinary_numbers() -> None:
    problem = VectorAddProblem(n=3, distribution=Distribution.SUBNORMAL)
    assert soundness.telling(problem).distribution is Distribution.NORMAL


def test_nan_is_right_where_the_reference_has_it_unless_nobody_wrote_it() -> None:
    expected, bound = np.array([np.nan, np.inf, -np.inf, 1.0]), np.zeros(4)
    for dtype in (FP32, FP16, BF16):
        array = Array((4,), dtype, output=True)
        for tier in (Tier.EXACT, Tier.BOUNDED):

            def wrong(got: np.ndarray[Any, Any], array: Array = array, tier: Tier = tier) -> list[list[int]]:
                return [w.index for w in compare("y", array, got, expected, bound, tier).wrong]

            right = dtype.rounded(expected)
            assert wrong(right) == []
            for place, value in ((0, 0.0), (0, np.inf), (1, np.nan), (1, -np.inf), (2, 3e4), (3, np.nan)):
                got = right.copy()
                got[place] = value
                assert wrong(got) == [[place]]
            untouched = right.copy()
            untouched[:1] = array.poisoned()[:1]
            assert wrong(untouched) == [[0]]


def test_what_overflows_within_the_bound_may_become_infinite() -> None:
    array = Array((1,), FP16, output=True)
    for expected, bound, got, right in (
        (65510.0, 32.0, np.inf, True),
        (65510.0, 32.0, -np.inf, False),
        (65530.0, 32.0, 65504.0, True),
        (60000.0, 32.0, np.inf, False),
        (1e6, 32.0, 65504.0, False),
        (1e6, 1e7, -np.inf, True),  # numbers within the bound overflow on both sides
        (1e6, 1e6, -np.inf, False),
    ):
        found = compare("y", array, np.array([got], np.float16), np.array([expected]), np.array([bound]), Tier.BOUNDED)
        assert (found.wrong_count == 0) == right, (expected, bound, got)


def test_the_short_form_has_every_distribution_and_says_what_is_undefined() -> None:
    def made(**more: Any) -> Any:
        return simple_operation("twice", "x: n fp32 -> y: n fp32", emulator_size=Size(9, 9), **more)(lambda x: 2 * x)

    assert {*made().problem(n=3).distributions(), Distribution.SAME} == set(Distribution)
    assert not {*WITHOUT_NUMBERS} & {*made(non_finite="undefined").problem(n=3).distributions()}
    assert made(distributed=()).problem(n=3).distributions() == (Distribution.NORMAL,)
    large = made(scales=(-1, 20)).problem(n=50, distribution=Distribution.LARGE).given()["x"]
    assert np.median(np.abs(large)) > 2.0**18


def test_undefined_non_finite_inputs_are_refused_and_never_drawn() -> None:
    kind: Any = type("Undefined", (VectorAddProblem,), {"non_finite": NonFinite.UNDEFINED})
    assert Distribution.NON_FINITE not in kind(n=3).distributions()
    with pytest.raises(ProblemError, match="undefined"):
        kind(n=3, distribution=Distribution.NON_FINITE)


def test_an_activation_that_has_to_be_exact_gets_multiples_and_other_inputs_come_in_every_distribution() -> None:
    problem = GemmProblem(m=5, n=6, k=7, activation=Activation.GELU, seed=3)
    exact = problem.with_tier(Tier.EXACT)
    assert not (exact.given()["B"].astype(np.float64) % 1024).any() and exact.given()["A"].astype(float).max() <= 2
    assert exact.distributed_inputs() == () and problem.distributed_inputs() == ("A", "B")
    assert Distribution.SUBNORMAL in problem.distributions()
