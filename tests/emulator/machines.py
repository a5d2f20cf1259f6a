"""Where the kernels of ``batches.py`` run: the emulator, or a CUDA device through CuPy."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from batches import Array, Kernel, Tensor

from workbench.emulator import Memory, PixelBox, Program, TensorMap, execute
from workbench.emulator.memory import ELEMENT_TYPES


class Rejected(Exception):
    """The device's assembler refuses a kernel; the text is its log."""


class Machine(Protocol):
    """Runs a kernel and gives its array arguments as they are afterwards."""

    def run(self, kernel: Kernel) -> list[Array]: ...


class Emulated:
    """The emulator, all checks on."""

    def run(self, kernel: Kernel) -> list[Array]:
        memory = Memory()
        allocations: list[Any] = [
            memory.upload(a, f"argument {n}") if _is_array(a) else a for n, a in enumerate(kernel.arguments)
        ]
        arguments = []
        for argument in allocations:
            if isinstance(argument, Tensor):
                t = argument
                argument = TensorMap(
                    allocations[t.array],
                    ELEMENT_TYPES[t.element_type][1],
                    t.shape,
                    t.strides,
                    t.box,
                    t.element_strides,
                    t.swizzle,
                    nan_fill=t.nan_fill,
                    element_type=t.element_type,
                )
            if isinstance(argument, np.ndarray):
                argument = argument.tobytes()
            arguments.append(int(argument) if isinstance(argument, np.integer) else argument)
        execute(Program.from_ptx(kernel.text).entries["k"], kernel.grid, kernel.block, arguments, memory=memory)
        return [
            memory.read(place, given.dtype, given.shape)
            for place, given in zip(allocations, kernel.arguments, strict=True)
            if _is_array(given)
        ]


class Assembled(Emulated):
    """The emulator behind NVIDIA's assembler, which must accept every kernel: ``ptxas`` has to be on the path."""

    def run(self, kernel: Kernel) -> list[Array]:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "kernel.ptx"
            source.write_text(kernel.text)
            command = ["ptxas", "-arch", "sm_90a", "-O0", "-o", str(Path(folder) / "kernel.cubin"), str(source)]
            result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise Rejected(result.stdout + result.stderr)
        return super().run(kernel)


def _is_array(argument: Any) -> bool:
    """Whether an argument is an array on the device; one of an opaque dtype is a struct by value."""
    return isinstance(argument, np.ndarray) and argument.dtype.type is not np.void


class Cuda:
    """The current CUDA device. The driver compiles the PTX; an error of a launch is raised when it is waited for."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        cupy.cuda.Device().use()
        cupy.zeros(1)  # makes the context
        self.loaded: dict[str, Any] = {}

    def function(self, text: str) -> Any:
        """The entry of a module, which is compiled once."""
        if text not in self.loaded:
            loaded = self.cupy.cuda.function.Module()
            try:
                loaded.load(text.encode() + b"\0")
            except self.cupy.cuda.driver.CUDADriverError as error:
                raise Rejected(f"{error}\n{_log(text)}") from None
            self.loaded[text] = loaded.get_function("k")
        return self.loaded[text]

    def run(self, kernel: Kernel) -> list[Array]:
        cupy = self.cupy
        function = self.function(kernel.text)
        buffers = [cupy.asarray(a.view(np.uint8).ravel()) if _is_array(a) else None for a in kernel.arguments]
        arguments = []
        for given, buffer in zip(kernel.arguments, buffers, strict=True):
            if isinstance(given, Tensor):
                arguments.append(_encode(given, buffers[given.array].data.ptr))
            else:
                arguments.append(given if buffer is None else buffer)
        function((kernel.grid,), (kernel.block,), tuple(arguments))
        cupy.cuda.runtime.deviceSynchronize()
        return [
            buffer.get().view(given.dtype).reshape(given.shape)
            for buffer, given in zip(buffers, kernel.arguments, strict=True)
            if _is_array(given)
        ]


def _log(text: str) -> str:
    """What the driver's assembler says of PTX that it refuses, in the words of ptxas."""
    from cuda.bindings import driver

    log = bytes(1 << 16)  # written by the driver
    options = driver.CUjit_option
    keys = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    try:
        driver.cuModuleLoadDataEx(text.encode() + b"\0", len(keys), keys, [log, len(log)])
    except Exception as error:  # without a log the form is found by halving
        return f"no log: {error}"
    return log.partition(b"\0")[0].decode(errors="replace")


def _encode(tensor: Tensor, address: int) -> Array:
    """The 128-byte tensor map, as an array of one element that CuPy passes by value."""
    from cuda.bindings import driver

    rank, box = len(tensor.shape), tensor.box
    tensor_of: list[Any] = [
        driver.CUtensorMapDataType(ELEMENT_TYPES[tensor.element_type][0]),
        rank,
        address,
        [driver.cuuint64_t(n) for n in tensor.shape],
        [driver.cuuint64_t(n) for n in tensor.strides or (16,)],  # of one dimension nothing is read
    ]
    options = [
        [driver.cuuint32_t(n) for n in tensor.element_strides or (1,) * rank],
        driver.CUtensorMapInterleave(0),
        driver.CUtensorMapSwizzle({0: 0, 32: 1, 64: 2, 128: 3}[tensor.swizzle]),
        driver.CUtensorMapL2promotion(0),
        driver.CUtensorMapFloatOOBfill(int(tensor.nan_fill)),
    ]
    if isinstance(box, PixelBox):
        pixels = [list(box.lower), list(box.upper), box.channels, box.pixels]
        error, encoded = driver.cuTensorMapEncodeIm2col(*tensor_of, *pixels, *options)
    else:
        error, encoded = driver.cuTensorMapEncodeTiled(*tensor_of, [driver.cuuint32_t(n) for n in box], *options)
    if int(error):
        raise RuntimeError(f"the driver refuses a tensor map: {error}")
    return np.frombuffer(ctypes.string_at(int(encoded.getPtr()), 128), np.dtype("V128")).copy()
