"""NaN and infinities that the kernel computes, where the right answer is a number."""

from __future__ import annotations

import dataclasses

import numpy as np

from .evidence import MOSTLY, Evidence, Values
from .places import place


def computed_nan(e: Evidence) -> str | None:
    """NaN that is not what was in memory before."""
    nan = e.bad & np.isnan(e.got) & ~e.unwritten
    if not nan.any() or nan.sum() < MOSTLY * e.bad.sum():
        return None
    said = f"NaN is computed {_where(nan)}: "
    if read := _from_padding(e, nan):
        return f"{said}it comes from the gaps between the rows of {read}, which belong to no element"
    rows = nan.any(axis=1)
    if len(e.array.shape) > 1 and e.got.shape[1] > 1 and nan[rows].all():
        return (
            f"{said}a value that a whole row shares is NaN, such as 0 / 0 by a sum or a root that is 0 (a missing eps, "
            "a row of zeros, a wholly masked row), or inf - inf by a maximum that is -inf"
        )
    return (
        f"{said}inf / inf or inf - inf (an exponential that overflows: subtract the maximum first), 0 / 0, 0 * inf, or "
        "a root or logarithm of a negative number"
    )


def gaps_read(e: Evidence) -> str | None:
    """Numbers that change with what lies between the rows of inputs, and not from one launch to the next."""
    padded = _padded(e)
    if not padded or not np.array_equal(e.output(e.case), e.got, equal_nan=True):
        return None
    changed = e.bad & (_with_zeros_between(e, padded) != e.got)
    if changed.sum() < MOSTLY * e.bad.sum():
        return None
    where, read = _where(changed), " or ".join(padded)
    return f"what is computed {where} comes from the gaps between the rows of {read}, which belong to no element"


def overflow(e: Evidence) -> str | None:
    """Infinities where the right answer is finite."""
    inf = e.bad & np.isinf(e.got) & np.isfinite(e.expected)
    if not inf.any() or inf.sum() < MOSTLY * e.bad.sum():
        return None
    largest = float(np.abs(e.expected[inf]).max())
    return (
        f"overflow: infinity {_where(inf)}, where at most {largest:.3g} is right; a number in between is too large for "
        "its type (a sum or square in fp16, which ends at 65504; an exponential without the maximum subtracted), or "
        "something is divided by 0"
    )


def _where(mask: Values) -> str:
    if mask.all():
        return "in every element"
    return place(mask) or f"in {mask.sum():,} of {mask.size:,} elements"


def _from_padding(e: Evidence, nan: Values) -> str:
    """The inputs between whose rows the NaN is read: with zeros there, it is gone."""
    padded = _padded(e)
    return "" if not padded or np.isnan(_with_zeros_between(e, padded)[nan]).any() else " or ".join(padded)


def _padded(e: Evidence) -> list[str]:
    return [name for name, array in e.case.arrays.items() if array.padded and not array.output]


def _with_zeros_between(e: Evidence, padded: list[str]) -> Values:
    """The output where there are zeros between the rows of these inputs."""
    zeros = {n: dataclasses.replace(a, fill=bytes(a.dtype.itemsize)) for n, a in e.case.arrays.items() if n in padded}
    return e.output(dataclasses.replace(e.case, arrays={**e.case.arrays, **zeros}))
