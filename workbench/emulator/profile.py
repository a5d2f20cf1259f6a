"""What a launch executed, line by line of the CUDA source.

Counts are of warp instructions and exact. A line's ``own`` count is of the instructions that the compiler made of that
very line; its ``total`` has also those of functions that were inlined into it, so that a call in a kernel shows what it
costs and the header shows where. The ``own`` counts of all lines add up to the launch's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from .counters import Counters, Counts
from .statistics import Statistics

__all__ = ["KINDS", "Line", "Profile", "instruction_kind", "profile"]

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

    ``own_counts`` and ``total_counts`` are what ``counters`` names, where the launches counted.
    """

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
