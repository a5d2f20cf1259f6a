"""Plans that are ready to be launched: one call of the driver a launch, with parameters that are packed already.

What a launch is given changes from one to the next in addresses and the stream alone. A frame holds the structures
that the driver reads, with the addresses of arrays side by side; who launches takes a frame, writes addresses and
stream, and puts it back. So threads need no lock, and the driver may be called without the interpreter's.

A tensor map depends on its address alone, as the array's layout is that of the plan: maps are kept by address, and stay
right when memory is freed and another array lies there.

Nothing here knows the rest of the workbench: `workbench export` writes this module into packages that run without it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MAP_BYTES = 128
"""Of a CUtensorMap, which starts at a multiple of 64 bytes."""

MOST_MAPS = 1024
"""Addresses whose maps are kept, of an argument."""

NO_CONTEXT = (201, 400)
"""CUDA_ERROR_INVALID_CONTEXT and CUDA_ERROR_INVALID_HANDLE: the thread has no context yet, or another device's."""


class Driver(Protocol):
    """What a plan asks of the CUDA driver. All return the driver's status."""

    def launch(self, config: int, function: int, parameters: int, extra: None) -> int:
        """`cuLaunchKernelEx` with the addresses of a `LaunchConfig` and of the parameters' addresses."""

    def replace_address(self, tensor_map: int, address: int) -> int:
        """`cuTensorMapReplaceAddress`: the map at `tensor_map` becomes one of memory at another address."""

    def enter(self) -> int:
        """Make the context of the plan's device current in this thread."""

    def failed(self, status: int, kernel: str) -> Exception:
        """The error of a launch."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


PROGRAMMATIC = LaunchAttribute(6, 0, (1,))
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the launch may begin before the one before it has ended."""


@dataclass(frozen=True)
class Pointer:
    """An argument: the address at this place of those that a call gives."""

    index: int


@dataclass(frozen=True)
class MapAt:
    """An argument: the tensor map of an array whose address is at this place; `encode` makes the bytes of the map for
    an address, and the map begins `offset` bytes behind it."""

    index: int
    offset: int
    encode: Callable[[int], bytes]


@dataclass(frozen=True)
class ReadyLaunch:
    """A launch whose kernel is loaded; `function` is its CUfunction. Of `args` bytes are a scalar."""

    kernel: str
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: tuple[Pointer | MapAt | bytes, ...]
    programmatic: bool = False


class _Map:
    """A tensor map in memory of its own, 64-byte aligned."""

    __slots__ = ("_memory", "address")

    def __init__(self, content: bytes) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + 64)
        self.address = (ctypes.addressof(self._memory) + 63) & ~63
        ctypes.memmove(self.address, content, MAP_BYTES)


class TensorMaps:
    """The maps of one argument of a launch, by the address of its array."""

    def __init__(self, driver: Driver, argument: MapAt, address: int) -> None:
        self._driver, self.argument, self.begun = driver, argument, address
        self.first = argument.encode(address)
        self.known: dict[int, _Map] = {address: _Map(self.first)}

    def at(self, address: int) -> _Map:
        """The map of memory at an address for which there was none."""
        made = _Map(self.first)
        if self._driver.replace_address(made.address, address + self.argument.offset):
            made = _Map(self.argument.encode(address))
        if len(self.known) >= MOST_MAPS:  # another thread may be launching with one of them: frames hold theirs
            self.known = {}
        self.known[address] = made
        return made


class _MapSlot:
    """Where in a frame the address of an argument's map stands, and the map that it is of."""

    __slots__ = ("held", "index", "maps", "parameters", "place")

    def __init__(self, maps: TensorMaps, index: int, parameters: Any, place: int) -> None:
        self.maps, self.index, self.parameters, self.place = maps, index, parameters, place
        self.held: _Map | None = None


def _config(launch: ReadyLaunch) -> LaunchConfig:
    """What the driver reads of a launch, without the stream."""
    attributes = (ctypes.addressof(PROGRAMMATIC), 1) if launch.programmatic else (None, 0)
    return LaunchConfig(launch.grid, launch.block, launch.shared_bytes, None, *attributes)


class _Frame:
    """What the driver reads of one call of a plan: nobody else's while it is out of `ReadyPlan._free`."""

    __slots__ = ("configs", "slots", "steps", "stream", "table", "tables")

    def __init__(self, plan: ReadyPlan) -> None:
        self.stream = -1
        self.table: Any = (ctypes.c_uint64 * plan.pointers)()
        self.configs = [_config(launch) for launch in plan.launches]
        self.slots: list[_MapSlot] = []
        self.tables = [(ctypes.c_void_p * max(len(launch.args), 1))() for launch in plan.launches]
        first = ctypes.addressof(self.table)
        for number, (launch, parameters) in enumerate(zip(plan.launches, self.tables, strict=True)):
            for place, argument in enumerate(launch.args):
                if isinstance(argument, Pointer):
                    parameters[place] = first + 8 * argument.index
                elif isinstance(argument, MapAt):
                    self.slots.append(_MapSlot(plan.maps[number, place], argument.index, parameters, place))
                else:
                    parameters[place] = ctypes.addressof(plan.scalars[argument])
        self.steps = [
            (ctypes.addressof(config), launch.function, ctypes.addressof(parameters), launch.kernel)
            for config, launch, parameters in zip(self.configs, plan.launches, self.tables, strict=True)
        ]


class ReadyPlan:
    """The launches of a plan, ready for arrays at any addresses. Call it from any thread.

    A call gives so many `addresses` as there are here, which are those of arrays that there are now: from them the
    tensor maps are made that later ones are copies of."""

    def __init__(self, driver: Driver, launches: Sequence[ReadyLaunch], addresses: Sequence[int]) -> None:
        self.launches = tuple(launches)
        self.pointers = len(addresses)
        arguments = [(n, place, a) for n, launch in enumerate(launches) for place, a in enumerate(launch.args)]
        # memory that nobody writes to again
        self.scalars = {a: ctypes.create_string_buffer(a) for _, _, a in arguments if isinstance(a, bytes)}
        self.maps = {
            (n, place): TensorMaps(driver, a, addresses[a.index]) for n, place, a in arguments if isinstance(a, MapAt)
        }
        self.driver, self._launch = driver, driver.launch
        self._free: list[_Frame] = []

    def __call__(self, addresses: list[int], stream: int) -> None:
        """Enqueue the launches on a stream of the plan's device, which is current. Raises Fault."""
        try:
            frame = self._free.pop()
        except IndexError:
            frame = _Frame(self)
        frame.table[:] = addresses
        if frame.stream != stream:
            frame.stream = stream
            for config in frame.configs:
                config.stream = stream
        for slot in frame.slots:
            address = addresses[slot.index]
            found = slot.maps.known.get(address) or slot.maps.at(address)
            if found is not slot.held:
                slot.held = found
                slot.parameters[slot.place] = found.address
        for config_at, function, parameters, kernel in frame.steps:
            if status := self._launch(config_at, function, parameters, None):
                self._again(status, config_at, function, parameters, kernel)
        self._free.append(frame)

    def _again(self, status: int, config: int, function: int, parameters: int, kernel: str) -> None:
        """Launch in the context of the device where the thread had none. Raises Fault."""
        if status in NO_CONTEXT and not self.driver.enter():
            status = self._launch(config, function, parameters, None)
        if status:
            raise self.driver.failed(status, kernel)
