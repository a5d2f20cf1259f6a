"""What a launch did, in numbers: for the whole, by opcode and by source line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .findings import Finding
from .program import Entry
from .trace import Timeline

# ------------------------------------------------------------------------------------------------------------- counters
# A set of counts is a ``collections.Counter`` of whole numbers. Its names are
#
# - ``warp_instructions``; ``thread_instructions``, of lanes whose guard is true, and ``active_lanes``, of all that
# came; - ``branches`` and ``divergent_branches``, which only a part of the active lanes took; - ``waits`` (barriers,
# mbarriers, collectives) and ``blocked_waits``, where lanes had to wait; - of global memory ``global_load_requests``
# (warp instructions), ``..._sectors`` (of 32 bytes) and ``..._bytes`` (that lanes asked for), the same with ``store``,
# ``atomic`` and ``copy`` (cp.async), and the same of ``local``; - of shared memory ``shared_load_requests``,
# ``..._wavefronts`` (passes of its data stage), ``..._conflicts`` (those of them that bank conflicts cost) and
# ``..._bytes``, the same with ``store``, ``atomic`` and ``copy``; ``remote_...`` are requests and bytes of other
# blocks' shared memory; - of bulk copies ``bulk_load_requests``, ``..._sectors`` of global memory and ``..._bytes`` of
# shared memory, and the same with ``store``; - ``tensor_operations``, of which a multiplication and an addition are
# two; of a sparse product those that its zeros would take, too, as in the rates that are given for it; - of tensor
# memory ``tensor_memory_load_requests`` and ``..._bytes``, the same with ``store`` and ``copy`` (tcgen05.cp).
#
# What is zero is left out.
Counts = Counter[str]
Key = TypeVar("Key", bound=Hashable)

_VERBS = {"ld": "load", "ldu": "load", "ldmatrix": "load", "st": "store", "stmatrix": "store"}
_VERBS |= {"atom": "atomic", "red": "atomic"}
_WAITS = re.compile(
    r"(bar|barrier)(\.cta)?\.(sync|red)|(bar\.warp\.sync)|mbarrier\.(try|test)_wait|barrier\.cluster\.wait"
)


@dataclass(frozen=True, slots=True, eq=False)
class Counters:
    """Counters of one launch, or of several together.

    ``parts`` has for each launch its entry, how often each row of the entry ran, ``(rows,)``, and what the engine
    counted in each row, ``(rows, len(_engine.counter_names()))``."""

    parts: tuple[tuple[Entry, npt.NDArray[np.uint64], npt.NDArray[np.uint64]], ...]

    def __add__(self, other: Counters) -> Counters:
        return Counters(self.parts + other.parts)

    def totals(self) -> Counts:
        """Of everything."""
        return self.grouped(lambda instruction: ("",)).get("", Counter())

    def by_opcode(self) -> dict[str, Counts]:
        """By opcode of the PTX."""
        return self.grouped(lambda instruction: (instruction.opcode,))

    def by_line(self, *, inlined: bool = False) -> dict[tuple[str, int], Counts]:
        """By file and line of the CUDA source.

        An instruction of a function that was inlined counts at its own line alone, or, with ``inlined``, once at each
        line that it was inlined into as well."""
        return self.grouped(_lines if inlined else lambda i: ((i.location.file, i.location.line),))

    def tensor_operations(self) -> Counts:
        """Operations of tensor cores by shape and types, such as ``m16n8k16.f32.bf16.bf16.f32``.

        Those of a sparse product begin with ``sp``."""
        found: Counts = Counter()
        for opcode, counts in self.by_opcode().items():
            if counts["tensor_operations"]:
                parts = opcode.split(".")
                shape = next((k for k, part in enumerate(parts) if re.fullmatch(r"m\d+n\d+k\d+", part)), None)
                if shape is None:  # of tcgen05: in a descriptor
                    found[f"tcgen05.{next(p for p in parts if p.startswith('kind::'))}"] += counts["tensor_operations"]
                    continue
                sparse = ["sp" for part in parts[:shape] if part.partition("::")[0] == "sp"]
                named = sparse + [part for part in parts[shape:] if part not in ("row", "col")]
                found[".".join(named)] += counts["tensor_operations"]
        return found

    def grouped(self, keys: Callable[[ptx.Instruction], Iterable[Key]]) -> dict[Key, Counts]:
        """Counts added up by whatever each instruction is to count for."""
        found: dict[Key, Counts] = {}
        for instruction, counts in self._instructions():
            for key in keys(instruction):
                found.setdefault(key, Counter()).update(counts)
        return found

    def _instructions(self) -> Iterator[tuple[ptx.Instruction, Counts]]:
        names = _engine.counter_names()
        for entry, executed, counted in self.parts:
            for row in np.flatnonzero(executed).tolist():
                if entry.instructions:
                    raw = dict(zip(names, counted[row].tolist(), strict=True))
                    instruction = entry.instructions[int(entry.decoded.instructions[row])]
                    yield instruction, _named(instruction.opcode, int(executed[row]), raw)


def _lines(instruction: ptx.Instruction) -> set[tuple[str, int]]:
    location = instruction.location
    return {(location.file, location.line), *((caller.file, caller.line) for caller in location.inlined_at)}


def _verb(opcode: str) -> str:
    base = opcode.partition(".")[0]
    if base == "tcgen05":
        return _VERBS.get(opcode.split(".")[1], "copy")
    if ".bulk." in opcode:
        to_shared = opcode.find(".shared") < opcode.find(".global")
        return "load" if to_shared else "store"
    return _VERBS.get(base, "copy")


def _named(opcode: str, executed: int, raw: dict[str, int]) -> Counts:
    """What the engine counted of an instruction, under names that say what the instruction did."""
    verb, base = _verb(opcode), opcode.partition(".")[0]
    counts = {
        "warp_instructions": executed,
        "thread_instructions": raw["lanes"],
        "active_lanes": raw["active_lanes"],
        "branches": executed if base == "bra" else 0,
        "divergent_branches": raw["divergent"],
        "waits": executed if _WAITS.match(opcode) else 0,
        "blocked_waits": raw["blocked"],
        "remote_requests": raw["remote_requests"],
        "remote_bytes": raw["remote_bytes"],
        "tensor_operations": raw["tensor_operations"],
        f"tensor_memory_{verb}_requests": raw["tensor_requests"],
        f"tensor_memory_{verb}_bytes": raw["tensor_bytes"],
        f"shared_{verb}_requests": raw["shared_requests"],
        f"shared_{verb}_wavefronts": raw["shared_wavefronts"],
        f"shared_{verb}_conflicts": raw["shared_wavefronts"] - raw["shared_ideal"],
        f"shared_{verb}_bytes": raw["shared_bytes"],
    }
    for space in ("global", "local", "bulk"):
        for what in ("requests", "sectors", "bytes"):
            counts[f"{space}_{verb}_{what}"] = raw[f"{space}_{what}"]
    return Counter({name: value for name, value in counts.items() if value})


# ----------------------------------------------------------------------------------------------------------- statistics


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one launch: instructions that warps executed, times that a warp was resumed, blocks resident at once.

    ``output`` is what the kernel printed, in the order of execution. ``findings`` has what was found, of any
    severity, in that order, ``suppressed`` what was found and is suppressed. ``stopped``: whether a finding ended the
    launch. ``unused``: suppressions that were asked for and that matched nothing."""

    warp_instructions: int
    switches: int
    resident_blocks: int
    counts: npt.NDArray[np.uint64] = field(repr=False)
    entry: Entry = field(repr=False)
    counted: npt.NDArray[np.uint64] | None = field(default=None, repr=False)  # (rows, counters), where asked for
    timeline: Timeline | None = field(default=None, repr=False)  # where asked for
    output: str = ""
    findings: tuple[Finding, ...] = ()
    suppressed: tuple[Finding, ...] = ()
    stopped: bool = False
    unused: tuple[str, ...] = ()
    outcomes: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8), repr=False)  # of each row

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


