"""A device in a process of its own: what hangs, crashes or spoils the CUDA context ends that process and nothing else.

The process gets compiled code, launches and inputs, and gives back what is in the arrays. It never has the reference,
never runs Python code of a stage, and whatever a stage does to this process does not reach it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..model.arrays import Array
from ..model.launch import Machine, Plan
from ..model.results import DeviceInfo, Verdict
from ..toolchain.compiler import Compiled
from .base import BoundPlan, Device, DeviceUnavailable, Fault, OnMachine
from .worker import Broken, Ended, Late, Worker

DEADLINE_FACTOR, LEAST_SECONDS = 10.0, 5.0
"""A launch may take so many times as long as expected, and always so many seconds."""

MOVE_SECONDS = 60.0
"""Deadline of what launches nothing: loading a module, copying arrays."""

TOGETHER_BYTES = 4 << 20
"""Arrays of no more than this are read all at once: an exchange takes longer than they do."""


class _Host:
    """In the process: the device that `open_here` opens, and what is bound on it."""

    def __init__(self, open_here: Callable[[], Device]) -> None:
        self.device = open_here()
        if begin := getattr(self.device, "begin", None):
            threading.Thread(target=begin, daemon=True).start()
        self.bound: dict[int, BoundPlan] = {}


def _describe(host: _Host) -> tuple[str, bool, Machine, DeviceInfo]:
    return host.device.name, host.device.times, host.device.machine, host.device.info()


def _bind(host: _Host, key: int, *arguments: Any) -> None:
    try:
        host.bound[key] = host.device.bind(*arguments)
    except MemoryError as error:  # a library's own kind of it may not survive the way back
        raise MemoryError(str(error)) from None


def _run(host: _Host, key: int) -> None:
    host.bound[key].run()


def _read_all(host: _Host, key: int, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: host.bound[key].read(name) for name in names}


def _refill(host: _Host, key: int, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
    host.bound[key].refill(storage)


def _close(host: _Host, key: int) -> None:
    host.bound.pop(key).close()


def _apply(host: _Host, key: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(host.bound[key], *arguments)


def _together(host: _Host, keys: tuple[int, ...], function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function([host.bound[key] for key in keys], *arguments)


def _take_outcomes(host: _Host) -> Any:
    return host.device.take_outcomes() if hasattr(host.device, "take_outcomes") else {}


def _lost(host: _Host) -> bool:
    return bool(getattr(host.device, "lost", False))


class IsolatedDevice(OnMachine):
    """The device that `open_there` (picklable) opens in a worker process.

    A launch that is not over after `DEADLINE_FACTOR` times its plan's expected time, and at least `least_seconds`, is
    a Fault (TIMEOUT), and so is the end of the process (CRASH); the process is then replaced. It is replaced as well
    when the device says that it is `lost`. Raises DeviceUnavailable."""

    def __init__(self, open_there: Callable[[], Device], least_seconds: float = LEAST_SECONDS) -> None:
        self.worker = Worker(partial(_Host, open_there), expected=(Fault, DeviceUnavailable, MemoryError))
        self.least_seconds = least_seconds
        self.keys = itertools.count()
        self._info: DeviceInfo
        try:
            described = self.worker.ask(_describe, seconds=MOVE_SECONDS)
            self.name, self.times, self.machine, self._info = described
        except (Late, Ended, Broken) as error:
            raise DeviceUnavailable(f"the process for the device does not start: {error}") from None

    def info(self) -> DeviceInfo:
        return self._info

    def take_outcomes(self) -> Any:
        """How the conditions of kernels have come out since this was last asked, where the device notes it: an emulator
        does, unless its process has ended meanwhile."""
        try:
            asked = not self.times and self.worker.alive()
            return self.worker.ask(_take_outcomes, seconds=MOVE_SECONDS) if asked else {}
        except (Late, Ended, Broken):
            return {}

    def bind(
        self,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int = 0,
    ) -> IsolatedPlan:
        bound = IsolatedPlan(self, next(self.keys), plan, (compiled, plan, dict(arrays), dict(storage), seed))
        bound.prepare()
        return bound

    def deadline(self, expected: float) -> float:
        """The seconds after which something is stopped that is expected to take so many."""
        return max(self.least_seconds, DEADLINE_FACTOR * expected)

    def together(
        self, plans: Sequence[IsolatedPlan], function: Callable[..., Any], *arguments: Any, seconds: float
    ) -> Any:
        """`function(bound plans, *arguments)` in the process; it is expected to take so many seconds. Raises Fault."""
        keys = tuple(plan.key for plan in plans)
        for plan in plans:
            plan.prepare()
            plan.changed()
        try:
            return self.ask(_together, keys, function, arguments, seconds=self.deadline(seconds))
        except Ended as ended:
            raise Fault(Verdict.CRASH, f"the process that ran it is gone: {ended}") from None

    def close(self) -> None:
        """End the process."""
        self.worker.kill()

    def ask(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """`function(host, *arguments)` in the process. Raises Fault, and Ended where somebody killed the process."""
        try:
            return self.worker.ask(function, *arguments, seconds=seconds)
        except Late:
            raise Fault(
                Verdict.TIMEOUT,
                f"it was not over after {seconds:.3g} s and was stopped: a wait that never ends, or a loop without end",
            ) from None
        except MemoryError as error:
            self.close()
            raise Fault(Verdict.OUT_OF_MEMORY, f"there is not enough memory for this problem: {error}") from None
        except Ended as ended:
            if ended.killed:
                raise
            raise Fault(Verdict.CRASH, f"the process that ran it is gone: {ended}") from None
        except Broken as error:
            self.close()
            raise Fault(Verdict.CRASH, f"the process that ran it failed:\n{error}") from None
        except Fault:
            self._replace_if_lost()
            raise

    def _replace_if_lost(self) -> None:
        try:
            lost = self.worker.ask(_lost, seconds=MOVE_SECONDS)
        except (Late, Ended, Broken):
            lost = True
        if lost:
            self.close()


class IsolatedPlan:
    """A plan bound in the process of a device, and bound again where somebody has killed that process."""

    def __init__(self, device: IsolatedDevice, key: int, plan: Plan, binding: tuple[Any, ...]) -> None:
        self._device, self.key, self._binding = device, key, binding
        self._seconds = device.deadline(plan.expected_seconds)
        self._generation = 0
        self._has_run = False
        arrays: Mapping[str, Array] = binding[2]
        self._together = tuple(arrays) if sum(a.nbytes for a in arrays.values()) <= TOGETHER_BYTES else ()
        self._values: dict[str, np.ndarray[Any, Any]] = {}
        """What has been read since anything ran."""

    def prepare(self) -> None:
        """Bind the plan. Raises Fault."""
        self._ask(lambda: None)

    def run(self) -> None:
        self.changed()
        self._ask(lambda: self._device.ask(_run, self.key, seconds=self._seconds))
        self._has_run = True

    def read(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._together:
            return self._read((name,))[name]
        if not self._values:
            self._values = self._read(self._together)
        return self._values[name]

    def _read(self, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
        values: dict[str, np.ndarray[Any, Any]] = self._ask(
            lambda: self._device.ask(_read_all, self.key, names, seconds=MOVE_SECONDS), as_it_was=True
        )
        return values

    def changed(self) -> None:
        """What has been read may no longer be what is there."""
        self._values = {}

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        compiled, plan, arrays, _, seed = self._binding
        self._binding = (compiled, plan, arrays, dict(storage), seed)
        self._has_run = False
        self.changed()
        self._ask(lambda: self._device.ask(_refill, self.key, storage, seconds=MOVE_SECONDS))

    def apply(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """`function(bound plan, *arguments)` in the process; it is expected to take so many seconds. Raises Fault."""
        limit = self._device.deadline(seconds)
        self.changed()
        return self._ask(lambda: self._device.ask(_apply, self.key, function, arguments, seconds=limit))

    def close(self) -> None:
        if self._device.worker.alive() and self._generation == self._device.worker.generation:
            try:
                self._device.ask(_close, self.key, seconds=MOVE_SECONDS)
            except (Fault, Ended):
                self._device.close()  # what could not be freed goes with the process

    def _ask(self, question: Callable[[], Any], as_it_was: bool = False) -> Any:
        """Ask a bound plan; a second time where a SIGKILL from elsewhere came between, which no kernel can send."""
        try:
            self._bind(as_it_was)
            return question()
        except Ended:
            pass
        try:
            self._bind(as_it_was)
            return question()
        except Ended as ended:
            message = f"the process that ran it was killed twice, most likely for lack of memory: {ended}"
            raise Fault(Verdict.CRASH, message) from None

    def _bind(self, as_it_was: bool) -> None:
        """Bind the plan where the process does not have it, and run it where something is to be read."""
        worker = self._device.worker
        if worker.alive() and self._generation == worker.generation:
            return
        self._device.ask(_bind, self.key, *self._binding, seconds=MOVE_SECONDS)
        self._generation = worker.generation
        if as_it_was and self._has_run:
            self._device.ask(_run, self.key, seconds=self._seconds)
