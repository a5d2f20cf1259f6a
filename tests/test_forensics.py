"""A wrong result is explained by what it looks like: each mistake gets its own name, and no other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice

from workbench import harness
from workbench.catalogue import registry
from workbench.judge import forensics
from workbench.judge.forensics import numbers, places
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.matvec import MatvecProblem
from workbench.kernels.rms_norm import RmsNormProblem
from workbench.kernels.softmax import SoftmaxProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.arrays import Array
from workbench.model.dtypes import BF16, DTYPES, FP32, TF32
from workbench.model.launch import Launch
from workbench.model.problem import Problem, Tier
from workbench.model.results import Verdict
from workbench.model.stage import Stage
from workbench.report.evidence import explain

Storage = dict[str, np.ndarray[Any, Any]]
Mistake = Callable[[Problem, Storage], None]

WIDE = GemmProblem(m=64, n=96, k=50, dtype="fp16", out="fp32", tier=Tier.BOUNDED, seed=4)
SQUARE = dataclasses.replace(WIDE, m=64, n=64)


@pytest.fixture
def look(tmp_path):
    """The diagnosis of what a fake device with a mistake answers to a problem."""
    source = tmp_path / "stage.cu"
    source.write_text('extern "C" __global__ void kernel() {}\n')

    def look_at(mistake: Mistake, problem: Problem = WIDE, output: str = "") -> forensics.Diagnosis:
        operation = next(name for name, o in registry.operations().items() if isinstance(problem, o.problem))
        output = output or next(name for name, array in problem.arrays().items() if array.output)
        stage = Stage(operation, "fake", str(source), "", lambda p, s: Launch("k", (1, 1, 1), (1, 1, 1), (p,)))
        device = FakeDevice(mistake)
        case = harness.Case.of(problem)
        after = harness.solve(stage, device, case)
        return forensics.diagnose(case, output, after, lambda other: harness.solve(stage, device, other))

    return look_at


def c_of(problem: Problem, storage: Storage) -> np.ndarray[Any, Any]:
    return problem.arrays()["C"].view(storage["C"])


def a_b(problem: Problem, storage: Storage) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    arrays = problem.arrays()
    a, b = (arrays[n].view(storage[n]).astype(np.float32) for n in "AB")
    return a, b if problem.layout == "nn" else b.T


def changed(output: str, where: Any, by: Any = 1, plus: Any = 0) -> Mistake:
    """Elements of an output are multiplied, and something is added."""

    def mistake(problem: Problem, storage: Storage) -> None:
        values = problem.arrays()[output].view(storage[output])
        values[where] = values[where] * by + plus

    return mistake


def never_written(problem, storage):
    storage["C"][:] = storage.before["C"]


def partly_written(problem, storage):
    c_of(problem, storage)[16:32, 32:64] = c_of(problem, storage.before)[16:32, 32:64]


def transposed(problem, storage):
    c = c_of(problem, storage)
    c[...] = c.T.reshape(c.shape).copy()


def late_by_a_row(problem, storage):
    c = c_of(problem, storage)
    c[1:] = c[:-1].copy()


def early_by_a_column(problem, storage):
    c = c_of(problem, storage)
    c[:, :-1] = c[:, 1:].copy()


def warp_wrong(problem, storage):
    c_of(problem, storage).reshape(-1, 16, problem.n)[:, 4:8] += 3


def last_terms_dropped(problem, storage):
    a, b = a_b(problem, storage)
    c_of(problem, storage)[...] = a[:, :48] @ b[:48]


def middle_term_twice(problem, storage):
    a, b = a_b(problem, storage)
    c_of(problem, storage)[...] += np.outer(a[:, 20], b[20])


def half_accumulator(problem, storage):
    a, b = a_b(problem, storage)
    total = np.zeros(c_of(problem, storage).shape, np.float16)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[k]).astype(np.float16)
    c_of(problem, storage)[...] = total


def stale():
    kept = {}

    def mistake(problem, storage):
        c = c_of(problem, storage)
        c[...] = kept.setdefault(c.shape, c * 1.5)

    return mistake


def unstable():
    rng = np.random.default_rng(0)

    def mistake(problem, storage):
        c_of(problem, storage)[rng.integers(0, 64, 9), rng.integers(0, 64, 9)] += 1

    return mistake


def scattered(problem, storage):
    c = c_of(problem, storage)
    c[np.random.default_rng(3).random(c.shape) < 0.1] += 1


MISTAKES: dict[str, tuple[Callable[[], Mistake], GemmProblem, str]] = {
    "zeros": (lambda: changed("C", ..., 0), WIDE, "all zeros"),
    "never written": (lambda: never_written, WIDE, "never written"),
    "partly written": (
        lambda: partly_written,
        WIDE,
        "partly not written: NaN is left in rows 16 to 31, columns 32 to 63",
    ),
    "transposed square": (lambda: transposed, SQUARE, "transposed"),
    "transposed": (lambda: transposed, WIDE, "transposed"),
    "late row": (lambda: late_by_a_row, WIDE, "shifted by one row: every element is one row too late"),
    "early column": (lambda: early_by_a_column, WIDE, "shifted by one column: every element is one column too early"),
    "rows missing": (lambda: changed("C", np.s_[-5:], 0), WIDE, "the last 5 of 64 rows are missing"),
    "columns missing": (lambda: changed("C", np.s_[:, -3:], 0), WIDE, "the last 3 of 96 columns are missing"),
    "tile": (
        lambda: changed("C", np.s_[16:32, 32:64], 2),
        WIDE,
        "elements are wrong in rows 16 to 31, columns 32 to 63: one tile of 16 x 32",
    ),
    "warp": (lambda: warp_wrong, WIDE, "in rows 4 to 7 of every 16: the share of one warp or thread in every tile"),
    "terms dropped": (lambda: last_terms_dropped, WIDE, "terms of the sum are dropped: 48 to 49 of k = 0 to 49"),
    "term twice": (lambda: middle_term_twice, SQUARE, "terms of the sum are counted twice: 20 of k = 0 to 49"),
    "half accumulator": (lambda: half_accumulator, WIDE, "precision is lost"),
    "stale": (stale, WIDE, "it does not depend on the inputs"),
    "unstable": (unstable, WIDE, "it differs from run to run"),
    "scattered": (lambda: scattered, WIDE, "no pattern that is known"),
}


@pytest.mark.parametrize(("make", "problem", "says"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_gets_its_own_name_and_no_other(look, make, problem, says):
    seen = look(make(), problem)
    assert seen.looks_like.startswith(says) or says in seen.looks_like
    others = {other for _, _, other in MISTAKES.values()} - {says}
    assert [other for other in others if seen.looks_like.startswith(other)] == []


@pytest.mark.parametrize(
    "name", ["zeros", "rows missing", "columns missing", "tile", "warp", "terms dropped", "late row", "transposed"]
)
def test_small_integers_that_are_right_by_chance_do_not_hide_it(look, name):
    make, problem, says = MISTAKES[name]
    assert says in look(make(), problem.with_tier(Tier.EXACT)).looks_like


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_probe_gives_each_element_one_term(layout):
    problem = GemmProblem(m=3, n=4, k=20, layout=layout)
    order = np.array([7, -1, 19, 0, 3, 4, -1, 5, 6, 8, 9, 10])
    assert problem.reference(problem.probe(order))["C"].reshape(-1).tolist() == (order >= 0).tolist()


def test_terms_of_a_matrix_vector_product_are_probed_too(look):
    def every_fourth_dropped(problem, storage):
        arrays = problem.arrays()
        a, b = (arrays[n].view(storage[n]).astype(np.float64) for n in "aB")
        keep = np.arange(problem.k) % 4 != 3
        arrays["c"].view(storage["c"])[...] = b[:, keep] @ a[keep]

    seen = look(every_fourth_dropped, MatvecProblem(n=30, k=12))
    assert seen.looks_like == "terms of the sum are dropped: 3, 7, 11 of k = 0 to 11"


ROWS = RmsNormProblem(rows=12, columns=128, dtype="fp32", out="fp32", pad_x=3)


def y_of(problem: Problem, storage: Storage) -> np.ndarray[Any, Any]:
    return problem.arrays()["y"].view(storage["y"])


def padding_read(problem, storage):
    x = storage["x"][problem.columns]  # behind the first row
    y_of(problem, storage)[0] += 0 * x


def lanes_of_half_a_warp(width):
    def mistake(problem, storage):
        x = problem.arrays()["x"].view(storage["x"])
        lower = np.arange(problem.columns) // width % 32 < 16
        power = np.mean(np.where(lower, x, 0) ** 2, axis=1, keepdims=True)
        w = storage["w"]
        y_of(problem, storage)[...] = x * w / np.sqrt(power + problem.eps)

    return mistake


def rounded_inputs(bits):
    def mistake(problem, storage):
        x = problem.arrays()["x"].view(storage["x"])
        read = (np.ascontiguousarray(x).view(np.uint32) & np.uint32(bits)).view(np.float32)
        power = np.mean(read.astype(np.float64) ** 2, axis=1, keepdims=True)
        y_of(problem, storage)[...] = read * storage["w"] / np.sqrt(power + problem.eps)

    return mistake


ROW_MISTAKES: dict[str, tuple[Mistake, str]] = {
    "zero row": (
        changed("y", np.s_[3:5], np.nan),
        "NaN is computed in rows 3 to 4: a value that a whole row shares is NaN",
    ),
    "negative root": (changed("y", np.s_[0::5, 1::7], np.nan), "root or logarithm of a negative number"),
    "padding": (padding_read, "NaN is computed in row 0: it comes from the gaps between the rows of x"),
    "overflow": (changed("y", 2, 0, np.inf), "overflow: infinity in row 2"),
    "rows scaled": (
        changed("y", ..., np.linspace(1.5, 2.5, ROWS.rows)[:, None]),
        "each row is off by one factor, of 1.5 to 2.5",
    ),
    "some rows scaled": (changed("y", [1, 4, 5, 9], 3), "4 of 12 rows are each off by one factor, of 3 to 3"),
    "weights scaled": (
        changed("y", ..., np.linspace(1.5, 2.5, ROWS.columns)),
        "each column is off by one factor, of 1.5 to 2.5",
    ),
    "doubled": (changed("y", ..., 2), "every element is 2 times what is right"),
    "base 2": (
        changed("y", ..., 1 / np.log(2)),
        "every element is 1.4427 = 1 / ln 2 times what is right: a logarithm to base 2",
    ),
    "sign": (changed("y", ..., -1), "every element has the wrong sign"),
    "half warp": (lanes_of_half_a_warp(1), "elements 16 to 31 of every 32 along the rows of x do not count"),
    "half warp of vectors": (lanes_of_half_a_warp(4), "elements 64 to 127 of every 128 along the rows of x do not"),
    "tf32": (rounded_inputs(0xFFFFE000), f"an input is rounded to {TF32}"),
    "bf16": (rounded_inputs(0xFFFF0000), f"an input is rounded to {BF16}"),
}


@pytest.mark.parametrize(("mistake", "says"), ROW_MISTAKES.values(), ids=list(ROW_MISTAKES))
def test_what_goes_wrong_in_rows_gets_its_own_name(look, mistake, says):
    assert says in look(mistake, ROWS).looks_like


def test_half_a_warp_is_known_where_the_rest_changes_the_maximum(look):
    def sums_of_half_warps(problem, storage):
        x = problem.arrays()["x"].view(storage["x"]).astype(np.float32)
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        halves = np.add.reduceat(powers.reshape(len(x), -1, 2, 16).sum(axis=1), [0], axis=2)
        y_of(problem, storage)[...] = (powers.reshape(len(x), -1, 2, 16) / halves[:, None]).reshape(x.shape)

    problem = SoftmaxProblem(rows=4, columns=96, dtype="fp32", out="fp32", tier=Tier.BOUNDED)
    assert "elements 16 to 31 of every 32 along the rows of x" in look(sums_of_half_warps, problem).looks_like


@pytest.mark.parametrize(("factor", "named"), [(128**-0.5, "1 / sqrt(128)"), (128 / 127, "128 / 127"), (12.0, "12")])
def test_a_factor_that_is_of_an_extent_is_named_so(look, factor, named):
    assert f" = {named} times what is right" in look(changed("y", ..., factor), ROWS).looks_like


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_sums_in_the_type_of_the_output_are_named_by_the_size_of_their_error(look, dtype):
    def in_that_type(problem, storage):
        a, b = a_b(problem, storage)
        kind = problem.arrays()["C"].dtype.numpy
        total = np.zeros(c_of(problem, storage).shape, kind)
        for k in range(a.shape[1]):
            total = (total.astype(np.float32) + np.outer(a[:, k], b[k])).astype(kind)
        c_of(problem, storage)[...] = total

    said = look(in_that_type, dataclasses.replace(WIDE, dtype=dtype, out=dtype, k=300)).looks_like
    assert f"As large an error has a sum of 300 terms in {dtype}" in said


def test_an_exponential_to_base_2_is_known_by_its_slope(look):
    def by_2(problem, storage):
        x = problem.arrays()["x"].view(storage["x"]).astype(np.float64)
        powers = 2.0 ** (x - x.max(axis=1, keepdims=True))
        y_of(problem, storage)[...] = powers / powers.sum(axis=1, keepdims=True)

    problem = SoftmaxProblem(rows=4, columns=50, dtype="fp32", out="fp32", tier=Tier.BOUNDED)
    assert "an exponential to base 2 stands for e^x" in look(by_2, problem).looks_like


def test_the_bytes_of_the_filler_are_no_evidence_where_they_are_computed():
    for dtype in (t for t in DTYPES.values() if not t.compute_only and t.packing == 1):
        array = Array((4,), dtype, output=True)
        case = dataclasses.replace(harness.Case.of(VectorAddProblem(n=4)), arrays={"c": array})

        def written(other, half):
            storage = other.arrays["c"].poisoned()
            storage[half:] = np.frombuffer(4 * dtype.fillers[0], dtype.numpy)[half:]  # noqa: B023
            return {"c": storage}

        for half in (0, 2):
            after = written(case, half)
            found = case.unwritten("c", after, lambda other: written(other, half))  # noqa: B023
            assert found.tolist() == [place < half for place in range(4)], dtype


def test_an_answer_that_is_right_when_looked_at_again_is_no_pattern(look):
    assert look(lambda problem, storage: None).looks_like.startswith("it differs from run to run")


def evidence(got: Any, right: Any, bound: float, name: str = "O") -> forensics.Evidence:
    """Of an output of fp32 with these values, of a stage that cannot be asked anything."""
    shape, within = (-1, got.shape[-1]), np.full(got.shape, bound)
    values = (v.reshape(shape) for v in (got, right, within, np.abs(got - right) > within, np.zeros(got.shape, bool)))
    case = harness.Case.of(VectorAddProblem(n=4))
    return forensics.Evidence(case, name, Array(got.shape, FP32, output=True), *values, {}, lambda other: {})


def test_answers_that_are_numbers_of_a_narrow_type_by_themselves_tell_of_no_accumulator():
    whole = np.arange(64.0, 128.0).reshape(8, 8)
    real = whole + np.pi / 100
    assert numbers._kept_in(evidence(whole, real, 1e-6)) is BF16
    assert numbers._kept_in(evidence(whole[::-1], whole, 1e-6)) is None


def test_heads_in_each_others_place_are_named():
    right = np.random.default_rng(0).standard_normal((2, 4, 6, 8))
    said = places.permuted(evidence(right[:, [0, 2, 1, 3]], right, 1e-6))
    assert said is not None
    assert "slices along axis 1 (of 4: heads, batches) are in each other's place: 1 holds what belongs into 2" in said


def test_tiles_of_both_axes_are_named_only_where_no_rows_or_columns_explain_it(look):
    def grid_transposed(problem, storage):
        c = c_of(problem, storage)
        tiles = c.reshape(4, 16, 4, 16).transpose(2, 1, 0, 3)
        c[...] = tiles.reshape(c.shape).copy()

    said = look(grid_transposed, SQUARE).looks_like
    assert "tiles of 16 x 16, counted along rows, are in each other's place: 1 holds what belongs into 4" in said


def test_the_map_shows_small_matrices_element_by_element(look):
    assert look(changed("C", (1, 2), plus=1), GemmProblem(m=3, n=4, k=5)).map == "....\n..#.\n...."


def test_the_map_of_a_large_matrix_fits_and_loses_no_wrong_element():
    bad = np.zeros((1000, 3000), bool)
    bad[999, 0] = bad[0, 2999] = True
    lines = forensics.draw(bad).splitlines()
    assert (len(lines), {len(line) for line in lines}) == (16, {48})
    assert [i for i, line in enumerate(lines) if "#" in line] == [0, 15]


def test_cells_say_which_share_is_wrong_and_where_nan_is():
    bad, nan = np.zeros((2, 8, 8), bool)
    bad[0, 0] = bad[:4, 4:] = bad[4:, 4:7] = True
    nan[4, 4] = nan[7, 0] = True  # the second is where NaN is right
    assert forensics.cells(bad, nan, (4, 4)) == ["19", ".g"]


def test_a_picture_has_elements_for_cells_while_they_are_few_and_powers_of_two_later(look):
    def last_column_left_out(problem, storage):
        c_of(problem, storage)[:, -1] = c_of(problem, storage.before)[:, -1]

    seen = look(last_column_left_out, GemmProblem(m=128, n=129, k=5)).cells
    assert (seen.shape, seen.cell, seen.output) == ([128, 129], [1, 2], "C")
    assert (seen.wrong_count, seen.unwritten_count) == (128, 128)
    assert seen.cells == ["." * 64 + "i"] * 128


def test_verification_explains_the_largest_failing_problem(tmp_path):
    source = tmp_path / "stage.cu"
    source.write_text('extern "C" __global__ void kernel() {}\n')
    stage = Stage("gemm", "fake", str(source), "", lambda p, s: Launch("k", (1, 1, 1), (1, 1, 1), (p,)))

    def last_row(problem, storage):
        if problem.m > 6:
            c_of(problem, storage)[..., -1, :] = 0

    result = harness.verify(stage, FakeDevice(last_row), examples=30, seed=1)
    assert result.verdict is Verdict.MISMATCH
    assert "last row missing" in result.failure.looks_like
    assert "(seen in m=" in result.failure.looks_like
    text = explain("gemm:fake", result)
    assert f"looks like: {result.failure.looks_like}" in text
    assert result.failure.map in text
    assert f"(seen in {result.failure.cells.problem})" in result.failure.looks_like
