"""The chunked scan: its definition, what rejects broken kernels, and `workbench.ops.ssd`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from invariants import holds_of_the_reference_alone
from planted import broken_verdict

import workbench
from workbench import harness, ops, reference
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.harness import Case
from workbench.judge.launches import broken_invariant
from workbench.judge.soundness import telling
from workbench.kernels.ssd import SSD, Decays, SsdProblem
from workbench.kernels.ssd.stages import segments
from workbench.model.dtypes import BF16
from workbench.ops.choice import choose

PROBLEMS = [
    SsdProblem(batch=2, heads=4, length=150, headdim=16, dstate=24, group=2, decays=decays, seed=seed)
    for seed, decays in enumerate(Decays)
]


def test_the_reference_on_places_worked_out_by_hand():
    x, log_a = np.array([[1.0, 10.0], [2.0, 0.0], [0.0, 4.0]]), np.log([0.5, 0.25, 0.0 + 1])
    b, c = np.array([[1.0], [3.0], [1.0]]), np.array([[2.0], [1.0], [1.0]])
    y, h = reference.ssd(x, log_a, b, c, np.array([[8.0, 0.0]]))
    # the state is 4 + 1 and 10; 5/4 + 6 and 10/4; then 7.25 and 2.5 + 4
    assert y == pytest.approx(np.array([[10.0, 20.0], [7.25, 2.5], [7.25, 6.5]]))
    assert h == pytest.approx(np.array([[7.25, 6.5]]))
    forgotten, _ = reference.ssd(x, np.full(3, -np.inf), b, c, np.array([[8.0, 0.0]]))
    assert forgotten == pytest.approx((b * c) * x)


def test_heads_share_b_and_c_in_groups():
    problem = SsdProblem(batch=2, heads=20, length=5, headdim=3, dstate=2, group=4)
    inputs = problem.inputs()
    found = problem.reference(inputs)
    for batch, head in ((0, 3), (1, 4), (1, 19)):
        own = {name: inputs[name][batch, :, head] for name in ("x", "log_a")}
        shared = {name: inputs[name][batch, :, head // 4] for name in ("b", "c")}
        y, h = reference.ssd(*own.values(), *shared.values(), inputs["h0"][batch, head])
        assert np.array_equal(found["y"][batch, :, head], y)
        assert np.array_equal(found["h"][batch, head], h)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_wrong_answer_is_rejected(problem):
    rejected, accepted = Case.of(problem).negative_controls()
    assert accepted == []
    assert rejected >= 21


def test_decays_are_usual_near_1_near_0_or_resets():
    size = {"length": 4000}
    drawn = {kind: np.exp(SsdProblem(decays=kind, **size).inputs()["log_a"]) for kind in Decays}
    assert drawn[Decays.USUAL].min() < 0.4
    assert 0.95 < np.median(drawn[Decays.USUAL]) < 0.98
    assert 0.996 < drawn[Decays.NEAR_ONE].min() < drawn[Decays.NEAR_ONE].max() < 1
    assert 1e-5 < drawn[Decays.NEAR_ZERO].max() < 0.01
    assert (drawn[Decays.NEAR_ZERO] == 0).any()
    assert 0.03 < np.mean(drawn[Decays.RESETS] < 1e-30) < 0.07


@pytest.mark.parametrize("name", [invariant.name for invariant in PROBLEMS[0].invariants()])
def test_an_invariant_holds_of_the_reference_and_not_of_others(name):
    problem = PROBLEMS[0]

    def spoilt(answer, inputs):  # by what has no place: a square, a later place, the number of the place
        later = np.roll(inputs["x"].astype(np.float64), -1, axis=1)
        return {"y": answer["y"] + later**2 * np.arange(problem.length)[:, None, None], "h": answer["h"] ** 2}

    holds_of_the_reference_alone(problem, name, spoilt)


BY_NAME = {stage.name: stage for stage in SSD.stages}


def _solved(stage, problem, **inputs):
    """The outputs of a stage for other inputs, in float64."""
    case = Case.of(problem)
    case = dataclasses.replace(case, inputs=case.inputs | inputs)
    return case.answers(harness.solve(stage, open_device("emulator"), case))


PARALLEL = BY_NAME["parallel"]


@pytest.mark.parametrize(
    "stage",
    [*(BY_NAME["chunked"].with_parameters({"CHUNK": n}) for n in (16, 64)), PARALLEL],
    ids=["16", "64", "segments"],
)
def test_the_size_of_a_chunk_and_of_a_segment_does_not_matter(stage):
    problem = SsdProblem(heads=2, length=330, headdim=16, dstate=8, decays=Decays.NEAR_ONE)
    case = Case.of(problem)
    for least in (1, 6) if stage.name == "parallel" else (None,):
        tried = stage.with_parameters({"LEAST": least}) if least else stage
        failure, worst = case.judge(harness.solve(tried, open_device("emulator"), case).__getitem__)
        assert failure is None
        assert 0 < worst < 1


def test_segments_are_as_many_as_blocks_need_and_cover_every_chunk():
    size = PARALLEL.parameters
    for length in (1, 64, 65, 1000, 16384):
        for heads in (1, 16, 128, 1000):
            count, each = segments(SsdProblem(heads=heads, length=length, headdim=64, dstate=64), size)
            chunks = -(-length // 64)
            assert (count - 1) * each < chunks <= count * each
            assert each >= min(chunks, size["LEAST"])
            assert count == 1 or count <= -(-size["BLOCKS"] // heads)
    assert segments(SsdProblem(heads=128, length=16384, headdim=64, dstate=128), size) == (5, 52)


TENSOR_CORE, TMA, SPECIALISED = (BY_NAME[name] for name in ("tensor_core", "tma", "specialised"))


@pytest.mark.parametrize(
    ("name", "right", "broken", "verdict"),
    [
        ("tensor_core", "    __syncthreads();  // everyone is done with them", "", "race"),
        ("tensor_core", "cp_async_wait<1>();", "cp_async_wait<2>();", "in_flight"),
        ("tma", "    async_fence();\n", "", "proxy_fence"),
        ("tma", "    wgmma_wait<1>();\n", "", "accumulator_in_flight"),
        ("tma", "    __syncthreads();  // state and sums are there for everyone", "    //", "race"),
        ("tma", "    wgmma_wait<0>();\n  }\n  if (segments", "  }\n  if (segments", "accumulator_in_flight"),
        ("specialised", "    async_fence();\n    states.commit", "    states.commit", "proxy_fence"),
        ("specialised", "    states.acquire(to);\n", "", "race"),
        ("specialised", "  tma_store_wait_read<Y_SLOTS - 1>();\n", "", "in_flight"),
        ("paired", "    if constexpr (CLUSTER > 1) cluster_started();\n", "", "mbarrier_misuse"),
        ("paired", "    barriers.drain(to);\n", "", "exited_with_work"),
        ("chunked", "other <= row) {", "other < row) {", "mismatch"),
        ("chunked", "shared.state[n][column] * exp2f(last)", "shared.state[n][column]", "mismatch"),
        ("chunked", "exp2f(last - shared.sums[row])", "exp2f(-shared.sums[row])", "mismatch"),
        ("chunked", "shared.sums[row] - shared.sums[other]", "shared.sums[row]", "mismatch"),
    ],
)
def test_a_fault_of_a_kernel_is_named(name, right, broken, verdict):
    stage, how = BY_NAME[name], {"problem": SsdProblem(heads=2, length=400, headdim=64, dstate=64)}
    if name == "chunked":
        how = {"examples": 10}
    elif name != "tensor_core":
        stage = stage.with_parameters({"BLOCKS": 1})
    assert broken_verdict(stage, right, broken, **how) == verdict


@pytest.mark.parametrize("of", [{"RESIDENT": 1, "BLOCKS": 1}, {"BLOCKS": 400, "MOST_CHUNKS": 2}], ids=str)
def test_outputs_in_turns_and_few_buffers_give_the_same(of):
    case = Case.of(SsdProblem(heads=2, length=460, headdim=72, dstate=64, group=2, decays=Decays.NEAR_ONE))
    failure, _ = case.judge(harness.solve(SPECIALISED.with_parameters(of), open_device("emulator"), case).__getitem__)
    assert failure is None


def test_decays_that_ex2_flushes_are_allowed_for_where_inputs_are_subnormal():
    """Of what a decay below 2^-126 leaves, fp32 would hold a part: the kernels drop it, and so does the model."""
    case = Case.of(SsdProblem(length=65, headdim=64, dstate=64, decays=Decays.RESETS, seed=2, distribution="subnormal"))
    for stage in (TENSOR_CORE, TMA, SPECIALISED):
        failure, worst = case.judge(harness.solve(stage, open_device("emulator"), case).__getitem__)
        assert failure is None, stage.name
        assert worst > 0.1


@pytest.mark.parametrize(
    ("problem", "architecture", "stage"),
    [
        (SsdProblem(batch=16, heads=16, length=4096, headdim=64, dstate=64), 90, "paired"),
        (SsdProblem(heads=3, length=4096, headdim=64, dstate=128), 90, "specialised"),
        (SsdProblem(heads=24, length=4096, headdim=64, dstate=128, group=24), 90, "specialised"),
        (SsdProblem(heads=3, length=4096, headdim=128, dstate=64), 90, "paired"),
        (SsdProblem(heads=4, length=4096, headdim=33, dstate=64), 90, "parallel"),
        (SsdProblem(batch=16, heads=16, length=4096, headdim=64, dstate=64), 80, "tensor_core"),
    ],
    ids=str,
)
def test_ops_choose_warp_specialisation_where_the_device_and_the_arrays_allow_it(problem, architecture, stage):
    assert choose("ssd", problem, architecture).name == stage


def test_negative_controls_are_tried_on_whole_groups_of_heads():
    asked = telling(SsdProblem(heads=6, group=3, length=200))
    assert (asked.heads, asked.length, asked.headdim) == (18, 200, 16)


@pytest.mark.long
def test_a_state_that_a_stage_hands_on_gives_what_one_run_does():
    problem = SsdProblem(heads=2, length=150, headdim=64, dstate=64, group=2)
    whole = Case.of(problem)
    for stage in SSD.stages:
        if stage.name == "naive":
            continue
        state, parts = whole.inputs["h0"], []
        for first, end in ((0, 70), (70, 150)):
            part = {name: np.ascontiguousarray(whole.inputs[name][:, first:end]) for name in ("x", "log_a", "b", "c")}
            found = _solved(stage, dataclasses.replace(problem, length=end - first), **part, h0=state)
            parts.append(found["y"])
            state = found["h"].astype(np.float32)
        assert (np.abs(np.concatenate(parts, axis=1) - whole.expected["y"]) <= whole.bound["y"]).all(), stage.name
        assert (np.abs(state - whole.expected["h"]) <= 2 * whole.bound["h"]).all(), stage.name


AFTER_RESETS = SsdProblem(
    heads=3, length=65, headdim=72, dstate=64, group=3, decays=Decays.RESETS, seed=304, distribution="scaled"
)
"""The state after the first half is ten times as large as what is left of it at the end."""


def test_an_invariant_allows_what_related_inputs_make_a_right_kernel_err_by():
    problem = AFTER_RESETS
    case = Case.of(problem)
    stage = TMA
    after = harness.solve(stage, open_device("emulator"), case)
    (handed,) = (i for i in problem.invariants() if "handed over" in i.name)
    related = dataclasses.replace(case, inputs=handed.related(case.inputs))
    other = related.answers(harness.solve(stage, open_device("emulator"), related))
    assert not handed.holds(case.answers(after), other, case.bound)
    assert broken_invariant(stage, open_device("emulator"), case, after) is None


def test_four_times_the_inputs_may_round_what_underflows_to_a_neighbour():
    size = {"heads": 12, "length": 192, "headdim": 64, "dstate": 64, "group": 12}
    problem = SsdProblem(**size, decays=Decays.RESETS, pad_bc=8, seed=202, distribution="subnormal")
    stage = SPECIALISED
    case = Case.of(problem)
    after = harness.solve(stage, open_device("emulator"), case)
    (linear,) = (i for i in problem.invariants() if "four times" in i.name)
    related = dataclasses.replace(case, inputs=linear.related(case.inputs))
    found = case.answers(after)
    other = related.answers(harness.solve(stage, open_device("emulator"), related))
    assert (np.abs(4 * found["y"] - other["y"]) >= np.finfo(np.float32).smallest_normal).any()
    assert linear.holds(found, other, case.bound)
    assert not linear.holds(found, {**other, "y": other["y"] * (1 + 2.0**-7)}, case.bound)


@pytest.mark.long
def test_what_is_not_finite_reaches_later_places_and_no_other_head():
    problem = SsdProblem(heads=2, length=200, headdim=8, dstate=16)
    x = problem.inputs()["x"].copy()
    x[0, 130, 1, 3] = np.nan
    log_a = problem.inputs()["log_a"].copy()
    log_a[0, 130, 1] = np.nan
    for stage in SSD.stages:
        of_x = _solved(stage, problem, x=x)["y"]
        assert np.isnan(of_x[0, 130:, 1, 3]).all(), stage.name
        assert np.isfinite(np.delete(of_x[0, :, 1], 3, axis=-1)).all(), stage.name
        of_decay = _solved(stage, problem, log_a=log_a)["y"]
        assert np.isnan(of_decay[0, 130:, 1]).all(), stage.name
        for y in (of_x, of_decay):
            assert np.isfinite(y[0, :64]).all(), stage.name
            assert np.isfinite(y[0, :, 0]).all(), stage.name


@pytest.mark.parametrize("initial", [False, True])
def test_ssd_of_arrays_that_lie_side_by_side(place, rng, initial):
    heads, groups, dim, state = 4, 2, 16, 8
    packed = rng.standard_normal((2, 90, heads * dim + 2 * groups * state)).astype(BF16.numpy)
    parts = np.split(packed, [heads * dim, heads * dim + groups * state], axis=2)
    x, b, c = (v.reshape(2, 90, n, -1) for v, n in zip(parts, (heads, groups, groups), strict=True))
    log_a = -rng.random((2, 90, heads), np.float32)
    h0 = rng.standard_normal((2, heads, state, dim), np.float32) * initial
    given = [place.upload(v) for v in (x, log_a, b, c)]
    found = ops.ssd(*given, place.upload(h0)) if initial else ops.ssd(*given)
    problem = SsdProblem(batch=2, heads=heads, length=90, headdim=dim, dstate=state, group=2)
    right = problem.reference({"x": x, "log_a": log_a, "b": b, "c": c, "h0": h0})
    assert np.allclose(place.download(found.y).astype(np.float64), right["y"], 0, 0.3)
    assert np.allclose(place.download(found.h), right["h"], 0, 0.1)


def test_the_numpy_baseline_is_right_and_the_others_say_what_they_take():
    baselines = {b.name: b for b in registry.operations()["ssd"].baselines}
    assert workbench.baseline_error(baselines["NumPy"], PROBLEMS[0]) == ""
    refusals = [baselines["flash-linear-attention"].refuses(problem) for problem in SSD.suite]
    assert [bool(refusal) for refusal in refusals] == [False, True] * 4


def test_the_bound_allows_for_the_rounding_of_every_subnormal_term():
    """On a GPU a stage was blamed for a state of two of the smallest numbers instead of none, after nine places."""
    text = "batch=1,heads=4,length=9,headdim=16,dstate=16,group=4,decays=near_zero,seed=12,distribution=zeros"
    case, where, smallest = Case.of(SsdProblem.parse(text)), (0, 0, 1, 0), 2.0**-149
    assert abs(case.expected["h"][where]) < smallest
    assert 10 * smallest <= case.bound["h"][where] < 20 * smallest


def test_terms_that_cancel_leave_the_error_of_their_sizes():
    """On a GPU a stage was blamed for 1e-14 instead of 0, where constant and alternating numbers cancel."""
    text = "batch=2,heads=2,length=9,headdim=64,dstate=64,decays=resets,seed=11,distribution=constant"
    case, at = Case.of(SsdProblem.parse(text)), (1, 1, 1)
    model = case.problem.model(case.inputs)
    assert not case.expected["y"][at].any() and model["y"][at].any()
    assert (abs(model["y"][at]) <= case.bound["y"][at]).all()
