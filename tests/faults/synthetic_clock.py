"""A GPU whose clock is a number, so that what cheats does so by an exact amount: `timing.bench` without hardware."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from workbench.catalogue import registry
from workbench.devices.base import OnMachine
from workbench.kernels.vector_add import VectorAddProblem
from workbench.measure import timing
from workbench.model.arrays import Array
from workbench.model.launch import H200, Plan
from workbench.model.results import Conditions, DeviceInfo, Measurement

sys.path.append(str(Path(__file__).parents[1]))  # scripts of this folder are started without it
from fakes import HostPlan

COLD_US, WARM_US = 100.0, 40.0
"""What a launch takes that finds the L2 flushed, and any other, at the full clock."""

FULL_MHZ, IDLE_MHZ, CAPPED_MHZ = 1980, 300, 1400
"""The clock of a busy device, of one that was idle, and of one whose power is capped."""


class Clock:
    """The time in microseconds, the device's clock in MHz, whether the data are in the L2, and what is still to be done
    when a launch is over."""

    def __init__(self) -> None:
        self.now = 0.0
        self.mhz = FULL_MHZ
        self.in_cache = False
        self.pending = 0.0


class ClockWatch:
    """A stopwatch that reads that clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def cold(self, work: Callable[[], None]) -> float:
        self.clock.in_cache = False
        return self.sustained(work, 1)

    def sustained(self, work: Callable[[], None], count: int) -> float:
        started = self.clock.now
        for _ in range(count):
            work()
        return (self.clock.now - started) / count

    def graph(self, work: Callable[[], None], count: int) -> None:
        """This device has none."""

    def overhead(self) -> float:
        return 2.0

    def leftover(self, work: Callable[[], None]) -> float:
        work()
        left, self.clock.pending = self.clock.pending, 0.0
        return left


class ClockGpu(OnMachine):
    """Adds vectors in NumPy and lets its clock run. `cheat` says how it deceives."""

    name, machine, times = "cuda", H200, True

    def __init__(self, clock: Clock, cheat: str = "") -> None:
        self.clock, self.cheat = clock, cheat

    def info(self) -> DeviceInfo:
        return DeviceInfo("cuda", "a synthetic clock", "sm_90", 132, peak_bytes_per_s=4.8e12)

    def bind(self, compiled: Any, plan: Plan, arrays: Any, storage: Any, seed: int = 0) -> ClockPlan:
        return ClockPlan(self, arrays, {name: values.copy() for name, values in storage.items()})


class ClockPlan(HostPlan):
    def __init__(self, gpu: ClockGpu, arrays: Mapping[str, Array], memory: dict[str, Any]) -> None:
        super().__init__(arrays, memory)
        self.gpu, self.calls = gpu, 0
        self.kept: dict[bytes, Any] = {}

    def enqueue(self) -> None:
        clock, cheat = self.gpu.clock, self.gpu.cheat
        self.calls += 1
        cost = (WARM_US if clock.in_cache else COLD_US) * FULL_MHZ / clock.mhz
        if cheat == "idle":  # its clock rises with every launch
            clock.mhz = min(FULL_MHZ, clock.mhz + 120)
        clock.in_cache = True
        if cheat == "throttled" and self.calls > 25:
            cost *= 2
        key = self.buffers["a"].tobytes()
        if cheat == "once" and self.calls > 1:
            cost = 1.0
        elif cheat == "content" and key in self.kept:
            cost, self.buffers["c"] = 1.0, self.kept[key].copy()
        else:
            total = self.buffers["a"].astype(np.float64) + self.buffers["b"].astype(np.float64)
            self.buffers["c"] = self.kept[key] = total.astype(self.buffers["c"].dtype)
        if cheat == "drift" and self.calls > 30:
            self.buffers["c"] = self.buffers["c"] + 1
        if cheat == "stream":
            clock.pending, cost = cost - 2.0, 2.0
        clock.now += cost if cheat != "impossible" else 0.1

    def run(self) -> None:
        self.enqueue()

    def wait(self) -> None:
        self.gpu.clock.pending = 0.0


@contextlib.contextmanager
def synthetic(clock: Clock) -> Iterator[None]:
    """Lets `timing` read this clock, and time nothing but the stage."""
    with (
        patch.object(timing, "Stopwatch", lambda l2_bytes: ClockWatch(clock)),
        patch.object(timing, "baselines_for", lambda operation: []),
    ):
        yield


def timed_by_clock(cheat: str = "", most_warm_up_seconds: float = 1.0) -> Measurement | str:
    """What `timing.bench` says of vector_add:naive on 100,000 elements, on a device with that cheat.

    NVML tells the clock of one that was idle (`idle`), or whose power is capped after the first sample (`capped`).
    """
    (stage,) = registry.select(["vector_add:naive"])
    clock = Clock()
    effort = timing.Effort(
        seconds=60.0,
        enough=40,
        warm_up_seconds=0.0,
        most_warm_up_seconds=most_warm_up_seconds,
        sustained_seconds=1e-3,
    )

    def sample(conditions: Conditions) -> None:
        conditions.sm_clock_mhz.append(CAPPED_MHZ if conditions.sm_clock_mhz else FULL_MHZ)
        conditions.throttle_reasons[:] = ["SwPowerCap"]

    told = contextlib.ExitStack()
    if cheat == "idle":
        clock.mhz = IDLE_MHZ
        told.enter_context(patch.object(timing.nvml, "sm_clock", lambda: clock.mhz))
    if cheat == "capped":
        told.enter_context(patch.object(timing.nvml, "sample", sample))
    with synthetic(clock), told:
        return timing.bench(stage, ClockGpu(clock, cheat), VectorAddProblem(n=100_000, dtype="fp32"), effort)  # type: ignore[arg-type]
