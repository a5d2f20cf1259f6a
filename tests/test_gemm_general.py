"""Products in every layout, in batches, with an epilogue: as calls, as problems, and what is found where a stage is
wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from planted import broken_verdict

from workbench import ops, reference
from workbench.catalogue import registry
from workbench.kernels.gemm import GEMM, GemmProblem
from workbench.kernels.gemm.problem import Activation, Added
from workbench.model.problem import ProblemError, Tier
from workbench.records.tuned import problem_class

BF16, FP16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)

Values = np.ndarray[Any, Any]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def drawn(rng: Any, *shape: int, dtype: Any = BF16) -> Values:
    return rng.integers(-2, 3, shape).astype(dtype)


def solved(place: Any, *arrays: Any, **options: Any) -> Values:
    return place.download(ops.gemm(*arrays, out_dtype=np.float32, **options))


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("dtype", "m", "n", "k"), [(BF16, 64, 40, 24), (FP16, 33, 17, 65), (FP32, 40, 24, 16)])
def test_a_call_takes_transposed_views_of_both_operands(place, rng, layout, dtype, m, n, k) -> None:
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, k, n, dtype=dtype)
    given = [place.upload(x.T).T if how == "t" else place.upload(x) for x, how in zip((a, b), layout, strict=True)]
    assert ops.gemm.prepare(*given).problem.layout == layout
    assert np.array_equal(solved(place, *given), reference.gemm(a, b))


def test_rows_of_a_transposed_view_may_be_any_distance_apart(place, rng) -> None:
    wide, b = place.upload(drawn(rng, 24, 100)), drawn(rng, 24, 9)
    problem = ops.gemm.prepare(wide[:, 3:73].T, place.upload(b)).problem
    assert (problem.m, problem.lda, problem.layout) == (70, 100, "tn")
    assert np.array_equal(
        solved(place, wide[:, 3:73].T, place.upload(b)), reference.gemm(place.download(wide)[:, 3:73].T, b)
    )


@pytest.mark.parametrize("one", ["", "a", "b"])
def test_a_batch_may_have_one_operand_for_all(place, rng, one) -> None:
    a, b = (drawn(rng, *([3] if one != name else []), *shape) for name, shape in (("a", (24, 40)), ("b", (40, 16))))
    found = solved(place, place.upload(a), place.upload(b))
    assert found.shape == (3, 24, 16) and np.array_equal(found, reference.gemm(a, b))


def test_heads_of_a_batch_may_lie_beside_each_other(place, rng) -> None:
    rows = drawn(rng, 24, 3, 40)  # row, head, element
    b = drawn(rng, 3, 40, 16)
    a = place.upload(rows).transpose(1, 0, 2)
    problem = ops.gemm.prepare(a, place.upload(b)).problem
    assert (problem.step_a, problem.lda) == (40, 120)
    assert np.array_equal(solved(place, a, place.upload(b)), reference.gemm(rows.transpose(1, 0, 2), b))


@pytest.mark.parametrize("shape", [(16,), (24, 16), (3, 24, 16), (1, 1, 16)])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_a_row_or_a_matrix_is_added_to_all_products_or_one_to_each(place, rng, shape, activation) -> None:
    a, b, c = drawn(rng, 3, 24, 40), drawn(rng, 3, 40, 16), drawn(rng, *shape, dtype=FP32)
    found = solved(place, *map(place.upload, (a, b, c)), alpha=0.5, beta=-2.0, activation=activation)
    right = 0.5 * reference.gemm(a, b) - 2 * c
    assert np.array_equal(found, np.maximum(right, 0) if activation == "relu" else right)


@pytest.mark.parametrize(("activation", "right"), [("gelu", 0.841345), ("silu", 0.731059)])
def test_activations_are_those_of_their_names(place, activation, right) -> None:
    one = place.upload(np.ones((1, 1), FP32))
    assert solved(place, one, one, activation=activation) == pytest.approx(right, abs=1e-6)


def test_nothing_is_read_of_what_is_added_zero_times(place, rng) -> None:
    a, b = drawn(rng, 8, 8), drawn(rng, 8, 8)
    undefined = np.full((8, 8), np.nan, FP32)
    assert np.array_equal(solved(place, *map(place.upload, (a, b, undefined)), beta=0.0), reference.gemm(a, b))


def test_fields_that_came_later_are_not_named_where_they_say_nothing() -> None:
    plain, other = GemmProblem(m=4, n=5, k=6), GemmProblem(m=4, n=5, k=6, activation=Activation.SILU, beta=0.5)
    assert "beta" not in str(plain) and "activation" not in str(plain)
    assert "beta=0.5" in str(other) and GemmProblem.parse(str(other)) == other
    assert problem_class(plain) == "m=4,n=8,k=8,dtype=bf16,out=fp32,layout=nt"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"step_a": 8}, "there is no batch"),
        ({"batch": 2, "step_a": 1, "m": 4, "k": 4}, "overlap"),
        ({"alpha": 0.1, "tier": Tier.EXACT}, "multiples of 1/64"),
    ],
)
def test_problems_that_are_none_are_refused(fields, says) -> None:
    with pytest.raises(ProblemError, match=says):
        GemmProblem(**fields)


def test_every_kind_of_problem_has_a_stage_on_every_device_and_any_address() -> None:
    for layout in ("tn", "tt"):
        for dtype in ("bf16", "fp16", "fp32"):
            for more in ({}, {"batch": 2}, {"added": Added.ROW}):
                problem = GemmProblem(m=513, n=600, k=700, dtype=dtype, out=dtype, layout=layout, **more)
                assert ops.choose("gemm", problem, 80).name in ("split_tiles", "any_strides")
                assert ops.choose("gemm", problem, 90, alignment=2).name == "any_strides"


@pytest.mark.parametrize("layout", ["tn", "tt"])
def test_large_products_of_a_transposed_a_go_to_tensor_cores_without_a_copy(layout) -> None:
    for more in ({}, {"batch": 3}, {"activation": Activation.GELU}):
        problem = GemmProblem(m=4096, n=4096, k=4096, dtype="bf16", out="bf16", layout=layout, **more)
        assert ops.choose("gemm", problem, 90, device="NVIDIA H200").name == "flexible_multicast"


TURNED = "m=136,n=72,k=80,dtype=bf16,out=bf16,layout=tn"
MORE = "m=40,n=24,k=64,dtype=bf16,out=bf16,batch=2,added=row,beta=-0.5,activation=relu"


@pytest.mark.parametrize(
    ("stage", "problem", "right", "broken"),
    [
        ("flexible_multicast", TURNED, "A_ALONG_K = !TRANS_A", "A_ALONG_K = true"),
        ("flexible_multicast", MORE, "to.data += tile.product * g.steps.c", "to.data += 0 * g.steps.c"),
        ("flexible_multicast", MORE, "g.steps.b ? tile.product : 0", "0"),
        ("small_tiles", TURNED, "at(k + lane / 16 * 8 + lane % 8,", "at(k + lane / 8 % 2 * 8 + lane % 8,"),
        ("small_tiles", MORE, "x += beta *", "x +="),
        ("small_tiles", MORE, "C += blockIdx.y * step_c", "C += 0 * step_c"),
        ("split_tiles", TURNED, "held.load(from, ld, k, line, end, lines)", "held.load(from, ld, k, line, lines, end)"),
        ("split_tiles", MORE, "x < 0.f ? 0.f : x", "x"),
        ("any_strides", MORE, "added + number * step +", "added + number * step + 1 +"),
        ("fitted_pipeline", TURNED.replace("bf16", "fp32"), "= tile[x][i];", "= tile[i][x];"),
    ],
)
def test_a_stage_that_is_wrong_about_what_it_has_beyond_a_product_fails(stage, problem, right, broken) -> None:
    (chosen,) = registry.select([f"gemm:{stage}"])
    assert broken_verdict(chosen, right, broken, problem=problem) not in ("pass", "unsupported", "compile_error")


def test_stages_that_take_no_more_than_a_product_say_why() -> None:
    turned = GemmProblem(m=64, n=64, k=64, layout="tn")
    refused = {stage.name: stage.supports(turned) for stage in GEMM.stages}
    assert "A is stored transposed" in str(refused["naive"]) and refused["any_strides"] is None
    assert "batches" in str(GEMM.stages[0].supports(GemmProblem(batch=2)))
