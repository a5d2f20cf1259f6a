"""How a launch is timed: interleaved with the vendor's library, L2 flushed, clocks watched, verified again after."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from ..devices import Device, Fault, IsolatedDevice, lending
from ..devices.cuda import CudaPlan, forget, let_nothing_persist
from ..harness import tampering
from ..model.errors import BadOperation
from ..model.launch import ceil_div
from ..model.problem import Problem
from ..model.results import Conditions, DeviceInfo, Measurement, Timing, Verdict
from ..model.stage import Stage
from ..sandbox import integrity
from ..toolchain import nvml
from ..toolchain.compiler import CompileError
from . import plausibility
from .baselines import Baseline, Prepared, baselines_for, current_stream, first_line, peers_of
from .judged import HostJudge, Judge, Outputs, RefereeJudge, solved
from .plausibility import TimingOutcome, implausible, most_leftover, most_unseen, too_fast
from .referee import Unprepared, of_gpu
from .sample_reset import SampleReset, turn

Enqueue = Callable[[], None]


@dataclass(frozen=True)
class Effort:
    """When to stop, in samples of a contestant.

    With `enough` of them at the relative error of the median; after `seconds` with the `least`; or with the `most`.
    Before the first sample the device is kept busy for `warm_up_seconds`, or a third of them where it worked until a
    moment ago, and on until its clock is steady, but no longer than `most_warm_up_seconds`. Sustained samples take
    `sustained_seconds` of each contestant, longer where they differ, after all of them have kept the device busy for
    `heat_seconds`; none are taken where that is 0."""

    relative_error: float = 0.005
    seconds: float = 0.15
    least: int = 6
    enough: int = 20
    most: int = 60
    warm_up_seconds: float = 0.12
    most_warm_up_seconds: float = 1.0
    heat_seconds: float = 0.12
    sustained_seconds: float = 0.06


def median_error(samples: Sequence[float]) -> float:
    """Half width of the 95 % confidence interval of the median, relative to it.

    From the interquartile range, as the notches of a box plot: 1.57 IQR / sqrt(n) (McGill, Tukey, Larsen 1978)."""
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
        """Microseconds of one launch that finds none of its data in the L2. Raises Fault."""
        let_nothing_persist()
        self._flush.fill(1)
        return self._time(work, 1)

    def sustained(self, work: Enqueue, count: int) -> float:
        """Microseconds a launch, over `count` launches back to back."""
        return self._time(work, count) / count

    def graph(self, work: Enqueue, count: int) -> Enqueue | None:
        """`count` launches as one CUDA graph, which the host enqueues at once; None where that cannot be."""
        stream = self._cupy.cuda.Stream(non_blocking=True)
        try:
            with current_stream(stream):
                work()  # what a library allocates at its first use of a stream cannot be captured
                stream.synchronize()
                stream.begin_capture()
                try:
                    for _ in range(count):
                        work()
                finally:
                    captured = stream.end_capture()
                captured.upload(stream)
                stream.synchronize()
        except Exception:  # of many kinds: whatever the work does that a graph cannot hold
            return None
        return lambda: captured.launch()

    def overhead(self) -> float:
        """Microseconds that a cold sample takes of a kernel which does nothing."""
        nothing = _nothing()
        return float(np.median([self.cold(lambda: nothing((1,), (1,), ())) for _ in range(9)]))

    def leftover(self, work: Enqueue) -> float:
        """Microseconds for which the device is still busy when a launch is over on the current stream."""
        self._cupy.cuda.runtime.deviceSynchronize()
        self._time(work, 1)
        started = time.perf_counter()
        self._cupy.cuda.runtime.deviceSynchronize()
        return 1e6 * (time.perf_counter() - started)

    def _time(self, work: Enqueue, count: int) -> float:
        self._start.record()
        for _ in range(count):
            work()
        self._stop.record()
        self._stop.synchronize()
        return 1e3 * float(self._cupy.cuda.get_elapsed_time(self._start, self._stop))


@cache
def _nothing() -> Any:
    """A kernel which does nothing, made once."""
    import cupy

    return cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")


def measure(
    contestants: dict[str, Enqueue],
    l2_bytes: int,
    effort: Effort,
    conditions: Conditions,
    before: Callable[[str], None] = lambda name: None,
) -> dict[str, Timing]:
    """Time the contestants against each other: each round runs them in order and then in reverse (A B B A).

    `before` is called, outside of what is timed, with the name of whose cold sample comes next, and with none after
    the last one."""
    watch = Stopwatch(l2_bytes)
    timings = {name: Timing(name, []) for name in contestants}
    _warm_up(list(contestants.values()), watch, effort, conditions)
    until = time.monotonic() + effort.seconds * len(contestants)
    order = list(contestants)
    while True:
        nvml.sample(conditions)
        for name in (*order, *reversed(order)):
            before(name)
            timings[name].cold_us.append(watch.cold(contestants[name]))
        counts = len(timings[order[0]].cold_us)
        settled = all(median_error(t.cold_us) <= effort.relative_error for t in timings.values())
        late = time.monotonic() > until
        if counts >= (effort.least if late else effort.enough if settled else effort.most):
            break
    before("")
    if effort.sustained_seconds:
        _sustained(contestants, timings, watch, effort, conditions)
    conditions.launch_overhead_us = watch.overhead()
    _device.worked = time.monotonic()
    return timings


SHORT_US = 20.0
"""Launches of less are over before the host has enqueued the next: a graph enqueues many of them at once."""

ROUNDS, LONGER = 3, 10
"""Rounds of sustained samples (A B B A), so that there are six of each contestant; where those differ more rounds
follow, in up to so many times the time."""

SUSTAINED_ERROR = 0.015
"""Relative error of the median, as `median_error` has it, at which sustained samples are enough."""

MOST_LAUNCHES, MOST_IN_GRAPH = 2000, 500
"""In a sustained sample; and in a graph, which takes the host a while to make: a sample launches it several times."""


def _sustained(
    contestants: dict[str, Enqueue],
    timings: dict[str, Timing],
    watch: Stopwatch,
    effort: Effort,
    conditions: Conditions,
) -> None:
    """Add the samples back to back, in rounds as the cold ones.

    What draws much power is fast for a tenth of a second and slower from then on: whoever comes first must not be
    timed on a cooler chip than who comes after."""
    blocks: dict[str, Callable[[], float]] = {}
    for name, work in contestants.items():
        once = float(np.median(timings[name].cold_us))
        count = int(np.clip(1e6 * effort.sustained_seconds / (2 * ROUNDS) / once, 1, MOST_LAUNCHES))
        graph = watch.graph(work, held := min(count, MOST_IN_GRAPH)) if once < SHORT_US else None
        timings[name].replayed = graph is not None
        if graph:
            blocks[name] = partial(_back_to_back, watch, graph, ceil_div(count, held), held)
        else:
            blocks[name] = partial(_back_to_back, watch, work, count)
    until, order = time.monotonic() + effort.heat_seconds, list(contestants)
    while time.monotonic() < until:
        for block in blocks.values():
            block()
    until = time.monotonic() + LONGER * effort.sustained_seconds * len(order)
    for number in range(1, LONGER * ROUNDS + 1):
        nvml.sample(conditions)
        for name in (*order, *reversed(order)):
            timings[name].sustained_us.append(blocks[name]())
        settled = all(median_error(timings[name].sustained_us) <= SUSTAINED_ERROR for name in order)
        if number >= ROUNDS and (settled or time.monotonic() > until):
            break
    nvml.sample(conditions)


def _back_to_back(watch: Stopwatch, work: Enqueue, count: int, launches: int = 1) -> float:
    """Microseconds a launch, where `work` is so many `launches`."""
    return watch.sustained(work, count) / launches


STEADY = 0.01
"""By so much at most the last three readings of a steady clock differ."""

STAYS_WARM = 0.5
"""Seconds for which a device that has worked is as good as busy: its clock takes longer to fall."""


@dataclass
class _Device:
    """What is known of the device of this process: when it was last seen working."""

    worked: float = float("-inf")


_device = _Device()


def _warm_up(work: list[Enqueue], watch: Stopwatch, effort: Effort, conditions: Conditions) -> None:
    """Keep the device busy until its clock has risen and stays where it is; run everything once at least."""
    started, clocks = time.monotonic(), list[int]()
    seconds = effort.warm_up_seconds / (3 if started - _device.worked < STAYS_WARM else 1)
    while True:
        until = time.monotonic() + seconds / 3
        while True:
            for enqueue in work:
                watch.cold(enqueue)
            if time.monotonic() >= until:
                break
        clock, passed = nvml.sm_clock(), time.monotonic() - started
        clocks = [*clocks[-2:], clock] if clock else []
        steady = clock is None or (len(clocks) == 3 and max(clocks) <= (1 + STEADY) * min(clocks))
        steady = steady or not effort.most_warm_up_seconds  # a launch that is long warms the device itself
        if passed >= (seconds if steady else effort.most_warm_up_seconds):
            conditions.clock_steady = steady
            return


def bench(stage: Stage[Any], device: Device, problem: Problem, effort: Effort | None = None) -> Measurement | str:
    """Time a stage on a problem, interleaved with the baselines; a text says why there is no measurement.

    The output is compared with the reference again after timing: what is wrong has no time."""
    watch, stage = integrity.Watch(), stage.on(device.machine)
    try:
        if reason := stage.supports(problem):
            return reason
        info = device.info()
        used = effort or Effort()
        outcome = judged_by(device, problem, lambda judge: _bench_problem(stage, device, info, problem, used, judge))
    except (Fault, CompileError, BadOperation) as error:
        outcome = str(error)
    changed = watch.restore()
    return tampering(stage, changed).message if changed else outcome


@dataclass
class Entrants:
    """Who takes part in a contest on a bound plan: what is timed, by name, and the outputs of the baselines."""

    work: Prepared
    contestants: dict[str, Enqueue]
    theirs: dict[str, dict[str, Any]]
    broken: dict[str, str]


def enter(
    plan: CudaPlan, name: str, operation: str, problem: Problem, peer: bool = False, lend: bool = False
) -> tuple[dict[str, Outputs], dict[str, str]]:
    """Prepare the baselines, in the process that has the device: their answers, and why others were left out.

    With `peer` it is the implementation of that name that is timed, and the plan has nothing but the arrays. Answers
    are lent where `lend` says so, until the contest begins, else copied to the host. Raises Fault."""
    work = _first(peers_of(operation)[name], plan, problem) if peer else Prepared(plan.enqueue)
    made = Entrants(work, {name: work.enqueue}, {}, {})
    answers: dict[str, Outputs] = {}
    arrays = problem.arrays()
    plan.turn(0)
    for baseline in baselines_for(operation):
        if baseline.refuses(problem):
            continue
        # outputs of its own, so that no contestant can pass with another's answer
        outputs = {array: plan.filled_like(array) for array in arrays if arrays[array].output}
        try:
            prepared = baseline.prepare(problem, arrays, {**plan.buffers, **outputs})
            prepared.enqueue()
            prepared.deliver()
        except Exception as error:
            made.broken[baseline.name] = f"it cannot be used: {first_line(error)}"
            continue
        plan.wait()
        if baseline.solves:
            answers[baseline.name] = {array: handed(plan, array, buffer, lend) for array, buffer in outputs.items()}
        made.contestants[baseline.name] = prepared.enqueue
        made.theirs[baseline.name] = outputs
    plan.entrants = made
    return answers, made.broken


def handed(plan: CudaPlan, name: str, buffer: Any, lend: bool) -> Any:
    """What another process gets of device memory that holds the storage of an array."""
    return lending.lend(buffer) if lend else plan.host(name, buffer)


def outputs_of(plan: Any, lend: bool) -> Outputs:
    """The outputs of a bound plan, as other processes get them."""
    declared = (name for name, array in plan.arrays.items() if array.output and not array.zero)
    return {name: handed(plan, name, plan.buffers[name], lend) for name in declared}


def first_run(plan: CudaPlan, l2_bytes: int) -> tuple[float, float]:
    """Microseconds of the first launch, on the inputs of the problem, and for which the device is busy after it."""
    plan.turn(0)
    plan.poison()
    first = Stopwatch(l2_bytes).cold(plan.enqueue)
    started = time.perf_counter()
    plan.wait()
    return first, 1e6 * (time.perf_counter() - started)


def contest(
    plan: CudaPlan,
    name: str,
    operation: str,
    problem: Problem,
    effort: Effort,
    l2_bytes: int,
    peer: bool = False,
    lend: bool = False,
) -> TimingOutcome:
    """Time a bound plan whose baselines have been prepared by `enter`, interleaved with them, in the process that has
    the device.

    The plan's outputs are forgotten afterwards and computed once more, so that what is read then is the answer of a
    launch that came after those that were timed: one that is skipped, or that copies an earlier answer or another's,
    leaves NaN. Raises Fault."""
    entrants: Entrants = plan.entrants
    work, conditions = entrants.work, Conditions()
    turn(plan)
    between = SampleReset(plan, None if peer else name, effort.least)
    timings = measure(entrants.contestants, l2_bytes, effort, conditions, between)
    _name_versions(timings, name, operation, peer)
    watch, median = Stopwatch(l2_bytes), float(np.median(timings[name].cold_us))
    long = not effort.sustained_seconds and median > LONG_US
    # of those that take long, no launch that was timed has found inputs that it had seen
    again = (0.0, 0.0) if long else _unseen_and_seen(plan, work, watch)
    leftover = 0.0 if long else _least(lambda: watch.leftover(work.enqueue), most_leftover(median))
    plan.turn(0)
    plan.wait()
    for outputs in entrants.theirs.values():
        for buffer in outputs.values():
            forget(buffer)
    plan.poison()
    if long:
        leftover = watch.leftover(work.enqueue)
    else:
        work.enqueue()
    work.deliver()
    plan.wait()
    sampled = {array: handed(plan, array, memory, lend) for array, memory in between.kept.items()}
    return TimingOutcome(timings, conditions, leftover, *again, sampled=sampled)


def contest_of_long(
    plan: CudaPlan, name: str, operation: str, l2_bytes: int, first_us: float, leftover_us: float
) -> TimingOutcome:
    """Time the baselines of a plan whose launch takes so long that the first one, whose answer is judged, is enough: no
    launch before it had these inputs. Raises Fault."""
    entrants: Entrants = plan.entrants
    watch, conditions = Stopwatch(l2_bytes), Conditions()
    timings = {entrant: Timing(entrant, []) for entrant in entrants.contestants}
    nvml.sample(conditions)
    for entrant, work in entrants.contestants.items():
        if entrant != name:
            timings[entrant].cold_us += [watch.cold(work) for _ in range(EFFORT_OF_LONG.least)]
    _name_versions(timings, name, operation, False)
    timings[name].cold_us.append(first_us)
    plan.wait()
    nvml.sample(conditions)
    conditions.launch_overhead_us = watch.overhead()
    _device.worked = time.monotonic()
    return TimingOutcome(timings, conditions, leftover_us, 0.0, 0.0)


def _name_versions(timings: dict[str, Timing], name: str, operation: str, peer: bool) -> None:
    for baseline in (*baselines_for(operation), *([peers_of(operation)[name]] if peer else [])):
        if baseline.name in timings:
            timing = timings[baseline.name]
            timing.version, timing.solves = baseline.version() or "", baseline.solves


LONG_US = 20_000.0
"""Launches of more differ little, and as much back to back: two cold samples are enough."""

VERY_LONG_US = 200_000.0
"""Launches of more are timed once."""

EFFORT_OF_LONG = Effort(
    seconds=0.0, least=2, warm_up_seconds=0.0, most_warm_up_seconds=0.0, heat_seconds=0.0, sustained_seconds=0.0
)


def _unseen_and_seen(plan: CudaPlan, work: Prepared, watch: Stopwatch) -> tuple[float, float]:
    """Microseconds of a cold launch on inputs that no launch before had, and of the next one on the same."""
    pairs: list[tuple[float, float]] = []

    def too_long() -> float:
        turn(plan)
        plan.poison()
        pairs.append((watch.cold(work.enqueue), watch.cold(work.enqueue)))
        return pairs[-1][0] - most_unseen(pairs[-1][1])

    _least(too_long, 0.0)
    return min(pairs, key=lambda pair: pair[0] - most_unseen(pair[1]))


def _least(measured: Callable[[], float], limit: float) -> float:
    """The least of some tries, the last one that is within the limit: the host, too, is late at times."""
    least = measured()
    for _ in range(TRIES - 1):
        if least <= limit:
            break
        least = min(least, measured())
    return least


def _first(baseline: Baseline, plan: CudaPlan, problem: Problem) -> Prepared:
    """Prepare and launch an implementation once, which may compile it. Raises Fault for whatever it raises."""
    try:
        prepared = baseline.prepare(problem, problem.arrays(), plan.buffers)
        prepared.enqueue()
    except Exception as error:
        raise Fault(Verdict.LAUNCH_ERROR, f"{baseline.name} cannot be used: {first_line(error)}") from None
    plan.wait()
    return prepared


TRIES = 3
"""How often is asked at most, of a contestant that was timed, what makes it suspicious."""

LOADING_SECONDS = 30.0
"""How long it takes to load the libraries behind the baselines."""


def expected_seconds(effort: Effort, once: float) -> float:
    """How long a contest takes of a plan whose first launch took `once` seconds."""
    sustained = effort.heat_seconds + LONGER * effort.sustained_seconds
    return 3 * (effort.seconds + effort.most_warm_up_seconds + sustained) + 5 * (effort.least + 1) * once


def load_baselines(device: IsolatedDevice, operation: str) -> None:
    """Load the libraries behind the baselines of an operation in the process of the device. Raises Fault."""
    device.ask(_load_baselines, operation, seconds=device.deadline(LOADING_SECONDS))


def _load_baselines(_: Any, operation: str) -> None:
    """Ahead of the contest, whose deadline can then be one for kernels."""
    baselines_for(operation)


def _bench_problem(
    stage: Stage[Any], device: Device, info: DeviceInfo, problem: Problem, effort: Effort, judge: Judge
) -> Measurement | str:
    """One measurement, or why there is none. Raises Unprepared."""
    if constant := judge.constant():
        return (
            f"every element of {', '.join(constant)} has the same value: such inputs are multiplied faster than others"
        )
    compiled = device.compile(stage, problem)
    with judge.inputs() as inputs:
        launches = stage.plan(problem)
        plan: Any = device.bind(compiled, launches, problem.arrays(), inputs, problem.seed)
        try:
            plan.apply(_load_baselines, stage.operation, seconds=LOADING_SECONDS)
            first, leftover = plan.apply(first_run, info.l2_bytes, seconds=1 + launches.expected_seconds)
            expected = expected_seconds(effort, first / 1e6)
            entering = (stage.spec, stage.operation, problem, False, judge.lends)
            answers, broken = plan.apply(enter, *entering, seconds=expected)
            rejected = broken | wrong_answers(judge, answers)
            if first > VERY_LONG_US:
                effort = EFFORT_OF_LONG
                arguments: tuple[Any, ...] = (stage.spec, stage.operation, info.l2_bytes, first, leftover)
                outcome: TimingOutcome = plan.apply(contest_of_long, *arguments, seconds=expected)
            else:
                effort = EFFORT_OF_LONG if first > LONG_US else effort
                arguments = (stage.spec, stage.operation, problem, effort, info.l2_bytes, False, judge.lends)
                outcome = plan.apply(contest, *arguments, seconds=expected)
            outcome.broken = rejected
            return measurement(stage.spec, problem, plan, outcome, info, effort, judge, compiled.binary_digest())
        finally:
            plan.close()


def wrong_answers(judge: Judge, answers: dict[str, Outputs]) -> dict[str, str]:
    """By name of a baseline what is wrong with its answer. Raises Unprepared."""
    wrong = {name: judge.wrong(outputs) for name, outputs in answers.items()}
    return {name: f"it gives a wrong result: {failure.message}" for name, failure in wrong.items() if failure}


def measurement(
    name: str,
    problem: Problem,
    plan: Any,
    outcome: TimingOutcome,
    info: DeviceInfo,
    effort: Effort,
    judge: Judge | None = None,
    digest: str = "",
) -> Measurement | str:
    """The record of a contest, or why its samples are not believed. A baseline with a wrong result is left out.

    Raises Unprepared."""
    judge = judge or HostJudge(solved(problem))
    rejected = dict(outcome.broken)
    timings = {contestant: timing for contestant, timing in outcome.timings.items() if contestant not in rejected}
    failure = judge.wrong(plan.apply(outputs_of, judge.lends, seconds=LOADING_SECONDS))
    if failure:
        return f"wrong after timing: {failure.message}"
    if outcome.sampled and (failure := judge.wrong(outcome.sampled)):
        why = implausible(name, outcome)
        said = f"wrong while it was timed, in a sample that was drawn: {failure.message}"
        return f"{said}; {why}" if why else said
    if reason := implausible(name, outcome) or too_fast(timings[name], problem, info):
        return reason
    limit, by = plausibility.roofline_bound(problem, info)
    return Measurement(
        problem=str(problem),
        label=problem.label,
        dtype=problem.compute_dtype,
        flops=problem.cost.flops,
        bytes=problem.cost.bytes,
        roofline_us=limit,
        roofline_by=by,
        timing=timings.pop(name),
        baselines=list(timings.values()),
        conditions=outcome.conditions,
        binary_sha256=digest,
        effort=asdict(effort),
        judged=judge.said(),
        rejected=rejected,
    )


def judged_by(device: Device, problem: Problem, timed: Callable[[Judge], Measurement | str]) -> Measurement | str:
    """What is timed with whoever can judge the problem: the referee, or NumPy here."""
    if isinstance(device, IsolatedDevice) and device.times:
        referee = of_gpu()
        if not referee.refuses(problem):
            with contextlib.suppress(Unprepared):
                return timed(RefereeJudge(referee, problem))
    return timed(HostJudge(solved(problem)))
