"""What a launch is checked for before it, the bytes of its arguments, and the constants of all of its threads."""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .architectures import H200, DeviceLimits, limits_of
from .memory import Allocation, Memory, TensorMap, tensor_bytes
from .program import Entry, Signature
from .table import CELL, Constant

Dimensions = int | Sequence[int]
_MOST_WARPS = 2**24  # of a grid: more would take hours
_MOST_LOCAL_BYTES = 2**31  # of all resident threads
_MOST_LOCAL_BYTES_PER_THREAD = 2**19


class LaunchError(ValueError):
    """The device would refuse the launch."""


def triple(numbers: Dimensions, what: str) -> tuple[int, int, int]:
    """Up to three numbers as three. Raises ``LaunchError`` with ``what`` they are."""
    if type(numbers) is int:
        return numbers, 1, 1
    try:
        values = [numbers] if isinstance(numbers, int | np.integer) else list(numbers)
        padded = [operator.index(value) for value in values] + [1, 1]
    except TypeError:
        raise LaunchError(f"the {what} is one to three whole numbers, not {numbers!r}") from None
    if not 1 <= len(values) <= 3:
        raise LaunchError(f"the {what} has one to three dimensions, not {len(values)}")
    return padded[0], padded[1], padded[2]


def whole_number(value: int, what: str, least: int, most: int) -> int:
    """The number. Raises ``LaunchError`` unless it is whole and within the limits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise LaunchError(f"{what} is a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise LaunchError(f"{what} is a whole number from {least} to {most}, not {value!r}")
    return number


def seconds_of(value: float) -> float:
    """The limit in seconds. Raises ``LaunchError`` unless it is above 0."""
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise LaunchError(f"the limit in seconds is a number above 0, not {value!r}")
    return float(value)


def registers_of(entry: Entry, registers_per_thread: int | None) -> int:
    """What every thread holds at first, a multiple of 8; 0 where the kernel does not fix it."""
    if entry.register_limit is None or not entry.registers_fixed:
        return 0
    return -(-registers_per_thread // 8) * 8 if registers_per_thread else entry.register_limit


def check_launch(
    entry: Signature,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    dynamic: int,
    registers: int | None,
    limits: DeviceLimits,
) -> None:
    """Raises ``LaunchError`` for a launch that the device would refuse."""
    for what, numbers, most in (("grid", grid, limits.max_grid), ("block", block, limits.max_block)):
        for axis, number, limit in zip("xyz", numbers, most, strict=True):
            if not 1 <= number <= limit:
                raise LaunchError(f"the {what} has {number} in {axis}; 1 to {limit} are allowed on {limits.name}")
    threads = block[0] * block[1] * block[2]
    if threads > limits.max_threads_per_block:
        raise LaunchError(
            f"the block {block} has {threads} threads; {limits.max_threads_per_block} are allowed on {limits.name}"
        )
    if entry.max_threads is not None and threads > entry.max_threads:
        raise LaunchError(
            f"the block {block} has {threads} threads, but {entry.name} is compiled for at most {entry.max_threads} "
            f"(__launch_bounds__)"
        )
    if entry.required_block is not None and block != entry.required_block:
        raise LaunchError(f"{entry.name} must be launched with blocks of {entry.required_block}, not {block}")
    if dynamic < 0:
        raise LaunchError(f"dynamic shared memory cannot have {dynamic} bytes")
    shared = shared_bytes_of(entry, dynamic)
    if shared > limits.shared_per_block:
        raise LaunchError(
            f"a block would have {shared} bytes of shared memory, {entry.static_shared_bytes} static and {dynamic} "
            f"dynamic; {limits.shared_per_block} are allowed on {limits.name}"
        )
    if registers and registers * threads > limits.registers_per_sm:
        raise LaunchError(
            f"{threads} threads of {registers} registers need {threads * registers} registers; a multiprocessor of "
            f"{limits.name} has {limits.registers_per_sm}"
        )
    _check_cluster(entry, grid, cluster, limits)
    held = limits.resident_blocks(threads, shared, registers)
    if entry.cooperative and grid[0] * grid[1] * grid[2] > held:
        raise LaunchError(
            f"{entry.name} waits for its whole grid, so all blocks must be resident: {limits.name} holds {held} "
            f"of {threads} threads and {shared} bytes of shared memory, not {grid[0] * grid[1] * grid[2]}"
        )
    if entry.parameter_bytes > limits.max_parameter_bytes:
        raise LaunchError(
            f"{entry.name} has {entry.parameter_bytes} bytes of parameters; {limits.max_parameter_bytes} are allowed"
        )


def _check_cluster(
    entry: Signature, grid: tuple[int, int, int], cluster: tuple[int, int, int], limits: DeviceLimits
) -> None:
    if entry.cluster is not None and cluster != entry.cluster:
        raise LaunchError(f"{entry.name} is compiled for clusters of {entry.cluster}, not {cluster}")
    if cluster == (1, 1, 1):
        return
    blocks = cluster[0] * cluster[1] * cluster[2]
    if blocks > 1 and limits.max_cluster_blocks == 1:
        raise LaunchError(f"{limits.name} ({limits.arch}) has no clusters of blocks; they need sm_90 or later")
    if min(cluster) < 1 or blocks > limits.max_cluster_blocks:
        raise LaunchError(f"the cluster {cluster} has {blocks} blocks; 1 to {limits.max_cluster_blocks} are allowed")
    for axis, number, step in zip("xyz", grid, cluster, strict=True):
        if number % step:
            raise LaunchError(
                f"the grid has {number} blocks in {axis}, which is not a multiple of the cluster's {step}"
            )


def check_size(
    entry: Entry,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic: int,
    registers: int | None,
    limits: DeviceLimits,
) -> None:
    """Raises ``LaunchError`` for a launch that a device may take and that is too large to be emulated."""
    threads = block[0] * block[1] * block[2]
    shared = shared_bytes_of(entry, dynamic)
    warps = grid[0] * grid[1] * grid[2] * -(-threads // 32)
    if warps > _MOST_WARPS:
        raise LaunchError(f"the grid {grid} of blocks {block} has {warps} warps; the emulator takes {_MOST_WARPS}")
    resident = min(grid[0] * grid[1] * grid[2], limits.resident_blocks(threads, shared, registers))
    if entry.local_bytes > _MOST_LOCAL_BYTES_PER_THREAD:
        raise LaunchError(
            f"{entry.name} has {entry.local_bytes} bytes of local memory a thread; {_MOST_LOCAL_BYTES_PER_THREAD} are "
            f"allowed on {limits.name}"
        )
    if entry.local_bytes * threads * resident > _MOST_LOCAL_BYTES:
        raise LaunchError(
            f"{entry.name} has {entry.local_bytes} bytes of local memory a thread, {entry.local_bytes * threads} a "
            f"block; the emulator has {_MOST_LOCAL_BYTES} for the {resident} blocks that are resident"
        )


def shared_bytes_of(entry: Signature, dynamic: int, *, reserved: bool = False) -> int:
    """Shared memory of a block, static and dynamic, and what is reserved for the system where the kernel uses it."""
    own = entry.dynamic_shared_offset + dynamic if dynamic else entry.static_shared_bytes
    return -(-own // 16) * 16 + H200.shared_reserved_per_block if reserved and entry.uses_reserved_shared else own


# ------------------------------------------------------------------------------------------------------------ arguments


@dataclass(frozen=True, slots=True)
class StructBytes:
    """A struct by value: its bytes, and the tensor maps in it by the bytes in front of them."""

    raw: bytes
    tensor_maps: tuple[tuple[int, TensorMap], ...] = ()


Argument = int | float | bool | np.generic | bytes | Allocation | TensorMap | StructBytes


class ArgumentError(TypeError):
    """An argument is not what the kernel's signature asks for."""


