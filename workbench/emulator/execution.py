"""A launch: what is checked before it, how it is handed to the engine, and what comes back."""

from __future__ import annotations

import operator
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .counters import Counters
from .decode import PARAMETER_WINDOW, Constant
from .device_limits import H200, DeviceLimits
from .findings import KernelFault, explain
from .memory import Allocation, Memory
from .printing import printed_text
from .program import Entry, Signature
from .registers import CELL
from .tensor_map import ELEMENT_TYPES, TensorMap
from .trace import Timeline, Traced, line_numbers

__all__ = ["ArgumentError", "Checks", "LaunchError", "Statistics", "check_arguments", "check_launch", "execute"]

Argument = int | float | bool | np.generic | bytes | Allocation | TensorMap
Dimensions = int | Sequence[int]
_UNLIMITED = 2**63
_MOST_WARPS = 2**24  # of a grid: more would take hours
_MOST_LOCAL_BYTES = 2**31  # of all resident threads
_MOST_LOCAL_BYTES_PER_THREAD = 2**19
_MOST_THREADS = 256
_GRID_WORKSPACE = np.array([8, 0], np.uint32)  # of cooperative groups: its size in bytes, the barrier's state


class LaunchError(ValueError):
    """The device would refuse the launch."""


class ArgumentError(TypeError):
    """An argument is not what the kernel's signature asks for."""


