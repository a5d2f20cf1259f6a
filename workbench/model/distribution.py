"""How the numbers of a problem's inputs are distributed: ordinary, zeros, scaled, subnormal, NaN and infinities."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import ml_dtypes
import numpy as np

from .dtypes import DType

Values = np.ndarray[Any, Any]


class Distribution(StrEnum):
    """What is made of the numbers that a problem draws.

    `normal` leaves them as they are. `zeros` puts zeros of both signs among them, up to nearly all. `scaled` multiplies
    by powers of two: one for an array, or one for each of its rows or columns. `subnormal` puts subnormal numbers among
    them, up to all. `large` multiplies by the largest power of two that is allowed. `non_finite` puts a few NaN or
    infinities among them.
    """

    NORMAL = "normal"
    ZEROS = "zeros"
    SCALED = "scaled"
    SUBNORMAL = "subnormal"
    LARGE = "large"
    NON_FINITE = "non_finite"


class NonFinite(StrEnum):
    """What an operation owes where inputs are NaN or infinite.

    `propagate`: each element is what the float64 reference gives: NaN where that is NaN, an infinity of the same sign
    where that is one. `undefined`: anything, so that such inputs are never drawn.
    """

    PROPAGATE = "propagate"
    UNDEFINED = "undefined"


WEIGHTS = {
    Distribution.NORMAL: 6,
    Distribution.ZEROS: 1,
    Distribution.SCALED: 2,
    Distribution.SUBNORMAL: 1,
    Distribution.LARGE: 1,
    Distribution.NON_FINITE: 2,
}
"""How often each is drawn."""

SHARES = (1 / 16, 1 / 2, 15 / 16)
"""Of the elements that become zero or subnormal: one of these."""

MOST_NON_FINITE = 3
"""NaN and infinities in an array: so few that most rows have none."""


def distributed(
    values: Values,
    dtype: DType,
    kind: Distribution,
    scales: tuple[int, int],
    rng: np.random.Generator,
    places: int = 0,
) -> Values:
    """The numbers, of a floating-point type, as `kind` has them: a new array of the same shape and type.

    `scales` are the least and the largest exponent of powers of two; what the type cannot hold is left out, so that
    finite numbers stay finite. NaN and infinities of arrays of one size are in the same places where the seed `places`
    is the same: what is added up element by element may then be infinities of both signs.
    """
    if kind is Distribution.ZEROS:
        return _replaced(values, _signs(values.shape, rng) * 0.0, rng)
    if kind is Distribution.SUBNORMAL:
        count = 1 << (significand(dtype) - 1)
        some = rng.integers(1, max(2, count), values.shape) * dtype.smallest
        return _replaced(values, _signs(values.shape, rng) * some, rng)
    if kind is Distribution.NON_FINITE:
        return _with_non_finite(values, dtype, rng, np.random.default_rng(places))
    low, high = _exponents(dtype, scales)
    if kind is Distribution.LARGE:
        return _multiplied(values, dtype, np.full((1,) * values.ndim, high))
    return _multiplied(values, dtype, _powers(values.shape, low, high, rng))


def with_signed_zeros(values: Values, rng: np.random.Generator) -> Values:
    """The numbers, the zeros among them with signs by chance."""
    return np.where(values == 0, (_signs(values.shape, rng) * 0.0).astype(values.dtype), values)


def significand(dtype: DType) -> int:
    """Bits of the significand, the hidden one included."""
    return round(-math.log2(dtype.unit_roundoff))


def largest(dtype: DType) -> float:
    """The largest finite number of a floating-point type."""
    return float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]


def _exponents(dtype: DType, scales: tuple[int, int]) -> tuple[int, int]:
    """Those of `scales` with which numbers near 1 become neither subnormal nor infinite."""
    least = round(math.log2(dtype.smallest)) + significand(dtype) - 1
    most = math.floor(math.log2(largest(dtype))) - 3  # normal numbers are below 8
    return max(scales[0], least), min(scales[1], most)


def _powers(shape: tuple[int, ...], low: int, high: int, rng: np.random.Generator) -> Values:
    """Exponents that broadcast to the shape: one for all, for each row or for each column."""
    sizes = [1] * len(shape)
    if len(shape) > 1 and (axis := int(rng.integers(3))):
        sizes = [*shape[:-1], 1] if axis == 1 else [*sizes[:-1], shape[-1]]
    return rng.integers(low, high + 1, sizes)


def _multiplied(values: Values, dtype: DType, exponents: Values) -> Values:
    most, wide = largest(dtype), values.astype(np.float64)
    scaled = wide * np.exp2(exponents.astype(np.float64))
    return np.where(np.isfinite(wide), np.clip(scaled, -most, most), wide).astype(dtype.numpy)


def _signs(shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    return rng.integers(0, 2, shape) * 2.0 - 1.0


def _replaced(values: Values, others: Values, rng: np.random.Generator) -> Values:
    """Some elements by others, at places by chance; what is infinite stays."""
    there = (rng.random(values.shape) < rng.choice(SHARES)) & np.isfinite(values)
    return np.where(there, others.astype(values.dtype), values)


def _with_non_finite(values: Values, dtype: DType, rng: np.random.Generator, where: np.random.Generator) -> Values:
    infinity = np.inf if np.isinf(np.float64(np.inf).astype(dtype.numpy)) else np.nan
    kinds = ((np.nan,), (infinity, -infinity), (np.nan, infinity, -infinity))
    chosen = np.array(kinds[int(where.integers(len(kinds)))]).astype(dtype.numpy)
    places = where.integers(0, values.size, int(where.integers(1, MOST_NON_FINITE + 1)))
    made = values.copy()
    made.reshape(-1)[places] = rng.choice(chosen, places.size)
    return made
