"""Instructions of ``tcgen05``: the engine's few operations, and flags that say what else the opcode names.

From the section "TensorCore 5th Generation Family Instructions" of the PTX manual (ISA 9.1, 9.7.16).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from . import ptx

__all__ = ["TensorOperation", "tensor_operation"]

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
COPIES = ("128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23", "32x128b.warpx4")
_SCALED = frozenset({"mxf8f6f4", "mxf4", "mxf4nvf4"})
_FACTORS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_FACTORS_OF_BLOCKS = {
    ("mxf8f6f4", ""): 1,
    ("mxf8f6f4", "block32"): 1,
    ("mxf4", ""): 2,
    ("mxf4", "block32"): 2,
    ("mxf4nvf4", "block32"): 2,
    ("mxf4nvf4", "block16"): 4,
}
_KIND_SHIFT, _PAIR, _VARIANT_SHIFT = 19, 1 << 22, 23  # as TensorFlag of engine/tensor_memory.hpp
_SHIFT_A, _WEIGHTS, _PACKED = 1 << 26, 1 << 27, 1 << 28
_REDUCED = ("u32", "s32", "f32")
_COLLECTOR = re.compile(r"collector::(a|b[0-3])::(fill|use|lastuse|discard)")
_DECOMPRESSED = {"b4x16_p64": 4, "b6x16_p32": 6}


@dataclass(frozen=True, slots=True)
class TensorOperation:
    """The engine's name of an instruction, and its flags."""

    name: str
    flags: int = 0


def tensor_operation(instruction: ptx.Instruction) -> TensorOperation | str:
    """What an instruction of ``tcgen05`` is to the engine, or why its opcode is none."""
    _, what, *modifiers = [part.removesuffix("::cta") for part in instruction.parts]
    flags = 0
    for group, flag in (("cta_group::1", 0), ("cta_group::2", _PAIR)):
        if group in modifiers:
            modifiers.remove(group)
            flags |= flag
    if what == "mma":
        return _product(modifiers, instruction.operands, flags)
    if what == "ld" and "red" in modifiers:
        return _reduction(modifiers)
    if what in ("ld", "st"):
        packed = {"ld": "pack::16b", "st": "unpack::16b"}[what]
        if packed in modifiers:
            modifiers.remove(packed)
            flags |= _PACKED
        return TensorOperation(".".join(["tcgen05", what, *modifiers]), flags)
    if what == "cp":
        return _copy(modifiers, flags)
    if what in ("wait::ld", "wait::st"):
        return TensorOperation(f"tcgen05.wait.{what[-2:]}")
    if what.startswith("fence::"):
        return TensorOperation(f"tcgen05.fence.{what.removeprefix('fence::').partition('_')[0]}")
    if what == "commit":
        return TensorOperation("tcgen05.commit.multicast" if len(instruction.operands) > 1 else "tcgen05.commit", flags)
    return TensorOperation(f"tcgen05.{what}", flags)


def _reduction(modifiers: list[str]) -> TensorOperation | str:
    """A load that also finds the least or greatest register: what it compares is in the flags."""
    kind, how = modifiers[-1], set(modifiers)
    if kind not in _REDUCED or not how & {"min", "max"} or (how & {"abs", "NaN"} and kind != "f32"):
        return f"it reduces {', '.join(_REDUCED)} by min or max, f32 also with .abs and .NaN"
    variant = sum(flag for name, flag in (("max", 1), ("abs", 2), ("NaN", 4)) if name in how)
    shape = [m for m in modifiers[:-1] if m not in ("red", "min", "max", "abs", "NaN")]
    flags = _REDUCED.index(kind) << _KIND_SHIFT | variant << _VARIANT_SHIFT
    return TensorOperation(".".join(["tcgen05", "ld", "red", *shape, "b32"]), flags)


def _copy(modifiers: list[str], flags: int) -> TensorOperation | str:
    shape = ".".join(m for m in modifiers if m not in _DECOMPRESSED and m != "b8x16")
    if shape not in COPIES:
        return f"a copy to tensor memory has the shape {', '.join(COPIES)}"
    for name, bits in _DECOMPRESSED.items():
        if name in modifiers:
            flags |= bits << _VARIANT_SHIFT
    return TensorOperation("tcgen05.cp", flags | COPIES.index(shape) << _KIND_SHIFT)


def _product(modifiers: list[str], operands: Sequence[ptx.Operand], flags: int) -> TensorOperation | str:
    kinds = [m.removeprefix("kind::") for m in modifiers if m.startswith("kind::")]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        return f"a product has one kind of {', '.join(KINDS)}"
    (kind,) = kinds
    how, factors = "", 0
    if kind in _SCALED:
        how = ".scaled"
        block = next((m for m in modifiers if m.startswith("block") and m != "block_scale"), "")
        named = [_FACTORS[m] for m in modifiers if m in _FACTORS]
        factors = named[0] if named else _FACTORS_OF_BLOCKS.get((kind, block), 0)
        if not factors:
            return f"a product of {kind} names the blocks that share a scale factor"
    elif "ws" in modifiers:
        how, flags = ".ws", flags | _WEIGHTS
    if "ashift" in modifiers:
        flags |= _SHIFT_A
    known = {"sp", "ws", "ashift", "block_scale", "block16", "block32", f"kind::{kind}", *_FACTORS}
    if unknown := [m for m in modifiers if m not in known and not _COLLECTOR.fullmatch(m)]:
        return f"it does not know .{unknown[0]}"
    in_tensor = len(operands) > 1 and isinstance(operands[1], ptx.Address)
    name = f"tcgen05.mma{how}{'.sp' if 'sp' in modifiers else ''}.{'ts' if in_tensor else 'ss'}"
    return TensorOperation(name, flags | KINDS.index(kind) << _KIND_SHIFT | factors << _VARIANT_SHIFT)
