"""What the sentences of a finding need to know about a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import ptx
from .launch_checks import Edge, shared_bytes_of
from .mangled import kernel_name_of
from .memory import Allocation, Memory
from .program import Entry
from .stack import STACK


@dataclass(slots=True)
class LaunchContext:
    """A launch, its memory and its kernel."""

    entry: Entry
    memory: Memory
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    dynamic_shared_bytes: int
    seed: int
    label: str = ""  # of a copy, which has no kernel
    stream: int | None = None
    after: Sequence[Edge] = ()  # the launches that it follows
    series: list[LaunchContext] = field(default_factory=list)  # launches that need not end before the next begins
    counts: Any = ()  # how often each row has been executed

    @property
    def name(self) -> str:
        """The kernel as the source calls it."""
        known = kernel_name_of(self.entry.name)
        return self.label or f"{known.name}{known.arguments}"

    def executed(self, opcode: str) -> list[int]:
        """The rows with this opcode that some warp has executed."""
        rows = [row for row, count in enumerate(self.counts) if count]
        return [row for row in rows if (found := self.instruction(row)) and found.opcode == opcode]

    @property
    def sources(self) -> Mapping[str, str]:
        return self.entry.program.sources

    @property
    def shared_variables(self) -> tuple[tuple[ptx.Variable, int], ...]:
        return self.entry.shared_variables

    @property
    def dynamic_offset(self) -> int:
        return self.entry.dynamic_shared_offset

    @property
    def shared_bytes(self) -> int:
        return shared_bytes_of(self.entry, self.dynamic_shared_bytes)

    @property
    def local_bytes(self) -> int:
        return self.entry.local_bytes

    @property
    def has_call_stack(self) -> bool:
        """Whether frames of called functions lie at the end of local memory."""
        operands = (operand for instruction in self.entry.instructions for operand in instruction.operands)
        return any(isinstance(operand, ptx.Symbol) and operand.name == STACK for operand in operands)

    @property
    def parameter_bytes(self) -> int:
        return self.entry.parameter_bytes

    def instruction(self, row: int) -> ptx.Instruction | None:
        decoded = self.entry.decoded
        if not 0 <= row < len(decoded.instructions) or not self.entry.instructions:
            return None
        return self.entry.instructions[int(decoded.instructions[row])]

    def block_position(self, block: int) -> tuple[int, int, int]:
        return position(block, self.grid)

    def thread_position(self, warp: int, lane: int) -> tuple[int, int, int]:
        return position(32 * warp + lane, self.block)

    def nearest(self, address: int) -> Allocation | None:
        return self.memory.nearest(address)

    def register_names(self, cell: int) -> list[str]:
        return self.entry.decoded.register_names.get(cell, [])

    def string(self, address: int) -> str:
        """The text that starts at an address in global memory."""
        allocation = self.memory.find(address)
        if allocation is None:
            return ""
        raw = bytes(allocation.data[address - allocation.address :])
        return raw.partition(b"\0")[0].decode("utf-8", "replace")


def position(linear: int, extent: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = extent
    return linear % x, linear // x % y, linear // (x * y)
