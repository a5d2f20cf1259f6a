"""What the engine's causes are: the kind of finding, how much it weighs, and the sentences that say it.

A sentence is a template. Its fields are those of the fault (`info`, `detail`, `address`, `warp`) and what `Evidence`
tells of it: `here`, the instruction; `who` made the other access, and `at` which line; `barrier`, `element`, `cell`."""

from __future__ import annotations

from collections.abc import Mapping

from .. import _engine
from ..findings import FindingKind, Severity

CAUSES: tuple[str, ...] = tuple(_engine.fault_names())
"""The engine's causes, by number; the first is none."""

_BY_WORD: dict[str, FindingKind] = {
    "budget": FindingKind.LIVELOCK,
    "not_resident": FindingKind.DEADLOCK,
    "swizzle_mismatch": FindingKind.DESCRIPTOR,
    "tensor_descriptor": FindingKind.DESCRIPTOR,
    "incoherent_load": FindingKind.RACE,
    "product_proxy_fence": FindingKind.PROXY_FENCE,
    "read_only_changed": FindingKind.RACE,
    "sparse_metadata": FindingKind.BAD_OPERAND,
    "launch_control": FindingKind.BAD_OPERAND,
    "warpgroup_diverged": FindingKind.DIVERGENT_COLLECTIVE,
    "warpgroup_apart": FindingKind.DIVERGENT_COLLECTIVE,
    "barrier_diverged": FindingKind.DIVERGENT_COLLECTIVE,
    "barrier_optimised_away": FindingKind.DIVERGENT_COLLECTIVE,
    "not_member": FindingKind.DIVERGENT_COLLECTIVE,
    "exited_member": FindingKind.DIVERGENT_COLLECTIVE,
    "inactive_source": FindingKind.DIVERGENT_COLLECTIVE,
    "barrier_count": FindingKind.BARRIER_MISUSE,
    "barrier_mismatch": FindingKind.BARRIER_MISUSE,
    "stores_pending": FindingKind.EXITED_WITH_WORK,
    "loads_pending": FindingKind.EXITED_WITH_WORK,
    "exited_relaxed": FindingKind.EXITED_WITH_WORK,
    "heap_access": FindingKind.OUT_OF_BOUNDS,
    "heap_free": FindingKind.HEAP_MISUSE,
    "heap_leak": FindingKind.HEAP_MISUSE,
    "registers_unlimited": FindingKind.REGISTER_MISUSE,
    "mbarrier": FindingKind.MBARRIER_MISUSE,
    "tensor": FindingKind.TENSOR_MEMORY,
    "race": FindingKind.RACE,
}
"""The kind of a cause, or of all whose first word this is; of others the name is that of their kind."""

_STRICT = (
    *("race_same_value", "race_volatile", "race_of_replicas", "race_lockstep", "race_relaxed"),
    *("read_only_changed", "exited_relaxed", "tensor_lanes"),
    *("mbarrier_init_fence", "product_proxy_fence", "warpgroup_apart", "exited_member"),
    *("stores_pending", "loads_pending", "tensor_load_unwaited", "tensor_unordered", "tensor_fence"),
)
_NOTES = ("heap_leak", "registers_unlimited")

KINDS = {c: _BY_WORD.get(c) or _BY_WORD.get(c.partition("_")[0]) or FindingKind[c.upper()] for c in CAUSES[1:]}
"""The kinds of findings by their causes."""

SEVERITIES = {
    **dict.fromkeys(CAUSES, Severity.ERROR),
    **dict.fromkeys(_STRICT, Severity.STRICT),
    **dict.fromkeys(_NOTES, Severity.NOTE),
}
"""How much findings weigh, by their causes."""

Sentences = Mapping[str, tuple[str, str]]

