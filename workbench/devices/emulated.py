"""The emulator as a device: runs the PTX of a compiled source on the CPU, finds hazards, times nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..model.arrays import Array
from ..model.launch import H200, MACHINES, Launch, Machine, Plan, emulated_name, of_architecture
from ..model.results import DeviceInfo, Verdict
from ..toolchain.compiler import Compiled, target_of
from ..toolchain.findings import hazard_of
from . import base
from .base import DeviceUnavailable, Fault, OnMachine, argument_of, check_cluster, no_kernel

try:
    from .. import emulator
    from ..emulator import coverage, execution
    from ..emulator.architectures import limits_of
    from ..emulator.launch_checks import DEFAULT_STREAM, Order, shared_bytes_of
except ImportError as error:  # the C++ core was not built
    raise DeviceUnavailable(
        f"the emulator's engine is not installed ({error}); build it with: pip install . "
        "(it needs a C++17 compiler, for example the package g++)"
    ) from None

MOST_WARP_INSTRUCTIONS = 100_000_000
"""Of one block, before it counts as hung: some seconds. A kernel that waits in a loop for ever ends here."""

MOST_BYTES = 8 << 30
"""Of all arrays of a plan; the emulator needs twice that."""

PERSISTENT_BLOCKS = (2, 4, 6, 10, 40, 132, 264)
"""Blocks of a persistent launch, of which the seed chooses one: few, so that small problems already make every block
work on several items, and not always as few, so that blocks have others to wait for or to share work with; and as many
as a device holds."""

MOST_REGISTERS = 255
"""Of a thread, on every device."""

ADDRESSES = 16
"""Of so many places in memory, the seed chooses where the arrays of a plan lie."""

DISTANCES = (0, 256, 1 << 16, 1 << 24, 1 << 33)
"""Bytes by which an array is at most farther from the one before it than it has to be: below 2^32 and beyond."""

BORDERS, ACROSS = (31, 32), 4
"""Bits of borders of addresses, and of so many arrays one lies across such a border: a multiple of 2^31 or 2^32."""


@lru_cache(maxsize=64)
def _program(key: str, ptx: str, source: str) -> emulator.Program:
    return emulator.Program.from_ptx(ptx, source)


def _limits(machine: Machine) -> emulator.DeviceLimits:
    """What a launch may have on a machine that is like one of `MACHINES` in all that it does not say.

    Raises DeviceUnavailable for another architecture."""
    if machine.architecture not in MACHINES:
        had = " and ".join(f"{architecture / 10:.1f}" for architecture in MACHINES)
        asked = f"{had}, not {machine.architecture / 10:.1f}"
        raise DeviceUnavailable(f"stages are verified by the emulator for compute capability {asked}")
    like = limits_of(target_of(machine.architecture))
    if machine == MACHINES[machine.architecture]:
        return like
    return replace(
        like,
        name=f"device with {machine.multiprocessors} multiprocessors",
        sm_count=machine.multiprocessors,
        shared_per_block=machine.shared_bytes,
        shared_per_sm=like.shared_per_sm + machine.shared_bytes - like.shared_per_block,
        registers_per_sm=machine.registers,
    )


class EmulatedDevice(OnMachine):
    """Stands for a device of compute capability 9.0, an H200, if no other `machine` is given. What is compiled for
    another architecture runs on a machine of that one.

    A block that executes more than `most_warp_instructions` counts as hung. With `counters` the statistics of a plan's
    launches have them, with `trace` a timeline, also that of a launch that ended with a hazard. `persistent_blocks` is
    how many blocks of a persistent launch it holds at once, as a GPU would; without it the seed of a plan chooses."""

    times = False

    def __init__(
        self,
        most_warp_instructions: int = MOST_WARP_INSTRUCTIONS,
        *,
        counters: bool = False,
        trace: emulator.Traced | None = None,
        persistent_blocks: int | None = None,
        machine: Machine = H200,
    ) -> None:
        self.machine, self.name = machine, emulated_name(machine)
        self.limits = _limits(machine)
        self.most_warp_instructions = most_warp_instructions
        self.counters, self.trace, self.persistent_blocks = counters, trace, persistent_blocks
        self.shared: emulator.Memory | None = None
        self._noted: dict[emulator.Entry, np.ndarray[Any, Any]] = {}

    def note(self, entry: emulator.Entry, outcomes: np.ndarray[Any, Any]) -> None:
        """A launch has had these outcomes, by row."""
        had = self._noted.get(entry)
        self._noted[entry] = outcomes.copy() if had is None else had | outcomes

    def take_outcomes(self) -> coverage.Outcomes:
        """How the conditions of kernels have come out since this was last asked."""
        found: coverage.Outcomes = {}
        for entry, noted in self._noted.items():
            coverage.merge(found, coverage.outcomes(entry, noted))
        self._noted = {}
        return found

    @contextlib.contextmanager
    def one_module(self) -> Iterator[None]:
        """What is bound meanwhile shares a memory, and with it the variables of a module, as on a GPU."""
        self.shared = emulator.Memory()
        try:
            yield
        finally:
            self.shared = None

    def info(self) -> DeviceInfo:
        limits = self.limits
        return DeviceInfo(
            kind="emulator", name=f"emulated {limits.name}", architecture=limits.arch, sm_count=limits.sm_count
        )

    def limits_for(self, arch: str) -> emulator.DeviceLimits:
        """What a launch may have of which the PTX is for this architecture, such as `sm_100a`."""
        version = int(arch[3:].rstrip("af"))
        other = version in MACHINES and version != self.machine.architecture
        limits = _limits(of_architecture(version, self.machine)) if other else self.limits
        return replace(limits, arch=arch)

    def bind(
        self,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int = 0,
    ) -> _EmulatedPlan:
        try:
            program = _program(compiled.key, compiled.ptx, compiled.source)
            for name in {launch.kernel for launch in plan.launches}:
                if (entry := program.entries.get(name)) is not None:  # which decodes it
                    entry.allowed = ()  # a comment of a source that is judged hides nothing
        except emulator.UnsupportedInstruction as error:
            raise Fault(Verdict.UNSUPPORTED, str(error)) from None
        except emulator.PtxSyntaxError as error:  # such as a variable of gigabytes
            raise Fault(Verdict.LAUNCH_ERROR, f"the emulator cannot load the program: {error}") from None
        every = {**arrays, **plan.scratch}
        if (total := sum(array.nbytes for array in every.values())) > MOST_BYTES:
            message = f"the arrays of the launch have {total:,} bytes; the emulator takes {MOST_BYTES:,}"
            raise Fault(Verdict.OUT_OF_MEMORY, message)
        return _EmulatedPlan(self, program, compiled, plan, every, storage, seed)


class _EmulatedPlan:
    def __init__(
        self,
        device: EmulatedDevice,
        program: emulator.Program,
        compiled: Compiled,
        plan: Plan,
        arrays: Mapping[str, Array],
        storage: Mapping[str, np.ndarray[Any, Any]],
        seed: int,
    ) -> None:
        self._device = device
        self._program, self._compiled, self._plan, self._arrays = program, compiled, plan, arrays
        self._seed = seed % 2**64  # the emulator takes 64 bits, a problem any number
        self._limits = device.limits_for(program.arch)
        self.statistics: list[emulator.Statistics] = []  # of the launches of the last run
        self._memory = device.shared or emulator.Memory(seed % ADDRESSES)
        self._allocations: dict[str, emulator.Allocation] = {}
        rng = np.random.default_rng([self._seed])
        for name in map(str, rng.permutation(list(arrays))):
            if name in plan.aliases:
                continue
            array = arrays[name]
            self._memory.skip(int(rng.integers(1 + int(rng.choice(DISTANCES)))))
            if rng.integers(ACROSS) == 0:
                self._memory.across(1 << int(rng.choice(BORDERS)), int(rng.integers(array.nbytes + 1)))
            # outputs stay uninitialised, so that a kernel which reads what it never wrote is found out
            allocation = self._memory.allocate(
                array.nbytes,
                name,
                align=plan.alignment(name, array),
                element_size=array.dtype.itemsize,
                shape=(array.storage_elements,),
                writable=array.output,  # an input that is written to is named where it happens
            )
            self._allocations[name] = allocation
        self._allocations |= {name: self._allocations[other] for name, other in plan.aliases.items()}
        self._allocations = {name: self._allocations[name] for name in arrays}  # as messages list them
        self._fill(storage)

    def _fill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for name, array in self._arrays.items():
            if array.zero:
                self._memory.write(self._allocations[name], array.poisoned())
            elif array.inout or not array.output:
                self._memory.write(self._allocations[name], storage[name])

    def refill(self, storage: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for name in self._arrays:
            self._memory.forget(self._allocations[name])
        self._fill(storage)

    def run(self) -> None:
        self.statistics.clear()
        for launches in _overlapping(self._plan.launches):
            try:
                prepared, order = [self._prepared(launch) for launch in launches], Order()
                for launch, each in zip(launches, prepared, strict=True):
                    each.after = order.add(DEFAULT_STREAM, launch.programmatic, ())
                found = execution.run(prepared)
                self.statistics += found
                for launch, each, statistics in zip(launches, prepared, found, strict=True):
                    each.rules.check(statistics)
                    self._device.note(self._program.entries[launch.kernel], statistics.outcomes)
            except emulator.KernelFault as fault:
                kind = fault.finding.kind
                verdict = Verdict.INPUT_CHANGED if kind is emulator.FindingKind.READ_ONLY else Verdict(kind)
                raise Fault(verdict, str(fault.finding), [hazard_of(fault.finding)]) from None
            except (emulator.LaunchError, emulator.ArgumentError) as error:
                raise Fault(Verdict.LAUNCH_ERROR, str(error)) from None
        for name, array in self._arrays.items():
            if array.zero:
                base.check_zero(name, array, self.read(name))
            if array.output and name not in self._plan.scratch:
                base.check_whole(name, array, self._memory.initialised(self._allocations[name]))

    def _prepared(self, launch: Launch) -> execution.Prepared:
        """A launch, checked. Raises Fault, LaunchError and ArgumentError."""
        if launch.kernel not in self._program.entries:
            raise no_kernel(launch.kernel, self._program.entries)
        check_cluster(self._program.entries[launch.kernel], launch)
        resident, chosen = self._device.persistent_blocks, self._seed // ADDRESSES % len(PERSISTENT_BLOCKS)
        most = launch.persistent_blocks(PERSISTENT_BLOCKS[chosen])
        grid = (launch.even_blocks(resident) if resident else most, *launch.grid[1:])
        return execution.prepare(
            self._program.entries[launch.kernel],
            grid,
            launch.block,
            [argument_of(a, self._arrays, self._allocations) for a in launch.args],
            memory=self._memory,
            cluster=launch.cluster,
            shared_bytes=launch.shared_bytes,
            seed=self._seed,
            max_warp_instructions=self._device.most_warp_instructions,
            counters=self._device.counters,
            trace=self._device.trace,
            strict=True,  # a verdict is about what PTX promises, not about what one device does
            suppress="race_volatile",  # which C++ does not promise, and PTX does
            registers_per_thread=self._registers(launch, grid),
            limits=self._limits,
        )

    def _registers(self, launch: Launch, grid: tuple[int, int, int]) -> int | None:
        """What ptxas reports of a kernel; None where nothing hangs on it, which saves its time."""
        if self._compiled.made is None and not self._registers_matter(launch, grid):
            return None
        return self._compiled.usage[launch.kernel].registers

    def _registers_matter(self, launch: Launch, grid: tuple[int, int, int]) -> bool:
        """Whether, with the most registers that a thread may have, the launch is refused or blocks have to wait."""
        if "setmaxnreg" in self._compiled.ptx:
            return True
        entry, limits = self._program.entries[launch.kernel], self._limits
        threads, most = math.prod(launch.block), entry.register_limit or MOST_REGISTERS
        shared = shared_bytes_of(entry, launch.shared_bytes)
        if not 0 < threads * most <= limits.registers_per_sm:
            return True
        return shared >= 0 and math.prod(grid) > limits.resident_blocks(threads, shared, most)

    def read(self, name: str) -> np.ndarray[Any, Any]:
        array, allocation = self._arrays[name], self._allocations[name]
        values = self._memory.read(allocation, array.dtype.storage, (array.storage_elements,))
        written = self._memory.initialised(allocation)[: array.nbytes].reshape(-1, array.dtype.itemsize).all(axis=1)
        values[~written] = array.poisoned()[~written]
        return values

    def close(self) -> None:
        self._memory = emulator.Memory()


def _overlapping(launches: Sequence[Launch]) -> Iterator[list[Launch]]:
    """The launches of a plan in groups: those of a group may overlap, each with the one before it."""
    group: list[Launch] = []
    for launch in launches:
        if group and not launch.programmatic:
            yield group
            group = []
        group.append(launch)
    yield group
