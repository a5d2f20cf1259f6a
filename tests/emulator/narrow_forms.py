"""Conversions to and from floats of 4, 6 and 8 bits, powers of two of 8 bits, and with random bits."""

from __future__ import annotations

from fractions import Fraction

from form import Definition, Form
from softfloat import BF16, F16, F32, Format

# The format with one more bit of exponent, under whose larger bias a number is divided by 2 to this power; the largest
# code; and what is beyond it. Codes are then the same.
_SHIFTED: dict[str, tuple[Format, int, int, int]] = {
    "e2m1": (Format(5, 3, 1), 2, 7, 7),
    "e2m3": (Format(7, 3, 3), 2, 31, 31),
    "e3m2": (Format(7, 4, 2), 4, 31, 31),
    "e4m3": (Format(9, 5, 3), 8, 0x7E, 0x7F),
    "e5m2": (Format(9, 6, 2), 16, 0x7B, 0x7C),
    "f16": (Format(17, 6, 10), 16, 0x7BFF, 0x7C00),
    "bf16": (Format(17, 9, 7), 128, 0x7F7F, 0x7F80),
}
_BITS = {"e2m1": 4, "e2m3": 8, "e3m2": 8, "e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16}
_SIGN = {"e2m1": 8, "e2m3": 32, "e3m2": 32, "e4m3": 128, "e5m2": 128, "f16": 1 << 15, "bf16": 1 << 15}
_NAN = {"e2m1": 7, "e2m3": 31, "e3m2": 31, "e4m3": 0x7F, "e5m2": 0x7F, "f16": 0x7FFF, "bf16": 0x7FFF}
_RANDOM = {"f16": 13, "bf16": 16}
_NAMES = "abcd"


def _value(kind: str, code: int) -> Fraction:
    """The number behind a code; one of a float without infinities has no other meaning."""
    form, power, _, _ = _SHIFTED[kind]
    magnitude = form.value(code & (_SIGN[kind] - 1)) * Fraction(2) ** power
    return -magnitude if code & _SIGN[kind] else magnitude


def _encode(kind: str, source: Format, bits: int, relu: bool, finite: bool, random: int | None = None) -> int:
    """A number rounded to nearest, or up in magnitude where ``random`` (a fraction) and the rest make up one."""
    form, power, largest, beyond = _SHIFTED[kind]
    if source.is_nan(bits):
        return _NAN[kind]
    sign = _SIGN[kind] if bits & source.sign else 0
    if relu and sign:
        return 0
    limit = largest if finite else beyond
    if source.is_infinite(bits):
        return sign | limit
    magnitude = abs(source.value(bits)) / Fraction(2) ** power
    if random is None:
        code = form.round(magnitude)
    else:
        code = form.round(magnitude, "rz")
        low, high = form.value(code), form.value(code + 1)
        code += (magnitude - low) / (high - low) + Fraction(random, 1 << _RANDOM.get(kind, 8)) >= 1
    return sign | (code if code <= largest else limit)


def _pack(kind: str, codes: list[int]) -> int:
    """The first one highest."""
    return sum(code << _BITS[kind] * n for n, code in enumerate(reversed(codes)))


def _to_singles(operation: str, kind: str, count: int, relu: bool, finite: bool, random: bool) -> Form:
    names = [f"%{n}" for n in _NAMES[:count]]
    sources = f"{{{', '.join(names)}}}" if count == 4 else ", ".join(names)

    def define(*o: int) -> int:
        drawn = [o[-1] >> 32 // count * n for n in reversed(range(count))] if random else [None] * count
        mask = (1 << _RANDOM.get(kind, 8)) - 1
        return _pack(
            kind,
            [
                _encode(kind, F32, a, relu, finite, None if r is None else r & mask)
                for a, r in zip(o[:count], drawn, strict=True)
            ],
        )

    inputs = ("f32",) * count + (("b32",) if random else ())
    bits = _BITS[kind] * count
    number = {"f16": F16, "bf16": BF16}.get(kind)
    output = f"{kind}x2" if number else f"b{bits}"
    more = f", %{'abcde'[count]}" if random else ""
    if bits == 8:
        body = f"{operation} %n, {sources}{more}; mov.b16 %x, {{%n, %n}};"
        return Form(operation, body, inputs, ("b16",), lambda *o: 0x101 * define(*o), extra=".reg .b8 %n;")
    return Form(operation, f"{operation} %x, {sources}{more};", inputs, (output,), define, number=number)


def _from_pair(operation: str, kind: str, source: Format, relu: bool) -> Form:
    def define(a: int) -> int:
        return _pack(kind, [_encode(kind, source, half, relu, True) for half in (a >> 16, a & 0xFFFF)])

    pair = "f16x2" if source == F16 else "bf16x2"
    if _BITS[kind] == 4:
        body = f"{operation} %n, %a; mov.b16 %x, {{%n, %n}};"
        return Form(operation, body, (pair,), ("b16",), lambda a: 0x101 * define(a), extra=".reg .b8 %n;")
    return Form(operation, f"{operation} %x, %a;", (pair,), ("b16",), define)


def _decoded(operation: str, kind: str, target: str, relu: bool, scaled: bool) -> Form:
    half, bits = (F16 if target == "f16x2" else BF16), _BITS[kind]

    def one(code: int, factor: int) -> int:
        magnitude = code & (_SIGN[kind] - 1)
        largest = _SHIFTED[kind][2]
        if (kind in ("e4m3", "e5m2") and magnitude > largest + (kind == "e5m2")) or factor == 255:
            return half.nan
        negative = code & _SIGN[kind]
        if relu and negative:
            return 0
        if magnitude > largest:
            return half.infinity | (half.sign if negative else 0)
        return half.round(_value(kind, code) * Fraction(2) ** (factor - 127), "rn", negative)

    def define(a: int, b: int = 127 | 127 << 8) -> int:
        mask = (1 << bits) - 1
        return one(a >> bits & mask, b >> 8) << 16 | one(a & mask, b & 255)

    inputs = ("b16", "b16") if scaled else ("b16",)
    more = ", %b" if scaled else ""
    if bits == 4:
        body = f"mov.b16 {{%n, %m}}, %a; {operation} %x, %n{more};"
        extra = ".reg .b8 %n; .reg .b8 %m;"
        return Form(operation, body, inputs, (target,), lambda a, *b: define(a & 255, *b), number=half, extra=extra)
    return Form(operation, f"{operation} %x, %a{more};", inputs, (target,), define, number=half)


def _exponent(bits: int, up: bool, finite: bool) -> int:
    """The code of a power of two: of a magnitude, as an f32."""
    if F32.is_nan(bits):
        return 255
    if F32.is_infinite(bits):
        return 254 if finite else 255
    magnitude = abs(F32.value(bits))
    code = 0
    while Fraction(2) ** (code - 127) <= magnitude and code < 255:
        code += 1
    power = max(code - 1, 0)  # of the last one that is not above it
    exact = magnitude <= Fraction(2) ** (power - 127)
    power += up and not exact
    return min(power, 254) if finite else power


def _powers(operation: str, source: str, up: bool, finite: bool) -> Form:
    if source == "f32":
        define: Definition = lambda a, b: _exponent(a, up, finite) << 8 | _exponent(b, up, finite)  # noqa: E731
        return Form(operation, f"{operation} %x, %a, %b;", ("f32", "f32"), ("b16",), define)

    def pair(a: int) -> int:
        return _exponent(a & 0xFFFF0000, up, finite) << 8 | _exponent(a << 16 & 0xFFFFFFFF, up, finite)

    return Form(operation, f"{operation} %x, %a;", ("bf16x2",), ("b16",), pair)


def narrow_form(operation: str) -> Form | None:
    """The form of such a conversion; None for one of another kind."""
    _, *parts = operation.split(".")
    target, source = parts[-2:]
    relu, finite, random = ("relu" in parts), ("satfinite" in parts), ("rs" in parts)
    kind, _, count = target.rpartition("x")
    if source == "ue8m0x2":
        one = lambda code: BF16.nan if code == 255 else BF16.round(Fraction(2) ** (code - 127))  # noqa: E731
        define: Definition = lambda a: one(a >> 8) << 16 | one(a & 255)  # noqa: E731
        return Form(operation, f"{operation} %x, %a;", ("b16",), ("bf16x2",), define, number=BF16)
    if target == "ue8m0x2":
        return _powers(operation, source, "rp" in parts, finite)
    if source[:-2] in _BITS and source.startswith("e") and (target == "bf16x2" or source[:4] not in ("e4m3", "e5m2")):
        return _decoded(operation, source[:-2], target, relu, "scaled::n2::ue8m0" in parts)
    if random or kind in ("e2m1", "e2m3", "e3m2"):
        if source == "f32":
            return _to_singles(operation, kind, int(count), relu, finite, random)
        return _from_pair(operation, kind, F16 if source == "f16x2" else BF16, relu)
    return _from_pair(operation, kind, BF16, relu) if kind in _BITS and source == "bf16x2" and kind[0] == "e" else None