MBARRIERS: Sentences = {
    "mbarrier_invalid info=1": (
        "initialises {barrier} again{initialised}, though arrivals or bytes have been counted there since",
        "initialise a barrier once, or end its life with mbarrier.inval first",
    ),
    "mbarrier_invalid info=2": (
        "waits on {barrier} of another block",
        "a block can arrive at the barriers of its cluster, but wait on its own only",
    ),
    "mbarrier_invalid info=3": (
        "waits for parity {detail} of {barrier}",
        "a parity is 0 or 1: toggle it with `^ 1`, or take the number of the phase modulo 2",
    ),
    "mbarrier_invalid info=4": (
        "{here} copies to another block than the one of its {barrier}",
        "name an mbarrier of the destination's block, or of the pair's other block with cta_group::2",
    ),
    "mbarrier_invalid info=5": (
        "{here} is given {address:#x} as an mbarrier, which is no address of shared memory",
        "pass the address of an mbarrier in shared memory; with .shared::cluster what __cvta_generic_to_shared returns",
    ),
    "mbarrier_invalid": (
        "{barrier} is not initialised",
        "mbarrier.init by one thread, a fence, and a barrier must come before its first use",
    ),
    "mbarrier_not_visible": (
        "uses {barrier} while nothing puts its initialisation by {who} at {at} before",
        "a barrier of all threads (of the cluster, if other blocks use it) must come between",
    ),
    "mbarrier_init_fence": (
        "a copy completes on {barrier}, initialised at {at}, which the async proxy need not see yet",
        "fence.mbarrier_init.release.cluster or fence.proxy.async must come between mbarrier.init and the barrier that "
        "the other threads wait at",
    ),
    "mbarrier_in_use": (
        "{ends_barrier} {barrier}, which {who} may still be using at {at}",
        "a barrier of all threads that use it must come between",
    ),
    "mbarrier_overflow detail=0": (
        "more arrivals at {barrier} than the {info} it was initialised for",
        "initialise it with the number of threads that arrive in one phase, and let no one else arrive",
    ),
    "mbarrier_overflow detail=2": (
        "more arrivals at {barrier} than the {info} it was initialised for, in a phase that has not ended: an arrival "
        "for the next one comes too early",
        "wait for the end of the phase before arriving for the next: a producer on the empty barrier, for those who "
        "read what was there before, a consumer on the full barrier; initialise it for more only if more threads "
        "arrive in every phase",
    ),
    "mbarrier_overflow": (
        "more arrivals at {barrier} than the {info} it was initialised for: a thread arrives a second time{again} in a "
        "phase that has not ended",
        "wait before arriving again: a producer on the empty barrier, for those who read what was there before, a "
        "consumer on the full barrier; initialise it for more only if one thread counts as several",
    ),
    "mbarrier_transactions": (
        "the bytes pending at {barrier} went out of range: {info}",
        "expect as many bytes as the copies bring, and expect them before they arrive in a later phase",
    ),
    "mbarrier_count": ("{barrier} is initialised with {info} arrivals", "1 to 1048575 arrivals are allowed"),
    "mbarrier_bytes detail=0": (
        "{info} more bytes came to {barrier} than were expected{there_if_known}",
        "expect as many bytes as all copies of the phase bring, whole boxes also at the edges",
    ),
    "mbarrier_bytes": (
        "the phase of {barrier} ends while this copy of {info} bytes is on its way: too few are "
        "expected{there_if_known}",
        "expect as many bytes as all copies of the phase bring, whole boxes also at the edges",
    ),
}

COLLECTIVES: Sentences = {
    "barrier_count": (
        "barrier {detail} is used with {info} threads",
        "a block has barriers 0 to 15; a thread count is a multiple of 32 and no more than the block has",
    ),
    "barrier_mismatch": (
        "threads disagree about a barrier: {info} threads here, {detail}{there_if_known}",
        "all threads that meet at a barrier must give the same count and the same operation",
    ),
    "barrier_diverged detail=1": (
        "{who} goes past `{opcode}` at {at}, and the barrier ends without it",
        "let all threads of the block come to it: move it out of the branch",
    ),
    "barrier_diverged": (
        "only the lanes {lanes_of_info} of the warp reach `{opcode}`, which needs them all together",
        "move it out of the branch that depends on the lane",
    ),
    "not_member": (
        "the lane executes `{opcode}` but is not in its own mask {mask:#010x}",
        "name exactly the lanes that execute it",
    ),
    "exited_member": (
        "the mask {mask:#010x} of `{opcode}` names the lanes {lanes_of_detail}, which have exited or never existed",
        "name exactly the lanes that execute it, and return only after the last collective",
    ),
    "inactive_source": (
        "`{opcode}` reads a value of lane {info}, which does not execute it",
        "let the source lane execute it too",
    ),
    "warpgroup_diverged info=0": (
        "only some of warps {first_of_warpgroup}-{last_of_warpgroup} execute {here}, which needs all four; the others "
        "go on to {instead}",
        "a warpgroup is 4 warps, the first a multiple of 4: let conditions around it hold for all of them",
    ),
    "warpgroup_diverged": (
        "{here} needs a warpgroup of 4 warps; that of warp {warp} has {info}",
        "launch blocks whose warps are a multiple of 4",
    ),
    "warpgroup_apart": (
        "warps of one warpgroup execute this {here} and the one at {at_another_place} together",
        "PTX asks for one instruction that all four warps execute; devices take equal ones",
    ),
}

