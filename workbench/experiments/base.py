"""What an experiment is: an operation whose stages are swept over one parameter, and what to look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model.operation import Operation
from ..model.problem import Problem
from ..model.results import SCHEMA_VERSION, DeviceInfo, Environment, Measurement, Record, Resources, Verification
from ..model.stage import Stage

Counts = Mapping[str, int]
"""What is known of a launch in the emulator, in whole numbers: its counters (`workbench.emulator.statistics` has their
names); `fma_lanes`, multiply-adds of single threads; `blocks` of the grid; `block_warps`; `resident_blocks` a
multiprocessor and `multiprocessors`; `flops` of the problem; and what the experiment counts by itself."""


@dataclass
class Point:
    """One value of the swept parameter, for one stage (`series`).

    `counts` are of `problem` in the emulator, made after `verification` passed. `timed` is a measurement of a larger
    problem on a GPU; without one `untimed` says why. `hardware` is what ncu counts of that; without it `uncounted` says
    why, where it was asked."""

    series: str
    value: int
    problem: str
    verification: Verification
    counts: dict[str, int] = field(default_factory=dict)
    timed: Measurement | None = None
    untimed: str = ""
    hardware: dict[str, int] = field(default_factory=dict)
    uncounted: str = ""


@dataclass
class Outcome(Record):
    """One experiment; `device` verified its points, and timed them where it is a GPU."""

    name: str
    device: DeviceInfo
    environment: Environment
    seed: int
    examples: int
    points: list[Point] = field(default_factory=list)
    schema: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Quantity:
    """Something to look at: its name, how it follows from counts, and whether its axis is logarithmic."""

    name: str
    of: Callable[[Counts], float]
    log: bool = False


def ratio(name: str, above: str, below: str) -> Quantity:
    """One counter over another. What is zero is not among the counters."""
    return Quantity(name, lambda counts: counts.get(above, 0) / counts[below])


@dataclass(frozen=True)
class Experiment:
    """An operation whose stages are the series of a chart.

    `swept` is a parameter of every stage, or a field of the problem; it takes `values`, which may depend on the number
    of multiprocessors, and `axis` names it. `counted` is what the emulator counts; the operation's suite has what a GPU
    is timed on. `idea` says what changes with the parameter, `see` what to look for. `look` counts something more.
    `metrics` are what ncu is asked for on a GPU, and `measured` what follows from them. Charts have the values side by
    side, or, where they are not `even`, as far apart as they are."""

    operation: Operation[Any]
    swept: str
    axis: str
    values: Callable[[int], tuple[int, ...]]
    counted: Problem
    quantities: tuple[Quantity, ...]
    idea: str
    see: str
    look: Callable[[Stage[Any], Problem, Resources], dict[str, int]] = lambda stage, problem, resources: {}
    metrics: tuple[str, ...] = ()
    measured: tuple[Quantity, ...] = ()
    even: bool = True

    @property
    def name(self) -> str:
        """That of the operation."""
        return self.operation.name

    def at(self, stage: Stage[Any], value: int) -> tuple[Stage[Any], Problem, Problem]:
        """The stage, the problem to count and the one to time for one value of the parameter."""
        (timed,) = self.operation.suite
        if self.swept in stage.parameters:
            return stage.with_parameters({self.swept: value}), self.counted, timed
        change: dict[str, Any] = {self.swept: value}
        return stage, dataclasses.replace(self.counted, **change), dataclasses.replace(timed, **change)
