"""Problems: their text form, their inputs, their references, and bounds that reject negative controls."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.harness import Case
from workbench.judge import bounds
from workbench.judge.case import compare
from workbench.kernels import matvec
from workbench.kernels.gemm import GemmProblem
from workbench.model.arrays import Array
from workbench.model.dtypes import FP16, FP32
from workbench.model.problem import ProblemError, Size, Tier
from workbench.model.results import Verdict

OPERATIONS = sorted(registry.operations())


@pytest.fixture(params=OPERATIONS)
def operation(request):
    return registry.operations()[request.param]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_problem_survives_its_text_form(operation, data):
    problem = data.draw(operation.problems(Size(300, 10_000), (16,)))
    assert operation.problem.parse(str(problem)) == problem


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_drawn_problems_stay_within_the_size(operation, data):
    problem = data.draw(operation.problems(Size(100, 5_000), (64,)))
    assert max(getattr(problem, e) for e in problem.extents) <= 100
    assert problem.cost.flops <= 8 * 5_000  # of an element, a norm takes 7


def test_the_short_text_form_gives_the_sizes():
    assert GemmProblem.parse("2x3x4,dtype=fp16,out=fp16") == GemmProblem(m=2, n=3, k=4, dtype="fp16", out="fp16")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("m=0", "m is 0; it has to be at least 1"),
        ("", "there is no problem in ''; write one like m=1,n=1,k=1,dtype=bf16,"),
        (" , ", "there is no problem in ' , '; write one like "),
        ("64x32x7,m=3", "m is given twice"),
        ("m=3,64x32x7,n=4", "m is given twice"),
        ("dtype=fp16,dtype=fp16", "dtype is given twice"),
        ("m=two", "m is 'two'; it has to be a whole number"),
        ("4x4", "neither field=value nor sizes written mxnxk"),
        ("dtpe=bf16", r"unknown field 'dtpe' \(did you mean dtype\?\)"),
        ("dtype=fp8", "dtype is 'fp8'; it has to be one of bf16, fp16, fp32"),
        ("layout=mn", "layout is 'mn'; it has to be one of nn, nt, tn, tt"),
        ("dtype=bf16,out=fp16", "out is 'fp16'; for dtype bf16 it has to be bf16 or fp32"),
        ("tier=loose", "tier is 'loose'; it has to be one of exact, bounded"),
        ("pad_a=-1", "pad_a is -1; it has to be at least 0"),
    ],
)
def test_a_wrong_problem_text_is_answered_with_what_is_right(text, says):
    with pytest.raises(ProblemError, match=says):
        GemmProblem.parse(text)


def test_the_same_problem_makes_the_same_inputs_and_another_seed_others(operation):
    problem = operation.problem(seed=7)
    first, second = problem.inputs(), problem.inputs()
    other = operation.problem(seed=8, **dict.fromkeys(problem.extents, 50)).inputs()
    again = operation.problem(seed=7, **dict.fromkeys(problem.extents, 50)).inputs()
    assert all(np.array_equal(first[n], second[n]) for n in first)
    assert any(not np.array_equal(again[n], other[n]) for n in other)


def test_the_reference_is_the_definition():
    problem = GemmProblem(m=3, n=4, k=5, dtype="fp32", layout="nt")
    inputs = problem.inputs()
    c = problem.reference(inputs)["C"]
    for i in range(3):
        for j in range(4):
            terms = [float(inputs["A"][i, k]) * float(inputs["B"][j, k]) for k in range(5)]
            assert c[i, j] == pytest.approx(sum(terms), rel=1e-12)


def accepted(case: Case, answer: dict[str, np.ndarray]) -> bool:
    results = [
        compare(
            name,
            array,
            answer[name].astype(array.dtype.numpy),
            case.expected[name],
            case.bound[name],
            case.problem.tier,
        )
        for name, array in case.arrays.items()
        if array.output
    ]
    return all(r.wrong_count == 0 for r in results)


@pytest.mark.parametrize("tier", [Tier.EXACT, Tier.BOUNDED])
@pytest.mark.parametrize("types", ["bf16", "fp16", "fp32"])
def test_every_wrong_result_is_rejected_and_the_right_one_accepted(operation, types, tier):
    field = "dtype" if "dtype" in operation.problem.choices else "out"
    if types not in operation.problem.choices[field]:
        pytest.skip(f"{operation.name} has no {types}")
    if tier not in operation.problem.tiers:
        assert operation.problem.not_exact
        pytest.skip(f"{operation.name} is not exact: {operation.problem.not_exact}")
    extents = operation.problem.extents
    sizes = dict.fromkeys(extents, 300 if len(extents) < 4 else 12)
    case = Case.of(operation.problem(**{field: types}, tier=tier, seed=1, **sizes))
    assert accepted(case, case.expected)
    wrong = case.problem.negative_controls(case.inputs, case.expected)
    assert len(wrong) >= 4
    assert [name for name, answer in wrong.items() if accepted(case, answer)] == []


def test_fp32_accumulation_is_well_inside_the_bound_and_fp16_far_outside():
    case = Case.of(GemmProblem(m=64, n=64, k=1024, dtype="fp16", out="fp32"))
    a, b = case.inputs["A"], case.inputs["B"]
    exact = np.zeros((64, 64), np.float32)
    half = np.zeros((64, 64), np.float16)
    for k in range(1024):
        exact += np.outer(a[:, k].astype(np.float32), b[:, k].astype(np.float32))
        half += np.outer(a[:, k], b[:, k]).astype(np.float16)

    def worst(answer):
        return compare(
            "C", case.arrays["C"], answer.astype(np.float32), case.expected["C"], case.bound["C"], Tier.BOUNDED
        ).worst

    assert worst(exact) < 0.5
    assert worst(half) > 5


def test_a_sum_of_squares_may_be_cut_off_as_tensor_cores_do_and_no_more():
    """After every eight products the sum is rounded towards zero, as on an H200, where 0.097 units a term were lost."""
    squares = np.random.default_rng(7).standard_normal(13696).astype(np.float16).astype(np.float64) ** 2
    total, found = squares.sum(), np.float32(0)
    for products in squares.reshape(-1, 8):
        exact = float(found) + float(products.sum())
        found = np.float32(exact)
        found = np.nextafter(found, np.float32(0)) if float(found) > exact else found
    allowed = bounds.dot_products(np.array([total]), np.array([total]), squares.size, FP32)[0]
    plain = bounds.ACCUMULATION * FP32.unit_roundoff * np.sqrt(squares.size) * total
    assert plain < abs(float(found) - total) <= allowed < 1e-3 * total


def test_a_sum_of_equal_products_of_8_bits_may_lose_of_each_what_the_sum_of_its_run_cuts_off():
    """The products of an instruction and the sum before it are aligned to the largest; 13 bits below it are kept."""
    terms, product, found = 4096, 1.875**2, 0.0
    for _ in range(terms // 128):
        kept = 0.0
        for _ in range(4):
            unit = 2.0 ** (np.frexp(max(kept, product))[1] - 1 - 13)
            kept = np.floor(kept / unit) * unit + 32 * np.floor(product / unit) * unit
        found += kept
    exact, root = np.full(1, terms * product), np.full(1, np.sqrt(terms) * product)
    allowed = bounds.scaled_fp8_products(exact, exact, root, terms, 128, FP32)[0]
    plain = bounds.scaled_fp8_products(np.zeros(1), exact, root, terms, 128, FP32)[0]
    assert plain < exact[0] - found <= allowed < exact[0] / 256


def test_sorted_products_of_8_bits_that_cancel_lose_as_much_as_they_add_up_to() -> None:
    """As an instruction cuts off products: half of them add up to a large sum before the others cancel it."""
    kind = registry.operations()["gemm_fp8"].problem
    case = harness.Case.of(kind(m=714, n=714, k=256, out="bf16", seed=718, distribution="sorted", tier="bounded"))
    a, b = (case.inputs[name][:64].astype(np.float64) for name in "AB")
    found = np.zeros((64, 64))
    for first in range(0, 256, 128):
        kept = np.zeros_like(found)
        for at in range(first, first + 128, 32):
            products = a[:, None, at : at + 32] * b[None, :, at : at + 32]
            unit = 2.0 ** (np.frexp(np.maximum(np.abs(products).max(-1), np.abs(kept)))[1] - 14)
            kept = np.trunc(kept / unit) * unit + (np.trunc(products / unit[..., None]) * unit[..., None]).sum(-1)
        found += kept
    found *= case.inputs["a_scale"][:64, None] * case.inputs["b_scale"][:64].astype(np.float64)
    assert (np.abs(found - case.expected["C"][:64, :64]) <= case.bound["C"][:64, :64]).all()


def test_not_a_number_is_never_right():
    array = Array((3,), FP32, output=True)
    expected, bound = np.array([0.0, 1.0, 2.0]), np.full(3, np.inf)
    for bad in (np.nan, np.inf, -np.inf):
        got = np.array([0.0, bad, 2.0], np.float32)
        result = compare("c", array, got, expected, bound, Tier.BOUNDED)
        assert (result.wrong_count, result.wrong[0].index) == (1, [1])


def test_an_overflow_that_the_rounded_reference_shares_is_right():
    array = Array((1,), FP16, output=True)
    result = compare("c", array, np.array([np.inf], np.float16), np.array([1e6]), np.array([1.0]), Tier.BOUNDED)
    assert result.wrong_count == 0
    result = compare("c", array, np.array([65504], np.float16), np.array([1e6]), np.array([1.0]), Tier.BOUNDED)
    assert result.wrong[0].expected == "inf"


def test_a_bound_of_zero_is_met_by_the_reference_alone():
    array, right = Array((2,), FP32, output=True), np.array([0.0, -1.5])
    for got, wrong in ((right, 0), (right + 2**-20, 2)):
        assert compare("c", array, got.astype(np.float32), right, np.zeros(2), Tier.BOUNDED).wrong_count == wrong


def test_storage_has_nan_between_rows_and_nothing_behind_the_last():
    array = Array((3, 2), FP32, leading=5)
    storage = array.pack(np.arange(6.0).reshape(3, 2))
    assert storage.shape == (12,)
    assert np.isnan(storage[[2, 3, 4, 7, 8, 9]]).all()
    assert array.view(storage).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_costs_count_each_operand_once():
    assert GemmProblem(m=2, n=3, k=4, dtype="bf16", out="fp32", pad_a=9).cost.bytes == 2 * (8 + 12) + 4 * 6
    assert matvec.MatvecProblem(n=3, k=4, dtype="fp32", out="fp32").cost.flops == 24


def test_a_large_matrix_is_read_as_right_as_a_small_one_by_the_streamed_matvec(monkeypatch):
    """Where B is large it is read in another way: of sizes that no emulator gets through, so the limit is lowered."""
    monkeypatch.setattr(matvec, "SMALL", 0)
    declared = registry.local(*registry.select(["matvec:streamed"]))
    # a function of the test's own runs in this process, where the limit is lowered
    stage = dataclasses.replace(declared, sizes_for=lambda problem, size: declared.sizes_for(problem, size))
    assert stage.sizes(matvec.MatvecProblem(n=3, k=5))["READ_ONCE"] == 0
    assert harness.verify(stage, open_device("emulator"), examples=10, seed=0).verdict is Verdict.PASS
