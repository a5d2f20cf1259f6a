"""Launches kernels that are compiled already, on arrays of CuPy or PyTorch: needs one of the two, and the CUDA driver.

Written by `workbench export`. `launches.json` has the classes of calls that were exported: shapes, strides and dtypes
of the arrays and the options on one side, on the other the launches that solve them.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import threading
from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .ready import LaunchAttribute, LaunchConfig, MapAt, Pointer, ReadyLaunch, ReadyPlan

SHARED_BYTES, MULTIPROCESSORS, MAJOR, MINOR = 8, 16, 75, 76  # of cuFuncSetAttribute; of cuDeviceGetAttribute
PER_THREAD = 2  # the handle that stands for a default stream of every thread
CLUSTER_DIMENSION = 4  # of CUlaunchAttributeID


class LaunchError(RuntimeError):
    """The CUDA driver does not take a launch, or a kernel before it has failed."""


class Driver:
    """The CUDA driver in the primary context of a device."""

    def __init__(self, device: int) -> None:
        self.library = library = ctypes.CDLL("libcuda.so.1")
        library.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
        library.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
        self.launch, self.replace_address = library.cuLaunchKernelEx, library.cuTensorMapReplaceAddress
        self.context, self.functions, self.handle = ctypes.c_void_p(), {}, ctypes.c_int()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(self.handle), device)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.handle)
        self.architecture = 10 * self._attribute(MAJOR) + self._attribute(MINOR)
        self.multiprocessors = self._attribute(MULTIPROCESSORS)

    def _do(self, name: str, *arguments: Any) -> None:
        if status := getattr(self.library, name)(*arguments):
            raise self.failed(status, name)

    def _attribute(self, which: int) -> int:
        found = ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(found), which, self.handle)
        return found.value

    def enter(self) -> int:
        return self.library.cuCtxSetCurrent(self.context)

    def failed(self, status: int, kernel: str) -> LaunchError:
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(status, ctypes.byref(text))
        return LaunchError(f"{kernel}: {(text.value or b'').decode()} (CUDA error {status})")

    def function(self, path: str, kernel: str, shared_bytes: int) -> int:
        """The kernel of a cubin, with as much dynamic shared memory as any launch of it so far asks for."""
        self.enter()
        known = self.functions.get((path, kernel))
        if known is None:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self._do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(Path(path).read_bytes()))
            self._do("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
            known = self.functions[path, kernel] = [function, 0]
        if shared_bytes > known[1]:
            self._do("cuFuncSetAttribute", known[0], SHARED_BYTES, shared_bytes)
            known[1] = shared_bytes
        return known[0].value

    def resident(self, function: int, launch: Mapping[str, Any]) -> int:
        """Blocks of a launch that the device holds at once."""
        found, pointer = ctypes.c_int(), ctypes.c_void_p(function)
        threads, shared = math.prod(launch["block"]), ctypes.c_size_t(launch["shared_bytes"])
        self._do("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(found), pointer, threads, shared)
        most, in_cluster = found.value * self.multiprocessors, math.prod(launch["cluster"])
        if in_cluster == 1:
            return most
        attribute = LaunchAttribute(CLUSTER_DIMENSION, 0, tuple(launch["cluster"]))
        whole = max(launch["cluster"][0], most - most % launch["cluster"][0])
        grid = (min(launch["grid"][0], whole), *launch["grid"][1:])
        config = LaunchConfig(grid, tuple(launch["block"]), launch["shared_bytes"])
        config.attributes, config.attribute_count = ctypes.addressof(attribute), 1
        self._do("cuOccupancyMaxActiveClusters", ctypes.byref(found), pointer, ctypes.byref(config))
        return found.value * in_cluster

    def encode(self, layout: Mapping[str, Any], address: int) -> bytes:
        """The bytes of a tensor map, which the driver wants at a multiple of 64."""
        memory = ctypes.create_string_buffer(192)
        start = (ctypes.addressof(memory) + 63) & ~63

        def numbers(kind: Any, values: Sequence[int]) -> Any:
            return (kind * len(values))(*values)

        last = (layout["interleave"], layout["swizzle"], layout["promotion"], layout["fill"])
        first = (
            ctypes.c_void_p(start),
            layout["data_type"],
            len(layout["sizes"]),
            ctypes.c_void_p(address + layout["offset"]),
            numbers(ctypes.c_uint64, layout["sizes"]),
            numbers(ctypes.c_uint64, layout["strides"] or [16]),
        )
        steps = numbers(ctypes.c_uint32, layout["element_strides"])
        if "box" in layout:
            box = numbers(ctypes.c_uint32, layout["box"])
            self._do("cuTensorMapEncodeTiled", *first, box, steps, *last)
        else:
            corners = [numbers(ctypes.c_int, layout[name]) for name in ("lower", "upper")]
            self._do("cuTensorMapEncodeIm2col", *first, *corners, layout["channels"], layout["pixels"], steps, *last)
        return ctypes.string_at(start, 128)


@cache
def driver_of(device: int) -> Driver:
    """The driver of a device, made once."""
    return Driver(device)


class CupyArrays:
    """Arrays of CuPy."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy

    def read(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], list[int]]:
        addresses = [array.data.ptr for array in arrays]
        key = tuple(part for a in arrays for part in (a.shape, a.strides, a.dtype, a.data.device_id))
        return key, addresses

    def about(self, array: Any) -> tuple[tuple[int, ...], tuple[int, ...], str, int]:
        steps = tuple(step // array.itemsize for step in array.strides)
        return array.shape, steps, str(array.dtype), array.data.device_id

    def new(self, shape: Sequence[int], steps: Sequence[int], dtype: str, device: Any) -> Any:
        flat = self.cupy.ndarray((span(shape, steps),), named(dtype))
        return self.cupy.ndarray(shape, flat.dtype, flat.data, [step * flat.itemsize for step in steps])

    def memory(self, nbytes: int, zero: bool, device: int) -> Any:
        return (self.cupy.zeros if zero else self.cupy.empty)(nbytes, "uint8")

    def copy(self, source: Any, target: Any) -> None:
        target[...] = source

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def stream(self, device: int) -> tuple[int, Any]:
        stream = self.cupy.cuda.get_current_stream()
        return stream.ptr, stream.is_capturing

    def on(self, device: int) -> Any:
        return self.cupy.cuda.Device(device)


class TorchArrays:
    """Tensors of PyTorch."""

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def read(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], list[int]]:
        addresses = [array.data_ptr() for array in arrays]
        key = tuple(part for a in arrays for part in (a.shape, a.stride(), a.dtype, a.get_device()))
        return key, addresses

    def about(self, array: Any) -> tuple[tuple[int, ...], tuple[int, ...], str, int]:
        name = str(array.dtype).removeprefix("torch.")
        bits = "uint8" if name.startswith("float8") else name
        return tuple(array.shape), tuple(array.stride()), bits, array.get_device()

    def new(self, shape: Sequence[int], steps: Sequence[int], dtype: str, device: Any) -> Any:
        where = f"cuda:{device}" if isinstance(device, int) else device
        return self.torch.empty_strided(shape, steps, dtype=getattr(self.torch, dtype), device=where)

    def memory(self, nbytes: int, zero: bool, device: int) -> Any:
        return (self.torch.zeros if zero else self.torch.empty)(nbytes, dtype=self.torch.uint8, device=f"cuda:{device}")

    def copy(self, source: Any, target: Any) -> None:
        target.copy_(source)

    def pointer(self, array: Any) -> int:
        return array.data_ptr()

    def stream(self, device: int) -> tuple[int, Any]:
        return self.torch.cuda.current_stream(device).cuda_stream, self.torch.cuda.is_current_stream_capturing

    def on(self, device: int) -> Any:
        return self.torch.cuda.device(device)


