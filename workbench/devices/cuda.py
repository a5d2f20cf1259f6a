"""A CUDA device, through CuPy."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..model.arrays import Array
from ..model.launch import Argument, Dim3, Launch, Machine, Plan
from ..model.results import DeviceInfo, Verdict
from ..model.tensor_map import TensorMap
from ..toolchain.compiler import Compiled, compile_source
from . import base, tensor_maps
from .base import DeviceUnavailable, Fault, OnMachine
from .lending import Lent, borrowed
from .ready import MapAt, Pointer, ReadyLaunch, ReadyPlan

FLOPS_PER_CLOCK = {
    90: {
        **{"fp64": 256, "fp32": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096},
        **{"e4m3": 8192, "e5m2": 8192, "int8": 8192, "uint8": 8192},
    }
}
"""Floating-point operations a clock and multiprocessor (a multiply-add counts two), dense, by compute capability.

Source: NVIDIA H100 Tensor Core GPU Architecture whitepaper, table of throughputs per SM."""

VERDICTS = {
    700: Verdict.ILLEGAL_ACCESS,  # cudaErrorIllegalAddress
    702: Verdict.TIMEOUT,  # cudaErrorLaunchTimeout
    710: Verdict.ASSERTION,  # cudaErrorAssert
    714: Verdict.ILLEGAL_ACCESS,  # cudaErrorHardwareStackError
    715: Verdict.TRAP,  # cudaErrorIllegalInstruction
    716: Verdict.MISALIGNED,  # cudaErrorMisalignedAddress
    717: Verdict.ILLEGAL_ACCESS,  # cudaErrorInvalidAddressSpace
    718: Verdict.ILLEGAL_ACCESS,  # cudaErrorInvalidPc
    719: Verdict.CRASH,  # cudaErrorLaunchFailure: in a way that has no error of its own, such as __trap()
}
"""What the errors of a running kernel are called; any other is a LAUNCH_ERROR."""


def _runtime() -> Any:
    """The CUDA runtime as CuPy has it, which takes 0.1 s to load as a whole, and this part of it some milliseconds."""
    from cupy_backends.cuda.api import runtime

    return runtime


def require_gpu() -> None:
    """Raises DeviceUnavailable where there is no CUDA device that CuPy can use. Creates no CUDA context."""
    try:
        count = _runtime().getDeviceCount()
    except ImportError:
        raise DeviceUnavailable(
            "CuPy is not installed; install it with: pip install 'kernel-workbench[cuda13]'"
        ) from None
    except Exception as error:
        raise DeviceUnavailable(
            f"no CUDA device can be used here ({error}); use --device emulator, or install an NVIDIA driver"
        ) from None
    if count == 0:
        raise DeviceUnavailable("the CUDA driver sees no device; use --device emulator")


SPOIL_SHARED = Path(__file__).with_name("spoil_shared.cu")


class CudaDevice(OnMachine):
    """The current CUDA device. Raises DeviceUnavailable where there is none that CuPy can use.

    A `bare` one leaves memory to a tool that watches it: no red zones, outputs not filled, shared memory not spoilt."""

    name, times = "cuda", True

    def __init__(self, *, bare: bool = False) -> None:
        require_gpu()
        self.bare = bare
        self._modules: dict[str, Any] = {}
        self._dynamic: dict[tuple[str, str], int] = {}
        self._lost: str | None = None
        properties = _runtime().getDeviceProperties(_runtime().getDevice())
        self.properties: Mapping[str, Any] = properties
        self.machine = Machine(
            architecture=properties["major"] * 10 + properties["minor"],
            multiprocessors=properties["multiProcessorCount"],
            shared_bytes=properties["sharedMemPerBlockOptin"],
            registers=properties["regsPerMultiprocessor"],
        )
        self.limits = base.limits_of(properties["name"].decode(), self.architecture, properties)

    @cached_property
    def _cupy(self) -> Any:
        import cupy

        return cupy

    def begin(self) -> None:
        """Make the context: whoever opens a device will launch something soon."""
        with contextlib.suppress(Exception):  # of many kinds: who uses the device says so
            self._cupy.cuda.runtime.free(0)

    def info(self) -> DeviceInfo:
        from ..toolchain import nvml

        p, state = self.properties, nvml.static_info()
        sms, sm_mhz, memory_mhz, bus = (
            p["multiProcessorCount"],
            state.sm_clock_mhz,
            state.memory_clock_mhz,
            p["memoryBusWidth"],
        )
        per_clock = FLOPS_PER_CLOCK.get(self.architecture, {})
        formulas = {
            "bytes_per_s": f"{memory_mhz} MHz x 2 (double data rate) x {bus} bit / 8",
            **{t: f"{sms} SMs x {sm_mhz} MHz x {n} operations a clock" for t, n in per_clock.items()},
        }
        return DeviceInfo(
            kind=self.name,
            name=p["name"].decode(),
            architecture=f"sm_{self.architecture}",
            sm_count=sms,
            memory_bytes=p["totalGlobalMem"],
            l2_bytes=p["l2CacheSize"],
            driver=state.driver,
            chip=state.chip,
            sm_clock_mhz=sm_mhz,
            memory_clock_mhz=memory_mhz,
            power_limit_w=state.power_limit_w,
            peak_bytes_per_s=memory_mhz * 1e6 * 2 * bus / 8,
            peak_flops={t: sms * sm_mhz * 1e6 * n for t, n in per_clock.items()},
            peak_formulas=formulas,
        )

    def function(self, compiled: Compiled, launch: Launch) -> Any:
        """The loaded kernel of a launch, its dynamic shared memory allowed. Raises Fault."""
        if self._lost:
            raise Fault(Verdict.LAUNCH_ERROR, f"the CUDA context was lost before: {self._lost}")
        try:
            module = self._modules.get(compiled.key)
            if module is None:
                module = self._modules[compiled.key] = self._cupy.RawModule(path=str(compiled.cubin_path))
            function = module.get_function(launch.kernel)
            # more has to be asked for, and never less than a launch that is ready has asked for
            most = max(launch.shared_bytes, self._dynamic.get((compiled.key, launch.kernel), 0))
            if function.shared_size_bytes + most > 48 * 1024:
                function.max_dynamic_shared_size_bytes = self._dynamic[compiled.key, launch.kernel] = most
        except Exception as error:
            raise Fault(Verdict.LAUNCH_ERROR, f"{launch.kernel} cannot be loaded: {error}") from None
        return function

    def loaded(self, compiled: Compiled, launch: Launch) -> int:
        """The same as the driver has it, CUfunction, without CuPy. Raises Fault."""
        if self._lost:
            raise Fault(Verdict.LAUNCH_ERROR, f"the CUDA context was lost before: {self._lost}")
        return self.driver.function(compiled, launch.kernel, launch.shared_bytes)

    def synchronize(self) -> None:
        """Wait for the device. Raises Fault for an error of any launch since the last call."""
        try:
            self._cupy.cuda.runtime.deviceSynchronize()
        except Exception as error:
            self._lost = str(error)
            raise self.fault(error, "the launch failed on the device") from None

    def fault(self, error: Exception, what: str) -> Fault:
        """An error of the runtime or the driver as a Fault; the context may be lost with it."""
        status = getattr(error, "status", 0)
        if status in VERDICTS:
            self._lost = str(error)
        return Fault(VERDICTS.get(status, Verdict.LAUNCH_ERROR), f"{what}: {error}")

    @property
    def lost(self) -> bool:
        """Whether an earlier failure has made the CUDA context of this process unusable."""
        return self._lost is not None

    def rolled(self, buffer: Any, count: int) -> Any:
        """A copy of device memory whose bytes have been moved along cyclically."""
        return self._cupy.roll(buffer, count)

    def empty(self, nbytes: int) -> Any:
        """Fresh device memory."""
        return self._cupy.empty(nbytes, np.uint8)

    def filled(self, nbytes: int) -> Any:
        """Fresh device memory, every byte 0xff."""
        memory = self.empty(nbytes)
        forget(memory)
        return memory

    def bind(
        self,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int = 0,
        beside: CudaPlan | None = None,
    ) -> CudaPlan:
        """See `Device`. What `beside` has of these arrays serves this plan, too: how fast a kernel is depends on where
        its arrays lie, by up to 10 % of small ones."""
        return CudaPlan(self, compiled, plan, {**arrays, **plan.scratch}, storage, seed, beside)

    def prepare(
        self, compiled: Compiled, launch: Launch, arrays: Mapping[str, Array], pointers: Mapping[str, int]
    ) -> Any:
        """A function that enqueues one launch on the current stream, its arguments already encoded. Raises Fault."""
        if launch.programmatic:  # which CuPy has no argument for
            index, addresses = {name: place for place, name in enumerate(pointers)}, list(pointers.values())
            plan = self.ready(compiled, Plan((launch,)), index, arrays, addresses)
            return lambda: plan(addresses, self._cupy.cuda.get_current_stream().ptr)
        base.check(compiled, launch, arrays, pointers, self.limits)
        function = self.function(compiled, launch)
        args = tuple(self._argument(a, arrays, pointers) for a in launch.args)
        grid = self._grid(function.kernel.ptr, launch)
        return lambda: function(grid, launch.block, args, shared_mem=launch.shared_bytes)

    def ready(
        self,
        compiled: Compiled,
        plan: Plan,
        index: Mapping[str, int],
        arrays: Mapping[str, Array],
        addresses: Sequence[int],
    ) -> ReadyPlan:
        """The launches of a plan as a function of addresses, on any stream, as `ReadyPlan` says.

        `index` says which address is that of an array. They are checked with the addresses that there are now. This
        device is the current one. Raises Fault."""
        launches, pointers = [], {name: addresses[place] for name, place in index.items()}
        for launch in plan.launches:
            base.check(compiled, launch, arrays, pointers, self.limits)
            function = self.loaded(compiled, launch)
            args = tuple(self._ready(a, arrays, index) for a in launch.args)
            shape = self._grid(function, launch), launch.block, launch.shared_bytes
            launches.append(ReadyLaunch(launch.kernel, function, *shape, args, launch.programmatic))
        return ReadyPlan(self.driver, launches, addresses)

    def _ready(
        self, argument: Argument, arrays: Mapping[str, Array], index: Mapping[str, int]
    ) -> Pointer | MapAt | bytes:
        """An argument as `ReadyPlan` takes it."""
        if isinstance(argument, str):
            return Pointer(index[argument])
        if not isinstance(argument, TensorMap):
            return argument.tobytes()
        array, spec = arrays[argument.array], argument
        offset = spec.offset * array.dtype.itemsize
        return MapAt(index[spec.array], offset, lambda address: self.driver.encode(spec, array, address))

    @cached_property
    def driver(self) -> CudaDriver:
        """The driver, in the context of this device."""
        return CudaDriver(VERDICTS)

    def _grid(self, function: int, launch: Launch) -> Dim3:
        """The blocks that are launched: of a persistent kernel no more than the device holds at once."""
        if not launch.persistent:
            return launch.grid
        return launch.even_blocks(self._resident(function, launch)), *launch.grid[1:]

    @cached_property
    def spoiler(self) -> Callable[[], None]:
        """A function that leaves NaN in all shared memory, on the current stream. Raises Fault."""
        most, blocks = self.properties["sharedMemPerBlockOptin"], 2 * self.properties["multiProcessorCount"]
        launch = Launch("spoil_shared", (blocks, 1, 1), (1024, 1, 1), (np.int32(most // 4),), shared_bytes=most)
        compiled = compile_source(SPOIL_SHARED, {}, self.architecture)
        prepared: Callable[[], None] = self.prepare(compiled, launch, {}, {})
        return prepared

    def _resident(self, function: int, launch: Launch) -> int:
        """Blocks of a launch that the device holds at once."""
        from cuda.bindings import driver

        error, most = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            driver.CUfunction(function), math.prod(launch.block), launch.shared_bytes
        )
        if int(error):
            raise Fault(Verdict.LAUNCH_ERROR, f"{launch.kernel}: the driver does not say how many blocks fit: {error}")
        most = int(most) * int(self.properties["multiProcessorCount"])
        return self._resident_in_clusters(function, launch, most) if math.prod(launch.cluster) > 1 else most

    def _resident_in_clusters(self, function: int, launch: Launch, most: int) -> int:
        """The same of a launch in clusters, each of which lies within one group of multiprocessors."""
        from cuda.bindings import driver

        cluster = driver.CUlaunchAttribute()
        cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape = cluster.value.clusterDim
        shape.x, shape.y, shape.z = launch.cluster
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.persistent_blocks(most), *launch.grid[1:]
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.shared_bytes
        config.attrs, config.numAttrs = [cluster], 1
        error, clusters = driver.cuOccupancyMaxActiveClusters(driver.CUfunction(function), config)
        if int(error):
            raise Fault(
                Verdict.LAUNCH_ERROR, f"{launch.kernel}: the driver does not say how many clusters fit: {error}"
            )
        return int(clusters) * math.prod(launch.cluster)

    def _argument(self, argument: Argument, arrays: Mapping[str, Array], pointers: Mapping[str, int]) -> Any:
        if isinstance(argument, str):
            return np.uintp(pointers[argument])
        if isinstance(argument, TensorMap):
            return tensor_maps.encoded(argument, arrays[argument.array], pointers[argument.array])
        return argument


def forget(memory: Any, filler: bytes = b"\xff") -> None:
    """Set every byte, in the current stream, to what stands for unwritten memory: NaN in all floating-point types."""
    if len(set(filler)) == 1:
        memory.data.memset_async(filler[0], memory.nbytes)
    else:
        memory.view(np.uint16)[...] = int.from_bytes(filler[:2], "little")


def put(memory: Any, values: np.ndarray[Any, Any] | Lent) -> None:
    """Copy to device memory what is on the host, or what another process lends."""
    if isinstance(values, Lent):
        with borrowed(values) as theirs:
            memory[...] = theirs
    else:
        memory.set(values.view(np.uint8))


class CudaPlan:
    """A plan bound to fresh device memory. Every array lies between red zones, which `run` checks.

    What a kernel finds where nobody has written is NaN: in outputs, around arrays and in shared memory."""

    def __init__(
        self,
        device: CudaDevice,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int = 0,
        beside: CudaPlan | None = None,
    ) -> None:
        self._device, self.arrays = device, arrays
        self.buffers: dict[str, Any] = {}
        self._guarded: dict[str, Any] = {}
        self._first = {name: storage[name] for name, array in arrays.items() if array.inout}
        self._turned = 0
        self.entrants: Any = None
        """Who is timed on this plan: see `measure.timing.enter`."""
        for name, array in arrays.items():
            if beside and not array.zero and beside.arrays.get(name) == array:
                self.buffers[name] = beside.buffers[name]
                continue
            if device.bare:
                self.buffers[name] = device.empty(array.nbytes)
            else:
                shift = base.shift(plan.alignment(name, array), seed)
                memory = self._guarded[name] = device.filled(array.nbytes + 2 * base.ZONE + shift)[shift:]
                self.buffers[name] = base.guard(memory)
            if array.zero or array.inout or not (device.bare and array.output):
                if name in storage:
                    put(self.buffers[name], storage[name])
                else:
                    forget(self.buffers[name], array.filler)
        pointers = {name: buffer.data.ptr for name, buffer in self.buffers.items()}
        self._launches = [device.prepare(compiled, launch, arrays, pointers) for launch in plan.launches]
        # what is launched between two launches would end before a programmatic one begins
        before = [] if device.bare else [device.spoiler]
        self._spoiled = [
            step
            for launch, enqueued in zip(plan.launches, self._launches, strict=True)
            for step in (*(() if launch.programmatic else before), enqueued)
        ]

    def enqueue(self) -> None:
        """Put the plan's launches on the current stream without waiting."""
        self._start(self._launches)

    def run(self) -> None:
        self._start(self._spoiled)
        self.wait()

    def _start(self, steps: Iterable[Callable[[], None]]) -> None:
        try:
            for step in steps:
                step()
        except Exception as error:
            # of several launches, a later one can be refused for what an earlier one did
            raise self._device.fault(error, "the launch was rejected") from None

    def wait(self) -> None:
        """Wait for what was enqueued and look at the red zones, and at what has to be zero again. Raises Fault."""
        self._device.synchronize()
        for name, memory in self._guarded.items():
            base.check_zones(name, self.arrays[name], memory)
        for name, array in self.arrays.items():
            if array.zero:
                base.check_zero(name, array, self.buffers[name].get())

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._first = {name: storage[name] for name in self._first if name in storage}
        self._turned = 0
        for name, buffer in self.buffers.items():
            buffer.set((storage[name] if name in storage else self.arrays[name].poisoned()).view(np.uint8))

    def poison(self) -> None:
        """Forget every output: they are unwritten again, and what is input, too, has its first values."""
        for name, buffer in self.buffers.items():
            if name in self._first:
                buffer.set(self._first[name].view(np.uint8))
            elif self.arrays[name].output and not self.arrays[name].zero:
                forget(buffer, self.arrays[name].filler)

    def turn(self, elements: int) -> None:
        """Have the elements of every input moved along cyclically by so many from where they were at first: other
        inputs of the same kind. Whole numbers stay where there are others: they may be places in an array."""
        by, self._turned = elements - self._turned, elements
        inputs = {name: array for name, array in self.arrays.items() if name in self.buffers and not array.output}
        moved = [name for name, array in inputs.items() if array.dtype.is_float] or list(inputs)
        for name in moved if by else ():
            buffer = self.buffers[name]
            buffer[...] = self._device.rolled(buffer, by * self.arrays[name].dtype.itemsize)

    def apply(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """`function(self, *arguments)`; a device in another process calls it there."""
        return function(self, *arguments)

    def filled_like(self, name: str) -> Any:
        """Device memory as large as an array, for another's answer; every byte is 0xff, NaN in all float types. What is
        input, too, has its first values."""
        memory = self._device.filled(self.arrays[name].nbytes)
        if name in self._first:
            memory.set(self._first[name].view(np.uint8))
        return memory

    def read(self, name: str) -> np.ndarray[Any, Any]:
        return self.host(name, self.buffers[name])

    def host(self, name: str, buffer: Any) -> np.ndarray[Any, Any]:
        """A copy of device memory that holds the storage of an array."""
        values: np.ndarray[Any, Any] = buffer.get()
        return values.view(self.arrays[name].dtype.storage)

    def close(self) -> None:
        self.entrants = None
        if not self._device.lost:
            for memory in (self.buffers | self._guarded).values():  # the next to get this memory finds no answer in it
                forget(memory)
        self.buffers.clear()
        self._guarded.clear()
        self._launches.clear()
        self._spoiled.clear()


# the CUDA driver as `ReadyPlan` calls it: by its C functions, since a call of every wrapper takes as long as a
# launch.

# One call of ctypes with four arguments takes 0.4 to 0.5 us where the classes of cuda-bindings take several.


LIBRARY = "libcuda.so.1"


@cache
def _library() -> Any:
    """The driver's library. It lets other threads of Python run during a call: a launch may wait for the device."""
    library = ctypes.CDLL(LIBRARY)
    library.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    library.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
    library.cuCtxGetCurrent.argtypes = [ctypes.c_void_p]
    library.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.cuModuleLoad.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.cuModuleGetFunction.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
    library.cuFuncSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    return library


SHARED_BYTES = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""

PERSISTING_L2, NOT_SUPPORTED = 6, (215, 801)
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE; and what a device without such a limit says (before 8.0, or with MIG)."""


def let_nothing_persist() -> None:
    """Make lines that persist in the L2 ordinary ones, which a flush evicts, and set no part of the L2 aside for more.

    A stage cannot give a stream or a launch a window of such lines, but its kernel can load with `L2::evict_last`, and
    whoever shares the process can do both (llm.c's issue 851). The device has to be idle. Raises Fault."""
    library = _library()
    for status in (library.cuCtxSetLimit(PERSISTING_L2, ctypes.c_size_t(0)), library.cuCtxResetPersistingL2Cache()):
        if status and status not in NOT_SUPPORTED:
            raise Fault(Verdict.LAUNCH_ERROR, f"lines that persist in the L2 cannot be reset: CUDA error {status}")


class CudaDriver:
    """`ready.Driver` of the device that is current when it is made, whose context exists then. `verdicts` are what the
    errors of a running kernel are called."""

    def __init__(self, verdicts: dict[int, Verdict]) -> None:
        self._library, self._verdicts = _library(), verdicts
        self.launch = self._library.cuLaunchKernelEx
        self.replace_address = self._library.cuTensorMapReplaceAddress
        self._context = self._current()
        if self._context.value is None:
            _runtime().free(0)  # which makes that of the current device
            self._context = self._current()
        self._modules: dict[str, ctypes.c_void_p] = {}
        self._functions: dict[tuple[str, str], tuple[int, int]] = {}

    def _current(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p()
        if status := self._library.cuCtxGetCurrent(ctypes.byref(context)):
            raise Fault(Verdict.LAUNCH_ERROR, f"there is no CUDA context: {self.said(status)}")
        return context

    def function(self, compiled: Compiled, kernel: str, shared_bytes: int) -> int:
        """The kernel, loaded, with as much dynamic shared memory as any launch of it so far asks for. Raises Fault."""
        self.enter()
        found, most = self._functions.get((compiled.key, kernel), (0, 0))
        if not found:
            module, function = self._modules.get(compiled.key), ctypes.c_void_p()
            if module is None:
                module, path = ctypes.c_void_p(), str(compiled.cubin_path).encode()
                self._load(kernel, self._library.cuModuleLoad(ctypes.byref(module), path))
                self._modules[compiled.key] = module
            self._load(kernel, self._library.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()))
            found = function.value or 0
        if shared_bytes > most:
            self._load(kernel, self._library.cuFuncSetAttribute(found, SHARED_BYTES, shared_bytes))
        self._functions[compiled.key, kernel] = found, max(most, shared_bytes)
        return found

    def _load(self, kernel: str, status: int) -> None:
        if status:
            raise Fault(Verdict.LAUNCH_ERROR, f"{kernel} cannot be loaded: {self.said(status)}")

    @cached_property
    def entry_points(self) -> tuple[int | None, ...]:
        """The addresses of what C calls: the launch, the new address of a map, the current device, whether a stream is
        being captured."""
        called = (self.launch, self.replace_address, self._library.cuCtxGetDevice, self._library.cuStreamIsCapturing)
        return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in called)

    def encode(self, spec: TensorMap, array: Array, address: int) -> bytes:
        return tensor_maps.encoded(spec, array, address).tobytes()

    def enter(self) -> int:
        return int(self._library.cuCtxSetCurrent(self._context))

    def failed(self, status: int, kernel: str) -> Fault:
        verdict = self._verdicts.get(status, Verdict.LAUNCH_ERROR)
        return Fault(verdict, f"the launch of {kernel} was rejected: {self.said(status)}")

    def said(self, status: int) -> str:
        """What the driver says of a status."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(text))
        return f"{text.value.decode()} ({status})" if text.value else f"CUDA error {status}"
