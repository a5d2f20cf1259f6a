"""Sentences about two accesses that nothing puts in order."""

from __future__ import annotations

from ..source_lines import through
from .evidence import Evidence
from .words import shortened

_ORDERING_MBARRIER = ("mbarrier.arrive", "mbarrier.test_wait", "mbarrier.try_wait")


class Races(Evidence):
    """Sentences about two accesses that nothing puts in order."""

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
            message = f"{here} {element}, which the copy at {through(other) if other else line} writes"
            advice = "wait for the phase of its mbarrier first"
            return f"{message}: nothing puts this after it", advice + self.relaxed_advice()
        if self.other and self.other.opcode.startswith(("atom", "red")):
            before = "updates"
        who = self.other_access()
        message = f"{here} {element}, which {who} {before} at {through(other) if other else line}"
        message += ", and nothing puts one before the other"
        return message, self.race_advice(line) + self.relaxed_advice()

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
            f"`{shortened(instruction.opcode)}` at {through(instruction.location)}"
            for instruction in self.context.entry.instructions
            if instruction.opcode.startswith(_ORDERING_MBARRIER) and "relaxed" in instruction.parts
        )
        return f"; without fence.acq_rel, nothing is ordered by {' and '.join(relaxed)}" if relaxed else ""

    def explain_proxy_fence(self) -> tuple[str, str]:
        """An access of the async proxy to what an ordinary store wrote."""
        element, _ = self.element()
        stored = through(self.other.location) if self.other else "an unknown line"
        here = "overwrites" if self.access == "writes" else "reads"
        message = f"the async proxy {here} {element}, which {self.other_access()} stored to at {stored}, "
        space = "global" if self.seen.space == "global" else "shared::cta"
        return (
            f"{message}and no proxy fence lies between",
            f"fence.proxy.async.{space} by the threads that store, then a barrier, must come before "
            f"`{shortened(self.opcode)}`",
        )
