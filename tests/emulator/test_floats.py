"""Floating point arithmetic, comparison and conversion, bit for bit against exact rationals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import softfloat
from emulation import Array, apply
from softfloat import BF16, F16, F32, F64, FORMATS, Format

RNG = np.random.default_rng(777)
REGISTER = {"f16": "b16", "bf16": "b16", "f32": "f32", "f64": "f64"}


def edges(form: Format) -> list[int]:
    one = form.bias << form.fraction
    positive = [
        0,
        1,
        2,
        form.smallest_normal - 1,
        form.smallest_normal,
        form.smallest_normal + 1,
        one - 1,
        one,
        one + 1,
        one + (1 << form.fraction),
        one + (3 << (form.fraction - 1)),
        form.largest,
        form.infinity,
        form.nan,
    ]
    return positive + [bits | form.sign for bits in positive]


def randoms(form: Format, count: int) -> list[int]:
    """Random bits, half of them near one so that results round instead of overflowing."""
    wild = [int(n) for n in RNG.integers(0, 2**63, count // 2)]
    wild = [(n << 1 | n & 1) & ((1 << form.bits) - 1) for n in wild]
    near = [form.round(Fraction(float(x))) for x in RNG.standard_normal(count - len(wild))]
    return wild + near


def numbers(form: Format, operands: int, count: int = 500) -> list[Array]:
    dtype = f"u{form.bits // 8}"
    special = edges(form)
    first = np.repeat(special, len(special) if operands > 1 else 1)
    columns = [first]
    if operands > 1:
        columns.append(np.tile(special, len(special)))
    if operands > 2:
        columns.append(RNG.choice(special, len(first)))
    return [
        np.concatenate([np.array(column, dtype=np.uint64), np.array(randoms(form, count), dtype=np.uint64)]).astype(
            dtype
        )
        for column in columns
    ]


def check(
    instruction: str,
    form: Format,
    reference: Callable[..., int],
    count: int,
    *,
    register: str | None = None,
    arrays: list[Array] | None = None,
) -> None:
    """Element by element, any NaN being as good as any other; also with the result in place of the first operand."""
    arrays = arrays or numbers(form, count)
    kind = register or next(REGISTER[name] for name, known in FORMATS.items() if known == form)
    names = ", ".join(f"%{n}" for n in "abc"[:count])
    expected = np.array([reference(*row) for row in zip(*(a.tolist() for a in arrays), strict=True)], np.uint64)
    expected = expected.astype(arrays[0].dtype)
    inputs = [(kind, a) for a in arrays]
    in_place = f"{instruction} %a, {names}; mov.b{form.bits} %x, %a;"
    for body in (f"{instruction} %x, {names};", in_place):
        found = apply(body, inputs, kind).view(expected.dtype)
        both_nan = np.array(
            [form.is_nan(f) and form.is_nan(e) for f, e in zip(found.tolist(), expected.tolist(), strict=True)]
        )
        wrong = np.flatnonzero((found != expected) & ~both_nan)
        assert not len(wrong), [
            f"{body} of {[hex(a[i]) for a in arrays]} is {found[i]:#x}, not {expected[i]:#x}" for i in wrong[:5]
        ]


def saturating(form: Format, reference: Callable[..., int]) -> Callable[..., int]:
    one = form.bias << form.fraction

    def clamp(*operands: int) -> int:
        result = reference(*operands)
        if form.is_nan(result) or result & form.sign:
            return 0
        return min(result, one)

    return clamp


@pytest.mark.parametrize("type_name", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_arithmetic_in_every_rounding(type_name: str, mode: str) -> None:
    form = FORMATS[type_name]
    for name, reference, count in (
        ("add", softfloat.add, 2),
        ("sub", softfloat.subtract, 2),
        ("mul", softfloat.multiply, 2),
        ("fma", softfloat.fma, 3),
        ("div", softfloat.divide, 2),
    ):
        check(f"{name}.{mode}.{type_name}", form, lambda *o, r=reference: r(form, *o, mode), count)
    check(f"sqrt.{mode}.{type_name}", form, lambda a: softfloat.square_root(form, a, mode), 1)
    one = form.bias << form.fraction
    check(f"rcp.{mode}.{type_name}", form, lambda a: softfloat.divide(form, one, a, mode), 1)


def test_rounding_to_nearest_is_the_default() -> None:
    check("add.f32", F32, lambda a, b: softfloat.add(F32, a, b), 2)
    check("mul.f64", F64, lambda a, b: softfloat.multiply(F64, a, b), 2)
    check("sub.f32", F32, lambda a, b: softfloat.subtract(F32, a, b), 2)


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma"])
def test_saturation(operation: str) -> None:
    functions = {"add": softfloat.add, "sub": softfloat.subtract, "mul": softfloat.multiply, "fma": softfloat.fma}
    count = 3 if operation == "fma" else 2
    check(f"{operation}.rn.sat.f32", F32, saturating(F32, lambda *o: functions[operation](F32, *o)), count)


@pytest.mark.parametrize("type_name", ["f16", "bf16"])
def test_half_arithmetic_rounds_once(type_name: str) -> None:
    form = FORMATS[type_name]
    for name, reference, count in (
        ("add.rn", softfloat.add, 2),
        ("sub.rn", softfloat.subtract, 2),
        ("mul.rn", softfloat.multiply, 2),
        ("fma.rn", softfloat.fma, 3),
    ):
        check(f"{name}.{type_name}", form, lambda *o, r=reference: r(form, *o), count)
    check(
        f"fma.rn.relu.{type_name}",
        form,
        lambda *o: r if not (r := softfloat.fma(form, *o)) & form.sign or form.is_nan(r) else 0,
        3,
    )


@pytest.mark.parametrize("type_name", ["f16", "bf16"])
def test_packed_half_arithmetic_is_two_halves(type_name: str) -> None:
    form = FORMATS[type_name]
    for name, reference, count in (
        ("add.rn", softfloat.add, 2),
        ("sub.rn", softfloat.subtract, 2),
        ("mul.rn", softfloat.multiply, 2),
        ("fma.rn", softfloat.fma, 3),
        ("min", softfloat.minimum, 2),
        ("max", softfloat.maximum, 2),
    ):
        lows, highs = numbers(form, count), [a[::-1] for a in numbers(form, count)]
        inputs = [("b32", h.astype(np.uint32) << 16 | low) for low, h in zip(lows, highs, strict=True)]
        names = ", ".join(f"%{n}" for n in "abc"[:count])
        found = apply(f"{name}.{type_name}x2 %x, {names};", inputs, "b32")
        for arrays, half in ((lows, found & 0xFFFF), (highs, found >> 16)):
            for *operands, bits in zip(*(a.tolist() for a in arrays), half.tolist(), strict=True):
                expected = reference(form, *operands)
                assert bits == expected or (form.is_nan(bits) and form.is_nan(expected)), (
                    name,
                    operands,
                    bits,
                    expected,
                )


def test_saturation_of_halves() -> None:
    check("mul.rn.sat.f16", F16, saturating(F16, lambda a, b: softfloat.multiply(F16, a, b)), 2)


@pytest.mark.parametrize("type_name", ["f16", "bf16", "f32", "f64"])
def test_minimum_and_maximum(type_name: str) -> None:
    form = FORMATS[type_name]
    check(f"min.{type_name}", form, lambda a, b: softfloat.minimum(form, a, b), 2)
    check(f"max.{type_name}", form, lambda a, b: softfloat.maximum(form, a, b), 2)
    if type_name != "f64":
        for name, reference in (("min", softfloat.minimum), ("max", softfloat.maximum)):
            check(
                f"{name}.NaN.{type_name}",
                form,
                lambda a, b, r=reference: form.nan if form.is_nan(a) or form.is_nan(b) else r(form, a, b),
                2,
            )


def test_minimum_with_the_sign_of_a_product() -> None:
    def reference(a: int, b: int) -> int:
        if F32.is_nan(a) or F32.is_nan(b):
            return F32.nan
        return softfloat.minimum(F32, a & ~F32.sign, b & ~F32.sign) | (a ^ b) & F32.sign

    arrays = numbers(F32, 2)
    keep = np.array(
        [not F32.is_nan(a) and not F32.is_nan(b) for a, b in zip(*(x.tolist() for x in arrays), strict=True)]
    )
    check("min.xorsign.abs.f32", F32, reference, 2, arrays=[a[keep] for a in arrays])


@pytest.mark.parametrize("type_name", ["f16", "bf16", "f32", "f64"])
def test_absolute_value_and_negation(type_name: str) -> None:
    form = FORMATS[type_name]
    check(f"abs.{type_name}", form, lambda a: a & ~form.sign, 1)
    check(f"neg.{type_name}", form, lambda a: a ^ form.sign, 1)
    if type_name in ("f32", "f64"):
        check(f"copysign.{type_name}", form, lambda a, b: b & ~form.sign | a & form.sign, 2)


ORDER: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def number(form: Format, bits: int) -> Fraction | float:
    if form.is_infinite(bits):
        return float("-inf") if bits & form.sign else float("inf")
    return form.value(bits)


@pytest.mark.parametrize("type_name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", [*ORDER, *(f"{n}u" for n in ORDER), "num", "nan"])
def test_comparisons(name: str, type_name: str) -> None:
    form = FORMATS[type_name]
    arrays = numbers(form, 2, 100)

    def reference(a: int, b: int) -> bool:
        unordered = form.is_nan(a) or form.is_nan(b)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u")
        return ORDER[name.removesuffix("u")](number(form, a), number(form, b))  # type: ignore[arg-type]

    expected = [reference(a, b) for a, b in zip(*(x.tolist() for x in arrays), strict=True)]
    inputs = [(REGISTER[type_name], a) for a in arrays]
    found = apply(f"setp.{name}.{type_name} %x|%y, %a, %b;", inputs, ["pred", "pred"])
    assert found[0].tolist() == expected
    assert found[1].tolist() == [not e for e in expected]


def test_comparison_that_flushes() -> None:
    tiny = np.array([1, 1 | 1 << 31, 0], np.uint32)
    zero = np.zeros(3, np.uint32)
    assert apply("setp.eq.ftz.f32 %x, %a, %b;", [("f32", tiny), ("f32", zero)], "pred").all()
    assert apply("setp.eq.f32 %x, %a, %b;", [("f32", tiny), ("f32", zero)], "pred").tolist() == [False, False, True]


def test_kinds_of_numbers() -> None:
    (array,) = numbers(F32, 1)
    tests: dict[str, Callable[[int], bool]] = {
        "finite": lambda a: not F32.is_nan(a) and not F32.is_infinite(a),
        "infinite": F32.is_infinite,
        "number": lambda a: not F32.is_nan(a),
        "notanumber": F32.is_nan,
        "subnormal": F32.is_subnormal,
        "normal": lambda a: a & ~F32.sign < F32.infinity and not F32.is_subnormal(a),  # zeros are
    }
    for name, reference in tests.items():
        found = apply(f"testp.{name}.f32 %x, %a;", [("f32", array)], "pred")
        assert found.tolist() == [reference(a) for a in array.tolist()], name


# -------------------------------------------------------------------------------------------------------- conversions


@pytest.mark.parametrize(
    ("source", "target", "mode"),
    [
        ("f64", "f32", "rn"),
        ("f64", "f32", "rz"),
        ("f64", "f32", "rm"),
        ("f64", "f32", "rp"),
        ("f32", "f16", "rn"),
        ("f32", "f16", "rz"),
        ("f32", "bf16", "rn"),
        ("f32", "bf16", "rz"),
        ("f64", "f16", "rn"),
        ("f32", "f64", ""),
        ("f16", "f32", ""),
        ("f16", "f64", ""),
        ("bf16", "f32", ""),
    ],
)
def test_conversion_between_floats(source: str, target: str, mode: str) -> None:
    a, b = FORMATS[source], FORMATS[target]
    (array,) = numbers(a, 1, 800)
    opcode = f"cvt.{mode}.{target}.{source}" if mode else f"cvt.{target}.{source}"
    found = apply(f"{opcode} %x, %a;", [(REGISTER[source], array)], REGISTER[target]).view(f"u{b.bits // 8}")
    for bits, result in zip(array.tolist(), found.tolist(), strict=True):
        expected = softfloat.convert(a, b, bits, mode or "rn")
        assert result == expected or (b.is_nan(result) and b.is_nan(expected)), (hex(bits), hex(result), hex(expected))


@pytest.mark.parametrize(("pair", "half"), [("f16x2", F16), ("bf16x2", BF16)])
def test_conversion_of_two_floats_puts_the_first_into_the_upper_half(pair: str, half: Format) -> None:
    upper, lower = numbers(F32, 2)
    found = apply(f"cvt.rn.{pair}.f32 %x, %a, %b;", [("f32", upper), ("f32", lower)], "b32")
    for source, result in ((upper, found >> 16), (lower, found & 0xFFFF)):
        for bits, value in zip(source.tolist(), result.tolist(), strict=True):
            expected = softfloat.convert(F32, half, bits)
            assert value == expected or (half.is_nan(value) and half.is_nan(expected))


INTEGER_MODES = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def whole(value: Fraction, mode: str) -> int:
    floor = value.numerator // value.denominator
    rest = value - floor
    if mode == "rm" or rest == 0:
        return floor
    if mode == "rp":
        return floor + 1
    if mode == "rz":
        return floor + (value < 0)
    return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor & 1))


@pytest.mark.parametrize("source", ["f32", "f64", "f16"])
@pytest.mark.parametrize("target", ["s32", "u32", "s64", "u64", "s16", "u16"])
@pytest.mark.parametrize("mode", INTEGER_MODES)
def test_float_to_integer_clamps(source: str, target: str, mode: str) -> None:
    form, bits = FORMATS[source], int(target[1:])
    dtype = f"u{form.bits // 8}"
    (array,) = numbers(form, 1, 200)
    halves = [form.round(Fraction(n, 2)) for n in range(-9, 10)]
    limits = [form.round(Fraction(s * 2**p)) for p in (15, 16, 31, 32, 63, 64) for s in (1, -1)]
    limits = [bits for bits in limits if not form.is_infinite(bits)]
    array = np.concatenate([array, np.array(halves + limits, dtype), np.array([b - 1 for b in limits], dtype)])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    keep = [not form.is_nan(b) for b in array.tolist()]  # what a NaN becomes is checked below
    array = array[keep]

    def reference(value: int) -> int:
        if form.is_infinite(value):
            return low if value & form.sign else high
        return min(max(whole(form.value(value), INTEGER_MODES[mode]), low), high)

    found = apply(f"cvt.{mode}.{target}.{source} %x, %a;", [(REGISTER[source], array)], target)
    assert found.tolist() == [reference(v) for v in array.tolist()]


def test_nan_becomes_zero_as_a_32_bit_integer() -> None:
    nan = np.array([np.nan], np.float32)
    assert apply("cvt.rni.s32.f32 %x, %a;", [("f32", nan)], "s32")[0] == 0
    assert apply("cvt.rni.u32.f32 %x, %a;", [("f32", nan)], "u32")[0] == 0


@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64", "s16", "u8"])
@pytest.mark.parametrize("target", ["f32", "f64", "f16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integer_to_float_rounds(source: str, target: str, mode: str) -> None:
    form, bits = FORMATS[target], int(source[1:])
    raw = [0, 1, 2, 2**24 + 1, 2**24 + 3, 2**53 + 1, 2**53 + 3, 2**31, 2**63, 65504, 65519, 65520, 2049, 2051]
    raw += [-n for n in raw] + [
        int(n) >> int(s) for n, s in zip(RNG.integers(0, 2**63, 200), RNG.integers(0, 63, 200), strict=True)
    ]
    array = np.array([n & ((1 << bits) - 1) for n in raw], np.uint64).astype(f"u{bits // 8}")
    typed = array.view(f"{'i' if source[0] == 's' else 'u'}{bits // 8}")
    found = apply(f"cvt.{mode}.{target}.{source} %x, %a;", [(source, array)], REGISTER[target])
    expected = [form.round(Fraction(v), mode) for v in typed.tolist()]
    assert found.view(f"u{form.bits // 8}").tolist() == expected


@pytest.mark.parametrize("mode", INTEGER_MODES)
@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_rounding_to_whole_numbers_stays_a_float(type_name: str, mode: str) -> None:
    form = FORMATS[type_name]

    def reference(a: int) -> int:
        if form.is_nan(a) or form.is_infinite(a):
            return a
        return form.round(Fraction(whole(form.value(a), INTEGER_MODES[mode])), "rn", a & form.sign)

    (array,) = numbers(form, 1)
    halves = np.array([form.round(Fraction(n, 2)) for n in range(-9, 10)], array.dtype)
    check(f"cvt.{mode}.{type_name}.{type_name}", form, reference, 1, arrays=[np.concatenate([array, halves])])


def test_conversion_that_saturates_or_flushes() -> None:
    check("cvt.sat.f32.f32", F32, saturating(F32, lambda a: a), 1)
    check("cvt.ftz.f32.f32", F32, F32.flushed, 1)


def test_conversion_to_tf32_keeps_ten_bits() -> None:
    (array,) = numbers(F32, 1)
    found = apply("cvt.rna.tf32.f32 %x, %a;", [("f32", array)], "b32")
    for bits, result in zip(array.tolist(), found.tolist(), strict=True):
        if F32.is_nan(bits):
            assert F32.is_nan(result)
        else:
            assert result >> 13 == (bits if F32.is_infinite(bits) else bits + 0x1000) >> 13, hex(bits)


@pytest.mark.parametrize(
    ("type_name", "dtype"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)]
)
def test_conversion_to_eight_bits_saturates(type_name: str, dtype: type) -> None:
    largest = float(ml_dtypes.finfo(dtype).max)
    values = np.concatenate(
        [RNG.standard_normal(300) * 10, [0, -0.0, largest, 2 * largest, -1e30, np.inf, -np.inf, 2**-9, 2**-17]]
    )
    upper = values.astype(np.float32)
    lower = upper[::-1].copy()
    found = apply(f"cvt.rn.satfinite.{type_name}.f32 %x, %a, %b;", [("f32", upper), ("f32", lower)], "b16")
    for source, result in ((upper, found >> 8), (lower, found & 255)):
        expected = np.clip(source, -largest, largest).astype(dtype).view(np.uint8)
        assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    ("type_name", "dtype"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)]
)
def test_conversion_from_eight_bits_is_exact(type_name: str, dtype: type) -> None:
    codes = np.arange(256, dtype=np.uint16)
    pairs = codes << 8 | codes[::-1]
    found = apply(f"cvt.rn.f16x2.{type_name} %x, %a;", [("b16", pairs)], "b32")
    for code, half in ((codes, found >> 16), (codes[::-1], found & 0xFFFF)):
        expected = code.astype(np.uint8).view(dtype).astype(np.float16)
        assert np.array_equal(half.astype(np.uint16).view(np.float16), expected, equal_nan=True)


# -------------------------------------------------------------------------------------- functions that approximate


@pytest.mark.parametrize(
    ("opcode", "reference", "low", "high"),
    [
        ("rcp.approx.f32", lambda x: 1 / x, 1e-3, 1e3),
        ("sqrt.approx.f32", np.sqrt, 0, 1e6),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), 1e-3, 1e6),
        ("sin.approx.f32", np.sin, -3, 3),
        ("cos.approx.f32", np.cos, -3, 3),
        ("lg2.approx.f32", np.log2, 2, 1e6),
        ("ex2.approx.f32", np.exp2, -20, 20),
        ("tanh.approx.f32", np.tanh, -5, 5),
    ],
)
def test_approximations_are_near(opcode: str, reference: Callable[[Array], Array], low: float, high: float) -> None:
    x = RNG.uniform(low, high, 500).astype(np.float32)
    found = apply(f"{opcode} %x, %a;", [("f32", x)], "f32")
    expected = reference(x.astype(np.float64))
    relative, absolute = (2**-10.9, 0) if "tanh" in opcode else (2**-20, 2**-20)
    assert np.all(np.abs(found - expected) <= relative * np.abs(expected) + absolute)


def test_approximations_at_the_edges() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0], np.float32)

    def found(opcode: str) -> list[str]:
        return [str(v) for v in apply(f"{opcode} %x, %a;", [("f32", x)], "f32")]

    assert found("rcp.approx.f32")[:5] == ["inf", "-inf", "0.0", "-0.0", "nan"]
    assert found("sqrt.approx.f32") == ["0.0", "-0.0", "inf", "nan", "nan", "nan"]
    assert found("rsqrt.approx.f32") == ["inf", "-inf", "0.0", "nan", "nan", "nan"]
    assert found("lg2.approx.f32") == ["-inf", "-inf", "inf", "nan", "nan", "nan"]
    assert found("ex2.approx.f32")[:5] == ["1.0", "1.0", "inf", "0.0", "nan"]
    assert found("sin.approx.f32")[4] == "nan"


def test_approximate_division() -> None:
    a, b = (RNG.uniform(0.5, 100, 500).astype(np.float32) for _ in range(2))
    for opcode in ("div.approx.f32", "div.full.f32", "div.approx.ftz.f32"):
        found = apply(f"{opcode} %x, %a, %b;", [("f32", a), ("f32", b)], "f32")
        assert np.all(np.abs(found / (a.astype(np.float64) / b) - 1) < 2**-21)
