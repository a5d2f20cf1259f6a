"""Red zones: a pattern before and after an array in device memory, which no kernel may touch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.arrays import BEST_ALIGNMENT, Array
from ..model.results import Verdict
from .base import Fault

ZONE = BEST_ALIGNMENT
"""Bytes on either side of an array; so many that the array stays as aligned as it was."""

PATTERN = np.tile(np.array([0xFE, 0xFF], np.uint8), ZONE // 2)
"""Not a number in bf16, fp16 and fp32, so that what is read there spoils the result, and not the usual one, so that a
NaN written there is noticed too."""


def shift(alignment: int, seed: int) -> int:
    """Bytes by which an array is moved in its memory: then it is `alignment` bytes aligned, and no better.

    Different seeds move it differently. What needs all the alignment there is stays where it is.
    """
    return alignment * (2 * (seed % 4) + 1) if alignment < BEST_ALIGNMENT else 0


def guard(memory: Any) -> Any:
    """The array's part of `memory`, bytes on a device, whose zones are filled with the pattern."""
    memory[:ZONE].set(PATTERN)
    memory[-ZONE:].set(PATTERN)
    return memory[ZONE:-ZONE]


def check_whole(name: str, array: Array, written: np.ndarray[Any, Any]) -> None:
    """Raises Fault where some bytes of an element were written and others not; `written` has a flag for each byte."""
    count = written.reshape(-1, array.dtype.itemsize).sum(axis=1)
    parts = np.flatnonzero((count > 0) & (count < array.dtype.itemsize))
    if parts.size:
        first = f"{count[parts[0]]} of the {array.dtype.itemsize} bytes of {name}[{parts[0]}]"
        raise Fault(
            Verdict.MISMATCH,
            f"{parts.size} of {count.size} elements of {name} were written in part: {first}; as {name} is declared, "
            f"the kernel has to write elements of type {array.dtype.cuda}",
        )


def check_zero(name: str, array: Array, storage: np.ndarray[Any, Any]) -> None:
    """Raise Fault where scratch that a plan has to leave zero, here on the host, is not, with the first such place."""
    element = storage.view(np.uint8).reshape(array.storage_elements, -1).any(axis=1)
    if element.any():
        raise Fault(
            Verdict.STALE,
            f"{name} is zero when the plan begins and has to be zero when it ends, for the next launch to begin with: "
            f"{element.sum()} of its {array.storage_elements} elements are not, the first is "
            f"{name}[{np.flatnonzero(element)[0]}]",
        )


def check(name: str, array: Array, memory: Any) -> None:
    """Raise Fault where a zone of the array has changed, with the first place outside of the array."""
    before, after = memory[:ZONE].get(), memory[-ZONE:].get()
    if (beyond := np.flatnonzero(after != PATTERN)).size:
        first = int(beyond[0])
        element = array.storage_elements + first // array.dtype.itemsize
        where = f"{first} bytes after the end of {name}, where {name}[{element}] of its storage would be"
    elif (ahead := np.flatnonzero(before != PATTERN)).size:
        where = f"{ZONE - int(ahead[-1])} bytes before the start of {name}"
    else:
        return
    changed = beyond.size + int((before != PATTERN).sum())
    raise Fault(
        Verdict.OUT_OF_BOUNDS,
        f"a kernel wrote outside of {name}: {changed} bytes changed, the nearest {where}; "
        f"it has to store to the {array.storage_elements} elements of the array only",
    )
