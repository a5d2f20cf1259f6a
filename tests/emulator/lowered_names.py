"""Instructions that the emulator carries out as several of the engine's operations; ``forms.py`` defines them, too."""

from __future__ import annotations

from itertools import product

__all__ = ["LOWERED"]

_ROUNDINGS = ("rn", "rz", "rm", "rp")
_CVT = [
    *(f"{r}.sat.{to}.{i}" for r, to, i in product(_ROUNDINGS, ("f16", "f32", "f64"), ("s8", "u32", "s64", "u64"))),
    *(f"{r}.ftz{s}.f32.{i}" for r, s, i in product(("rn", "rm"), ("", ".sat"), ("u16", "s32", "u64"))),
    *(f"{r}.sat.{to}" for r, to in product(_ROUNDINGS, ("f32.f64", "f16.f64"))),
    *(f"{r}.ftz{s}.f16.f32" for r, s in product(_ROUNDINGS, ("", ".sat"))),
    *(f"{r}.ftz.{to}" for r, to in product(_ROUNDINGS, ("bf16.f32", "f32.bf16"))),
    *(f"{r}.sat.f16.f32" for r in ("rz", "rm", "rp")),
    *(f"{r}.ftz.sat.f32.f32" for r in ("rni", "rzi", "rmi", "rpi")),
    *(f"{r}.sat.f64.f64" for r in ("rni", "rzi", "rmi", "rpi")),
    *(f"{r}.sat.f16.f16" for r in ("rni", "rzi", "rmi", "rpi")),
    *(f"{r}.f64.bf16" for r in _ROUNDINGS),
    *("sat.f64.f32", "sat.f64.f16", "sat.f16.f16", "ftz.sat.f64.f32", "ftz.f64.f32", "ftz.sat.f32.f16"),
    *("f16.f16", "bf16.bf16"),
]
_COMPARISONS = ("eq", "ltu", "ge", "nan")
_SET = [
    *(f"{c}{j}.{to}.{a}" for c, j, to, a in product(_COMPARISONS, ("", ".and"), ("f16", "bf16"), ("f32", "f64"))),
    *(f"{c}.{to}.{a}" for c, to, a in product(("eq", "ne"), ("f16", "bf16"), ("u32", "s64", "b32"))),
    *(f"{c}.ftz.{to}" for c, to in product(_COMPARISONS, ("f16.f16", "f16.f32", "s16.f16", "u16.f16"))),
]
LOWERED = [*(f"cvt.{name}" for name in _CVT), *(f"set.{name}" for name in _SET)]
