"""A device that answers from the reference, or wrongly if told to: the harness is tested without kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from workbench.devices.base import OnMachine
from workbench.judge.case import quiet
from workbench.model.arrays import Array, Arrays
from workbench.model.launch import H200, Plan
from workbench.model.problem import Problem
from workbench.model.results import DeviceInfo
from workbench.toolchain.compiler import Compiled

Spoil = Callable[[Problem, dict[str, np.ndarray[Any, Any]]], None]


class Storage(dict[str, np.ndarray[Any, Any]]):
    """All arrays after a launch; `before` is what they held before it."""

    before: dict[str, np.ndarray[Any, Any]]


class FakeDevice(OnMachine):
    """Solves each bound problem by its reference, then lets `spoil(problem, storages)` tamper with all arrays.

    The problem is found by asking `problem_of`, set by the test: a real device only ever sees launches.
    """

    name, machine, times = "emulator", H200, False

    def __init__(self, spoil: Spoil = lambda problem, storage: None) -> None:
        self.spoil = spoil
        self.problems: list[Problem] = []

    def info(self) -> DeviceInfo:
        return DeviceInfo(self.name, "fake", "sm_90", 1)

    def bind(
        self, compiled: Compiled, plan: Plan, arrays: Mapping[str, Array], storage: Arrays, seed: int = 0
    ) -> FakePlan:
        problem: Any = plan.launches[0].args[0]
        self.problems.append(problem)
        return FakePlan(self, problem, arrays, storage)


class FakePlan:
    def __init__(self, device: FakeDevice, problem: Problem, arrays: Mapping[str, Array], storage: Arrays) -> None:
        self.device, self.problem, self.arrays = device, problem, arrays
        self.refill(storage)

    def run(self) -> None:
        inputs = {n: self.arrays[n].view(self.storage[n]) for n, a in self.arrays.items() if not a.output}
        with quiet(self.problem):
            for name, value in self.problem.reference(inputs).items():
                self.arrays[name].view(self.storage[name])[...] = value
        self.device.spoil(self.problem, self.storage)

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.storage = Storage({name: values.copy() for name, values in storage.items()})
        self.storage.before = dict(storage)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        return self.storage[name]

    def close(self) -> None:
        pass
