"""A GPU for `workbench.ops` without one: arrays of CuPy over the emulator's memory, and a driver that executes launches
there. What a kernel is given is read from the structures that the driver would read."""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import cupy
import numpy as np
import pytest
from cupy.cuda import memory

from workbench import emulator
from workbench.catalogue import registry
from workbench.devices import Fault, tensor_maps
from workbench.devices.cuda import CudaDevice
from workbench.devices.ready import LaunchConfig
from workbench.model import calls
from workbench.model.arrays import Array
from workbench.model.launch import H200, Launch
from workbench.model.results import Verdict
from workbench.model.tensor_map import TensorMap
from workbench.ops import dispatch, launched, prepared
from workbench.ops.arrays import CupyArrays
from workbench.toolchain.compiler import Compiled

RESIDENT = 4
"""Blocks of a persistent launch."""


class _Owner:
    """What an array keeps alive; freed memory is the next one's of that size."""

    def __init__(self, gpu: EmulatedGpu, address: int, nbytes: int) -> None:
        self.gpu, self.address, self.nbytes = gpu, address, nbytes

    def __del__(self) -> None:
        self.gpu.free.setdefault(self.nbytes, []).append(self.address)


class EmulatedGpu(CudaDevice):
    """`log` counts what the hot path may not do, and launches by stream are in `launched`."""

    def __init__(self) -> None:
        self.machine, self.limits = H200, emulator.H200
        self.properties: Mapping[str, Any] = {"name": b"an emulated device", "multiProcessorCount": RESIDENT}
        self.memory = emulator.Memory()
        self.free: dict[int, list[int]] = {}
        self.log: Counter[str] = Counter()
        self.launched: list[tuple[int, str]] = []
        self.programmatic: list[bool] = []  # of each launch
        self.entries: list[tuple[Any, Launch]] = []
        self.maps: list[tuple[TensorMap, Array, int]] = []
        self.refuse: list[int] = []  # statuses of the next launches
        self.stream, self.current, self.captured = 0, 0, False
        self.raised: list[BaseException] = []
        self.entered = 0  # calls of the driver from C
        self._functions = self._in_c()
        self.entry_points = tuple(ctypes.cast(f, ctypes.c_void_p).value for f in self._functions)

    def _in_c(self) -> tuple[Any, ...]:
        """The driver's functions, as C calls them."""
        pointer, number = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)

        def launch(config: int, function: int, parameters: int, extra: None) -> int:
            self.entered += 1
            try:
                return self.launch(config, function, parameters, extra)
            except BaseException as error:
                self.raised.append(error)
                return 999

        def device(out: Any) -> int:
            out[0] = self.current
            return 0

        def capturing(stream: int, out: Any) -> int:
            out[0] = self.captured
            return 0

        typed = ctypes.CFUNCTYPE
        return (
            typed(ctypes.c_int, pointer, pointer, pointer, pointer)(launch),
            typed(ctypes.c_int, pointer, pointer)(lambda at, address: self.replace_address(at, address)),
            typed(ctypes.c_int, number)(device),
            typed(ctypes.c_int, pointer, number)(capturing),
        )

    # memory

    def allocate(self, nbytes: int) -> Any:
        """What CuPy asks for memory."""
        size = max(nbytes, 1)
        if self.free.get(size):
            address = self.free[size].pop()
            self.memory.forget(self.memory.find(address))  # type: ignore[arg-type]
        else:
            address = self.memory.allocate(size, element_size=1).address
        return memory.MemoryPointer(memory.UnownedMemory(address, size, _Owner(self, address, size), 0), 0)

    def upload(self, values: np.ndarray[Any, Any], align: int = 0) -> Any:
        """A CuPy array with these values, which starts `align` bytes behind a multiple of 256."""
        values = np.asarray(values, order="C")
        pointer = self.allocate(values.nbytes + align)
        self.memory.write(pointer.ptr + align, values)
        return cupy.ndarray(values.shape, values.dtype, pointer + align)

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """The values of a CuPy array, which all have been written."""
        allocation = self.memory.find(array.data.ptr)
        raw = allocation.data[array.data.ptr - allocation.address :]
        found = np.lib.stride_tricks.as_strided(
            raw[: array.dtype.itemsize].view(array.dtype), array.shape, array.strides
        )
        written = np.lib.stride_tricks.as_strided(
            self.memory.initialised(allocation)[array.data.ptr - allocation.address :], array.shape, array.strides
        )
        assert written.all()
        return found.copy()

    # what `CudaDevice.ready` asks for

    def loaded(self, compiled: Compiled, launch: Launch) -> int:
        self.log["load"] += 1
        program = emulator.Program.from_ptx(compiled.ptx, compiled.source)
        self.entries.append((program.entries[launch.kernel], launch))
        return len(self.entries)

    def _resident(self, function: int, launch: Launch) -> int:
        return RESIDENT

    @property
    def driver(self) -> Any:  # type: ignore[override]
        return self

    # the driver

    def launch(self, config_at: int, function: int, parameters_at: int, extra: None) -> int:
        if self.refuse:
            return self.refuse.pop(0)
        config = LaunchConfig.from_address(config_at)
        entry, launch = self.entries[function - 1]
        places = (ctypes.c_void_p * len(entry.parameters)).from_address(parameters_at)
        given: list[Any] = []
        for place, parameter, argument in zip(places, entry.parameters, launch.args, strict=True):
            raw = ctypes.string_at(place, parameter.size)
            given.append(self._map(raw) if isinstance(argument, TensorMap) else raw)
        self.launched.append((config.stream or 0, launch.kernel))
        self.programmatic.append(config.attribute_count == 1)
        emulator.execute(
            entry,
            tuple(config.grid),
            tuple(config.block),
            given,
            memory=self.memory,
            cluster=launch.cluster,
            shared_bytes=config.shared_bytes,
        )
        return 0

    def _map(self, raw: bytes) -> Any:
        spec, array, address = self.maps[int.from_bytes(raw[:8], "little")]
        return tensor_maps.emulated(spec, array, address)

    def encode(self, spec: TensorMap, array: Array, address: int) -> bytes:
        self.log["encode"] += 1
        self.maps.append((spec, array, address))
        return (len(self.maps) - 1).to_bytes(128, "little")

    def replace_address(self, tensor_map: int, address: int) -> int:
        assert tensor_map % 64 == 0
        self.log["replace"] += 1
        spec, array, _ = self.maps[int.from_bytes(ctypes.string_at(tensor_map, 8), "little")]
        self.maps.append((spec, array, address - spec.offset * array.dtype.itemsize))
        ctypes.memmove(tensor_map, (len(self.maps) - 1).to_bytes(128, "little"), 128)
        return 0

    def enter(self) -> int:
        self.log["enter"] += 1
        return 0

    def failed(self, status: int, kernel: str) -> BaseException:  # type: ignore[override]
        if self.raised:
            return self.raised.pop()
        return Fault(Verdict.LAUNCH_ERROR, f"the launch of {kernel} was rejected: {status}")


