"""What invariants of several operations share."""

from __future__ import annotations

import numpy as np

from ...model.arrays import Arrays

UNDERFLOW = float(np.finfo(np.float32).smallest_normal)
SHIFTED = 2.0**24
"""A number in fp32 that is so many times another one does not change where that is added."""
SPACING = 2.0**-7
"""Of neighbours in bf16, which outputs are rounded to at most, relative to them."""


def scales(first: Arrays, other: Arrays, factor: float, terms: int = 1) -> bool:
    """Whether every element of `other` is `factor` times that of `first`, for kernels that are linear in their inputs.

    A power of two changes no rounding, so this is exact; only sums and products that are subnormal in fp32, or
    flushed to zero, may differ, by less than the smallest normal number for each of the `terms` that are added up.
    Where a result is so small that this changes it, it may then be rounded to a neighbour.
    """
    for name, values in first.items():
        wanted = factor * values
        away = np.abs(np.subtract(wanted, other[name], out=np.zeros_like(wanted), where=wanted != other[name]))
        size, lost = np.abs(wanted), UNDERFLOW * terms
        if not (away < lost + np.where(size < SHIFTED * lost, SPACING * size, 0.0)).all():
            return False
    return True
