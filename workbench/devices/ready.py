"""Plans that are ready to be launched: one call of the driver a launch, with parameters that are packed already.

What a launch is given changes from one to the next in addresses and the stream alone. A frame holds the structures
that the driver reads, with the addresses of arrays side by side; who launches takes a frame, writes addresses and
stream, and puts it back. So threads need no lock, and the driver may be called without the interpreter's.

A tensor map depends on its address alone, as the array's layout is that of the plan: maps are kept by address, and stay
right when memory is freed and another array lies there.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..model.arrays import Array
from ..model.launch import Argument, Dim3
from ..model.tensor_map import TensorMap

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

    def encode(self, spec: TensorMap, array: Array, address: int) -> bytes:
        """The bytes of a tensor map of an array at this address. Raises Fault."""

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


@dataclass(frozen=True)
class ReadyLaunch:
    """A launch whose kernel is loaded; `function` is its CUfunction."""

    kernel: str
    function: int
    grid: Dim3
    block: Dim3
    shared_bytes: int
    args: tuple[Argument, ...]


class _Map:
    """A tensor map in memory of its own, 64-byte aligned."""

    __slots__ = ("_memory", "address")

    def __init__(self, content: bytes) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + 64)
        self.address = (ctypes.addressof(self._memory) + 63) & ~63
        ctypes.memmove(self.address, content, MAP_BYTES)


class TensorMaps:
    """The maps of one argument of a launch, by the address of its array."""

    def __init__(self, driver: Driver, spec: TensorMap, array: Array, address: int) -> None:
        self._driver, self._spec, self._array = driver, spec, array
        self._first = driver.encode(spec, array, address)
        self._offset = spec.offset * array.dtype.itemsize
        self.known: dict[int, _Map] = {address: _Map(self._first)}

    def at(self, address: int) -> _Map:
        """The map of memory at an address for which there was none."""
        made = _Map(self._first)
        if self._driver.replace_address(made.address, address + self._offset):
            made = _Map(self._driver.encode(self._spec, self._array, address))
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


class _Frame:
    """What the driver reads of one call of a plan: nobody else's while it is out of `ReadyPlan._free`."""

    __slots__ = ("configs", "slots", "steps", "stream", "table", "tables")

    def __init__(self, plan: ReadyPlan) -> None:
        self.stream = -1
        self.table = (ctypes.c_uint64 * max(plan.pointers, 1))()
        self.configs = [LaunchConfig(launch.grid, launch.block, launch.shared_bytes) for launch in plan.launches]
        self.slots: list[_MapSlot] = []
        self.tables = [(ctypes.c_void_p * max(len(launch.args), 1))() for launch in plan.launches]
        first = ctypes.addressof(self.table)
        for number, (launch, parameters) in enumerate(zip(plan.launches, self.tables, strict=True)):
            for place, argument in enumerate(launch.args):
                if isinstance(argument, str):
                    parameters[place] = first + 8 * plan.index[argument]
                elif isinstance(argument, TensorMap):
                    maps = plan.maps[number, place]
                    self.slots.append(_MapSlot(maps, plan.index[argument.array], parameters, place))
                else:
                    parameters[place] = plan.scalars.address(argument)
        self.steps = [
            (ctypes.addressof(config), launch.function, ctypes.addressof(parameters), launch.kernel)
            for config, launch, parameters in zip(self.configs, plan.launches, self.tables, strict=True)
        ]


class _Scalars:
    """The scalar arguments of a plan, in memory that nobody writes to again."""

    def __init__(self, launches: Sequence[ReadyLaunch]) -> None:
        scalars = [a for launch in launches for a in launch.args if not isinstance(a, str | TensorMap)]
        self._kept = {content: ctypes.create_string_buffer(content) for content in {a.tobytes() for a in scalars}}

    def address(self, argument: np.generic) -> int:
        return ctypes.addressof(self._kept[argument.tobytes()])


class ReadyPlan:
    """The launches of a plan, ready for arrays at any addresses. Call it from any thread.

    A call gives so many `addresses` as there are here, which are those of arrays that there are now: from them the
    tensor maps are made that later ones are copies of. `index` says which of them is the address of an array of the
    launches, and `arrays` what lies there. Raises Fault.
    """

    def __init__(
        self,
        driver: Driver,
        launches: Sequence[ReadyLaunch],
        index: Mapping[str, int],
        arrays: Mapping[str, Array],
        addresses: Sequence[int],
    ) -> None:
        self.launches, self.index = tuple(launches), index
        self.pointers = len(addresses)
        self.scalars = _Scalars(self.launches)
        self.maps = {
            (number, place): TensorMaps(driver, argument, arrays[argument.array], addresses[index[argument.array]])
            for number, launch in enumerate(self.launches)
            for place, argument in enumerate(launch.args)
            if isinstance(argument, TensorMap)
        }
        self._driver, self._launch = driver, driver.launch
        self._pack = struct.Struct(f"={self.pointers}Q").pack_into
        self._free: list[_Frame] = []

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue the launches on a stream of the plan's device, which is current. Raises Fault."""
        try:
            frame = self._free.pop()
        except IndexError:
            frame = _Frame(self)
        self._pack(frame.table, 0, *addresses)
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
        if status in NO_CONTEXT and not self._driver.enter():
            status = self._launch(config, function, parameters, None)
        if status:
            raise self._driver.failed(status, kernel)
