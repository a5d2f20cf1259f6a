"""A piece of the emulated device's global memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

__all__ = ["Allocation"]


@dataclass(eq=False, slots=True)
class Allocation:
    """A piece of global memory, which may have been freed since.

    ``data``: its bytes; ``written``: for each byte, 1 where something has been stored, or None when that is everywhere.
    ``element_size`` and ``shape`` serve to name elements in findings.
    """

    address: int
    nbytes: int
    name: str
    element_size: int
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8] = field(repr=False)
    written: npt.NDArray[np.uint8] | None = field(repr=False)
    writable: bool = True
    freed: bool = False

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + self.nbytes

    def __int__(self) -> int:
        return self.address

    def element(self, address: int) -> str:
        """``B[3][7]`` for the element at an address; an index without bounds where the address is outside."""
        index, byte = divmod(address - self.address, self.element_size)
        inside = 0 <= address - self.address < self.nbytes
        if inside and len(self.shape) > 1 and prod(self.shape) * self.element_size == self.nbytes:
            position = "".join(f"[{int(i)}]" for i in np.unravel_index(index, self.shape))
        else:
            position = f"[{index}]"
        return f"{self.name}{position}" + (f" (byte {byte} of the element)" if byte else "")
