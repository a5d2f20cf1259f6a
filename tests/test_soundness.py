"""What an operation declares is checked before a kernel is blamed: its exact tier, its bound, its model; and tiers,
invariants, in/out, prepared and several arrays are judged as they are declared. Kernels run in the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import strategies as st

from workbench import FP32, Array, Arrays, Cost, Invariant, Launch, Operation, Problem, Size, Tier, simple_operation
from workbench.devices import open_device
from workbench.harness import verify
from workbench.judge import comparative, soundness
from workbench.judge.case import Case
from workbench.judge.drawn import Drawn
from workbench.kernels.gemm import GemmProblem
from workbench.model.default_controls import default_controls
from workbench.model.distributions import Distribution
from workbench.model.dtypes import INT32
from workbench.model.errors import BadOperation
from workbench.model.parts import Part
from workbench.model.results import Verdict, Verification

SMALL = Size(extent=70, work=500)
REAL = {"not_exact": "not tried here", "emulator_size": SMALL}


def judged(operation: Operation[Any], code: str, examples: int = 12) -> Verification:
    """What verification says of a stage of the operation with this code, whose kernel is `made`."""

    @operation.stage(f"stage{len(operation.stages)}", code=code, idea="")
    def stage(p: Any, size: Any) -> Launch:
        arrays, numbers = p.arrays(), [np.int32(getattr(p, name)) for name in p.extents]
        return Launch("made", (1, 1, 1), (64, 1, 1), (*arrays, *numbers))

    return verify(stage, open_device("emulator"), examples=examples)


# ----------------------------------------------------------------------------------------------- is the operation sound

SQUARES = """extern "C" __global__ void made(const float* x, float* y, int rows, int columns) {
  for (int r = threadIdx.x; r < rows; r += 64) {
    float sum = 0.f;
    for (int c = 0; c < columns; ++c) sum += x[r * columns + c] * x[r * columns + c];
    y[r] = sum;
  }
}"""


def squares(largest: int) -> Operation[Any]:
    def draw(p: Any, rng: np.random.Generator) -> Arrays:
        x = (
            rng.integers(-largest, largest + 1, (p.rows, p.columns))
            if p.tier is Tier.EXACT
            else rng.normal(size=(p.rows, p.columns))
        )
        return {"x": x.astype(np.float32)}

    def solve(x: Any) -> Any:
        return (x * x).sum(axis=1)

    text = "x: rows columns fp32 -> y: rows fp32"
    return simple_operation("squares", text, terms="columns", draw=draw, emulator_size=SMALL)(solve)


def test_an_exact_tier_that_is_exact_is_believed() -> None:
    assert judged(squares(2), SQUARES).verdict is Verdict.PASS


def test_an_exact_tier_whose_sums_are_rounded_is_the_operations_fault() -> None:
    result = judged(squares(4001), SQUARES)
    assert result.verdict is Verdict.OPERATION_ERROR
    assert result.failure.message.startswith('declare that no inputs are exact, with the reason (not_exact="')
    assert "the exact tier is not exact on" in result.failure.message


def test_a_reference_that_asks_for_float64_is_evaluated_in_fp32_to_check_the_exact_tier() -> None:
    @dataclass(frozen=True)
    class Sum(squares(2).problem):  # type: ignore[misc]
        def inputs(self) -> Arrays:
            return {"x": np.full((self.rows, self.columns), 4097, np.float32)}

        def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays | None:
            return None

        def reference(self, inputs: Arrays) -> Arrays:
            x = inputs["x"].astype(np.float64)
            return {"y": (x * x).sum(axis=1)}

    with pytest.raises(BadOperation, match="By the reference in fp32, y"):
        soundness.check(Case.of(Sum(rows=2, columns=3, tier=Tier.EXACT)))


def test_an_exact_tier_that_cannot_be_checked_is_the_operations_fault() -> None:
    @dataclass(frozen=True)
    class Own(squares(2).problem):  # type: ignore[misc]
        def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays | None:
            return None

        def reference(self, inputs: Arrays) -> Arrays:
            return {"y": np.sum(inputs["x"] ** 2, axis=1, dtype=np.float64)}

    case = Case.of(Own(rows=2, columns=3, tier=Tier.EXACT))
    with pytest.raises(
        BadOperation,
        match=r"^declare that no inputs are exact.* be checked on .*, y is computed in float64",
    ):
        soundness.check(case)


def test_a_model_whose_sums_depend_on_their_order_is_found_out() -> None:
    @dataclass(frozen=True)
    class Ordered(squares(2).problem):  # type: ignore[misc]
        def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays | None:
            answer = self.reference(inputs)
            return {"y": (answer["y"] + backwards).astype(np.float32)}

    with pytest.raises(BadOperation, match="with every sum the other way round, y"):
        soundness.check(Case.of(Ordered(rows=2, columns=3, tier=Tier.EXACT)))


def test_a_bound_that_the_rounded_reference_does_not_pass_is_the_operations_fault() -> None:
    tight: Operation[Any] = simple_operation(
        "tight", "x: n bf16 -> y: n bf16", **REAL, bound=lambda p, i, expected: {"y": 1e-6 * np.abs(expected["y"])}
    )(lambda x: x / 3)
    code = """#include <cuda_bf16.h>
