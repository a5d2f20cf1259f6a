"""Makes an experiment: every point is verified, then counted in the emulator, then timed where there is a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .. import harness
from ..devices import Device
from ..devices.emulated import EmulatedDevice
from ..model.launch import ceil_div
from ..model.problem import Problem
from ..model.results import Measurement, Verdict
from ..model.stage import Stage
from ..records import environment
from ..report.evidence import failed, publish, published
from ..run import verifier
from ..toolchain import compiler
from ..toolchain.compiler import compile_stage
from . import hardware
from .base import Experiment, Outcome, Point

WARP = 32
NO_GPU = "there was no GPU"


def study(
    experiment: Experiment, device: Device, *, examples: int, seed: int, on_point: Callable[[int], None]
) -> Outcome:
    """All points of an experiment. `on_point` is told how many are done.

    A point that fails is neither counted nor timed. Raises CompilerUnavailable, and Fault for what cannot be counted.
    """
    info = device.info()
    outcome = Outcome(experiment.name, info, environment.describe(), seed, examples)
    todo = [(stage, value) for stage in experiment.operation.stages for value in experiment.values(info.sm_count)]
    for done, (declared, value) in enumerate(todo, 1):
        stage, counted, timed = experiment.at(declared, value)
        # what is counted is verified, too, whatever random problems there are
        stage = dataclasses.replace(stage, edge_cases=(counted,))
        verification = verifier.verify(stage, device, remembers=False, examples=examples, seed=seed)
        publish(stage, verification)
        if verification.failure:
            verification.failure.replay = f"workbench experiment {experiment.name} --device {device.name}"
        point = Point(stage.name, value, str(counted), verification)
        if verification.verdict is Verdict.PASS:
            point.counts = count(experiment, stage, counted, info.sm_count)
            _time(point, stage, device, timed)
            _ask_hardware(point, experiment, stage, device, timed)
        outcome.points.append(point)
        on_point(done)
    return outcome


def ok(outcome: Outcome) -> bool:
    """Whether every point was right, and timed where the device can."""
    right = not any(failed(point.verification) for point in outcome.points)
    return right and (outcome.device.kind == "emulator" or all(point.timed for point in outcome.points))


def count(experiment: Experiment, stage: Stage[Any], problem: Problem, multiprocessors: int) -> dict[str, int]:
    """What `base.Counts` describes, of one problem. Raises CompileError, CompilerUnavailable and Fault."""
    compiled, plan = compile_stage(stage, problem), stage.plan(problem)
    (launch,) = plan.launches
    (resources,) = compiler.resources(stage, problem)
    case = harness.Case.of(problem)
    bound = EmulatedDevice(counters=True).bind(compiled, plan, case.arrays, case.storage(), problem.seed)
    try:
        bound.run()
        (statistics,) = bound.statistics
        counters = statistics.counters
    finally:
        bound.close()
    fused = [counts for opcode, counts in counters.by_opcode().items() if opcode.startswith("fma.")]
    known = {
        "fma_lanes": sum(counts["thread_instructions"] for counts in fused),
        "blocks": launch.grid[0] * launch.grid[1] * launch.grid[2],
        "block_warps": ceil_div(resources.block_threads, WARP),
        "resident_blocks": resources.blocks_per_sm,
        "multiprocessors": multiprocessors,
        "flops": problem.cost.flops,
    }
    return {**counters.totals(), **known, **experiment.look(stage, problem, resources)}


def _time(point: Point, stage: Stage[Any], device: Device, problem: Problem) -> None:
    if not device.times:
        point.untimed = NO_GPU
        return
    from ..measure import timing

    outcome = timing.bench(stage, device, problem)
    if isinstance(outcome, Measurement):
        point.timed = outcome
    else:
        point.untimed = published(stage, outcome)


def _ask_hardware(point: Point, experiment: Experiment, stage: Stage[Any], device: Device, problem: Problem) -> None:
    if not device.times or not experiment.metrics:
        return
    found = hardware.count(experiment, stage, problem, point.value)
    if isinstance(found, str):
        point.uncounted = found
    else:
        point.hardware = found
