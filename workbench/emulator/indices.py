"""32-bit arithmetic whose result becomes an address of global memory, where a result that does not fit matters.

An address is followed backwards through 64-bit arithmetic to where a 32-bit number is widened, and from there through
32-bit sums, products and shifts. Masks, remainders, minima and selections end the way: what wraps before them may be
meant to, as in a hash.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import ptx

__all__ = ["index_flags"]

_ADDRESS, _SIGNED, _UNSIGNED = 1, 1 << 19, 1 << 20  # the latter as in engine.hpp
_WIDENED = {"s32": _SIGNED, "u32": _UNSIGNED}
_OTHER_SPACES = frozenset({"shared", "shared::cta", "shared::cluster", "local", "param", "const", "param::entry"})
_ACCESSES = frozenset({"ld", "ldu", "st", "atom", "red"})
_WATCHED = frozenset({"add.s32", "add.u32", "sub.s32", "sub.u32", "shl.b32"}) | frozenset(
    f"{name}.lo.{kind}" for name in ("mul", "mad") for kind in ("s32", "u32")
)
_MOVES = frozenset({"mov.u32", "mov.s32", "mov.b32"})
_WIDE = frozenset(f"{name}.{kind}64" for name in ("add", "sub", "mov", "mul.lo", "mad.lo", "shl") for kind in "sub")


def index_flags(instructions: list[ptx.Instruction]) -> dict[int, int]:
    """By index of an instruction: how its result is widened before it becomes an address, as flags of the engine."""
    needed: dict[int, int] = {}  # by register
    for instruction in instructions:
        if instruction.parts[0] in _ACCESSES and _OTHER_SPACES.isdisjoint(instruction.parts):
            bases = [o.base for o in instruction.operands if isinstance(o, ptx.Address)]
            needed.update((base.index, _ADDRESS) for base in bases if isinstance(base, ptx.Register))
    if not needed:
        return {}
    found: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            result = instruction.operands[0] if instruction.operands else None
            if not isinstance(result, ptx.Register) or not (bits := needed.get(result.index, 0)):
                continue
            if instruction.opcode in _WATCHED:
                found[instruction.index] = bits & ~_ADDRESS
            for register, more in _sources(instruction, bits):
                known = needed.get(register.index, 0)
                if more & ~known:
                    needed[register.index] = known | more
                    changed = True
    return {index: flags for index, flags in found.items() if flags}


def _sources(instruction: ptx.Instruction, bits: int) -> Iterator[tuple[ptx.Register, int]]:
    """The registers that a result is made of, and what is asked of them."""
    opcode, parts = instruction.opcode, instruction.parts
    if bits & _ADDRESS:
        if parts[0] == "cvt" and parts[-1] in _WIDENED and parts[-2] in ("s64", "u64"):
            asked = [_WIDENED[parts[-1]]]
        elif parts[0] in ("mul", "mad") and "wide" in parts and parts[-1] in _WIDENED:
            asked = [_WIDENED[parts[-1]]] * 2 + [_ADDRESS]
        elif opcode in _WIDE or parts[0] == "cvta":
            asked = [_ADDRESS] * (1 if parts[0] == "shl" else 3)
        else:
            asked = []
    else:
        asked = [bits] * (1 if parts[0] == "shl" else 3) if opcode in _WATCHED or opcode in _MOVES else []
    for operand, more in zip(instruction.operands[1:], asked, strict=False):
        if isinstance(operand, ptx.Register):
            yield operand, more
