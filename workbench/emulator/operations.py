"""The operations of the engine, and how the instructions of PTX are brought to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from . import _engine, ptx
from .memory import FIELDS

# -------------------------------------------------------------------------------- opcodes under the names of the engine
_ORDERS = {"weak": 0, "volatile": 1, "mmio": 1, "relaxed": 1, "acquire": 2, "release": 3, "acq_rel": 4, "sc": 5}
_SCOPES = {"cta": 1 << 3, "cluster": 2 << 3, "gpu": 3 << 3, "sys": 4 << 3}
_MEMBAR_SCOPES = {"cta": "cta", "gl": "gpu", "sys": "sys"}
_READ_ONLY_CACHE = 1 << 7
_VOLATILE = 1 << 21
_GROUPS = {"cta_group::1": 0, "cta_group::2": 1 << 22}
_WITH_ORDER = {"ld", "ldu", "st", "atom", "red", "mbarrier", "fence"}
_HINTS = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"}
_VECTORS = {"v2", "v4", "v8"}
_CACHE_OPERATIONS = {"prefetch", "prefetchu", "applypriority", "discard"}  # of these, a hint is the operation itself


def _is_hint(part: str, opcode: str) -> bool:
    """Whether a part of an opcode only says what caches should do."""
    if part in _HINTS:
        return not (part in ("ca", "cg") and opcode.startswith("cp.async."))
    return part.startswith(("L1::", "L2::")) and opcode.partition(".")[0] not in _CACHE_OPERATIONS


@lru_cache(maxsize=8192)
def normalise(opcode: str) -> tuple[str, int, bool]:
    """Canonical name of an opcode, its order and scope as flags, and whether its last operand is a cache policy."""
    parts = opcode.split(".")
    base = parts[0]
    policy = "L2::cache_hint" in parts
    if base == "membar" and parts[-1] in _MEMBAR_SCOPES and len(parts) == 2:
        return "fence", _ORDERS["sc"] | _SCOPES[_MEMBAR_SCOPES[parts[1]]], False
    flags = 0
    kept = []
    for part in parts:
        if base in _WITH_ORDER and (part in _ORDERS or part in _SCOPES):
            flags |= _ORDERS.get(part, 0) | _SCOPES.get(part, 0) | (_VOLATILE if part == "volatile" else 0)
        elif base == "ld" and part == "nc":
            flags |= _READ_ONLY_CACHE
        elif base == "cp" and part in _GROUPS:
            flags |= _GROUPS[part]
        elif not _is_hint(part, opcode):
            kept.append(part.removesuffix("::cta").removesuffix("::entry").removesuffix("::func"))
    if base in ("fence", "membar"):
        for special in ("proxy", "mbarrier_init"):
            if kept[1:2] == [special]:
                return f"fence.{special}", flags, False
        return "fence", flags, False
    if base == "ldu":
        kept[0] = "ld"
    if base == "mad" and kept[-1] in ("f32", "f64"):
        kept[0] = "fma"
    if base in ("atom", "red") and "global" not in kept and not _VECTORS.isdisjoint(kept):
        kept.insert(1, "global")  # the only space that a generic address may mean here
    if base in ("min", "max") and kept[-1] == "relu":  # as CUDA's headers write it
        kept.insert(1, kept.pop())
    return ".".join(kept), flags, policy


# ----------------------------------------------------------------------------------------- the operations of the engine


class Letter(NamedTuple):
    letter: str
    optional: bool
    writes: bool
    reads: bool
    size: int  # bytes a lane


@cache
def letters_of(text: str) -> tuple[Letter, ...]:
    letters: list[Letter] = []
    for letter, count, optional in re.findall(r"([A-Za-z])(\d*)(\??)", text):
        size = 8 if letter in "Dde" else 4
        letters += [Letter(letter, bool(optional), letter in "WDPU", letter in "Uwdpfea", size)] * int(count or 1)
    return tuple(letters)


@cache
def operations() -> dict[str, tuple[int, str]]:
    """The engine's list: number and signature of each name."""
    return {name: (number, signature) for number, (name, signature) in enumerate(_engine.operations())}


