"""Sentences about mbarriers, barriers and collectives of a warp."""

from __future__ import annotations

from ..source_lines import through
from .evidence import Evidence
from .words import say_lanes, shortened


class Barriers(Evidence):
    """Sentences about mbarriers, barriers and collectives of a warp."""

    def barrier_name(self, address: int) -> str:
        if address >= 1 << 32:
            address -= 1 << 32
        name = self.shared_element(address, 8)[0]
        return f"mbarrier {name}"

    def explain_mbarrier_invalid(self) -> tuple[str, str]:
        barrier = self.barrier_name(self.seen.address)
        if self.seen.info == 1:
            before = f", initialised at {through(self.other.location)}" if self.other else ""
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
        if self.seen.info == 4:
            return (
                f"`{shortened(self.opcode)}` copies to another block than the one of its {barrier}",
                "name an mbarrier of the destination's block, or of the pair's other block with cta_group::2",
            )
        return (
            f"{barrier} is not initialised",
            "mbarrier.init by one thread, a fence, and a barrier must come before its first use",
        )

    def explain_mbarrier_not_visible(self) -> tuple[str, str]:
        initialised = through(self.other.location) if self.other else "an unknown line"
        barrier = self.barrier_name(self.seen.address)
        return (
            f"uses {barrier} while nothing puts its initialisation by {self.other_access()} at {initialised} before",
            "a barrier of all threads (of the cluster, if other blocks use it) must come between",
        )

    def explain_mbarrier_init_fence(self) -> tuple[str, str]:
        initialised = through(self.other.location) if self.other else "an unknown line"
        return (
            f"a copy completes on {self.barrier_name(self.seen.address)}, initialised at {initialised}, which the "
            "async proxy need not see yet",
            "fence.mbarrier_init.release.cluster or fence.proxy.async must come between mbarrier.init and the "
            "barrier that the other threads wait at",
        )

    def explain_mbarrier_in_use(self) -> tuple[str, str]:
        used = through(self.other.location) if self.other else "an unknown line"
        ends = "invalidates" if self.opcode.startswith("mbarrier.inval") else "initialises again"
        return (
            f"{ends} {self.barrier_name(self.seen.address)}, which {self.other_access()} may still be using at {used}",
            "a barrier of all threads that use it must come between",
        )

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

    def explain_mbarrier_overflow(self) -> tuple[str, str]:
        barrier, count = self.barrier_name(self.seen.address), self.seen.info
        if self.seen.detail == 2:
            return (
                f"more arrivals at {barrier} than the {count} it was initialised for, in a phase that has not ended: "
                "an arrival for the next one comes too early",
                "wait for the end of the phase before arriving for the next: a producer on the empty barrier, for "
                "those who read what was there before, a consumer on the full barrier; initialise it for more only if "
                "more threads arrive in every phase",
            )
        if self.seen.detail:
            again = f", at {through(self.other.location)}," if self.other else ""
            return (
                f"more arrivals at {barrier} than the {count} it was initialised for: a thread arrives a second time"
                f"{again} in a phase that has not ended",
                "wait before arriving again: a producer on the empty barrier, for those who read what was there "
                "before, a consumer on the full barrier; initialise it for more only if one thread counts as several",
            )
        return (
            f"more arrivals at {barrier} than the {count} it was initialised for",
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

    def explain_mbarrier_bytes(self) -> tuple[str, str]:
        """More bytes came, or will, than the phase was told to expect."""
        expected = f" at {through(self.other.location)}" if self.other else ""
        barrier = self.barrier_name(self.seen.address)
        advice = "expect as many bytes as all copies of the phase bring, whole boxes also at the edges"
        if self.seen.detail:
            return (
                f"the phase of {barrier} ends while this copy of {self.seen.info} bytes is on its way: "
                f"too few are expected{expected}",
                advice,
            )
        return f"{self.seen.info} more bytes came to {barrier} than were expected{expected}", advice

    def explain_barrier_count(self) -> tuple[str, str]:
        return (
            f"barrier {self.seen.detail} is used with {self.seen.info} threads",
            "a block has barriers 0 to 15; a thread count is a multiple of 32 and no more than the block has",
        )

    def explain_barrier_mismatch(self) -> tuple[str, str]:
        where = f" at {through(self.other.location)}" if self.other else ""
        return (
            f"threads disagree about a barrier: {self.seen.info} threads here, {self.seen.detail}{where}",
            "all threads that meet at a barrier must give the same count and the same operation",
        )

    def explain_barrier_diverged(self) -> tuple[str, str]:
        if self.seen.detail == 1:
            where = through(self.other.location) if self.other else "an unknown line"
            return (
                f"{self.other_access()} goes past `{self.opcode}` at {where}, and the barrier ends without it",
                "let all threads of the block come to it: move it out of the branch",
            )
        return (
            f"only the lanes {say_lanes(self.seen.info)} of the warp reach `{self.opcode}`, which needs them all "
            "together",
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
            f"{say_lanes(self.seen.detail)}, which have exited or never existed",
            "name exactly the lanes that execute it, and return only after the last collective",
        )

    def explain_inactive_source(self) -> tuple[str, str]:
        return (
            f"`{self.opcode}` reads a value of lane {self.seen.info}, which does not execute it",
            "let the source lane execute it too",
        )
