"""Conversions between types."""

from __future__ import annotations

from fractions import Fraction

import softfloat
from float_forms import ROUNDINGS, when_tiny, with_modifiers
from form import E5M2, PAIRS, TINY, Definition, Form, bits_of, read, signed
from integer_forms import clamped
from narrow_forms import narrow_form
from softfloat import F16, F32, FORMATS, Format

_INTEGRAL = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def whole(value: Fraction, mode: str) -> int:
    """A number rounded to a whole one."""
    floor = value.numerator // value.denominator
    rest = value - floor
    if mode == "rm" or rest == 0:
        return floor
    if mode == "rp":
        return floor + 1
    if mode == "rz":
        return floor + (value < 0)
    return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor & 1))


def _is_integer(type_name: str) -> bool:
    return type_name[0] in "us" and type_name[1:].isdigit()


def conversion_form(operation: str) -> Form | None:
    _, *parts = operation.split(".")
    if parts[0] == "pack":
        return _pack(operation, parts)
    if found := narrow_form(operation):
        return found
    target, source = parts[-2:]
    modifiers = parts[:-2]
    if "e4m3x2" in (target, source) or "e5m2x2" in (target, source):
        return _eight_bits(operation, target, source, modifiers)
    if target in PAIRS:
        return _pair_conversion(operation, target, source, modifiers)
    if _is_integer(source) and _is_integer(target):
        mask = (1 << bits_of(target)) - 1
        clamp = "sat" in modifiers
        define: Definition = lambda a: (clamped(read(source, a), target) if clamp else read(source, a)) & mask  # noqa: E731
        return Form(operation, f"{operation} %x, %a;", (source,), (target,), define)
    if _is_integer(target):
        return _to_integer(operation, target, source, modifiers)
    if _is_integer(source):
        form = FORMATS[target]
        mode = next(m for m in modifiers if m in ROUNDINGS)
        finish = [m for m in modifiers if m != "ftz"]  # nothing is subnormal
        define = with_modifiers(form, lambda a: form.round(Fraction(read(source, a)), mode), finish)
        return Form(operation, f"{operation} %x, %a;", (source,), (target,), define)
    return _between_floats(operation, target, source, modifiers)


def _pack(operation: str, parts: list[str]) -> Form:
    target = parts[2]
    bits = bits_of(target)
    mask = (1 << bits) - 1

    def define(a: int, b: int, *c: int) -> int:
        both = (clamped(signed(a, 32), target) & mask) << bits | clamped(signed(b, 32), target) & mask
        return both | (c[0] << 2 * bits & 0xFFFFFFFF if c else 0)

    inputs = ("s32", "s32") + (("b32",) if len(parts) > 4 else ())
    names = ", ".join(f"%{n}" for n in "abc"[: len(inputs)])
    return Form(operation, f"{operation} %x, {names};", inputs, ("b32",), define)


def _to_integer(operation: str, target: str, source: str, modifiers: list[str]) -> Form:
    form = FORMATS[source]
    mode = _INTEGRAL[next(m for m in modifiers if m in _INTEGRAL)]
    mask = (1 << bits_of(target)) - 1
    nan = 1 << (bits_of(target) - 1) if source == "f64" or target in ("s64", "u64") else 0

    def define(a: int) -> int:
        a = form.flushed(a) if "ftz" in modifiers else a
        if form.is_nan(a):
            return nan
        if form.is_infinite(a):
            return clamped(-(1 << 100) if a & form.sign else 1 << 100, target) & mask
        return clamped(whole(form.value(a), mode), target) & mask

    return Form(operation, f"{operation} %x, %a;", (source,), (target,), define)


def _between_floats(operation: str, target: str, source: str, modifiers: list[str]) -> Form:
    a_form = FORMATS[source]
    if target == "tf32":
        return Form(operation, f"{operation} %x, %a;", (source,), ("b32",), _to_tf32(modifiers), number=F32)
    form = FORMATS[target]
    integral = next((_INTEGRAL[m] for m in modifiers if m in _INTEGRAL), None)
    mode = next((m for m in modifiers if m in ROUNDINGS), "rn")

    def define(a: int) -> int:
        if "ftz" in modifiers and a_form == F32:
            a = F32.flushed(a)
        if integral and not a_form.is_nan(a) and not a_form.is_infinite(a):
            result = form.round(Fraction(whole(a_form.value(a), integral)), "rn", a & a_form.sign)
        else:
            result = softfloat.convert(a_form, form, a, mode)
        if "satfinite" in modifiers and form.is_infinite(result):
            result = result & form.sign | form.largest
        return form.flushed(result) if "ftz" in modifiers and form == F32 else result

    finish = [m for m in modifiers if m in ("sat", "relu")]
    flushes: dict[str, Definition] = {}
    if "ftz" in modifiers and source == "f64":

        def flushed(asked: str) -> Definition:
            tiny = when_tiny(form, lambda wide: lambda a: softfloat.convert(a_form, wide, a, asked))
            return lambda a: softfloat.convert(a_form, form, a, mode) & form.sign if tiny(a) else define(a)

        rules = {"before rounding": flushed("rz"), "after rounding": flushed(mode)}
        rules["after rounding as a subnormal number"] = define
        flushes = {rule: with_modifiers(form, by_rule, finish) for rule, by_rule in rules.items()}
    modified = flushes[TINY] if flushes else with_modifiers(form, define, finish)
    return Form(operation, f"{operation} %x, %a;", (source,), (target,), modified, number=form, flushes=flushes)