_ORDERED = re.compile(r"[busf]\d+(x\d+)?|bf16(x2)?|tf32|e\dm\d(x\d)?|row|col|pred|rs|pack\d+|unpack\d+")
_SPACES = frozenset({"global", "shared", "shared::cluster", "local", "param", "const"})


def _any_order(name: str) -> tuple[str, ...]:
    """What two spellings of one operation share: ptxas minds the order of types and of spaces alone."""
    base, *modifiers = name.split(".")
    ordered = [m for m in modifiers if _ORDERED.fullmatch(m)]
    spaces = [m for m in modifiers if m in _SPACES]
    others = [m for m in modifiers if m not in _SPACES and not _ORDERED.fullmatch(m)]
    return (base, *ordered, "", *spaces, "", *sorted(others))


@cache
def _in_any_order() -> dict[tuple[str, ...], str]:
    """The listed name of each set of modifiers; the first where several names mean the same."""
    return {_any_order(name): name for name in reversed(operations())}


@cache
def listed_name(name: str) -> str | None:
    """The engine's name of an operation whose modifiers may stand in another order, or None where it has none."""
    return name if name in operations() else _in_any_order().get(_any_order(name))


@cache
def special_registers() -> dict[str, int]:
    return {f"%{name}": number for number, name in enumerate(_engine.special_names())}


def _fits(operand: ptx.Operand, letter: str) -> bool:
    """Whether an operand may stand where the signature has the letter, widths apart."""
    if isinstance(operand, ptx.Register):
        return (letter in "Pp") == (operand.type == "pred") and letter not in "al"
    if isinstance(operand, ptx.Negated):
        return letter == "p"
    if isinstance(operand, ptx.Sink):
        return letter in "WDP"
    if isinstance(operand, ptx.Address):
        return letter == "a"
    if isinstance(operand, ptx.Label):
        return letter == "l"
    return letter in "wdfep"


def match(operands: Sequence[ptx.Operand], letters: Sequence[Letter]) -> list[ptx.Operand | None] | None:
    """Operands by letter, None for an optional one left out; None altogether when they cannot be matched."""
    if len(operands) == len(letters):
        for operand, wanted in zip(operands, letters, strict=True):
            if not _fits(operand, wanted.letter):
                break
        else:
            return list(operands)
    if not letters:
        return None if operands else []
    first = letters[0]
    if operands and _fits(operands[0], first.letter):
        rest = match(operands[1:], letters[1:])
        if rest is not None:
            return [operands[0], *rest]
    if first.optional:
        rest = match(operands, letters[1:])
        if rest is not None:
            return [None, *rest]
    return None


# ------------------------------------------------------------------- instructions that are two or three of the engine's
# Such as ``cvt.rn.sat.f32.s32``, which converts and then clamps. Each step takes the result of the one before it; the
# steps are exact, or the last that rounds is the only one, so that the result is the instruction's own.

_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})
_INTEGRAL = frozenset({"rni", "rzi", "rmi", "rpi"})
_MANTISSA_BITS = {"bf16": 7, "f16": 10, "f32": 23, "f64": 52}
_CLAMPED = {"f32": ("cvt.sat.f32.f32",), "f64": ("cvt.sat.f64.f64",), "f16": ("cvt.sat.f32.f16", "cvt.rn.f16.f32")}
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


# ------------------------------------------------------------------------------------------------- edits of tensor maps
# A map is edited by ordinary stores to its fields (``tensor_bytes.py``), copied by a word a lane, and handed on by a
# fence; bulk copies read it as the async proxy, so that an edit without the proxy fence is found like any store.

Step = tuple[str, tuple[ptx.Operand, ...], int]
_LANE = ptx.Special("%laneid")


def edit_steps(instruction: ptx.Instruction, scratch: Callable[[str], ptx.Register]) -> list[Step] | str:
    """Operations, operands and flags in order, or what is wrong with the instruction."""
    parts, operands = instruction.parts, instruction.operands
    if parts[0] == "fence":
        return _fence(instruction.opcode, operands)
    if parts[1:2] == ("replace",):
        return _replace(parts, operands, scratch)
    if parts[1:2] != ("cp_fenceproxy",) or len(operands) != 3:
        return "it knows tensormap.replace and tensormap.cp_fenceproxy"
    return _copy(instruction.opcode, operands, scratch)


