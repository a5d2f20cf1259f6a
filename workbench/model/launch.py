"""What a stage asks a device to run, a plan of launches over named arrays, and what it is told of the machine before.

Knows neither operations nor devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .arrays import BEST_ALIGNMENT, Array
from .tensor_map import Im2col as Im2col
from .tensor_map import TensorMap as TensorMap

Dim3 = tuple[int, int, int]

MOST_BLOCKS: Dim3 = (2**31 - 1, 65_535, 65_535)
"""Blocks that a grid may have along x, y and z, on every device that there is."""

Argument = str | np.generic | TensorMap
"""A kernel argument: the name of an array (its pointer is passed), a NumPy scalar, or a tensor map passed by value."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `kernel` is the `extern "C"` entry point. `grid` counts blocks, `block` counts threads, and
    `cluster` counts blocks.

    `cluster` is the size for which the kernel is compiled, with `__cluster_dims__`.

    A `persistent` kernel gives the right result for any number of blocks along x (of clusters, if it has clusters).
    `grid` is the number of blocks with which each does one piece of the work. The device launches no more blocks than
    it can hold at once, and no more than the same number of rounds needs.

    A `programmatic` launch may begin when every block of the launch before it in its plan has triggered or ended
    (`cudaLaunchAttributeProgrammaticStreamSerialization`). Its kernel sees what that one wrote only behind
    `griddepcontrol.wait`. The first launch of a plan cannot be one."""

    kernel: str
    grid: Dim3
    block: Dim3
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: Dim3 = (1, 1, 1)
    persistent: bool = False
    programmatic: bool = False

    def beyond_limits(self) -> str | None:
        """Why no device takes a grid of this size, or None where it is not too large."""
        for axis, blocks, most in zip("xyz", self.grid, MOST_BLOCKS, strict=True):
            if blocks > most:
                return f"the grid of {self.kernel} has {blocks:,} blocks in {axis}; a device takes {most:,}"
        return None

    def persistent_blocks(self, resident: int) -> int:
        """The number of blocks along x that a device launches if it holds `resident` blocks at once: whole clusters."""
        most = max(self.cluster[0], resident - resident % self.cluster[0])
        return min(self.grid[0], most) if self.persistent else self.grid[0]

    def even_blocks(self, resident: int) -> int:
        """The smallest number of blocks that needs no more rounds; each block then does the same amount of work."""
        blocks = self.persistent_blocks(resident)
        each = ceil_div(self.grid[0], ceil_div(self.grid[0], blocks))
        return ceil_div(each, self.cluster[0]) * self.cluster[0]


@dataclass(frozen=True)
class Plan:
    """The launches of a stage for one problem, in stream order, and the scratch arrays that pass data between them.

    Even a slow stage should end within `expected_seconds`; the deadline is a multiple of it. `alignments` names arrays
    whose address is a multiple of these bytes, and below 256 of no larger power of two. All other arrays start at a
    multiple of 256 bytes. `aliases` names inputs that begin with the same bytes as another one, and may be the same
    memory."""

    launches: tuple[Launch, ...]
    scratch: Mapping[str, Array] = field(default_factory=dict)
    expected_seconds: float = 0.0
    alignments: Mapping[str, int] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def alignment(self, name: str, array: Array) -> int:
        """An array starts at a multiple of this number of bytes, which is at least the size of an element."""
        return max(self.alignments.get(name, BEST_ALIGNMENT), array.dtype.itemsize)


def ceil_div(a: int, b: int) -> int:
    """The number of tiles of size `b` that cover `a`."""
    return -(-a // b)


# ---------------------------------------------------------------------------------------------------- the machine


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
