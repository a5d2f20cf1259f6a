"""Arithmetic on integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from form import Array, Definition, Form, bits_of, read, signed
from form_operands import bytes_from, no_zero_divisor


def _wrap(type_name: str, define: Callable[..., int], inputs: Sequence[str]) -> Definition:
    """A function of integers as one of bit patterns."""
    mask = (1 << bits_of(type_name)) - 1
    return lambda *o: define(*(read(t, v) for t, v in zip(inputs, o, strict=True))) & mask


def truncated_division(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def clamped(value: int, type_name: str) -> int:
    bits = bits_of(type_name)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if type_name[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


_TWO: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": min,
    "max": max,
    "div": truncated_division,
    "rem": lambda a, b: a - b * truncated_division(a, b),
}


def _near_the_ends(arrays: list[Array]) -> None:
    """Every second addend is so near to the smallest or the largest number that sums with it saturate."""
    some = arrays[2][::2]
    some[:] = np.where(some >> 31, some & 0x800FFFFF, some | 0x7FF00000)


def integer_form(operation: str) -> Form | None:
    base, *parts = operation.split(".")
    kind = parts[-1] if parts else ""
    if kind[1:] not in ("8", "16", "32", "64", "16x2") or kind[0] not in "us" or base in ("cvt", "setp", "set", "slct"):
        return None
    if kind.endswith("x2"):
        return _packed_integer(operation, base, kind)
    bits, middle = bits_of(kind), parts[:-1]

    def form(inputs: list[str], result: str, define: Callable[..., int], **more: Any) -> Form:
        names = ", ".join(f"%{n}" for n in "abcd"[: len(inputs)])
        return Form(
            operation, f"{operation} %x, {names};", (*inputs,), (result,), _wrap(result, define, inputs), **more
        )

    if "cc" in middle or base in ("addc", "subc", "madc"):
        return _carry(operation, base, middle, kind)
    if base in _TWO and not middle:
        adjust = no_zero_divisor(kind) if base in ("div", "rem") else None
        return form([kind, kind], kind, _TWO[base], adjust=adjust)
    if base in ("add", "sub") and middle == ["sat"]:
        return form([kind, kind], kind, lambda a, b: clamped(_TWO[base](a, b), kind))
    if base in ("min", "max") and middle == ["relu"]:
        return form([kind, kind], kind, lambda a, b: max(_TWO[base](a, b), 0))
    if base in ("mul", "mad") and middle:
        wide = f"{kind[0]}{2 * bits}" if middle == ["wide"] else kind
        shift = bits if middle[0] == "hi" else 0
        if base == "mul":
            return form([kind, kind], wide, lambda a, b: a * b >> shift)
        if middle == ["hi", "sat"]:
            return form([kind] * 3, kind, lambda a, b, c: clamped((a * b >> bits) + c, kind))
        return form([kind, kind, wide], wide, lambda a, b, c: (a * b >> shift) + c)
    if base in ("mul24", "mad24"):
        shift = 16 if middle[0] == "hi" else 0

        def low(v: int) -> int:
            return signed(v & 0xFFFFFF, 24) if kind[0] == "s" else v & 0xFFFFFF

        if base == "mul24":
            return form([kind] * 2, kind, lambda a, b: low(a) * low(b) >> shift)
        if "sat" in middle:
            saturated = [kind] * 3, kind, lambda a, b, c: clamped((low(a) * low(b) >> shift) + c, kind)
            return form(*saturated, adjust=_near_the_ends)
        return form([kind] * 3, kind, lambda a, b, c: (low(a) * low(b) >> shift) + c)
    if base == "sad":
        return form([kind] * 3, kind, lambda a, b, c: abs(a - b) + c)
    if base in ("neg", "abs"):
        return form([kind], kind, abs if base == "abs" else lambda a: -a)
    if base in ("dp4a", "dp2a"):
        return _dot(operation, base, parts)
    if base == "shr":
        return form([kind, "u32"], kind, lambda a, n: a >> min(n, bits))
    if base == "bfe":
        return form([kind, "u32", "u32"], kind, lambda a, p, n: _extract(kind, a, p, n), adjust=bytes_from(1))
    if base == "bfind":
        return form([kind], "u32", lambda a: _leading(a, bits, "shiftamt" in middle))
    return None


def _packed_integer(operation: str, base: str, kind: str) -> Form | None:
    if base not in ("add", "min", "max"):
        return None
    half = f"{kind[0]}16"

    def one(a: int, b: int) -> int:
        result = _TWO[base](read(half, a), read(half, b))
        return (max(result, 0) if ".relu" in operation else result) & 0xFFFF

    def define(a: int, b: int) -> int:
        return one(a & 0xFFFF, b & 0xFFFF) | one(a >> 16, b >> 16) << 16

    return Form(operation, f"{operation} %x, %a, %b;", ("b32", "b32"), ("b32",), define)


def _carry(operation: str, base: str, middle: list[str], kind: str) -> Form:
    """Carries go in from %d, which is not zero where there is one, and come out into %y."""
    bits, out = bits_of(kind), "cc" in middle
    unsigned, mask = f"u{bits}", (1 << bits) - 1
    takes = base.endswith("c")
    subtracts = base.startswith("sub")
    products = base.startswith("mad")
    count = 3 if products else 2
    names = ", ".join(f"%{n}" for n in "abc"[:count])
    before = f"sub.cc.u32 %x32, 0, %{'abcd'[count]};" if subtracts else f"add.cc.u32 %x32, %{'abcd'[count]}, -1;"
    after = f"{'subc' if subtracts else 'addc'}.u{bits} %y, 0, 0;" if out else ""
    shift = bits if "hi" in middle else 0

    def define(*o: int) -> Any:
        carry = int(takes and o[count] != 0)
        if subtracts:
            total = o[0] - o[1] - carry
            borrow = -1 & mask if total < 0 else 0
            return (total & mask, borrow) if out else total & mask
        first = o[0]
        if products:
            product = read(kind, o[0]) * read(kind, o[1]) if shift else o[0] * o[1]
            first = product >> shift & mask
        total = first + o[count - 1] + carry
        return (total & mask, total >> bits) if out else total & mask

    inputs = [unsigned] * count + (["u32"] if takes else [])
    body = f"{before if takes else ''} {operation} %x, {names}; {after}".strip()
    return Form(operation, body, (*inputs,), (unsigned,) * (1 + out), define, extra=".reg .b32 %x32;")


def _dot(operation: str, base: str, parts: list[str]) -> Form:
    a_type, b_type = parts[-2:]
    result = "s32" if "s32" in (a_type, b_type) else "u32"

    def pieces(value: int, bits: int, is_signed: bool) -> list[int]:
        found = [value >> s & ((1 << bits) - 1) for s in range(0, 32, bits)]
        return [signed(v, bits) if is_signed else v for v in found]

    def define(a: int, b: int, c: int) -> int:
        size, first = (8, 0) if base == "dp4a" else (16, 2 if parts[0] == "hi" else 0)
        left, right = pieces(a, size, a_type == "s32"), pieces(b, 8, b_type == "s32")[first:]
        return (c + sum(x * y for x, y in zip(left, right, strict=False))) & 0xFFFFFFFF

    return Form(operation, f"{operation} %x, %a, %b, %c;", (a_type, b_type, result), (result,), define)


def _extract(kind: str, a: int, position: int, length: int) -> int:
    bits = bits_of(kind)
    position, length = position & 255, length & 255
    raw = a & ((1 << bits) - 1)
    if length == 0:
        return 0
    sign = raw >> min(position + length - 1, bits - 1) & 1 if kind[0] == "s" else 0
    available = max(min(length, bits - position), 0)
    return raw >> position & ((1 << length) - 1) | (-1 << available if sign else 0)


def _leading(a: int, bits: int, shift_amount: bool) -> int:
    position = (~a if a < 0 else a).bit_length() - 1
    return 0xFFFFFFFF if position < 0 else bits - 1 - position if shift_amount else position