def _fence(opcode: str, operands: tuple[ptx.Operand, ...] = ()) -> list[Step] | str:
    flags = normalise(opcode)[1]
    fence: Step = ("fence", (), flags & ~7 | 4)
    if "acquire" not in opcode.split("."):
        return [fence, ("fence.proxy", (), 0)]
    if len(operands) != 2 or operands[1] != ptx.Immediate(128):
        return "it has the address of a tensor map, and 128 bytes"
    return [fence, ("fence.proxy.tensormap.acquire", operands[:1], 0)]


def _replace(
    parts: tuple[str, ...], operands: tuple[ptx.Operand, ...], scratch: Callable[[str], ptx.Register]
) -> list[Step] | str:
    field = next((part for part in parts if part in FIELDS), None)
    if field is None:
        return "it replaces no field of a tensor map"
    first, step, kind = FIELDS[field]
    place, *ordinal, value = operands
    if not isinstance(place, ptx.Address) or len(ordinal) != (step > 0):
        return f"it has an address, {'a dimension, ' if step else ''}and the value of {field}"
    if ordinal:
        if not isinstance(ordinal[0], ptx.Immediate) or not 0 <= ordinal[0].value < 5:
            return "a dimension is a number from 0 to 4"
        first += step * ordinal[0].value
    space = next((f".{part.removesuffix('::cta')}" for part in parts if part in ("global", "shared::cta")), "")
    steps: list[Step] = []
    if field in ("rank", "global_dim"):
        changed = scratch("b32")
        steps.append(("add.u32", (changed, value, ptx.Immediate(1 if field == "rank" else -1)), 0))
        value = changed
    steps.append((f"st{space}.{kind}", (ptx.Address(place.base, place.offset + first), value), 0))
    return steps


def _copy(opcode: str, operands: tuple[ptx.Operand, ...], scratch: Callable[[str], ptx.Register]) -> list[Step] | str:
    to, source, size = operands
    if not isinstance(to, ptx.Address) or not isinstance(source, ptx.Address) or size != ptx.Immediate(128):
        return "it copies 128 bytes from an address to another"
    offset, wide, word = scratch("b32"), scratch("b64"), scratch("b32")
    steps: list[Step] = [("mul.lo.u32", (offset, _LANE, ptx.Immediate(4)), 0), ("cvt.u64.u32", (wide, offset), 0)]
    places = []
    for address in (source, to):
        base = address.base
        moved = scratch("b32" if isinstance(base, ptx.Register) and ptx.type_size(base.type) == 4 else "b64")
        narrow = moved.type == "b32"
        steps.append((f"add.u{32 if narrow else 64}", (moved, base, offset if narrow else wide), 0))
        places.append(ptx.Address(moved, address.offset))
    fence = _fence(opcode.replace("tensormap", "fence", 1))
    if isinstance(fence, str):
        return fence
    steps += [("ld.shared.b32", (word, places[0]), 0), ("st.global.b32", (places[1], word), 0)]
    return [*steps, *fence]


# ------------- instructions of ``tcgen05``: the engine's few operations, and flags that say what else the opcode names

# From the section "TensorCore 5th Generation Family Instructions" of the PTX manual (ISA 9.1, 9.7.16).


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
_COLLECTOR_SHIFT, _BUFFER_SHIFT = 28, 30
_COLLECTED = ("discard", "fill", "use", "lastuse")  # as CollectorUse
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
        return _tensor_copy(modifiers, flags)
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


def _tensor_copy(modifiers: list[str], flags: int) -> TensorOperation | str:
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
    for match in filter(None, map(_COLLECTOR.fullmatch, modifiers)):
        buffer, use = match.groups()
        flags |= _COLLECTED.index(use) << _COLLECTOR_SHIFT | int(buffer[1:] or 0) << _BUFFER_SHIFT
    flags -= flags >> 31 << 32  # a signed number of the engine
    in_tensor = len(operands) > 1 and isinstance(operands[1], ptx.Address)
    name = f"tcgen05.mma{how}{'.sp' if 'sp' in modifiers else ''}.{'ts' if in_tensor else 'ss'}"
    return TensorOperation(name, flags | KINDS.index(kind) << _KIND_SHIFT | factors << _VARIANT_SHIFT)
