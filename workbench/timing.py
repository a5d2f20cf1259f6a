"""How a launch is timed: interleaved with the vendor's library, L2 flushed, clocks watched, verified again after."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import nvml, registry
from .baselines import baselines_for
from .compiler import CompileError, compile_source
from .devices import Fault
from .devices.cuda import CudaDevice
from .harness import Case
from .operation import Problem, Stage
from .results import Conditions, DeviceInfo, Measurement, Timing

Enqueue = Callable[[], None]


@dataclass(frozen=True)
class Effort:
    """When to stop, in samples of a contestant.

    With `enough` of them at the relative error of the median; after `seconds` with the `least`; or with the `most`.
    """

    relative_error: float = 0.005
    seconds: float = 0.6
    least: int = 6
    enough: int = 20
    most: int = 60
    warm_up_seconds: float = 0.15
    sustained_seconds: float = 0.3


def median_error(samples: Sequence[float]) -> float:
    """Half width of the 95 % confidence interval of the median, relative to it.

    From the interquartile range, as the notches of a box plot: 1.57 IQR / sqrt(n) (McGill, Tukey, Larsen 1978).
    """
    low, middle, high = np.percentile(samples, [25, 50, 75])
    return float(1.57 * (high - low) / np.sqrt(len(samples)) / middle)


class Stopwatch:
    """Times enqueued work with CUDA events on the current stream, the L2 flushed before each cold sample."""

    def __init__(self, l2_bytes: int) -> None:
        import cupy

        self._cupy = cupy
        self._flush = cupy.empty(max(2 * l2_bytes, 1 << 20), cupy.uint8)
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()

    def cold(self, work: Enqueue) -> float:
        """Microseconds of one launch that finds none of its data in the L2."""
        self._flush.fill(1)
        return self._time(work, 1)

    def sustained(self, work: Enqueue, count: int) -> float:
        """Microseconds a launch, over `count` launches back to back."""
        return self._time(work, count) / count

    def _time(self, work: Enqueue, count: int) -> float:
        self._start.record()
        for _ in range(count):
            work()
        self._stop.record()
        self._stop.synchronize()
        return 1e3 * float(self._cupy.cuda.get_elapsed_time(self._start, self._stop))


def measure(
    contestants: dict[str, Enqueue], l2_bytes: int, effort: Effort, conditions: Conditions
) -> dict[str, Timing]:
    """Time the contestants against each other: each round runs them in order and then in reverse (A B B A)."""
    watch = Stopwatch(l2_bytes)
    timings = {name: Timing(name, []) for name in contestants}
    _warm_up(list(contestants.values()), watch, effort.warm_up_seconds)
    until = time.monotonic() + effort.seconds * len(contestants)
    order = list(contestants)
    while True:
        nvml.sample(conditions)
        for name in (*order, *reversed(order)):
            timings[name].cold_us.append(watch.cold(contestants[name]))
        counts = len(timings[order[0]].cold_us)
        settled = all(median_error(t.cold_us) <= effort.relative_error for t in timings.values())
        late = time.monotonic() > until
        if counts >= (effort.least if late else effort.enough if settled else effort.most):
            break
    for name, work in contestants.items():
        once = float(np.median(timings[name].cold_us)) * 1e-6
        count = int(np.clip(effort.sustained_seconds / 5 / once, 1, 2000))
        repeats = int(np.clip(effort.sustained_seconds / (count * once), 1, 5))
        timings[name].sustained_us = [watch.sustained(work, count) for _ in range(repeats)]
        nvml.sample(conditions)
    return timings


def _warm_up(work: list[Enqueue], watch: Stopwatch, seconds: float) -> None:
    """Run everything once, then keep the device busy until `seconds` have passed, so that its clock has risen."""
    until = time.monotonic() + seconds
    while True:
        for enqueue in work:
            watch.cold(enqueue)
        if time.monotonic() > until:
            return


def floor(problem: Problem, device: DeviceInfo) -> tuple[float, str]:
    """The physical lower limit in microseconds, and what sets it: `memory` or `compute`; 0 where peaks are unknown."""
    cost = problem.cost
    peak_flops = device.peak_flops.get(getattr(problem, "dtype", ""), 0.0)
    memory = 1e6 * cost.bytes / device.peak_bytes_per_s if device.peak_bytes_per_s else 0.0
    compute = 1e6 * cost.flops / peak_flops if peak_flops else 0.0
    return (memory, "memory") if memory >= compute else (compute, "compute")


class _Cases:
    """Remembers the last problem with its reference: all stages of a ladder are timed on the same ones."""

    def __init__(self) -> None:
        self._cases: dict[Problem, Case] = {}

    def __call__(self, problem: Problem) -> Case:
        if problem not in self._cases:
            if len(self._cases) >= 16:
                self._cases.pop(next(iter(self._cases)))
            self._cases[problem] = Case.of(problem)
        return self._cases[problem]


_case = _Cases()


def bench(
    stage: Stage[Any],
    device: CudaDevice,
    *,
    problems: Sequence[Problem] | None = None,
    on_problem: Callable[[str], None] | None = None,
    effort: Effort | None = None,
) -> tuple[list[Measurement], dict[str, str]]:
    """Time a stage on `problems` (default: the operation's suite), interleaved with the baselines.

    Returns the measurements, and for each problem that was not timed its label and the reason. The output is compared
    with the reference again after timing: what is wrong has no time. `on_problem` is called with each label.
    """
    info = device.info()
    measurements: list[Measurement] = []
    untimed: dict[str, str] = {}
    for problem in registry.operations()[stage.operation].suite if problems is None else problems:
        if on_problem:
            on_problem(problem.label)
        if reason := stage.supports(problem, device.architecture):
            untimed[problem.label] = reason
            continue
        try:
            outcome = _bench_problem(stage, device, info, problem, effort or Effort())
        except (Fault, CompileError) as error:
            outcome = str(error)
        if isinstance(outcome, str):
            untimed[problem.label] = outcome
        else:
            measurements.append(outcome)
        if device.lost:
            break
    return measurements, untimed


def _read(buffers: dict[str, Any], case: Case, name: str) -> np.ndarray[Any, Any]:
    """The storage of an array, from its bytes in device memory."""
    host: np.ndarray[Any, Any] = buffers[name].get()
    return host.view(case.arrays[name].dtype.numpy)


def _bench_problem(
    stage: Stage[Any], device: CudaDevice, info: DeviceInfo, problem: Problem, effort: Effort
) -> Measurement | str:
    """One measurement, or why there is none."""
    case = _case(problem)
    compiled = compile_source(stage.path, stage.defines(problem))
    plan = device.bind(compiled, stage.plan(problem), case.arrays, case.storage(), problem.seed)
    contestants: dict[str, Enqueue] = {stage.spec: plan.enqueue}
    baselines = {b.name: b for b in baselines_for(stage.operation)}
    try:
        for baseline in baselines.values():
            # outputs of its own, so that no contestant can pass with another's answer
            outputs = {n: device.empty_like(plan.buffers[n]) for n, a in case.arrays.items() if a.output}
            enqueue = baseline.prepare(problem, case.arrays, {**plan.buffers, **outputs})
            if enqueue is None:
                continue
            enqueue()
            device.synchronize()
            if baseline.solves:
                failure, _ = case.judge(functools.partial(_read, outputs, case))
                if failure:
                    return f"{baseline.name} gives a wrong answer: {failure.message}"
            contestants[baseline.name] = enqueue
        conditions = Conditions()
        timings = measure(contestants, info.l2_bytes, effort, conditions)
        for name, baseline in baselines.items():
            if name in timings:
                timings[name].version, timings[name].solves = baseline.version() or "", baseline.solves
        device.synchronize()
        failure, _ = case.judge(plan.read)
        if failure:
            return f"wrong after timing: {failure.message}"
    finally:
        plan.close()
    limit, by = floor(problem, info)
    fastest = min(timings[stage.spec].cold_us)
    if fastest < limit:
        return f"measured {fastest:.2f} us, below the physical floor of {limit:.2f} us: the measurement is wrong"
    return Measurement(
        problem=str(problem),
        label=problem.label,
        flops=problem.cost.flops,
        bytes=problem.cost.bytes,
        floor_us=limit,
        floor_by=by,
        timing=timings.pop(stage.spec),
        baselines=list(timings.values()),
        conditions=conditions,
    )
