"""The numbers that a problem draws for its inputs, in every distribution, and Hypothesis' strategies of its fields.

These are loaded when the first problem is drawn: the process of stages draws none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import ml_dtypes
import numpy as np

from .dtypes import DType

if TYPE_CHECKING:
    from hypothesis import strategies

    from .arrays import Array, Arrays

    st = strategies
else:

    class _Strategies:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("hypothesis.strategies"), name)

    st = _Strategies()

P = ParamSpec("P")
T = TypeVar("T")


def drawn(draw: Callable[Concatenate[st.DrawFn, P], T]) -> Callable[P, st.SearchStrategy[T]]:
    """What returns the strategy of values that a function draws: `hypothesis.strategies.composite`, when it is used."""
    return lambda *given, **named: st.composite(draw)(*given, **named)


def drawn_gap(d: st.DrawFn, multiple: int, aligned: bool, most: int = 2, odd: int = 3) -> int:
    """Elements between rows of a random problem: up to `odd`, or, `aligned`, up to `most` times the multiple."""
    return multiple * d(st.integers(0, most)) if aligned else d(st.integers(0, odd))


def drawn_pad(d: st.DrawFn, row: int, multiple: int, aligned: bool, most: int = 2) -> int:
    """Elements that a row of a random problem is longer than it has to be: as many as make it a multiple of so many,
    where it is to be `aligned`, and a gap."""
    return (-row % multiple if aligned else 0) + drawn_gap(d, multiple, aligned, most, odd=5)


Values = np.ndarray[Any, Any]


class Single(np.ndarray[Any, Any]):
    """Numbers in fp32 that stay there when the reference asks for float64."""

    def astype(self, dtype: Any, *arguments: Any, **named: Any) -> Any:
        wanted = np.float32 if np.dtype(dtype) == np.float64 else dtype
        return super().astype(wanted, *arguments, **named)


class Distribution(StrEnum):
    """What is made of the numbers that a problem draws.

    `normal` leaves them as they are. `zeros` puts zeros of both signs among them: a share, all of a row, all but one,
    or all beside a diagonal. `scaled` multiplies by powers of two, from the smallest normal number on: one for an
    array, or one for each of its rows or columns.
    `wide` multiplies each element by a power of two of its own. `subnormal` puts subnormal numbers among them, up to
    all. `large` multiplies by the largest power of two that is allowed. `outlier` does so with one row or one column.
    `non_finite` puts a few NaN or infinities among them, and zeros, `many_non_finite` fills some rows with NaN,
    infinities and zeros. `positive` and `negative` have one sign, at any scale. `constant` has one number in an array,
    a row or a column, with one sign, or with signs that alternate or are drawn; `equal_rows` has the same row again and
    again: numbers of few bits, whose sums are exact. `close` has numbers of one sign far from 0 and close together.
    `binade` has numbers between a power of two and the next, up to those that have no bit below 1: with all bits of
    their significand, whole, or halves.
    `sorted` has rows or columns in order, some from both ends to the middle. `same` gives inputs of one type the same
    numbers, and one memory where their layouts allow it.
    """

    NORMAL = "normal"
    ZEROS = "zeros"
    SCALED = "scaled"
    SUBNORMAL = "subnormal"
    LARGE = "large"
    NON_FINITE = "non_finite"
    MANY_NON_FINITE = "many_non_finite"
    WIDE = "wide"
    OUTLIER = "outlier"
    POSITIVE = "positive"
    NEGATIVE = "negative"
    CONSTANT = "constant"
    EQUAL_ROWS = "equal_rows"
    CLOSE = "close"
    BINADE = "binade"
    SORTED = "sorted"
    SAME = "same"


SCALES = (-6, 6)
"""The least and the largest exponent of powers of two where an operation declares none. `binade` goes beyond."""

WITHOUT_NUMBERS = (Distribution.NON_FINITE, Distribution.MANY_NON_FINITE)
"""Those with NaN and infinities."""

ORDERS = (
    Distribution.POSITIVE,
    Distribution.NEGATIVE,
    Distribution.CONSTANT,
    Distribution.EQUAL_ROWS,
    Distribution.SORTED,
    Distribution.SAME,
)
"""Those in which small integers remain small integers."""


class NonFinite(StrEnum):
    """What an operation owes where inputs are NaN or infinite.

    `propagate`: each element is what the float64 reference gives: NaN where that is NaN, an infinity of the same sign
    where that is one. `undefined`: anything, so that such inputs are never drawn."""

    PROPAGATE = "propagate"
    UNDEFINED = "undefined"


WEIGHTS = dict.fromkeys(Distribution, 1) | {
    Distribution.NORMAL: 4,
    Distribution.SCALED: 2,
    Distribution.SUBNORMAL: 2,
    Distribution.NON_FINITE: 7,
    Distribution.MANY_NON_FINITE: 4,
    Distribution.NEGATIVE: 2,
    Distribution.POSITIVE: 2,
    Distribution.CONSTANT: 10,
    Distribution.CLOSE: 2,
    Distribution.BINADE: 3,
    Distribution.OUTLIER: 3,
    Distribution.WIDE: 2,
}
"""How often each is drawn."""

SHARES = (1 / 16, 1 / 2, 15 / 16)
"""Of the elements that become zero or subnormal: one of these."""

ROWS = (1 / 2, 15 / 16)
"""Of the rows that are filled with NaN, infinities and zeros: one of these."""

MIXED = (0, 1, 2, 3, 3, 3, 3, 3)
"""What such a row of a vector has, of NaN, each infinity, and all of them: it has no other row."""

MOST_NON_FINITE = 3
"""NaN and infinities in a small array; in a large one the root of its size: so few that most rows have none."""


def distributed(
    values: Values, dtype: DType, kind: Distribution, scales: tuple[int, int], rng: np.random.Generator, places: int = 0
) -> Values:
    """The numbers, of a floating-point type, as `kind` has them: a new array of the same shape and type.

    `scales` are the least and the largest exponent of powers of two; what the type cannot hold is left out, so that
    finite numbers stay finite. NaN and infinities of arrays of one size are in the same places where the seed `places`
    is the same: what is added up element by element may then be infinities of both signs."""
    if kind in WITHOUT_NUMBERS and not dtype.has_nan:
        return values
    least, high = _exponents(dtype, scales)
    if kind in ORDERS:
        made = _ordered(values, kind, rng)
        if kind is Distribution.EQUAL_ROWS or least == high:
            return made
        # of the first axis alone: a sum over several would lose all of the many equal terms that are just small enough
        rows = (len(values), *(1,) * (values.ndim - 1)) if values.ndim > 1 and rng.integers(4) else (1,) * values.ndim
        exponents = [np.zeros(rows, np.int64), rng.integers(least, high + 1, rows), np.full(rows, high)]
        scaled = _multiplied(made, dtype, np.choose(rng.integers(3, size=rows), exponents))
        smallest = np.copysign(dtype.smallest, made.astype(np.float64)).astype(made.dtype)
        return np.where((scaled == 0) & (made != 0), smallest, scaled)  # a number keeps its sign
    if kind is Distribution.CLOSE:
        return _close_together(values, dtype, rng)
    if kind is Distribution.BINADE:
        return _in_binades(values, dtype, MOST_BINADE if scales is SCALES else high, rng)
    if kind is Distribution.ZEROS:
        return _sparse(values, rng)
    if kind is Distribution.SUBNORMAL:
        count = 1 << (significand(dtype) - 1)
        some = rng.integers(1, max(2, count), values.shape) * dtype.smallest
        return _replaced(values, _signs(values.shape, rng) * some, rng)
    if kind is Distribution.NON_FINITE:
        with_zeros = _replaced(values, _signs(values.shape, rng) * 0.0, rng, SHARES[:2])
        return _with_non_finite(with_zeros, dtype, rng, np.random.default_rng(places))
    if kind is Distribution.MANY_NON_FINITE:
        return _with_many_non_finite(values, dtype, rng)
    if kind is Distribution.LARGE:
        return _multiplied(values, dtype, np.full((1,) * values.ndim, high))
    if kind is Distribution.OUTLIER and values.ndim and values.shape[-1] >= LONG and high >= 5:
        return _far_below(values, rng)
    if kind is Distribution.OUTLIER:
        return _multiplied(values, dtype, _outlier(values.shape, high, rng))
    if kind is Distribution.WIDE:
        return _multiplied(values, dtype, _wide(values.shape, least, high, significand(dtype), rng))
    return _multiplied(values, dtype, _powers(values.shape, least, high, rng))


def whole_numbers(
    values: Values,
    dtype: DType,
    kind: Distribution,
    limits: tuple[int, int],
    rng: np.random.Generator,
    divisors: Sequence[int] = (),
) -> Values:
    """The numbers, of an integer type, as `kind` has them, between the limits: a new array of the same shape and type.

    All magnitudes are as likely, from one bit to those of the limits: in `wide` of each element, in `scaled` of an
    array, or of its rows or columns; `constant` has mostly a limit. `large` has any bits, or the limits, powers of two
    and of ten and what is next to these. In half of these arrays many are multiples of `divisors` and powers of ten, or
    the numbers before."""
    if kind in (Distribution.NORMAL, Distribution.SUBNORMAL, Distribution.BINADE, *WITHOUT_NUMBERS) or not values.size:
        return values
    if kind is Distribution.ZEROS:
        return _sparse(values, rng) if limits[0] <= 0 <= limits[1] else values
    low, high = limits
    if kind is Distribution.POSITIVE and high > 0:
        low = max(low, 1)
    if kind is Distribution.NEGATIVE and low < 0:
        high = min(high, -1)
    shape: tuple[int, ...] = values.shape[-1:] if kind is Distribution.EQUAL_ROWS else values.shape
    if kind is Distribution.CONSTANT:
        axis = int(rng.integers(3)) if values.ndim > 1 else 0
        shape = ((1,) * values.ndim, (*values.shape[:-1], 1), values.shape[-1:])[axis]
    any_bits: Values = rng.integers(low, high, shape, dtype.numpy, endpoint=True)
    tens = [10**digits for digits in range(1, 20)]
    steps = np.array([n for n in (*tens, *divisors, *divisors) if n <= high], dtype.numpy)
    if kind is Distribution.OUTLIER:
        there = _outlier(values.shape, 4, rng) > 0
        return np.asarray(np.where(there, any_bits, values))
    if kind is Distribution.LARGE:
        near = {s * n + d for n in (*(2**bit for bit in range(dtype.bits)), *tens) for s in (-1, 1) for d in (-1, 0, 1)}
        edges = [n for n in sorted({low, low + 1, high - 1, high, 0, *near}) if low <= n <= high]
        chosen = rng.choice(np.array(edges, dtype.numpy), shape)
        others = _beside_multiples(any_bits, steps, rng)
        return np.clip(np.where(rng.random(shape) < rng.choice((0.0, 1 / 2, 1.0)), chosen, others), low, high)
    if kind is Distribution.CONSTANT and rng.integers(6):
        return np.broadcast_to(rng.choice(np.array([low, high], dtype.numpy), shape), values.shape).copy()
    bits = max(abs(low), abs(high)).bit_length()
    less = _powers(shape, 0, bits, rng) if kind is Distribution.SCALED else rng.integers(0, bits + 1, shape)
    made = _beside_multiples(any_bits >> np.minimum(less, dtype.bits - 1).astype(dtype.numpy), steps, rng)
    made = np.clip(made, low, high).astype(dtype.numpy)
    if kind is Distribution.SORTED and made.ndim:
        made = np.sort(made, axis=-1)
        made = made[..., ::-1] if rng.integers(4) == 0 else made
    return np.broadcast_to(made, values.shape).copy()


def divisors(problem: Any) -> list[int]:
    """Extents and other whole numbers of a problem, by which a kernel may divide elements of its inputs."""
    values = (getattr(problem, field.name) for field in dataclasses.fields(problem) if field.name != "seed")
    return [value for value in values if type(value) is int and value > 1]


def _beside_multiples(values: Values, steps: Values, rng: np.random.Generator) -> Values:
    """The integers; in half of the cases half of them nearer to 0: multiples of `steps`, or next to one. A division by
    way of a reciprocal is wrong there first."""
    if not steps.size or rng.integers(2):
        return values
    multiples = values - np.fmod(values, rng.choice(steps, values.shape))
    nearer = multiples - np.sign(multiples) * rng.integers(0, 2, values.shape, values.dtype)
    return np.where(rng.random(values.shape) < 1 / 2, nearer, values)


def small_numbers(limits: tuple[int, int]) -> tuple[int, int]:
    """The least and the largest of few integers near 0, as far as the limits allow: -2 to 2, 0 to 4."""
    low, high = limits
    first = max(low, min(-2, high - 4))
    return first, min(high, first + 4)


def _ordered(values: Values, kind: Distribution, rng: np.random.Generator) -> Values:
    """The numbers in one of `ORDERS`; infinite ones keep their sign."""
    if kind in (Distribution.POSITIVE, Distribution.NEGATIVE):
        sizes = np.where(values == 0, 1, np.abs(values.astype(np.float64)))
        signed = sizes if kind is Distribution.POSITIVE else -sizes
        return np.where(np.isfinite(values), signed, values).astype(values.dtype)
    if kind is Distribution.CONSTANT:
        made = np.broadcast_to(_few_bits(_first(values, int(rng.choice([0, 1, 1, 1, 2])), rng)), values.shape)
        return np.asarray(made.astype(np.float64) * _of_rows(values.shape, rng)).astype(values.dtype)
    if kind is Distribution.EQUAL_ROWS:
        rows = values.reshape(-1, values.shape[-1]) if values.ndim else values
        return np.broadcast_to(_few_bits(rows[0]), values.shape).copy() if values.ndim else values
    if kind is Distribution.SORTED and values.ndim:
        made = np.sort(values.astype(np.float64), axis=-1).astype(values.dtype)
        if rng.integers(4) == 0:
            made = np.sort(made.astype(np.float64), axis=0).astype(values.dtype)  # rows remain in order
        rows = rng.random([*values.shape[:-1], 1] if values.ndim > 1 else 1)
        to_the_middle = made[..., np.minimum(np.arange(made.shape[-1]), np.arange(made.shape[-1])[::-1])]
        return np.where(rows < 1 / 4, np.flip(made, axis=-1), np.where(rows > 5 / 6, to_the_middle, made))
    return values


def _close_together(values: Values, dtype: DType, rng: np.random.Generator) -> Values:
    """Numbers of one sign far from 0 and close together: differences of sums or of squares of them lose all digits. In
    half of the rows they are one number of few bits and the next one of the type. What is infinite stays."""
    finite, shape = np.isfinite(values), values.shape
    sizes = np.where(finite, np.abs(values.astype(np.float64)), 0.0)
    largest = max(sizes.max(initial=0.0), 1.0)
    apart = 2.0 ** -rng.integers(3, max(4, significand(dtype) - 1))
    made = rng.choice((-1.0, 1.0)) * largest * (1 - sizes / largest * apart)
    first, rows = 2**FEW_BITS, (*shape[:-1], 1) if shape else shape
    beside = rng.integers(first // 2, first, rows) / first + rng.integers(2, size=shape) * dtype.unit_roundoff
    made = np.where(rng.random(rows) < 1 / 2, beside * rng.choice((-2.0, 2.0), rows), made)
    return np.where(finite, made, values).astype(values.dtype)


LONG = 2048
"""Elements of a row of which many small terms are as much as may be wrong."""


def _far_below(values: Values, rng: np.random.Generator) -> Values:
    """Rows in which one element, in half of them the last, is so far above all others that e^-x of each is less than
    2^-25, and of all together more than is allowed."""
    columns, rows = values.shape[-1], (*values.shape[:-1], 1)
    far = rng.uniform(17.5, max(17.5, math.log(columns) + 8.5), rows)
    near = (columns ** rng.random(rows)).astype(np.int64) - 1
    last = np.full_like(near, columns - 1)
    there = np.arange(columns) == np.choose(rng.integers(6, size=rows), [last, last, last, last - near, near, 0 * near])
    return np.where(there, far, values.astype(np.float64) / 16).astype(values.dtype)


def with_and_without(
    kind: Distribution, drawn: Mapping[str, Values], turn: int, rng: np.random.Generator
) -> tuple[list[str], dict[str, Values]]:
    """The inputs that get NaN and infinities, and others with zeros: a factor 0 hides none.

    The former are all, or any one, or the largest alone: mostly where NaN and infinities are many, as rows would have
    them twice, and every second `turn` where they are few."""
    few, names = kind is Distribution.NON_FINITE, list(drawn)
    largest = max(names, key=lambda name: (drawn[name].size, rng.random()))
    chosen = names if rng.integers(2) else [names[int(rng.integers(len(names)))]]
    if turn % 2 if few else rng.integers(8):
        chosen = [largest]
    zeros = (name for name in names if few and name not in chosen)
    return chosen, {name: with_runs_of_zeros(drawn[name], rng) for name in zeros}


def with_runs_of_zeros(values: Values, rng: np.random.Generator) -> Values:
    """The numbers, most of them zeros, in runs of 16 to 256 along the rows or the columns, alike in all or not."""
    if not values.ndim:
        return values
    made, run = values.copy(), 16 << int(rng.integers(5))
    moved = np.moveaxis(made, int(rng.integers(max(0, values.ndim - 2), values.ndim)), -1)
    count = -(-moved.shape[-1] // run)
    zero = rng.random((*(moved.shape[:-1] if rng.integers(2) else (1,) * (values.ndim - 1)), count)) < 7 / 8
    np.copyto(moved, np.zeros((), values.dtype), where=np.repeat(zero, run, axis=-1)[..., : moved.shape[-1]])
    return made


MOST_BINADE = 30
"""The largest exponent of a binade: int32 holds all numbers there."""


def _in_binades(values: Values, dtype: DType, high: int, rng: np.random.Generator) -> Values:
    """Numbers of one binade, of one a row, or each of its own, often one of the last that have bits below 1. What is
    infinite stays."""
    shape, bits = values.shape, significand(dtype)
    most = max(0, min(bits, high, MOST_BINADE, math.frexp(largest(dtype))[1] - 1))
    sizes = ((1,) * len(shape), (*shape[:-1], 1) if shape else shape, shape, shape)[int(rng.integers(4))]
    last = rng.random(sizes) < 1 / 2
    exponents = np.where(last, rng.integers(max(0, most - 2), most + 1, sizes), rng.integers(0, most + 1, sizes))
    made = np.ldexp(1 + np.ldexp(rng.integers(0, 1 << (bits - 1), shape).astype(np.float64), 1 - bits), exponents)
    made = (made, made, np.floor(made), np.floor(made) + 0.5)[int(rng.integers(4))]
    signs = (1.0, -1.0, _signs(shape, rng))[int(rng.integers(3))]
    return np.where(np.isfinite(values), np.clip(made * signs, -largest(dtype), largest(dtype)), values).astype(
        values.dtype
    )


def truths(values: Values, kind: Distribution, rng: np.random.Generator) -> Values:
    """The values, of type bool, as `kind` has them: few true ones for zeros, all for positive numbers, and so on."""
    if kind is Distribution.CONSTANT:
        axis = int(rng.integers(3)) if values.ndim > 1 else 0
        shape = ((1,) * values.ndim, (*values.shape[:-1], 1), values.shape[-1:])[axis]
        return np.broadcast_to(rng.integers(0, 2, shape).astype(bool), values.shape).copy()
    if kind in (Distribution.POSITIVE, Distribution.NEGATIVE):
        return np.full(values.shape, kind is Distribution.POSITIVE)
    if kind in (Distribution.ZEROS, Distribution.LARGE):
        few = np.asarray(rng.random(values.shape) < 1 / 16)
        return few if kind is Distribution.ZEROS else ~few
    if kind is Distribution.OUTLIER and values.ndim:
        return np.asarray((_outlier(values.shape, 1, rng) > 0) ^ bool(rng.integers(2)))
    if kind is Distribution.EQUAL_ROWS and values.size:
        return np.broadcast_to(values[(0,) * (values.ndim - 1)], values.shape).copy()
    return np.sort(values, axis=-1) if kind is Distribution.SORTED and values.ndim else values


def _first(values: Values, how: int, rng: np.random.Generator) -> Values:
    """One element of each row or column, or of all, that is not 0 where it can be."""
    axis = {0: None, 1: -1, 2: 0}[how if values.ndim > 1 else 0]
    finite = np.where(np.isfinite(values), values, 0).astype(np.float64)
    return np.asarray(finite.max(axis=axis, keepdims=True) * rng.choice([1.0, -1.0])).astype(values.dtype)


FEW_BITS = 4
"""Of the significands of numbers that are equal: sums of up to 2^16 products of two are exact in fp32."""


def _few_bits(values: Values) -> Values:
    """The numbers with so few bits that a sum of many equal ones is exact: else all its roundings have one sign."""
    fraction, exponent = np.frexp(values.astype(np.float64))
    rounded = np.ldexp(np.trunc(np.ldexp(fraction, FEW_BITS)), exponent - FEW_BITS)
    return np.where(np.isfinite(values), rounded, values).astype(values.dtype)


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
    """The exponents with which numbers near 1 become neither subnormal nor larger than `scales` allow; 0 where these
    allow no other."""
    if tuple(scales) == (0, 0):
        return 0, 0
    least = round(math.log2(dtype.smallest)) + significand(dtype) - 1
    most = max(1, math.floor(math.log2(largest(dtype))) - 3)  # normal numbers are below 8
    high = min(scales[1], most)
    return min(least, max(scales[0], round(math.log2(dtype.smallest))), high), high


def _powers(shape: tuple[int, ...], low: int, high: int, rng: np.random.Generator) -> Values:
    """Exponents that broadcast to the shape: one for all, for each row or for each column."""
    sizes = [1] * len(shape)
    if len(shape) > 1 and (axis := int(rng.integers(3))):
        sizes = [*shape[:-1], 1] if axis == 1 else [*sizes[:-1], shape[-1]]
    drawn = rng.integers(low, high + 1, sizes)
    return np.where(rng.random(sizes) < 1 / 4, low, drawn)  # where differences are subnormal


NEAR_ONE = 8
"""Powers of two between the smallest and the largest of most numbers that are drawn."""


def _wide(shape: tuple[int, ...], least: int, high: int, bits: int, rng: np.random.Generator) -> Values:
    """An exponent for each element: a row has all normal numbers, subnormal ones as well, or a part of the range."""
    rows = (*shape[:-1], 1) if shape else shape
    bottom, (one, other) = min(least + NEAR_ONE, high), rng.integers(least, high + 1, (2, *rows))
    low = np.choose(rng.integers(3, size=rows), [bottom, least - bits, np.minimum(one, other)])
    top = np.where(low == np.minimum(one, other), np.maximum(one, other), high)
    return np.asarray(np.floor(low + rng.random(shape) * (top - low + 1)).astype(np.int64))


def _outlier(shape: tuple[int, ...], high: int, rng: np.random.Generator) -> Values:
    """An exponent for each element: 0 but for one row or one column, one element of each row, or of a vector. It is
    often the first or the last, by which a kernel may be tempted to shift all others, or near one of them."""
    exponents = np.zeros(shape, np.int64)
    axis = int(rng.integers(max(0, len(shape) - 2), len(shape))) if shape else 0
    if shape:
        moved, last = np.moveaxis(exponents, axis, -1), shape[axis] - 1
        rows = moved.shape[:-1] if axis == len(shape) - 1 and rng.integers(2) else (1,) * (len(shape) - 1)
        near = (shape[axis] ** rng.random(rows)).astype(np.int64) - 1
        places = [np.zeros_like(near), near * 0 + last, near, last - near, rng.integers(shape[axis], size=rows)]
        at = np.broadcast_to(np.choose(rng.integers(len(places), size=rows), places), moved.shape[:-1])
        np.put_along_axis(moved, at[..., None], rng.integers(min(4, high), high + 1), axis=-1)
    return exponents


def _multiplied(values: Values, dtype: DType, exponents: Values) -> Values:
    most, wide = largest(dtype), values.astype(np.float64)
    scaled = wide * np.exp2(exponents.astype(np.float64))
    return np.where(np.isfinite(wide), np.clip(scaled, -most, most), wide).astype(dtype.numpy)


def _signs(shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    return rng.integers(0, 2, shape) * 2.0 - 1.0


def _of_rows(shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    """Signs: in half of the rows all +, in the others alternating or by chance."""
    rows = rng.random((*shape[:-1], 1) if len(shape) > 1 else 1 if shape else ())
    alternating = 1.0 - 2.0 * (np.arange(shape[-1]) % 2 if shape else 0)
    return np.asarray(np.where(rows < 1 / 2, 1.0, np.where(rows < 3 / 4, alternating, _signs(shape, rng))))


def _replaced(values: Values, others: Values, rng: np.random.Generator, shares: tuple[float, ...] = SHARES) -> Values:
    """Some elements by others, at places by chance; what is infinite stays."""
    there = (rng.random(values.shape) < rng.choice(shares)) & np.isfinite(values)
    return np.where(there, others.astype(values.dtype), values)


def _sparse(values: Values, rng: np.random.Generator) -> Values:
    """Zeros of both signs in a share of the elements, and in some rows in all of them, or in all but one. A square
    matrix is often a diagonal one, with ones or with the numbers that were drawn."""
    zeros = (_signs(values.shape, rng) * 0.0).astype(values.dtype)
    if not values.ndim:
        return zeros if rng.integers(2) else values
    columns = values.shape[-1]
    if values.ndim > 1 and values.shape[-2] == columns > 1 and rng.integers(2):
        return np.where(np.eye(columns, dtype=bool), values if rng.integers(2) else np.ones_like(values), zeros)
    rows = rng.random([*values.shape[:-1], 1])
    alone = np.where(rng.random(rows.shape) < 1 / 2, rng.integers(columns, size=rows.shape), columns - 1)
    some = _replaced(values, zeros, rng)
    few = np.where((np.arange(columns) == alone) & (rows < 3 / 4) | ~np.isfinite(values), values, zeros)
    return np.where(rows < 1 / 2, some, few)


def _with_non_finite(values: Values, dtype: DType, rng: np.random.Generator, where: np.random.Generator) -> Values:
    infinity = np.inf if np.isinf(np.float64(np.inf).astype(dtype.numpy)) else np.nan
    kinds = ((np.nan,), (infinity, -infinity), (np.nan, infinity, -infinity))
    chosen = np.array(kinds[int(where.integers(len(kinds)))]).astype(dtype.numpy)
    most = max(MOST_NON_FINITE, math.isqrt(values.size) // 2)
    places = where.integers(0, values.size, int(where.integers(1, most + 1)))
    if values.ndim and where.integers(3) == 0:  # at the end of their rows
        places += values.shape[-1] - 1 - places % values.shape[-1]
    made = values.copy()
    made.reshape(-1)[places] = rng.choice(chosen, places.size)
    return _with_signs_of_nan(made, dtype, rng)


def _with_many_non_finite(values: Values, dtype: DType, rng: np.random.Generator) -> Values:
    """About half of the elements of some rows or columns, or all of them, replaced: each by one of several mixtures."""
    if values.ndim > 1 and rng.integers(8) == 0:
        return np.asarray(_with_many_non_finite(values.swapaxes(0, -1), dtype, rng).swapaxes(0, -1))
    infinity = np.inf if np.isinf(np.float64(np.inf).astype(dtype.numpy)) else np.nan
    kinds = np.array([[np.nan] * 4, [infinity] * 4, [-infinity] * 4, [np.nan, infinity, -infinity, -0.0]])
    rows = (*values.shape[:-1], 1) if values.ndim else ()
    chosen = rng.choice(len(kinds) if values.ndim > 1 else MIXED, rows)
    some = rng.random(rows) < rng.choice(ROWS)
    if values.size and not some.any():
        some.reshape(-1)[int(rng.integers(some.size))] = True
    others = kinds[np.broadcast_to(chosen, values.shape), rng.integers(4, size=values.shape)]
    there = some & (rng.random(values.shape) < rng.choice((1 / 2, 1.0)))
    return _with_signs_of_nan(np.where(there, others.astype(values.dtype), values), dtype, rng)


def _with_signs_of_nan(values: Values, dtype: DType, rng: np.random.Generator) -> Values:
    """Half of all NaN with all bits set but the sign, as a GPU's arithmetic makes them. Half of all have their sign bit
    set, but where the bits are those of memory that nobody wrote."""
    if dtype.is_scale:
        return values
    bits = np.array((1 << 8 * values.itemsize - 1) - 1, f"u{values.itemsize}")
    values = np.where(np.isnan(values) & (rng.random(values.shape) < 1 / 2), bits.view(values.dtype), values)
    negative = np.negative(values)
    there = np.isnan(values) & (rng.random(values.shape) < 1 / 2) & ~dtype.unwritten(negative)
    return np.where(there, negative, values)


def same_numbers(arrays: Mapping[str, Array], names: Sequence[str], drawn: Arrays) -> dict[str, Values]:
    """For inputs of one type the numbers of the largest of them: all of them, or as many as there is room for."""
    found: dict[str, Values] = {}
    for name in names:
        alike = [n for n in names if arrays[n].dtype is arrays[name].dtype]
        largest_one = max(alike, key=lambda n: drawn[n].size)
        if largest_one != name:
            found[name] = drawn[largest_one].reshape(-1)[: drawn[name].size].reshape(drawn[name].shape).copy()
    return found