def check_arguments(entry: Signature, args: Sequence[Argument], memory: Memory) -> None:
    """Raises ``ArgumentError`` for arguments that the kernel's signature does not ask for."""
    parameter_buffer(entry, args, memory)


def parameter_buffer(
    entry: Signature, args: Sequence[Argument], memory: Memory
) -> tuple[npt.NDArray[np.uint8], list[tuple[int, TensorMap]]]:
    """The parameters' bytes, and the tensor maps among them with their addresses."""
    if len(args) != len(entry.parameters):
        listed = ", ".join(f"{p.type}{f'[{p.size}]' if p.type == 'b8' else ''}" for p in entry.parameters)
        raise ArgumentError(
            f"{entry.name} has {len(entry.parameters)} parameters ({listed}), but {len(args)} arguments are given"
        )
    buffer = bytearray(entry.parameter_bytes)
    tensor_maps = []
    for number, (parameter, argument) in enumerate(zip(entry.parameters, args, strict=True)):
        if type(argument) is bytes and len(argument) == parameter.size:
            raw = argument
        else:
            raw = _Argument(entry, number, parameter).bytes_of(argument, memory)
        buffer[parameter.offset : parameter.offset + parameter.size] = raw
        if isinstance(argument, TensorMap):
            tensor_maps.append((_engine.PARAM_WINDOW + parameter.offset, argument))
        elif isinstance(argument, StructBytes):
            start = _engine.PARAM_WINDOW + parameter.offset
            tensor_maps += [(start + offset, tensor) for offset, tensor in argument.tensor_maps]
    return np.frombuffer(bytes(buffer), np.uint8), tensor_maps