REGISTERS: Sentences = {
    "accumulator_in_flight info=0": (
        "touches the register{register} while {the_wgmma} may still be using it",
        "wgmma.commit_group and wgmma.wait_group must come before accumulators are touched",
    ),
    "accumulator_in_flight": (
        "touches the register{register} while {the_wgmma}, which no commit covers, may still be using it",
        "wgmma.commit_group must come between the products and wgmma.wait_group",
    ),
    "register_misuse info=1": ("setmaxnreg asks for {address} registers", "24 to 256 are allowed, in multiples of 8"),
    "register_misuse info=2": (
        "setmaxnreg.dec to {address} registers, of {detail} that each thread has",
        "use setmaxnreg.inc",
    ),
    "register_misuse": (
        "setmaxnreg.inc to {address} registers, of {detail} that each thread has",
        "use setmaxnreg.dec",
    ),
    "registers_unlimited": (
        "setmaxnreg in a kernel without a limit on its registers has no effect",
        "give the kernel __launch_bounds__ with the threads and blocks, or a maximum number of registers",
    ),
}

DESCRIPTORS: Sentences = {
    "swizzle_mismatch": (
        "reads {element} with {swizzle_of_info}, but the tensor copy at {at} wrote it with {swizzle_of_detail}",
        "give the tensor map and the matrix descriptor the same swizzle",
    ),
    "descriptor info=2": (
        "{here} is given {address:#x} as a tensor map, but there is none",
        "pass tensor maps as `const __grid_constant__` parameters, and their address",
    ),
    "descriptor info=3": (
        "{here} does not have as many coordinates as its tensor map has dimensions ({detail})",
        "use the form of the instruction for that rank",
    ),
    "descriptor info=4": (
        "the box of the tensor map of {here} is wider than its swizzle of {detail} bytes",
        "make the innermost extent of the box no more bytes than the swizzle",
    ),
    "descriptor info=5": (
        "a matrix of {here} begins at {element}, in the middle of an atom of the {detail}-byte swizzle",
        "align tiles to {bytes_of_atom} bytes, and step from there along a row or by multiples of 128 bytes",
    ),
    "descriptor info=6": (
        "{here} is given {given_map} tensor map",
        "encode the map as {wanted_map}, or use the {given_form} form of the instruction",
    ),
    "descriptor info=7": (
        "{here} is given {address:#x}, which is no {handle} object",
        "pass what cudaCreate{handle_title}Object has made, and destroy it after the launch",
    ),
    "descriptor info=8": (
        "{here} is given a tensor map whose box has {detail} rows",
        "give the box one row: the instruction moves it four times, from the rows that it names",
    ),
    "descriptor": (
        "{here} has a matrix descriptor with a base offset ({address:#x})",
        "align tiles to the atom of their swizzle, so that they need none",
    ),
}

MEMORY: Sentences = {
    "misaligned": (
        "{access} {element} at {address:#x}, which is not a multiple of {info} bytes",
        "so wide an access needs an address that is a multiple of {info}: align the array and its rows",
    ),
    "heap_leak": (
        "{blocks_of_heap} of {detail} bytes together, taken from the heap, are not freed when the launch ends",
        "free or delete them, unless a later launch does",
    ),
    "index_overflow": (
        "{access} an element whose index does not fit into 32 bits: {arithmetic} overflows",
        "compute the index in 64 bits: convert an operand to long long or size_t before the product",
    ),
}

OTHERS: Sentences = {
    "resources": ("the launch asks for more than fits: {info}", ""),
    "launch_control info=1": (
        "{here} comes after the cluster has seen{there_if_known} that a request was refused",
        "end the loop once clusterlaunchcontrol.query_cancel.is_canceled is false",
    ),
    "launch_control": (
        "{here} asks a response for a block where nothing has been cancelled",
        "ask for the block where clusterlaunchcontrol.query_cancel.is_canceled is true",
    ),
    "unsupported": ("the emulator does not support this form of {here}", ""),
}

_STORE_FIRST = "store the matrix to tensor memory before the product"

