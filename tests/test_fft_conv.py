"""The convolution by Fourier transforms: its definition, what rejects broken kernels, and `workbench.ops.fft_conv`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from planted import broken_verdict

import workbench
from workbench import harness, ops, reference
from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.devices.emulated import EmulatedDevice
from workbench.harness import Case
from workbench.kernels.fft_conv import FFT_CONV, FftConvProblem, Filter
from workbench.kernels.fft_conv.problem import factors, period_of
from workbench.kernels.fft_conv.stages import rounds
from workbench.model.dtypes import BF16

PROBLEMS = [
    FftConvProblem(batch=5, channels=3, length=length, causal=causal, filter=kind)
    for length, causal, kind in (
        (300, False, Filter.NORMAL),
        (256, False, Filter.DECAYING),
        (200, True, Filter.DELAY),
        (16, False, Filter.NORMAL),
    )
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_the_reference_is_the_sum_of_the_definition(length, causal, rng):
    u, k = rng.standard_normal((2, length)), rng.standard_normal(length)
    right = np.zeros((2, length))
    for t in range(length):
        for j in range(length):
            if j <= t or not causal:
                right[:, t] += k[j] * u[:, (t - j) % length]
    assert reference.fft_conv(u, k, causal=causal) == pytest.approx(right, abs=1e-12)


def test_a_period_holds_the_sequence_and_what_reaches_beyond_it():
    assert [period_of(n, causal=False) for n in (1, 255, 256, 257, 1024, 1025, 32768)] == [
        *(256, 512, 256, 1024, 1024, 4096, 32768)
    ]
    assert [period_of(n, causal=True) for n in (1, 128, 129, 1024, 1025, 32768)] == [256, 256, 512, 2048, 4096, 65536]
    for period in (256, 512, 65536):
        first, second = factors(period)
        assert first * second == period
        assert second in (first, 2 * first)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_wrong_answer_is_rejected(problem):
    rejected, accepted = Case.of(problem).negative_controls()
    assert accepted == []
    assert rejected >= 18


@pytest.mark.parametrize("problem", PROBLEMS[1:3], ids=str)
def test_invariants_hold_of_the_reference_and_not_of_others(problem):
    case = Case.of(problem)
    assert len(problem.invariants()) == 2
    for invariant in problem.invariants():
        related = invariant.related(case.inputs)
        first, other = case.expected, problem.reference(related)
        assert invariant.holds(first, other, case.bound), invariant.name
        spoilt = [
            {"y": answer["y"] + 4 * inputs["u"][..., ::-1].astype(np.float64) ** 2 * inputs["u"][..., ::-1]}
            for answer, inputs in ((first, case.inputs), (other, related))
        ]
        assert not invariant.holds(*spoilt, case.bound), invariant.name


def _solved(stage, problem, **inputs):
    """The output of a stage for other inputs, in float64."""
    case = Case.of(problem)
    case = dataclasses.replace(case, inputs=case.inputs | inputs)
    return case.answers(harness.solve(stage, open_device("emulator"), case))["y"]


@pytest.mark.long
def test_stages_in_fp32_are_as_exact_as_their_output():
    problem = FftConvProblem(batch=3, length=200, causal=True)
    right = problem.reference(problem.inputs())["y"]
    size = np.abs(right).max(axis=-1, keepdims=True)
    for stage in FFT_CONV.stages:
        if stage.track == "simt":
            away = np.abs(_solved(stage, problem) - right)
            assert (away <= BF16.unit_roundoff * np.abs(right) + 2e-6 * size).all(), stage.name


@pytest.mark.long
def test_what_is_not_finite_stays_in_its_pair_and_channel():
    problem = FftConvProblem(batch=4, channels=2, length=300)
    u = problem.inputs()["u"].copy()
    u[2, 1, 7] = np.nan
    for stage in FFT_CONV.stages:
        y = _solved(stage, problem, u=u)
        assert np.isnan(y[2, 1]).all(), stage.name
        assert np.isfinite(y[:2]).all(), stage.name
        assert np.isfinite(y[:, 0]).all(), stage.name


def _is_right(stage, case, device=None):
    """Whether a stage solves a case within its bound, and errs at all."""
    failure, worst = case.judge(harness.solve(stage, device or open_device("emulator"), case).__getitem__)
    return failure is None and 0 < worst < 1


STAGES = {stage.name: stage for stage in FFT_CONV.stages}
TENSOR_CORE, FOUR_STEP = STAGES["tensor_core"], STAGES["four_step"]


BROKEN_ON = {
    "paired": FftConvProblem(batch=3, length=512),
    "tensor_core": FftConvProblem(batch=3, length=1024),
    "persistent": FftConvProblem(batch=9, channels=2, length=1024),
    "wgmma": FftConvProblem(batch=9, channels=2, length=1024),
    "four_step": FftConvProblem(batch=3, channels=2, length=300),
}


@pytest.mark.parametrize(
    ("name", "right", "broken", "verdict"),
    [
        ("wgmma", "    cp_async_wait<0>();\n", "", "in_flight"),
        ("wgmma", "    __syncthreads();  // the rows of all warps are there", "", "in_flight"),
        ("wgmma", "    async_fence();\n    __syncthreads();  // the rows", "    __syncthreads();  //", "proxy_fence"),
        ("wgmma", "factors.multiply<true>(sums, turns.edge)", "factors.multiply<false>(sums, false)", "mismatch"),
        ("wgmma", "length <= PERIOD / 2", "length <= PERIOD", "mismatch"),
        ("persistent", "tiles * (blockIdx.x + 1) / gridDim.x", "tiles * blockIdx.x / gridDim.x + 1", "mismatch"),
        ("paired", "    __syncthreads();\n#pragma unroll", "#pragma unroll", "race"),
        ("paired", "roots[k * (PERIOD / (DONE * RADIX))]", "roots[k * (PERIOD / RADIX / DONE / 2)]", "mismatch"),
        ("paired", "return {x.y, -x.x};", "return {-x.y, x.x};", "mismatch"),
        ("tensor_core", "  __syncthreads();  // the rows of all warps are there", "", "race"),
        ("tensor_core", "    cp_async_wait<0>();", "", "in_flight"),
        ("tensor_core", "back.turn<true>(sums);", "back.turn<false>(sums);", "mismatch"),
        ("tensor_core", "length + SECOND - 1", "length", "mismatch"),
        (
            "four_step",
            "  __syncthreads();  // everyone is done with the numbers of the first exchange\n",
            "",
            "race",
        ),
        ("four_step", "channel = (begin + blockIdx.y) /", "channel = blockIdx.y /", "mismatch"),
        ("four_step", "i > before ? i - before : -1", "-1", "mismatch"),
        ("four_step", "v[q] = {product.y, product.x};", "v[q] = product;", "mismatch"),
    ],
)
def test_a_fault_of_a_kernel_is_named(name, right, broken, verdict):
    problem = BROKEN_ON[name]
    if broken == "length":
        problem = dataclasses.replace(problem, length=1040, causal=True)
    elif "begin" in right:  # of several launches
        problem = dataclasses.replace(problem, length=16384, channels=9)
    stage = FOUR_STEP.with_parameters({"MIB": 1}) if name == "four_step" else STAGES[name]
    assert broken_verdict(stage, right, broken, problem=problem) == verdict


@pytest.mark.parametrize("name", ["persistent", "wgmma"])
def test_few_blocks_share_the_pairs_of_all_channels(name):
    case = Case.of(FftConvProblem(batch=11, channels=3, length=900, causal=True))
    for blocks in (1, 4):
        assert _is_right(STAGES[name], case, EmulatedDevice(persistent_blocks=blocks))


def test_a_block_of_the_tensor_core_stage_takes_as_many_rounds_as_leave_enough_blocks():
    size = TENSOR_CORE.parameters
    assert rounds(FftConvProblem(batch=16, channels=1024, length=1024), size) == 4  # two pairs each, all of a channel
    assert rounds(FftConvProblem(batch=16, channels=1024, length=4096), size) == 8
    assert rounds(FftConvProblem(batch=16, channels=160, length=4096), size) == 2
    assert rounds(FftConvProblem(batch=2, channels=1, length=4096), size) == 1
    case = Case.of(FftConvProblem(batch=13, channels=2, length=2048))
    stage = TENSOR_CORE.with_parameters({"BLOCKS": 1})
    assert rounds(case.problem, stage.parameters) == 4
    assert _is_right(stage, case)


@pytest.mark.parametrize("lines", [4, 16])
def test_a_block_of_the_four_steps_may_have_fewer_lines_or_more(lines):
    case = Case.of(FftConvProblem(batch=3, channels=2, length=1500, causal=True))
    stage = FOUR_STEP.with_parameters({"LINES": lines})
    assert _is_right(stage, case)


def test_pairs_that_are_transformed_together_fit_into_the_l2():
    for problem in (FftConvProblem(batch=24, channels=120, length=16330, causal=True), FftConvProblem(length=300)):
        plan = FOUR_STEP.plan(problem)
        assert len(plan.launches) % 3 == 0
        assert sum(launch.grid[1] for launch in plan.launches) == 3 * problem.pairs
        assert plan.scratch["between"].nbytes <= 32 * 2**20
    counts = {launch.grid[1] for launch in FOUR_STEP.plan(FftConvProblem(channels=65, length=20000)).launches}
    assert counts == {32, 33}  # and not 64 and 1


def test_few_long_sequences_and_the_longest_are_transformed_in_four_steps():
    def chosen(**sizes):
        problem = FftConvProblem(**sizes)
        return next(name for name in FFT_CONV.fastest(problem) if STAGES[name].supports(problem) is None)

    assert (
        chosen(length=21496) == chosen(channels=100, length=16384) == chosen(channels=200, length=8192) == "four_step"
    )
    assert chosen(batch=16, channels=1024, length=32768) == "four_step"
    assert chosen(channels=101, length=16384) == chosen(channels=201, length=8192) == chosen(length=4096) == "wgmma"


@pytest.mark.long
def test_pairs_that_do_not_fit_into_the_l2_are_transformed_in_several_launches():
    stage, problem = FOUR_STEP.with_parameters({"MIB": 1}), FftConvProblem(channels=5, length=8193)
    assert len(stage.plan_for(problem, stage.parameters).launches) == 6
    assert workbench.verify(stage, device="emulator", problem=problem).run.stages[0].verification.verdict == "pass"


@pytest.mark.parametrize("causal", [False, True])
def test_fft_conv_of_arrays_and_of_a_prepared_filter(place, rng, causal):
    u, k = rng.standard_normal((3, 2, 300)).astype(BF16.numpy), rng.standard_normal((2, 300), np.float32)
    right = reference.fft_conv(u, k, causal=causal)
    given = place.upload(u)
    prepared = ops.fft_conv_filter(place.upload(k), causal=causal)
    for found in (ops.fft_conv(given, place.upload(k), causal=causal), ops.fft_conv(given, *prepared, causal=causal)):
        assert np.allclose(place.download(found).astype(np.float64), right, 0, 1.0)
        assert np.abs(right).max() > 30


def test_the_numpy_baseline_is_right():
    baselines = {b.name: b for b in registry.operations()["fft_conv"].baselines}
    assert {workbench.baseline_error(baselines["NumPy"], problem) for problem in PROBLEMS} == {""}


def test_delays_are_as_long_as_the_sequence_or_any() -> None:
    delays = [
        FftConvProblem(length=400, filter=Filter.DELAY, seed=seed).inputs()["k"].argmax(axis=-1)[0]
        for seed in range(40)
    ]
    assert 10 < delays.count(399) < 30
    assert len(set(delays)) > 10
