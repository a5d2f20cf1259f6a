"""``tensormap.replace``, ``tensormap.cp_fenceproxy`` and ``fence.proxy.tensormap`` as operations of the engine.

A map is edited by ordinary stores to its fields (``tensor_bytes.py``), copied by a word a lane, and handed on by a
fence; bulk copies read it as the async proxy, so that an edit without the proxy fence is found like any store.
"""

from __future__ import annotations

from collections.abc import Callable

from . import ptx
from .opcodes import normalise
from .tensor_bytes import FIELDS

__all__ = ["edit_steps"]

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
    steps: list[Step] = [
        ("mul.lo.u32", (offset, _LANE, ptx.Immediate(4)), 0),
        ("cvt.u64.u32", (wide, offset), 0),
    ]
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
