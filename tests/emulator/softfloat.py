"""IEEE arithmetic on bit patterns with exact rationals: slow, and plainly right. The reference of the float tests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt


@dataclass(frozen=True)
class Format:
    """A binary format: bits in all, exponent bits, fraction bits."""

    bits: int
    exponent: int
    fraction: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.fraction - 1)

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def largest(self) -> int:
        return self.infinity - 1

    @property
    def smallest_normal(self) -> int:
        return 1 << self.fraction

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return bits & ~self.sign == self.infinity

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign < self.smallest_normal

    def flushed(self, bits: int) -> int:
        return bits & self.sign if self.is_subnormal(bits) else bits

    def value(self, bits: int) -> Fraction:
        """The number that finite bits stand for."""
        exponent = (bits & ~self.sign) >> self.fraction
        fraction = bits & ((1 << self.fraction) - 1)
        if exponent:
            fraction |= 1 << self.fraction
        power = max(exponent, 1) - self.bias - self.fraction
        magnitude = Fraction(fraction * 2**power) if power >= 0 else Fraction(fraction, 2**-power)
        return -magnitude if bits & self.sign else magnitude

    def round(self, value: Fraction, mode: str = "rn", zero_sign: int = 0) -> int:
        """Bits of a value rounded by ``rn``, ``rna``, ``rz``, ``rm`` or ``rp``; ``zero_sign``: sign of an exact 0."""
        if value == 0:
            return self.sign if zero_sign else 0
        sign = self.sign if value < 0 else 0
        magnitude = abs(value)
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if Fraction(2) ** exponent > magnitude:
            exponent -= 1
        unit = max(exponent, 1 - self.bias) - self.fraction  # exponent of the last place
        scaled = magnitude / Fraction(2) ** unit
        whole, rest = divmod(scaled.numerator, scaled.denominator)
        half = Fraction(rest, scaled.denominator) - Fraction(1, 2)
        up = {
            "rn": half > 0 or (half == 0 and whole & 1 == 1),
            "rna": half >= 0,
            "rz": False,
            "rm": rest > 0 and sign != 0,
            "rp": rest > 0 and sign == 0,
        }[mode]
        whole += up
        bits = whole + ((unit + self.fraction + self.bias - 1) << self.fraction) if whole else 0
        if whole < 1 << self.fraction:
            bits = whole
        if bits >= self.infinity:
            towards = mode in ("rn", "rna") or (mode == "rm" and sign) or (mode == "rp" and not sign)
            bits = self.infinity if towards else self.largest
        return sign | bits


F16, BF16, F32, F64 = Format(16, 5, 10), Format(16, 8, 7), Format(32, 8, 23), Format(64, 11, 52)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def add(form: Format, a: int, b: int, mode: str = "rn") -> int:
    if form.is_nan(a) or form.is_nan(b):
        return form.nan
    if form.is_infinite(a) or form.is_infinite(b):
        if form.is_infinite(a) and form.is_infinite(b) and a != b:
            return form.nan
        return a if form.is_infinite(a) else b
    value = form.value(a) + form.value(b)
    both_zero = not (a & ~form.sign) and not (b & ~form.sign)
    zero_sign = a & b & form.sign if both_zero and (a ^ b) & form.sign == 0 else form.sign if mode == "rm" else 0
    return form.round(value, mode, zero_sign)


def subtract(form: Format, a: int, b: int, mode: str = "rn") -> int:
    return add(form, a, b ^ form.sign, mode) if not form.is_nan(b) else form.nan


def fma(form: Format, a: int, b: int, c: int, mode: str = "rn") -> int:
    if form.is_nan(a) or form.is_nan(b) or form.is_nan(c):
        return form.nan
    sign = (a ^ b) & form.sign
    if form.is_infinite(a) or form.is_infinite(b):
        if not a & ~form.sign or not b & ~form.sign or (form.is_infinite(c) and c & form.sign != sign):
            return form.nan
        return sign | form.infinity
    if form.is_infinite(c):
        return c
    product, addend = form.value(a) * form.value(b), form.value(c)
    if product + addend == 0:
        same = product == 0 and addend == 0 and sign == c & form.sign
        return form.round(Fraction(0), mode, sign if same else form.sign if mode == "rm" else 0)
    return form.round(product + addend, mode)


def multiply(form: Format, a: int, b: int, mode: str = "rn") -> int:
    zero = (a ^ b) & form.sign  # adding a zero of the product's own sign changes nothing
    return fma(form, a, b, zero, mode)


def divide(form: Format, a: int, b: int, mode: str = "rn") -> int:
    sign = (a ^ b) & form.sign
    if form.is_nan(a) or form.is_nan(b):
        return form.nan
    if form.is_infinite(a):
        return form.nan if form.is_infinite(b) else sign | form.infinity
    if form.is_infinite(b):
        return sign
    if not b & ~form.sign:
        return form.nan if not a & ~form.sign else sign | form.infinity
    return form.round(form.value(a) / form.value(b), mode, sign)


def square_root(form: Format, a: int, mode: str = "rn") -> int:
    if form.is_nan(a) or not a & ~form.sign:
        return form.nan if form.is_nan(a) else a
    if a & form.sign:
        return form.nan
    if form.is_infinite(a):
        return a
    value = form.value(a)
    scale = 4 ** (form.fraction + 4 + value.denominator.bit_length())
    scaled = value * scale
    root = isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(root) ** 2 == scaled
    # a root that is not exact lies strictly between its neighbours here, which is all that rounding asks
    found = Fraction(2 * root + (0 if exact else 1), 2 * isqrt(scale))
    return form.round(found, mode)


def less(form: Format, a: int, b: int) -> bool:
    """Order of numbers with -0 below +0, as min and max see it."""

    def key(bits: int) -> int:
        magnitude = bits & ~form.sign
        return -magnitude - 1 if bits & form.sign else magnitude

    return key(a) < key(b)


def minimum(form: Format, a: int, b: int) -> int:
    if form.is_nan(a) or form.is_nan(b):
        return form.nan if form.is_nan(a) and form.is_nan(b) else b if form.is_nan(a) else a
    return a if less(form, a, b) else b


def maximum(form: Format, a: int, b: int) -> int:
    if form.is_nan(a) or form.is_nan(b):
        return form.nan if form.is_nan(a) and form.is_nan(b) else b if form.is_nan(a) else a
    return b if less(form, a, b) else a


def convert(source: Format, target: Format, bits: int, mode: str = "rn") -> int:
    if source.is_nan(bits):
        return target.nan
    sign = target.sign if bits & source.sign else 0
    if source.is_infinite(bits):
        return sign | target.infinity
    return target.round(source.value(bits), mode, sign)