class Checks(IntFlag):
    """What is looked for besides bounds and alignment, which always are."""

    NONE = 0
    INITIALISED = 1
    IN_FLIGHT = 2
    EXITED_MEMBERS = 4
    RACES = 8
    ALL = 15


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one launch: instructions that warps executed, times that a warp was resumed, blocks resident at once.

    ``output`` is what the kernel printed, in the order of execution.
    """

    warp_instructions: int
    switches: int
    resident_blocks: int
    counts: npt.NDArray[np.uint64] = field(repr=False)
    entry: Entry = field(repr=False)
    counted: npt.NDArray[np.uint64] | None = field(default=None, repr=False)  # (rows, counters), where asked for
    timeline: Timeline | None = field(default=None, repr=False)  # where asked for
    output: str = ""

    @property
    def counters(self) -> Counters:
        """Exact counts of memory accesses and more. Raises ValueError unless the launch was asked to count."""
        if self.counted is None:
            raise ValueError("nothing was counted: ask for counters when launching")
        return Counters(((self.entry, self.counts, self.counted),))

    def by_opcode(self) -> Counter[str]:
        """Executed warp instructions by opcode."""
        return self._count(lambda instruction: instruction.opcode)

    def by_line(self) -> Counter[tuple[str, int]]:
        """Executed warp instructions by file and line of the CUDA source."""
        return self._count(lambda instruction: (instruction.location.file, instruction.location.line))

    def _count(self, key: Any) -> Counter[Any]:
        found: Counter[Any] = Counter()
        instructions = self.entry.instructions
        for row, count in enumerate(self.counts.tolist()):
            if count and instructions:
                found[key(instructions[self.entry.decoded.instructions[row]])] += count
        return found


@dataclass(slots=True)
class LaunchContext:
    """What the sentences of a finding need to know about the launch."""

    entry: Entry
    memory: Memory
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    dynamic_shared_bytes: int
    seed: int

    @property
    def sources(self) -> Mapping[str, str]:
        return self.entry.program.sources

    @property
    def shared_variables(self) -> tuple[tuple[ptx.Variable, int], ...]:
        return self.entry.shared_variables

    @property
    def dynamic_offset(self) -> int:
        return self.entry.dynamic_shared_offset

    @property
    def shared_bytes(self) -> int:
        return _shared_bytes(self.entry, self.dynamic_shared_bytes)

    @property
    def local_bytes(self) -> int:
        return self.entry.local_bytes

    @property
    def parameter_bytes(self) -> int:
        return self.entry.parameter_bytes

    def instruction(self, row: int) -> ptx.Instruction | None:
        decoded = self.entry.decoded
        if not 0 <= row < len(decoded.instructions) or not self.entry.instructions:
            return None
        return self.entry.instructions[int(decoded.instructions[row])]

    def block_position(self, block: int) -> tuple[int, int, int]:
        return _position(block, self.grid)

    def thread_position(self, warp: int, lane: int) -> tuple[int, int, int]:
        return _position(32 * warp + lane, self.block)

    def nearest(self, address: int) -> Allocation | None:
        return self.memory.nearest(address)

    def register_names(self, cell: int) -> list[str]:
        return self.entry.decoded.register_names.get(cell, [])

    def string(self, address: int) -> str:
        """The text that starts at an address in global memory."""
        allocation = self.memory.find(address)
        if allocation is None:
            return ""
        raw = bytes(allocation.data[address - allocation.address :])
        return raw.partition(b"\0")[0].decode("utf-8", "replace")


def execute(
    entry: Entry,
    grid: Dimensions,
    block: Dimensions,
    args: Sequence[Argument],
    *,
    memory: Memory,
    cluster: Dimensions = (1, 1, 1),
    shared_bytes: int = 0,
    seed: int = 0,
    checks: Checks = Checks.ALL,
    threads: int | None = None,
    max_warp_instructions: int | None = None,
    max_seconds: float | None = None,
    registers_per_thread: int | None = None,
    limits: DeviceLimits = H200,
    counters: bool = False,
    trace: Traced | None = None,
) -> Statistics:
    """Executes a kernel.

    ``grid``, ``block`` and ``cluster`` are up to three numbers, x first. ``args``: one for each parameter, an int or
    float, a NumPy scalar, the bytes of a struct, an ``Allocation`` for a pointer or a ``TensorMap``. ``shared_bytes``
    is dynamic shared memory. ``seed`` draws the order in which warps run: the same seed gives the same run.
    ``threads`` of this machine execute independent blocks (1 when None). ``max_warp_instructions`` is how many
    instructions the warps of one block may execute before it counts as hung, ``max_seconds`` how long the launch may
    take before that. ``registers_per_thread``, as the compiler reports it, limits how many blocks are resident at once.
    ``counters`` fills ``Statistics.counters``, which takes 10 to 30 % more time, and ``trace`` ``Statistics.timeline``.

    Raises ``LaunchError`` and ``ArgumentError`` before anything has run, and ``KernelFault`` for a hazard; memory then
    holds what had been written.
    """
    grid3, block3, cluster3 = _triple(grid, "grid"), _triple(block, "block"), _triple(cluster, "cluster")
    shared_bytes = _number(shared_bytes, "dynamic shared memory", -(2**63), 2**63)
    seed = _number(seed, "the seed", 0, 2**64 - 1)
    threads = _number(threads or 1, "the number of threads", 1, _MOST_THREADS)
    budget = _UNLIMITED
    if max_warp_instructions is not None:
        budget = _number(max_warp_instructions, "the limit on warp instructions", 1, _UNLIMITED)
    seconds = 0.0 if max_seconds is None else _seconds(max_seconds)
    if cluster3 == (1, 1, 1) and entry.cluster is not None:
        cluster3 = entry.cluster
    check_launch(entry, grid3, block3, cluster3, shared_bytes, registers_per_thread, limits)
    _check_size(entry, grid3, block3, shared_bytes, registers_per_thread, limits)
    variables = entry.program.load(memory)
    parameters, tensor_maps = _parameter_buffer(entry, args, memory)
    resident = limits.resident_blocks(
        block3[0] * block3[1] * block3[2], _shared_bytes(entry, shared_bytes), registers_per_thread
    )
    workspace = memory.upload(_GRID_WORKSPACE, "grid workspace") if entry.cooperative else None
    pool = _constant_pool(entry, (grid3, block3, cluster3, shared_bytes, workspace), variables)
    tensor_maps += [(address, tensor) for address, tensor in memory.tensor_maps.items()]
    result = _engine.launch(
        entry.engine_program,
        grid=grid3,
        block=block3,
        cluster=cluster3,
        constants=pool,
        parameters=parameters,
        allocations=[_engine.Allocation(a.address, a.data, a.written, a.writable) for a in memory.allocations],
        tensor_maps=[_engine_tensor_map(address, tensor) for address, tensor in tensor_maps],
        shared_bytes=_shared_bytes(entry, shared_bytes, reserved=True),
        local_bytes=entry.local_bytes,
        registers=_registers(entry, registers_per_thread),
        resident_blocks=resident,
        threads=threads,
        seed=seed,
        budget=budget,
        checks=int(checks),
        count=counters,
        seconds=seconds,
        reserved_bytes=H200.shared_reserved_per_block if entry.uses_reserved_shared else 0,
        **_trace_options(trace, entry),
    )
    memory.settle()
    if workspace is not None:
        memory.free(workspace)
    counted = result.counters if counters else None
    timeline = None
    if trace is not None:
        timeline = Timeline(entry, grid3, shared_bytes, seed, result.trace, result.trace_cut)
    output = printed_text(result.printed, result.prints_dropped, memory)
    statistics = Statistics(
        result.instructions, result.switches, resident, result.counts, entry, counted, timeline, output
    )
    if result.fault is not None:
        context = LaunchContext(entry, memory, block3, grid3, shared_bytes, seed)
        raise KernelFault(explain(result.fault, result.waiting, context), statistics)
    return statistics


# -------------------------------------------------------------------------------------------------- before the launch


def _trace_options(trace: Traced | None, entry: Entry) -> dict[str, Any]:
    if trace is None:
        return {}
    events = _number(trace.events, "the number of events", 1, 2**32)
    return {"trace_events": events, "trace_blocks": list(trace.blocks), "trace_lines": line_numbers(entry)}


def _triple(numbers: Dimensions, what: str) -> tuple[int, int, int]:
    try:
        values = [numbers] if isinstance(numbers, int | np.integer) else list(numbers)
        padded = [operator.index(value) for value in values] + [1, 1]
    except TypeError:
        raise LaunchError(f"the {what} is one to three whole numbers, not {numbers!r}") from None
    if not 1 <= len(values) <= 3:
        raise LaunchError(f"the {what} has one to three dimensions, not {len(values)}")
    return padded[0], padded[1], padded[2]


def _number(value: int, what: str, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise LaunchError(f"{what} is a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise LaunchError(f"{what} is a whole number from {least} to {most}, not {value!r}")
    return number


def _registers(entry: Entry, registers_per_thread: int | None) -> int:
    """What every thread holds at first, a multiple of 8; 0 where the kernel declares no limit."""
    if entry.register_limit is None:
        return 0
    return -(-registers_per_thread // 8) * 8 if registers_per_thread else entry.register_limit


def _seconds(value: float) -> float:
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise LaunchError(f"the limit in seconds is a number above 0, not {value!r}")
    return float(value)


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
    shared = _shared_bytes(entry, dynamic)
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
    if entry.cluster is not None and cluster != entry.cluster:
        raise LaunchError(f"{entry.name} is compiled for clusters of {entry.cluster}, not {cluster}")
    blocks = cluster[0] * cluster[1] * cluster[2]
    if min(cluster) < 1 or blocks > limits.max_cluster_blocks:
        raise LaunchError(f"the cluster {cluster} has {blocks} blocks; 1 to {limits.max_cluster_blocks} are allowed")
    for axis, number, step in zip("xyz", grid, cluster, strict=True):
        if number % step:
            raise LaunchError(
                f"the grid has {number} blocks in {axis}, which is not a multiple of the cluster's {step}"
            )
    held = limits.resident_blocks(threads, shared, registers)
    if entry.cooperative and grid[0] * grid[1] * grid[2] > held:
        raise LaunchError(
            f"{entry.name} waits for its whole grid, of which all blocks must be resident: {limits.name} holds {held} "
            f"of {threads} threads and {shared} bytes of shared memory, not {grid[0] * grid[1] * grid[2]}"
        )
    if entry.parameter_bytes > limits.max_parameter_bytes:
        raise LaunchError(
            f"{entry.name} has {entry.parameter_bytes} bytes of parameters; {limits.max_parameter_bytes} are allowed"
        )


def _check_size(
    entry: Entry,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic: int,
    registers: int | None,
    limits: DeviceLimits,
) -> None:
    """Raises ``LaunchError`` for a launch that a device may take and that is too large to be emulated."""
    threads = block[0] * block[1] * block[2]
    shared = _shared_bytes(entry, dynamic)
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


def _shared_bytes(entry: Signature, dynamic: int, *, reserved: bool = False) -> int:
    """Shared memory of a block, static and dynamic, and what is reserved for the system where the kernel uses it."""
    own = entry.dynamic_shared_offset + dynamic if dynamic else entry.static_shared_bytes
    return -(-own // 16) * 16 + H200.shared_reserved_per_block if reserved and entry.uses_reserved_shared else own


def check_arguments(entry: Signature, args: Sequence[Argument], memory: Memory) -> None:
    """Raises ``ArgumentError`` for arguments that the kernel's signature does not ask for."""
    _parameter_buffer(entry, args, memory)