@dataclass(frozen=True, slots=True)
class _Argument:
    """One argument on its way into the parameter buffer."""

    entry: Signature
    number: int
    parameter: ptx.Parameter

    def refuse(self, reason: str) -> NoReturn:
        parameter = self.parameter
        raise ArgumentError(
            f"parameter {self.number} of {self.entry.name} ({parameter.name}: {parameter.type}, {parameter.size} bytes)"
            f": {reason}"
        )

    @property
    def is_struct(self) -> bool:
        return self.parameter.type == "b8" and self.parameter.size > 1

    @property
    def is_float(self) -> bool:
        return self.parameter.type.startswith("f")

    def bytes_of(self, argument: Argument, memory: Memory) -> bytes:
        size = self.parameter.size
        if isinstance(argument, TensorMap):
            return self.tensor_map(argument, memory)
        if isinstance(argument, StructBytes):
            if len(argument.raw) != size:
                self.refuse(f"the struct that is given has {len(argument.raw)} bytes: compare its members")
            return argument.raw
        if isinstance(argument, Allocation):
            if argument.freed:
                self.refuse(f"{argument.name} has been freed")
            if size != 8 or self.is_struct or self.is_float:
                self.refuse(f"the array {argument.name} is passed by pointer, which has 8 bytes")
            return argument.address.to_bytes(8, "little")
        if isinstance(argument, bytes | bytearray | memoryview | np.void):
            raw = argument.tobytes() if isinstance(argument, np.void | memoryview) else bytes(argument)
            if len(raw) != size:
                self.refuse(f"{len(raw)} bytes are given")
            return raw
        if isinstance(argument, np.ndarray):
            self.refuse("an array must be uploaded first, and its Allocation passed")
        if isinstance(argument, np.generic):
            return self.numpy_scalar(argument)
        if self.is_struct:
            self.refuse(f"a struct is passed as its bytes, not as {type(argument).__name__}")
        if isinstance(argument, int):
            return self.integer(int(argument))
        if isinstance(argument, float):
            if not self.is_float and self.parameter.type[0] != "b":
                self.refuse(f"the float {argument} is given for an integer")
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], argument)
        self.refuse(f"{type(argument).__name__} is not an argument that a kernel takes")

    def integer(self, value: int) -> bytes:
        bits = 8 * self.parameter.size
        if self.is_float:
            self.refuse(f"the integer {value} is given for a float; write {value}.0")
        if not -(1 << bits - 1) <= value < 1 << bits:
            self.refuse(f"{value} does not fit into {bits} bits")
        return (value % (1 << bits)).to_bytes(self.parameter.size, "little")

    def numpy_scalar(self, value: np.generic) -> bytes:
        if value.dtype.itemsize != self.parameter.size:
            self.refuse(f"{value.dtype} has {value.dtype.itemsize} bytes")
        if value.dtype.kind in "iub" and self.is_float:
            self.refuse(f"{value.dtype} is given for a float")
        if value.dtype.kind == "f" and not self.is_float and self.parameter.type[0] in "us" and self.parameter.size > 2:
            self.refuse(f"{value.dtype} is given for an integer")
        return bytes(value.tobytes())

    def tensor_map(self, tensor: TensorMap, memory: Memory) -> bytes:
        if self.parameter.size != 128:
            self.refuse(
                "a tensor map has 128 bytes and is passed as a `const __grid_constant__ CUtensorMap`; "
                "for a pointer to it give a list that holds it"
            )
        if self.parameter.align < 64:
            self.refuse("a tensor map must be aligned to 64 bytes")
        allocation = memory.find(tensor.address)
        if allocation is None:
            self.refuse(f"nothing is allocated at the tensor map's address {tensor.address:#x}")
        if tensor.address + tensor.extent > allocation.end:
            self.refuse(
                f"the tensor map covers {tensor.extent} bytes, but {allocation.name} has "
                f"{allocation.end - tensor.address} from its address on: compare shape and strides"
            )
        return tensor_bytes(tensor)