def _round_tf32(a: int, mode: str, satfinite: bool) -> int:
    """To ten bits of fraction, in the upper bits of an f32."""
    short = Format(19, 8, 10)
    if F32.is_nan(a):
        return F32.nan
    sign = a & F32.sign
    result = short.infinity if F32.is_infinite(a) else short.round(abs(F32.value(a)), mode)
    if satfinite and result >= short.infinity:
        result = short.largest
    return sign | result << 13


def _to_tf32(modifiers: list[str]) -> Definition:
    mode = modifiers[0]

    def define(a: int) -> int:
        result = _round_tf32(a, mode, "satfinite" in modifiers)
        return 0 if "relu" in modifiers and result & F32.sign and not F32.is_nan(result) else result

    return define


def _pair_conversion(operation: str, target: str, source: str, modifiers: list[str]) -> Form | None:
    if source != "f32":
        return None
    half = PAIRS[target]
    mode = modifiers[0]

    def one(a: int) -> int:
        result = softfloat.convert(F32, half, a, mode)
        if "satfinite" in modifiers and half.is_infinite(result):
            result = result & half.sign | half.largest
        return 0 if "relu" in modifiers and result & half.sign and not half.is_nan(result) else result

    return Form(
        operation,
        f"{operation} %x, %a, %b;",
        ("f32", "f32"),
        (target,),
        lambda a, b: one(a) << 16 | one(b),
        number=half,
    )


def _e4m3(value: Fraction) -> int:
    """The nearest code, halves to even, of a magnitude below 464."""
    return Format(9, 5, 3).round(value / 2**8)  # the same fraction under a bias that is larger by 8


def _e4m3_value(code: int) -> Fraction:
    exponent, fraction = code >> 3 & 15, code & 7
    return Fraction(8 + fraction, 8) * Fraction(2) ** (exponent - 7) if exponent else Fraction(fraction, 8) / 64


def _encode_eight(target: str, form: Format, a: int, relu: bool) -> int:
    """satfinite: what is too large becomes the largest number; a NaN stays one."""
    e5m2 = target.startswith("e5m2")
    if form.is_nan(a):
        return 0x7F
    sign = 0x80 if a & form.sign else 0
    if relu and sign:
        return 0
    if form.is_infinite(a):
        return sign | (E5M2.largest if e5m2 else 0x7E)
    value = abs(form.value(a))
    if e5m2:
        return sign | min(E5M2.round(value), E5M2.largest)
    return sign | min(_e4m3(value), 0x7E)


def _decode_eight(source: str, code: int, relu: bool) -> int:
    sign = (code & 0x80) << 8
    if source.startswith("e5m2"):
        half = code << 8
        if F16.is_nan(half):
            return F16.nan
    else:
        if code & 0x7F == 0x7F:
            return F16.nan
        half = sign | F16.round(_e4m3_value(code & 0x7F))
    return 0 if relu and sign else half


def _eight_bits(operation: str, target: str, source: str, modifiers: list[str]) -> Form:
    relu = "relu" in modifiers
    if source == "f32":
        return Form(
            operation,
            f"{operation} %x, %a, %b;",
            ("f32", "f32"),
            ("b16",),
            lambda a, b: _encode_eight(target, F32, a, relu) << 8 | _encode_eight(target, F32, b, relu),
        )
    if source == "f16x2":
        return Form(
            operation,
            f"{operation} %x, %a;",
            ("f16x2",),
            ("b16",),
            lambda a: _encode_eight(target, F16, a >> 16, relu) << 8 | _encode_eight(target, F16, a & 0xFFFF, relu),
        )
    return Form(
        operation,
        f"{operation} %x, %a;",
        ("b16",),
        (target,),
        lambda a: _decode_eight(source, a >> 8, relu) << 16 | _decode_eight(source, a & 255, relu),
        number=F16,
    )
