"""Sentences about mbarriers, and about launches that do not end: who waits for what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import _engine
from ..source_lines import source_line, through
from .evidence import Evidence
from .words import NOT_WAITING, say_count, say_lanes, say_warps, shortened

_LINES_OF_WAITS = 12


def unseen_phases(wait: _engine.Waiting) -> str:
    """Phases that ended and that the warp has not waited for, as a wrong parity leaves them.

    The parity may be this wait's, or that of whoever arrives: one who passes its own wait too early arrives too often.
    """
    if not wait.unseen:
        return ""
    last = wait.phase - 1
    first = wait.phase - wait.unseen
    ended = f"phase {last} ended and was" if first == last else f"phases {first}-{last} ended and were"
    return f" ({ended} not waited for: a parity is wrong here, or in a wait of those who arrive)"


class Waits(Evidence):
    """Sentences about mbarriers, and about launches that do not end: who waits for what."""

    def explain_mbarrier_overwritten(self) -> tuple[str, str]:
        """Something else was stored where an mbarrier lies, which is used after that."""
        init = self.context.instruction(self.seen.info)
        initialised = f", initialised at {through(init.location)}" if init else ""
        barrier = self.barrier_name(self.seen.address) + initialised
        advice = (
            "compare the index of the store with the size of its array; the memory of an mbarrier is free for other "
            "things after mbarrier.inval, or after its last use"
        )
        if self.other is None:
            return f"uses {barrier}, which has been overwritten since", advice
        who, used = self.other_access(), through(self.other.location)
        return f"overwrites {barrier}, which {who} then uses at {used}", advice

    def explain_deadlock(self) -> tuple[str, str]:
        """No warp can go on: what to compare, by what the waits lack."""
        waits = [wait for wait in self.waits if wait.reason not in NOT_WAITING]
        advice = "every wait needs an arrival: compare what each warp waits for with the other warps"
        for wait in [wait for wait in waits if wait.reason == "mbarrier" and wait.transactions][:1]:
            barrier = self.barrier_name(wait.address)
            if wait.transactions < 0:
                advice = f"{barrier} has got bytes that nobody has expected: let a thread arrive there with expect_tx"
            elif wait.pending == 0:
                advice = (
                    f"{barrier} expects {wait.transactions} bytes more than have come: expect as many as all copies "
                )
                advice += "of the phase bring, or see why one is missing"
        if any(wait.reason == "registers" for wait in waits):
            advice = (
                "the counts of all warpgroups, 128 threads each, must fit into the registers that the launch gives to "
            )
            advice += "the block: let others decrease theirs, or ask for less"
        return "no warp can go on", advice

    def explain_budget(self) -> tuple[str, str]:
        if self.seen.detail == 2:
            return self.nobody_goes_on()
        if self.seen.detail:
            message = f"the launch ran for longer than {self.seen.info / 1000:g} seconds and counts as hung"
        else:
            message = "a block ran for longer than the launch allows and counts as hung"
        advice = "look for a loop whose end another warp must bring about"
        if self.seen.other_block >= 0:
            message += f"; the device is full, and {self.not_begun(self.seen.address)}"
            advice += ", or a block that is not resident: launch no more than the device holds at once"
        return message, f"{advice}, or give the launch more {'seconds' if self.seen.detail else 'instructions'}"

    def nobody_goes_on(self) -> tuple[str, str]:
        """Blocks go round in loops that nobody can end, since all others have ended."""
        message = "all blocks that have not ended wait in loops, and nobody can end these"
        if self.seen.other_block >= 0:
            returns = self.other and "return" in source_line(self.other.location, self.context.sources)
            where = f" at {through(self.other.location)}" if self.other and returns else ""  # else at its last brace
            message += f": block {self.context.block_position(self.seen.other_block)} has exited{where}"
        if self.context.entry.cooperative:
            return message, "let all blocks of the grid come to its barrier, also those without work: move the return"
        return message, "what a block waits for must be done by a block that still runs, before it exits"

    def not_begun(self, count: int) -> str:
        """The blocks of a full device that wait for others to end."""
        left = f"block {self.context.block_position(self.seen.other_block)}"
        return f"{left} and {count - 1} more have not begun" if count > 1 else f"{left} has not begun"

    def explain_not_resident(self) -> tuple[str, str]:
        """All blocks that the device holds go round in loops, and others have not begun."""
        seen = self.seen
        held = say_count(seen.info, "block")
        return (
            f"waits in a loop for a block that is not resident: the device holds {held} at once, all of them wait, and "
            f"{self.not_begun(seen.detail)}",
            f"launch at most {held} and let each do the work of several, or let no block wait for a block that begins "
            "later; with less shared memory, threads or registers a multiprocessor holds more blocks",
        )

    def describe_waits(self) -> Iterable[str]:
        """One line for all warps of a block that wait at the same place for the same."""
        groups: dict[tuple[int, ...], list[_engine.Waiting]] = {}
        unseen = any(wait.unseen for wait in self.waits)  # a sign that a parity is wrong
        for wait in self.waits:
            if wait.reason not in NOT_WAITING or (wait.reason == "passed_again" and unseen):
                state = wait.pc, wait.address, wait.expected, wait.phase, wait.pending, wait.transactions, wait.unseen
                groups.setdefault((wait.block, *state), []).append(wait)
        # blocks that hang in the same way share a line
        alike: dict[tuple[object, ...], list[list[_engine.Waiting]]] = {}
        for (_, *state_of_group), members in groups.items():
            warps = tuple((wait.warp, wait.lanes, wait.reason) for wait in members)
            alike.setdefault((*state_of_group, warps), []).append(members)
        lines = [
            f"{self.blocks([each[0].block for each in same])}: {say_warps(same[0])} {self.wait_sentence(same[0][0])}"
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
        place = through(instruction.location) if instruction else "an unknown line"
        opcode = shortened(instruction.opcode) if instruction else ""
        if wait.reason == "mbarrier":
            missing = say_count(wait.pending, "arrival")
            if wait.transactions:
                missing += f" and {say_count(wait.transactions, 'byte')}"
            barrier = self.barrier_name(wait.address)
            if (wait.phase - wait.expected) % 2:
                return f"at {place} for a phase of parity {wait.expected} of {barrier}, which is in phase {wait.phase}"
            phase = f"phase {wait.phase} (parity {wait.expected})" if wait.phase > 1 else f"phase {wait.phase}"
            return f"at {place} for {barrier} {phase}: {missing} pending{unseen_phases(wait)}"
        if wait.reason == "passed_again":
            ended = f"the end of phase {wait.phase - 1} of {self.barrier_name(wait.address)}"
            return f"at {place} {ended} a second time: the parity there is not that of the next phase"
        if wait.reason == "barrier":
            return f"at {place} for barrier {wait.address}: {wait.pending} of {wait.expected} threads have arrived"
        if wait.reason == "collective":
            return f"at {place} in `{opcode}`: the lanes {say_lanes(wait.expected)} of its mask have not come"
        if wait.reason == "warpgroup":
            return "for the other warps of the warpgroup, which have not issued their part of its products"
        if wait.reason == "registers":
            return f"at {place} for {say_count(wait.expected, 'register')}: {wait.pending} are free in the block"
        if wait.reason == "cluster_barrier":
            return f"at {place} for the other blocks of the cluster"
        return f"at {place}, in `{opcode}`"
