"""What is known of the registers of a program before it is executed, from its instructions alone.

`thread_bits`: which threads use what a load brings. A compiler lets all threads load an element that several of them
hold, and one of them store what it makes of it, under a predicate of the thread's number: Triton does so with scalars,
and with blocks of fewer elements than threads. In the others the value reaches nothing, so that their loads race with
nobody. A value is followed through arithmetic, and through exchanges within a warp, to stores and atomics whose
predicate asks some bits of ``%tid.x`` to be zero. Any other use, as an address or in a branch, counts as one of all
threads. A branch that chooses among results of arithmetic is a select.

`index_flags`: 32-bit arithmetic whose result becomes an address of global memory, where a result that does not fit
matters. An address is followed backwards through 64-bit arithmetic to where a 32-bit number is widened, and from there
through 32-bit sums, products and shifts. Masks, remainders, minima and selections end the way: what wraps before them
may be meant to, as in a hash.

`samples`: `volatile` loads by which nothing can wait. A load that polls decides a branch, at least whether to load
again; so does one that looks whether work is there. What decides none is taken for the value that it is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from . import ptx

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
_STORES = frozenset({"st", "atom", "red"})
_ENDS = frozenset({"ret", "exit", "trap"})
_LONGEST_WAY = 8

Unneeded = dict[int, int]  # by register: bits of which one is set in threads that do not need it; others need nothing


def thread_bits(instructions: list[ptx.Instruction]) -> dict[int, int]:
    """By index of a plain load: bits of ``%tid.x`` of which one is set in threads that do not use what it brings.

    Loads whose value any thread may use are left out."""
    guards = _Guards(instructions)
    if not any(i.parts[0] in _STORES and guards.bits(i.guard, i.guard_negated) for i in instructions):
        return {}
    if any(i.parts[0] == "brx" for i in instructions):  # where it goes is not followed
        return {}
    blocks = _blocks(instructions)
    choices = _choices(instructions, blocks)
    before: dict[int, Unneeded] = {start: {} for start, _, _ in blocks}
    found: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for start, end, following in reversed(blocks):
            state = _either(before.get(target, {}) for target in following)
            for instruction in reversed(instructions[start:end]):
                results = [r.index for r in registers_in(instruction.operands[: _results(instruction)])]
                unused = not any(index in state for index in results)
                bits = _of_all(results, state)
                if instruction.parts[0] == "ld" and results:
                    found[instruction.index] = 0 if unused else bits  # what nobody uses was loaded for its own sake
                if unused and instruction.parts[0] in _ARITHMETIC and "cc" not in instruction.parts:
                    continue
                if instruction.guard is None:
                    for index in results:
                        state.pop(index, None)
                if instruction.index in choices:
                    join, chosen = choices[instruction.index]
                    bits = _of_all(chosen, before.get(join, {}))
                for register, unneeded in _uses(instruction, guards, bits, instruction.index in choices):
                    state[register.index] = state.get(register.index, _BITS) & unneeded
            changed |= state != before[start]
            before[start] = state
    return {index: bits for index, bits in found.items() if bits}


def _blocks(instructions: list[ptx.Instruction]) -> list[tuple[int, int, list[int]]]:
    """Runs of instructions without a branch: where each begins, where it ends, and where it goes on."""
    labels = {i.index: o.target for i in instructions for o in i.operands if isinstance(o, ptx.Label)}
    ends = {i.index + 1 for i in instructions if i.index in labels or i.parts[0] in _ENDS}
    edges = sorted({0, len(instructions)} | ends | {target for target in labels.values() if target >= 0})
    blocks = []
    for start, end in itertools.pairwise(edges):
        last = instructions[end - 1]
        leaves = last.guard is None and (last.index in labels or last.parts[0] in _ENDS)
        following = [*([] if leaves else [end]), *([labels[last.index]] if last.index in labels else [])]
        blocks.append((start, end, following))
    return blocks


def _choices(
    instructions: list[ptx.Instruction], blocks: list[tuple[int, int, list[int]]]
) -> dict[int, tuple[int, set[int]]]:
    """Branches that only choose among values, as a select does: where their ways meet, and what is written on them."""
    ends = {start: (end, following) for start, end, following in blocks}

    def way(start: int) -> list[int]:
        """Blocks of arithmetic that follow one another, and the block behind them."""
        found = [start]
        while start in ends and len(ends[start][1]) == 1 and len(found) < _LONGEST_WAY:
            end, (following,) = ends[start]
            if any(i.parts[0] not in _ARITHMETIC and i.parts[0] != "bra" for i in instructions[start:end]):
                break
            found.append(start := following)
        return found

    choices = {}
    for _, end, following in blocks:
        if len(following) == 2 and instructions[end - 1].parts[0] == "bra":
            first, second = way(following[0]), way(following[1])
            join = next((block for block in first if block in second), None)
            if join is not None:
                between = {*first[: first.index(join)], *second[: second.index(join)]}
                written = {
                    register.index
                    for block in between
                    for i in instructions[block : ends[block][0]]
                    for register in registers_in(i.operands[: _results(i)])
                }
                choices[end - 1] = (join, written)
    return choices


def _either(states: Iterable[Unneeded]) -> Unneeded:
    both: Unneeded = {}
    for state in states:
        for register, bits in state.items():
            both[register] = both.get(register, _BITS) & bits
    return both


def _results(instruction: ptx.Instruction) -> int:
    """Of an instruction's operands, how many at the front are only written."""
    base = instruction.parts[0]
    return 1 if base in _ARITHMETIC or base in _EXCHANGES or base in ("ld", "atom") else 0


