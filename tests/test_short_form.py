"""The short form of an operation is the full one with defaults."""

from __future__ import annotations

import pickle
from enum import StrEnum
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import threadpoolctl
from hypothesis.internal.conjecture import providers

from workbench import BF16, FP32, ProblemError, Size, Tier, simple_operation
from workbench.judge.case import Case, quiet
from workbench.judge.draw import one_thread, same_everywhere, settings
from workbench.judge.soundness import check, weakness
from workbench.model.distributions import Distribution
from workbench.model.dtypes import INT32, dtype_of
from workbench.model.short import default_bound

EXAMPLE = Path(__file__).parents[1] / "examples/operations/add_rms_norm/__init__.py"


class Kind(StrEnum):
    SUM = "sum"
    MAX = "max"


@simple_operation(
    "reduced",
    "x: rows columns dtype, index: rows int32 -> y: rows out, index: rows int32",
    fields={"eps": 1e-6, "kind": Kind.SUM, "flag": False, "width": 3},
    dtypes={"out": ("fp32", "bf16")},
    ranges={"eps": (0.0, 1e-5)},
    terms="columns",
    suite=("4096x128,dtype=fp16", "rows=2,columns=3,eps=1e-7,kind=max"),
)
def reduced(x: Any, index: Any, *, kind: Kind, eps: float) -> Any:
    """Sum or maximum of rows. More words."""
    return (x.sum(axis=1) if kind is Kind.SUM else x.max(axis=1)) + eps, index + 1


def test_arrays_types_and_fields_are_those_of_the_text() -> None:
    problem = reduced.problem(rows=4, columns=5, dtype="bf16", out="fp32")
    arrays = problem.arrays()
    assert {name: (a.shape, a.dtype, a.given, a.output) for name, a in arrays.items()} == {
        "x": ((4, 5), BF16, True, False),
        "index": ((4,), INT32, True, True),
        "y": ((4,), FP32, False, True),
    }
    assert str(problem).startswith("rows=4,columns=5,dtype=bf16,out=fp32,eps=1e-6,kind=sum,flag=false")
    assert reduced.problem.parse(str(problem)) == problem
    assert problem.label == "4x5 bf16 fp32 eps=1e-6 kind=sum flag=false width=3"
    assert reduced.summary == "Sum or maximum of rows. More words"
    assert [p.rows for p in reduced.suite] == [4096, 2]
    assert reduced.defines(problem) == {"DTYPE": "__nv_bfloat16", "OUT": "float"}
    assert problem.cost.bytes == 4 * 5 * 2 + 2 * 4 * 4 + 4 * 4
    with pytest.raises(ProblemError, match=r"eps is 0.1; it has to be at most"):
        reduced.problem(eps=0.1)


def test_the_function_is_the_reference_in_float64_and_the_model_in_fp32() -> None:
    problem = reduced.problem(rows=2, columns=3, dtype="bf16", kind=Kind.MAX)
    inputs = problem.inputs()
    expected, model = problem.reference(inputs), problem.model(inputs)
    assert expected["y"].dtype == np.float64
    assert np.array_equal(expected["y"], inputs["x"].astype(np.float64).max(axis=1) + 1e-6)
    assert np.array_equal(expected["index"], inputs["index"] + 1)
    assert model["y"].dtype == np.float32


def test_a_problem_goes_to_another_process() -> None:
    problem = reduced.problem(rows=4, columns=5, kind=Kind.MAX, eps=3e-6, tier=Tier.EXACT)
    assert pickle.loads(pickle.dumps(problem)) == problem


def test_random_problems_have_edges_aligned_extents_every_type_and_stay_within_the_size() -> None:
    seen: list[Any] = []

    @hypothesis.settings(max_examples=1000, deadline=None, database=None, derandomize=True)
    @hypothesis.given(reduced.problems(Size(500, 5000), (64,)))
    def look(problem: Any) -> None:
        seen.append(problem)

    with same_everywhere():
        look()
    assert all(p.rows * p.columns <= 5000 + 8 * 500 for p in seen)
    aligned = sum(p.columns % 8 == 0 for p in seen) / len(seen)
    assert 0.5 < aligned < 0.9
    assert {63, 64, 65} & {p.columns for p in seen} and 1 in {p.rows for p in seen}
    assert max(p.rows for p in seen) > 200 and max(p.columns for p in seen) > 200
    assert {p.dtype for p in seen} == {"bf16", "fp16", "fp32"}
    assert {(p.kind, p.flag) for p in seen} == {(kind, flag) for kind in Kind for flag in (False, True)}
    assert {p.eps for p in seen} == {1e-6, 1e-5}


