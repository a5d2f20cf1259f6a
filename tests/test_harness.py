"""The harness tells right from wrong, finds the smallest failure, and says how to see it again."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from fake_device import FakeDevice

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import Fault, open_device
from workbench.judge import forensics
from workbench.judge.draw import Turns
from workbench.kernels.gemm import GEMM, GemmProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.arrays import Array
from workbench.model.dtypes import INT32
from workbench.model.launch import Launch
from workbench.model.problem import Size, Tier
from workbench.model.results import Verdict
from workbench.model.stage import Stage
from workbench.report.evidence import explain, failed


@pytest.fixture
def stage(tmp_path):
    source = tmp_path / "stage.cu"
    source.write_text('extern "C" __global__ void kernel() {}\n')
    return make_stage(source)


def make_stage(source, accepts=lambda problem: None):
    return Stage(
        "gemm", "fake", str(source), "", lambda p, s: Launch("kernel", (1, 1, 1), (1, 1, 1), (p,)), accepts=accepts
    )


def verify(stage, spoil, **options):
    return harness.verify(stage, FakeDevice(spoil), **{"examples": 30, "seed": 1, **options})


def spoil_element(select):
    """Adds 1 to the first selected element of C."""

    def spoil(problem, storage):
        c = problem.arrays()["C"].view(storage["C"])
        if select(problem):
            c[0, 0] += 1.0

    return spoil


def test_right_answers_pass_in_both_tiers(stage):
    result = verify(stage, lambda problem, storage: None)
    assert result.verdict is Verdict.PASS
    assert result.problems == 30
    assert result.tiers["bounded"] == 30 > result.tiers["exact"] >= 15  # some kinds of inputs are not exact
    assert set(result.covered["layout"]) == {"nn", "nt", "tn", "tt"}
    assert 0 < result.worst_error <= 1


def test_a_failure_is_shrunk_to_the_smallest_problem(stage):
    result = verify(stage, spoil_element(lambda p: p.m >= 5 and p.k >= 3))
    assert result.verdict is Verdict.MISMATCH
    problem = GemmProblem.parse(result.failure.problem)
    assert (problem.m, problem.n, problem.k) == (5, 1, 3)


def test_a_failure_names_the_wrong_element_and_a_replay_command(stage):
    failure = verify(stage, spoil_element(lambda p: True)).failure
    element = failure.wrong[0]
    assert (element.output, element.index, failure.wrong_count) == ("C", [0, 0], 1)
    assert float(element.got) == pytest.approx(float(element.expected) + 1, rel=1e-2)
    assert failure.replay == f"workbench verify gemm:fake --device emulator --problem '{failure.problem}'"


def test_the_replayed_problem_fails_again_and_alone(stage):
    spoil = spoil_element(lambda p: p.n >= 2)
    failure = verify(stage, spoil).failure
    again = verify(stage, spoil, problem=GemmProblem.parse(failure.problem))
    # what it looks like is seen in the largest failing problem, and here there is only one
    seen = {name: getattr(again.failure, name) for name in ("looks_like", "map", "cells")}
    assert again.failure == dataclasses.replace(failure, smallest=False, **seen)
    assert again.problems == 0


def test_an_error_too_small_for_the_bound_is_found_by_the_exact_tier(stage):
    def spoil(problem, storage):
        storage["C"][0] = np.nextafter(storage["C"][0], storage["C"].dtype.type(np.inf))

    failure = verify(stage, spoil).failure
    assert GemmProblem.parse(failure.problem).tier is Tier.EXACT


def test_an_error_that_integers_hide_is_found_by_the_bounded_tier(stage):
    def spoil(problem, storage):
        if problem.out == "fp32":  # a result rounded to fp16 on its way
            storage["C"][:] = storage["C"].astype(np.float16)

    failure = verify(stage, spoil).failure
    assert GemmProblem.parse(failure.problem).tier is Tier.BOUNDED


HALF = """extern "C" __global__ void half(const int* a, const int* b, int* c, long long n) {
  const int i = threadIdx.x;
  if (i < n && i % 2) c[i] = a[i] + b[i];
}
"""


class IntegerSum(VectorAddProblem):
    def arrays(self):
        return {name: dataclasses.replace(array, dtype=INT32) for name, array in super().arrays().items()}


def test_integers_that_were_not_written_are_wrong_and_known(tmp_path):
    (tmp_path / "half.cu").write_text(HALF)
    stage = Stage(
        "vector_add",
        "half",
        str(tmp_path / "half.cu"),
        "",
        lambda p, s: Launch("half", (1, 1, 1), (32, 1, 1), ("a", "b", "c", np.int64(p.n))),
    )
    case = harness.Case.of(IntegerSum(n=7, tier=Tier.EXACT))
    after = harness.solve(stage, open_device("emulator"), case)
    failure, _ = case.judge(after.__getitem__)
    assert [element.index for element in failure.wrong] == [[0], [2], [4], [6]]
    assert {element.got for element in failure.wrong} == {str(0x9D9D9D9D - 2**32)}
    seen = forensics.diagnose(case, "c", after, lambda other: harness.solve(stage, open_device("emulator"), other))
    assert seen.looks_like.startswith("partly not written: what was there before is left")
    assert seen.cells.unwritten_count == 4


def test_integers_between_the_rows_are_not_the_kernels():
    array = Array((2, 3), INT32, leading=5, output=True)
    storage = array.pack(np.ones((2, 3)))
    assert array.written_padding(storage) == 0
    storage[4] = -1
    assert array.written_padding(storage) == 1


def element_left_out(problem, storage):
    problem.arrays()["C"].view(storage["C"])[-1, -1] = np.nan


def gap_written(problem, storage):
    if problem.pad_c and problem.m > 1:
        storage["C"][problem.n] = 0


def input_changed(problem, storage):
    storage["B"][0] += 1


def never_ended(problem, storage):
    raise Fault(Verdict.DEADLOCK, "warp 0 waits for ever")


@pytest.mark.parametrize(
    ("spoil", "verdict", "says"),
    [
        (element_left_out, Verdict.MISMATCH, "nan"),
        (gap_written, Verdict.OUT_OF_BOUNDS, "between the rows of C"),
        (input_changed, Verdict.INPUT_CHANGED, "input B"),
        (never_ended, Verdict.DEADLOCK, "warp 0 waits for ever"),
    ],
)
def test_what_a_launch_may_not_do_has_its_verdict(stage, spoil, verdict, says):
    result = verify(stage, spoil)
    assert result.verdict is verdict
    assert says in result.failure.message or result.failure.wrong[0].got == says


def test_a_failure_that_comes_and_goes_is_reported_as_such(stage):
    calls = iter(range(10**6))

    def spoil(problem, storage):
        if next(calls) == 0:
            storage["C"][0] += 1

    result = verify(stage, spoil)
    assert result.verdict is Verdict.MISMATCH
    assert "not every time" in result.failure.message


def test_unsupported_problems_are_counted_with_their_reason_and_replaced(tmp_path, stage):
    picky = make_stage(stage.path, lambda p: "fp32 is not for me" if p.dtype == "fp32" else None)
    result = verify(picky, lambda problem, storage: None)
    assert result.problems == 30
    assert result.unsupported["fp32 is not for me"] > 0
    assert result.refused == sum(result.unsupported.values()) / (30 + sum(result.unsupported.values()))
    assert "fp32" not in result.covered["dtype"]


@pytest.mark.long
def test_a_stage_that_takes_nothing_is_unsupported_not_passed(stage):
    result = verify(make_stage(stage.path, lambda p: "never"), lambda problem, storage: None)
    assert result.verdict is Verdict.UNSUPPORTED
    assert result.problems == 0
    assert failed(result) and "takes none of the problems that were drawn" in result.failure.message
    newer = dataclasses.replace(make_stage(stage.path, lambda p: "never"), architecture=120)
    assert not failed(verify(newer, lambda problem, storage: None))  # it is this device that cannot run it


def test_a_source_that_does_not_compile_shows_its_line(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void kernel() {\n  int x = nonsense;\n}\n')
    result = verify(make_stage(source), lambda problem, storage: None)
    assert result.verdict is Verdict.COMPILE_ERROR
    assert "broken.cu(2)" in result.failure.message
    assert "int x = nonsense;" in result.failure.message


def test_the_same_seed_draws_the_same_problems_and_another_seed_others(stage):
    def drawn(seed):
        device = FakeDevice()
        harness.verify(stage, device, examples=10, seed=seed)
        return device.problems

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_tile_edges_are_drawn_on_purpose(stage):
    tiled = Stage("gemm", "tiled", stage.source, "", stage.plan_for, parameters={"BLOCK": 57})
    device = FakeDevice()
    harness.verify(tiled, device, examples=40, seed=1)
    sizes = {size for p in device.problems for size in (p.m, p.n, p.k)}
    assert {56, 57, 58} & sizes
    assert sum(max(p.m, p.n, p.k) > GEMM.emulator_size.extent for p in {*device.problems}) <= 4  # of 40


def test_devices_that_give_the_same_bits_agree(stage):
    result = harness.agree(stage, FakeDevice(), FakeDevice(), examples=12)
    assert result.disagreement == ""
    assert result.tiers == {"exact": 12, "bounded": 12}


@pytest.mark.parametrize("spec", ["conv2d:padded_channels", "gemm:one_vector"])
@pytest.mark.parametrize("examples", [1, 10, 50])
def test_as_many_distinct_problems_are_drawn_as_are_asked_for(spec, examples):
    (stage,) = registry.select([spec])
    drawn = harness.drawn(stage, open_device("emulator"), examples=examples, seed=0)
    edges = [problem for problem in drawn if problem in stage.edge_cases]
    assert edges == [p for p in stage.edge_cases[:examples] if p in drawn] != []
    assert len(drawn) == len({*drawn}) == examples + len(edges)  # edge cases come in addition
    assert all(stage.supports(problem) is None for problem in drawn)


def test_devices_that_differ_are_told_apart_by_one_bit(stage):
    def flip(problem, storage):
        storage["C"].view(np.uint8)[0] ^= 1

    result = harness.agree(stage, FakeDevice(), FakeDevice(flip), examples=12)
    assert "elements of C are wrong" in result.disagreement


def test_devices_whose_nan_has_other_bits_agree(stage):
    given = []

    def nan(sign):
        def spoil(problem, storage):
            values = problem.arrays()["C"].view(storage["C"])
            values[np.isnan(values)] = np.copysign(np.float32(np.nan), sign)
            given.append(np.isnan(values).any())

        return FakeDevice(spoil)

    assert harness.agree(stage, nan(1), nan(-1), examples=40).disagreement == ""
    assert any(given)


def test_edge_cases_of_a_stage_are_always_tried(stage):
    edge_case = GemmProblem(m=7, n=91, k=13, layout="nn", seed=99)
    bound_to_fail = Stage("gemm", "bound_to_fail", stage.source, "", stage.plan_for, edge_cases=(edge_case,))
    result = harness.verify(
        bound_to_fail, FakeDevice(spoil_element(lambda p: (p.m, p.n, p.k) == (7, 91, 13))), examples=5, seed=0
    )
    assert GemmProblem.parse(result.failure.problem).with_tier(Tier.BOUNDED) == edge_case


def test_negative_controls_are_rejected_and_counted(stage):
    result = verify(stage, lambda problem, storage: None)
    assert result.wrong_rejected >= 8  # four and more in each tier


def test_a_bound_that_lets_a_wrong_result_pass_is_a_weak_check(stage, monkeypatch):
    def loose(problem, inputs, expected):
        return {"C": np.full(expected["C"].shape, 1e6)}

    monkeypatch.setattr(GemmProblem, "bound", loose)
    result = verify(stage, lambda problem, storage: None)
    assert result.verdict is Verdict.WEAK_CHECK
    assert "`all zeros`" in result.failure.message
    assert "smallest failing problem" not in explain(stage.spec, result)  # it was tried on a larger one
    again = verify(stage, lambda problem, storage: None, problem=GemmProblem.parse(result.failure.problem))
    assert again.verdict is Verdict.WEAK_CHECK


def test_an_operation_without_negative_controls_is_a_weak_check(stage, monkeypatch):
    monkeypatch.setattr(GemmProblem, "negative_controls", lambda problem, inputs, expected: {})
    result = verify(stage, lambda problem, storage: None)
    assert result.verdict is Verdict.WEAK_CHECK
    assert "has none that differs" in result.failure.message


def changing():
    """Answers that are within the bound and never twice the same."""
    calls = iter(range(10**6))

    def spoil(problem, storage):
        if problem.tier is Tier.BOUNDED and next(calls) % 2:
            c = problem.arrays()["C"].view(storage["C"])
            at = tuple(np.argwhere(np.isfinite(c))[0])
            c[at] = np.nextafter(c[at], c.dtype.type(np.inf))

    return spoil


def test_an_answer_that_differs_from_launch_to_launch_is_not_deterministic(stage):
    result = verify(stage, changing(), problem=GemmProblem(m=20, n=3, k=5))
    assert result.verdict is Verdict.NOT_DETERMINISTIC
    assert "1 of 60 elements of C differ" in result.failure.message
    assert "C[0, 0] was" in result.failure.message


def test_an_answer_that_is_another_after_many_launches_is_not_deterministic(stage):
    launches: Counter[object] = Counter()

    def spoil(problem, storage):
        launches[problem] += 1
        if launches[problem] > 8:
            changing_once(problem, storage)

    changing_once = changing()
    result = verify(stage, spoil, seed=3)  # which ends with C of fp32
    assert result.verdict is Verdict.NOT_DETERMINISTIC
    assert result.problems == 30


def test_a_stage_may_declare_that_it_is_not_deterministic(stage):
    declared = dataclasses.replace(stage, deterministic=False)
    assert verify(declared, changing(), problem=GemmProblem(m=20, n=3, k=5)).verdict is Verdict.PASS


def test_arrays_have_every_alignment_that_a_stage_claims_and_no_better_one(stage):
    seen: dict[int, set[tuple[int, ...]]] = {}

    class Watch(FakeDevice):
        def bind(self, compiled, plan, arrays, storage, seed=0):
            found = tuple(plan.alignment(name, array) for name, array in arrays.items())
            seen.setdefault(seed % 2, set()).add(found)
            return super().bind(compiled, plan, arrays, storage, seed)

    for alignment in (1, 16, 256):
        seen.clear()
        claims = dataclasses.replace(stage, alignment=alignment)
        for seed in range(600):
            harness.solve(claims, Watch(), harness.Case.of(GemmProblem(m=1, n=1, k=1, dtype="fp16", seed=seed)))
        least = (max(alignment, 2), max(alignment, 2), max(alignment, 4))  # an element of C has 4 bytes
        assert seen[0] == {least}
        every = {1 << i for i in range(1, 13) if 1 << i >= alignment}
        assert {a for a, _, _ in seen[1]} == {b for _, b, _ in seen[1]} == every
        assert len(seen[1]) > len(every)  # they differ from array to array


def test_the_first_problem_and_every_fifth_are_solved_twice(stage):
    device = FakeDevice()
    harness.verify(stage, device, examples=11, seed=0)
    tried = harness.trials(stage, FakeDevice(), examples=11, seed=0)
    assert [trial.twice for trial in tried] == [True, *[False] * 4] * 2 + [True]
    solved = sum(len(trial.tiers) * (1 + trial.twice) for trial in tried)
    assert len(device.problems) == solved + 1  # the last one is solved many times
    assert device.problems[0] == device.problems[1]


def test_a_problem_of_much_more_work_than_others_leaves_being_solved_twice_to_the_next():
    small, large = VectorAddProblem(n=100), VectorAddProblem(n=1001)
    turns = Turns.of(Size(extent=100, work=100))
    assert [turns.take(p) for p in (large, small, *[small] * 4, large, large, small)] == [
        *(False, True, False, False, False, False, False, False, True)
    ]
    assert sum(turns.take(large) for _ in range(30)) == 3  # but not for ever
    assert [Turns().take(large) for _ in range(2)] == [True, True]  # what is asked for by name is
