"""The interface of a device, and what devices check of a launch.

Before it is made, a launch is compared with the signature of its kernel and with the limits of the device; the emulator
asks the same questions by the same functions. After it the red zones around its arrays, and the arrays themselves, are
compared with what a kernel may leave there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ..model.arrays import BEST_ALIGNMENT, Array
from ..model.errors import WorkbenchError
from ..model.launch import H200, Argument, Launch, Machine, Plan
from ..model.problem import Problem
from ..model.results import DeviceInfo, Verdict
from ..model.results import Fault as Fault
from ..model.stage import Stage
from ..model.tensor_map import TensorMap
from ..toolchain.compiler import Compiled, compile_stage, translate_stage
from . import tensor_maps


class DeviceUnavailable(WorkbenchError, RuntimeError):
    """The device cannot be used on this machine; the message says why and what would help."""


class BoundPlan(Protocol):
    """A plan whose arrays are in device memory: run it as often as you like, read arrays back."""

    def run(self) -> None:
        """Launch all kernels of the plan and wait for them. Raises Fault, also for a write outside of an array."""

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """The storage of an array, one-dimensional, copied to the host."""

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Put other values into the same arrays; those that `storage` does not hold forget theirs."""

    def close(self) -> None:
        """Free the device memory."""


class Device(Protocol):
    """Compares nothing: compiles sources for itself, and runs plans on arrays it is given.

    `machine` is what plans are told of it. `times` says whether its times mean anything: those of an emulator do not.
    """

    @property
    def name(self) -> str: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def times(self) -> bool: ...
    @property
    def architecture(self) -> int: ...

    def compile(self, stage: Stage[Any], problem: Problem) -> Compiled:
        """The source of a stage as `bind` takes it. Raises CompileError, CompilerUnavailable, OSError."""

    def info(self) -> DeviceInfo:
        """What this device is."""

    def bind(
        self,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int = 0,
    ) -> BoundPlan:
        """Copy `storage` (one-dimensional, by array name) to fresh device memory and prepare the plan's launches.

        Scratch arrays of the plan are allocated here, unwritten. `seed` orders warps where the device can choose.
        Raises Fault for a launch that the device cannot take."""


def machine_for(stage: Stage[Any], device: Device | OnMachine) -> Machine:
    """The machine that a stage is run on by a device: its own. An emulator that nobody has told an architecture has
    the one that the stage needs."""
    emulates = not device.times and device.machine.architecture == H200.architecture
    return stage.fitting(device.machine) if emulates else device.machine


class OnMachine:
    """A device that compiles by what it is: to machine code where it `times`, else to PTX, which takes less."""

    machine: Machine
    times: bool

    @property
    def architecture(self) -> int:
        """The compute capability times ten."""
        return self.machine.architecture

    def compile(self, stage: Stage[Any], problem: Problem) -> Compiled:
        """See `Device`."""
        made = compile_stage if self.times else translate_stage
        return made(stage, problem, machine_for(stage, self).architecture)


# --------------------------------------------------------------------------------------- before a launch: its arguments


def limits_of(name: str, architecture: int, properties: Mapping[str, Any]) -> Any:
    """The limits of a device as `cudaGetDeviceProperties` names them; None where launches cannot be checked."""
    try:
        from ..emulator import DeviceLimits
    except ImportError:  # its engine was not built: the driver's own checks remain
        return None
    sizes = [tuple(int(n) for n in properties[key]) for key in ("maxThreadsDim", "maxGridSize")]
    return DeviceLimits(
        name=name,
        arch=f"sm_{architecture}",
        sm_count=properties["multiProcessorCount"],
        max_threads_per_block=properties["maxThreadsPerBlock"],
        max_block=(sizes[0][0], sizes[0][1], sizes[0][2]),
        max_grid=(sizes[1][0], sizes[1][1], sizes[1][2]),
        shared_per_block=properties["sharedMemPerBlockOptin"],
        shared_per_sm=properties["sharedMemPerMultiprocessor"],
        registers_per_sm=properties["regsPerBlock"],
    )


def check(
    compiled: Compiled, launch: Launch, arrays: Mapping[str, Array], pointers: Mapping[str, int], limits: Any
) -> None:
    """Raises Fault (LAUNCH_ERROR) for arguments that the kernel does not take, and for what the device has not."""
    kernels = _kernels(compiled.key, compiled.ptx) if limits is not None else None
    if kernels is None:
        return
    from .. import emulator

    entry = kernels.get(launch.kernel)
    if entry is None:
        raise no_kernel(launch.kernel, kernels)
    check_cluster(entry, launch)
    memory: Any = _Memory(arrays, pointers)
    cluster = entry.cluster if launch.cluster == (1, 1, 1) and entry.cluster else launch.cluster
    registers = compiled.usage[launch.kernel].registers
    try:
        emulator.check_arguments(entry, [argument_of(a, arrays, memory.placed) for a in launch.args], memory)
        emulator.check_launch(entry, launch.grid, launch.block, cluster, launch.shared_bytes, registers, limits)
    except (emulator.ArgumentError, emulator.LaunchError) as error:
        raise Fault(Verdict.LAUNCH_ERROR, str(error)) from None


def check_cluster(entry: Any, launch: Launch) -> None:
    """Raises Fault (LAUNCH_ERROR) for clusters of which the kernel says nothing: devices launch those it is compiled
    for, and here none. Clusters that no kernel can have are left to `emulator.check_launch`."""
    from .. import emulator

    if entry.cluster is None and 1 < math.prod(launch.cluster) <= emulator.H200.max_cluster_blocks:
        x, y, z = launch.cluster
        raise Fault(
            Verdict.LAUNCH_ERROR,
            f"the launch of {launch.kernel} asks for clusters of {launch.cluster}, and the kernel is compiled for "
            f"none: declare it __cluster_dims__({x}, {y}, {z})",
        )


