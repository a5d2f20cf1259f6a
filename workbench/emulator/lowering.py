"""Instructions that are two or three of the engine's.

Such as ``cvt.rn.sat.f32.s32``, which converts and then clamps. Each step takes the result of the one before it; the
steps are exact, or the last that rounds is the only one, so that the result is the instruction's own.
"""

from __future__ import annotations

from functools import lru_cache

from .operations import listed_name

__all__ = ["lowered", "result_type"]

_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})
_INTEGRAL = frozenset({"rni", "rzi", "rmi", "rpi"})
_MANTISSA_BITS = {"bf16": 7, "f16": 10, "f32": 23, "f64": 52}
_CLAMPED = {
    "f32": ("cvt.sat.f32.f32",),
    "f64": ("cvt.sat.f64.f64",),
    "f16": ("cvt.sat.f32.f16", "cvt.rn.f16.f32"),
}
_TO_HALF = {"f16": "cvt.rn.f16.f32", "bf16": "cvt.rn.bf16.f32"}


@lru_cache(maxsize=1024)
def lowered(name: str) -> tuple[str, ...] | None:
    """The engine's operations that make up one that it does not list, in order; None where none do."""
    base, *parts = name.split(".")
    if base == "pmevent":
        return ("pmevent",)
    if len(parts) < 2:
        return None
    *modifiers, to, source = parts
    steps: tuple[str, ...] | None = None
    if base == "cvt":
        steps = _conversion(set(modifiers), to, source)
    elif base == "set":
        steps = _comparison(modifiers, to, source)
    if steps is None or any(listed_name(step) is None for step in steps):
        return None
    return steps


def _conversion(modifiers: set[str], to: str, source: str) -> tuple[str, ...] | None:
    """Flushes what is subnormal, converts, clamps."""
    if modifiers - _ROUNDINGS - _INTEGRAL - {"ftz", "sat"} or len(modifiers - {"ftz", "sat"}) > 1:
        return None
    if to == source and to in _TO_HALF and not modifiers - {"sat"}:
        return _CLAMPED.get(to) if modifiers else ("mov.b16",)
    before: tuple[str, ...] = ()
    after = _CLAMPED.get(to, ()) if "sat" in modifiers else ()
    if "sat" in modifiers and not after:
        return None
    kept = modifiers - {"sat"}
    if "ftz" in modifiers:
        if source == "f32" and to != "f32":
            before, kept = ("cvt.ftz.f32.f32",), kept - {"ftz"}
        elif source == "bf16" and to == "f32":
            after, kept = ("cvt.ftz.f32.f32", *after), kept - {"ftz"}
        elif source not in _MANTISSA_BITS:
            kept -= {"ftz"}  # no integer becomes a subnormal number
    if _MANTISSA_BITS.get(source, 64) <= _MANTISSA_BITS.get(to, 0):
        kept -= _ROUNDINGS  # nothing to round
    middle = ".".join(["cvt", *sorted(kept), to, source])
    return (*before, middle, *after)


def _comparison(modifiers: list[str], to: str, source: str) -> tuple[str, ...] | None:
    """``set`` to a half, or of flushed halves: by way of 32 bits."""
    if to in _TO_HALF:
        return ".".join(["set", *modifiers, "f32", source]), _TO_HALF[to]
    if to in ("u16", "s16"):
        return ".".join(["set", *modifiers, "u32", source]), "cvt.u16.u32"
    return None


def result_type(name: str) -> str:
    """The type of the register that takes a step's result."""
    base, *parts = name.split(".")
    return parts[-1] if base == "mov" else parts[-2]
