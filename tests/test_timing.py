"""Timing: interleaved, stopped by its own error, and never below the physical floor. No clock is read here."""

from __future__ import annotations

import numpy as np
import pytest

from workbench import timing
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.vector_add import VectorAddProblem
from workbench.results import Conditions, DeviceInfo
from workbench.timing import Effort, median_error

H200 = DeviceInfo("cuda", "NVIDIA H200", "sm_90", 132, peak_bytes_per_s=4.9e12, peak_flops={"bf16": 1e15, "fp32": 6e13})


class FakeStopwatch:
    """Notes who was timed, and answers with scripted times."""

    order: list[str]

    def __init__(self, l2_bytes):
        pass

    def cold(self, work):
        return work()

    def sustained(self, work, count):
        return work()


@pytest.fixture
def timed(monkeypatch):
    monkeypatch.setattr(timing, "Stopwatch", FakeStopwatch)
    monkeypatch.setattr(timing.nvml, "sample", lambda conditions: None)

    def run(effort, **times):
        order = []

        def contestant(name, draw):
            def work():
                order.append(name)
                return draw()

            return work

        result = timing.measure({n: contestant(n, d) for n, d in times.items()}, 1 << 20, effort, Conditions())
        return result, order

    return run


def test_contestants_are_interleaved_a_b_b_a(timed):
    effort = Effort(warm_up_seconds=0, enough=4)
    _, order = timed(effort, a=lambda: 10.0, b=lambda: 20.0)
    assert order[2:10] == list("abbaabba")  # after one warm-up launch of each


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


def test_the_error_of_the_median_covers_the_truth():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(300):
        samples = rng.normal(100, 5, 40)
        hits += abs(np.median(samples) - 100) <= median_error(samples) * np.median(samples)
    assert hits > 0.9 * 300


def test_the_floor_is_set_by_the_slower_of_memory_and_arithmetic():
    microseconds, by = timing.floor(VectorAddProblem(n=2**20, dtype="fp32"), H200)
    assert by == "memory"
    assert microseconds == pytest.approx(3 * 4 * 2**20 / 4.9e12 * 1e6)
    microseconds, by = timing.floor(GemmProblem(m=4096, n=4096, k=4096, dtype="bf16", out="bf16"), H200)
    assert by == "compute"
    assert microseconds == pytest.approx(2 * 4096**3 / 1e15 * 1e6)
