"""Comparisons, selections and moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from form import PAIRS, Form, bits_of, read, signed
from softfloat import F32, FORMATS, Format

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_JOIN: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _float_order(name: str, form: Format, flush: bool) -> Callable[[int, int], bool]:
    def compare(a: int, b: int) -> bool:
        if flush:
            a, b = form.flushed(a), form.flushed(b)
        unordered = form.is_nan(a) or form.is_nan(b)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u") and name != "u"
        return _ORDER[name.removesuffix("u")](_key(form, a), _key(form, b))

    return compare


def _key(form: Format, bits: int) -> int:
    """An integer that orders as the number does, zeros being equal."""
    return -(bits & ~form.sign) if bits & form.sign else bits


def comparisons_of(operation: str) -> list[Form]:
    base, name, *parts = operation.split(".")
    kind = parts[-1]
    join = next((p for p in parts if p in _JOIN), None)
    if kind in PAIRS or kind in FORMATS:
        form = PAIRS.get(kind) or FORMATS[kind]
        compare = _float_order(name, form, "ftz" in parts)
    else:
        order = _ORDER[_UNSIGNED_NAMES.get(name, name)]

        def compare(a: int, b: int) -> bool:
            return order(read(kind, a), read(kind, b))

    def joined(value: bool, c: tuple[int, ...]) -> int:
        return _JOIN[join](int(value), c[0]) if join else int(value)

    inputs = (kind, kind, "pred") if join else (kind, kind)
    names = ", ".join(f"%{n}" for n in "abc"[: len(inputs)])
    if base == "setp":
        if kind in PAIRS:

            def pair(a: int, b: int, *c: int) -> Any:
                return tuple(joined(compare(a >> s & 0xFFFF, b >> s & 0xFFFF), c) for s in (0, 16))

            return [Form(operation, f"{operation} %x|%y, {names};", inputs, ("pred", "pred"), pair)]

        def both(a: int, b: int, *c: int) -> Any:
            return joined(compare(a, b), c), joined(not compare(a, b), c)

        alone = Form(
            operation, f"{operation} %x, {names};", inputs, ("pred",), lambda a, b, *c: joined(compare(a, b), c)
        )
        if kind == "bf16":  # PTX has no second predicate there
            return [alone]
        return [alone, Form(operation, f"{operation} %x|%y, {names};", inputs, ("pred", "pred"), both)]
    result = parts[-2]
    if kind in PAIRS:
        yes = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(result, 0xFFFF)

        def halves(a: int, b: int, *c: int) -> int:
            low, high = (joined(compare(a >> s & 0xFFFF, b >> s & 0xFFFF), c) for s in (0, 16))
            return low * yes | high * yes << 16

        return [Form(operation, f"{operation} %x, {names};", inputs, ("b32",), halves)]
    yes = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(result, 0xFFFFFFFF)
    yes = yes & ((1 << bits_of(result)) - 1)
    return [
        Form(operation, f"{operation} %x, {names};", inputs, (result,), lambda a, b, *c: yes * joined(compare(a, b), c))
    ]


def selection_form(operation: str) -> Form | None:
    base, *parts = operation.split(".")
    kind = next(p for p in parts if p != "ftz")
    if base == "selp":
        return Form(
            operation, f"{operation} %x, %a, %b, %c;", (kind, kind, "pred"), (kind,), lambda a, b, c: a if c else b
        )
    sign = parts[-1]

    def first(c: int) -> bool:
        if sign == "s32":
            return signed(c, 32) >= 0
        c = F32.flushed(c) if "ftz" in parts else c
        return not F32.is_nan(c) and (c & ~F32.sign == 0 or not c & F32.sign)

    return Form(
        operation, f"{operation} %x, %a, %b, %c;", (kind, kind, sign), (kind,), lambda a, b, c: a if first(c) else b
    )


# --------------------------------------------------------------------------------------------------------------- moves


def move_form(operation: str) -> Form | None:
    _, kind, *how = operation.split(".")
    if not how:
        return Form(operation, f"{operation} %x, %a;", (kind,), (kind,), lambda a: a)
    count = int(how[0][-1])
    size = bits_of(kind) // count
    mask = (1 << size) - 1
    part = f"b{size}"
    if how[0].startswith("pack"):
        names = ", ".join(f"%{n}" for n in "abcd"[:count])
        body = f"mov.{kind} %x, {{{names}}};"
        return Form(operation, body, (part,) * count, (kind,), lambda *o: sum(v << size * i for i, v in enumerate(o)))
    names = ", ".join(f"%{n}" for n in "xyzw"[:count])
    body = f"mov.{kind} {{{names}}}, %a;"
    return Form(operation, body, (kind,), (part,) * count, lambda a: tuple(a >> size * i & mask for i in range(count)))