extern "C" __global__ void made(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
  for (int i = threadIdx.x; i < n; i += 64) y[i] = __float2bfloat16(__bfloat162float(x[i]) / 3.f);
}"""
    result = judged(tight, code)
    assert result.verdict is Verdict.OPERATION_ERROR
    assert "the bound has to allow the rounding of the result at least" in result.failure.message


def test_a_bound_that_sums_in_fp32_do_not_pass_is_the_operations_fault() -> None:
    tight: Operation[Any] = simple_operation(
        "tight_sums",
        "x: rows columns fp32 -> y: rows fp32",
        **REAL,
        bound=lambda p, i, expected: {"y": 2.0**-23 * np.abs(expected["y"])},
    )(lambda x: (x * x * x).sum(axis=1))
    result = judged(tight, SQUARES.replace("sum += ", "sum += x[r * columns + c] * "))
    assert result.verdict is Verdict.OPERATION_ERROR
    assert "the bound of the operation is too tight on" in result.failure.message


def test_inputs_whose_squares_underflow_may_be_left_out() -> None:
    bounded: dict[str, Any] = REAL | {"bound": lambda p, inputs, right: {"y": 1e-6 * np.abs(right["y"])}}
    length: Operation[Any] = simple_operation("length", "x: n fp32 -> y: 1 fp32", **bounded)(
        lambda x: np.sqrt((x * x).sum(keepdims=True))
    )
    problem = length.problem(n=4, seed=9, distribution=Distribution.SUBNORMAL)
    with pytest.raises(BadOperation, match="; or name in `distributed` only the inputs that may be subnormal"):
        soundness.check(Case.of(problem))


def product(scale: float) -> tuple[Case, Arrays]:
    """A product whose bound is `scale` times gemm's, and what a kernel gives that sums up in fp32, term by term."""

    @dataclass(frozen=True)
    class Scaled(GemmProblem):
        def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
            return {"C": scale * super().bound(inputs, expected)["C"]}

    case = Case.of(Scaled(m=8, n=8, k=400, dtype="bf16", out="fp32", tier=Tier.BOUNDED))
    a, b = (case.inputs[name].astype(np.float32) for name in "AB")
    terms = a[:, None, :] * b[None, :, :] if case.problem.layout == "nt" else a[:, None, :] * b.T[None, :, :]
    return case, {"C": np.cumsum(terms, axis=-1)[..., -1].astype(np.float64)}


def test_a_tight_bound_is_blamed_for_a_kernel_in_fp32_and_not_for_one_that_is_worse() -> None:
    case, answer = product(2.0**-9)
    with pytest.raises(BadOperation, match=r"by the reference in fp32, C.*; the error of the kernel is up to"):
        soundness.check_bound(case, answer)
    soundness.check_bound(case, {"C": answer["C"] * (1 + 2.0**-9)})
    soundness.check_bound(*product(1.0))


