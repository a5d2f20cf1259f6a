"""What invariants of several operations share."""

from __future__ import annotations

import numpy as np

from ...model.arrays import Arrays

UNDERFLOW = float(np.finfo(np.float32).smallest_normal)


def scales(first: Arrays, other: Arrays, factor: float, terms: int = 1) -> bool:
    """Whether every element of `other` is `factor` times that of `first`, for kernels that are linear in their inputs.

    A power of two changes no rounding, so this is exact; only sums and products that are subnormal in fp32, or
    flushed to zero, may differ, by less than the smallest normal number for each of the `terms` that are added up.
    """
    for name, values in first.items():
        wanted = factor * values
        away = np.abs(np.subtract(wanted, other[name], out=np.zeros_like(wanted), where=wanted != other[name]))
        if not (away < UNDERFLOW * terms).all():
            return False
    return True
