"""Operands that tell operations apart: random ones, and the special values of a type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from form import FLUSHED, PAIRS, Array, bits_of
from softfloat import F16, F64, FORMATS, Format

_SMALL = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256]


def _integers(bits: int, count: int, rng: np.random.Generator) -> Array:
    values = rng.integers(0, 2**64, count, dtype=np.uint64) >> rng.integers(64 - bits, 64, count).astype(np.uint64)
    whole = np.uint64((1 << bits) - 1)
    negative = rng.random(count) < 0.3
    return np.where(negative, ~values + np.uint64(1), values) & whole


def special_integers(bits: int) -> list[int]:
    mask = (1 << bits) - 1
    low = [n & mask for n in _SMALL]
    return sorted({*low, *(-n & mask for n in low), 1 << (bits - 1), mask >> 1, (mask >> 1) - 1, mask, mask - 1})


def special_floats(form: Format) -> list[int]:
    """Zeros, subnormals, neighbours of one, halves between whole numbers, limits of integers, infinities and NaNs."""
    one = form.bias << form.fraction
    quiet = 1 << (form.fraction - 1)
    found = [0, 1, 2, form.smallest_normal - 1, form.smallest_normal, form.smallest_normal + 1, one - 1, one, one + 1]
    found += [form.largest, form.largest - 1, form.infinity, form.infinity | quiet, form.infinity | quiet | 1]
    found += [form.infinity | 1]  # a signalling NaN
    for value in (0.5, 1.5, 2, 2.5, 3, 3.5, 127.5, 128, 254.5, 255.5, 448, 464, 479, 2048.5, 32767.5, 57344, 61440):
        found.append(form.round(Fraction(value)))
    for value in (65504, 65519, 65520, 2**24 + 1, 2.0**-25, 2.0**-24, 3 * 2.0**-25, 2.0**-14):
        found.append(form.round(Fraction(value)))
    for power in (7, 8, 15, 16, 23, 31, 32, 52, 63, 64):
        exact = form.round(Fraction(2**power))
        found += [exact, exact - 1, exact + 1] if not form.is_infinite(exact) else []
    if form == F64:  # about to become the smallest normal f32
        for power in (24, 25):
            exact = form.round(Fraction(2**power - 1, 2 ** (power + 126)))
            found += [exact - 1, exact, exact + 1]
        found.append(form.round(Fraction(1, 2**126)) - 1)
    return sorted({*found, *(bits | form.sign for bits in found)})


def _floats(form: Format, count: int, rng: np.random.Generator) -> Array:
    """A third wild bits, a third near one, a third of all magnitudes with few digits, so that halves are met."""
    wild = rng.integers(0, 2**64, count, dtype=np.uint64) & np.uint64((1 << form.bits) - 1)
    near = _encode(form, rng.standard_normal(count) * 2.0 ** rng.integers(-3, 12, count))
    digits = rng.integers(1, 2**9, count).astype(np.float64) * 2.0 ** rng.integers(-12, 4, count)
    few = _encode(form, digits * rng.choice([-1.0, 1.0], count))
    return np.choose(rng.integers(0, 3, count), [wild, near, few]).astype(np.uint64)


def _encode(form: Format, values: Array) -> Array:
    if form.bits == 64:
        return values.view(np.uint64)
    single = values.astype(np.float32)
    if form == F16:
        return single.astype(np.float16).view(np.uint16).astype(np.uint64)
    return single.view(np.uint32).astype(np.uint64) >> np.uint64(32 - form.bits)


def _column(type_name: str, count: int, rng: np.random.Generator) -> tuple[list[int], Array]:
    """Special values of a type, and random ones."""
    if type_name == "pred":
        return [0, 1], rng.integers(0, 2, count, dtype=np.uint64)
    if type_name in FORMATS:
        form = FORMATS[type_name]
        return special_floats(form), _floats(form, count, rng)
    if type_name in PAIRS:
        form = PAIRS[type_name]
        low, high = _floats(form, count, rng), _floats(form, count, rng)
        known = special_floats(form)
        pairs = [a | b << form.bits for a, b in zip(known, known[3:] + known[:3], strict=True)]
        return pairs, low | high << np.uint64(form.bits)
    bits = bits_of(type_name)
    return special_integers(bits), _integers(bits, count, rng)


def _near_the_smallest(form: Format, sources: int, count: int, rng: np.random.Generator) -> list[Array]:
    """Normal numbers whose product, or product and sum, is just below the smallest normal number."""
    one, low = 1 << form.fraction, 1 - form.bias

    def encoded(exponent: Array, significand: Array, negative: Array) -> Array:
        bits = (exponent + form.bias << form.fraction) | (significand - one) | negative * form.sign
        return np.asarray(bits.astype(np.uint64))

    def parts_of(total: Array) -> tuple[Array, Array]:  # of an exponent, both normal
        first = rng.integers(low, total - low, endpoint=True)
        return first, total - first

    signs = rng.integers(0, 2, (2, count))
    a = rng.integers(one, 2 * one, count)
    b = (2 * one * one - 1) // a  # the largest for which the product stays below
    exponents = parts_of(np.full(count, low - 1))
    arrays = [encoded(e, s, n) for e, s, n in zip(exponents, (a, b), signs, strict=True)]
    if sources == 2:
        return arrays
    addend = ((signs[0] ^ signs[1]) * form.sign).astype(np.uint64)  # a zero that changes nothing
    # and for half of them the smallest normal number, from which a product is taken: some powers of two, for ties
    total = low - form.fraction - 2 + rng.integers(-2, 3, count)
    few = np.where(rng.random(count) < 0.5, one, a)
    exponents = parts_of(total)
    products = [encoded(e, s, n) for e, s, n in zip(exponents, (few, np.full(count, one)), signs, strict=True)]
    taken = encoded(np.full(count, low), np.full(count, one), 1 - (signs[0] ^ signs[1]))
    half = rng.integers(0, 2, count) == 0
    return [np.where(half, x, y) for x, y in zip((*products, taken), (*arrays, addend), strict=True)]


def operands(types: Sequence[str], count: int, seed: int) -> list[Array]:
    """Arrays of bit patterns: in the first half (at most) pairs of special values meet, the rest is random.

    Of two or three numbers of a format that ``.ftz`` flushes, results of the last eighth are about to be flushed.
    """
    rng = np.random.default_rng([seed, *(ord(c) for c in ",".join(types))])
    columns = [_column(t, count, rng) for t in types]
    arrays = [random for _, random in columns]
    first = columns[0][0]
    second = columns[1][0] if len(columns) > 1 else [0]
    pairs = rng.permutation(len(first) * len(second))[: count // 2]
    for place, (special, _) in enumerate(columns):
        picks = pairs // len(second) if place == 0 else pairs % len(second)
        if place > 1:
            picks = rng.integers(0, len(special), len(pairs))
        arrays[place][: len(pairs)] = np.array(special, np.uint64)[picks]
    third = rng.integers(0, 3, count) == 0
    if len(types) > 1 and types[0] == types[1] != "pred":  # neighbours: sums that cancel, equal keys
        close = (arrays[0] + rng.integers(0, 2, count, dtype=np.uint64)) & np.uint64((1 << bits_of(types[0])) - 1)
        arrays[1] = np.where(third & (np.arange(count) >= len(pairs)), close, arrays[1])
    if len(types) in (2, 3) and len(set(types)) == 1 and types[0] in FLUSHED:
        form = FLUSHED[types[0]]
        last = [_near_the_smallest(form, len(types), count // 8, rng) for _ in range(bits_of(types[0]) // form.bits)]
        for array, parts in zip(arrays, zip(*last, strict=True), strict=True):
            array[count - count // 8 :] = sum(part << np.uint64(form.bits * n) for n, part in enumerate(parts))
    return [a.astype(f"u{bits_of(t) // 8}") for a, t in zip(arrays, types, strict=True)]


def no_zero_divisor(type_name: str) -> Callable[[list[Array]], None]:
    def adjust(arrays: list[Array]) -> None:
        a, b = arrays[:2]
        b[b == 0] = 1
        if type_name[0] == "s":  # the one quotient that does not fit
            b[(a == 1 << (bits_of(type_name) - 1)) & (b == (1 << bits_of(type_name)) - 1)] = 1

    return adjust


def bytes_from(first: int) -> Callable[[list[Array]], None]:
    """Positions and lengths of fields, from an operand on: PTX restricts them to 0 to 255."""

    def adjust(arrays: list[Array]) -> None:
        for array in arrays[first:]:
            array &= np.uint32(255)

    return adjust
