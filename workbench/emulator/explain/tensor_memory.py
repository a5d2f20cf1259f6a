"""Sentences about tensor memory, and what tcgen05 does to it."""

from __future__ import annotations

from ..source_lines import through
from .evidence import Evidence
from .words import say_count, shortened

_USES = (  # in the order of the engine's `TensorUse`
    "uses",
    "allocates",
    "frees",
    "loads",
    "stores to",
    "accumulates in",
    "multiplies",
    "scales by factors in",
    "selects elements by metadata in",
    "copies to",
    "shifts",
)
_BEFORE_SYNC, _AFTER_SYNC = "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"


class TensorMemory(Evidence):
    """Sentences about tensor memory, and what tcgen05 does to it."""

    def cell(self) -> str:
        """Where the address lies."""
        return f"tensor memory at lane {self.seen.address >> 16}, column {self.seen.address & 0xFFFF}"

    def here(self) -> str:
        return f"`{shortened(self.opcode)}`"

    def there(self) -> str:
        """The other instruction, who executed it, and its line."""
        if self.other is None:
            return "another instruction"
        who = "" if self.seen.other_warp < 0 else f" of {self.other_access()}"
        return f"`{shortened(self.other.opcode)}`{who} at {through(self.other.location)}"

    def at_other(self) -> str:
        return through(self.other.location) if self.other else "an unknown line"

    def explain_tensor_allocation(self) -> tuple[str, str]:
        """An allocation that is refused."""
        columns = say_count(self.seen.address, "column")
        if self.seen.info == 1:
            return f"{self.here()} asks for {columns}", "ask for 32, 64, 128, 256 or 512 columns"
        if self.seen.info == 2:
            return (
                f"{self.here()} comes after the block has given up the right to allocate, at {self.at_other()}",
                "execute tcgen05.relinquish_alloc_permit after the last allocation",
            )
        return (
            f"{self.here()} waits for {columns} that nobody frees: the block holds others since {self.at_other()}",
            "a multiprocessor has 512 columns: allocate once, or free before the next allocation",
        )

    def explain_tensor_bounds(self) -> tuple[str, str]:
        """A use outside of every allocation."""
        used = f"{self.here()} uses {say_count(self.seen.info, 'column')} from {self.cell()} on"
        if self.seen.detail == 1:
            return used + ", beyond its 128 lanes and 512 columns", "an address is lane << 16 | column"
        if self.seen.detail == 3:
            return f"{used}, which {self.at_other()} has freed", "free tensor memory after its last use"
        return (
            f"{used}, which the block has not allocated",
            "allocate as many columns as are used, and start from the address that tcgen05.alloc has stored",
        )

    def explain_tensor_lanes(self) -> tuple[str, str]:
        first = self.seen.info
        return (
            f"{self.here()} of warp {self.seen.warp} accesses lane {self.seen.address >> 16} of tensor memory",
            f"warp {self.seen.warp} reaches lanes {first} to {first + 31}: those of its number modulo 4; add "
            f"{first} << 16 to the address",
        )

    def explain_tensor_free(self) -> tuple[str, str]:
        columns = say_count(self.seen.info, "column")
        if self.seen.detail == 2:
            return (
                f"{self.here()} frees {columns} of {self.seen.address} that {self.at_other()} has allocated",
                "free an allocation as a whole",
            )
        if self.seen.detail == 3:
            return f"{self.here()} frees what {self.at_other()} has freed before", "free an allocation once"
        return (
            f"{self.here()} frees {columns} from {self.cell()} on, where no allocation begins",
            "give it the address that tcgen05.alloc has stored",
        )

    def explain_tensor_not_freed(self) -> tuple[str, str]:
        return (
            f"{self.here()} allocates {say_count(self.seen.info, 'column')} that the block has not freed when it ends",
            "let one warp execute tcgen05.dealloc before the kernel ends: other blocks wait for the columns",
        )

    def explain_tensor_unwritten(self) -> tuple[str, str]:
        """An operand that nothing has written."""
        seen = self.seen
        advice = {
            5: "let the first product of a tile not accumulate (enable-input-d false), or store zeros before it",
            7: "copy the scale factors of all rows and columns to tensor memory before the product",
            8: "copy the metadata of all rows to tensor memory before the product",
        }.get(seen.info, "store the matrix to tensor memory before the product")
        return f"{self.here()} {_USES[seen.info]} {self.cell()}, which nothing has written", advice

    def explain_tensor_load_pending(self) -> tuple[str, str]:
        return (
            f"{self.here()} changes {self.cell()} while {self.there()} may still be reading it",
            "tcgen05.wait::ld must come between, in the warp that loads, and then what hands over to this warp",
        )

    def explain_tensor_load_unwaited(self) -> tuple[str, str]:
        names = self.context.register_names(self.seen.address)
        register = f" {names[0]}" if names else ""
        return (
            f"uses the register{register}, for which {self.there()} has not been waited",
            "tcgen05.wait::ld must come between; devices wait at the first use",
        )

    def explain_tensor_store_pending(self) -> tuple[str, str]:
        return (
            f"{self.here()} uses {self.cell()}, to which {self.there()} may still be storing",
            "tcgen05.wait::st must come between, in the warp that stores, and then what hands over to this warp",
        )

    def explain_tensor_not_committed(self) -> tuple[str, str]:
        return (
            f"{self.here()} uses {self.cell()} while {self.there()}, which has not been waited for, may be under way",
            "tcgen05.commit after it must name an mbarrier, and this thread must wait for that mbarrier's phase",
        )

    def explain_tensor_race(self) -> tuple[str, str]:
        return (
            f"{self.here()} uses {self.cell()}, as {self.there()} does, and nothing orders the two",
            "wait for a barrier or an mbarrier at which the other thread arrives after its use",
        )

    def explain_tensor_unordered(self) -> tuple[str, str]:
        return (
            f"{self.here()} uses {self.cell()} after {self.there()}, and PTX does not put the two in order",
            "commit and wait between them; in order without that are products with the same accumulator and shape, a "
            "product after a copy or a shift, a shift after a product, and a copy of 4x256b after a shift",
        )

    def explain_tensor_fence(self) -> tuple[str, str]:
        fence = _BEFORE_SYNC if self.seen.info == 1 else _AFTER_SYNC
        where = "before that thread arrives" if self.seen.info == 1 else "after this thread has waited"
        return f"{self.here()} uses {self.cell()} after {self.there()}, without {fence}", f"{fence} must come {where}"

    def explain_tensor_group(self) -> tuple[str, str]:
        other = 3 - self.seen.info
        return (
            f"{self.here()} has cta_group::{self.seen.info}, and {self.at_other()} has cta_group::{other}",
            "all instructions of tcgen05 in a kernel have the same cta_group",
        )

    def explain_tensor_pair(self) -> tuple[str, str]:
        """The other block of a pair."""
        why = self.seen.info
        if why == 1:
            return f"{self.here()} has no other block to pair with", "launch clusters of an even number of blocks"
        if why == 2:
            return (
                f"{self.here()} needs the other block of the pair, which has ended at {self.at_other()}",
                "let the blocks of a cluster meet at a cluster barrier before one ends",
            )
        if why == 3:
            return (
                f"{self.here()} waits for the other block of the pair, where no warp executes it",
                "one warp of each block of the pair executes it",
            )
        return (
            f"{self.here()} asks for {say_count(self.seen.address, 'column')}, and the other block of the pair for "
            f"{self.seen.detail} at {self.at_other()}",
            "ask for the same in both blocks",
        )

    def explain_tensor_descriptor(self) -> tuple[str, str]:
        """Bits of a descriptor that contradict the instruction."""
        seen, value = self.seen, self.seen.detail
        said = {
            1: (f"bits 46 to 48 that are {value:#05b}", "they are 0b001: descriptors of wgmma are others"),
            2: (f"the swizzle {value}", "bits 61 to 63 are 0, 1 (128 bytes, atoms of 32), 2 (128), 4 (64) or 6 (32)"),
            3: (f"bits 53 to 60 that are {value:#x}", "they are 0"),
            4: (f"the type {value} of D", "kind::f16 and f8f6f4 have 0 (f16) or 1 (f32), tf32 has 1, i8 has 2 (s32)"),
            5: (f"the type {value} of A, which the kind does not have", "see bits 7 to 9"),
            6: (f"the type {value} of B, which the kind does not have", "see bits 10 to 12"),
            7: (f"N = {value}", "see which N the kind has with this M and cta_group; bits 17 to 22 are N / 8"),
            8: (f"M = {value}", "64 and 128 for one block, 128 and 256 for a pair; bits 24 to 28 are M / 16"),
            9: (
                f"{'B' if value else 'A'} with {'N' if value else 'M'} as the fastest dimension",
                "only types of 8, 16 and 32 bits in shared memory can be transposed",
            ),
            10: (f"the sparsity bit {value}", "bit 2 is 1 with .sp and 0 without"),
            11: ("the bit of saturation", "only kind::i8 saturates"),
            12: ("a negated operand", "integers are not negated"),
            13: (f"reserved bits in {seen.address:#x}", "they are 0"),
            14: (f"the scale type {value}", "factors are 1 (ue8m0); with mxf4nvf4 and scale_vec::4X also 0 (ue4m3)"),
            15: (f"the scale factor id {value}", "2X has 0 or 2, 4X has 0"),
            16: ("K = 96", "only dense products of 4-bit elements have it"),
            17: (f"the maximum shift {value}", "only .ws has one"),
        }[seen.info]
        which = "matrix descriptor" if seen.info <= 3 else "instruction descriptor"
        return f"{self.here()} has {'a' if seen.info <= 3 else 'an'} {which} with {said[0]}", said[1]
