"""Sentences about two accesses that nothing puts in order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .. import ptx
from ..context import LaunchContext
from ..host_code.stubs import PRELUDE
from ..launch_checks import Edge, Port
from ..ptx import Instruction, SourceLocation
from ..ptx.tree import Address
from ..source_lines import outside_cuda, through
from .evidence import Evidence
from .words import NOT_WAITING, say_warp_numbers, shortened

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
_NAMES = {".ptx": {_WAIT: _WAIT, _TRIGGER: _TRIGGER}, ".py": {_WAIT: "gdc_wait()", _TRIGGER: "gdc_launch_dependents()"}}
_CUDA = {_WAIT: "cudaGridDependencySynchronize()", _TRIGGER: "cudaTriggerProgrammaticLaunchCompletion()"}


def _is_waited_for(edge: Edge) -> bool:
    """Whether griddepcontrol.wait is needed for an earlier launch, and waits for it."""
    return edge[1] in (Port.TRIGGERED, Port.BEGUN)


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
        """A launch of this series by its kernel, with its number where several launches are of that kernel."""
        series = self.context.series
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
        here = "frees" if self.context.label == "the cudaFreeAsync" else here
        there = "writes" if wrote else "reads"
        if writes and wrote:
            here, there = (self.access if self.access == "updates" else here), "writes as well"
        at = f" at {_line(self.other)}" if self.other else ""
        before = f"{own} {here} {element}, which {theirs} {there}{at}"
        ports = {port for number, port in self.context.after if number == seen.other_launch}
        if early := ports - {Port.ENDED}:
            if self.context.label or early == {Port.BEGUN_ONLY}:
                event = "launch completion" if Port.BEGUN_ONLY in early else "programmatic"
                more = f": {self.call(_WAIT)} does not wait for it" if not self.context.label else ""
                return (
                    f"{before}, and the {event} event of {theirs} comes before its end",
                    f"let {own} wait for an event that is recorded behind {theirs}{more}",
                )
            return f"{before}, and this thread does not come after a wait for {theirs}", self.missing_wait(early)
        if middle := self.without_wait(seen.other_launch):
            names = " and ".join(self.named(one) for one in middle)
            return (
                f"{before}, and {own} does not wait for {theirs}: {names} lies between, and may end before {theirs}",
                f"call {self.call(_WAIT)} in {names}, too: what waits for a kernel that has never waited does not wait "
                "for the kernels before that one",
            )
        if any(map(_is_waited_for, self.context.after)) and self.comes_after(seen.other_launch):
            return f"{before}, and this thread does not come after a wait", self.missing_wait()
        return f"{before}, and nothing orders the two", self.stream_advice()

    def missing_wait(self, ports: Collection[int] = (Port.TRIGGERED,)) -> str:
        """Where the wait is missing."""
        wait, theirs = self.call(_WAIT), self.named(self.theirs)
        here = str(self.instruction.location) if self.instruction and self.instruction.location else "this line"
        waits, flow = self.context.executed(_WAIT), self.flow
        triggers = self.theirs.executed(_TRIGGER)
        trigger = self.theirs.instruction(triggers[0]) if triggers else None
        when = (
            f"{self.call(_TRIGGER)} at {_line(trigger)} lets this kernel begin, and makes nothing visible"
            if trigger and Port.TRIGGERED in ports
            else f"this kernel may begin before what {theirs} has stored is visible"
        )
        if not waits:
            return f"{wait} has to come before {here}: {when}"
        found = self.context.instruction(waits[0])
        line = _line(found) if found else "an unknown line"
        if any(self.seen.pc in flow.after(row) for row in waits):
            return (
                f"not all threads come to {wait} at {line} first: call it in every thread, or put a barrier "
                f"(__syncthreads(), or of the cluster or grid if only some blocks wait) between it and {here}; {when}"
            )
        return f"move {wait} from {line} to a place before {here}: {when}"

    def without_wait(self, target: int) -> list[LaunchContext]:
        """The launches on the way to an earlier one that are launched programmatically, and have never waited."""
        left, seen, series = list(self.context.after), set[int](), self.context.series
        found = []
        while left:
            number, _ = left.pop()
            if number in seen or number == target:
                continue
            seen.add(number)
            if self.reaches(number, target) and any(map(_is_waited_for, series[number].after)):
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


_STRONG = {"relaxed", "acquire", "release", "acq_rel", "volatile"}
_READ_ONLY = (
    "what __ldg(), ld.global.nc, or a load through a `const __restrict__` pointer reads must not change while the "
    "kernel runs: read it by an ordinary load, or write elsewhere"
)
_ORDERING_MBARRIER = ("mbarrier.arrive", "mbarrier.test_wait", "mbarrier.try_wait")


def _is_strong(instruction: Instruction) -> bool:
    """Whether an access is an atomic or an ordered one."""
    opcode = instruction.opcode
    return opcode.startswith(("atom", "red.")) or (
        opcode.startswith(("ld", "st")) and not _STRONG.isdisjoint(instruction.parts)
    )


def _address(instruction: Instruction) -> Address | None:
    """The first address among the operands."""
    return next((operand for operand in instruction.operands if isinstance(operand, Address)), None)


def _narrow_scope(instruction: Instruction) -> str:
    """``block`` or ``cluster`` where an instruction has no wider scope, else nothing."""
    if instruction.opcode.startswith("fence.proxy"):
        return ""
    return "block" if "cta" in instruction.parts else "cluster" if "cluster" in instruction.parts else ""


def _is_line(one: SourceLocation, other: SourceLocation) -> bool:
    """Whether both are one line, inlined through the same calls."""
    pairs = zip((one, *one.inlined_at), (other, *other.inlined_at), strict=False)
    return len(one.inlined_at) == len(other.inlined_at) and all((a.file, a.line) == (b.file, b.line) for a, b in pairs)


def _ordering(instructions: list[str]) -> str:
    return f"{' and '.join(instructions)} {'order' if len(instructions) > 1 else 'orders'}"


class Races(Launches):
    """Sentences about two accesses that nothing puts in order."""

    def explain_race(self) -> tuple[str, str]:
        """What the two accesses are, and what would put them in order."""
        seen = self.seen
        if self.theirs is not self.context:
            return self.explain_launches()
        if seen.info & 4:
            lanes = f"lanes {seen.other_lane} and {seen.lane}"
            return (
                f"{lanes} write different values to {self.element()[0]} in one instruction",
                "give each lane its own element, let one lane store, or use an atomic",
            )
        message = self.both_accesses()
        if seen.info & 8:
            return f"{message}: nothing makes this access wait for it", self.copied_advice() + self.relaxed_advice()
        if narrow := self.narrow_pair():
            return (
                f"{message}: `{shortened(narrow.opcode)}` is atomic within its {_narrow_scope(narrow)} only",
                "widen the scope on both sides to one that has both threads: .gpu for other blocks (atomicAdd, not "
                "atomicAdd_block; cuda::thread_scope_device), .cluster for those of the cluster",
            )
        message += ", and nothing orders the two accesses"
        return message, self.race_advice() + self.relaxed_advice() + self.narrow_advice()

    def explain_race_same_value(self) -> tuple[str, str]:
        """Two stores of one value."""
        message, advice = self.explain_race()
        return f"{message}; both store the same value", f"let one thread store it; else {advice}"

    def explain_race_volatile(self) -> tuple[str, str]:
        """Accesses that PTX takes for atomic, of which one is volatile and nothing more."""
        return (
            f"{self.both_accesses()}, and nothing but `volatile` makes this no race: C++ promises nothing then",
            "use cuda::atomic_ref or an atomic for both accesses, or a barrier or a fence with a flag between them",
        )

    def explain_race_of_replicas(self) -> tuple[str, str]:
        """Lanes that hold the same value, but for its rounding."""
        message, _ = self.explain_race()
        advice = "where they are sums, a product is fused into them in some lanes: without fusion all round alike"
        return message, advice

    def explain_race_lockstep(self) -> tuple[str, str]:
        """An access of a lane that another lane of its warp tells of by an arrival."""
        return (
            f"{self.both_accesses()}: another lane of that warp has arrived at an mbarrier since, which orders what "
            "it did itself, and only what lanes did that had met it before",
            "call __syncwarp() between the accesses of the warp and the arrival, or let every lane arrive",
        )

    def explain_race_relaxed(self) -> tuple[str, str]:
        """The address of tensor memory, read behind a cluster barrier where its warp has arrived with .relaxed."""
        return (
            f"{self.both_accesses()}, and a relaxed arrival at a cluster barrier orders nothing",
            "arrive at the cluster barrier without .relaxed: devices wait for the allocation, but PTX promises nothing",
        )

    def both_accesses(self) -> str:
        """Who does what to which element here, and who did there."""
        seen, other = self.seen, self.other
        element, _ = self.element()
        here = self.access if self.access == "updates" or not seen.info & 1 else "writes"
        before = "writes" if seen.info & 2 else "reads"
        if other and seen.info & 2 and other.opcode.startswith(("atom", "red", "cp.reduce")):
            before = "updates"
        where = through(other.location) if other else "an unknown line"
        if seen.info & 8 and seen.other_block < 0:
            return f"{here} {element}, which the copy at {where} {before}"
        who = ("a bulk copy of " if seen.info & 8 else "") + self.other_access()
        if seen.kind == "read_only_changed" and seen.other_warp == seen.warp and seen.other_block == seen.block:
            who = "the same warp"  # and perhaps the same lane
        return f"{here} {element}, which {who} {before} at {where}"

    def explain_incoherent_load(self) -> tuple[str, str]:
        """A load through the read-only cache, and a store of the same launch that it need not see."""
        load = "this load" if self.instruction and "nc" in self.instruction.parts else "that load"
        return (
            f"{self.both_accesses()} in the same launch: {load} goes through the read-only cache, and need not see it",
            _READ_ONLY,
        )

    def explain_read_only_changed(self) -> tuple[str, str]:
        """A store to what has been read through the read-only cache."""
        return (
            f"{self.both_accesses()} in the same launch: that load goes through the read-only cache, and what it has "
            "read must not change later",
            _READ_ONLY,
        )

    def copied_advice(self) -> str:
        """What to wait for after a bulk copy."""
        if not self.other or "bulk_group" not in self.other.opcode:
            return "wait for the phase of its mbarrier first"
        others = "" if self.seen.other_block == self.seen.block else "; " + self.race_advice() + self.narrow_advice()
        return (
            "cp.async.bulk.wait_group, without .read, by the thread that issued the copy must come first, then what "
            "tells others: after .read its source may be overwritten, but its destination is visible to no thread yet"
            + others
        )

    def narrow_pair(self) -> Instruction | None:
        """Of two accesses that are atomic or ordered, the one whose scope leaves the other's thread out."""
        both = [i for i in (self.instruction, self.other) if i is not None and _is_strong(i)]
        if len(both) < 2 or self.seen.other_block == self.seen.block:
            return None
        return next((i for i in both if _narrow_scope(i)), None)

    def narrow_advice(self) -> str:
        """The instructions of a kernel that order memory for a block or a cluster, where that is not enough."""
        if self.seen.other_block == self.seen.block:
            return ""
        narrow = {
            f"`{shortened(i.opcode)}` at {through(i.location)}": _narrow_scope(i)
            for i in self.context.entry.instructions
            if (i.opcode.startswith("fence.") or _is_strong(i)) and _narrow_scope(i)
        }
        if self.seen.space == "shared":  # of one cluster
            narrow = {name: scope for name, scope in narrow.items() if scope == "block"}
        if not narrow:
            return ""
        scope = next(iter(narrow.values()))
        return f"; {_ordering(list(narrow)[:2])} nothing beyond its {scope}"

    def race_advice(self) -> str:
        """What is missing: it has to hold for every warp that comes to the two places, and for no other."""
        seen = self.seen
        line = str(self.other.location) if self.other else "an unknown line"
        here = str(self.instruction.location) if self.instruction and self.instruction.location else "this line"
        between = f"between {line} and {here}" if line != here else f"between two runs of {here}"
        back = seen.other_pc in self.flow.after(seen.pc) or not self.comes_to(seen.other_pc, self.instruction)
        if line != here and seen.pc not in self.flow.after(seen.other_pc) and back:
            between = f"between {here} and {line}"  # whoever was there first had been here before
        atomic = bool(seen.info & 1) and bool(seen.info & 2)
        if line == here and self.have_one_element():
            advice = (
                "several threads have this element, and no barrier changes that: use an atomic, or give each thread an "
                "index of its own"
            )
            if seen.pc in self.flow.after(seen.pc):
                barrier = "__syncwarp()" if seen.other_warp == seen.warp else "__syncthreads()"
                advice += f"; if they have it in different runs of the loop, {barrier} is missing {between}"
            return advice
        if seen.space == "shared" and (copy := self.copy_that_reads()):
            wait = "cp.async.bulk.wait_group.read" if "bulk_group" in copy.opcode else "the phase of its mbarrier"
            return (
                f"the copy may still be reading: {wait} by the thread that issued it, then a barrier, must come first"
            )
        if seen.other_block == seen.block and seen.other_warp == seen.warp:
            return f"__syncwarp() is missing {between}"
        if self.instruction and "mbarrier::complete_tx" in self.instruction.opcode:
            return "wait for the copy's mbarrier before its tile is read, and for its readers before the next copy"
        if seen.other_block == seen.block:
            opcode = self.other.opcode if self.other else ""
            copied = opcode.startswith(("cp.async.ca", "cp.async.cg"))
            first = "cp.async.wait_group in the copying thread, then " if copied else ""
            return self.block_advice(between, first) + (", or both must be atomic" if atomic else "")
        if seen.space == "shared":
            return f"a cluster barrier is missing {between}"
        return (
            "blocks run in any order: let one block own the element"
            + (", make both accesses atomic" if atomic else "")
            + ", hand over with __threadfence() and an atomic flag on both sides, or use two launches"
        )

    def copy_that_reads(self) -> Instruction | None:
        """The other instruction, if it is a bulk copy from the shared memory that is written here."""
        copies = self.other is not None and self.other.opcode.startswith(("cp.async.bulk", "cp.reduce.async.bulk"))
        return self.other if copies and self.seen.info & 3 == 1 else None

    def have_one_element(self) -> bool:
        """Whether the line reads and stores one element by one index, which two threads of the block have. Of a line
        that reads an element of a neighbour, `s[i] += s[i + n]`, the index of the load is not that of a store."""
        if self.instruction is None or self.other is None or self.seen.other_block != self.seen.block:
            return False
        location = self.instruction.location
        stores = [i for i in self.context.entry.instructions if i.location == location and i.opcode.startswith("st")]
        stored = {_address(i) for i in stores}
        return None not in stored and {_address(self.instruction), _address(self.other)} <= stored

    def block_advice(self, between: str, first: str) -> str:
        """What puts two warps of a block in order: something that all warps which come there can do, and that waits for
        no other. `first` is what has to come before it."""
        seen, flow, positions = self.seen, self.flow, self.positions()
        for one, other in ((seen.other_pc, seen.pc), (seen.pc, seen.other_pc)):
            row = flow.in_a_branch(one, other)
            if row is not None and (barrier := self.context.instruction(row)):
                return (
                    f"not all threads come to the barrier at {through(barrier.location)}: move it out of its branch or "
                    f"condition, to a place {between} that every thread of the block reaches"
                )
        been, coming = ([of(row, positions) for row in (seen.pc, seen.other_pc)] for of in (flow.been, flow.coming))
        undecided = (coming[0] | coming[1]) - been[0] - been[1]
        here, there = ((b | c) - undecided for b, c in zip(been, coming, strict=True))
        others = set(positions) - undecided - here - there if here == there else set()
        if here != there and not (
            self.comes_to(seen.pc, self.other, forwards=True)
            or self.comes_to(seen.other_pc, self.instruction, forwards=True)
        ):
            return first + self.handover_advice(here | {seen.warp}, there | {seen.other_warp})
        if others:
            more = f" (and of {say_warp_numbers(undecided)}, if they come here)" if undecided else ""
            return (
                f"{first}a named barrier of {say_warp_numbers(here)}{more}, bar.sync ID, THREADS, is missing "
                f"{between}: {say_warp_numbers(others)} took another branch, and __syncthreads() would wait for them"
            )
        if any(flow.is_barrier(row, named=True) for row in range(len(flow.successors))):
            return (
                f"{first}a barrier of all warps that come here is missing {between}: a named one, bar.sync ID, "
                "THREADS, if other warps of the block take another branch, otherwise __syncthreads()"
            )
        return f"{first}__syncthreads() is missing {between}"

    def comes_to(self, row: int, instruction: Instruction | None, *, forwards: bool = False) -> bool:
        """Whether threads come from a row to the line of an instruction, or to a copy that the compiler has made."""
        places = [outside_cuda(i.location) for i in (instruction,) if i]
        later = [self.context.instruction(at) for at in self.flow.after(row, forwards=forwards)]
        return any(_is_line(outside_cuda(i.location), place) for i in later if i for place in places)

    def handover_advice(self, here: set[int], there: set[int]) -> str:
        """Of two roles: what the warps of one have to tell, and the others to wait for."""
        barriers = any(i.opcode.startswith(_ORDERING_MBARRIER) for i in self.context.entry.instructions)
        by = "the pipeline's mbarriers" if barriers else "mbarriers"
        roles = f"{say_warp_numbers(there)} and {say_warp_numbers(here)}"
        return (
            f"{roles} take different branches, so __syncthreads() does not work: synchronise them by {by}. The writers "
            "arrive at one mbarrier, and the readers wait for it before they read. The readers arrive at another, and "
            "the writers wait for it before they write again. One of these is missing. Or let both meet at a named "
            "barrier: bar.arrive and bar.sync with the threads of both"
        )

    def positions(self) -> dict[int, set[int]]:
        """Where the warps of the block are that have not exited."""
        found: dict[int, set[int]] = {self.seen.warp: {self.seen.pc}} if self.waits else {}
        for wait in self.waits:
            if wait.block == self.seen.block and wait.reason not in NOT_WAITING and wait.pc >= 0:
                found.setdefault(wait.warp, set()).add(wait.pc)
        return found

    def relaxed_advice(self) -> str:
        """The relaxed mbarrier operations of a kernel, from which the order may have been meant to come."""
        relaxed = dict.fromkeys(
            f"`{shortened(instruction.opcode)}` at {through(instruction.location)}"
            for instruction in self.context.entry.instructions
            if instruction.opcode.startswith(_ORDERING_MBARRIER) and "relaxed" in instruction.parts
        )
        return f"; {_ordering(list(relaxed))} nothing without fence.acq_rel" if relaxed else ""

    def explain_product_proxy_fence(self) -> tuple[str, str]:
        """What a product of tcgen05 reads without a fence, as kernels that are right on devices do."""
        return self.explain_proxy_fence()

    def explain_proxy_fence(self) -> tuple[str, str]:
        """An access of the async proxy to what an ordinary store wrote."""
        element, _ = self.element()
        stored = through(self.other.location) if self.other else "an unknown line"
        here = {"writes": "overwrites"}.get(self.access, self.access)
        message = f"the async proxy {here} {element}, which {self.other_access()} stored to at {stored}, "
        space = "global" if self.seen.space == "global" else "shared::cta"
        if self.seen.info:
            return (
                f"{message}and no thread of the block has acquired the tensor map since",
                "fence.proxy.tensormap::generic.acquire with its address must come before "
                f"`{shortened(self.opcode)}`, behind the barrier or flag that says that it has been edited",
            )
        if space == "global" and self.other and self.other.opcode.startswith("tensormap."):
            return (
                f"{message}and no tensormap proxy fence lies between",
                "the tensor map has been edited: fence.proxy.tensormap::generic.release, or cp_fenceproxy, by "
                "the warp that edits, and fence.proxy.tensormap::generic.acquire by those that use it must come before "
                f"`{shortened(self.opcode)}`",
            )
        return (
            f"{message}and no proxy fence lies between",
            f"fence.proxy.async.{space} by the threads that store, then a barrier, must come before "
            f"`{shortened(self.opcode)}`",
        )