# ------------------------------------------------------------------------------------------------------------ constants

_Triple = tuple[int, int, int]
Shape = tuple[_Triple, _Triple, _Triple, int, int, Allocation | None]
"""Grid, block, cluster, dynamic bytes, number of the launch, workspace."""


def constant_pool(entry: Entry, shape: Shape, variables: Mapping[str, Allocation]) -> npt.NDArray[np.uint8]:
    """All constants of the entry, each repeated for the 32 lanes; kept for a launch of the same shape."""
    key = (*shape[:-1], shape[-1] and shape[-1].address, tuple(variable.address for variable in variables.values()))
    if entry.constant_pool is not None and entry.constant_pool[0] == key:
        return entry.constant_pool[1]
    decoded, specials = entry.decoded, _uniform_specials(entry, *shape)

    def value(constant: Constant) -> int:
        if constant.kind == "special":
            return specials[constant.name]
        if constant.kind == "dynamic":
            return entry.dynamic_shared_offset + constant.value
        if constant.kind == "global":
            return variables[constant.name].address + constant.value
        return constant.value

    nbytes = max(decoded.constant_bytes, CELL)
    raw = np.zeros(nbytes + CELL, np.uint8)
    start = -raw.ctypes.data % CELL
    pool = raw[start : start + nbytes]
    words = pool.view(np.uint32)
    longs = pool.view(np.uint64)
    for constant, offset in decoded.constants.items():
        if constant.size == 8:
            longs[offset // 8 : offset // 8 + 32] = value(constant) % 2**64
        else:
            words[offset // 4 : offset // 4 + 32] = value(constant) % 2**32
    entry.constant_pool = (key, pool)
    return pool


def _uniform_specials(
    entry: Entry,
    grid: _Triple,
    block: _Triple,
    cluster: _Triple,
    dynamic: int,
    number: int,
    workspace: Allocation | None,
) -> dict[str, int]:
    """Special registers that are the same in every thread of a launch; ``decode.UNIFORM_SPECIALS`` are their names."""
    limits = limits_of(entry.program.arch)
    shared = shared_bytes_of(entry, dynamic)
    reserved = shared_bytes_of(entry, dynamic, reserved=True) - limits.shared_reserved_per_block
    address = 0 if workspace is None else workspace.address
    values = {
        "%nwarpid": limits.max_warps_per_sm,
        "%nsmid": limits.sm_count,
        "%gridid": number,
        "%is_explicit_cluster": int(entry.cluster is not None or cluster != (1, 1, 1)),
        "%cluster_nctarank": cluster[0] * cluster[1] * cluster[2],
        "%total_smem_size": shared,
        "%aggr_smem_size": shared,
        "%dynamic_smem_size": dynamic,
        "%current_graph_exec": 0,
        "%reserved_smem_offset_begin": reserved,
        "%reserved_smem_offset_end": reserved + limits.shared_reserved_per_block,
        "%reserved_smem_offset_cap": limits.shared_reserved_per_block,
        "%reserved_smem_offset_0": reserved,
        "%reserved_smem_offset_1": reserved + limits.shared_reserved_per_block // 2,
        "%envreg1": address >> 32,  # how the driver tells where the state of a grid-wide barrier is
        "%envreg2": address & 0xFFFFFFFF,
    }
    for name, numbers in (("ntid", block), ("nctaid", grid), ("cluster_nctaid", cluster)):
        values.update({f"%{name}.{axis}": number for axis, number in zip("xyz", numbers, strict=True)})
    for axis, blocks, step in zip("xyz", grid, cluster, strict=True):
        values[f"%nclusterid.{axis}"] = blocks // step
    return values


# ------------------------------------- the order of launches and copies: streams, events, the default stream, the host


DEFAULT_STREAM = 0
"""The legacy default stream: what is in it comes after all that was given before, and before all that follows."""


class Port(IntEnum):
    """When a launch that follows another one may begin, and whether its wait waits for the end of that.

    Those of ``cudaGraphKernelNodePort``; ``BEGUN`` is that of ``cudaLaunchAttributeProgrammaticEvent`` with
    ``triggerAtBlockStart``, and ``BEGUN_ONLY``, of ``cudaLaunchAttributeLaunchCompletionEvent``, is not seen by
    ``cudaGridDependencySynchronize``."""

    ENDED = 0
    TRIGGERED = 1
    BEGUN = 2
    BEGUN_ONLY = 3


Edge = tuple[int, int]
"""The number of an earlier launch, and the port of it that the edge leaves from."""


@dataclass(frozen=True, slots=True)
class Event:
    """A point that a launch or a copy can wait for, with ``after=[event]``.

    ``nodes`` are the launches that it stands behind, and ``port`` says how far these have come by then."""

    nodes: tuple[int, ...]
    port: Port = Port.ENDED
    order: Order | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class Order:
    """The edges between launches and copies, which are nodes with numbers; an edge leads to an earlier node.

    ``before`` has for each node the set of those that have ended when it begins, as bits."""

    before: list[int] = field(default_factory=list)
    ends: dict[int, list[int]] = field(default_factory=dict)  # of each stream: what the next one has to wait for
    host: set[int] = field(default_factory=set)  # what the host has waited for, or done itself
    kernels: set[int] = field(default_factory=set)

    def add(self, stream: int, programmatic: bool, after: Sequence[Event], is_kernel: bool = True) -> list[Edge]:
        """A launch or a copy in a stream: its edges. Raises ``LaunchError`` for a stream that is no number."""
        stream = whole_number(stream, "the stream", 0, 2**31 - 1)
        ends = self.ends.setdefault(stream, [])
        if not self.before and not after:  # the first one comes after nothing
            ends.append(0)
            self.kernels.update([0] if is_kernel else [])
            return self._node(set(), set())
        if stream == DEFAULT_STREAM:
            full = {node for other, nodes in self.ends.items() if other != stream for node in nodes}
        else:
            full = set(self.ends.get(DEFAULT_STREAM, ()))
        full |= self.host
        early = set[Edge]()
        for event in after:
            if event.order is not self:
                continue  # the host has waited for it
            if event.port == Port.ENDED:
                full.update(event.nodes)
            early.update((node, event.port) for node in event.nodes if event.port != Port.ENDED)
        if programmatic and ends and ends[-1] not in full and ends[-1] in self.kernels:  # a copy triggers nothing
            early.add((ends[-1], Port.TRIGGERED))
        else:
            full.update(ends)
            ends.clear()
        number = len(self.before)
        ends.append(number)
        self.kernels.update([number] if is_kernel else [])
        return self._node(full, {edge for edge in early if edge[0] not in full})

    def add_host(self) -> list[Edge]:
        """An access by the host, which comes after what the host has waited for, and before all that it does later."""
        edges = self._node(self.host, set())
        self.host.add(len(self.before) - 1)
        return edges

    def _node(self, full: set[int], early: set[Edge]) -> list[Edge]:
        self.before.append(0)
        for node in full:
            self.before[-1] |= self.before[node] | 1 << node
        for node, _ in early:
            self.before[-1] |= self.before[node]
        return [(node, Port.ENDED) for node in sorted(full)] + sorted(early)

    def event(self, stream: int, port: Port) -> Event:
        """An event behind all that has been given to a stream; one before its end behind its last launch alone."""
        ends = self.ends.get(whole_number(stream, "the stream", 0, 2**31 - 1), [])
        early = port != Port.ENDED and set(ends[-1:]) <= self.kernels
        return Event(tuple(ends[-1:] if early else ends), port if early else Port.ENDED, self)

    def wait(self, event: Event) -> None:
        """The host waits for an event."""
        for node in event.nodes:
            if event.port == Port.ENDED:
                self.host.add(node)
            else:
                self.host.update(number for number in range(node) if self.before[node] >> number & 1)

    def is_cut(self, node: int) -> bool:
        """Whether the node and all that follow come after every one before it."""
        earlier = (1 << node) - 1
        return all(later & earlier == earlier for later in self.before[node:])
