"""Timing: interleaved, stopped by its own error, and never below the roofline bound. No clock is read here."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from workbench.kernels.gemm import GemmProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.measure import judged, plausibility, timing
from workbench.measure.timing import Effort, median_error
from workbench.model.results import Conditions, DeviceInfo, Measurement, Timing
from workbench.report import derived

H200 = DeviceInfo("cuda", "NVIDIA H200", "sm_90", 132, peak_bytes_per_s=4.9e12, peak_flops={"bf16": 1e15, "fp32": 6e13})


class FakeStopwatch:
    """Answers with scripted times. A graph of so many launches takes half of their time."""

    def __init__(self, l2_bytes):
        pass

    def cold(self, work):
        return work()

    def sustained(self, work, count):
        return work()

    def graph(self, work, count):
        return lambda: count * work() / 2

    def overhead(self):
        return 2.0


@pytest.fixture
def timed(monkeypatch):
    monkeypatch.setattr(timing, "Stopwatch", FakeStopwatch)
    monkeypatch.setattr(timing, "_device", timing._Device())
    monkeypatch.setattr(timing.nvml, "sample", lambda conditions: None)
    monkeypatch.setattr(timing.nvml, "sm_clock", lambda: None)

    def run(effort, conditions=None, **times):
        order = []

        def contestant(name, draw):
            def work():
                order.append(name)
                return draw()

            return work

        contestants = {n: contestant(n, d) for n, d in times.items()}
        result = timing.measure(contestants, 1 << 20, effort, conditions or Conditions())
        return result, order

    return run


def test_contestants_are_interleaved_a_b_b_a(timed):
    effort = Effort(warm_up_seconds=0, enough=4)
    _, order = timed(effort, a=lambda: 10.0, b=lambda: 20.0)
    assert order[2:10] == list("abbaabba")  # after one warm-up launch of each


def test_sustained_samples_too_are_interleaved_once_the_device_has_been_busy(timed, monkeypatch):
    """A second passes each time somebody looks at the clock: three rounds keep the device busy."""
    seconds = iter(range(1000))
    monkeypatch.setattr(timing.time, "monotonic", lambda: float(next(seconds)))
    effort = Effort(warm_up_seconds=0, seconds=1e4, enough=4, heat_seconds=4)
    result, order = timed(effort, a=lambda: 1e6, b=lambda: 2e6)
    assert order[-18:] == list("ababab" + "abba" * 3)
    assert (result["a"].sustained_us, result["b"].sustained_us) == ([1e6] * 6, [2e6] * 6)


@pytest.mark.parametrize(("spread", "samples"), [(0.01, 6), (0.3, 60)])
def test_sustained_samples_that_differ_are_taken_up_to_ten_times_as_long(timed, spread, samples):
    rng = np.random.default_rng(0)
    effort = Effort(warm_up_seconds=0, enough=4, most=4, heat_seconds=0, sustained_seconds=60)
    result, _ = timed(effort, a=lambda: 1e6, b=lambda: 1e6 * rng.uniform(1 - spread, 1 + spread))
    assert [len(result[name].sustained_us) for name in "ab"] == [samples] * 2


def test_long_sustained_samples_that_differ_are_not_repeated_without_end(timed, monkeypatch):
    seconds = iter(range(1000))  # one passes each time somebody looks at the clock
    monkeypatch.setattr(timing.time, "monotonic", lambda: float(next(seconds)))
    rng = np.random.default_rng(0)
    effort = Effort(warm_up_seconds=0, enough=4, most=4, heat_seconds=0, sustained_seconds=0.3)
    result, _ = timed(effort, a=lambda: 1e6 * rng.uniform(0.5, 1.5))
    assert len(result["a"].sustained_us) == 2 * (timing.ROUNDS + 3)


def test_sampling_stops_when_the_median_is_known(timed):
    result, _ = timed(Effort(warm_up_seconds=0, seconds=60), a=lambda: 10.0)
    assert len(result["a"].cold_us) == 20


def test_a_slow_launch_is_timed_a_few_times_whatever_the_time(timed):
    result, _ = timed(Effort(warm_up_seconds=0, seconds=-1), a=lambda: 10.0)
    assert len(result["a"].cold_us) == 6


def test_noisy_samples_are_taken_up_to_the_cap(timed):
    rng = np.random.default_rng(0)
    result, _ = timed(Effort(warm_up_seconds=0, seconds=60, most=40), a=lambda: rng.uniform(5, 15))
    assert len(result["a"].cold_us) == 40


def test_launches_too_short_for_the_host_are_repeated_in_a_graph(timed):
    result, _ = timed(Effort(warm_up_seconds=0), short=lambda: 8.0, long=lambda: 50.0)
    assert result["short"].replayed
    assert set(result["short"].sustained_us) == {4.0}
    assert not result["long"].replayed
    assert set(result["long"].sustained_us) == {50.0}


def test_what_a_graph_cannot_hold_is_launched_one_by_one(timed, monkeypatch):
    monkeypatch.setattr(FakeStopwatch, "graph", lambda watch, work, count: None)
    result, _ = timed(Effort(warm_up_seconds=0), short=lambda: 8.0)
    assert not result["short"].replayed
    assert set(result["short"].sustained_us) == {8.0}


@pytest.mark.parametrize(
    ("clocks", "launches", "steady"),
    [((300, 900, 1500, 1980, 1970, 1980), 6, True), ((1980, 1500) * 20, 20, False)],
)
def test_the_device_is_warmed_up_until_its_clock_is_steady(timed, monkeypatch, clocks, launches, steady):
    """A second passes with every launch, so that each of them is one of the rounds between readings of the clock."""
    readings, seconds = iter(clocks), iter(range(1000))
    monkeypatch.setattr(timing.nvml, "sm_clock", lambda: next(readings))
    monkeypatch.setattr(timing.time, "monotonic", lambda: float(next(seconds)))
    conditions = Conditions()
    effort = Effort(warm_up_seconds=1, most_warm_up_seconds=100 if steady else 79, seconds=1e4)
    watch = timing.Stopwatch(0)
    count = []
    timing._warm_up([lambda: count.append(1) or 10.0], watch, effort, conditions)
    assert conditions.clock_steady is steady
    assert len(count) >= launches
    assert next(readings, None) is None or not steady


@pytest.mark.parametrize(("pause", "launches"), [(0.0, [9, 3]), (timing.STAYS_WARM, [9, 9])])
def test_a_device_that_worked_until_a_moment_ago_is_warmed_up_for_a_third_of_the_time(
    timed, monkeypatch, pause, launches
):
    """A tenth of a second passes with every warm-up launch, and `pause` seconds between the two measurements."""
    now = 0.0

    def work():
        nonlocal now
        now += 0.1
        return 10.0

    monkeypatch.setattr(timing.time, "monotonic", lambda: now)
    effort = Effort(warm_up_seconds=0.89, seconds=60, enough=4, most=4, sustained_seconds=0)
    for expected in launches:
        _, order = timed(effort, a=work)
        assert len(order) == expected + 4
        now += pause


def test_conditions_tell_what_a_launch_costs(timed):
    conditions = Conditions()
    timed(Effort(warm_up_seconds=0), conditions, a=lambda: 10.0)
    assert conditions.launch_overhead_us == 2.0


def test_the_same_answer_of_a_library_is_judged_once(monkeypatch):
    problem = VectorAddProblem(n=1000, dtype="fp32", seed=123)
    case, asked, judge = judged.solved(problem), [], judged.Case.judge
    monkeypatch.setattr(judged.Case, "judge", lambda case, read: asked.append(1) or judge(case, read))
    right = case.expected["c"].astype(np.float32)
    wrong = right.copy()
    wrong[7] += 1
    found = [judged.HostJudge(case).wrong({"c": answer.copy()}) for answer in (right, right, wrong, wrong, right)]
    said = [failure and failure.message for failure in found]
    assert said == [None, None, *["1 of 1000 elements of c are wrong"] * 2, None]
    assert len(asked) == 2


def test_what_is_within_the_limit_is_asked_once_and_the_rest_three_times():
    for answers, limit, least, left in (
        ([5.0, 1.0], 5.0, 5.0, 1),
        ([9.0, 5.0, 1.0], 5.0, 5.0, 1),
        ([9.0] * 4, 5.0, 9.0, 1),
    ):
        tries = list(answers)
        assert timing._least(lambda tries=tries: tries.pop(0), limit) == least
        assert len(tries) == left


def test_bad_conditions_are_warnings():
    def measured(**conditions):
        timing = Timing("x", [10.0], sustained_us=[9.0])
        return [Measurement("", "", 0, 100 << 20, 1.0, "memory", timing, conditions=Conditions(**conditions))]

    device = dataclasses.replace(H200, l2_bytes=50 << 20)
    assert derived.warnings(measured(sm_clock_mhz=[1980, 1965]), device) == []
    (text,) = derived.warnings(measured(clock_steady=False), device)
    assert "not settled" in text
    (text,) = derived.warnings(measured(sm_clock_mhz=[1980, 1400]), device)
    assert "fell from 1,980 MHz to as low as 1,400 MHz" in text
    (text,) = derived.warnings(measured(throttle_reasons=["SwPowerCap"]), device)
    assert "SwPowerCap" in text
    (text,) = derived.warnings(measured(), dataclasses.replace(H200, l2_bytes=200 << 20))
    assert "stay in the L2" in text


def test_the_error_of_the_median_covers_the_truth():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(300):
        samples = rng.normal(100, 5, 40)
        hits += abs(np.median(samples) - 100) <= median_error(samples) * np.median(samples)
    assert hits > 0.9 * 300


def test_the_floor_is_set_by_the_slower_of_memory_and_arithmetic():
    microseconds, by = plausibility.roofline_bound(VectorAddProblem(n=2**20, dtype="fp32"), H200)
    assert by == "memory"
    assert microseconds == pytest.approx(3 * 4 * 2**20 / 4.9e12 * 1e6)
    microseconds, by = plausibility.roofline_bound(GemmProblem(m=4096, n=4096, k=4096, dtype="bf16", out="bf16"), H200)
    assert by == "compute"
    assert microseconds == pytest.approx(2 * 4096**3 / 1e15 * 1e6)
