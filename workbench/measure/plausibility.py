"""Whether the samples of a launch are believed: what cannot be, and what looks like answers that were not computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..model.problem import Problem
from ..model.results import Conditions, DeviceInfo, Timing


@dataclass
class TimingOutcome:
    """What came out of one problem: samples by contestant, and two suspicions.

    `broken` says of baselines why they were not timed. `leftover_us`: how long the device still worked after the launch
    was over as far as its stream could tell. `unseen_us`: a launch on inputs that no launch before had, and outputs
    unwritten; `seen_us`: the next one on the same, which finds an answer to replay. `sampled` are the outputs of one
    sample that was timed, drawn at random, on the host or lent."""

    timings: dict[str, Timing]
    conditions: Conditions
    leftover_us: float
    unseen_us: float
    seen_us: float
    broken: dict[str, str] = field(default_factory=dict)
    sampled: dict[str, Any] = field(default_factory=dict)


def roofline_bounds(problem: Problem, device: DeviceInfo) -> tuple[float, float]:
    """The physical lower limits in microseconds that memory and arithmetic set; 0 where a peak is unknown."""
    cost = problem.cost
    peak_flops = device.peak_flops.get(problem.compute_dtype, 0.0)
    memory = 1e6 * cost.bytes / device.peak_bytes_per_s if device.peak_bytes_per_s else 0.0
    return memory, 1e6 * cost.flops / peak_flops if peak_flops else 0.0


def roofline_bound(problem: Problem, device: DeviceInfo) -> tuple[float, str]:
    """The larger of the two limits, and what sets it: `memory` or `compute`."""
    memory, compute = roofline_bounds(problem, device)
    return (memory, "memory") if memory >= compute else (compute, "compute")


LEFTOVER_US, LEFTOVER_SHARE = 20.0, 0.1
"""How long waiting for an idle device may take, and how much of the median more; beyond is work that was not timed."""

UNSEEN_FACTOR, UNSEEN_US = 1.5, 5.0
"""So many times as long, and so much more, as one after it a launch may take on inputs that it has not seen."""


def most_leftover(median_us: float) -> float:
    """Beyond so many microseconds there is work that was not timed."""
    return LEFTOVER_US + LEFTOVER_SHARE * median_us


def most_unseen(seen_us: float) -> float:
    """Beyond so many microseconds, where a launch on the same inputs then takes `seen_us`, answers are kept."""
    return UNSEEN_FACTOR * seen_us + UNSEEN_US


UNSTEADY = 1.25
"""Largest ratio of the median of the last third of the samples to that of the first, either way."""


def implausible(spec: str, outcome: TimingOutcome) -> str | None:
    """Why the samples of a contest are not believed, None where they are."""
    samples = outcome.timings[spec].cold_us
    median = float(np.median(samples))
    if outcome.leftover_us > most_leftover(median):
        return (
            f"the device still worked for {outcome.leftover_us:.0f} us after the launch had ended on its stream: "
            "there is work that was not timed"
        )
    if outcome.unseen_us > most_unseen(outcome.seen_us):
        return (
            f"a launch on inputs that it had not seen takes {outcome.unseen_us:.1f} us, and the next one on the same "
            f"{outcome.seen_us:.1f} us: answers are kept and given again"
        )
    third = len(samples) // 3
    if third >= 3:
        first, last = (float(np.median(part)) for part in (samples[:third], samples[-third:]))
        if max(first, last) > UNSTEADY * min(first, last):
            return (
                f"the first third of the samples has a median of {first:.1f} us and the last {last:.1f} us: not steady"
            )
    return None


FLAT, AT_THE_BOUND = 0.001, 1.05
"""Samples that differ by less, relative to their median, are flat; a median of less than so many times the roofline
bound is at it. A kernel at that speed waits for memory or for power, which no two launches do for equally long."""

FLAT_SAMPLES = 6
"""So many samples at least tell that they are flat."""


def too_fast(timing: Timing, problem: Problem, device: DeviceInfo) -> str | None:
    """Why a time is faster than the device, or too near to that for what it is; None where it is not.

    Sustained launches may find in the L2 what fits there, but have to compute all."""
    memory, compute = roofline_bounds(problem, device)
    limit, _ = roofline_bound(problem, device)
    wrong = "the roofline bound of {:.2f} us: the measurement is wrong"
    if (fastest := min(timing.cold_us)) < limit:
        return f"measured {fastest:.2f} us, below {wrong.format(limit)}"
    beyond_l2 = max(0.0, 1 - device.l2_bytes / max(1, problem.cost.bytes)) if device.l2_bytes else 0.0
    again = max(compute, memory * beyond_l2)
    if timing.sustained_us and (fastest := min(timing.sustained_us)) < again:
        return f"measured {fastest:.2f} us back to back, below {wrong.format(again)}"
    median, spread = float(np.median(timing.cold_us)), float(np.ptp(timing.cold_us))
    flat = len(timing.cold_us) >= FLAT_SAMPLES and spread < FLAT * median
    if limit and flat and median < AT_THE_BOUND * limit:
        return (
            f"{len(timing.cold_us)} samples differ by {spread:.3f} us, at {median:.2f} us and a roofline bound of "
            f"{limit:.2f} us: no kernel that does the work has such uniform times"
        )
    return None
