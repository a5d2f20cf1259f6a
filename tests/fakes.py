"""Devices that need neither a GPU nor the emulator: they solve vector_add in NumPy, rightly or wrongly."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from synthetic import EMULATOR, H200

from workbench.devices import Fault
from workbench.devices.base import OnMachine
from workbench.model.arrays import Array, Arrays
from workbench.model.launch import H200 as MACHINE
from workbench.model.launch import Plan
from workbench.model.results import DeviceInfo, Verdict
from workbench.toolchain.compiler import Compiled


class NumpyDevice(OnMachine):
    """Adds vectors. `wrong_after` elements of a vector are right, the others one too large; `fault` ends every run."""

    machine = MACHINE

    def __init__(self, name: str = "emulator", *, wrong_after: int | None = None, fault: str | None = None) -> None:
        self.name, self.wrong_after, self.fault = name, wrong_after, fault

    @property
    def times(self) -> bool:  # type: ignore[override]
        return self.name == "cuda"

    def info(self) -> DeviceInfo:
        return H200 if self.name == "cuda" else EMULATOR

    def bind(
        self, compiled: Compiled, plan: Plan, arrays: Mapping[str, Array], storage: Arrays, seed: int = 0
    ) -> NumpyDevice:
        self.refill(storage)
        return self

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            total = (storage["a"].astype(np.float64) + storage["b"].astype(np.float64)).astype(storage["c"].dtype)
        if self.wrong_after is not None:
            total[self.wrong_after :] += 1
        self._memory = {**storage, "c": total}

    def run(self) -> None:
        if self.fault:
            raise Fault(Verdict.RACE, self.fault)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        return self._memory[name]

    def close(self) -> None:
        pass


class HostPlan:
    """A plan that is bound to arrays of NumPy, adds `a` and `b` to `c`, and is done at once."""

    def __init__(self, arrays: Mapping[str, Array], buffers: dict[str, Any]) -> None:
        self.arrays, self.buffers, self.turned = arrays, buffers, 0

    def wait(self) -> None:
        """Nothing is left to wait for."""

    def poison(self) -> None:
        self.buffers["c"] = self.arrays["c"].poisoned()

    def turn(self, elements: int) -> None:
        for name in ("a", "b"):
            self.buffers[name] = np.roll(self.buffers[name], elements - self.turned)
        self.turned = elements

    def host(self, name: str, buffer: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return buffer

    def apply(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        return function(self, *arguments)

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.buffers = dict(storage)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        return self.buffers[name]

    def close(self) -> None:
        """Memory of the host goes by itself."""


class MisbehavingDevice(NumpyDevice):
    """Adds vectors until `behaviours` has something for the name of the source: then its launches do that instead."""

    def __init__(self, behaviours: Mapping[str, Callable[[], None]], name: str = "cuda") -> None:
        super().__init__(name)
        self.behaviours = behaviours
        self.lost = False

    def bind(
        self, compiled: Compiled, plan: Plan, arrays: Mapping[str, Array], storage: Arrays, seed: int = 0
    ) -> NumpyDevice:
        self.behaviour = self.behaviours.get(compiled.name)
        return super().bind(compiled, plan, arrays, storage, seed)

    def run(self) -> None:
        if self.behaviour:
            try:
                self.behaviour()
            except Fault:
                self.lost = True  # like a CUDA context after an illegal access
                raise
        if self.lost:
            raise Fault(Verdict.LAUNCH_ERROR, "the context was lost before")


def hang() -> None:
    """Never end, and never let another thread run."""
    re.match(r"(a+)+b", "a" * 64)


def exit_at_once() -> None:
    """End the process as a library does that calls exit."""
    os._exit(3)


def segfault() -> None:
    """Read address 0."""
    ctypes.string_at(0)


def raise_what_nobody_foresaw() -> None:
    """Fail like a bug in a library."""
    raise ZeroDivisionError("a bug of the driver's binding")


def eat_memory() -> None:
    """Ask for more memory than any machine has."""
    bytearray(2**60)


def access_illegally() -> None:
    """Fail like a launch that spoils its context."""
    raise Fault(Verdict.ILLEGAL_ACCESS, "an illegal memory access was encountered")


def be_killed() -> None:
    """End like a process that the kernel's OOM killer has chosen."""
    os.kill(os.getpid(), signal.SIGKILL)
