"""Arithmetic on floats, and approximations with their documented errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import softfloat
from form import FLUSHED, PAIRS, TINY, Definition, Form, Near
from softfloat import BF16, FORMATS, Format


def _halves(form: Format, define: Definition) -> Definition:
    """A function of one half of each operand as one of pairs."""
    bits = form.bits
    lower = (1 << bits) - 1
    return lambda *o: define(*(v & lower for v in o)) | define(*(v >> bits for v in o)) << bits


def _one(form: Format) -> int:
    return form.bias << form.fraction


def with_modifiers(
    form: Format, define: Definition, parts: Sequence[str], tiny: Definition | None = None
) -> Definition:
    """With ``.ftz``, ``.sat`` and ``.relu`` around it; ``tiny``: what is flushed, if that is not the result alone."""

    def apply(*o: int) -> int:
        if "ftz" in parts:
            o = tuple(form.flushed(v) for v in o)
        result: int = define(*o)
        if "ftz" in parts:
            result = result & form.sign if tiny and tiny(*o) else form.flushed(result)
        if "sat" in parts:
            result = 0 if form.is_nan(result) or result & form.sign else min(result, _one(form))
        if "relu" in parts and not form.is_nan(result) and result & form.sign:
            result = 0
        return result

    return apply


def when_tiny(form: Format, operation: Callable[[Format], Definition]) -> Definition:
    """Whether a result is below the smallest normal number, in a format whose exponents reach further down."""
    wide = Format(form.bits + 4, form.exponent + 4, form.fraction)
    smallest, define = wide.round(form.value(form.smallest_normal)), operation(wide)
    return lambda *o: define(*o) & ~wide.sign < smallest


def _flushing(base: str, form: Format, mode: str, parts: Sequence[str]) -> dict[str, Definition]:
    """What ``.ftz`` makes of an operation, by each rule of what is flushed."""

    def operation(asked: str) -> Callable[[Format], Definition]:
        def define(wide: Format) -> Definition:
            found = _arithmetic(base, wide, asked, parts)
            assert found
            return lambda *o: found[1](*(softfloat.convert(form, wide, v) for v in o))

        return define

    found = _arithmetic(base, form, mode, parts)
    assert found
    asked = {"before rounding": "rz", "after rounding": mode}
    return {rule: with_modifiers(form, found[1], parts, when_tiny(form, operation(m))) for rule, m in asked.items()}


def _extreme(form: Format, base: str, parts: Sequence[str]) -> Definition:
    choose = softfloat.minimum if base == "min" else softfloat.maximum

    def define(a: int, b: int) -> int:
        sign = (a ^ b) & form.sign
        if "xorsign" in parts:
            a, b = a & ~form.sign, b & ~form.sign
        if "NaN" in parts and (form.is_nan(a) or form.is_nan(b)):
            return form.nan
        result = choose(form, a, b)
        return result | sign if "xorsign" in parts and not form.is_nan(result) else result

    return define


ROUNDINGS = ("rn", "rz", "rm", "rp")


def _arithmetic(base: str, form: Format, mode: str, parts: Sequence[str]) -> tuple[int, Definition] | None:
    """Number of operands and definition of what is exact or rounded once."""
    one = _one(form)
    known: dict[str, tuple[int, Definition]] = {
        "add": (2, lambda a, b: softfloat.add(form, a, b, mode)),
        "sub": (2, lambda a, b: softfloat.subtract(form, a, b, mode)),
        "mul": (2, lambda a, b: softfloat.multiply(form, a, b, mode)),
        "fma": (3, lambda a, b, c: softfloat.fma(form, a, b, c, mode)),
        "div": (2, lambda a, b: softfloat.divide(form, a, b, mode)),
        "rcp": (1, lambda a: softfloat.divide(form, one, a, mode)),
        "sqrt": (1, lambda a: softfloat.square_root(form, a, mode)),
        "min": (2, _extreme(form, base, parts)),
        "max": (2, _extreme(form, base, parts)),
        "neg": (1, lambda a: a ^ form.sign),
        "abs": (1, lambda a: a & ~form.sign),
        "copysign": (2, lambda a, b: b & ~form.sign | a & form.sign),
    }
    return known.get(base)


def float_form(operation: str) -> Form | None:
    base, *parts = operation.split(".")
    kind = parts[-1] if parts else ""
    if (kind not in FORMATS and kind not in PAIRS) or base in ("cvt", "set", "setp", "selp", "slct", "mov"):
        return None
    form = FORMATS.get(kind) or PAIRS[kind]
    mode = next((p for p in parts if p in ROUNDINGS), "rn")
    number: Format | None = form
    near = None
    flushes: dict[str, Definition] = {}
    if "approx" in parts or "full" in parts:
        count, define, near = _approximation(base, form, parts)
    elif base == "testp":
        return Form(operation, f"{operation} %x, %a;", (kind,), ("pred",), _number_test(form, parts[0]))
    elif found := _arithmetic(base, form, mode, parts):
        count, define = found
        if "ftz" in parts and kind in FLUSHED:
            flushes = _flushing(base, form, mode, parts)
            define = flushes[TINY]
        else:
            define = with_modifiers(form, define, parts)
    else:
        return None
    names = ", ".join(f"%{n}" for n in "abc"[:count])
    if kind in PAIRS:
        define = _halves(form, define)
        flushes = {rule: _halves(form, by_rule) for rule, by_rule in flushes.items()}
    body = f"{operation} %x, {names};"
    return Form(operation, body, (kind,) * count, (kind,), define, number=number, near=near, flushes=flushes)


def _number_test(form: Format, name: str) -> Definition:
    tests: dict[str, Callable[[int], bool]] = {
        "finite": lambda a: a & ~form.sign < form.infinity,
        "infinite": form.is_infinite,
        "number": lambda a: not form.is_nan(a),
        "notanumber": form.is_nan,
        "subnormal": form.is_subnormal,
        "normal": lambda a: a & ~form.sign < form.infinity and not form.is_subnormal(a),  # zeros are
    }
    return lambda a: int(tests[name](a))


# ------------------------------------------------------------------------------------------------------ approximations


def _to_float(form: Format, bits: int) -> float:
    if form.is_nan(bits):
        return math.nan
    if form.is_infinite(bits):
        return -math.inf if bits & form.sign else math.inf
    value = float(form.value(bits))
    return -0.0 if value == 0 and bits & form.sign else value


def _from_float(form: Format, value: float) -> int:
    if math.isnan(value):
        return form.nan
    sign = form.sign if math.copysign(1, value) < 0 else 0
    if math.isinf(value):
        return sign | form.infinity
    return form.round(Fraction(value), "rn", sign)


def _guarded(function: Callable[[float], float]) -> Callable[[float], float]:
    def apply(x: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(np.float64(x)))

    return apply


_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "rcp": _guarded(lambda x: 1 / x),
    "sqrt": _guarded(np.sqrt),
    "rsqrt": _guarded(lambda x: 1 / np.sqrt(x)),
    "sin": _guarded(np.sin),
    "cos": _guarded(np.cos),
    "lg2": _guarded(np.log2),
    "ex2": _guarded(np.exp2),
    "tanh": _guarded(np.tanh),
}

# errors that the PTX manual gives, by operation and format
_ERRORS: dict[tuple[str, int], dict[str, float]] = {
    ("rcp", 32): {"ulp": 1},
    ("sqrt", 32): {"relative": 2.0**-23},
    ("rsqrt", 32): {"relative": 2.0**-22.9},
    ("sin", 32): {"absolute": 2.0**-20.5, "high": 2 * math.pi},
    ("cos", 32): {"absolute": 2.0**-20.5, "high": 2 * math.pi},
    ("lg2", 32): {"absolute": 2.0**-22, "relative": 2.0**-22},
    ("ex2", 32): {"ulp": 2},
    ("tanh", 32): {"relative": 2.0**-11},
    ("div", 32): {"ulp": 2, "low": 2.0**-126, "high": 2.0**126},
    ("rcp", 64): {"relative": 2.0**-20},
    ("rsqrt", 64): {"relative": 2.0**-20},
    ("ex2", 16): {"relative": 2.0**-9.9, "absolute": 2.0**-24},  # subnormal results lose their last bit
    ("tanh", 16): {"absolute": 2.0**-10.987},
}
_BFLOAT_ERRORS = {"ex2": {"relative": 2.0**-7}, "tanh": {"absolute": 2.0**-8}}


def _approximation(base: str, form: Format, parts: Sequence[str]) -> tuple[int, Definition, Near]:
    near = Near(form, **(_BFLOAT_ERRORS[base] if form == BF16 else _ERRORS[base, form.bits]))
    if base == "div":
        return 2, with_modifiers(form, lambda a, b: softfloat.divide(form, a, b), parts), near

    def define(a: int) -> int:
        return _from_float(form, _FUNCTIONS[base](_to_float(form, a)))

    return 1, with_modifiers(form, define, parts), near