TENSOR_MEMORY: Sentences = {
    "tensor_allocation info=1": ("{here} asks for {columns}", "ask for 32, 64, 128, 256 or 512 columns"),
    "tensor_allocation info=2": (
        "{here} comes after the block has given up the right to allocate, at {at}",
        "execute tcgen05.relinquish_alloc_permit after the last allocation",
    ),
    "tensor_allocation": (
        "{here} waits for {columns} that nobody frees: the block holds others since {at}",
        "a multiprocessor has 512 columns: allocate once, or free before the next allocation",
    ),
    "tensor_bounds detail=1": (
        "{here} uses {columns_of_info} from {cell} on, beyond its 128 lanes and 512 columns",
        "an address is lane << 16 | column",
    ),
    "tensor_bounds detail=3": (
        "{here} uses {columns_of_info} from {cell} on, which {at} has freed",
        "free tensor memory after its last use",
    ),
    "tensor_bounds detail=4": (
        "{here} begins at {cell}, and its lane has to be a multiple of {info}",
        "an address is lane << 16 | column",
    ),
    "tensor_bounds detail=5": (
        "{here} has a matrix that begins at {cell}: its rows begin at lane 0, 64 rows of one block also at lane 16",
        "an address is lane << 16 | column: give it the address that tcgen05.alloc has stored, and add columns only",
    ),
    "tensor_bounds": (
        "{here} uses {columns_of_info} from {cell} on, which the block has not allocated",
        "allocate as many columns as are used, and start from the address that tcgen05.alloc has stored",
    ),
    "tensor_lanes": (
        "{here} of warp {warp} names lane {lane_of_cell} of tensor memory",
        "warp {warp} reaches lanes {info} to {last_lane}: those of its number modulo 4; add {info} << 16 to the "
        "address: devices take these whatever is named, but not in code for a debugger (-G)",
    ),
    "tensor_free detail=2": (
        "{here} frees {columns_of_info} of {address} that {at} has allocated",
        "free an allocation as a whole",
    ),
    "tensor_free detail=3": ("{here} frees what {at} has freed before", "free an allocation once"),
    "tensor_free": (
        "{here} frees {columns_of_info} from {cell} on, where no allocation begins",
        "give it the address that tcgen05.alloc has stored",
    ),
    "tensor_not_freed": (
        "{here} allocates {columns_of_info} that the block has not freed when it ends",
        "let one warp execute tcgen05.dealloc before the kernel ends: other blocks wait for the columns",
    ),
    "tensor_unwritten info=5": (
        "{here} {tensor_use} {cell}, which nothing has written",
        "let the first product of a tile not accumulate (enable-input-d false), or store zeros before it",
    ),
    "tensor_unwritten info=7": (
        "{here} {tensor_use} {cell}, which nothing has written",
        "copy the scale factors of all rows and columns to tensor memory before the product",
    ),
    "tensor_unwritten info=8": (
        "{here} {tensor_use} {cell}, which nothing has written",
        "copy the metadata of all rows to tensor memory before the product",
    ),
    "tensor_unwritten": ("{here} {tensor_use} {cell}, which nothing has written", _STORE_FIRST),
    "tensor_load_pending": (
        "{here} changes {cell} while {there} may still be reading it",
        "tcgen05.wait::ld must come between, in the warp that loads, and then what hands over to this warp",
    ),
    "tensor_load_unwaited": (
        "uses the register{register}, for which {there} has not been waited",
        "tcgen05.wait::ld must come between; devices wait at the first use",
    ),
    "tensor_store_pending": (
        "{here} uses {cell}, to which {there} may still be storing",
        "tcgen05.wait::st must come between, in the warp that stores, and then what hands over to this warp",
    ),
    "tensor_not_committed": (
        "{here} uses {cell} while {there}, which has not been waited for, may be under way",
        "tcgen05.commit after it must name an mbarrier, and this thread must wait for that mbarrier's phase",
    ),
    "tensor_race": (
        "{here} uses {cell}, as {there} does, and nothing orders the two",
        "wait for a barrier or an mbarrier at which the other thread arrives after its use",
    ),
    "tensor_unordered": (
        "{here} uses {cell} after {there}, and PTX does not put the two in order",
        "commit and wait between them; in order without that are products with the same accumulator and shape, a "
        "product after a copy or a shift, a shift after a product, and a copy of 4x256b after a shift",
    ),
    "tensor_fence info=1": (
        "{here} uses {cell} after {there}, without tcgen05.fence::before_thread_sync",
        "tcgen05.fence::before_thread_sync must come before that thread arrives",
    ),
    "tensor_fence info=3": (
        "{here} uses {cell} after {there}, behind a cluster barrier where that thread has arrived with .relaxed",
        "arrive without .relaxed: devices wait for its execution, but PTX puts nothing in order",
    ),
    "tensor_fence": (
        "{here} uses {cell} after {there}, without tcgen05.fence::after_thread_sync",
        "tcgen05.fence::after_thread_sync must come after this thread has waited",
    ),
    "tensor_group": (
        "{here} has cta_group::{info}, and {at} has cta_group::{other_group}",
        "all instructions of tcgen05 in a kernel have the same cta_group",
    ),
    "tensor_pair info=1": ("{here} has no other block to pair with", "launch clusters of an even number of blocks"),
    "tensor_pair info=2": (
        "{here} needs the other block of the pair, which has ended at {at}",
        "let the blocks of a cluster meet at a cluster barrier before one ends",
    ),
    "tensor_pair info=3": (
        "{here} waits for the other block of the pair, where no warp executes it",
        "one warp of each block of the pair executes it",
    ),
    "tensor_pair info=6": (
        "{here} frees while the other block of the pair may still be allocating at {at}",
        "a cluster barrier, or an arrival of the other block, must come between its tcgen05.alloc and this: devices "
        "fault otherwise",
    ),
    "tensor_overlap": (
        "{here} {tensor_use} {cell}, and writes its result there",
        "give the result other columns than the operands",
    ),
    "tensor_collector info=1": (
        "{here} takes a matrix from the collector, whose buffer holds none{discarded}",
        "the product before it with this buffer must be one with ::fill or ::use; one without a qualifier discards",
    ),
    "tensor_collector": (
        "{here} takes a matrix from the collector, where {at} has filled in another one",
        "a product with ::use or ::lastuse must have the matrix, its type and its shape of that with ::fill",
    ),
    "tensor_pair": (
        "{here} asks for {columns}, and the other block of the pair for {detail} at {at}",
        "ask for the same in both blocks",
    ),
}