@pytest.mark.parametrize("terms", [1, 100, 10_000])
def test_the_default_bound_allows_fp32_sums_and_no_fp16_sums(terms: int) -> None:
    x = np.random.default_rng(0).standard_normal((64, terms)).astype(np.float32)
    right = x.astype(np.float64).sum(axis=1)
    bound = default_bound(right, terms, FP32)
    in_order = np.cumsum(x, axis=1)[:, -1]
    assert (np.abs(in_order - right) <= bound).all()
    assert (np.abs(FP32.rounded(right) - right) <= bound).all()
    if terms > 1:
        half = np.cumsum(x.astype(np.float16), axis=1, dtype=np.float16)[:, -1]
        assert (np.abs(half - right) > bound).any()


@simple_operation("inner", "x: n fp32, y: n fp32 -> z: 1 fp32", terms="n")
def inner(x: Any, y: Any) -> Any:
    """Inner product."""
    return (x * y).sum(keepdims=True)


@simple_operation(
    "weighted",
    "x: n fp32, w: n int32 -> z: 1 fp32",
    terms="n",
    draw=lambda p, rng: {
        "x": rng.standard_normal(p.n).astype(np.float32),
        "w": rng.integers(-3, 4, p.n).astype(np.int32),
    },
)
def weighted(x: Any, w: Any) -> Any:
    """Weighted sum."""
    return (x * w).sum(keepdims=True)


@pytest.mark.parametrize("operation", [inner, weighted])
@pytest.mark.parametrize("n", [16, 1000])
def test_the_default_bound_allows_a_single_sum_whose_terms_cancel(operation: Any, n: int) -> None:
    halves = 0
    for seed in range(200):
        problem = operation.problem(n=n, seed=seed)
        inputs = problem.given()
        right = problem.reference(inputs)
        bound = problem.bound(inputs, right)["z"]
        products = np.prod([values.astype(np.float32) for values in inputs.values()], axis=0)
        assert np.abs(np.cumsum(products)[-1:] - right["z"]) <= bound
        half = np.cumsum(products.astype(np.float16), dtype=np.float16)[-1:]
        halves += int((np.abs(half - right["z"]) > bound)[0])
    assert halves > 190


def test_default_negative_controls_are_rejected_and_the_right_answer_is_not() -> None:
    for tier in (Tier.EXACT, Tier.BOUNDED):
        case = Case.of(reduced.problem(rows=40, columns=50, tier=tier))
        rejected, accepted = case.negative_controls()
        assert (rejected >= 8, accepted) == (True, [])


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("x: n fp32", {}, "has to name inputs, then `->`, then outputs"),
        ("x n fp32 -> y: n fp32", {}, "'x n fp32' has to be an array like"),
        ("x: n fp32 ->", {}, "has to name an array on both sides"),
        ("x: n fp32 -> x: m fp32", {}, "x is declared twice"),
        ("x: n t -> y: n t", {"dtypes": {"t": ("fp8",)}}, "there is no element type 'fp8'"),
        ("x: n n -> y: n fp32", {}, "n is an extent or a field"),
        ("x: n uint1 -> y: n fp32", {}, "uint1 is no type; did you mean uint16?"),
        ("x: n float8 -> y: n fp32", {}, "float8 is no type; did you mean"),
        ("x: n tf16 -> y: n fp32", {}, "tf16 is no type; did you mean"),
        ("x: rows columns -> y: rows fp32", {"fields": {"columns": 3}}, "an array ends with its type"),
        ("x: n qqqq -> y: n fp32", {}, "the types are"),
        ("x: n fp32 -> y: n fp32", {"check": lambda p: p.n > 1}, "the defaults of made have to be a valid problem"),
        ("x: n fp32 -> y: n fp32", {"terms": "k"}, "k is no extent"),
        ("z: n fp32 -> y: n fp32", {}, "asks for x; inputs and fields are z, n"),
    ],
)
def test_a_text_that_makes_no_sense_is_refused(text: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, KeyError)) as refused:
        simple_operation("made", text, **more)(lambda x: x)
    assert says in str(refused.value)


