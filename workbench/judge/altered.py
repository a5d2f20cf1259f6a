"""Problems like another one, with other extents, strides and values of fields."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from random import Random
from typing import Any

from ..model.problem import Problem
from ..model.stage import Stage

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


def flags(stage: Stage[Any], problem: Problem) -> list[str]:
    """The fields that are true or false, and of which the code is the same in both cases."""
    names = [f.name for f in dataclasses.fields(problem) if type(getattr(problem, f.name)) is bool]
    others = {name: replaced(problem, {name: not getattr(problem, name)}) for name in names}
    return [name for name, other in others.items() if other and stage.defines(other) == stage.defines(problem)]


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


Ranges = Mapping[str, tuple[type, float, float]]
"""The type, the least and the largest value of fields, as `Operation.drawn_anywhere` has them."""


EDGES = (8, 16, 24, 31, 32, 53)
"""Bits of integers that types and parts of types can hold."""


def far(ranges: Ranges, random: Random) -> list[tuple[str, Any]]:
    """Values of fields in their ranges, first the least of each, then the largest, then in any order: twice a little
    less than a multiple of 2^bits of a type, or a whole number among real ones; a power of two or what is next to one;
    and others, of every magnitude."""
    ends, found = list[tuple[str, Any]](), list[tuple[str, Any]]()
    for name, (kind, low, high) in ranges.items():
        powers = (sign * 2.0**bit + d for bit in range(-20, 64) for sign in (1, -1) for d in (-1, 0, 1))
        values = [random.choice([value for value in powers if low <= value <= high] or [low])]
        edges = [2**bit for bit in EDGES if 2**bit <= high][-3:]
        for _ in range(2):
            edge = random.choice(edges or [1])
            below = edge * random.randint(1, max(1, min(8, int(high) // edge))) - random.randrange(64)
            values.append(
                below if kind is int else random.randint(math.ceil(low), max(math.ceil(low), math.floor(high)))
            )
        least = max(low, 1 if kind is int else high * 1e-6)
        if high > least:
            values += [math.exp(random.uniform(math.log(least), math.log(high))) for _ in range(3)]
        values.append(random.randint(int(low), int(high)) if kind is int else random.uniform(low, high))
        ends += [(name, kind(low)), (name, kind(high))]
        found += [(name, kind(min(max(value, low), high))) for value in values]
    random.shuffle(found)
    return ends[::2] + ends[1::2] + found


def special(ranges: Ranges, random: Random, powers: bool) -> dict[str, tuple[Any, Any]]:
    """Two values of each field: 0, or the least one, and the largest; or `powers` of two."""
    found = {}
    for name, (kind, low, high) in ranges.items():
        pair = (random.choice((0.5, 0.25)), random.choice((1.0, 2.0))) if powers else (0.0, high)
        found[name] = (kind(min(max(pair[0], low), high)), kind(min(max(pair[1], low), high)))
    return found