def _parameter_buffer(
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
        raw = _Argument(entry, number, parameter).bytes_of(argument, memory)
        buffer[parameter.offset : parameter.offset + parameter.size] = raw
        if isinstance(argument, TensorMap):
            tensor_maps.append((PARAMETER_WINDOW + parameter.offset, argument))
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
            self.refuse("a tensor map has 128 bytes and is passed as a `const __grid_constant__ CUtensorMap`")
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
        return bytes(128)


# --------------------------------------------------------------------------------------------- to the engine and back


_Triple = tuple[int, int, int]
_Shape = tuple[_Triple, _Triple, _Triple, int, Allocation | None]  # grid, block, cluster, dynamic bytes, workspace


def _constant_pool(entry: Entry, shape: _Shape, variables: Mapping[str, Allocation]) -> npt.NDArray[np.uint8]:
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
    workspace: Allocation | None,
) -> dict[str, int]:
    """Special registers that are the same in every thread of a launch; ``decode.UNIFORM_SPECIALS`` are their names."""
    shared = _shared_bytes(entry, dynamic)
    reserved = _shared_bytes(entry, dynamic, reserved=True) - H200.shared_reserved_per_block
    address = 0 if workspace is None else workspace.address
    values = {
        "%nwarpid": 64,
        "%nsmid": H200.sm_count,
        "%gridid": 1,
        "%is_explicit_cluster": int(entry.cluster is not None or cluster != (1, 1, 1)),
        "%cluster_nctarank": cluster[0] * cluster[1] * cluster[2],
        "%total_smem_size": shared,
        "%aggr_smem_size": shared,
        "%dynamic_smem_size": dynamic,
        "%current_graph_exec": 0,
        "%reserved_smem_offset_begin": reserved,
        "%reserved_smem_offset_end": reserved + H200.shared_reserved_per_block,
        "%reserved_smem_offset_cap": H200.shared_reserved_per_block,
        "%reserved_smem_offset_0": reserved,
        "%reserved_smem_offset_1": reserved + H200.shared_reserved_per_block // 2,
        "%envreg1": address >> 32,  # how the driver tells where the state of a grid-wide barrier is
        "%envreg2": address & 0xFFFFFFFF,
    }
    for name, numbers in (("ntid", block), ("nctaid", grid), ("cluster_nctaid", cluster)):
        values.update({f"%{name}.{axis}": number for axis, number in zip("xyz", numbers, strict=True)})
    for axis, blocks, step in zip("xyz", grid, cluster, strict=True):
        values[f"%nclusterid.{axis}"] = blocks // step
    return values


def _engine_tensor_map(address: int, tensor: TensorMap) -> _engine.TensorMap:
    pixels = tensor.pixel_box
    return _engine.TensorMap(
        address,
        tensor.address,
        ELEMENT_TYPES[tensor.element_type][0],
        tensor.shape,
        (tensor.element_bytes, *tensor.strides),
        tensor.box,
        tensor.element_strides,
        tensor.swizzle,
        tensor.nan_fill,
        *((pixels.pixels, pixels.lower, pixels.upper) if pixels is not None else ()),
    )


def _position(linear: int, extent: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = extent
    return linear % x, linear // x % y, linear // (x * y)
