"""What forms of memory share: addresses, elements, and what stands in constant memory and parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import softfloat
from form import Definition, bits_of, read
from softfloat import BF16, F16, F32, F64, Format

CONSTANT = np.random.default_rng(2).integers(0, 256, 4096).astype(np.uint8)
PARAMETER = np.random.default_rng(3).integers(0, 256, 16).astype(np.uint8)

FLOATS = {"f16": F16, "bf16": BF16, "f16x2": F16, "bf16x2": BF16, "f32": F32, "f64": F64}
ADDRESS = {
    "shared": ["%shared"],
    "shared::cluster": ["%shared"],
    "global": ["%global"],
    "local": ["%local"],
    "": ["%gglobal", "%gshared", "%glocal"],
}


def fill_text(address: str, low: str = "%a", high: str = "%b") -> str:
    """16 bytes into the cell that an address points at, by an instruction of the address's own kind."""
    space = {"%shared": ".shared", "%global": ".global", "%local": ".local"}.get(address, "")
    return f"st{space}.v2.b64 [{address}], {{{low}, {high}}};"


def drain_text(address: str, low: str = "%x", high: str = "%y") -> str:
    space = {"%shared": ".shared", "%global": ".global", "%local": ".local"}.get(address, "")
    return f"ld{space}.v2.b64 {{{low}, {high}}}, [{address}];"


def element_of(low: int, high: int, bits: int, number: int) -> int:
    return (high << 64 | low) >> bits * number & ((1 << bits) - 1)


def extended_to(type_name: str, bits: int) -> int:
    """A loaded value in its register: at least 32 bits wide, with its sign."""
    wide = max(bits_of(type_name), 32)
    return read(type_name, bits) & ((1 << wide) - 1)


def vector_length(parts: Sequence[str]) -> int:
    return next((int(p[1]) for p in parts if p in ("v2", "v4", "v8")), 1)


def register_names(letters: str, count: int) -> str:
    names = [f"%{n}" for n in letters[:count]]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def _float_add(form: Format, flush: bool) -> Definition:
    def add(a: int, b: int) -> int:
        if flush:
            a, b = form.flushed(a), form.flushed(b)
        result = softfloat.add(form, a, b)
        return form.flushed(result) if flush else result

    return add


def update_of(name: str, kind: str, *, flush: bool = True) -> Definition:
    """What an atomic operation makes of the old value and its operands, as bit patterns.

    ``flush``: additions of f32 on global memory flush subnormals, those on shared memory do not.
    """
    bits = bits_of(kind)
    mask = (1 << bits) - 1
    if kind in FLOATS and name in ("add", "min", "max"):
        form = FLOATS[kind]
        choose: dict[str, Definition] = {
            "add": _float_add(form, flush and form == F32),
            "min": lambda a, b: softfloat.minimum(form, a, b),
            "max": lambda a, b: softfloat.maximum(form, a, b),
        }
        one = choose[name]
        if kind.endswith("x2"):
            return lambda a, b: one(a & 0xFFFF, b & 0xFFFF) | one(a >> 16, b >> 16) << 16
        return one
    simple: dict[str, Callable[..., int]] = {
        "add": lambda a, b: a + b & mask,
        "min": lambda a, b: min(a, b, key=lambda v: read(kind, v)),
        "max": lambda a, b: max(a, b, key=lambda v: read(kind, v)),
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "exch": lambda a, b: b,
        "cas": lambda a, b, c: c if a == b else a,
        "inc": lambda a, b: 0 if a >= b else a + 1,
        "dec": lambda a, b: b if a == 0 or a > b else a - 1,
    }
    return simple[name]


UPDATES = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
