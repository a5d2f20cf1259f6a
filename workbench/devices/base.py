"""The interface of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..model.arrays import Array
from ..model.errors import WorkbenchError
from ..model.launch import Plan
from ..model.machine import H200, Machine
from ..model.problem import Problem
from ..model.results import DeviceInfo, Hazard, Verdict
from ..model.stage import Stage
from ..toolchain.compiler import Compiled, compile_stage, translate_stage


class DeviceUnavailable(WorkbenchError, RuntimeError):
    """The device cannot be used on this machine; the message says why and what would help."""


class Fault(WorkbenchError):
    """A launch that went wrong. `verdict` names the kind; the message says what, where and what to do.

    `hazards` has the same for programs, where the emulator found it."""

    def __init__(self, verdict: Verdict, message: str, hazards: Sequence[Hazard] = ()) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.code = str(verdict)
        self.hazards = tuple(hazards)

    def __reduce__(self) -> tuple[type[Fault], tuple[Verdict, str, tuple[Hazard, ...]]]:
        return Fault, (self.verdict, str(self), self.hazards)  # it comes out of worker processes


class BoundPlan(Protocol):
    """A plan whose arrays are in device memory: run it as often as you like, read arrays back."""

    def run(self) -> None:
        """Launch all kernels of the plan and wait for them. Raises Fault, also for a write outside of an array."""

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """The storage of an array, one-dimensional, copied to the host."""

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Put other values into the same arrays; those that `storage` does not hold forget theirs."""

    def close(self) -> None:
        """Free the device memory."""


class Device(Protocol):
    """Compares nothing: compiles sources for itself, and runs plans on arrays it is given.

    `machine` is what plans are told of it. `times` says whether its times mean anything: those of an emulator do not.
    """

    @property
    def name(self) -> str: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def times(self) -> bool: ...
    @property
    def architecture(self) -> int: ...

    def compile(self, stage: Stage[Any], problem: Problem) -> Compiled:
        """The source of a stage as `bind` takes it. Raises CompileError, CompilerUnavailable, OSError."""

    def info(self) -> DeviceInfo:
        """What this device is."""

    def bind(
        self,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int = 0,
    ) -> BoundPlan:
        """Copy `storage` (one-dimensional, by array name) to fresh device memory and prepare the plan's launches.

        Scratch arrays of the plan are allocated here, unwritten. `seed` orders warps where the device can choose.
        Raises Fault for a launch that the device cannot take."""


def machine_for(stage: Stage[Any], device: Device | OnMachine) -> Machine:
    """The machine that a stage is run on by a device: its own. An emulator that nobody has told an architecture has
    the one that the stage needs."""
    emulates = not device.times and device.machine.architecture == H200.architecture
    return stage.fitting(device.machine) if emulates else device.machine


class OnMachine:
    """A device that compiles by what it is: to machine code where it `times`, else to PTX, which takes less."""

    machine: Machine
    times: bool

    @property
    def architecture(self) -> int:
        """The compute capability times ten."""
        return self.machine.architecture

    def compile(self, stage: Stage[Any], problem: Problem) -> Compiled:
        """See `Device`."""
        made = compile_stage if self.times else translate_stage
        return made(stage, problem, machine_for(stage, self).architecture)
