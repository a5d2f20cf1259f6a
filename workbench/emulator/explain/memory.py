"""Sentences about accesses to memory (bounds, what was never written, what is under way), traps and assertions."""

from __future__ import annotations

from pathlib import Path

from ..source_lines import through
from ..stack import STACK_BYTES
from .evidence import Evidence
from .words import shortened

_USES = (  # what makes an undefined value matter, in the order of the engine's `Use`
    "",
    "computes an address from",
    "decides by",
    "stores to global memory",
    "updates memory with",
    "hands to other lanes",
    "uses as an operand",
)


def _signed(number: int) -> int:
    """A coordinate of 20 bits."""
    return number - (number >> 19 << 20)


def _at(where: str) -> str:
    return where if where.startswith("in ") else f"at {where}"


class MemoryHazards(Evidence):
    """Sentences about accesses to memory (bounds, what was never written, what is under way), traps and assertions."""

    def explain_out_of_bounds(self) -> tuple[str, str]:
        called = self.instruction is not None and self.instruction.text.startswith(("call", "st.param"))
        if self.seen.space == "local" and called:
            return (
                f"the call stack overflows: a thread has {STACK_BYTES} bytes of it",
                "see that the recursion ends; a loop needs no stack",
            )
        if self.seen.space == "local" and self.seen.detail:
            return (
                f"{self.access} local memory of another thread, by a pointer that it has got from there",
                "hand over the value, or keep it in shared memory",
            )
        if self.seen.space == "global" and self.seen.detail:
            x, y, z = (self.seen.detail >> shift & 0xFFFFF for shift in (40, 20, 0))
            return (
                f"{self.access} {self.seen.info} bytes at byte {_signed(x)}, row {_signed(y)}, layer {_signed(z)}, "
                "which is outside the surface",
                "compare the place with the surface's extents, or give the access a mode: cudaBoundaryModeZero",
            )
        element, more = self.element()
        bytes_ = f"{self.seen.info} bytes" if self.seen.info > 0 else "memory"
        advice = "compare the index with the size before the access"
        if (
            self.seen.space == "shared"
            and self.instruction
            and self.instruction.opcode.startswith(("tcgen05", "wgmma"))
        ):
            advice = (
                "the matrix reaches that far by its descriptor: compare its start, its offsets (bits 16 to 29 and 32 "
                "to 45, in units of 16 bytes) and its shape with where it lies"
            )
        if self.seen.space == "local" and self.seen.address >= self.context.local_bytes and self.context.has_call_stack:
            more = f"the call stack, {STACK_BYTES} bytes of a thread, ends there"
            advice = f"see that the recursion ends; {advice}"
        message = f"{self.access} {bytes_} at {element}" + (f": {more}" if more else "")
        return message, advice

    def explain_misaligned(self) -> tuple[str, str] | None:
        told = self.sentences()
        if told is not None and self.instruction is not None and self.instruction.text.startswith(("sust", "suld")):
            return told[0], "a surface's x counts bytes: multiply the column by the size of an element"
        return told

    def explain_uninitialised(self) -> tuple[str, str]:
        seen = self.seen
        use = _USES[seen.info] if 0 <= seen.info < len(_USES) else ""
        line = through(self.other.location) if self.other else ""
        if seen.space == "none":
            register = f" (register{self.register})" if self.register else ""
            read = f" and {line} reads" if line else ""
            return f"{use} a value that nothing has set{register}{read}", "give the variable a value on every path"
        element, _ = self.element()
        advice = "store to every element that is read, also in tails"
        if seen.space == "tensor":
            advice = "store or multiply into all columns and lanes that are read"
        if seen.space == "shared":
            advice += ", with a barrier before the read; wait for the asynchronous copy if one fills it"
        reads = f"{use} a value that {line} reads from" if use and line else "reads"
        return f"{reads} {element}, where nothing has been written", advice

    def explain_heap_access(self) -> tuple[str, str]:
        seen, where = self.seen, through(self.other.location) if self.other else ""
        if seen.detail < 0:
            freed = f"that was freed at {where}" if where else "that an earlier launch has freed"
            return f"{self.access} {seen.info} bytes of a block of the heap {freed}", "free it after its last use"
        size, offset = seen.detail & 0xFFFFFFFF, seen.detail >> 32
        taken = f"that `malloc` gave out at {where}" if where else "of the heap"
        if not size and not where:
            return f"{self.access} {seen.info} bytes of the heap in front of all blocks", "use what malloc returns"
        return (
            f"{self.access} {seen.info} bytes from byte {offset} on of a block of {size} bytes {taken}",
            "compare the index with the size of the block before the access",
        )

    def explain_heap_free(self) -> tuple[str, str]:
        where = through(self.other.location) if self.other else "in an earlier launch"
        if self.seen.info == 3:
            return f"frees a block of the heap that was freed {_at(where)}", "free it once"
        if self.seen.info == 2:
            return f"frees an address inside a block that was taken {_at(where)}", "pass what malloc or new returned"
        element = self.global_element(self.seen.address)[0]
        return f"frees {element}, which no malloc or new of a kernel has returned", "memory of cudaMalloc: cudaFree"

    def explain_read_only(self) -> tuple[str, str]:
        element, _ = self.element()
        variables = self.context.entry.program.variables.values()
        if any(v.space == "const" and v.readable_name == self.array for v in variables):
            return (
                f"writes {element} in constant memory, which no kernel may change",
                "declare it __device__, or let the host set it before the launch",
            )
        return f"writes {element}, which must not change", "store to an output instead"

    def explain_in_flight(self) -> tuple[str, str]:
        other = self.other_here or "an asynchronous copy"
        return f"{self.access} {self.element()[0]} while {other} may not be done with it", self.wait_advice()

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

    def explain_exited_with_work(self) -> tuple[str, str]:
        other = self.other_here or "asynchronous work"
        if self.seen.detail:
            element, _ = self.element()
            may = "may have exited by then" if self.seen.detail == 2 else "has exited"
            where = f" at {through(self.other.location)}" if self.other else ""
            return (
                f"uses {element}, a block that {may}{where}",
                "a cluster barrier after the last access to another block's shared memory must come before its exit",
            )
        return f"a warp exits and never waited for {other}", "wait for it before the kernel ends"

    def explain_exited_relaxed(self) -> tuple[str, str]:
        message, _ = self.explain_exited_with_work()
        return (
            f"{message}: the arrival at the cluster barrier between them is relaxed",
            "arrive there without .relaxed, so that the access comes before: devices wait for its execution alone",
        )

    def explain_stores_pending(self) -> tuple[str, str]:
        return self.explain_exited_with_work()

    def explain_loads_pending(self) -> tuple[str, str]:
        return self.explain_exited_with_work()

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


