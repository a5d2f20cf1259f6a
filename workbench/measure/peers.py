"""Other implementations of an operation than its stages: timed like stages, or, NumPy, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..devices import Device, Fault
from ..devices.cuda import CudaPlan
from ..model.launch import Plan
from ..model.problem import Problem
from ..model.results import DeviceInfo, HostTiming, Measurement
from . import baselines as declared
from .baselines import first_line, host, host_baseline, peers_of
from .judged import Judge, solved
from .plausibility import TimingOutcome
from .timing import LOADING_SECONDS, Effort, contest, enter, expected_seconds, judged_by, measurement, wrong_answers

COMPILING_SECONDS = 10.0
"""How long an implementation may well compile for a problem."""


def peers_found(operation: str, device: Device) -> dict[str, str]:
    """The versions, by name, of the other implementations of an operation that the device can run. Raises Fault."""
    plan = _arrays_only(device, {}, {})
    try:
        found: dict[str, str] = plan.apply(_peer_versions, operation, seconds=LOADING_SECONDS)
    finally:
        plan.close()
    return found


def _peer_versions(plan: CudaPlan, operation: str) -> dict[str, str]:
    return declared.peer_versions(operation)


def _arrays_only(device: Device, *storage: Any) -> Any:
    """A bound plan that launches nothing."""
    nothing: Any = None
    return device.bind(nothing, Plan(()), *storage)


def bench_peer(
    name: str, operation: str, device: Device, problem: Problem, effort: Effort | None = None
) -> Measurement | str:
    """Time another implementation like a stage; a text says why there is no measurement.

    Its answer, computed after it was timed, has to be within the bounds that the stages are held to."""
    if reason := peers_of(operation)[name].refuses(problem):
        return reason
    used, info = effort or Effort(), device.info()
    try:
        return judged_by(device, problem, lambda j: _bench_peer(name, operation, device, info, problem, used, j))
    except Fault as fault:
        return str(fault)


def _bench_peer(
    name: str, operation: str, device: Device, info: DeviceInfo, problem: Problem, effort: Effort, judge: Judge
) -> Measurement | str:
    """One measurement of a peer. Raises Fault and Unprepared."""
    with judge.inputs() as inputs:
        plan = _arrays_only(device, problem.arrays(), inputs)
        try:
            seconds = expected_seconds(effort, problem.cost.slow_seconds) + COMPILING_SECONDS
            entering = (name, operation, problem, True, judge.lends)
            answers, broken = plan.apply(enter, *entering, seconds=seconds)
            rejected = broken | wrong_answers(judge, answers)
            arguments = (name, operation, problem, effort, info.l2_bytes, True, judge.lends)
            outcome: TimingOutcome = plan.apply(contest, *arguments, seconds=seconds)
            outcome.broken = rejected
            return measurement(name, problem, plan, outcome, info, effort, judge)
        finally:
            plan.close()


def time_host(operation: str, problem: Problem) -> HostTiming | str:
    """Time NumPy on the CPU, by the host's clock; a text says why there is no time."""
    baseline = host_baseline(operation)
    if reason := host.refuses(baseline, problem):
        return reason
    assert baseline is not None
    case = solved(problem)
    try:
        solve = host.solved(baseline, problem, {**case.prepared, **case.inputs})
        answer = solve()  # verified before it is timed; and the threads of the library behind it start
        storage = {name: case.arrays[name].pack(values) for name, values in answer.items()}
    except Exception as error:
        return f"{baseline.name} cannot be used: {first_line(error)}"
    if failure := case.judge(storage.__getitem__)[0]:
        return f"{baseline.name} gives a wrong result: {failure.message}"
    name, version, cost = baseline.name, f"numpy {np.__version__}", problem.cost
    work = (str(problem), problem.label, cost.flops, cost.bytes)
    return HostTiming(operation, name, version, *work, host.timed(solve))