# --------------------------------------------------------------------------------------------------------- line by line
# Counts are of warp instructions and exact. A line's ``own`` count is of the instructions that the compiler made of
# that very line; its ``total`` has also those of functions that were inlined into it, so that a call in a kernel shows
# what it costs and the header shows where. The ``own`` counts of all lines add up to the launch's.

KINDS = ("global", "shared", "other memory", "tensor", "arithmetic", "warp", "barrier", "control")
"""What an instruction is for: memory by space, tensor cores, arithmetic (conversions, comparisons and moves as well),
exchange between the lanes of a warp, waiting (barriers, fences, completion of copies), flow of control."""

_CONTROL = {"bra", "brx", "call", "ret", "exit", "trap", "brkpt"}
_BARRIER = {"bar", "barrier", "mbarrier", "fence", "membar", "nanosleep", "griddepcontrol", "setmaxnreg"}
_WARP = {"shfl", "vote", "match", "redux", "activemask", "elect"}
_TENSOR = {"mma", "wmma", "wgmma"}
_MEMORY = {"ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu", "cp", "st_bulk", "multimem", "applypriority"}


def instruction_kind(opcode: str) -> str:
    """The one of ``KINDS`` that an opcode such as ``ld.shared.v4.f32`` is of."""
    parts = opcode.split(".")
    base = parts[0]
    spaces = {part.partition("::")[0] for part in parts[1:]}
    if base in _CONTROL:
        return "control"
    if base in _BARRIER or (base in ("wgmma", "cp") and spaces & {"fence", "commit_group", "wait_group", "wait_all"}):
        return "barrier"
    if base == "cp" and "mbarrier" in parts[2:3]:  # cp.async.mbarrier.arrive
        return "barrier"
    if base in _WARP:
        return "warp"
    if base in ("ldmatrix", "stmatrix"):
        return "shared"
    if base in _TENSOR:
        if spaces & {"load", "store"}:
            return "shared" if "shared" in spaces else "global" if "global" in spaces else "other memory"
        return "tensor"
    if base in _MEMORY:
        if "global" in spaces:  # copies between global and shared memory too
            return "global"
        return "shared" if "shared" in spaces else "other memory"
    return "arithmetic"


