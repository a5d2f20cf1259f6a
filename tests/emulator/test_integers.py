"""Integer and bit operations against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulation import Array, apply

EDGES = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100, 255]
RNG = np.random.default_rng(12345)


def bits_of(type_name: str) -> int:
    return int(type_name.lstrip("usbf"))


def values(type_name: str, count: int = 60) -> Array:
    """Edge values, their negatives and complements, and random numbers, as bit patterns."""
    bits = bits_of(type_name)
    mask = (1 << bits) - 1
    low = [edge & mask for edge in EDGES]
    found = [*low, *(-edge & mask for edge in low), 1 << (bits - 1), mask >> 1, (mask >> 1) - 1]
    found += [
        int(n) >> int(s) & mask for n, s in zip(RNG.integers(0, 2**63, count), RNG.integers(0, 60, count), strict=True)
    ]
    return np.array(found, dtype=f"u{bits // 8}")


def operands(*types: str, limit: int = 1200) -> list[Array]:
    """Arrays in which every pair of values of the first two meets; the others are random picks."""
    columns = [values(t) for t in types]
    first = np.repeat(columns[0], len(columns[1]) if len(types) > 1 else 1)
    arrays = [first]
    if len(types) > 1:
        arrays.append(np.tile(columns[1], len(columns[0])))
    arrays += [RNG.choice(column, len(first)) for column in columns[2:]]
    pick = RNG.permutation(len(first))[:limit]
    return [array[pick] for array in arrays]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def reading(type_name: str) -> Callable[[int], int]:
    bits = bits_of(type_name)
    return (lambda v: signed(v, bits)) if type_name[0] == "s" else lambda v: v


def check(
    instruction: str, types: list[str], result: str, reference: Callable[..., int], arrays: list[Array] | None = None
) -> None:
    """The instruction on arrays against a function of Python integers, its result also in place of an operand."""
    arrays = arrays if arrays is not None else operands(*types)
    read = [reading(t) for t in types]
    mask = (1 << bits_of(result)) - 1
    rows = zip(*(a.tolist() for a in arrays), strict=True)
    expected = np.array([reference(*(r(v) for r, v in zip(read, row, strict=True))) & mask for row in rows], np.uint64)
    expected = expected.astype(f"u{bits_of(result) // 8}")
    inputs = list(zip(types, arrays, strict=True))
    names = ", ".join(f"%{n}" for n in "abcdef"[: len(types)])
    given = instruction if "%" in instruction else f"{instruction} %x, {names};"
    found = apply(given, inputs, result).view(expected.dtype)
    wrong = np.flatnonzero(found != expected)
    assert not len(wrong), [
        f"{given} of {[hex(a[i]) for a in arrays]} is {found[i]:#x}, not {expected[i]:#x}" for i in wrong[:5]
    ]
    for place, type_name in enumerate(types):
        if bits_of(type_name) == bits_of(result) and "%" not in instruction:
            name = "abcdef"[place]
            body = f"{instruction} %{name}, {names}; mov.b{bits_of(result)} %x, %{name};"
            assert np.array_equal(apply(body, inputs, result).view(expected.dtype), expected), (
                f"{instruction} in place of {name}"
            )


def truncated_division(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGERS = ["u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize("type_name", INTEGERS)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("min", min),
        ("max", max),
    ],
)
def test_arithmetic(name: str, type_name: str, reference: Callable[[int, int], int]) -> None:
    check(f"{name}.{type_name}", [type_name] * 2, type_name, reference)


@pytest.mark.parametrize("type_name", INTEGERS)
def test_high_half_of_a_product(type_name: str) -> None:
    check(f"mul.hi.{type_name}", [type_name] * 2, type_name, lambda a, b: a * b >> bits_of(type_name))


@pytest.mark.parametrize("type_name", INTEGERS)
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_multiply_add(type_name: str, half: str) -> None:
    shift = bits_of(type_name) if half == "hi" else 0
    check(f"mad.{half}.{type_name}", [type_name] * 3, type_name, lambda a, b, c: (a * b >> shift) + c)


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32"])
def test_wide_products(type_name: str) -> None:
    wide = f"{type_name[0]}{2 * bits_of(type_name)}"
    check(f"mul.wide.{type_name}", [type_name] * 2, wide, lambda a, b: a * b)
    check(f"mad.wide.{type_name}", [type_name, type_name, wide], wide, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("type_name", INTEGERS)
def test_division_truncates(type_name: str) -> None:
    arrays = operands(type_name, type_name)
    keep = arrays[1] != 0
    lowest = 1 << (bits_of(type_name) - 1)
    if type_name[0] == "s":  # the one quotient that does not fit
        keep &= ~((arrays[0] == lowest) & (arrays[1] == (1 << bits_of(type_name)) - 1))
    arrays = [a[keep] for a in arrays]
    check(f"div.{type_name}", [type_name] * 2, type_name, truncated_division, arrays)
    check(f"rem.{type_name}", [type_name] * 2, type_name, lambda a, b: a - b * truncated_division(a, b), arrays)


@pytest.mark.parametrize("type_name", ["s16", "s32", "s64"])
def test_absolute_value_and_negation(type_name: str) -> None:
    arrays = operands(type_name)
    check(f"abs.{type_name}", [type_name], type_name, abs, arrays)
    check(f"neg.{type_name}", [type_name], type_name, lambda a: -a, arrays)


@pytest.mark.parametrize("type_name", ["u32", "s32"])
def test_sum_of_absolute_differences(type_name: str) -> None:
    check(f"sad.{type_name}", [type_name] * 3, type_name, lambda a, b, c: abs(a - b) + c)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_products(kind: str) -> None:
    def low(v: int) -> int:
        return signed(v & 0xFFFFFF, 24) if kind == "s32" else v & 0xFFFFFF

    check(f"mul24.lo.{kind}", [kind] * 2, kind, lambda a, b: low(a) * low(b))
    check(f"mul24.hi.{kind}", [kind] * 2, kind, lambda a, b: low(a) * low(b) >> 16)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int) -> None:
    kind = f"b{bits}"
    check(f"and.{kind}", [kind] * 2, kind, lambda a, b: a & b)
    check(f"or.{kind}", [kind] * 2, kind, lambda a, b: a | b)
    check(f"xor.{kind}", [kind] * 2, kind, lambda a, b: a ^ b)
    check(f"not.{kind}", [kind], kind, lambda a: ~a)
    check(f"cnot.{kind}", [kind], kind, lambda a: int(a == 0))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp_their_count(bits: int) -> None:
    unsigned, number = f"u{bits}", f"s{bits}"
    check(f"shl.b{bits}", [f"b{bits}", "u32"], f"b{bits}", lambda a, n: a << min(n, bits))
    check(f"shr.{unsigned}", [unsigned, "u32"], unsigned, lambda a, n: a >> min(n, bits))
    check(f"shr.b{bits}", [f"b{bits}", "u32"], f"b{bits}", lambda a, n: a >> min(n, bits))
    check(f"shr.{number}", [number, "u32"], number, lambda a, n: a >> min(n, bits))


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts(mode: str) -> None:
    def count(n: int) -> int:
        return min(n, 32) if mode == "clamp" else n & 31

    check(f"shf.l.{mode}.b32", ["b32", "b32", "u32"], "b32", lambda a, b, n: ((b << 32 | a) << count(n)) >> 32)
    check(f"shf.r.{mode}.b32", ["b32", "b32", "u32"], "b32", lambda a, b, n: (b << 32 | a) >> count(n))


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_bits(bits: int) -> None:
    kind = f"b{bits}"
    check(f"popc.{kind}", [kind], "u32", lambda a: a.bit_count())
    check(f"clz.{kind}", [kind], "u32", lambda a: bits - a.bit_length())
    check(f"brev.{kind}", [kind], kind, lambda a: int(f"{a:0{bits}b}"[::-1], 2))


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
def test_position_of_the_leading_bit(type_name: str) -> None:
    bits = bits_of(type_name)

    def position(a: int) -> int:
        return ((~a if a < 0 else a).bit_length() - 1) & 0xFFFFFFFF

    def shift(a: int) -> int:
        return 0xFFFFFFFF if position(a) == 0xFFFFFFFF else bits - 1 - position(a)

    check(f"bfind.{type_name}", [type_name], "u32", position)
    check(f"bfind.shiftamt.{type_name}", [type_name], "u32", shift)


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(type_name: str) -> None:
    bits = bits_of(type_name)

    def extract(a: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        raw = a & ((1 << bits) - 1)
        if length == 0:
            return 0
        sign = raw >> min(position + length - 1, bits - 1) & 1 if type_name[0] == "s" else 0
        field = raw >> position & ((1 << length) - 1)
        available = max(min(length, bits - position), 0)
        return field | (-1 << available if sign else 0)

    check(f"bfe.{type_name}", [type_name, "u32", "u32"], type_name, extract)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits: int) -> None:
    def insert(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        mask = ((1 << length) - 1) << position & ((1 << bits) - 1)
        return (b & ~mask) | (a << position & mask)

    check(f"bfi.b{bits}", [f"b{bits}", f"b{bits}", "u32", "u32"], f"b{bits}", insert)


def test_byte_permutation() -> None:
    def permute(a: int, b: int, selector: int) -> int:
        data, result = b << 32 | a, 0
        for byte in range(4):
            choice = selector >> 4 * byte & 15
            value = data >> 8 * (choice & 7) & 255
            if choice & 8:
                value = 255 if value & 128 else 0
            result |= value << 8 * byte
        return result

    arrays = operands("b32", "b32", "b32")
    arrays[2] = RNG.integers(0, 2**16, len(arrays[0])).astype(np.uint32)
    check("prmt.b32", ["b32"] * 3, "b32", permute, arrays)


@pytest.mark.parametrize("mode", ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_byte_permutation_by_mode(mode: str) -> None:
    tables: dict[str, Callable[[int], list[int]]] = {
        "f4e": lambda s: [s + i for i in range(4)],
        "b4e": lambda s: [(s - i) % 8 for i in range(4)],
        "rc8": lambda s: [s] * 4,
        "ecl": lambda s: [max(i, s) for i in range(4)],
        "ecr": lambda s: [min(i, s) for i in range(4)],
        "rc16": lambda s: [(s & 1 and 2) or 0, (s & 1 and 3) or 1] * 2,
    }

    def permute(a: int, b: int, selector: int) -> int:
        data = b << 32 | a
        return sum((data >> 8 * (byte % 8) & 255) << 8 * i for i, byte in enumerate(tables[mode](selector & 3)))

    check(f"prmt.b32.{mode}", ["b32"] * 3, "b32", permute)


@pytest.mark.parametrize("table", [0, 255, 0xF0, 0xCA, 0x96, 0x1B])
def test_three_input_logic(table: int) -> None:
    def logic(a: int, b: int, c: int) -> int:
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))

    check(f"lop3.b32 %x, %a, %b, %c, {table};", ["b32"] * 3, "b32", logic)


def bytes_of(value: int, is_signed: bool) -> list[int]:
    return [signed(b, 8) if is_signed else b for b in (value & 0xFFFFFFFF).to_bytes(4, "little")]


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
def test_byte_dot_products(a_type: str, b_type: str) -> None:
    c_type = "s32" if "s32" in (a_type, b_type) else "u32"

    def four(a: int, b: int, c: int) -> int:
        return c + sum(x * y for x, y in zip(bytes_of(a, a_type == "s32"), bytes_of(b, b_type == "s32"), strict=True))

    check(f"dp4a.{a_type}.{b_type}", [a_type, b_type, c_type], c_type, four)
    for half, offset in (("lo", 0), ("hi", 2)):

        def two(a: int, b: int, c: int, offset: int = offset) -> int:
            halves = [signed(h, 16) if a_type == "s32" else h for h in (a & 0xFFFF, a >> 16 & 0xFFFF)]
            return c + sum(x * y for x, y in zip(halves, bytes_of(b, b_type == "s32")[offset:], strict=False))

        check(f"dp2a.{half}.{a_type}.{b_type}", [a_type, b_type, c_type], c_type, two)


def test_carries_link_words() -> None:
    def both(body: str, count: int) -> list[Array]:
        arrays = operands(*(["u32"] * count))
        found = apply(body, [("u32", a) for a in arrays], ["u32", "u32"])
        return [*arrays, *found]

    a, b, c, d, low, high = (x.astype(object) for x in both("add.cc.u32 %x, %a, %c; addc.u32 %y, %b, %d;", 4))
    assert (((b << 32 | a) + (d << 32 | c)) % 2**64 == (high << 32 | low)).all()
    a, b, c, d, low, high = (x.astype(object) for x in both("sub.cc.u32 %x, %a, %c; subc.u32 %y, %b, %d;", 4))
    assert (((b << 32 | a) - (d << 32 | c)) % 2**64 == (high << 32 | low)).all()


def test_the_carry_of_a_difference_is_set_where_nothing_is_borrowed() -> None:
    """So it is on the device, and compilers add with it, as in their division of 128-bit integers."""
    arrays = operands("u32", "u32")
    a, b = (array.astype(object) for array in arrays)
    inputs = [("u32", array) for array in arrays]
    carry, borrow = apply(
        "sub.cc.u32 %x, %a, %b; addc.u32 %x, 0, 0; add.cc.u32 %y, %a, %b; subc.u32 %y, 0, 0;", inputs, ["u32", "u32"]
    )
    assert np.array_equal(carry, a >= b) and np.array_equal(borrow, np.where(a + b < 2**32, 2**32 - 1, 0))


@pytest.mark.parametrize("type_name", ["u16x2", "s16x2"])
def test_packed_halves(type_name: str) -> None:
    read = (lambda v: signed(v, 16)) if type_name[0] == "s" else (lambda v: v)

    def packed(reference: Callable[[int, int], int]) -> Callable[[int, int], int]:
        def both(a: int, b: int) -> int:
            low = reference(read(a & 0xFFFF), read(b & 0xFFFF)) & 0xFFFF
            return low | (reference(read(a >> 16), read(b >> 16)) & 0xFFFF) << 16

        return both

    for name, reference in (("add", lambda a, b: a + b), ("min", min), ("max", max)):
        check(f"{name}.{type_name}", ["b32", "b32"], "b32", packed(reference))


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("type_name", INTEGERS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str, type_name: str) -> None:
    arrays = operands(type_name, type_name)
    typed = [a.view(f"{'i' if type_name[0] == 's' else 'u'}{bits_of(type_name) // 8}") for a in arrays]
    expected = COMPARISONS[name](*typed)
    inputs = [(type_name, a) for a in arrays]
    assert np.array_equal(apply(f"setp.{name}.{type_name} %x, %a, %b;", inputs, "pred"), expected)
    both = apply(f"setp.{name}.{type_name} %x|%y, %a, %b;", inputs, ["pred", "pred"])
    assert np.array_equal(both[0], expected)
    assert np.array_equal(both[1], ~expected)


@pytest.mark.parametrize(("name", "type_name"), [("lo", "u32"), ("ls", "u64"), ("hi", "u16"), ("hs", "u32")])
def test_unsigned_comparisons_by_their_other_names(name: str, type_name: str) -> None:
    arrays = operands(type_name, type_name)
    expected = {"lo": arrays[0] < arrays[1], "ls": arrays[0] <= arrays[1], "hi": arrays[0] > arrays[1]}
    expected["hs"] = ~expected["lo"]
    found = apply(f"setp.{name}.{type_name} %x, %a, %b;", [(type_name, a) for a in arrays], "pred")
    assert np.array_equal(found, expected[name])


@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_comparison_joined_with_a_predicate(operation: str) -> None:
    a, b = operands("s32", "s32")
    c = RNG.integers(0, 2, len(a)).astype(bool)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[operation]
    inputs: list[tuple[str, Array]] = [("s32", a), ("s32", b), ("pred", c)]
    less = a.view(np.int32) < b.view(np.int32)
    found = apply(f"setp.lt.{operation}.s32 %x|%y, %a, %b, %c;", inputs, ["pred", "pred"])
    assert np.array_equal(found[0], join(less, c))
    assert np.array_equal(found[1], join(~less, c))
    found = apply(f"setp.lt.{operation}.s32 %x, %a, %b, !%c;", inputs, "pred")
    assert np.array_equal(found, join(less, ~c))


def test_set_gives_all_ones() -> None:
    a, b = operands("s32", "s32")
    less = a.view(np.int32) < b.view(np.int32)
    inputs = [("s32", a), ("s32", b)]
    assert np.array_equal(apply("set.lt.u32.s32 %x, %a, %b;", inputs, "u32"), np.where(less, 0xFFFFFFFF, 0))
    assert np.array_equal(apply("set.lt.f32.s32 %x, %a, %b;", inputs, "f32"), less.astype(np.float32))


@pytest.mark.parametrize("type_name", ["b16", "u32", "f32", "b64", "f64"])
def test_selection(type_name: str) -> None:
    kind = f"b{bits_of(type_name)}"
    a, b = operands(kind, kind)
    c = RNG.integers(0, 2, len(a)).astype(bool)
    inputs: list[tuple[str, Array]] = [(type_name, a), (type_name, b), ("pred", c)]
    found = apply(f"selp.{type_name} %x, %a, %b, %c;", inputs, type_name)
    assert np.array_equal(found.view(a.dtype), np.where(c, a, b))
    found = apply(f"selp.{type_name} %b, %b, %a, !%c; mov.{type_name} %x, %b;", inputs, type_name)
    assert np.array_equal(found.view(a.dtype), np.where(c, a, b))
    sign = RNG.integers(-2, 3, len(a)).astype(np.int32)
    found = apply(f"slct.{type_name}.s32 %x, %a, %b, %c;", [*inputs[:2], ("s32", sign)], type_name)
    assert np.array_equal(found.view(a.dtype), np.where(sign >= 0, a, b))


@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_predicate_logic(operation: str) -> None:
    a = np.array([False, False, True, True])
    b = np.array([False, True, False, True])
    join = {"and": a & b, "or": a | b, "xor": a ^ b}[operation]
    inputs: list[tuple[str, Array]] = [("pred", a), ("pred", b)]
    assert np.array_equal(apply(f"{operation}.pred %x, %a, %b;", inputs, "pred"), join)
    assert np.array_equal(apply(f"{operation}.pred %a, %a, %b; mov.pred %x, %a;", inputs, "pred"), join)
    assert np.array_equal(apply("not.pred %x, %a;", inputs, "pred"), ~a)


def test_packing_and_unpacking() -> None:
    a, b = operands("b32", "b32")
    wide = apply("mov.b64 %x, {%a, %b};", [("b32", a), ("b32", b)], "b64")
    assert np.array_equal(wide, b.astype(np.uint64) << 32 | a)
    assert np.array_equal(apply("mov.b64 {%x, %y}, %a;", [("b64", wide)], ["b32", "b32"]), [a, b])
    assert np.array_equal(apply("mov.b64 {_, %x}, %a;", [("b64", wide)], "b32"), b)
    low, high = operands("b16", "b16")
    word = apply("mov.b32 %x, {%a, %b};", [("b16", low), ("b16", high)], "b32")
    assert np.array_equal(word, high.astype(np.uint32) << 16 | low)
    assert np.array_equal(apply("mov.b32 {%x, %y}, %a;", [("b32", word)], ["b16", "b16"]), [low, high])
    swapped = apply(
        "mov.b32 {%x, %y}, %a; mov.b32 %a, {%y, %x}; mov.b32 {%x, %y}, %a;", [("b32", word)], ["b16", "b16"]
    )
    assert np.array_equal(swapped, [high, low])
    four = apply(
        "mov.b32 {%h0, %h1}, %a; mov.b32 {%h2, %h3}, %b; mov.b64 %x, {%h0, %h1, %h2, %h3};",
        [("b32", a), ("b32", b)],
        "b64",
        registers=".reg .b16 %h<4>;",
    )
    assert np.array_equal(four, wide)


@pytest.mark.parametrize("source", ["u8", "s8", *INTEGERS])
@pytest.mark.parametrize("target", ["u8", "s8", *INTEGERS])
def test_conversions_between_integers(source: str, target: str) -> None:
    array = values(source, 100)
    read, bits = reading(source), bits_of(target)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    dtype = f"u{bits // 8}"
    plain = np.array([read(v) & ((1 << bits) - 1) for v in array.tolist()], np.uint64).astype(dtype)
    assert np.array_equal(apply(f"cvt.{target}.{source} %x, %a;", [(source, array)], target).view(dtype), plain)
    if (source[0] == target[0] and bits < bits_of(source)) or source[0] != target[0]:
        clamped = [min(max(read(v), low), high) & ((1 << bits) - 1) for v in array.tolist()]
        clamped = np.array(clamped, np.uint64).astype(dtype)
        assert np.array_equal(
            apply(f"cvt.sat.{target}.{source} %x, %a;", [(source, array)], target).view(dtype), clamped
        )
