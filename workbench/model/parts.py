"""Parts of a problem that can be solved alone: some rows, columns, heads or images of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as declared
from typing import Any

import numpy as np

from .arrays import Arrays

Index = tuple[slice | np.ndarray[Any, Any], ...]
"""What of an array belongs to a part, dimension by dimension: all but one are slices."""

WHOLE = slice(None)


@dataclass(frozen=True)
class Axis:
    """An extent of a problem whose places do not depend on each other: some of its places are a smaller problem.

    `field` is the field of the problem that holds the extent. `arrays` gives, by name, the dimension of each array that
    lies along the extent; every part needs the whole of an array that is not named. `group` neighbouring places are
    taken together, such as heads that share keys; `shared` are the arrays that have one place for each group. `sums`
    are outputs that add up over the places, so that no part has them."""

    field: str
    arrays: Mapping[str, int]
    group: int = 1
    shared: Mapping[str, int] = declared(default_factory=dict)
    sums: tuple[str, ...] = ()

    def part(self, problem: Any, places: Sequence[int] | np.ndarray[Any, Any]) -> Part:
        """The part of these places, or groups of places, of a problem."""
        groups = np.asarray(places, np.int64)
        members = (groups[:, None] * self.group + np.arange(self.group)).ravel()
        index: dict[str, Index] = {name: (*[WHOLE] * at, members) for name, at in self.arrays.items()}
        index |= {name: (*[WHOLE] * at, groups) for name, at in self.shared.items()}
        smaller = dataclasses.replace(problem, **{self.field: len(members)})
        return Part(smaller, index, self.sums)


@dataclass(frozen=True)
class Part:
    """A smaller problem, and by name the `index` of each array of the whole problem that belongs to it: the reference
    of `problem`, given these inputs, gives these outputs, except for those in `without`."""

    problem: Any
    index: Mapping[str, Index]
    without: tuple[str, ...] = ()

    def of(self, arrays: Mapping[str, Any]) -> Arrays:
        """What belongs to the part of these arrays, of NumPy or CuPy."""
        return {name: values[self.index[name]] if name in self.index else values for name, values in arrays.items()}

    def place(self, name: str, at: Sequence[int]) -> list[int]:
        """Where in the whole array the element is that is at `at` in the part."""
        found, index = list(at), self.index.get(name, ())
        for dimension, chosen in enumerate(index):
            first = (chosen.start or 0) if isinstance(chosen, slice) else 0
            found[dimension] = first + at[dimension] if isinstance(chosen, slice) else int(chosen[at[dimension]])
        return found


LEAST_ELEMENTS = 1 << 16
"""Elements of the largest array along an axis that lie at the drawn places at least, or all."""

MOST_PLACES = 1 << 18
"""Places of an axis that are drawn: one of some hundred elements of a long vector, which are one block's."""

MOST_FLOPS, MOST_BYTES = 2e10, 3e8
"""Work that a drawn part is, and memory that it takes, at most, but for one place: NumPy solves it in half a second."""


def parts_of_axes(problem: Any, axes: Sequence[Axis], rng: np.random.Generator, stratum: int) -> list[Part]:
    """A part for each axis: of the first one, a place of each `stratum` neighbouring ones, the first and the last
    place; of the others some places, the last one among them. None where there are no axes.

    Whole rows at so many places touch every tile of a launch, since a tile has at least `stratum` rows, and its tail.
    Where that would be too much work, the strata are larger."""
    return [
        axis.part(problem, drawn_places(problem, axis, rng, stratum if axis is axes[0] else 0))
        for axis in axes
        if axis is axes[0] or getattr(problem, axis.field) > axis.group
    ]


def drawn_places(problem: Any, axis: Axis, rng: np.random.Generator, stratum: int) -> np.ndarray[Any, Any]:
    """Places of an axis, or groups of places, in order: see `parts_of_axes`. Without a `stratum`, some."""
    extent, cost, arrays = getattr(problem, axis.field) // axis.group, problem.cost, problem.arrays()
    along = {**axis.arrays, **axis.shared}
    held = sum(array.nbytes for name, array in arrays.items() if name in along)
    elements = max(array.size for name, array in arrays.items() if name in along)
    most = int(min(MOST_FLOPS * extent / max(1, cost.flops), MOST_BYTES * extent / held))
    stratum = max(stratum, extent // MOST_PLACES) if stratum else 0
    least = -(-LEAST_ELEMENTS * extent // elements)
    wanted = max(least, -(-extent // stratum) if stratum else 1)
    count = max(1, min(wanted, most, extent))
    edges = np.linspace(0, extent, count + 1).astype(np.int64)
    drawn = rng.integers(edges[:-1], np.maximum(edges[1:], edges[:-1] + 1))
    ends = [0, extent - 1] if stratum and count > 1 else [extent - 1]
    return np.unique(np.concatenate([drawn, ends]) if count > 1 or extent == 1 else drawn)