KINDS = {"cupy": CupyArrays, "torch": TorchArrays}


@cache
def kind_of(package: str) -> Any:
    """The kind of arrays of a package."""
    return KINDS[package]()


def span(shape: Sequence[int], steps: Sequence[int]) -> int:
    """Elements from the first to the last."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))


def named(dtype: str) -> Any:
    """A dtype of NumPy by its name."""
    import numpy

    if dtype == "bfloat16":
        import ml_dtypes

        return numpy.dtype(ml_dtypes.bfloat16)
    return numpy.dtype(dtype)


class Ready:
    """A class of calls on a device, whose launches are packed at the first one."""

    def __init__(self, folder: Path, solved: Mapping[str, Any], kind: Any, device: int) -> None:
        self.folder, self.solved, self.kind, self.device = folder, solved, kind, device
        self.plan: ReadyPlan | None = None
        self.zero: dict[tuple[int, int, int], Any] = {}
        self.captured: list[Any] = []

    def __call__(self, arrays: Sequence[Any], addresses: Sequence[int], out: Sequence[Any]) -> Sequence[Any]:
        kind, solved = self.kind, self.solved
        with kind.on(self.device):
            results = out or [kind.new(r["shape"], r["strides"], r["dtype"], self.device) for r in solved["results"]]
            for result, about in zip(results, solved["results"], strict=True):
                if about["starts_as"] is not None:
                    kind.copy(arrays[about["starts_as"]], result)
            stream, capturing = kind.stream(self.device)
            kept = [self.scratch(n, s, stream, capturing) for n, s in enumerate(solved["scratch"])]
            addresses = [*addresses, *map(kind.pointer, [*results, *kept])]
            if self.plan is None:
                self.plan = self.packed(addresses)
            self.plan(addresses, stream)
        return results

    def scratch(self, number: int, about: Mapping[str, Any], stream: int, capturing: Any) -> Any:
        """Memory between launches: what has to be zero, and is left zero, is kept by stream."""
        if capturing():  # a graph may run beside the stream, and later
            self.captured.append(self.kind.memory(about["nbytes"], about["zero"], self.device))
            return self.captured[-1]
        if not about["zero"] or len(self.solved["launches"]) > 1:
            # between the launches of a call another thread may launch on the same stream
            return self.kind.memory(about["nbytes"], about["zero"], self.device)
        key = (stream, threading.get_ident() if stream == PER_THREAD else 0, number)
        if key not in self.zero:
            self.zero[key] = self.kind.memory(about["nbytes"], True, self.device)
        return self.zero[key]

    def packed(self, addresses: Sequence[int]) -> ReadyPlan:
        driver, launches = driver_of(self.device), []
        if driver.architecture // 10 != self.solved["architecture"] // 10:
            wanted = self.solved["architecture"]
            raise LaunchError(f"the kernels are compiled for sm_{wanted}, the device is sm_{driver.architecture}")
        for launch in self.solved["launches"]:
            path = str(self.folder / "kernels" / launch["module"])
            function = driver.function(path, launch["kernel"], launch["shared_bytes"])
            grid = tuple(launch["grid"])
            if launch["persistent"]:
                grid = (even_blocks(launch, driver.resident(function, launch)), *grid[1:])
            args = tuple(argument(driver, about) for about in launch["args"])
            shape = grid, tuple(launch["block"]), launch["shared_bytes"]
            launches.append(ReadyLaunch(launch["kernel"], function, *shape, args, launch["programmatic"]))
        return ReadyPlan(driver, launches, addresses)


def argument(driver: Driver, about: Mapping[str, Any]) -> Pointer | MapAt | bytes:
    """An argument of a launch as `ReadyPlan` takes it."""
    if "scalar" in about:
        return bytes.fromhex(about["scalar"])
    if "layout" not in about:
        return Pointer(about["index"])
    layout = about["layout"]
    return MapAt(about["index"], layout["offset"], lambda address: driver.encode(layout, address))


def even_blocks(launch: Mapping[str, Any], resident: int) -> int:
    """How many blocks take as few rounds as the device can do, each with as much work as the others."""
    blocks, cluster = launch["grid"][0], launch["cluster"][0]
    most = min(blocks, max(cluster, resident - resident % cluster))
    each = -(-blocks // -(-blocks // most))
    return -(-each // cluster) * cluster


class Exported:
    """An operation: call it with arrays of CuPy or tensors, and options. `classes` are those that were exported."""

    def __init__(self, folder: Path) -> None:
        about = json.loads((folder / "launches.json").read_text())
        self.__name__, self.__doc__ = about["operation"], about["summary"]
        self.folder, self.arrays, self.options, self.classes = (
            folder,
            about["arrays"],
            about["options"],
            about["classes"],
        )
        self.ready: dict[Any, Ready] = {}
        self.lock = threading.Lock()
        self.outputs = namedtuple(f"{self.__name__}_outputs", [r["name"] for r in self.classes[0]["results"]])

    def __call__(self, *arrays: Any, out: Any = None, **options: Any) -> Any:
        if len(arrays) != len(self.arrays):
            raise TypeError(f"{self.__name__} takes {', '.join(self.arrays)}, and {len(arrays)} arrays are given")
        package = type(arrays[0]).__module__.partition(".")[0]
        if package not in KINDS:
            raise TypeError(f"{self.__name__}: {self.arrays[0]} is of {package}; arrays are of {' or '.join(KINDS)}")
        outs = [] if out is None else list(out) if isinstance(out, tuple) else [out]
        kind = kind_of(package)
        key, addresses = kind.read((*arrays, *outs))
        known = (key, *sorted(options.items()))
        ready = self.ready.get(known)
        if ready is None:
            solved = self.solved(
                [kind.about(array) for array in arrays], options, [kind.about(array) for array in outs]
            )
            with self.lock:
                ready = self.ready.setdefault(known, Ready(self.folder, solved, kind, kind.about(arrays[0])[3]))
        if any(address % ready.solved["alignment"] for address in addresses):
            raise ValueError(f"{self.__name__}: arrays have to start at multiples of {ready.solved['alignment']} bytes")
        results = ready(arrays, addresses[: len(arrays)], outs)
        if out is not None:
            return out
        return results[0] if len(results) == 1 else self.outputs(*results)

    def solved(self, arrays: Sequence[Any], options: Mapping[str, Any], outs: Sequence[Any] = ()) -> Mapping[str, Any]:
        """The class of a call. Raises ValueError and TypeError where none was exported."""
        if unknown := set(options) - set(self.options):
            raise TypeError(f"{self.__name__} has no option {', '.join(sorted(unknown))}; there are {self.options}")
        wanted = {**self.options, **options}
        for solved in self.classes:
            right = [(i["shape"], i["strides"], i["dtype"]) for i in solved["inputs"]]
            if solved["options"] == wanted and all(map(same, arrays, right)):
                results = [(r["shape"], r["strides"], r["dtype"]) for r in solved["results"]]
                if outs and not (len(outs) == len(results) and all(map(same, outs, results))):
                    raise ValueError(f"{self.__name__}: out has to be of shape, strides and dtype {results}")
                return solved
        known = "; ".join(solved["problem"] for solved in self.classes)
        given = ", ".join(f"{name} {a[0]} {a[2]}" for name, a in zip(self.arrays, arrays, strict=True))
        raise ValueError(f"{self.__name__}: {given} with {wanted} was not exported. There are: {known}")

    def torch_operator(self, namespace: str) -> Any:
        """Registers `torch.ops.NAMESPACE.NAME`, with a fake kernel, and returns it."""
        torch = sys.modules.get("torch") or __import__("torch")
        types = {bool: "bool", int: "int", float: "float", str: "str"}
        parts = [f"Tensor {name}" for name in self.arrays] + (["*"] if self.options else [])
        for name, default in self.options.items():
            parts.append(f"{types[type(default)]} {name}={json.dumps(default) if type(default) is str else default}")
        count = len(self.classes[0]["results"])
        gives = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        self.library = torch.library.Library(namespace, "FRAGMENT")
        self.library.define(f"{self.__name__}({', '.join(parts)}) -> {gives}")

        def solve(*arrays: Any, **options: Any) -> Any:
            with torch.no_grad():
                found = self(*arrays, **options)
            return found if count == 1 else tuple(found)

        def fake(*arrays: Any, **options: Any) -> Any:
            kind = kind_of("torch")
            about = [kind.about(array) for array in arrays]
            solved = self.solved([(tuple(map(int, a[0])), tuple(map(int, a[1])), *a[2:]) for a in about], options)
            made = [kind.new(r["shape"], r["strides"], r["dtype"], arrays[0].device) for r in solved["results"]]
            return made[0] if count == 1 else tuple(made)

        self.library.impl(self.__name__, solve, "CUDA")
        torch.library.register_fake(f"{namespace}::{self.__name__}", fake, lib=self.library)
        return getattr(getattr(torch.ops, namespace), self.__name__)


def same(given: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether an array is of this shape and dtype, and of these strides where they matter."""
    shape, steps, dtype = given[:3]
    if list(shape) != right[0] or dtype != right[2]:
        return False
    return all(n == 1 or a == b for n, a, b in zip(shape, steps, right[1], strict=True))