_TENSOR_DESCRIPTOR: Sentences = {
    "1": ("bits 46 to 48 that are {detail:#05b}", "they are 0b001: descriptors of wgmma are others"),
    "2": ("the swizzle {detail}", "bits 61 to 63 are 0, 1 (128 bytes, atoms of 32), 2 (128), 4 (64) or 6 (32)"),
    "3": ("bits 53 to 60 that are {detail:#x}", "they are 0"),
    "4": ("the type {detail} of D", "kind::f16 and f8f6f4 have 0 (f16) or 1 (f32), tf32 has 1, i8 has 2 (s32)"),
    "5": ("the type {detail} of A, which the kind does not have", "see bits 7 to 9"),
    "6": ("the type {detail} of B, which the kind does not have", "see bits 10 to 12"),
    "7": ("N = {detail}", "see which N the kind has with this M and cta_group; bits 17 to 22 are N / 8"),
    "8": ("M = {detail}", "64 and 128 for one block, 128 and 256 for a pair; bits 24 to 28 are M / 16"),
    "9": (
        "{operand_of_detail} as the fastest dimension",
        "only types of 8, 16 and 32 bits in shared memory can be transposed",
    ),
    "10": ("the sparsity bit {detail}", "bit 2 is 1 with .sp and 0 without"),
    "11": ("the bit of saturation", "only kind::i8 saturates"),
    "12": ("a negated operand", "integers are not negated"),
    "13": ("reserved bits in {address:#x}", "they are 0"),
    "14": ("the scale type {detail}", "factors are 1 (ue8m0); with mxf4nvf4 and scale_vec::4X also 0 (ue4m3)"),
    "15": ("the scale factor id {detail}", "2X has 0 or 2, 4X has 0"),
    "16": ("K = 96", "only dense products of 4-bit elements have it"),
    "17": ("the maximum shift {detail}", "only .ws has one"),
}
"""By `info`: what a descriptor says that contradicts the instruction. The first three are of matrix descriptors."""

SENTENCES: Sentences = {
    **{**MBARRIERS, **COLLECTIVES, **REGISTERS, **DESCRIPTORS, **MEMORY, **OTHERS, **TENSOR_MEMORY},
    **{
        f"tensor_descriptor info={number}": (
            f"{{here}} has {'a matrix' if int(number) <= 3 else 'an instruction'} descriptor with {said}",
            advice,
        )
        for number, (said, advice) in _TENSOR_DESCRIPTOR.items()
    },
}
"""What went wrong, and what to do, by the cause, alone or with the `info` or the `detail` that it has. What needs more
than a template has a function of its own: `explain_CAUSE` of the classes of this package."""
