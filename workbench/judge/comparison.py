"""Is an answer right? Element by element, finite first, against the float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.problem import Tier
from ..model.results import WrongElement

SHOWN = 8
"""Wrong elements that are kept as evidence."""


@dataclass(frozen=True)
class Comparison:
    """`worst` is the largest error / bound over all elements (infinite where one is not finite or not written)."""

    worst: float
    wrong_count: int
    element_count: int
    wrong: list[WrongElement]


def errors(
    array: Array,
    got: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    bound: np.ndarray[Any, Any],
    tier: Tier,
) -> np.ndarray[Any, Any]:
    """Error / bound of every element: above 1, infinite or NaN where it is wrong (see `compare`)."""
    if array.dtype.numpy.kind == "b":
        got = got.view(np.uint8)  # what is neither true nor false is wrong
    if tier is Tier.EXACT:
        return np.where(_same(array, got, _rounded(array, expected)), 0.0, np.inf)
    values = got.astype(np.float64)
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        ratio = values  # of large outputs every array more takes longer than the arithmetic
        np.subtract(values, expected, out=ratio, where=finite)
        np.abs(ratio, out=ratio)
        np.divide(ratio, bound, out=ratio, where=finite & (ratio != 0))  # a bound may be zero
    if not finite.all():
        agree = _same(array, got, _rounded(array, expected)) | _overflowed(array, got, expected, bound)
        ratio = np.where(finite, ratio, np.where(agree, 0.0, np.inf))
    return ratio


def _same(array: Array, got: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether elements are equal, NaN to NaN included, unless it is the one of memory that nobody wrote."""
    same: np.ndarray[Any, Any] = got == right
    if array.dtype.is_float and not same.all():
        nans = np.isnan(right) & np.isnan(got)
        same = same | (nans & ~array.unwritten(got)) if nans.any() else same
    return same


def _overflowed(
    array: Array, got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], bound: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Which elements are infinite where a number within the bound is rounded to that infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        farthest = array.dtype.rounded(expected + np.copysign(bound, got.astype(np.float64)))
    infinite: np.ndarray[Any, Any] = np.isinf(got) & (got == farthest) & np.isfinite(bound)
    return infinite


def _rounded(array: Array, expected: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In the array's type; a bool as 0 or 1."""
    rounded = array.dtype.rounded(expected)
    return rounded.view(np.uint8) if array.dtype.numpy.kind == "b" else rounded


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
    to equal the reference rounded once to the output's dtype (signed zeros are equal); in the others
    |got - expected| <= bound. An element that is not finite has to be what the rounded reference is, NaN or an infinity
    of the same sign; where a number within the bound is rounded to an infinity, that is right as well.
    """
    ratio = errors(array, got, expected, bound, tier)
    worst = float(ratio.max(initial=0.0))
    if worst <= 1.0:  # which a NaN is not
        return Comparison(worst, 0, ratio.size, [])
    bad = ~(ratio <= 1.0)
    wrong = []
    for index in np.argwhere(bad)[:SHOWN]:
        at = tuple(int(i) for i in index)
        right = _rounded(array, expected[at].reshape(1))[0] if tier is Tier.EXACT else expected[at]
        allowed = 0.0 if tier is Tier.EXACT else float(bound[at])
        wrong.append(WrongElement(name, list(at), _text(got[at]), _text(right), allowed))
    return Comparison(worst, int(bad.sum()), bad.size, wrong)


def _text(value: Any) -> str:
    """A number as evidence shows it: integers in full."""
    return str(value) if getattr(value, "dtype", np.dtype(float)).kind in "iub" else f"{float(value):.9g}"


def accepts(arrays: Mapping[str, Array], answer: Arrays, expected: Arrays, bound: Arrays, tier: Tier) -> bool | None:
    """Whether an answer, rounded to the outputs' types, would pass for right; None where it is the right one then."""
    same, wrong = True, 0
    for name, array in arrays.items():
        if not array.output:
            continue
        got, right = (array.dtype.rounded(values[name]) for values in (answer, expected))
        same = same and np.array_equal(got, right, equal_nan=True)
        wrong += compare(name, array, got, expected[name], bound[name], tier).wrong_count
    return None if same else wrong == 0
