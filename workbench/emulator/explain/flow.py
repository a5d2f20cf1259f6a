"""Which warps come to a place in a kernel, and which barriers lie between two places: from its branches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from .. import ptx
from ..context import LaunchContext

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
