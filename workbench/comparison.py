"""Is an answer right? Element by element, finite first, against the float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .launch import Array
from .operation import Arrays, Tier
from .results import WrongElement

SHOWN = 8
"""Wrong elements that are kept as evidence."""


@dataclass(frozen=True)
class Comparison:
    """`worst` is the largest error / bound over all elements (infinite where one is not finite or not written)."""

    worst: float
    wrong_count: int
    element_count: int
    wrong: list[WrongElement]


def compare(
    name: str,
    array: Array,
    got: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    bound: np.ndarray[Any, Any],
    tier: Tier,
) -> Comparison:
    """Compare an output with its reference.

    got: shape of the array, in its dtype; expected, bound: the same shape, float64. In the exact tier the result has
    to equal the reference rounded once to the output's dtype (signed zeros are equal); in the bounded tier
    |got - expected| <= bound. An element that is not finite is wrong wherever the rounded reference is finite.
    """
    values = got.astype(np.float64)
    with np.errstate(over="ignore"):
        rounded = expected.astype(array.dtype.numpy).astype(np.float64)
    agree = values == rounded
    if tier is Tier.EXACT:
        ratio = np.where(agree, 0.0, np.inf)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = np.abs(values - expected) / bound
        ratio = np.where(np.isfinite(values), ratio, np.where(agree, 0.0, np.inf))
    bad = ~(ratio <= 1.0)
    wrong = [
        WrongElement(
            output=name,
            index=[int(i) for i in index],
            got=f"{values[tuple(index)]:.9g}",
            expected=f"{(rounded if tier is Tier.EXACT else expected)[tuple(index)]:.9g}",
            bound=0.0 if tier is Tier.EXACT else float(bound[tuple(index)]),
        )
        for index in np.argwhere(bad)[:SHOWN]
    ]
    worst = float(ratio.max(initial=0.0))
    return Comparison(worst, int(bad.sum()), bad.size, wrong)


def accepts(arrays: Mapping[str, Array], answer: Arrays, expected: Arrays, bound: Arrays, tier: Tier) -> bool | None:
    """Whether an answer, rounded to the outputs' types, would pass for right; None where it is the right one then."""
    same, wrong = True, 0
    for name, array in arrays.items():
        if not array.output:
            continue
        with np.errstate(over="ignore"):
            got, right = (values[name].astype(array.dtype.numpy) for values in (answer, expected))
        same = same and np.array_equal(got, right, equal_nan=True)
        wrong += compare(name, array, got, expected[name], bound[name], tier).wrong_count
    return None if same else wrong == 0
