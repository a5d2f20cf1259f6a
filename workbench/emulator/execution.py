"""A launch: what is checked before it, how it is handed to the engine, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

import numpy as np

from . import _engine
from .arguments import Argument, parameter_buffer
from .constants import constant_pool
from .context import LaunchContext
from .device_limits import H200, DeviceLimits, limits_of
from .explain import explain
from .findings import Finding
from .launch_checks import (
    Dimensions,
    check_launch,
    check_size,
    registers_of,
    seconds_of,
    shared_bytes_of,
    triple,
    whole_number,
)
from .memory import Memory
from .printing import printed_text
from .program import Entry
from .rules import Rules
from .statistics import Statistics
from .tensor_map import ELEMENT_TYPES, TensorMap
from .trace import Timeline, Traced, line_numbers

__all__ = ["Checks", "execute"]

_UNLIMITED = 2**63
_MOST_THREADS = 256
_GRID_WORKSPACE = np.array([8, 0], np.uint32)  # of cooperative groups: its size in bytes, the barrier's state


class Checks(IntFlag):
    """The checks that can be turned off. Bounds and alignment are always checked."""

    NONE = 0
    INITIALISED = 1
    IN_FLIGHT = 2
    EXITED_MEMBERS = 4
    RACES = 8
    ALL = 15


@dataclass(frozen=True, slots=True)
class _Limit:
    """Threads of this machine that execute blocks, and what a launch may take before it counts as hung."""

    threads: int
    budget: int  # warp instructions of a block
    seconds: float

    @classmethod
    def of(cls, threads: int | None, budget: int | None, seconds: float | None) -> _Limit:
        """Without a limit where None is given. Raises ``LaunchError``."""
        return cls(
            whole_number(threads or 1, "the number of threads", 1, _MOST_THREADS),
            _UNLIMITED if budget is None else whole_number(budget, "the limit on warp instructions", 1, _UNLIMITED),
            0.0 if seconds is None else seconds_of(seconds),
        )


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel, its memory, and the shape in which it is launched."""

    entry: Entry
    memory: Memory
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared_bytes: int
    seed: int

    @classmethod
    def of(
        cls,
        entry: Entry,
        memory: Memory,
        grid: Dimensions,
        block: Dimensions,
        cluster: Dimensions,
        dynamic_shared_bytes: int,
        seed: int,
    ) -> _Launch:
        """With the cluster that the kernel is compiled for where none is given. Raises ``LaunchError``."""
        shape = triple(grid, "grid"), triple(block, "block"), triple(cluster, "cluster")
        if shape[2] == (1, 1, 1) and entry.cluster is not None:
            shape = (*shape[:2], entry.cluster)
        return cls(entry, memory, *shape, dynamic_shared_bytes, seed)

    def check(self, registers: int | None, limits: DeviceLimits) -> None:
        """Raises ``LaunchError`` for what the device would refuse, and for what is too large to be emulated."""
        check_launch(self.entry, self.grid, self.block, self.cluster, self.dynamic_shared_bytes, registers, limits)
        check_size(self.entry, self.grid, self.block, self.dynamic_shared_bytes, registers, limits)

    def resident(self, registers: int | None, limits: DeviceLimits) -> int:
        """Blocks that a multiprocessor holds at once, times the multiprocessors."""
        x, y, z = self.block
        return limits.resident_blocks(x * y * z, shared_bytes_of(self.entry, self.dynamic_shared_bytes), registers)

    def context(self) -> LaunchContext:
        """For the sentences of a finding."""
        return LaunchContext(self.entry, self.memory, self.block, self.grid, self.dynamic_shared_bytes, self.seed)

    def run(self, args: Sequence[Argument], **options: Any) -> _engine.Result:
        """Hands everything to the engine. Raises ``ArgumentError``."""
        entry, memory = self.entry, self.memory
        variables = entry.program.load(memory, entry.decoded.variables)
        parameters, tensor_maps = parameter_buffer(entry, args, memory)
        workspace = memory.upload(_GRID_WORKSPACE, "grid workspace") if entry.cooperative else None
        shape = self.grid, self.block, self.cluster, self.dynamic_shared_bytes, workspace
        tensor_maps += memory.tensor_maps.items()
        result = _engine.launch(
            entry.engine_program,
            grid=self.grid,
            block=self.block,
            cluster=self.cluster,
            constants=constant_pool(entry, shape, variables),
            parameters=parameters,
            allocations=[_engine.Allocation(a.address, a.data, a.written, a.writable) for a in memory.allocations],
            tensor_maps=[_engine_tensor_map(address, tensor) for address, tensor in tensor_maps],
            shared_bytes=shared_bytes_of(entry, self.dynamic_shared_bytes, reserved=True),
            local_bytes=entry.local_bytes,
            seed=self.seed,
            reserved_bytes=H200.shared_reserved_per_block if entry.uses_reserved_shared else 0,
            **options,
        )
        memory.settle()
        if workspace is not None:
            memory.free(workspace)
        return result


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
    limits: DeviceLimits | None = None,
    counters: bool = False,
    trace: Traced | None = None,
    strict: bool = False,
    suppress: str | Sequence[str] = (),
    max_findings: int = 1,
) -> Statistics:
    """Executes a kernel.

    ``grid``, ``block`` and ``cluster`` are up to three numbers, x first. ``args``: one for each parameter, an int or
    float, a NumPy scalar, the bytes of a struct, an ``Allocation`` for a pointer or a ``TensorMap``. ``shared_bytes``
    is dynamic shared memory. ``seed`` draws the order in which warps run: the same seed gives the same run.
    ``threads`` of this machine execute independent blocks (1 when None). ``max_warp_instructions`` is how many
    instructions the warps of one block may execute before it counts as hung, ``max_seconds`` how long the launch may
    take before that. ``registers_per_thread``, as the compiler reports it, limits how many blocks are resident at once.
    ``limits`` are those of the device, by default of one of the program's architecture.
    ``counters`` fills ``Statistics.counters``, which takes 10 to 30 % more time, and ``trace`` ``Statistics.timeline``.
    ``strict`` makes findings of that severity failures, ``suppress`` leaves some out (``"race@kernel.cu:42"``), and
    after ``max_findings`` failures the launch ends.

    Raises ``LaunchError`` and ``ArgumentError`` before anything has run, and ``KernelFault`` for a failure; memory then
    holds what had been written. Findings that are no failures are in ``Statistics.findings``.
    """
    rules = Rules.of(entry, strict, suppress, max_findings)
    shared_bytes = whole_number(shared_bytes, "the size of dynamic shared memory", 0, 2**31 - 1)
    seed = whole_number(seed, "the seed", 0, 2**64 - 1)
    limit = _Limit.of(threads, max_warp_instructions, max_seconds)
    launch = _Launch.of(entry, memory, grid, block, cluster, shared_bytes, seed)
    limits = limits_of(entry.program.arch) if limits is None else limits
    launch.check(registers_per_thread, limits)
    options = {"checks": int(checks), "count": counters, **_options(limit, rules, trace, entry)}
    resident = launch.resident(registers_per_thread, limits)
    result = launch.run(args, registers=registers_of(entry, registers_per_thread), resident_blocks=resident, **options)
    timeline = Timeline(entry, launch.grid, shared_bytes, seed, result.trace, result.trace_cut) if trace else None
    counts = (result.instructions, result.switches, resident, result.counts, entry)
    output = printed_text(result.printed, result.prints_dropped, memory)
    findings = _findings(result, launch, rules)
    statistics = Statistics(*counts, result.counters if counters else None, timeline, output, *findings)
    rules.check(statistics)
    return statistics


def _findings(
    result: _engine.Result, launch: _Launch, rules: Rules
) -> tuple[tuple[Finding, ...], tuple[Finding, ...], bool, tuple[str, ...]]:
    """What is reported, what is suppressed, whether the launch was stopped, and which suppressions matched nothing.

    A suppressed finding is reported all the same where the launch could not go on behind it.
    """
    context = launch.context()
    every = [explain(fault, waiting, context) for fault, waiting in result.findings]
    last = None if result.fault is None else explain(result.fault, result.waiting, context)
    every += [] if last is None else [last]
    reported = tuple(finding for finding in every if finding is last or not rules.suppressed(finding))
    suppressed = tuple(finding for finding in every if finding not in reported)
    return reported, suppressed, last is not None, rules.unused(every)


def _options(limit: _Limit, rules: Rules, trace: Traced | None, entry: Entry) -> dict[str, Any]:
    options = {"threads": limit.threads, "budget": limit.budget, "seconds": limit.seconds, **rules.options(entry)}
    if trace is None:
        return options
    events = whole_number(trace.events, "the number of events", 1, 2**32)
    return options | {"trace_events": events, "trace_blocks": list(trace.blocks), "trace_lines": line_numbers(entry)}


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