class Gpu:
    """Arrays of a GPU, as `EmulatedGpu` has them of the emulator."""

    @staticmethod
    def upload(values: np.ndarray[Any, Any]) -> Any:
        return cupy.asarray(np.ascontiguousarray(values).view(np.uint8)).view(values.dtype)

    @staticmethod
    def download(array: Any) -> np.ndarray[Any, Any]:
        return array.view(np.uint8).get().view(array.dtype)


class EmulatedArrays(CupyArrays):
    """Arrays of CuPy on an emulated GPU."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        super().__init__()
        self.gpu = gpu
        self.current_device = lambda: gpu.current
        self.stream_of = lambda device=0: types.SimpleNamespace(ptr=gpu.stream)
        self.call = self.hot = launched.kind(stream=lambda: gpu.stream)

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:  # type: ignore[override]
        before, self.gpu.current = self.gpu.current, device
        yield
        self.gpu.current = before

    def copy(self, source: Any, target: Any) -> None:
        self.gpu.memory.write(target.data.ptr, self.gpu.download(source))

    def memory(self, nbytes: int, zero: bool) -> Any:
        self.gpu.log["clear"] += zero
        made = cupy.ndarray((nbytes,), np.uint8)
        if zero:
            self.gpu.memory.write(made.data.ptr, np.zeros(nbytes, np.uint8))
        return made

    def capturing(self) -> bool:
        return self.gpu.captured

    def current_stream(self) -> Any:
        return self.stream_of()

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        return self.gpu.download(array)

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        return self.gpu.upload(values.view(np.uint8))


def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedGpu]:
    """Operations find an emulated GPU, and nothing that was ready before."""
    made = EmulatedGpu()
    arrays = EmulatedArrays(made)
    monkeypatch.setitem(dispatch.KINDS, cupy.ndarray, arrays)
    monkeypatch.setitem(calls.READERS, cupy.ndarray, arrays.read)
    monkeypatch.setitem(calls.HOT, cupy.ndarray, arrays.call)
    monkeypatch.setattr(dispatch, "device_of", lambda number: made)
    monkeypatch.setattr(prepared, "_zero", {})
    for name in ("compile_stage", "choose"):
        monkeypatch.setattr(dispatch, name, _counted(made, name, getattr(dispatch, name)))
    for operation in registry.operations().values():
        if operation.called:
            monkeypatch.setattr(operation.called, "ready", {})
    monkeypatch.setattr(calls, "_solvers", [dispatch.Operators()])
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(made.allocate)
    yield made
    cupy.cuda.set_allocator(before)


def _counted(gpu: EmulatedGpu, name: str, function: Any) -> Any:
    def counted(*arguments: Any) -> Any:
        gpu.log[name] += 1
        return function(*arguments)

    return counted
