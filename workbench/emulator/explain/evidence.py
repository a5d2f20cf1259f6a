"""What the engine reports, and what can be told of it: the instructions, the access, the element."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .. import _engine
from ..context import LaunchContext
from ..ptx import Instruction
from ..source_lines import outside_cuda, through
from .faults import SENTENCES
from .words import say_count, say_lanes, say_past, say_swizzle, shortened


def _outside_cuda(instruction: Instruction | None) -> Instruction | None:
    """The instruction, placed where a user can change something."""
    if instruction is None or (own := outside_cuda(instruction.location)) is instruction.location:
        return instruction
    return dataclasses.replace(instruction, location=own)


_TENSOR_USES = (  # in the order of the engine's `TensorUse`
    *("uses", "allocates", "frees", "loads", "stores to", "accumulates in", "multiplies", "scales by factors in"),
    *("selects elements by metadata in", "copies to", "shifts"),
)
_MAPS = ("a tiled", "an im2col", "a wide im2col")


class _Fields(dict[str, object]):
    """What the fields of a sentence stand for: each is asked for when it is needed."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def __missing__(self, name: str) -> object:
        return FIELDS[name](self._evidence) if name in FIELDS else getattr(self._evidence.seen, name)


class Evidence:
    """A fault as the engine reports it, the warps that waited, and the launch."""

    def __init__(self, fault: _engine.Fault, waits: Sequence[_engine.Waiting], context: LaunchContext) -> None:
        self.seen = fault
        self.waits = waits
        self.context = context
        self.instruction = None if context.label else _outside_cuda(context.instruction(fault.pc))
        self.theirs = context.series[fault.other_launch] if fault.other_launch >= 0 else context
        self.other = None if self.theirs.label else _outside_cuda(self.theirs.instruction(fault.other_pc))
        self.array: str | None = None
        self.index: int | None = None

    @property
    def opcode(self) -> str:
        return self.instruction.opcode if self.instruction else "the instruction"

    @property
    def access(self) -> str:
        """What the instruction does to memory: reads, writes, updates."""
        opcode = self.instruction.opcode if self.instruction else ""
        if opcode.startswith(("st", "sust", "mbarrier.init")):
            return "writes"
        if opcode.startswith(("atom", "red", "mbarrier")):
            return "updates"
        if opcode.startswith(("cp.async", "cp.reduce")):
            written = opcode.split("bulk", 1)[-1].split(".")
            spaces = [part.partition("::")[0] for part in written if part.partition("::")[0] in ("shared", "global")]
            if spaces[:1] != [self.seen.space]:
                return "reads"
            return "updates" if opcode.startswith("cp.reduce") else "writes"
        return "reads"

    def in_header(self) -> Iterator[str]:
        """Which line of a header of CUDA it is, where it is one."""
        seen = self.context.instruction(self.seen.pc)
        if seen and self.instruction and seen.location is not self.instruction.location:
            yield f"in a header of CUDA: {Path(seen.location.file).name}:{seen.location.line}, `{shortened(seen.text)}`"

    def element(self) -> tuple[str, str]:
        """Where the address lies, as the name of an element or variable, and what more there is to say about it."""
        seen = self.seen
        if seen.space == "global":
            return self.global_element(seen.address)
        if seen.space == "shared":
            return self.shared_element(seen.address)
        if seen.space == "local":
            byte = seen.address - (seen.address >> 63 << 64)  # of an index below 0
            return f"local memory at byte {byte} of {self.context.local_bytes}", ""
        if seen.space == "param":
            return f"the kernel's parameters at byte {seen.address} of {self.context.parameter_bytes}", ""
        if seen.space == "tensor":
            return f"tensor memory at lane {seen.address >> 16}, column {seen.address & 0xFFFF}", ""
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
            return element, f"{name}[{index}] is {say_past(past)} the end of {extent}"
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

    def other_access(self) -> str:
        """Who made the other access of a race: a lane of this warp, another warp, another block."""
        seen = self.seen
        lane = f"lane {seen.other_lane} of " if seen.other_lane >= 0 else ""
        if seen.other_block == seen.block and seen.other_warp == seen.warp:
            return f"lane {seen.other_lane} of the same warp" if lane else "another lane of the same warp"
        if seen.other_block == seen.block:
            return f"{lane}warp {seen.other_warp}"
        return f"{lane}warp {seen.other_warp} of block {self.theirs.block_position(seen.other_block)}"

    def barrier_name(self, address: int) -> str:
        return f"mbarrier {self.shared_element(address - (1 << 32) if address >= 1 << 32 else address, 8)[0]}"

    @property
    def at(self) -> str:
        """The line of the other instruction."""
        return through(self.other.location) if self.other else "an unknown line"

    @property
    def other_here(self) -> str:
        """The other instruction, and its line."""
        return f"`{shortened(self.other.opcode)}` at {self.at}" if self.other else ""

    @property
    def register(self) -> str:
        """The name of the register at the address, after a blank."""
        names = self.context.register_names(self.seen.address)
        return f" {names[0]}" if names else ""

    def sentences(self) -> tuple[str, str] | None:
        """What went wrong and what to do, by the table of sentences; None of a cause that it does not have."""
        seen, fields = self.seen, _Fields(self)
        names = (f"{seen.kind} info={seen.info}", f"{seen.kind} detail={seen.detail}", seen.kind)
        found = next((SENTENCES[name] for name in names if name in SENTENCES), None)
        return found and (found[0].format_map(fields), found[1].format_map(fields))


