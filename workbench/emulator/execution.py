"""A launch: what is checked before it, how it is handed to the engine, and what comes back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cache, lru_cache
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _engine
from .architectures import H200, DeviceLimits, limits_of
from .context import LaunchContext
from .explain import CAUSES, KINDS, SEVERITIES, explain
from .findings import Finding, FindingKind, Severity
from .launch_checks import (
    Argument,
    Dimensions,
    Edge,
    LaunchError,
    check_launch,
    check_size,
    constant_pool,
    parameter_buffer,
    registers_of,
    seconds_of,
    shared_bytes_of,
    triple,
    whole_number,
)
from .memory import ELEMENT_TYPES, SWIZZLES, Allocation, Memory, TensorMap
from .printing import printed_text
from .program import Entry, early_returns, line_numbers
from .ptx import SourceLocation, text_of
from .source_lines import is_of_cuda
from .statistics import KernelFault, Statistics
from .trace import Timeline, Traced

# ------------------------------------------------------------------------------------------------- which findings count
_COMMENT = re.compile(r"(?P<before>.*?)(?://|/\*|#)\s*workbench:\s*allow\s+(?P<names>[\w, ]+)")
_MARK = "workbench:"
_MOST_FINDINGS = 10_000


@dataclass(frozen=True, slots=True)
class Suppression:
    """A kind or a cause that is not reported: everywhere, in a file (``file``) or at one line of it (``line``).

    ``in_source``: a comment of the source says so."""

    name: str
    file: str = ""
    line: int = 0
    in_source: bool = False

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> Suppression:
        """``race``, ``race@kernel.cu`` or ``race@kernel.cu:42``. Raises ``LaunchError``."""
        name, _, place = text.strip().partition("@")
        file, _, line = place.rpartition(":") if re.search(r":\d+$", place) else (place, "", "0")
        if not file and "@" in text:
            raise LaunchError(f"the suppression {text!r} names no file; write for example race@kernel.cu:42")
        if re.search(r":[^./:]*$", file) and not int(line):
            raise LaunchError(f"the line in the suppression {text!r} is no number; write for example race@kernel.cu:42")
        return cls(_known(name, f"the suppression {text!r}"), file, int(line))

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.name}@{self.file}{line}" if self.file else self.name

    def holds_at(self, location: SourceLocation | None) -> bool:
        """Whether it covers an instruction of that line, or one that was inlined into it."""
        if not self.file:
            return True
        places = (location, *location.inlined_at) if location is not None else ()
        return any(self.line in (0, place.line) and _same_file(place.file, self.file) for place in places)

    def covers(self, finding: Finding) -> bool:
        """Whether the finding, or the line that it is also about, is suppressed."""
        if self.name not in (finding.code, str(finding.kind)):
            return False
        return self.holds_at(finding.location) or (finding.other is not None and self.holds_at(finding.other))


@dataclass(frozen=True, slots=True)
class Rules:
    """What is a failure, and what is not reported.

    ``strict``: findings of that severity count as failures, too. ``most``: failures after which a launch ends."""

    strict: bool
    suppressions: tuple[Suppression, ...]
    most: int

    @classmethod
    def of(cls, entry: Entry, strict: bool, suppress: str | Sequence[str], max_findings: int) -> Rules:
        """With what comments of the kernel's source allow. Raises ``LaunchError`` for a kind that there is not."""
        most = whole_number(max_findings, "the number of findings", 1, _MOST_FINDINGS)
        texts = [suppress] if isinstance(suppress, str) else list(suppress)
        if entry.allowed is None:
            entry.allowed = tuple(_comments(entry))
        allowed = [Suppression(*comment, in_source=True) for comment in entry.allowed]
        return cls(bool(strict), (*map(Suppression.parse, texts), *allowed), most)

    def fails(self, finding: Finding) -> bool:
        """Whether the finding is a failure."""
        return finding.severity is Severity.ERROR or (self.strict and finding.severity is Severity.STRICT)

    def check(self, statistics: Statistics) -> None:
        """Raises ``KernelFault`` with the first failure, where there is one."""
        failure = next(filter(self.fails, statistics.findings), None)
        if failure is not None:
            raise KernelFault(failure, statistics, statistics.findings)

    def suppressed(self, finding: Finding) -> bool:
        """Whether the finding is not to be reported."""
        return any(suppression.covers(finding) for suppression in self.suppressions)

    def unused(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """The suppressions that were asked for and that none of these findings matched."""
        every = list(findings)
        asked = [s for s in self.suppressions if not s.in_source]
        return tuple(str(s) for s in asked if not any(s.covers(finding) for finding in every))

    def options(self, entry: Entry) -> dict[str, Any]:
        """What the engine is told of them."""
        if entry.lines is None:
            entry.lines = np.array(line_numbers(entry), np.int32)
        return {
            "most_findings": self.most,
            "failing": _failing_causes(self.strict),
            "suppressed": self.suppressed_rows(entry),
            "finding_lines": entry.lines,
            "replicas": entry.program.replicas,
        }

    def suppressed_rows(self, entry: Entry) -> npt.NDArray[np.int32]:
        """Pairs of a cause and a row of the program whose findings are not counted; row -1: all of that cause.

        Kept for the next launch with the same suppressions."""
        if entry.suppressed is not None and entry.suppressed[0] == self.suppressions:
            return entry.suppressed[1]
        if entry.early_returns is None:
            entry.early_returns = early_returns(entry)
        diverged = CAUSES.index("barrier_diverged")
        pairs = {(diverged, row) for row in entry.early_returns}
        for suppression in self.suppressions:
            causes = [n for n, c in enumerate(CAUSES) if n and suppression.name in (c, str(KINDS[c]))]
            rows = list(_rows(entry, suppression)) if suppression.file else [-1]
            pairs.update((cause, row) for cause in causes for row in rows)
        entry.suppressed = self.suppressions, np.array(sorted(pairs), np.int32).reshape(-1, 2)
        return entry.suppressed[1]


@cache
def _failing_causes(strict: bool) -> list[bool]:
    """Of each of the engine's causes, whether it is a failure."""
    failing = {Severity.ERROR, Severity.STRICT} if strict else {Severity.ERROR}
    return [bool(cause in CAUSES[1:] and SEVERITIES[cause] in failing) for cause in CAUSES]


def _rows(entry: Entry, suppression: Suppression) -> Iterator[int]:
    for row, index in enumerate(entry.decoded.instructions):
        if suppression.holds_at(entry.instructions[int(index)].location):
            yield row


def _same_file(name: str, wanted: str) -> bool:
    """Whether a path ends with the parts that are wanted."""
    parts = PurePath(wanted).parts
    return PurePath(name).parts[-len(parts) :] == parts


def _known(name: str, where: str) -> str:
    kinds = [str(kind) for kind in FindingKind]
    if name in kinds or name in CAUSES[1:]:
        return name
    finer = sorted(set(CAUSES[1:]) - set(kinds))
    raise LaunchError(
        f"{where} names no kind of finding; the kinds are {', '.join(kinds)}, and the finer ones {', '.join(finer)}"
    )


def _comments(entry: Entry) -> Iterator[tuple[str, str, int]]:
    """Name, file and line of what `// workbench: allow race` says, on the line or alone on the line above.

    Raises ``LaunchError``."""
    places = {i.location.file for i in entry.instructions} | {
        caller.file for i in entry.instructions for caller in i.location.inlined_at
    }
    for file in sorted(places):
        if is_of_cuda(file):
            continue
        text = text_of(file, entry.program.sources)
        for number, line in enumerate(text.splitlines() if _MARK in text else (), 1):
            if _MARK not in line or not (match := _COMMENT.match(line)):
                continue
            alone = not match["before"].strip()
            for name in re.split(r"[,\s]+", match["names"].strip(", ")):
                known = _known(name, f"{Path(file).name}:{number}: the comment `workbench: allow {name}`")
                yield known, file, number + alone


# ----------------------------------------------------------------------------------------------------------- the launch

_UNLIMITED = 2**63
_MOST_THREADS = 256
_LAUNCHES_BEFORE = 1 << 20
"""Launches that a context may have had before, of which `%gridid` is the number."""

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

    def context(self, prepared: Prepared, counts: Any, series: Series) -> LaunchContext:
        """For the sentences of a finding."""
        shape = self.entry, self.memory, self.block, self.grid, self.dynamic_shared_bytes, self.seed
        return LaunchContext(*shape, prepared.label, prepared.stream, prepared.after, series.launches, counts)


@dataclass(slots=True)
class Series:
    """Launches that need not have ended before the next one begins, and what the engine remembers of their accesses."""

    engine: _engine.Series = field(default_factory=_engine.Series)
    launches: list[LaunchContext] = field(default_factory=list)


@dataclass(slots=True)
class Prepared:
    """A launch that has been checked.

    ``after`` has the launches of its series that come before it. ``copies`` are what it does instead, where it is no
    kernel: address, source, bytes, value."""

    launch: _Launch
    args: Sequence[Argument]
    rules: Rules
    resident: int
    trace: Traced | None
    options: dict[str, Any]
    label: str = ""
    stream: int | None = None
    time_slice: int | None = None
    after: Sequence[Edge] = ()
    copies: Sequence[tuple[int, int, int, int]] = ()
    _workspace: Allocation | None = None
    _placed: dict[str, Any] = field(default_factory=dict)

    def again(self, args: Sequence[Argument]) -> Prepared:
        """The same launch with other arguments, before it has been placed."""
        return Prepared(self.launch, args, self.rules, self.resident, self.trace, self.options)

    def place(self) -> None:
        """Puts variables and parameters in memory. Raises ``ArgumentError``."""
        launch = self.launch
        entry, memory = launch.entry, launch.memory
        variables = entry.program.load(memory, entry.decoded.variables if entry.program.variables else ())
        parameters, tensor_maps = parameter_buffer(entry, self.args, memory)
        self._workspace = memory.upload(_GRID_WORKSPACE, "grid workspace") if entry.cooperative else None
        number = 1 + launch.seed % _LAUNCHES_BEFORE
        shape = launch.grid, launch.block, launch.cluster, launch.dynamic_shared_bytes, number, self._workspace
        constants = constant_pool(entry, shape, variables)
        self._placed = {"parameters": parameters, "constants": constants, "tensor_maps": tensor_maps}

    def handed_over(self, allocations: Sequence[_engine.Allocation], slices: int) -> _engine.Launch:
        """The launch for the engine; ``slices``: warp instructions before another warp may run."""
        launch, placed = self.launch, self._placed
        entry, maps = launch.entry, [*placed["tensor_maps"], *launch.memory.tensor_maps.items()]
        return _engine.Launch(
            entry.engine_program,
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            constants=placed["constants"],
            parameters=placed["parameters"],
            allocations=allocations,
            tensor_maps=[_engine_tensor_map(address, tensor) for address, tensor in maps],
            shared_bytes=shared_bytes_of(entry, launch.dynamic_shared_bytes, reserved=True),
            local_bytes=entry.local_bytes,
            seed=launch.seed,
            reserved_bytes=H200.shared_reserved_per_block if entry.uses_reserved_shared else 0,
            resident_blocks=self.resident,
            time_slice=slices,
            after=self.after,
            copies=self.copies,
            **self.options,
        )

    def result(self, result: _engine.Result, context: LaunchContext) -> Statistics:
        """What the engine reports, and frees what was allocated for the launch."""
        launch, entry = self.launch, self.launch.entry
        if self._workspace is not None:
            launch.memory.free(self._workspace)
        shape = launch.grid, launch.dynamic_shared_bytes, launch.seed
        seen = Timeline(entry, *shape, result.trace, result.trace_cut) if self.trace else None
        counts = (result.instructions, result.switches, self.resident, result.counts, entry)
        said = result.printed or result.prints_dropped
        output = printed_text(result.printed, result.prints_dropped, launch.memory) if said else ""
        counters = result.counters if self.options["count"] else None
        findings = _findings(result, context, self.rules)
        return Statistics(*counts, counters, seen, output, *findings, result.outcomes)


_SLICES = (2000, 40, 300)


def run(prepared: Sequence[Prepared], series: Series | None = None) -> list[Statistics]:
    """Executes launches together: blocks of those that may overlap run in turns, which the first one's seed draws.

    They are the next ones of the ``series``. Raises ``ArgumentError``; failures are in ``Statistics.findings``."""
    series = series or Series()
    memory = prepared[0].launch.memory
    for one in prepared:
        one.place()
    allocations = [_for_engine(allocation) for allocation in memory.allocations]
    drawn = _SLICES[prepared[0].launch.seed % len(_SLICES)] if len(prepared) > 1 else _SLICES[0]
    slices = prepared[0].time_slice or drawn
    results = _engine.run([one.handed_over(allocations, slices) for one in prepared], series.engine)
    memory.settle()
    contexts = [one.launch.context(one, result.counts, series) for one, result in zip(prepared, results, strict=True)]
    series.launches += contexts
    statistics = [one.result(found, context) for one, found, context in zip(prepared, results, contexts, strict=True)]
    for context in contexts:
        context.series = []  # whose list has the context: as a cycle they would keep the memory
    return statistics


def _for_engine(a: Allocation) -> _engine.Allocation:
    """An allocation as the engine takes it, kept as long as its arrays are the same."""
    if a.handed is None or a.handed[1] is not a.written or a.handed[2] != a.identity:
        made = _engine.Allocation(a.address, a.data, a.written, a.writable, a.identity, a.is_heap, a.is_constant)
        a.handed = made, a.written, a.identity
    found: _engine.Allocation = a.handed[0]
    return found


def prepare(
    entry: Entry,
    grid: Dimensions,
    block: Dimensions,
    args: Sequence[Argument],
    *,
    memory: Memory,
    cluster: Dimensions = (1, 1, 1),
    shared_bytes: int = 0,
    seed: int = 0,
    time_slice: int | None = None,
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
) -> Prepared:
    """A launch as ``execute`` takes it, which raises what that raises before anything has run."""
    rules = Rules.of(entry, strict, suppress, max_findings)
    shared_bytes = whole_number(shared_bytes, "the size of dynamic shared memory", 0, 2**31 - 1)
    seed = whole_number(seed, "the seed", 0, 2**64 - 1)
    limit = _Limit.of(threads, max_warp_instructions, max_seconds)
    launch = _Launch.of(entry, memory, grid, block, cluster, shared_bytes, seed)
    limits = limits_of(entry.program.arch) if limits is None else limits
    launch.check(registers_per_thread, limits)
    options = {"checks": int(checks), "count": counters, **_options(limit, rules, trace, entry)}
    options["registers"] = registers_of(entry, registers_per_thread)
    resident = launch.resident(registers_per_thread, limits)
    if time_slice is not None:
        time_slice = whole_number(time_slice, "the time slice", 1, 2**31 - 1)
    return Prepared(launch, args, rules, resident, trace, options, time_slice=time_slice)


def execute(
    entry: Entry,
    grid: Dimensions,
    block: Dimensions,
    args: Sequence[Argument],
    *,
    memory: Memory,
    series: Series | None = None,
    after: Sequence[Edge] = (),
    **options: Any,
) -> Statistics:
    """Executes a kernel.

    ``grid``, ``block`` and ``cluster`` are up to three numbers, x first. ``args``: one for each parameter, an int or
    float, a NumPy scalar, the bytes of a struct, an ``Allocation`` for a pointer or a ``TensorMap``. ``shared_bytes``
    is dynamic shared memory. ``seed`` draws the order in which warps run: the same seed gives the same run. A warp
    gives way after ``time_slice`` instructions at the latest, 2000 when None; another number gives another order.
    ``threads`` of this machine execute independent blocks (1 when None). ``max_warp_instructions`` is how many
    instructions the warps of one block may execute before it counts as hung, ``max_seconds`` how long the launch may
    take before that. ``registers_per_thread``, as the compiler reports it, limits how many blocks are resident at once.
    ``limits`` are those of the device, by default of one of the program's architecture.
    ``counters`` fills ``Statistics.counters``, which takes 10 to 30 % more time, and ``trace`` ``Statistics.timeline``.
    ``strict`` makes findings of that severity failures, ``suppress`` leaves some out (``"race@kernel.cu:42"``), and
    after ``max_findings`` failures the launch ends. ``series`` has launches that may not have ended, of which this is
    the next, and ``after`` those that it follows: it may race with others, and with those whose end it need not await.

    Raises ``LaunchError`` and ``ArgumentError`` before anything has run, and ``KernelFault`` for a failure; memory then
    holds what had been written. Findings that are no failures are in ``Statistics.findings``."""
    launch = prepare(entry, grid, block, args, memory=memory, **options)
    launch.after = after
    (statistics,) = run([launch], series)
    launch.rules.check(statistics)
    return statistics


def _findings(
    result: _engine.Result, context: LaunchContext, rules: Rules
) -> tuple[tuple[Finding, ...], tuple[Finding, ...], bool, tuple[str, ...]]:
    """What is reported, what is suppressed, whether the launch was stopped, and which suppressions matched nothing.

    A suppressed finding is reported all the same where the launch could not go on behind it."""
    returned = set(context.entry.early_returns or ()) if result.findings else set()
    every = [
        explain(fault, waiting, context)
        for fault, waiting in result.findings
        if not (fault.kind == "barrier_diverged" and fault.other_pc in returned)
    ]
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
        tensor.swizzle if isinstance(tensor.swizzle, int) else 32 * (SWIZZLES.index(tensor.swizzle) + 1),
        tensor.nan_fill,
        *((pixels.pixels, pixels.lower, pixels.upper, pixels.wide) if pixels is not None else ()),
    )
