"""Sentences about accesses of two launches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .. import ptx
from ..context import LaunchContext
from ..host_code.stubs import PRELUDE
from ..ptx import Instruction
from ..source_lines import through
from .evidence import Evidence

_ENDS = ("exit", "ret", "trap")
_BARRIERS = ("bar.sync", "bar.red", "barrier.sync", "barrier.red", "barrier.cta.sync", "barrier.cta.red")


@dataclass(frozen=True)
class Flow:
    """The rows of a kernel, and from which to which others it goes on."""

    context: LaunchContext

    @cached_property
    def successors(self) -> list[tuple[int, ...]]:
        """For each row, the rows that may come after it."""
        rows = self.context.entry.decoded.rows
        found: list[tuple[int, ...]] = []
        for row in range(len(rows)):
            guarded, target = rows[row][1] >= 0, int(rows[row][5])
            after: tuple[int, ...] = (row + 1,) if row + 1 < len(rows) else ()
            instruction = self.context.instruction(row)
            if target >= 0:
                after = (target, *after) if guarded else (target,)
            elif instruction and instruction.opcode.startswith(_ENDS) and not guarded:
                after = ()
            found.append(after)
        return found

    def after(self, row: int, without: Collection[int] = (), *, forwards: bool = False) -> set[int]:
        """The rows that may come after one, on ways that do not go through those of `without`. These are reached, but
        not left. `forwards`: on ways that do not lead back."""
        seen: set[int] = set()
        left = [row] if row >= 0 else []
        while left:
            at = left.pop()
            for following in self.successors[at]:
                if following not in seen and not (forwards and following <= at):
                    seen.add(following)
                    if following not in without:
                        left.append(following)
        return seen

    def before(self, row: int) -> set[int]:
        """The rows after which one may come."""
        predecessors: dict[int, list[int]] = {}
        for at, following in enumerate(self.successors):
            for one in following:
                predecessors.setdefault(one, []).append(at)
        seen: set[int] = set()
        left = [row]
        while left:
            for at in predecessors.get(left.pop(), ()):
                if at not in seen:
                    seen.add(at)
                    left.append(at)
        return seen

    def been(self, row: int, positions: Mapping[int, Iterable[int]]) -> set[int]:
        """Of warps that are at these rows, those that may have been at a place before, or are there."""
        behind = self.after(row)
        return {warp for warp, rows in positions.items() if any(at == row or at in behind for at in rows)}

    def coming(self, row: int, positions: Mapping[int, Iterable[int]]) -> set[int]:
        """Of warps that are at these rows, those that can still come to a place."""
        ahead = self.before(row)
        return {warp for warp, rows in positions.items() if any(at in ahead for at in rows)}

    def in_a_branch(self, first: int, second: int) -> int | None:
        """A barrier of the whole block between two places, which not every way from the one to the other leads through;
        None where there is none."""
        onwards = self.after(first, {second}, forwards=True)
        if second not in onwards:
            return None
        between = {row for row in onwards if self.is_barrier(row) and second in self.after(row, forwards=True)}
        avoidable = second in self.after(first, {*between, second}, forwards=True)
        guarded = {row for row in between if self.context.entry.decoded.rows[row][1] >= 0}
        return min(guarded or between, default=None) if avoidable or guarded else None

    def is_barrier(self, row: int, *, named: bool = False) -> bool:
        """Whether an instruction is a barrier of all threads of the block, or a `named` one of some of them."""
        instruction = self.context.instruction(row)
        if instruction is None or not instruction.opcode.startswith(_BARRIERS):
            return False
        counts = "red" in instruction.parts  # into a register, over a predicate
        given = instruction.operands[1:-1] if counts else instruction.operands
        whole = [operand.value for operand in given if isinstance(operand, ptx.Immediate)] == [0] and len(given) == 1
        return whole != named


_WAIT, _TRIGGER = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
_NAMES = {
    ".ptx": {_WAIT: _WAIT, _TRIGGER: _TRIGGER},
    ".py": {_WAIT: "gdc_wait()", _TRIGGER: "gdc_launch_dependents()"},
}
_CUDA = {_WAIT: "cudaGridDependencySynchronize()", _TRIGGER: "cudaTriggerProgrammaticLaunchCompletion()"}

_FIRST_LANE = 2**32
"""Streams from here on are paths of a graph (capture/client/streams.hpp)."""


def _line(instruction: Instruction) -> str:
    """Where an instruction is, or the call of what the workbench itself declares."""
    location = instruction.location
    own = location.inlined_at and location.file.endswith(PRELUDE)
    return str(location.inlined_at[0]) if own else through(location)


class Launches(Evidence):
    """Sentences about two accesses of different launches that nothing puts in order."""

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.context)

    def named(self, context: LaunchContext) -> str:
        """A launch by its kernel, with its number where several launches are of that kernel."""
        series = context.series
        same = [number for number, one in enumerate(series) if one.name == context.name]
        number = next(number for number in same if series[number] is context)
        return f"launch {number + 1} of {context.name}" if len(same) > 1 else context.name

    def call(self, opcode: str) -> str:
        """An instruction as whoever wrote the kernel calls it."""
        file = self.instruction.location.file if self.instruction else ""
        return _NAMES.get(Path(file).suffix, _CUDA)[opcode]

    def explain_launches(self) -> tuple[str, str]:
        """What the two launches do, and what would put them in order."""
        seen, own, theirs = self.seen, self.named(self.context), self.named(self.theirs)
        element, _ = self.element()
        writes, wrote = bool(seen.info & 1), bool(seen.info & 2)
        here = "reads" if not writes else "writes" if wrote else "overwrites"
        there = "writes" if wrote else "reads"
        if writes and wrote:
            here, there = (self.access if self.access == "updates" else here), "writes as well"
        at = f" at {_line(self.other)}" if self.other else ""
        before = f"{own} {here} {element}, which {theirs} {there}{at}"
        programmatic = [number for number, how in self.context.after if how]
        if seen.other_launch in programmatic:
            return f"{before}, and this thread does not come after a wait for {theirs}", self.missing_wait()
        if middle := self.without_wait(seen.other_launch):
            names = " and ".join(self.named(one) for one in middle)
            return (
                f"{before}, and {own} does not wait for {theirs}: {names} lies between, and may end before {theirs}",
                f"call {self.call(_WAIT)} in {names}, too: what waits for a kernel that has never waited does not wait "
                "for the kernels before that one",
            )
        if programmatic and self.comes_after(seen.other_launch):
            return f"{before}, and this thread does not come after a wait", self.missing_wait()
        return f"{before}, and nothing orders the two", self.stream_advice()

    def missing_wait(self) -> str:
        """Where the wait is missing."""
        wait, theirs = self.call(_WAIT), self.named(self.theirs)
        here = str(self.instruction.location) if self.instruction and self.instruction.location else "this line"
        waits, flow = self.context.executed(_WAIT), self.flow
        triggers = self.theirs.executed(_TRIGGER)
        trigger = self.theirs.instruction(triggers[0]) if triggers else None
        when = (
            f"{self.call(_TRIGGER)} at {_line(trigger)} lets this kernel begin, and makes nothing visible"
            if trigger
            else f"this kernel may begin before what {theirs} has stored is visible"
        )
        if not waits:
            return f"{wait} has to come before {here}: {when}"
        found = self.context.instruction(waits[0])
        line = _line(found) if found else "an unknown line"
        if any(self.seen.pc in flow.after(row) for row in waits):
            return (
                f"not all threads come to {wait} at {line} first: call it in every thread, or put a barrier of the "
                f"block, __syncthreads(), between it and {here}; {when}"
            )
        return f"move {wait} from {line} to a place before {here}: {when}"

    def without_wait(self, target: int) -> list[LaunchContext]:
        """The launches on the way to an earlier one that are launched programmatically, and have never waited."""
        left, seen, series = [(number, how) for number, how in self.context.after], set[int](), self.context.series
        found = []
        while left:
            number, _ = left.pop()
            if number in seen or number == target:
                continue
            seen.add(number)
            if self.reaches(number, target) and any(how for _, how in series[number].after):
                found += [series[number]] * (not series[number].executed(_WAIT))
            left += series[number].after
        return found

    def reaches(self, number: int, target: int) -> bool:
        """Whether edges lead from one launch to an earlier one."""
        return number == target or any(self.reaches(before, target) for before, _ in self.context.series[number].after)

    def comes_after(self, target: int) -> bool:
        """Whether edges lead from this launch to an earlier one."""
        return any(self.reaches(before, target) for before, _ in self.context.after)

    def stream_advice(self) -> str:
        """Of launches that no edge connects."""
        own, theirs = self.named(self.context), self.named(self.theirs)
        streams = {self.context.stream, self.theirs.stream} - {None}
        if any(stream is not None and stream >= _FIRST_LANE for stream in streams):
            return f"no path of the graph leads from {theirs} to {own}: add a dependency, or capture both in one stream"
        numbers = " and ".join(str(stream) for stream in sorted(s for s in streams if s is not None))
        where = f"they are in streams {numbers}; " if len(streams) > 1 else ""
        return f"{where}record an event behind {theirs} and let {own} wait for it, or launch both in one stream"