def _there(e: Evidence) -> str:
    """The other instruction, who executed it, and its line."""
    if e.other is None:
        return "another instruction"
    who = "" if e.seen.other_warp < 0 else f" of {e.other_access()}"
    return f"`{shortened(e.other.opcode)}`{who} at {e.at}"


def _wanted_map(e: Evidence) -> str:
    return "wide im2col" if "im2col::w" in e.opcode[:77] else "im2col" if "im2col" in e.opcode[:77] else "tiled"


FIELDS: Mapping[str, Callable[[Evidence], object]] = {
    "here": lambda e: f"`{shortened(e.opcode)}`",
    "opcode": lambda e: e.opcode,
    "access": lambda e: e.access,
    "element": lambda e: e.element()[0],
    "who": lambda e: e.other_access(),
    "at": lambda e: e.at,
    "there": _there,
    "there_if_known": lambda e: f" at {e.at}" if e.other else "",
    "at_another_place": lambda e: e.at if e.other else "another place",
    "again": lambda e: f", at {e.at}," if e.other else "",
    "discarded": lambda e: f": {e.at} has discarded it" if e.other else "",
    "initialised": lambda e: f", initialised at {e.at}" if e.other else "",
    "instead": lambda e: e.other_here or "it exits",
    "arithmetic": lambda e: e.other_here or "arithmetic",
    "the_wgmma": lambda e: f"the wgmma at {e.at}" if e.other else "a wgmma",
    "barrier": lambda e: e.barrier_name(e.seen.address),
    "ends_barrier": lambda e: "invalidates" if e.opcode.startswith("mbarrier.inval") else "initialises again",
    "register": lambda e: e.register,
    "mask": lambda e: e.seen.info & 0xFFFFFFFF,
    "lanes_of_info": lambda e: say_lanes(e.seen.info),
    "lanes_of_detail": lambda e: say_lanes(e.seen.detail),
    "first_of_warpgroup": lambda e: e.seen.warp // 4 * 4,
    "last_of_warpgroup": lambda e: e.seen.warp // 4 * 4 + 3,
    "swizzle_of_info": lambda e: say_swizzle(e.seen.info),
    "swizzle_of_detail": lambda e: say_swizzle(e.seen.detail),
    "bytes_of_atom": lambda e: 8 * e.seen.detail,
    "given_map": lambda e: _MAPS[e.seen.detail],
    "given_form": lambda e: _MAPS[e.seen.detail].partition(" ")[2],
    "wanted_map": _wanted_map,
    "handle": lambda e: "surface" if e.seen.detail else "texture",
    "handle_title": lambda e: "Surface" if e.seen.detail else "Texture",
    "blocks_of_heap": lambda e: f"{e.seen.info} blocks" if e.seen.info > 1 else "1 block",
    "cell": lambda e: f"tensor memory at lane {e.seen.address >> 16}, column {e.seen.address & 0xFFFF}",
    "lane_of_cell": lambda e: e.seen.address >> 16,
    "last_lane": lambda e: e.seen.info + 31,
    "columns": lambda e: say_count(e.seen.address, "column"),
    "columns_of_info": lambda e: say_count(e.seen.info, "column"),
    "tensor_use": lambda e: _TENSOR_USES[e.seen.info],
    "other_group": lambda e: 3 - e.seen.info,
    "operand_of_detail": lambda e: "B with N" if e.seen.detail else "A with M",
}
"""What the fields of a sentence stand for; others are numbers of the fault."""
