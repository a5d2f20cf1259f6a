"""A launch with a NumPy definition of every array afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from batches import Kernel
from emulation import module
from form import Array

LANES = np.arange(32)


@dataclass
class Case:
    """One launch. ``expected``: what each array argument holds afterwards, None where it does not matter.

    ``near``: by number of the array, the magnitude that sums were made of and the largest error relative to it; all
    other arrays are equal in every bit. ``operations`` are those of the engine that the launch tests.
    """

    name: str
    operations: list[str]
    kernel: Kernel
    expected: list[Array | None]
    near: dict[int, tuple[Array, float]] = field(default_factory=dict)


def unequal(found: Array, expected: Array) -> Array:
    """Where arrays differ in a bit, a NaN being as good as another."""
    raw = [np.ascontiguousarray(a).view(f"u{a.itemsize}") for a in (found, expected)]
    wrong = np.asarray(raw[0] != raw[1])
    if found.dtype.kind == "f":
        wrong &= ~(np.isnan(found) & np.isnan(expected))
    return wrong


def case_module(body: str, parameters: str, registers: str, **more: Any) -> str:
    return module(body, parameters, registers, **more).replace(".version 8.5", ".version 8.7")