def test_an_exact_tier_with_exponentials_says_why_a_right_kernel_fails_by_a_hair() -> None:
    def attention(q: Any, k: Any) -> Any:
        weights = np.exp(q[:, None] * k - (q[:, None] * k).max(axis=1, keepdims=True))
        return (weights * k).sum(axis=1) / weights.sum(axis=1)

    def draw(p: Any, rng: np.random.Generator) -> Arrays:
        return {name: rng.integers(-2, 3, n).astype(np.float32) for name, n in (("q", p.m), ("k", p.n))}

    operation = simple_operation(
        "exact_attention", "q: m fp32, k: n fp32 -> y: m fp32", terms="n", draw=draw, emulator_size=SMALL
    )(attention)
    code = """extern "C" __global__ void made(const float* q, const float* k, float* y, int m, int n) {
  for (int i = threadIdx.x; i < m; i += 64) {
    float sum = 0.f, of = 0.f;
    for (int j = 0; j < n; ++j) { float w = __expf(q[i] * k[j]); sum += w * k[j]; of += w; }
    y[i] = sum / of;
  }
}"""
    result = judged(operation, code)
    assert (result.verdict, result.failure is not None) == (Verdict.OPERATION_ERROR, True)
    assert result.failure.message.startswith('declare that no inputs are exact, with the reason (not_exact="')
    assert "the exact tier is not exact on" in result.failure.message


# -------------------------------------------------------------------------------------------------- comparative tier

MEAN = """#include <cuda_fp16.h>
extern "C" __global__ void made(const float* x, float* y, int rows, int columns) {
  for (int r = threadIdx.x; r < rows; r += 64) {
    SUM sum = 0.f;
    for (int c = 0; c < columns; ++c) sum += SUM(expf(x[r * columns + c]));
    y[r] = logf(float(sum));
  }
}"""


def log_sum(rows_kept: int | None = None) -> Operation[Any]:
    return simple_operation(
        "log_sum",
        "x: rows columns fp32 -> y: rows fp32",
        tiers=(Tier.COMPARATIVE,),
        not_exact="a logarithm is rounded",
        emulator_size=SMALL,
    )(lambda x: np.log(np.exp(x).sum(axis=1)))


def test_a_kernel_in_fp32_is_as_good_as_the_model_and_one_that_sums_up_in_half_is_not() -> None:
    right = judged(log_sum(), MEAN.replace("SUM", "float"), examples=40)
    assert (right.verdict, right.tiers) == (Verdict.PASS, {"comparative": 40})
    assert judged(log_sum(), MEAN.replace("SUM", "__half")).verdict is Verdict.MISMATCH


