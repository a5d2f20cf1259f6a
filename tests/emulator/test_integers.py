"""Integers in several instructions or in parts of registers; ``test_forms.py`` has every instruction by itself."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Array, apply
from form_operands import operands as special_and_random


def operands(*types: str) -> list[Array]:
    """Special values of the types, and random ones."""
    return special_and_random(types, 256, 12345)


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


@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_comparison_joined_with_a_predicate(operation: str) -> None:
    a, b = operands("s32", "s32")
    c = np.random.default_rng(0).integers(0, 2, len(a)).astype(bool)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[operation]
    inputs: list[tuple[str, Array]] = [("s32", a), ("s32", b), ("pred", c)]
    less = a.view(np.int32) < b.view(np.int32)
    found = apply(f"setp.lt.{operation}.s32 %x|%y, %a, %b, %c;", inputs, ["pred", "pred"])
    assert np.array_equal(found[0], join(less, c))
    assert np.array_equal(found[1], join(~less, c))
    found = apply(f"setp.lt.{operation}.s32 %x, %a, %b, !%c;", inputs, "pred")
    assert np.array_equal(found, join(less, ~c))


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
