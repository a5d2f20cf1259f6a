"""Operations on bits and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from form import Array, Definition, Form, bits_of, read, signed
from form_operands import bytes_from


def _permute(a: int, b: int, selector: int, mode: str) -> int:
    data = b << 32 | a
    if not mode:
        chosen = [(selector >> 4 * i & 7, selector >> 4 * i & 8) for i in range(4)]
        result = 0
        for i, (byte, replicate) in enumerate(chosen):
            value = data >> 8 * byte & 255
            result |= ((255 if value & 128 else 0) if replicate else value) << 8 * i
        return result
    s = selector & 3
    order = {
        "f4e": [s + i for i in range(4)],
        "b4e": [(s - i) % 8 for i in range(4)],
        "rc8": [s] * 4,
        "ecl": [max(i, s) for i in range(4)],
        "ecr": [min(i, s) for i in range(4)],
        "rc16": [2 * (s & 1), 2 * (s & 1) + 1] * 2,
    }[mode]
    return sum((data >> 8 * byte & 255) << 8 * i for i, byte in enumerate(order))


def _logic3(table: int, a: int, b: int, c: int) -> int:
    result = 0
    for row in range(8):
        if table >> row & 1:
            result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result & 0xFFFFFFFF


LOP3_TABLES = (0x96, 0xE8, 0xCA, 0x1B, 0xFE, 0x40)


def _nth_set(mask: int, base: int, offset: int) -> int:
    offset = signed(offset, 32)
    base &= 31
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = [i for i in (range(base, 32) if offset > 0 else range(base, -1, -1)) if mask >> i & 1]
    return places[abs(offset) - 1] if abs(offset) <= len(places) else 0xFFFFFFFF


def _masked(base: str, parts: Sequence[str]) -> Definition:
    """``szext``: the low bits of a number, with its sign where the type has one; ``bmsk``: a field of ones."""

    def limited(n: int) -> int:
        return min(n, 32) if parts[0] == "clamp" else n & 31

    def extend(a: int, length: int) -> int:
        length = limited(length)
        kept = a & ((1 << length) - 1)
        return (signed(kept, length) if parts[1] == "s32" and length else kept) & 0xFFFFFFFF

    def mask(first: int, length: int) -> int:
        return ((1 << limited(length)) - 1) << limited(first) & 0xFFFFFFFF

    return extend if base == "szext" else mask


def _byte_differences(parts: Sequence[str]) -> Definition:
    """The absolute difference of each byte of a and b, or their sum and c."""
    kinds = ["s8" if kind == "s32" else "u8" for kind in parts[1:3]]

    def define(a: int, b: int, c: int) -> int:
        each = [abs(read(kinds[0], a >> s & 255) - read(kinds[1], b >> s & 255)) for s in (0, 8, 16, 24)]
        if parts[-1] == "add":
            return sum(each) + c & 0xFFFFFFFF
        return sum(value << 8 * place for place, value in enumerate(each))

    return define


def _insert(mask: int) -> Definition:
    """``bfi``: a field of a, put into b."""

    def insert(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        field = ((1 << length) - 1) << position & mask
        return (b & ~field) | (a << position & field)

    return insert


def _funnel(left: bool, wrap: bool) -> Definition:
    """``shf``: two words, shifted together."""

    def funnel(a: int, b: int, n: int) -> int:
        n = n & 31 if wrap else min(n, 32)
        return ((b << 32 | a) << n >> 32 if left else (b << 32 | a) >> n) & 0xFFFFFFFF

    return funnel


def _with_predicate(table: int, either: bool) -> Definition:
    """``lop3`` with a second result: whether the first is not zero, combined with a predicate."""

    def define(a: int, b: int, c: int, q: int) -> Any:
        word = _logic3(table, a, b, c)
        return word, int(word != 0) | q if either else int(word != 0) & q

    return define


def _few(arrays: list[Array]) -> None:
    """Of ``fns``: offsets that can be found, a base inside the word."""
    arrays[1] &= np.uint32(31)
    arrays[2] = (arrays[2] % np.uint32(41) - np.uint32(20)).astype(np.uint32)


LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}

Words = tuple[list[str], str, Definition]
"""Types of the operands, type of the result, and what it is."""


def _bits_of_a_word(base: str, parts: Sequence[str]) -> Words | None:
    """Operations on the bits of words of any width, which the last part of their name gives."""
    kind = parts[-1] if parts else ""
    bits = bits_of(kind) if kind[:1] == "b" and kind[1:].isdigit() else 8 if kind == "pred" else 0
    mask = 1 if kind == "pred" else (1 << bits) - 1
    if base in LOGIC:
        return ([kind, kind], kind, LOGIC[base]) if list(parts) == [kind] else None
    if base == "shr" and kind[0] != "b":
        return None
    found: dict[str, Words] = {
        "not": ([kind], kind, lambda a: ~a & mask),
        "cnot": ([kind], kind, lambda a: int(a == 0)),
        "shl": ([kind, "u32"], kind, lambda a, n: a << min(n, bits) & mask),
        "shr": ([kind, "u32"], kind, lambda a, n: a >> min(n, bits)),
        "clz": ([kind], "u32", lambda a: bits - a.bit_length()),
        "popc": ([kind], "u32", lambda a: a.bit_count()),
        "brev": ([kind], kind, lambda a: int(f"{a:0{bits}b}"[::-1], 2)),
        "bfi": ([kind, kind, "u32", "u32"], kind, _insert(mask)),
    }
    return found.get(base)


def _bits_of_32(base: str, parts: Sequence[str]) -> Words | None:
    """Operations on words of 32 bits alone."""
    if base == "shf":
        return ["b32", "b32", "u32"], "b32", _funnel(parts[0] == "l", "wrap" in parts)
    if base == "prmt":
        mode = parts[1] if len(parts) > 1 else ""
        return ["b32"] * 3, "b32", lambda a, b, c: _permute(a, b, c, mode)
    if base in ("szext", "bmsk"):
        return ["b32"] * 2, "b32", _masked(base, parts)
    if base == "vabsdiff4":
        return ["b32"] * 3, "b32", _byte_differences(parts)
    return (["b32"] * 3, "b32", _nth_set) if base == "fns" else None


def _logic3_forms(operation: str, parts: Sequence[str]) -> list[Form]:
    """``lop3`` with some tables: alone, or with a predicate."""
    words = ("b32",) * 3
    if operation == "lop3.b32":
        return [
            Form(
                operation,
                f"lop3.b32 %x, %a, %b, %c, {t};",
                words,
                ("b32",),
                lambda a, b, c, t=t: _logic3(t, a, b, c),
            )
            for t in LOP3_TABLES
        ]
    return [
        Form(
            operation,
            f"{operation} %x|%y, %a, %b, %c, {t}, %d;",
            (*words, "pred"),
            ("b32", "pred"),
            _with_predicate(t, parts[0] == "or"),
        )
        for t in LOP3_TABLES
    ]


def forms_of_bits(operation: str) -> list[Form]:
    """The forms of an operation on bits or bytes; none for an operation of another kind."""
    base, *parts = operation.split(".")
    if base == "lop3":
        return _logic3_forms(operation, parts)
    found = _bits_of_32(base, parts) or _bits_of_a_word(base, parts)
    if found is None:
        return []
    inputs, result, define = found
    names = ", ".join(f"%{n}" for n in "abcde"[: len(inputs)])
    adjust = {"bfi": bytes_from(2), "fns": _few}.get(base)
    return [Form(operation, f"{operation} %x, {names};", (*inputs,), (result,), define, adjust=adjust)]