def test_a_long_row_is_judged_by_few_problems_like_it_and_a_right_answer_passes() -> None:
    solved = list[Any]()

    def solve(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        solved.append(x.shape)
        return np.asarray(np.log(np.exp(x).sum(axis=1)))

    short, declared = log_sum().problem, {"tiers": (Tier.COMPARATIVE,), "not_exact": "a logarithm is rounded"}
    long = simple_operation("log_sum", "x: rows columns fp32 -> y: rows fp32", **declared)(solve).problem
    for seed, (kind, columns, problems) in enumerate([(short, 300, 64), (long, 2**20, 16), (long, 2**21, 16)]):
        problem = kind(rows=1, columns=columns, tier=Tier.COMPARATIVE, seed=seed)
        solved.clear()
        case = Case.of(problem)
        assert comparative.problems_for(problem) == problems
        Drawn.of(problem, [Part(problem, {})], lambda _, case=case: case.inputs)
        assert len(solved) <= 4 * problems  # the reference and the model, by both
        right = np.log(np.exp(case.inputs["x"][:, ::-1]).sum(axis=1))
        assert case.judge({"y": right}.__getitem__)[0] is None
        assert case.judge({"y": right * (1 + 2.0**-8)}.__getitem__)[0] is not None


def test_a_comparative_tier_whose_model_is_as_exact_as_the_reference_is_the_operations_fault() -> None:
    @dataclass(frozen=True)
    class Mean(Problem):
        n: int = 7
        tier: Tier = Tier.COMPARATIVE
        tiers = (Tier.COMPARATIVE,)
        not_exact = "a mean is rounded"
        extents = ("n",)
        kind = np.float64

        @property
        def label(self) -> str:
            return str(self.n)

        def arrays(self) -> dict[str, Array]:
            return {"x": Array((self.n,), FP32), "y": Array((1,), FP32, output=True)}

        def reference(self, inputs: Arrays) -> Arrays:
            return {"y": inputs["x"].astype(np.float64).mean(keepdims=True)}

        def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
            return {"y": inputs["x"].astype(self.kind).mean(keepdims=True)}

        @property
        def cost(self) -> Cost:
            return Cost(self.n, 4 * self.n)

    class Narrow(Mean):
        kind = np.float32

    class Beside(Narrow):
        """Its large element is exact, and its small one rounded."""

        def arrays(self) -> dict[str, Array]:
            return {"x": Array((self.n,), FP32), "y": Array((2,), FP32, output=True)}

        def reference(self, inputs: Arrays) -> Arrays:
            return {"y": np.array([2.0**60, inputs["x"].astype(np.float64).mean()])}

        def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
            return {"y": np.array([2.0**60, inputs["x"].astype(self.kind).mean()])}

    class Cancels(Narrow):
        """A sum of which nothing is left but what rounding leaves."""

        def reference(self, inputs: Arrays) -> Arrays:
            return {"y": np.zeros(1)}

        def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays:
            return {"y": np.full(1, 1e-7)}

    soundness.check(Case.of(Narrow()))
    soundness.check(Case.of(Beside()))
    with pytest.raises(BadOperation, match="the model of the operation gives y as near as float64"):
        soundness.check(Case.of(Mean()))
    with pytest.raises(BadOperation, match=r"y\[0\] is 1.0.*e-07, .* Let magnitudes\(\) give the size"):
        soundness.check(Case.of(Cancels()))


def test_errors_are_relative_to_rows_so_that_small_rows_may_have_small_errors_only() -> None:
    scaled: Operation[Any] = simple_operation(
        "scaled",
        "x: rows columns fp32 -> y: rows columns fp32",
        tiers=(Tier.COMPARATIVE,),
        not_exact="not tried here",
        draw=lambda p, rng: {
            "x": (rng.normal(size=(p.rows, p.columns)) * 2.0 ** np.arange(0, 2 * p.rows, 2)[:, None]).astype(np.float32)
        },
    )(lambda x: x / 3 + x / 7)
    case = Case.of(scaled.problem(rows=8, columns=64))
    bound, size = case.bound["y"], np.abs(case.expected["y"]).max(axis=1)
    assert (bound.max(axis=1)[4:] < 1e-6 * size[4:]).all()
    assert bound[4].max() < bound[7].max() / 30  # the eighth row is 64 times as large as the fifth


def test_errors_of_an_elementwise_output_are_relative_to_elements() -> None:
    scaled: Operation[Any] = simple_operation(
        "elements",
        "x: rows columns fp32 -> y: rows columns fp32",
        tiers=(Tier.COMPARATIVE,),
        not_exact="not tried here",
        draw=lambda p, rng: {
            "x": (1 + rng.random((p.rows, p.columns)) * 2.0 ** np.arange(p.columns)).astype(np.float32)
        },
    )(lambda x: x / 3 + x / 7)
    problem = scaled.problem(rows=1, columns=20)
    assert Case.of(problem).bound["y"].max() < 4 * Case.of(problem).bound["y"].min()
    with patch.object(type(problem), "elementwise", ("y",)):
        bound = Case.of(problem).bound["y"][0]
    assert bound[-1] > 30 * bound[0]
    assert bound[0] > 0


def test_errors_of_sums_that_cancel_are_relative_to_the_terms_where_they_are_known() -> None:
    def draw(p: Any, rng: np.random.Generator) -> Arrays:
        half = rng.normal(size=(p.rows, p.columns)).astype(np.float32) * 2.0 ** np.arange(p.rows)[:, None]
        x = np.stack([half, -half], axis=2).reshape(p.rows, -1)[:, : p.columns]
        x[:, 0] += 1
        return {"x": x.astype(np.float32)}

    sums: Operation[Any] = simple_operation(
        "sums", "x: rows columns fp32 -> y: rows fp32", tiers=(Tier.COMPARATIVE,), not_exact="not tried here", draw=draw
    )(lambda x: x.sum(axis=1))
    problem = sums.problem(rows=8, columns=200)
    with patch.object(type(problem), "elementwise", ("y",)):
        by_results = Case.of(problem).bound["y"]
        with patch.object(
            type(problem), "magnitudes", lambda p, inputs, expected: {"y": np.abs(inputs["x"]).sum(axis=1)}
        ):
            by_terms = Case.of(problem).bound["y"]
    assert by_results[7] < 2 * by_results[0]  # a result says nothing of its terms
    assert by_terms[7] > 8 * by_terms[3] > 0


# ------------------------------------------------------------------------------------------------------- invariants

TWICE = """extern "C" __global__ void made(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += 64) y[i] = 2.f * x[i]MORE;
}"""


def test_an_answer_near_enough_of_which_an_invariant_does_not_hold_is_wrong() -> None:
    twice: Operation[Any] = simple_operation("twice", "x: n fp32 -> y: n fp32", **REAL)(lambda x: 2 * x)

    def of_zeros(inputs: Arrays) -> Arrays:
        return {"x": np.zeros_like(inputs["x"])}

    held = Invariant("zeros give zeros", lambda first, second, bound: not second["y"].any(), of_zeros)
    twice.problem.invariants = lambda problem: (held,)  # type: ignore[method-assign]
    assert judged(twice, TWICE.replace("MORE", "")).verdict is Verdict.PASS
    result = judged(twice, TWICE.replace("MORE", " + 1e-9f"))
    assert result.verdict is Verdict.MISMATCH
    assert "the invariant `zeros give zeros` does not hold of the answers" in result.failure.message


# ------------------------------------------------------------------------------- what is input and output, prepared

ADD = """extern "C" __global__ void made(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += 64) y[i] = SUM;
}"""


def test_an_array_that_is_input_and_output_begins_with_its_values_in_every_launch() -> None:
    add: Operation[Any] = simple_operation("add", "x: n fp32, y: n fp32 -> y: n fp32", emulator_size=SMALL)(
        lambda x, y: x + y
    )
    assert judged(add, ADD.replace("SUM", "y[i] + x[i]")).verdict is Verdict.PASS
    for wrong in ("x[i]", "y[i]", "y[i] + y[i] + x[i]"):
        assert judged(add, ADD.replace("SUM", wrong)).verdict is Verdict.MISMATCH
    problem = add.problem(n=20)
    controls = problem.negative_controls(problem.inputs(), problem.reference(problem.inputs()))
    assert "left as it was" in controls


@dataclass(frozen=True)
class TableProblem(Problem):
    """y[i] = x[i] table[i % 4], whose table is prepared."""

    n: int = 1

    extents = ("n",)

    @property
    def label(self) -> str:
        return str(self.n)

    def arrays(self) -> dict[str, Array]:
        return {
            "x": Array((self.n,), FP32),
            "table": Array((4,), FP32, prepared=True),
            "y": Array((self.n,), FP32, output=True),
        }

    def prepare(self, inputs: Arrays) -> Arrays:
        assert list(inputs) == ["x"]
        return {"table": np.array([1, 2, 4, 8], np.float32)}

    def reference(self, inputs: Arrays) -> Arrays:
        x = inputs["x"].astype(np.float64)
        return {"y": x * np.exp2(np.arange(self.n) % 4).astype(x.dtype)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": FP32.unit_roundoff * np.abs(expected["y"])}

    @property
    def cost(self) -> Cost:
        return Cost(self.n, 8 * self.n)


def table_operation() -> Operation[Any]:
    return Operation(
        name="table",
        summary="",
        problem=TableProblem,
        problems=lambda size, edges: st.builds(TableProblem, n=st.integers(1, size.extent), seed=st.integers(0, 99)),
        suite=(),
        defines=lambda p: {},
        emulator_size=SMALL,
        cuda_size=SMALL,
    )


FROM_TABLE = """extern "C" __global__ void made(const float* x, float* table, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += 64) y[i] = x[i] * table[i % 4];
  MORE
}"""


def test_a_prepared_array_reaches_the_kernel_and_may_not_be_written_to() -> None:
    assert judged(table_operation(), FROM_TABLE.replace("MORE", "")).verdict is Verdict.PASS
    assert judged(table_operation(), FROM_TABLE.replace("MORE", "table[0] = 1.f;")).verdict is Verdict.INPUT_CHANGED


def test_elements_that_are_written_in_part_are_not_called_unwritten() -> None:
    half = FROM_TABLE.replace("y[i] =", "reinterpret_cast<unsigned short*>(y)[2 * i] =")
    result = judged(table_operation(), half.replace("MORE", ""))
    assert result.verdict is Verdict.MISMATCH
    assert "of y were written in part: 2 of the 4 bytes of y[0]" in result.failure.message
    assert "the kernel has to write elements of type float" in result.failure.message


def test_what_is_not_prepared_is_the_operations_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableProblem, "prepare", lambda problem, inputs: {})
    result = judged(table_operation(), FROM_TABLE.replace("MORE", ""))
    assert result.verdict is Verdict.OPERATION_ERROR
    assert (
        "prepare of the operation gives a dict with nothing; it has to give a dict with table" in result.failure.message
    )


# --------------------------------------------------------------------------------------------- types, strides, outputs


def test_a_bool_that_is_neither_true_nor_false_is_wrong() -> None:
    positive: Operation[Any] = simple_operation("positive", "x: n fp32 -> y: n bool", emulator_size=SMALL)(
        lambda x: x > 0
    )
    code = """extern "C" __global__ void made(const float* x, unsigned char* y, int n) {
  for (int i = threadIdx.x; i < n; i += 64) y[i] = x[i] > 0.f ? TRUE : 0;
}"""
    assert judged(positive, code.replace("TRUE", "1")).verdict is Verdict.PASS
    assert judged(positive, code.replace("TRUE", "2")).verdict is Verdict.MISMATCH


def test_writing_between_the_elements_of_a_strided_output_is_found() -> None:
    class Strided(TableProblem):
        def arrays(self) -> dict[str, Array]:
            made = super().arrays()
            return {**made, "y": Array((self.n,), FP32, strides=(3,), output=True)}

    operation = table_operation()
    operation.problem = Strided
    operation.problems = lambda size, edges: st.builds(Strided, n=st.integers(2, size.extent))
    code = FROM_TABLE.replace("y[i]", "y[3 * i]")
    assert judged(operation, code.replace("MORE", "")).verdict is Verdict.PASS
    result = judged(operation, code.replace("MORE", "if (threadIdx.x == 0) y[1] = 0.f;"))
    assert result.verdict is Verdict.OUT_OF_BOUNDS


def test_default_controls_spoil_one_output_at_a_time_and_swap_them() -> None:
    arrays = {name: Array((3, 4), FP32, output=name != "x") for name in ("x", "y", "z")} | {
        "n": Array((2,), INT32, output=True)
    }
    rng = np.random.default_rng(0)
    expected = {"y": rng.normal(size=(3, 4)), "z": rng.normal(size=(3, 4)), "n": np.array([7, 9])}
    controls = default_controls(arrays, {"x": rng.normal(size=(3, 4)).astype(np.float32)}, expected)
    assert {"y: all zeros", "z: last row missing", "z: shifted by one", "y: x returned", "y and z swapped"} <= set(
        controls
    )
    assert controls["n: one element off"]["n"].tolist() == [7, 10]
    assert controls["n: last element missing"]["n"].tolist() == [7, 0]
    for name, answer in controls.items():
        changed = {output for output in expected if not np.array_equal(answer[output], expected[output])}
        assert changed == ({"y", "z"} if name.endswith("swapped") else {name[0]})