def _uses(
    instruction: ptx.Instruction, guards: _Guards, bits: int, chooses: bool
) -> Iterator[tuple[ptx.Register, int]]:
    """The registers that an instruction reads, each with bits of which one is set where that is for nothing.

    ``bits`` are those of its results, or of a branch that ``chooses`` among values those of the values."""
    base = instruction.parts[0]
    if base in _STORES:
        bits = guards.bits(instruction.guard, instruction.guard_negated)
        read = (instruction.guard, *instruction.operands[_results(instruction) :])
        yield from ((register, bits) for register in registers_in(read))
        return
    if instruction.guard is not None:
        yield instruction.guard, bits if chooses else 0
    followed = (base in _ARITHMETIC or base in _EXCHANGES) and "cc" not in instruction.parts  # carries go unnamed
    if base in _EXCHANGES:  # other lanes get it
        bits &= ~_LANE_BITS
    for number, operand in enumerate(instruction.operands[_results(instruction) :]):
        needless = bits if followed and (base in _ARITHMETIC or number == 0) else 0
        yield from ((register, needless) for register in registers_in((operand,)))


def _of_all(results: Iterable[int], unneeded: Unneeded) -> int:
    bits = _BITS
    for register in results:
        bits &= unneeded.get(register, _BITS)
    return bits


def registers_in(operands: Iterable[ptx.Operand | None]) -> Iterator[ptx.Register]:
    """The registers of operands, also those in vectors and addresses."""
    for operand in operands:
        if isinstance(operand, ptx.Register):
            yield operand
        elif isinstance(operand, ptx.Vector | ptx.Group):
            yield from registers_in(operand.elements)
        elif isinstance(operand, ptx.Pair):
            yield from registers_in((operand.first, operand.second))
        elif isinstance(operand, ptx.Negated):
            yield from registers_in((operand.operand,))
        elif isinstance(operand, ptx.Address):
            yield from registers_in((operand.base, *operand.coordinates))


