"""Sentences about warpgroups, descriptors and operands of TMA and of tensor cores."""

from __future__ import annotations

from ..source_lines import through
from .evidence import Evidence
from .words import say_swizzle, shortened


class TensorCores(Evidence):
    """Sentences about warpgroups, descriptors and operands of TMA and of tensor cores."""

    def explain_accumulator_in_flight(self) -> tuple[str, str]:
        other = f"the wgmma at {through(self.other.location)}" if self.other else "a wgmma"
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
            f"uses the register{register}, which {through(self.other.location)} wrote after the last wgmma.fence",
            advice,
        )

    def explain_warpgroup_diverged(self) -> tuple[str, str]:
        """Warps of a warpgroup that execute different things."""
        if self.seen.info:
            return (
                f"`{shortened(self.opcode)}` needs a warpgroup of 4 warps; that of warp {self.seen.warp} has "
                f"{self.seen.info}",
                "launch blocks whose warps are a multiple of 4",
            )
        instead = f"`{shortened(self.other.opcode)}` at {through(self.other.location)}" if self.other else "it exits"
        first = self.seen.warp // 4 * 4
        return (
            f"only some of warps {first}-{first + 3} execute `{shortened(self.opcode)}`, which needs all four; the "
            f"others go on to {instead}",
            "a warpgroup is 4 warps, the first a multiple of 4: let conditions around it hold for all of them",
        )

    def explain_warpgroup_apart(self) -> tuple[str, str]:
        """Warps of a warpgroup that execute the same setmaxnreg at two places."""
        there = f"{through(self.other.location)}" if self.other else "another place"
        return (
            f"warps of one warpgroup execute this `{shortened(self.opcode)}` and the one at {there} together",
            "PTX asks for one instruction that all four warps execute; devices take equal ones",
        )

    def explain_register_misuse(self) -> tuple[str, str]:
        """A setmaxnreg that cannot be right."""
        count, why, held = self.seen.address, self.seen.info, self.seen.detail
        if why == 1:
            return f"setmaxnreg asks for {count} registers", "24 to 256 are allowed, in multiples of 8"
        if why == 2:
            return f"setmaxnreg.dec to {count} registers, of {held} that each thread has", "use setmaxnreg.inc"
        return f"setmaxnreg.inc to {count} registers, of {held} that each thread has", "use setmaxnreg.dec"

    def explain_registers_unlimited(self) -> tuple[str, str]:
        return (
            "setmaxnreg in a kernel without a limit on its registers has no effect",
            "give the kernel __launch_bounds__ with the threads and blocks, or a maximum number of registers",
        )

    def explain_swizzle_mismatch(self) -> tuple[str, str]:
        element, _ = self.element()
        copied = through(self.other.location) if self.other else "an unknown line"
        return (
            f"reads {element} with {say_swizzle(self.seen.info)}, but the tensor copy at {copied} wrote it with "
            f"{say_swizzle(self.seen.detail)}",
            "give the tensor map and the matrix descriptor the same swizzle",
        )

    def explain_descriptor(self) -> tuple[str, str]:
        seen, opcode = self.seen, shortened(self.opcode)
        if seen.info == 2:
            return (
                f"`{opcode}` is given {seen.address:#x} as a tensor map, but there is none",
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
                f"align tiles to {8 * seen.detail} bytes, and step from there along a row or by multiples of 128 bytes",
            )
        if seen.info == 6:
            given = ("a tiled", "an im2col", "a wide im2col")[seen.detail]
            wanted = "wide im2col" if "im2col::w" in opcode else "im2col" if "im2col" in opcode else "tiled"
            return (
                f"`{opcode}` is given {given} tensor map",
                f"encode the map as {wanted}, or use the {given.partition(' ')[2]} form of the instruction",
            )
        if seen.info == 8:
            return (
                f"`{opcode}` is given a tensor map whose box has {seen.detail} rows",
                "give the box one row: the instruction moves it four times, from the rows that it names",
            )
        if seen.info == 7:
            kind = "surface" if seen.detail else "texture"
            return (
                f"`{opcode}` is given {seen.address:#x}, which is no {kind} object",
                f"pass what cudaCreate{kind.title()}Object has made, and destroy it after the launch",
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