def test_problems_that_the_check_refuses_are_not_drawn_and_are_an_error_with_the_reason() -> None:
    def check(p: Any) -> Any:
        return p.k <= p.columns

    @simple_operation("topk", "x: rows columns fp32 -> y: rows k fp32", check=check)
    def topk(x: Any, k: int) -> Any:
        return -np.sort(-x, axis=1)[:, :k]

    drawn = []

    @hypothesis.settings(max_examples=60, database=None, deadline=None)
    @hypothesis.given(topk.problems(Size(extent=60, work=2000), (32,)))
    def collect(problem: Any) -> None:
        drawn.append(problem)

    collect()
    assert all(p.k <= p.columns for p in drawn) and {p.k for p in drawn} != {1}
    with pytest.raises(ProblemError, match="rows=2,columns=3,k=4 is not valid, by the check of topk"):
        topk.problem(rows=2, columns=3, k=4)
    said: Any = simple_operation("said", "x: n fp32 -> y: n fp32", check=lambda p: "n is odd" if p.n % 2 == 0 else None)
    with pytest.raises(ProblemError, match="n=4 is not valid: n is odd"):
        said(lambda x: x).problem(n=4)


def test_an_answer_of_too_few_outputs_is_refused() -> None:
    made: Any = simple_operation("made", "x: n fp32 -> y: n fp32, z: n fp32")(lambda x: x)
    with pytest.raises(ValueError, match="returns 1 of 2 outputs"):
        made.problem(n=3).reference(made.problem(n=3).inputs())


def test_a_norm_with_two_outputs_and_a_float_field_takes_forty_lines() -> None:
    text = EXAMPLE.read_text()
    declaration = text[: text.index("@add_rms_norm.stage")]
    assert len([line for line in declaration.splitlines() if line.strip()]) <= 40


def test_the_controls_of_a_square_are_rejected_whatever_its_last_element_is() -> None:
    square = simple_operation("squares", "x: n fp32 -> y: n fp32")(lambda x: x * x)
    assert {weakness(square.problem(n=16, seed=seed))[0] for seed in range(60)} == {""}


def test_nan_of_e4m3_is_no_memory_that_nobody_has_written() -> None:
    narrow = simple_operation("narrow", "x: n fp32 -> y: n e4m3")(lambda x: -x)
    for seed in range(6):
        case = Case.of(narrow.problem(n=99, seed=seed, distribution="non_finite"))
        assert np.isnan(case.expected["y"]).any() or np.isinf(case.expected["y"]).any()
        check(case)


def test_integers_meet_fp32_as_in_cpp() -> None:
    dequantized = simple_operation("dequantized", "q: n int8, z: n int8, s: n fp32 -> y: n fp32")(
        lambda q, z, s: (q - z) * s
    )
    for kind in Distribution:
        problem = dequantized.problem(n=64, distribution=kind)
        with quiet(problem):
            check(Case.of(problem.with_tier(Tier.EXACT)))
    given = {"q": np.array([127], np.int8), "z": np.array([-128], np.int8), "s": np.ones(1, np.float32)}
    assert problem.reference(given)["y"] == 255 and problem.model(given)["y"].dtype == np.float32


def test_the_default_bound_allows_the_rounding_of_products_that_underflow() -> None:
    bound = default_bound(np.array([2e-39]), 1, dtype_of("fp32"))
    assert 10 * 2.0**-149 < bound[0] < 1e-3 * 2e-39


def test_rows_of_a_packed_type_are_drawn_with_whole_bytes() -> None:
    packed: Any = simple_operation("packed", "w: rows columns e2m1 -> y: rows fp32", terms="columns")(
        lambda w: w.sum(axis=1)
    )
    found: list[Any] = []

    def test(problem: Any) -> None:
        found.append(problem)

    with same_everywhere():
        settings(20)(hypothesis.given(packed.problems(Size(64, 999), ()))(test))()
    assert len(found) >= 20 and all(problem.columns % 2 == 0 and Case.of(problem) for problem in found)
    with pytest.raises(ProblemError, match=r"columns=3 is not valid: rows of w \(e2m1\) begin at whole bytes"):
        packed.problem(columns=3)


@pytest.mark.parametrize("change", [same_everywhere, one_thread])
def test_threads_that_verify_at_once_leave_hypothesis_and_blas_as_they_were(change: Any) -> None:
    def state() -> tuple[Any, ...]:
        return id(providers.CONSTANTS_CACHE), [library["num_threads"] for library in threadpoolctl.threadpool_info()]

    with threadpoolctl.threadpool_limits(2):
        before, first, second = state(), change(), change()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert state() != before
        second.__exit__(None, None, None)
        assert state() == before