class _Guards:
    """What predicates ask of ``%tid.x``, where registers have one definition."""

    def __init__(self, instructions: list[ptx.Instruction]) -> None:
        self._definitions: dict[int, list[ptx.Instruction]] = {}
        for instruction in instructions:
            for register in registers_in(instruction.operands[:1]):
                self._definitions.setdefault(register.index, []).append(instruction)

    def bits(self, predicate: ptx.Operand | None, negated: bool = False) -> int:
        """Bits of ``%tid.x`` that are all zero in threads for which the predicate holds, or with ``negated`` not."""
        made = self._definition(predicate)
        if made is None:
            return 0
        _, *sources = made.operands
        if made.opcode == ("or.pred" if negated else "and.pred"):
            return self.bits(sources[0], negated) | self.bits(sources[1], negated)
        if made.opcode == "not.pred":
            return self.bits(sources[0], not negated)
        if made.parts[0] != "setp" or len(made.parts) != 3 or not isinstance(sources[1], ptx.Immediate):
            return 0
        limit = sources[1].value
        if made.parts[1] == ("ne" if negated else "eq") and limit == 0:
            return self._masked(sources[0])
        limit += {"lt": 0, "ge": 0, "le": 1, "gt": 1}.get(made.parts[1], 0)
        below = made.parts[1] in (("ge", "gt") if negated else ("lt", "le"))
        if below and limit > 0 and limit & (limit - 1) == 0 and self._is("%tid.x", sources[0]):
            return _BITS & ~(limit - 1)
        return 0

    def _masked(self, register: ptx.Operand) -> int:
        """Bits of ``%tid.x`` that are all zero where a register is."""
        if self._is("%tid.x", register):
            return _BITS
        if self._is("%laneid", register):
            return _LANE_BITS
        made = self._definition(register)
        if made is None or made.opcode not in ("and.b32", "or.b32", "shr.u32"):
            return 0
        _, first, second = made.operands
        if made.parts[0] == "or":
            return self._masked(first) | self._masked(second)
        known = self._masked(first)
        if not isinstance(second, ptx.Immediate):
            return 0
        return known & second.value if made.parts[0] == "and" else known & -1 << second.value if known == _BITS else 0

    def _is(self, special: str, register: ptx.Operand) -> bool:
        made = self._definition(register)
        if made is None or made.parts[0] != "mov" or made.parts[1:] not in (("u32",), ("b32",), ("s32",)):
            return False
        source = made.operands[1]
        return isinstance(source, ptx.Special) and source.name == special

    def _definition(self, register: ptx.Operand | None) -> ptx.Instruction | None:
        """The one instruction that writes a register, whatever a predicate says; None where there is none."""
        made = self._definitions.get(register.index, []) if isinstance(register, ptx.Register) else []
        return made[0] if len(made) == 1 and made[0].guard is None else None


def samples(instructions: list[ptx.Instruction]) -> frozenset[int]:
    """`volatile` loads whose value decides no branch and no predicate, by index.

    A value is followed backwards from guards, through registers and through what is kept in shared and local memory.
    What a function is given counts as deciding."""
    loads = [i for i in instructions if i.parts[0] == "ld" and "volatile" in i.parts]
    if not loads:
        return frozenset()
    deciding = {i.guard.index for i in instructions if i.guard is not None}
    memory_decides, before = False, (-1, False)
    while before != (len(deciding), memory_decides):
        before = len(deciding), memory_decides
        for instruction in reversed(instructions):
            base, is_global = instruction.parts[0], "global" in instruction.parts
            registers = {register.index for register in registers_in(instruction.operands)}
            if base in ("st", "red"):
                decides = "param" in instruction.parts or (memory_decides and not is_global)
            else:
                results = registers_in(instruction.operands[:1])
                decides = base in ("call", "brx") or any(result.index in deciding for result in results)
                memory_decides |= decides and base in ("ld", "atom") and not is_global
            if decides:
                deciding |= registers
    return frozenset(
        load.index for load in loads if all(r.index not in deciding for r in registers_in(load.operands[:1]))
    )


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
