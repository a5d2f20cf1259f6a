"""What went wrong, as sentences.

The engine reports a hazard as a few numbers: its kind, the rows concerned, block, warp, lane and address. Here they
become a ``Finding``: source lines, array and element, who did it, and what to do about it.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from . import _engine
from .headers import is_of_cuda
from .ptx import SourceLocation
from .stack import STACK_BYTES

if TYPE_CHECKING:
    from .execution import LaunchContext, Statistics

__all__ = ["Finding", "FindingKind", "KernelFault", "explain"]


class FindingKind(StrEnum):
    """The kinds of hazard that a launch can end with."""

    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED = "uninitialised"
    READ_ONLY = "read_only"
    IN_FLIGHT = "in_flight"
    ACCUMULATOR_IN_FLIGHT = "accumulator_in_flight"
    RACE = "race"
    PROXY_FENCE = "proxy_fence"
    WGMMA_FENCE = "wgmma_fence"
    REGISTER_MISUSE = "register_misuse"
    DEADLOCK = "deadlock"
    LIVELOCK = "livelock"
    MBARRIER_MISUSE = "mbarrier_misuse"
    BARRIER_MISUSE = "barrier_misuse"
    DIVERGENT_COLLECTIVE = "divergent_collective"
    TRAP = "trap"
    ASSERTION = "assertion"
    DESCRIPTOR = "descriptor"
    BAD_OPERAND = "bad_operand"
    RESOURCES = "resources"
    EXITED_WITH_WORK = "exited_with_work"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Finding:
    """One hazard, at its source line.

    ``cause`` is the engine's own word for it, finer than ``kind``. ``location`` and ``other`` are lines of the CUDA
    source (``other``: where the work was started that the hazard is about), ``source_line`` and ``caller_lines``
    their text. ``block`` and ``thread`` are positions (x, y, z), None where the hazard is nobody's in particular.
    ``array`` and ``index`` name the element where memory is concerned. ``str(finding)`` is the whole story.
    """

    kind: FindingKind
    cause: str
    message: str
    advice: str
    location: SourceLocation | None
    source_line: str
    caller_lines: tuple[str, ...]
    instruction: str
    other: SourceLocation | None
    other_instruction: str
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    warp: int | None
    lane: int | None
    address: int | None
    space: str
    array: str | None
    index: int | None
    seed: int
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        title = str(self.kind).replace("_", " ")
        if self.location is None:
            lines = [f"{title}: {self.message}"]
        else:
            lines = [f"{self.location}: {title}: {self.message}"]
            if self.source_line:
                lines.append(f"    {self.source_line.strip()}")
            callers = zip(self.location.inlined_at, self.caller_lines, strict=True)
            lines += [f"  inlined into {caller}: {text.strip()}".removesuffix(": ") for caller, text in callers]
        lines += [f"  {detail}" for detail in self.details]
        if who := self.who:
            lines.append(f"  {who}, seed {self.seed}")
        if self.advice:
            lines.append(f"  {self.advice}")
        return "\n".join(lines)

    @property
    def who(self) -> str:
        """``block (0, 1, 0), warp 3, lane 5, thread (101, 0, 0)``, as far as it is known."""
        parts = []
        if self.block is not None:
            parts.append(f"block {self.block}")
        if self.warp is not None:
            parts.append(f"warp {self.warp}")
        if self.lane is not None:
            parts.append(f"lane {self.lane}")
        if self.thread is not None:
            parts.append(f"thread {self.thread}")
        return ", ".join(parts)


class KernelFault(RuntimeError):
    """A launch ended with a hazard; ``finding`` says which, ``statistics`` counts what had run until then."""

    def __init__(self, finding: Finding, statistics: Statistics | None = None) -> None:
        super().__init__(str(finding))
        self.finding = finding
        self.statistics = statistics


def explain(fault: _engine.Fault, waits: Sequence[_engine.Waiting], context: LaunchContext) -> Finding:
    """The finding for what the engine reports."""
    return _Explainer(fault, waits, context).finding()


_KINDS = {
    "budget": FindingKind.LIVELOCK,
    "mbarrier_invalid": FindingKind.MBARRIER_MISUSE,
    "mbarrier_overflow": FindingKind.MBARRIER_MISUSE,
    "mbarrier_transactions": FindingKind.MBARRIER_MISUSE,
    "mbarrier_count": FindingKind.MBARRIER_MISUSE,
    "mbarrier_not_visible": FindingKind.MBARRIER_MISUSE,
    "mbarrier_in_use": FindingKind.MBARRIER_MISUSE,
    "mbarrier_overwritten": FindingKind.MBARRIER_MISUSE,
    "mbarrier_bytes": FindingKind.MBARRIER_MISUSE,
    "swizzle_mismatch": FindingKind.DESCRIPTOR,
    "warpgroup_diverged": FindingKind.DIVERGENT_COLLECTIVE,
    "barrier_count": FindingKind.BARRIER_MISUSE,
    "barrier_mismatch": FindingKind.BARRIER_MISUSE,
    "barrier_diverged": FindingKind.DIVERGENT_COLLECTIVE,
    "not_member": FindingKind.DIVERGENT_COLLECTIVE,
    "exited_member": FindingKind.DIVERGENT_COLLECTIVE,
    "inactive_source": FindingKind.DIVERGENT_COLLECTIVE,
}
_LINES_OF_WAITS = 12
_ORDERING_MBARRIER = ("mbarrier.arrive", "mbarrier.test_wait", "mbarrier.try_wait")
_USES = (  # what makes an undefined value matter, in the order of the engine's `Use`
    "",
    "computes an address from",
    "decides by",
    "stores to global memory",
    "updates memory with",
    "hands to other lanes",
    "uses as an operand",
)


class _Explainer:
    def __init__(self, fault: _engine.Fault, waits: Sequence[_engine.Waiting], context: LaunchContext) -> None:
        self.seen = fault
        self.waits = waits
        self.context = context
        self.instruction = context.instruction(fault.pc)
        self.other = context.instruction(fault.other_pc)
        self.array: str | None = None
        self.index: int | None = None

    def finding(self) -> Finding:
        seen, context = self.seen, self.context
        write = getattr(self, f"explain_{seen.kind}", None)
        message, advice = write() if write else (f"the engine reports {seen.kind}", "")
        kind = _KINDS.get(seen.kind)
        if kind is None:
            known = FindingKind.__members__
            kind = FindingKind(seen.kind) if seen.kind.upper() in known else FindingKind.UNSUPPORTED
        location = self.instruction.location if self.instruction else None
        nobody = seen.kind in ("deadlock", "budget")
        return Finding(
            kind=kind,
            cause=seen.kind,
            message=message,
            advice=advice,
            location=location,
            source_line=source_line(location, context.sources) if location else "",
            caller_lines=tuple(source_line(c, context.sources) for c in location.inlined_at) if location else (),
            instruction=self.instruction.text if self.instruction else "",
            other=self.other.location if self.other else None,
            other_instruction=self.other.text if self.other else "",
            block=context.block_position(seen.block) if seen.block >= 0 and not nobody else None,
            thread=context.thread_position(seen.warp, seen.lane) if seen.lane >= 0 and not nobody else None,
            warp=seen.warp if seen.warp >= 0 and not nobody else None,
            lane=seen.lane if seen.lane >= 0 and not nobody else None,
            address=seen.address if seen.space != "none" else None,
            space=seen.space,
            array=self.array,
            index=self.index,
            seed=context.seed,
            details=tuple(self.describe_waits()) if seen.kind in ("deadlock", "budget") else (),
        )

    # ------------------------------------------------------------------------------------------------- addresses

    @property
    def access(self) -> str:
        """What the instruction does to memory: reads, writes, updates."""
        opcode = self.instruction.opcode if self.instruction else ""
        if opcode.startswith(("st", "cp.reduce", "mbarrier.init")):
            return "writes"
        if opcode.startswith(("atom", "red", "mbarrier")):
            return "updates"
        if opcode.startswith("cp.async"):
            written = opcode.split("bulk", 1)[-1].split(".")
            spaces = [part.partition("::")[0] for part in written if part.partition("::")[0] in ("shared", "global")]
            return "writes" if spaces[:1] == [self.seen.space] else "reads"
        return "reads"

    def element(self) -> tuple[str, str]:
        """Where the address lies, as the name of an element or variable, and what more there is to say about it."""
        seen = self.seen
        if seen.space == "global":
            return self.global_element(seen.address)
        if seen.space == "shared":
            return self.shared_element(seen.address)
        if seen.space == "local":
            return f"local memory at byte {seen.address} of {self.context.local_bytes}", ""
        if seen.space == "param":
            return f"the kernel's parameters at byte {seen.address} of {self.context.parameter_bytes}", ""
        return f"the address {seen.address:#x}", ""

    def global_element(self, address: int) -> tuple[str, str]:
        allocation = self.context.nearest(address)
        if allocation is None:
            return f"global memory at {address:#x}", "nothing is allocated"
        size, name = allocation.element_size, allocation.name
        index = (address - allocation.address) // size
        self.array, self.index = name, index
        count = allocation.nbytes // size
        extent = f"{name} ({count} elements of {size} bytes)"
        element = allocation.element(address)
        if allocation.freed:
            return element, f"{name} had been freed"
        if 0 <= address - allocation.address < allocation.nbytes:
            last = min(seen_end := address + max(self.seen.info, 1), allocation.end)
            if self.seen.kind == "out_of_bounds" and last < seen_end:
                return (
                    element,
                    f"the access of {self.seen.info} bytes reaches {seen_end - last} past the end of {extent}",
                )
            return element, ""
        far = abs(address - allocation.address) > 4 * allocation.nbytes + (1 << 20)
        if far:
            self.array, self.index = None, None
            return (
                f"global memory at {address:#x}",
                f"no allocation is near; the nearest is {extent} at {allocation.address:#x}",
            )
        if address >= allocation.end:
            past = index - count
            return element, f"{name}[{index}] is {_past(past)} the end of {extent}"
        return element, f"{name}[{index}] lies {-index} element{'s' if index < -1 else ''} before the start of {extent}"

    def shared_element(self, address: int, element: int = 0) -> tuple[str, str]:
        """``element``: bytes of an element of the variable where that is known, such as 8 for an mbarrier."""
        rank, offset = address >> 24, address & 0xFFFFFF
        owner = f" of block {rank - 1} of the cluster" if rank else ""
        context = self.context
        for variable, start in context.shared_variables:
            if start <= offset < start + variable.size:
                self.array = variable.readable_name
                step = element or (variable.align if variable.type == "b8" and variable.align in (1, 2, 4, 8) else 0)
                if step and (offset - start) % step == 0 and element:
                    self.index = (offset - start) // step
                    return (
                        f"`{self.array}[{self.index}]`{owner}" if variable.size > step else f"`{self.array}`{owner}",
                        "",
                    )
                place = f"`{self.array}` + {offset - start} bytes" if offset > start else f"`{self.array}`"
                return f"{place}{owner}", f"`{self.array}` has {variable.size} bytes"
        if context.dynamic_shared_bytes and offset >= context.dynamic_offset:
            place = f"dynamic shared memory + {offset - context.dynamic_offset} bytes"
            return f"{place}{owner}", f"the launch gave it {context.dynamic_shared_bytes} bytes"
        size = context.shared_bytes
        return f"shared memory at byte {offset}{owner}", f"the block has {size} bytes" + (
            "" if context.dynamic_shared_bytes else " and the launch gave it no dynamic shared memory"
        )

    def barrier_name(self, address: int) -> str:
        if address >= 1 << 32:
            address -= 1 << 32
        name = self.shared_element(address, 8)[0]
        return f"mbarrier {name}"

    # ----------------------------------------------------------------------------------------------- the sentences

    def explain_out_of_bounds(self) -> tuple[str, str]:
        called = self.instruction is not None and self.instruction.text.startswith(("call", "st.param"))
        if self.seen.space == "local" and called:
            return (
                f"the call stack overflows: a thread has {STACK_BYTES} bytes of it",
                "see that the recursion ends; a loop needs no stack",
            )
        element, more = self.element()
        bytes_ = f"{self.seen.info} bytes" if self.seen.info > 0 else "memory"
        message = f"{self.access} {bytes_} at {element}" + (f": {more}" if more else "")
        return message, "compare the index with the size before the access"

    def explain_misaligned(self) -> tuple[str, str]:
        element, _ = self.element()
        return (
            f"{self.access} {element} at {self.seen.address:#x}, which is not a multiple of {self.seen.info} bytes",
            f"so wide an access needs an address that is a multiple of {self.seen.info}: align the array and its rows",
        )

    def explain_uninitialised(self) -> tuple[str, str]:
        seen = self.seen
        use = _USES[seen.info] if 0 <= seen.info < len(_USES) else ""
        line = _through(self.other.location) if self.other else ""
        if seen.space == "none":
            names = self.context.register_names(seen.address)
            register = f" (register {names[0]})" if names else ""
            read = f" and {line} reads" if line else ""
            return f"{use} a value that nothing has set{register}{read}", "give the variable a value on every path"
        element, _ = self.element()
        advice = "store to every element that is read, also in tails"
        if seen.space == "shared":
            advice += ", with a barrier before the read; wait for the asynchronous copy if one fills it"
        reads = f"{use} a value that {line} reads from" if use and line else "reads"
        return f"{reads} {element}, where nothing has been written", advice

    def explain_read_only(self) -> tuple[str, str]:
        element, _ = self.element()
        return f"writes {element}, which must not change", "store to an output instead"

    def explain_in_flight(self) -> tuple[str, str]:
        element, _ = self.element()
        other = (
            f"`{_shortened(self.other.opcode)}` at {_through(self.other.location)}"
            if self.other
            else "an asynchronous copy"
        )
        return f"{self.access} {element} while {other} may not be done with it", self.wait_advice()

    def wait_advice(self) -> str:
        opcode = self.other.opcode if self.other else ""
        if opcode.startswith(("cp.async.ca", "cp.async.cg")):
            return "commit the copies, then cp.async.wait_group, then a barrier, before the tile is touched"
        if "mbarrier::complete_tx" in opcode:
            return "wait for the phase of its mbarrier before the tile is touched"
        if "bulk_group" in opcode:
            return "cp.async.bulk.commit_group, then cp.async.bulk.wait_group.read, before its source is touched"
        if opcode.startswith("wgmma"):
            return "wgmma.commit_group, then wgmma.wait_group, before its operands are touched"
        return "wait for it first"

    def explain_race(self) -> tuple[str, str]:
        """What the two accesses are, and what would put them in order."""
        seen = self.seen
        element, _ = self.element()
        writes, wrote, together, copied = (bool(seen.info & bit) for bit in (1, 2, 4, 8))
        here = self.access if self.access == "updates" or not writes else "writes"
        if together:
            return (
                f"lanes {seen.other_lane} and {seen.lane} write different values to {element} in one instruction",
                "give each lane its own element, let one lane store, or use an atomic",
            )
        other = self.other.location if self.other else None
        line = str(other) if other else "an unknown line"
        before = "writes" if wrote else "reads"
        if copied:
            message = f"{here} {element}, which the copy at {_through(other) if other else line} writes"
            advice = "wait for the phase of its mbarrier first"
            return f"{message}: nothing puts this after it", advice + self.relaxed_advice()
        if self.other and self.other.opcode.startswith(("atom", "red")):
            before = "updates"
        who = self.other_access()
        message = f"{here} {element}, which {who} {before} at {_through(other) if other else line}"
        message += ", and nothing puts one before the other"
        return message, self.race_advice(line) + self.relaxed_advice()

    def other_access(self) -> str:
        """Who made the other access of a race: a lane of this warp, another warp, another block."""
        seen = self.seen
        lane = f"lane {seen.other_lane} of " if seen.other_lane >= 0 else ""
        if seen.other_block == seen.block and seen.other_warp == seen.warp:
            return f"lane {seen.other_lane} of the same warp" if lane else "another lane of the same warp"
        if seen.other_block == seen.block:
            return f"{lane}warp {seen.other_warp}"
        return f"{lane}warp {seen.other_warp} of block {self.context.block_position(seen.other_block)}"

    def race_advice(self, line: str) -> str:
        seen = self.seen
        here = str(self.instruction.location) if self.instruction and self.instruction.location else "this line"
        between = f"between {line} and {here}" if line != here else f"between two runs of {here}"
        atomic = bool(seen.info & 1) and bool(seen.info & 2)
        if seen.other_block == seen.block and seen.other_warp == seen.warp:
            return f"__syncwarp() is missing {between}"
        if self.instruction and "mbarrier::complete_tx" in self.instruction.opcode:
            return "wait for the copy's mbarrier before its tile is read, and for its readers before the next copy"
        if seen.other_block == seen.block:
            opcode = self.other.opcode if self.other else ""
            if opcode.startswith(("cp.async.ca", "cp.async.cg")):
                return f"cp.async.wait_group in the copying thread, then __syncthreads(), is missing {between}"
            return f"__syncthreads() is missing {between}" + (", or both must be atomic" if atomic else "")
        if seen.space == "shared":
            return f"a cluster barrier is missing {between}"
        return (
            "blocks run in any order: let one block own the element"
            + (", make both accesses atomic" if atomic else "")
            + ", hand over with __threadfence() and an atomic flag on both sides, or use two launches"
        )

    def relaxed_advice(self) -> str:
        """The relaxed mbarrier operations of a kernel, from which the order may have been meant to come."""
        relaxed = dict.fromkeys(
            f"`{_shortened(instruction.opcode)}` at {_through(instruction.location)}"
            for instruction in self.context.entry.instructions
            if instruction.opcode.startswith(_ORDERING_MBARRIER) and "relaxed" in instruction.parts
        )
        return f"; without fence.acq_rel, nothing is ordered by {' and '.join(relaxed)}" if relaxed else ""

    def explain_proxy_fence(self) -> tuple[str, str]:
        """An access of the async proxy to what an ordinary store wrote."""
        element, _ = self.element()
        stored = _through(self.other.location) if self.other else "an unknown line"
        here = "overwrites" if self.access == "writes" else "reads"
        message = f"the async proxy {here} {element}, which {self.other_access()} stored to at {stored}, "
        space = "global" if self.seen.space == "global" else "shared::cta"
        return (
            f"{message}and no proxy fence lies between",
            f"fence.proxy.async.{space} by the threads that store, then a barrier, must come before "
            f"`{_shortened(self.opcode)}`",
        )

    def explain_accumulator_in_flight(self) -> tuple[str, str]:
        other = f"the wgmma at {_through(self.other.location)}" if self.other else "a wgmma"
        names = self.context.register_names(self.seen.address)
        register = f" {names[0]}" if names else ""
        if self.seen.info:
            return (
                f"touches the register{register} while {other}, which no commit covers, may still be using it",
                "wgmma.commit_group must come between the products and wgmma.wait_group",
            )
        return (
            f"touches the register{register} while {other} may still be using it",
            "wgmma.commit_group and wgmma.wait_group must come before accumulators are touched",
        )

    def explain_wgmma_fence(self) -> tuple[str, str]:
        """A wgmma whose registers need not be settled yet."""
        advice = "wgmma.fence must come before the first wgmma, and after other writes to registers that one uses"
        if self.other is None:
            return "the warp has executed no wgmma.fence before its first wgmma", advice
        names = self.context.register_names(self.seen.address)
        register = f" {names[0]}" if names else ""
        return (
            f"uses the register{register}, which {_through(self.other.location)} wrote after the last wgmma.fence",
            advice,
        )

    def explain_warpgroup_diverged(self) -> tuple[str, str]:
        """Warps of a warpgroup that execute different things."""
        if self.seen.info:
            return (
                f"`{_shortened(self.opcode)}` needs a warpgroup of 4 warps; that of warp {self.seen.warp} has "
                f"{self.seen.info}",
                "launch blocks whose warps are a multiple of 4",
            )
        instead = f"`{_shortened(self.other.opcode)}` at {_through(self.other.location)}" if self.other else "it exits"
        first = self.seen.warp // 4 * 4
        return (
            f"only some of warps {first}-{first + 3} execute `{_shortened(self.opcode)}`, which needs all four; the "
            f"others go on to {instead}",
            "a warpgroup is 4 warps, the first a multiple of 4: let conditions around it hold for all of them",
        )

    def explain_register_misuse(self) -> tuple[str, str]:
        """A setmaxnreg that cannot be right."""
        count, why, held = self.seen.address, self.seen.info, self.seen.detail
        if why == 1:
            return f"setmaxnreg asks for {count} registers", "24 to 256 are allowed, in multiples of 8"
        if why == 2:
            return f"setmaxnreg.dec to {count} registers, of {held} that each thread has", "use setmaxnreg.inc"
        if why == 3:
            return f"setmaxnreg.inc to {count} registers, of {held} that each thread has", "use setmaxnreg.dec"
        return (
            "setmaxnreg in a kernel without a limit on its registers has no effect",
            "give the kernel __launch_bounds__ with the threads and blocks, or a maximum number of registers",
        )

    def explain_mbarrier_bytes(self) -> tuple[str, str]:
        """More bytes came, or will, than the phase was told to expect."""
        expected = f" at {_through(self.other.location)}" if self.other else ""
        barrier = self.barrier_name(self.seen.address)
        advice = "expect as many bytes as all copies of the phase bring, whole boxes also at the edges"
        if self.seen.detail:
            return (
                f"the phase of {barrier} ends while this copy of {self.seen.info} bytes is on its way: "
                f"too few are expected{expected}",
                advice,
            )
        return f"{self.seen.info} more bytes came to {barrier} than were expected{expected}", advice

    def explain_swizzle_mismatch(self) -> tuple[str, str]:
        element, _ = self.element()
        copied = _through(self.other.location) if self.other else "an unknown line"
        return (
            f"reads {element} with {_swizzle(self.seen.info)}, but the tensor copy at {copied} wrote it with "
            f"{_swizzle(self.seen.detail)}",
            "give the tensor map and the matrix descriptor the same swizzle",
        )

    def explain_exited_with_work(self) -> tuple[str, str]:
        other = (
            f"`{_shortened(self.other.opcode)}` at {_through(self.other.location)}"
            if self.other
            else "asynchronous work"
        )
        if self.seen.detail:
            element, _ = self.element()
            may = "may have exited by then" if self.seen.detail == 2 else "has exited"
            where = f" at {_through(self.other.location)}" if self.other else ""
            return (
                f"uses {element}, a block that {may}{where}",
                "a cluster barrier after the last access to another block's shared memory must come before its exit",
            )
        return f"a warp exits and never waited for {other}", "wait for it before the kernel ends"

    def explain_trap(self) -> tuple[str, str]:
        if self.opcode == "trap" and self.instruction and self.instruction.text.startswith("call"):
            return (
                "calls through a pointer that is not the address of a function with these parameters",
                "store the address of a __device__ function there, taken in device code, before the call",
            )
        return "the kernel executed a trap", ""

    def explain_assertion(self) -> tuple[str, str]:
        text = self.context.string(self.seen.address)
        file = self.context.string(self.seen.detail)
        return f"the assertion `{text}` at {Path(file).name}:{self.seen.info} failed", ""

    def explain_mbarrier_invalid(self) -> tuple[str, str]:
        barrier = self.barrier_name(self.seen.address)
        if self.seen.info == 1:
            before = f", initialised at {_through(self.other.location)}" if self.other else ""
            return (
                f"initialises {barrier} again{before}, though arrivals or bytes have been counted there since",
                "initialise a barrier once, or end its life with mbarrier.inval first",
            )
        if self.seen.info == 2:
            return (
                f"waits on {barrier} of another block",
                "a block can arrive at the barriers of its cluster, but wait on its own only",
            )
        if self.seen.info == 3:
            return (
                f"waits for parity {self.seen.detail} of {barrier}",
                "a parity is 0 or 1: toggle it with `^ 1`, or take the number of the phase modulo 2",
            )
        return (
            f"{barrier} is not initialised",
            "mbarrier.init by one thread, a fence, and a barrier must come before its first use",
        )

    def explain_mbarrier_not_visible(self) -> tuple[str, str]:
        initialised = _through(self.other.location) if self.other else "an unknown line"
        barrier = self.barrier_name(self.seen.address)
        if self.seen.info:
            return (
                f"a copy completes on {barrier}, initialised at {initialised}, which the async proxy need not see yet",
                "fence.mbarrier_init.release.cluster or fence.proxy.async must come between mbarrier.init and the "
                "barrier that the other threads wait at",
            )
        return (
            f"uses {barrier} while nothing puts its initialisation by {self.other_access()} at {initialised} before",
            "a barrier of all threads (of the cluster, if other blocks use it) must come between",
        )

    def explain_mbarrier_in_use(self) -> tuple[str, str]:
        used = _through(self.other.location) if self.other else "an unknown line"
        ends = "invalidates" if self.opcode.startswith("mbarrier.inval") else "initialises again"
        return (
            f"{ends} {self.barrier_name(self.seen.address)}, which {self.other_access()} may still be using at {used}",
            "a barrier of all threads that use it must come between",
        )

    def explain_mbarrier_overwritten(self) -> tuple[str, str]:
        """Something else was stored where an mbarrier lies, which is used after that."""
        init = self.context.instruction(self.seen.info)
        initialised = f", initialised at {_through(init.location)}" if init else ""
        barrier = self.barrier_name(self.seen.address) + initialised
        advice = (
            "compare the index of the store with the size of its array; the memory of an mbarrier is free for other "
            "things after mbarrier.inval, or after its last use"
        )
        if self.other is None:
            return f"uses {barrier}, which has been overwritten since", advice
        who, used = self.other_access(), _through(self.other.location)
        return f"overwrites {barrier}, which {who} then uses at {used}", advice

    def explain_mbarrier_overflow(self) -> tuple[str, str]:
        return (
            f"more arrivals at {self.barrier_name(self.seen.address)} than the {self.seen.info} it was initialised for",
            "initialise it with the number of threads that arrive in one phase, and let no one else arrive",
        )

    def explain_mbarrier_transactions(self) -> tuple[str, str]:
        return (
            f"the bytes pending at {self.barrier_name(self.seen.address)} went out of range: {self.seen.info}",
            "expect as many bytes as the copies bring, and expect them before they arrive in a later phase",
        )

    def explain_mbarrier_count(self) -> tuple[str, str]:
        return (
            f"{self.barrier_name(self.seen.address)} is initialised with {self.seen.info} arrivals",
            "1 to 1048575 arrivals are allowed",
        )

    def explain_barrier_count(self) -> tuple[str, str]:
        return (
            f"barrier {self.seen.detail} is used with {self.seen.info} threads",
            "a block has barriers 0 to 15; a thread count is a multiple of 32 and no more than the block has",
        )

    def explain_barrier_mismatch(self) -> tuple[str, str]:
        where = f" at {_through(self.other.location)}" if self.other else ""
        return (
            f"threads disagree about a barrier: {self.seen.info} threads here, {self.seen.detail}{where}",
            "all threads that meet at a barrier must give the same count and the same operation",
        )

    def explain_barrier_diverged(self) -> tuple[str, str]:
        return (
            f"only the lanes {_lanes(self.seen.info)} of the warp reach `{self.opcode}`, which needs them all together",
            "move it out of the branch that depends on the lane",
        )

    def explain_not_member(self) -> tuple[str, str]:
        return (
            f"the lane executes `{self.opcode}` but is not in its own mask {self.seen.info & 0xFFFFFFFF:#010x}",
            "name exactly the lanes that execute it",
        )

    def explain_exited_member(self) -> tuple[str, str]:
        return (
            f"the mask {self.seen.info & 0xFFFFFFFF:#010x} of `{self.opcode}` names the lanes "
            f"{_lanes(self.seen.detail)}, which have exited or never existed",
            "name exactly the lanes that execute it, and return only after the last collective",
        )

    def explain_inactive_source(self) -> tuple[str, str]:
        return (
            f"`{self.opcode}` takes a value from lane {self.seen.info}, which does not take part in it",
            "let the source lane execute it too",
        )

    def explain_descriptor(self) -> tuple[str, str]:
        seen, opcode = self.seen, _shortened(self.opcode)
        if seen.info == 2:
            return (
                f"`{opcode}` is given {seen.address:#x} as a tensor map, which is none",
                "pass tensor maps as `const __grid_constant__` parameters, and their address",
            )
        if seen.info == 3:
            return (
                f"`{opcode}` does not have as many coordinates as its tensor map has dimensions ({seen.detail})",
                "use the form of the instruction for that rank",
            )
        if seen.info == 4:
            return (
                f"the box of the tensor map of `{opcode}` is wider than its swizzle of {seen.detail} bytes",
                "make the innermost extent of the box no more bytes than the swizzle",
            )
        if seen.info == 5:
            return (
                f"a matrix of `{opcode}` begins at {self.element()[0]}, in the middle of an atom of the "
                f"{seen.detail}-byte swizzle",
                f"align tiles to {8 * seen.detail} bytes, and step from there along a row",
            )
        if seen.info == 6:
            given, wanted = ("im2col", "tiled") if seen.detail else ("tiled", "im2col")
            return (
                f"`{opcode}` is given {'an' if seen.detail else 'a'} {given} tensor map",
                f"encode the map as {wanted}, or use the {given} form of the instruction",
            )
        return (
            f"`{opcode}` has a matrix descriptor with a base offset ({seen.address:#x})",
            "align tiles to the atom of their swizzle, so that they need none",
        )

    def explain_bad_operand(self) -> tuple[str, str]:
        if self.seen.detail < 0:  # of a tile; the address is the size of an element
            return self.explain_bad_tile()
        if self.seen.detail:
            blocks = f"{self.seen.detail} block{'s' if self.seen.detail > 1 else ''}"
            return (
                f"`{_shortened(self.opcode)}` copies to blocks {self.seen.info:#b} of a cluster of {blocks}",
                "set a bit for each block of the cluster that is to receive, at least one and none beyond its last",
            )
        return f"`{_shortened(self.opcode)}` does not accept the value {self.seen.info}", ""

    def explain_bad_tile(self) -> tuple[str, str]:
        """Where a tile begins (detail -1 less the dimension), pixels of a store outside (-9), or an offset (-17)."""
        opcode, number, why = _shortened(self.opcode), self.seen.info, -1 - self.seen.detail
        dimension = why % 8
        if why >= 16:
            return (
                f"`{opcode}` has the im2col offset {number} in dimension {dimension}",
                "offsets go up to 65535 in 3 dimensions, 255 in 4 and 31 in 5: move the corners of the pixels instead",
            )
        if why >= 8:
            return (
                f"`{opcode}` stores pixels up to {number} beyond the tensor in dimension {dimension}",
                "let the upper corner of the pixels be 0 or less: a device refuses stores that reach further",
            )
        multiple = 16 // self.seen.address
        if number % multiple and dimension == 0:
            return (
                f"`{opcode}` copies a box that begins at element {number} of a row",
                f"begin boxes at multiples of {multiple} elements, which are 16 bytes: a device refuses others",
            )
        return (
            f"`{opcode}` stores a box that begins at {number} in dimension {dimension}",
            "begin stores at 0 or behind: loads may begin before the array, stores may not",
        )

    def explain_resources(self) -> tuple[str, str]:
        return f"the launch asks for more than fits: {self.seen.info}", ""

    def explain_unsupported(self) -> tuple[str, str]:
        return f"the emulator does not carry out this form of `{_shortened(self.opcode)}`", ""

    def explain_deadlock(self) -> tuple[str, str]:
        return "no warp can go on", "every wait needs someone who arrives: compare what is waited for with who is left"

    def explain_budget(self) -> tuple[str, str]:
        if self.seen.detail:
            return (
                f"the launch ran for longer than {self.seen.info / 1000:g} seconds and counts as hung",
                "look for a loop whose end another warp must bring about, or give the launch more seconds",
            )
        return (
            "a block ran for longer than the launch allows and counts as hung",
            "look for a loop whose end another warp must bring about, or give the launch more instructions",
        )

    @property
    def opcode(self) -> str:
        return self.instruction.opcode if self.instruction else "the instruction"

    # ------------------------------------------------------------------------------------------------ who waits

    def describe_waits(self) -> Iterable[str]:
        """One line for all warps of a block that wait at the same place for the same."""
        groups: dict[tuple[int, ...], list[_engine.Waiting]] = {}
        for wait in self.waits:
            if wait.reason != "exited":
                state = wait.pc, wait.address, wait.expected, wait.phase, wait.pending, wait.transactions
                groups.setdefault((wait.block, *state), []).append(wait)
        alike: dict[
            tuple[object, ...], list[list[_engine.Waiting]]
        ] = {}  # blocks that hang in the same way share a line
        for (_, *state_of_group), members in groups.items():
            warps = tuple((wait.warp, wait.lanes, wait.reason) for wait in members)
            alike.setdefault((*state_of_group, warps), []).append(members)
        lines = [
            f"{self.blocks([members[0].block for members in same])}: {_warps(same[0])} {self.wait_sentence(same[0][0])}"
            for same in alike.values()
        ]
        yield from lines[:_LINES_OF_WAITS]
        if len(lines) > _LINES_OF_WAITS:
            yield f"... and {len(lines) - _LINES_OF_WAITS} more"

    def blocks(self, blocks: Sequence[int]) -> str:
        first = self.context.block_position(blocks[0])
        return f"block {first}" if len(blocks) == 1 else f"block {first} and {len(blocks) - 1} more"

    def wait_sentence(self, wait: _engine.Waiting) -> str:
        instruction = self.context.instruction(wait.pc)
        place = _through(instruction.location) if instruction else "an unknown line"
        opcode = _shortened(instruction.opcode) if instruction else ""
        if wait.reason == "mbarrier":
            missing = _count(wait.pending, "arrival")
            if wait.transactions:
                missing += f" and {_count(wait.transactions, 'byte')}"
            phase = "" if (wait.phase - wait.expected) % 2 == 0 else f", and it is in phase {wait.phase}"
            return f"at {place} for {self.barrier_name(wait.address)} phase {wait.expected}: {missing} pending{phase}"
        if wait.reason == "barrier":
            return f"at {place} for barrier {wait.address}: {wait.pending} of {wait.expected} threads have arrived"
        if wait.reason == "collective":
            return f"at {place} in `{opcode}`: the lanes {_lanes(wait.expected)} of its mask have not come"
        if wait.reason == "registers":
            return f"at {place} for {_count(wait.expected, 'register')}: {wait.pending} are free in the block"
        if wait.reason == "cluster_barrier":
            return f"at {place} for the other blocks of the cluster"
        return f"at {place}, in `{opcode}`"


def _through(location: SourceLocation) -> str:
    """``tma.cuh:17 (from gemm.cu:71)``: a line, and the one that it was inlined into.

    That is the first in another file, which says more than the call in the kernel's body; else the outermost. Of
    headers of CUDA, which call one another, it is the first that is none.
    """
    if not location.inlined_at:
        return str(location)
    elsewhere = [caller for caller in location.inlined_at if caller.file != location.file]
    own = [caller for caller in elsewhere if not is_of_cuda(caller.file)]
    return f"{location} (from {(own or elsewhere or location.inlined_at[-1:])[0]})"


def source_line(location: SourceLocation, sources: Mapping[str, str]) -> str:
    for name in (location.file, Path(location.file).name):
        if name in sources:
            lines = sources[name].splitlines()
            return lines[location.line - 1] if 0 < location.line <= len(lines) else ""
    return linecache.getline(location.file, location.line) if location.line > 0 else ""


def _swizzle(nbytes: int) -> str:
    return f"a swizzle of {nbytes} bytes" if nbytes else "no swizzle"


def _past(elements: int) -> str:
    return "one past" if elements == 0 else f"{elements + 1} past"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ranges(numbers: Iterable[int]) -> str:
    """``0-3, 7`` for 0, 1, 2, 3, 7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def _lanes(mask: int) -> str:
    return _ranges(lane for lane in range(32) if mask >> lane & 1) or "none"


def _warps(waits: Sequence[_engine.Waiting]) -> str:
    """``warps 0-3 wait``, ``lanes 0-7 of warp 2 run``."""
    warps = sorted({wait.warp for wait in waits})
    verb = "wait" if waits[0].reason != "none" else "run"
    who = f"warp {warps[0]}" if len(warps) == 1 else f"warps {_ranges(warps)}"
    singular = len(warps) == 1
    masks = {wait.lanes & 0xFFFFFFFF for wait in waits}
    if len(masks) == 1 and (mask := masks.pop()) not in (0, 0xFFFFFFFF):
        singular = mask.bit_count() == 1
        who = f"lane{'' if singular else 's'} {_lanes(mask)} of {who}"
    return f"{who} {verb}{'s' if singular else ''}"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