# ------------------------------------- sentences about warpgroups, descriptors and operands of TMA and of tensor cores


class TensorCores(Evidence):
    """Sentences about warpgroups, descriptors and operands of TMA and of tensor cores."""

    def explain_wgmma_fence(self) -> tuple[str, str]:
        """A wgmma whose registers need not be settled yet."""
        advice = "wgmma.fence must come before the first wgmma, and after other writes to registers that one uses"
        if self.other is None:
            return "the warp has executed no wgmma.fence before its first wgmma", advice
        return f"uses the register{self.register}, which {self.at} wrote after the last wgmma.fence", advice

    def explain_bad_operand(self) -> tuple[str, str]:
        if self.seen.detail < 0:  # of a tile; the address is a step along a row
            return self.explain_bad_tile()
        if self.seen.detail:
            blocks = f"{self.seen.detail} block{'s' if self.seen.detail > 1 else ''}"
            return (
                f"`{shortened(self.opcode)}` copies to blocks {self.seen.info:#b} of a cluster of {blocks}",
                "set a bit for each block of the cluster that is to receive, at least one and none beyond its last",
            )
        return f"`{shortened(self.opcode)}` does not accept the value {self.seen.info}", ""

    def explain_sparse_metadata(self) -> tuple[str, str]:
        """Metadata or a selector that says nothing of where the elements of a sparse matrix belong."""
        seen, opcode = self.seen, shortened(self.opcode)
        if seen.info == 4:
            last = seen.detail - 1
            return (
                f"`{opcode}` has the sparsity selector {seen.address}",
                f"of this shape and type it is {f'0 to {last}' if last else '0'}: it chooses the threads of four that "
                "hold the metadata",
            )
        row, first, elements = seen.detail >> 16, seen.detail >> 8 & 255, seen.detail & 255
        where = f"elements {first} to {first + elements - 1} of row {row} of A"
        said = f"`{opcode}` has the metadata {seen.address:#06b} for {where}"
        if seen.info == 3:
            return said, "of tf32 it is 0b0100 where the first of two elements is stored, 0b1110 where the second is"
        if seen.info == 2:
            return (
                f"{said}, which names place {seen.address & 3} before place {seen.address >> 2}",
                "`.sp::ordered_metadata` wants the lower place in the lower bits: 0b0100, 0b1000, 0b1001, 0b1100, "
                "0b1101 or 0b1110",
            )
        return (
            f"{said}, which names place {seen.address & 3} twice",
            "name two places of the four, the lower one in the lower bits: 0b0100, 0b1000, 0b1001, 0b1100, 0b1101 or "
            "0b1110, also where elements are zero",
        )

    def explain_bad_tile(self) -> tuple[str, str]:
        """Where a tile begins (detail -1 less the dimension), pixels of a store outside (-9), or an offset (-17)."""
        opcode, number, why = shortened(self.opcode), self.seen.info, -1 - self.seen.detail
        dimension = why % 8
        if why >= 16:
            return (
                f"`{opcode}` has the im2col offset {number} in dimension {dimension}",
                "offsets go up to 65535 in 3 dimensions, 255 in 4 and 31 in 5: move the box of the pixels instead",
            )
        if why >= 8:
            return (
                f"`{opcode}` stores pixels up to {number} beyond the tensor in dimension {dimension}",
                "let the upper corner of the pixels be 0 or less: a device refuses stores that reach further",
            )
        multiple = self.seen.address
        if number % multiple and dimension == 0:
            return (
                f"`{opcode}` copies a box that begins at element {number} of a row",
                f"begin boxes at multiples of {multiple} elements, which are 16 bytes: a device refuses others",
            )
        return (
            f"`{opcode}` stores a box that begins at {number} in dimension {dimension}",
            "begin stores at 0 or behind: loads may begin before the array, stores may not",
        )