@dataclass(slots=True)
class Line:
    """Warp instructions of one source line by kind: its ``own``, and the ``total`` with what is inlined into it.

    ``own_counts`` and ``total_counts`` are what ``counters`` names, where the launches counted."""

    own: Counter[str] = field(default_factory=Counter)
    total: Counter[str] = field(default_factory=Counter)
    own_counts: Counts = field(default_factory=Counter)
    total_counts: Counts = field(default_factory=Counter)


@dataclass(slots=True)
class Profile:
    """Warp instructions by kind, and by file and line of the CUDA source."""

    by_kind: Counter[str] = field(default_factory=Counter)
    lines: dict[tuple[str, int], Line] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counter)  # of everything, where the launches counted

    @property
    def warp_instructions(self) -> int:
        """All of them."""
        return self.by_kind.total()

    def files(self) -> list[str]:
        """The source files, the one that accounts for the most instructions in total first."""
        totals: Counter[str] = Counter()
        for (file, _), line in self.lines.items():
            totals[file] += line.total.total()
        return [file for file, _ in totals.most_common()]


def profile(statistics: Statistics | Iterable[Statistics]) -> Profile:
    """The profile of one launch, or of several together."""
    found = Profile()
    launches = [statistics] if isinstance(statistics, Statistics) else list(statistics)
    for each in launches:
        entry = each.entry
        for row, count in enumerate(each.counts.tolist()):
            if not count or not entry.instructions:
                continue
            instruction = entry.instructions[int(entry.decoded.instructions[row])]
            kind, location = instruction_kind(instruction.opcode), instruction.location
            found.by_kind[kind] += count
            place = location.file, location.line
            found.lines.setdefault(place, Line()).own[kind] += count
            # a line counts once, even where a function is inlined into itself
            for line in {place, *((caller.file, caller.line) for caller in location.inlined_at)}:
                found.lines.setdefault(line, Line()).total[kind] += count
    if launches and all(each.counted is not None for each in launches):
        counters = Counters(tuple(part for each in launches for part in each.counters.parts))
        found.counts = counters.totals()
        for place, counts in counters.by_line().items():
            found.lines[place].own_counts = counts
        for place, counts in counters.by_line(inlined=True).items():
            found.lines[place].total_counts = counts
    return found


# ------------------------------------------------------------------------------------ what a launch that failed raises


class KernelFault(RuntimeError):
    """A launch with a hazard; ``finding`` is the first, ``findings`` has all of any severity in the order found.

    ``statistics`` counts what had run until the launch ended."""

    def __init__(
        self, finding: Finding, statistics: Statistics | None = None, findings: Sequence[Finding] = ()
    ) -> None:
        super().__init__(str(finding))
        self.finding = finding
        self.findings = tuple(findings) or (finding,)
        self.statistics = statistics
