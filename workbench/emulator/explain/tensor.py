"""Sentences about warpgroups, descriptors and operands of TMA and of tensor cores."""

from __future__ import annotations

from .evidence import Evidence
from .words import shortened


class TensorCores(Evidence):
    """Sentences about warpgroups, descriptors and operands of TMA and of tensor cores."""

    def explain_wgmma_fence(self) -> tuple[str, str]:
        """A wgmma whose registers need not be settled yet."""
        advice = "wgmma.fence must come before the first wgmma, and after other writes to registers that one uses"
        if self.other is None:
            return "the warp has executed no wgmma.fence before its first wgmma", advice
        return f"uses the register{self.register}, which {self.at} wrote after the last wgmma.fence", advice

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
