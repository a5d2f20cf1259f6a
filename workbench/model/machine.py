"""What a plan is told of the device that it is for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar


@dataclass(frozen=True)
class Machine:
    """A device, as far as sizes and launches depend on it.

    `architecture` is the compute capability times ten. `multiprocessors` is their number. A block may have
    `shared_bytes` bytes of shared memory. A multiprocessor has that many 32-bit `registers`."""

    architecture: int
    multiprocessors: int
    shared_bytes: int
    registers: int = 2**16


H200 = Machine(architecture=90, multiprocessors=132, shared_bytes=232_448)
"""An NVIDIA H200, or an H100 (SXM): the machine of a stage that nobody has moved to another one."""

B200 = Machine(architecture=100, multiprocessors=148, shared_bytes=232_448)
"""An NVIDIA B200: the machine of a stage that needs what an H200 does not have, if nobody names another."""

MACHINES = {each.architecture: each for each in (H200, B200)}
"""A machine of each architecture for which stages are verified without a device."""

SETTINGS = ("architecture", "multiprocessors", "shared_bytes", "registers")
"""What may be said of an emulated device."""


def emulated_machine(device: str) -> Machine:
    """The machine that `emulator`, or `emulator:multiprocessors=78,shared_bytes=102400`, stands for: an H200, or the
    one of the `architecture` that is named, but for what is named. Raises ValueError, which says what would be right.
    """
    given = {}
    for setting in filter(None, device.partition(":")[2].split(",")):
        name, _, value = setting.partition("=")
        if name not in SETTINGS:
            raise ValueError(f"{device}: an emulated device has no {name!r}; it has {', '.join(SETTINGS)}")
        if not value.isdecimal() or int(value) == 0:
            raise ValueError(f"{device}: {name} is {value!r}; it has to be a whole number above 0")
        given[name] = int(value)
    if (architecture := given.get("architecture", H200.architecture)) not in MACHINES:
        known = " or ".join(map(str, MACHINES))
        raise ValueError(f"{device}: architecture is {architecture}; stages are verified for {known}")
    return replace(MACHINES[architecture], **given)


def emulated_name(machine: Machine) -> str:
    """The device that `emulated_machine` makes this machine of."""
    like = replace(MACHINES.get(machine.architecture, H200), architecture=H200.architecture)
    other = [f"{name}={getattr(machine, name)}" for name in SETTINGS if getattr(machine, name) != getattr(like, name)]
    return ":".join(("emulator", *filter(None, (",".join(other),))))


def of_architecture(architecture: int, given: Machine) -> Machine:
    """The machine of an architecture, with what another one was `given` besides its own. Raises KeyError."""
    own = MACHINES[given.architecture]
    said = {name: getattr(given, name) for name in SETTINGS[1:] if getattr(given, name) != getattr(own, name)}
    return replace(MACHINES[architecture], **said)


_machine: ContextVar[Machine] = ContextVar("machine", default=H200)

A = ParamSpec("A")
R = TypeVar("R")


def machine() -> Machine:
    """The device that sizes or launches are being made for: what functions of a stage or an operation may depend on.

    Outside of them it is an H200."""
    return _machine.get()


def scaled(blocks: int) -> int:
    """As many blocks for each multiprocessor of the machine as `blocks` are for one of an H200, on which numbers of
    blocks were measured and declared; 1 at least."""
    return max(1, blocks * machine().multiprocessors // H200.multiprocessors)


@contextlib.contextmanager
def planning_for(chosen: Machine) -> Iterator[None]:
    """Within, `machine()` is this one."""
    before = _machine.set(chosen)
    try:
        yield
    finally:
        _machine.reset(before)


def kept_by_machine(most: int | None = None) -> Callable[[Callable[A, R]], Callable[A, R]]:
    """A cache, as `functools.lru_cache` is, of a function whose results depend on the machine, too."""

    def decorate(function: Callable[A, R]) -> Callable[A, R]:
        @lru_cache(most)
        def kept(_: Machine, *args: Any, **keywords: Any) -> R:
            return function(*args, **keywords)

        @wraps(function)
        def called(*args: A.args, **keywords: A.kwargs) -> R:
            return kept(_machine.get(), *args, **keywords)  # type: ignore[arg-type]

        return called

    return decorate