def no_kernel(wanted: str, there: Iterable[str]) -> Fault:
    """That a source has no kernel of this name, which it has, and what to write."""
    names = list(there)
    said = f"there is no kernel {wanted}; the source has {', '.join(names) or 'none'}"
    if not names:
        said += f': it begins as extern "C" __global__ void {wanted}('
    elif any(name.startswith("_Z") and wanted in name for name in names):
        said += ': declare it extern "C", so that it keeps its name'
    return Fault(Verdict.LAUNCH_ERROR, said)


@lru_cache(maxsize=256)
def _kernels(key: str, ptx: str) -> Any:
    """The signatures of the kernels in the PTX, by name; None where the emulator cannot read it."""
    from ..emulator import Program, PtxSyntaxError

    try:
        return Program.signatures(ptx)
    except PtxSyntaxError:
        return None


def argument_of(argument: Argument, arrays: Mapping[str, Array], placed: Mapping[str, Any]) -> Any:
    """An argument of a launch as the emulator takes it, its array among the emulator's allocations `placed`.

    Raises Fault for an array that there is not, and for a tensor map that the driver would refuse."""
    name = argument.array if isinstance(argument, TensorMap) else argument
    if not isinstance(name, str):
        return argument
    if name not in placed:
        raise Fault(Verdict.LAUNCH_ERROR, f"there is no array {name!r}; the arrays are {', '.join(placed)}")
    if not isinstance(argument, TensorMap):
        return placed[name]
    return tensor_maps.emulated(argument, arrays[name], placed[name].address)


class _Memory:
    """Where arrays lie on a device, without what is in them: all that a check of arguments asks of a memory."""

    def __init__(self, arrays: Mapping[str, Array], pointers: Mapping[str, int]) -> None:
        from ..emulator import Allocation

        nothing = np.empty(0, np.uint8)
        self.placed = {
            name: Allocation(
                pointers[name], array.nbytes, name, array.dtype.itemsize, (array.storage_elements,), nothing, None
            )
            for name, array in arrays.items()
        }

    def find(self, address: int) -> Any:
        # arrays may lie in one another, as those of packed queries, keys and values do
        there = (a for a in self.placed.values() if a.address <= address < a.end)
        return max(there, key=lambda a: a.end, default=None)


# ------------------------------------ after a launch: red zones, a pattern around each array, which no kernel may touch

ZONE = BEST_ALIGNMENT
"""Bytes on either side of an array; so many that the array stays as aligned as it was."""

PATTERN = np.tile(np.array([0xFE, 0xFF], np.uint8), ZONE // 2)
"""Not a number in bf16, fp16 and fp32, so that what is read there spoils the result, and not the usual one, so that a
NaN written there is noticed too."""


def shift(alignment: int, seed: int) -> int:
    """Bytes by which an array is moved in its memory: then it is `alignment` bytes aligned, and no better.

    Different seeds move it differently. What needs all the alignment there is stays where it is."""
    return alignment * (2 * (seed % 4) + 1) if alignment < BEST_ALIGNMENT else 0


def guard(memory: Any) -> Any:
    """The array's part of `memory`, bytes on a device, whose zones are filled with the pattern."""
    memory[:ZONE].set(PATTERN)
    memory[-ZONE:].set(PATTERN)
    return memory[ZONE:-ZONE]


def check_whole(name: str, array: Array, written: np.ndarray[Any, Any]) -> None:
    """Raises Fault where some bytes of an element were written and others not; `written` has a flag for each byte."""
    count = written.reshape(-1, array.dtype.itemsize).sum(axis=1)
    parts = np.flatnonzero((count > 0) & (count < array.dtype.itemsize))
    if parts.size:
        first = f"{count[parts[0]]} of the {array.dtype.itemsize} bytes of {name}[{parts[0]}]"
        raise Fault(
            Verdict.MISMATCH,
            f"{parts.size} of {count.size} elements of {name} were written in part: {first}; as {name} is declared, "
            f"the kernel has to write elements of type {array.dtype.cuda}",
        )


def check_zero(name: str, array: Array, storage: np.ndarray[Any, Any]) -> None:
    """Raise Fault where scratch that a plan has to leave zero, here on the host, is not, with the first such place."""
    element = storage.view(np.uint8).reshape(array.storage_elements, -1).any(axis=1)
    if element.any():
        raise Fault(
            Verdict.STALE,
            f"{name} is zero when the plan begins and has to be zero when it ends, for the next launch to begin with: "
            f"{element.sum()} of its {array.storage_elements} elements are not, the first is "
            f"{name}[{np.flatnonzero(element)[0]}]",
        )


def check_zones(name: str, array: Array, memory: Any) -> None:
    """Raise Fault where a zone of the array has changed, with the first place outside of the array."""
    before, after = memory[:ZONE].get(), memory[-ZONE:].get()
    if (beyond := np.flatnonzero(after != PATTERN)).size:
        first = int(beyond[0])
        element = array.storage_elements + first // array.dtype.itemsize
        where = f"{first} bytes after the end of {name}, where {name}[{element}] of its storage would be"
    elif (ahead := np.flatnonzero(before != PATTERN)).size:
        where = f"{ZONE - int(ahead[-1])} bytes before the start of {name}"
    else:
        return
    changed = beyond.size + int((before != PATTERN).sum())
    raise Fault(
        Verdict.OUT_OF_BOUNDS,
        f"a kernel wrote outside of {name}: {changed} bytes changed, the nearest {where}; "
        f"it has to store to the {array.storage_elements} elements of the array only",
    )
