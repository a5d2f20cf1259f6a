"""Which threads use what a load brings.

A compiler lets all threads load an element that several of them hold, and one of them store what it makes of it, under
a predicate of the thread's number: Triton does so with blocks of fewer elements than threads. In the others the value
reaches nothing, so that their loads race with nobody. Here that is derived from the instructions alone: a value is
followed through arithmetic, and through exchanges within a warp, to stores whose predicate asks some bits of ``%tid.x``
to be zero. Any other use counts as one of all threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import ptx

__all__ = ["observing", "thread_bits"]

_BITS = 0x3FF  # of %tid.x
_LANE_BITS = 31
_ARITHMETIC = frozenset(
    re.findall(
        r"\S+",
        """
        abs add and bfe bfi bfind brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma fns lg2 lop3 mad
        mad24 max min mov mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct
        sqrt sub tanh testp xor
        """,
    )
)
_EXCHANGES = frozenset({"redux", "shfl"})


def thread_bits(instructions: list[ptx.Instruction]) -> dict[int, int]:
    """By index of a plain load: bits of ``%tid.x`` of which one is set in threads that do not use what it brings.

    Loads whose value any thread may use are left out.
    """
    guards = _Guards(instructions)
    if not any(guards.bits(i.guard) for i in instructions if i.parts[0] == "st" and not i.guard_negated):
        return {}
    unneeded: dict[int, int] = {}  # by register, of what is left of it behind all uses
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            for register, bits in _uses(instruction, guards, unneeded):
                old = unneeded.get(register.index, _BITS)
                if old & ~bits:
                    unneeded[register.index] = old & bits
                    changed = True
    found = {}
    for instruction in instructions:
        if instruction.parts[0] == "ld" and instruction.operands:
            results = list(_registers(instruction.operands[:1]))
            if results and all(r.index in unneeded for r in results):
                bits = _of_all(results, unneeded)
                if bits:
                    found[instruction.index] = bits
    return found


def observing(instructions: list[ptx.Instruction]) -> frozenset[int]:
    """Loads and atomics whose result is used, by index: their threads may know what others have stored there."""
    used = {i.guard.index for i in instructions if i.guard is not None}
    for instruction in instructions:
        results = 1 if instruction.parts[0] in ("ld", "atom") else 0
        used.update(register.index for register in _registers(instruction.operands[results:]))
    return frozenset(
        instruction.index
        for instruction in instructions
        if instruction.parts[0] in ("ld", "atom")
        and any(register.index in used for register in _registers(instruction.operands[:1]))
    )


def _uses(
    instruction: ptx.Instruction, guards: _Guards, unneeded: dict[int, int]
) -> Iterator[tuple[ptx.Register, int]]:
    """The registers that an instruction reads, each with bits of which one is set where that is for nothing."""
    base = instruction.parts[0]
    if instruction.guard is not None:
        yield instruction.guard, 0
    if base == "st":
        bits = 0 if instruction.guard_negated else guards.bits(instruction.guard)
        yield from ((register, bits) for register in _registers(instruction.operands))
        return
    results = list(_registers(instruction.operands[:1]))
    if (base in _ARITHMETIC or base in _EXCHANGES) and "cc" not in instruction.parts:  # carries go unnamed
        bits = _of_all(results, unneeded)
        if base in _EXCHANGES:  # other lanes get it
            bits &= ~_LANE_BITS
        yield from ((register, bits) for register in _registers(instruction.operands[1:2]))
        rest = instruction.operands[2:]
        yield from ((register, 0 if base in _EXCHANGES else bits) for register in _registers(rest))
        return
    read = instruction.operands[1:] if base == "ld" else instruction.operands
    yield from ((register, 0) for register in _registers(read))


def _of_all(results: Iterable[ptx.Register], unneeded: dict[int, int]) -> int:
    bits = _BITS
    for register in results:
        bits &= unneeded.get(register.index, _BITS)
    return bits


def _registers(operands: Iterable[ptx.Operand]) -> Iterator[ptx.Register]:
    for operand in operands:
        if isinstance(operand, ptx.Register):
            yield operand
        elif isinstance(operand, ptx.Vector | ptx.Group):
            yield from _registers(operand.elements)
        elif isinstance(operand, ptx.Pair):
            yield from _registers((operand.first, operand.second))
        elif isinstance(operand, ptx.Negated):
            yield from _registers((operand.operand,))
        elif isinstance(operand, ptx.Address):
            yield from _registers((operand.base, *operand.coordinates))


class _Guards:
    """What predicates ask of ``%tid.x``, where registers have one definition."""

    def __init__(self, instructions: list[ptx.Instruction]) -> None:
        self._definitions: dict[int, list[ptx.Instruction]] = {}
        for instruction in instructions:
            for register in _registers(instruction.operands[:1]):
                self._definitions.setdefault(register.index, []).append(instruction)

    def bits(self, predicate: ptx.Register | None) -> int:
        """Bits of ``%tid.x`` that are all zero in threads for which the predicate holds."""
        made = self._definition(predicate)
        if made is None:
            return 0
        _, *sources = made.operands
        if made.opcode == "and.pred":
            return self.bits(_register(sources[0])) | self.bits(_register(sources[1]))
        if made.parts[0] != "setp" or len(made.parts) != 3 or not isinstance(sources[1], ptx.Immediate):
            return 0
        limit = sources[1].value
        if made.parts[1] == "eq" and limit == 0:
            return self._masked(_register(sources[0]))
        if made.parts[1] == "lt" and limit > 0 and limit & (limit - 1) == 0 and self._is_thread(_register(sources[0])):
            return _BITS & ~(limit - 1)
        return 0

    def _masked(self, register: ptx.Register | None) -> int:
        """Bits of ``%tid.x`` that are all zero where a register is."""
        if self._is_thread(register):
            return _BITS
        made = self._definition(register)
        if made is None or made.opcode != "and.b32":
            return 0
        _, first, second = made.operands
        if isinstance(second, ptx.Immediate) and self._is_thread(_register(first)):
            return second.value & _BITS
        return 0

    def _is_thread(self, register: ptx.Register | None) -> bool:
        made = self._definition(register)
        if made is None or made.parts[0] != "mov" or made.parts[1:] not in (("u32",), ("b32",), ("s32",)):
            return False
        source = made.operands[1]
        return isinstance(source, ptx.Special) and source.name == "%tid.x"

    def _definition(self, register: ptx.Register | None) -> ptx.Instruction | None:
        """The one instruction that writes a register, whatever a predicate says; None where there is none."""
        made = [] if register is None else self._definitions.get(register.index, [])
        return made[0] if len(made) == 1 and made[0].guard is None else None


def _register(operand: ptx.Operand) -> ptx.Register | None:
    return operand if isinstance(operand, ptx.Register) else None
