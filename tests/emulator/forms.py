"""What every lane-wise instruction of the engine computes: PTX text, operand types, a definition on Python's integers.

``forms_of`` makes ``Form``s from the name of an operation, by the rules of the PTX manual and without a look at the
engine. The NumPy tests (``test_forms.py``) and the comparison with a GPU (``differential.py``) are made from them.
Definitions take and give bit patterns; ``softfloat`` is what they know of floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import softfloat
from softfloat import BF16, F16, F32, F64, FORMATS, Format

Array = npt.NDArray[Any]
Definition = Callable[..., Any]

TF32 = Format(32, 8, 23)  # in a register: an f32 whose last 13 bits do not count
E5M2 = Format(8, 5, 2)
PAIRS = {"f16x2": F16, "bf16x2": BF16}
FLUSHED = {"f16": F16, "f16x2": F16, "f32": F32}
TINY = "after rounding"
"""When a result has to be subnormal for ``.ftz`` to flush it: rounded as if exponents had no limit."""


def bits_of(type_name: str) -> int:
    """Bits of a value of the type; a predicate is one byte in memory."""
    if type_name == "pred":
        return 8
    if type_name.endswith("x2"):
        return 16 if type_name.startswith("e") else 32
    return 32 if type_name == "tf32" else int(type_name.lstrip("usbf"))


def register_of(type_name: str) -> str:
    """Register that holds the type: untyped, as wide as it has to be. Only ``mov`` takes parts of 8 bits."""
    if type_name == "b8":
        return "b8"
    return "pred" if type_name == "pred" else f"b{max(bits_of(type_name), 16)}"


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def read(type_name: str, bits: int) -> int:
    """The integer that a bit pattern stands for."""
    return signed(bits, bits_of(type_name)) if type_name[0] == "s" else bits


@dataclass(frozen=True)
class Near:
    """How far an approximation may be from the exact result: the largest of three errors, and of what it says nothing.

    ``relative`` and ``absolute`` are errors, ``ulp`` counts units in the last place. They hold where the magnitude of
    the last operand is from ``low`` to ``high``.
    """

    form: Format
    relative: float = 0.0
    absolute: float = 0.0
    ulp: float = 0.0
    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True)
class Form:
    """One operation: ``body`` reads %a, %b, ... of the ``inputs``' types and writes %x, %y, ... of the ``outputs``'.

    ``define`` takes the inputs' bit patterns and gives the result's, or a tuple of them. ``number``: the format of
    results for which any NaN is as good as another; ``near``: results are approximations. ``adjust`` moves operands for
    which PTX defines nothing. ``flushes``: of ``.ftz``, the definition by each rule of what it flushes (``TINY``).
    ``plain``: the body is one instruction with registers only.
    """

    operation: str
    body: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    define: Definition
    number: Format | None = None
    near: Near | None = None
    adjust: Callable[[list[Array]], None] | None = None
    flushes: dict[str, Definition] = field(default_factory=dict)
    extra: str = ""

    @property
    def plain(self) -> bool:
        return self.body.count(";") == 1


# ------------------------------------------------------------------------------------------------------------ operands

_SMALL = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256]


def _integers(bits: int, count: int, rng: np.random.Generator) -> Array:
    values = rng.integers(0, 2**64, count, dtype=np.uint64) >> rng.integers(64 - bits, 64, count).astype(np.uint64)
    whole = np.uint64((1 << bits) - 1)
    negative = rng.random(count) < 0.3
    return np.where(negative, ~values + np.uint64(1), values) & whole


def special_integers(bits: int) -> list[int]:
    mask = (1 << bits) - 1
    low = [n & mask for n in _SMALL]
    return sorted({*low, *(-n & mask for n in low), 1 << (bits - 1), mask >> 1, (mask >> 1) - 1, mask, mask - 1})


def special_floats(form: Format) -> list[int]:
    """Zeros, subnormals, neighbours of one, halves between whole numbers, limits of integers, infinities and NaNs."""
    one = form.bias << form.fraction
    quiet = 1 << (form.fraction - 1)
    found = [0, 1, 2, form.smallest_normal - 1, form.smallest_normal, form.smallest_normal + 1, one - 1, one, one + 1]
    found += [form.largest, form.largest - 1, form.infinity, form.infinity | quiet, form.infinity | quiet | 1]
    found += [form.infinity | 1]  # a signalling NaN
    for value in (0.5, 1.5, 2, 2.5, 3, 3.5, 127.5, 128, 254.5, 255.5, 448, 464, 479, 2048.5, 32767.5, 57344, 61440):
        found.append(form.round(Fraction(value)))
    for value in (65504, 65519, 65520, 2**24 + 1, 2.0**-25, 2.0**-24, 3 * 2.0**-25, 2.0**-14):
        found.append(form.round(Fraction(value)))
    for power in (7, 8, 15, 16, 23, 31, 32, 52, 63, 64):
        exact = form.round(Fraction(2**power))
        found += [exact, exact - 1, exact + 1] if not form.is_infinite(exact) else []
    if form == F64:  # about to become the smallest normal f32
        for power in (24, 25):
            exact = form.round(Fraction(2**power - 1, 2 ** (power + 126)))
            found += [exact - 1, exact, exact + 1]
        found.append(form.round(Fraction(1, 2**126)) - 1)
    return sorted({*found, *(bits | form.sign for bits in found)})


def _floats(form: Format, count: int, rng: np.random.Generator) -> Array:
    """A third wild bits, a third near one, a third of all magnitudes with few digits, so that halves are met."""
    wild = rng.integers(0, 2**64, count, dtype=np.uint64) & np.uint64((1 << form.bits) - 1)
    near = _encode(form, rng.standard_normal(count) * 2.0 ** rng.integers(-3, 12, count))
    digits = rng.integers(1, 2**9, count).astype(np.float64) * 2.0 ** rng.integers(-12, 4, count)
    few = _encode(form, digits * rng.choice([-1.0, 1.0], count))
    return np.choose(rng.integers(0, 3, count), [wild, near, few]).astype(np.uint64)


def _encode(form: Format, values: Array) -> Array:
    if form.bits == 64:
        return values.view(np.uint64)
    single = values.astype(np.float32)
    if form == F16:
        return single.astype(np.float16).view(np.uint16).astype(np.uint64)
    return single.view(np.uint32).astype(np.uint64) >> np.uint64(32 - form.bits)


def _column(type_name: str, count: int, rng: np.random.Generator) -> tuple[list[int], Array]:
    """Special values of a type, and random ones."""
    if type_name == "pred":
        return [0, 1], rng.integers(0, 2, count, dtype=np.uint64)
    if type_name in FORMATS:
        form = FORMATS[type_name]
        return special_floats(form), _floats(form, count, rng)
    if type_name in PAIRS:
        form = PAIRS[type_name]
        low, high = _floats(form, count, rng), _floats(form, count, rng)
        known = special_floats(form)
        pairs = [a | b << 16 for a, b in zip(known, known[3:] + known[:3], strict=True)]
        return pairs, low | high << np.uint64(16)
    bits = bits_of(type_name)
    return special_integers(bits), _integers(bits, count, rng)


def _near_the_smallest(form: Format, sources: int, count: int, rng: np.random.Generator) -> list[Array]:
    """Normal numbers whose product, or product and sum, is just below the smallest normal number."""
    one, low = 1 << form.fraction, 1 - form.bias

    def encoded(exponent: Array, significand: Array, negative: Array) -> Array:
        bits = (exponent + form.bias << form.fraction) | (significand - one) | negative * form.sign
        return np.asarray(bits.astype(np.uint64))

    def parts_of(total: Array) -> tuple[Array, Array]:  # of an exponent, both normal
        first = rng.integers(low, total - low, endpoint=True)
        return first, total - first

    signs = rng.integers(0, 2, (2, count))
    a = rng.integers(one, 2 * one, count)
    b = (2 * one * one - 1) // a  # the largest for which the product stays below
    exponents = parts_of(np.full(count, low - 1))
    arrays = [encoded(e, s, n) for e, s, n in zip(exponents, (a, b), signs, strict=True)]
    if sources == 2:
        return arrays
    addend = ((signs[0] ^ signs[1]) * form.sign).astype(np.uint64)  # a zero that changes nothing
    # and for half of them the smallest normal number, from which a product is taken: some powers of two, for ties
    total = low - form.fraction - 2 + rng.integers(-2, 3, count)
    few = np.where(rng.random(count) < 0.5, one, a)
    exponents = parts_of(total)
    products = [encoded(e, s, n) for e, s, n in zip(exponents, (few, np.full(count, one)), signs, strict=True)]
    taken = encoded(np.full(count, low), np.full(count, one), 1 - (signs[0] ^ signs[1]))
    half = rng.integers(0, 2, count) == 0
    return [np.where(half, x, y) for x, y in zip((*products, taken), (*arrays, addend), strict=True)]


def operands(types: Sequence[str], count: int, seed: int) -> list[Array]:
    """Arrays of bit patterns: in the first half (at most) pairs of special values meet, the rest is random.

    Of two or three numbers of a format that ``.ftz`` flushes, results of the last eighth are about to be flushed.
    """
    rng = np.random.default_rng([seed, *(ord(c) for c in ",".join(types))])
    columns = [_column(t, count, rng) for t in types]
    arrays = [random for _, random in columns]
    first = columns[0][0]
    second = columns[1][0] if len(columns) > 1 else [0]
    pairs = rng.permutation(len(first) * len(second))[: count // 2]
    for place, (special, _) in enumerate(columns):
        picks = pairs // len(second) if place == 0 else pairs % len(second)
        if place > 1:
            picks = rng.integers(0, len(special), len(pairs))
        arrays[place][: len(pairs)] = np.array(special, np.uint64)[picks]
    third = rng.integers(0, 3, count) == 0
    if len(types) > 1 and types[0] == types[1] != "pred":  # neighbours: sums that cancel, equal keys
        close = (arrays[0] + rng.integers(0, 2, count, dtype=np.uint64)) & np.uint64((1 << bits_of(types[0])) - 1)
        arrays[1] = np.where(third & (np.arange(count) >= len(pairs)), close, arrays[1])
    if len(types) in (2, 3) and len(set(types)) == 1 and types[0] in FLUSHED:
        form = FLUSHED[types[0]]
        last = [_near_the_smallest(form, len(types), count // 8, rng) for _ in range(bits_of(types[0]) // form.bits)]
        for array, parts in zip(arrays, zip(*last, strict=True), strict=True):
            array[count - count // 8 :] = sum(part << np.uint64(form.bits * n) for n, part in enumerate(parts))
    return [a.astype(f"u{bits_of(t) // 8}") for a, t in zip(arrays, types, strict=True)]


def no_zero_divisor(type_name: str) -> Callable[[list[Array]], None]:
    def adjust(arrays: list[Array]) -> None:
        a, b = arrays[:2]
        b[b == 0] = 1
        if type_name[0] == "s":  # the one quotient that does not fit
            b[(a == 1 << (bits_of(type_name) - 1)) & (b == (1 << bits_of(type_name)) - 1)] = 1

    return adjust


def _bytes_from(first: int) -> Callable[[list[Array]], None]:
    """Positions and lengths of fields, from an operand on: PTX restricts them to 0 to 255."""

    def adjust(arrays: list[Array]) -> None:
        for array in arrays[first:]:
            array &= np.uint32(255)

    return adjust


# ----------------------------------------------------------------------------------------------------------- integers


def _wrap(type_name: str, define: Callable[..., int], inputs: Sequence[str]) -> Definition:
    """A function of integers as one of bit patterns."""
    mask = (1 << bits_of(type_name)) - 1
    return lambda *o: define(*(read(t, v) for t, v in zip(inputs, o, strict=True))) & mask


def truncated_division(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _clamp(value: int, type_name: str) -> int:
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


def _integer(operation: str) -> Form | None:
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
        return form([kind, kind], kind, lambda a, b: _clamp(_TWO[base](a, b), kind))
    if base in ("min", "max") and middle == ["relu"]:
        return form([kind, kind], kind, lambda a, b: max(_TWO[base](a, b), 0))
    if base in ("mul", "mad") and middle:
        wide = f"{kind[0]}{2 * bits}" if middle == ["wide"] else kind
        shift = bits if middle[0] == "hi" else 0
        if base == "mul":
            return form([kind, kind], wide, lambda a, b: a * b >> shift)
        if middle == ["hi", "sat"]:
            return form([kind] * 3, kind, lambda a, b, c: _clamp((a * b >> bits) + c, kind))
        return form([kind, kind, wide], wide, lambda a, b, c: (a * b >> shift) + c)
    if base in ("mul24", "mad24"):
        shift = 16 if middle[0] == "hi" else 0

        def low(v: int) -> int:
            return signed(v & 0xFFFFFF, 24) if kind[0] == "s" else v & 0xFFFFFF

        if base == "mul24":
            return form([kind] * 2, kind, lambda a, b: low(a) * low(b) >> shift)
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
        return form([kind, "u32", "u32"], kind, lambda a, p, n: _extract(kind, a, p, n), adjust=_bytes_from(1))
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


# --------------------------------------------------------------------------------------------------------------- bits


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


def _bits(operation: str) -> list[Form]:
    base, *parts = operation.split(".")
    kind = parts[-1] if parts else ""
    bits = bits_of(kind) if kind[:1] == "b" and kind[1:].isdigit() else 8 if kind == "pred" else 0
    mask = 1 if kind == "pred" else (1 << bits) - 1

    def form(inputs: list[str], result: str, define: Definition, body: str = "", **more: Any) -> list[Form]:
        names = ", ".join(f"%{n}" for n in "abcde"[: len(inputs)])
        return [Form(operation, body or f"{operation} %x, {names};", (*inputs,), (result,), define, **more)]

    logic: dict[str, Callable[[int, int], int]] = {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }
    if base in logic and parts == [kind]:
        return form([kind, kind], kind, logic[base])
    if base == "not":
        return form([kind], kind, lambda a: ~a & mask)
    if base == "cnot":
        return form([kind], kind, lambda a: int(a == 0))
    if base == "shl":
        return form([kind, "u32"], kind, lambda a, n: a << min(n, bits) & mask)
    if base == "shr" and kind[0] == "b":
        return form([kind, "u32"], kind, lambda a, n: a >> min(n, bits))
    if base == "clz":
        return form([kind], "u32", lambda a: bits - a.bit_length())
    if base == "popc":
        return form([kind], "u32", lambda a: a.bit_count())
    if base == "brev":
        return form([kind], kind, lambda a: int(f"{a:0{bits}b}"[::-1], 2))
    if base == "bfi":

        def insert(a: int, b: int, position: int, length: int) -> int:
            position, length = position & 255, length & 255
            field = ((1 << length) - 1) << position & mask
            return (b & ~field) | (a << position & field)

        return form([kind, kind, "u32", "u32"], kind, insert, adjust=_bytes_from(2))
    if base == "shf":
        wrap = "wrap" in parts

        def funnel(a: int, b: int, n: int) -> int:
            n = n & 31 if wrap else min(n, 32)
            return ((b << 32 | a) << n >> 32 if parts[0] == "l" else (b << 32 | a) >> n) & mask

        return form(["b32", "b32", "u32"], "b32", funnel)
    if base == "prmt":
        mode = parts[1] if len(parts) > 1 else ""
        return form(["b32"] * 3, "b32", lambda a, b, c: _permute(a, b, c, mode))
    if operation == "lop3.b32":
        return [
            Form(
                operation,
                f"lop3.b32 %x, %a, %b, %c, {t};",
                ("b32",) * 3,
                ("b32",),
                lambda a, b, c, t=t: _logic3(t, a, b, c),
            )
            for t in LOP3_TABLES
        ]
    if base == "lop3":

        def with_predicate(table: int) -> Definition:
            def define(a: int, b: int, c: int, q: int) -> Any:
                word = _logic3(table, a, b, c)
                return word, int(word != 0) | q if parts[0] == "or" else int(word != 0) & q

            return define

        return [
            Form(
                operation,
                f"{operation} %x|%y, %a, %b, %c, {t}, %d;",
                ("b32",) * 3 + ("pred",),
                ("b32", "pred"),
                with_predicate(t),
            )
            for t in LOP3_TABLES
        ]
    if base in ("szext", "bmsk"):
        return form(["b32"] * 2, "b32", _masked(base, parts))
    if base == "vabsdiff4":
        return form(["b32"] * 3, "b32", _byte_differences(parts))
    if base == "fns":

        def few(arrays: list[Array]) -> None:  # offsets that can be found, a base inside the word
            arrays[1] &= np.uint32(31)
            arrays[2] = (arrays[2] % np.uint32(41) - np.uint32(20)).astype(np.uint32)

        return form(["b32"] * 3, "b32", _nth_set, adjust=few)
    return []


# ------------------------------------------------------------------------------------------------------------- floats


def _halves(form: Format, define: Definition) -> Definition:
    """A function of one half of each operand as one of pairs."""
    return lambda *o: define(*(v & 0xFFFF for v in o)) | define(*(v >> 16 for v in o)) << 16


def _one(form: Format) -> int:
    return form.bias << form.fraction


def _modified(form: Format, define: Definition, parts: Sequence[str], tiny: Definition | None = None) -> Definition:
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


def _tiny(form: Format, operation: Callable[[Format], Definition]) -> Definition:
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
    return {rule: _modified(form, found[1], parts, _tiny(form, operation(m))) for rule, m in asked.items()}


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


_ROUNDINGS = ("rn", "rz", "rm", "rp")


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


def _float(operation: str) -> Form | None:
    base, *parts = operation.split(".")
    kind = parts[-1] if parts else ""
    if (kind not in FORMATS and kind not in PAIRS) or base in ("cvt", "set", "setp", "selp", "slct", "mov"):
        return None
    form = FORMATS.get(kind) or PAIRS[kind]
    mode = next((p for p in parts if p in _ROUNDINGS), "rn")
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
            define = _modified(form, define, parts)
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
        return 2, _modified(form, lambda a, b: softfloat.divide(form, a, b), parts), near

    def define(a: int) -> int:
        return _from_float(form, _FUNCTIONS[base](_to_float(form, a)))

    return 1, _modified(form, define, parts), near


# --------------------------------------------------------------------------------------------------------- comparisons

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


def _comparison(operation: str) -> list[Form]:
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


def _selection(operation: str) -> Form | None:
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


def _move(operation: str) -> Form | None:
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


# --------------------------------------------------------------------------------------------------------- conversions

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


def _conversion(operation: str) -> Form | None:
    _, *parts = operation.split(".")
    if parts[0] == "pack":
        return _pack(operation, parts)
    target, source = parts[-2:]
    modifiers = parts[:-2]
    if "e4m3x2" in (target, source) or "e5m2x2" in (target, source):
        return _eight_bits(operation, target, source, modifiers)
    if target in PAIRS:
        return _pair_conversion(operation, target, source, modifiers)
    if _is_integer(source) and _is_integer(target):
        mask = (1 << bits_of(target)) - 1
        clamp = "sat" in modifiers
        define: Definition = lambda a: (_clamp(read(source, a), target) if clamp else read(source, a)) & mask  # noqa: E731
        return Form(operation, f"{operation} %x, %a;", (source,), (target,), define)
    if _is_integer(target):
        return _to_integer(operation, target, source, modifiers)
    if _is_integer(source):
        form = FORMATS[target]
        mode = next(m for m in modifiers if m in _ROUNDINGS)
        define = _modified(form, lambda a: form.round(Fraction(read(source, a)), mode), modifiers)
        return Form(operation, f"{operation} %x, %a;", (source,), (target,), define)
    return _between_floats(operation, target, source, modifiers)


def _pack(operation: str, parts: list[str]) -> Form:
    target = parts[2]
    bits = bits_of(target)
    mask = (1 << bits) - 1

    def define(a: int, b: int, *c: int) -> int:
        both = (_clamp(signed(a, 32), target) & mask) << bits | _clamp(signed(b, 32), target) & mask
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
            return _clamp(-(1 << 100) if a & form.sign else 1 << 100, target) & mask
        return _clamp(whole(form.value(a), mode), target) & mask

    return Form(operation, f"{operation} %x, %a;", (source,), (target,), define)


def _between_floats(operation: str, target: str, source: str, modifiers: list[str]) -> Form:
    a_form = FORMATS[source]
    if target == "tf32":
        return Form(operation, f"{operation} %x, %a;", (source,), ("b32",), _to_tf32(modifiers), number=F32)
    form = FORMATS[target]
    integral = next((_INTEGRAL[m] for m in modifiers if m in _INTEGRAL), None)
    mode = next((m for m in modifiers if m in _ROUNDINGS), "rn")

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
            tiny = _tiny(form, lambda wide: lambda a: softfloat.convert(a_form, wide, a, asked))
            return lambda a: softfloat.convert(a_form, form, a, mode) & form.sign if tiny(a) else define(a)

        rules = {"before rounding": flushed("rz"), "after rounding": flushed(mode)}
        rules["after rounding as a subnormal number"] = define
        flushes = {rule: _modified(form, by_rule, finish) for rule, by_rule in rules.items()}
    modified = flushes[TINY] if flushes else _modified(form, define, finish)
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


# ----------------------------------------------------------------------------------------------------------------- all


def forms_of(operation: str) -> list[Form]:
    """The forms of a lane-wise operation, several where an immediate matters; none for an operation of another kind."""
    base = operation.partition(".")[0]
    makers: dict[str, Callable[[str], Form | None]] = {
        "selp": _selection,
        "slct": _selection,
        "mov": _move,
        "cvt": _conversion,
    }
    if base in ("set", "setp"):
        return _comparison(operation)
    if base in makers:
        found = makers[base](operation)
        return [found] if found else []
    for maker in (_integer, _float):
        found = maker(operation)
        if found:
            return [found]
    return _bits(operation)
