"""Problems like another one, with other extents and strides."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ..model.problem import Problem

STEP = 16
"""An extent changes by multiples of so many elements, so that rows stay as well aligned as they were."""


def strides(problem: Problem) -> list[str]:
    """The fields that move the elements of arrays apart, and change nothing else."""
    found = []
    for name in (f.name for f in dataclasses.fields(problem) if f.name not in (*problem.extents, *problem.of_inputs())):
        value = getattr(problem, name)
        apart = replaced(problem, {name: value + STEP}) if type(value) is int else None
        if apart is None:
            continue
        pairs = [(array, apart.arrays().get(n)) for n, array in problem.arrays().items()]
        if all(b is not None and a.shape == b.shape for a, b in pairs) and apart.cost == problem.cost:
            rows = any(math.prod(a.shape[:-1]) > 1 for a, _ in pairs)
            farther = any(b is not None and a.element_strides != b.element_strides for a, b in pairs)
            found += [name] if farther and rows else []
    return found


def stored(problem: Problem) -> int:
    """The elements of the memory of all arrays."""
    return sum(array.storage_elements for array in problem.arrays().values())


def like(extent: int, most: int, step: int = 0) -> int:
    """The largest extent of at most `most`, and 1 at least, that is `extent` but for a multiple of `step`."""
    return max(1, most - (most - extent) % (step or most))


def replaced(problem: Problem, extents: dict[str, Any]) -> Problem | None:
    """The problem with these fields; None where they do not go together."""
    try:
        return dataclasses.replace(problem, **extents)
    except Exception:
        return None
