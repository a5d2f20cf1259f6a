"""Sentences about accesses of two launches."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ..context import LaunchContext
from ..host_code.stubs import PRELUDE
from ..ptx import Instruction
from ..source_lines import through
from .evidence import Evidence
from .flow import Flow

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
