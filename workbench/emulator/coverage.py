"""The conditions of a kernel: where they are, how they read, what they depend on, and how they came out in launches.

Of each instruction that makes a predicate the engine notes whether it was ever true in a thread, and ever false. A
compiler makes several of one comparison: so bounds, how far a thread or a loop goes, are told apart by their statement
and the parameters that they depend on, conditions on data by the constant, others by all that they are computed from,
but for types."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .program import Entry, kernel_line
from .ptx import Address, Immediate, Instruction, Negated, Operand, Register, Special, Symbol

TRUE, FALSE = 1, 2
"""Bits of an outcome: it was true in a thread, it was false."""

NEAR = 16
"""A comparison with a constant up to this one asks whether there is anything, or a vector of it: that is a bound."""

FAR = 1024
"""The largest size of a tile that an extent is divided by."""

DEPTH = 4
"""Operations within each other that the text of a condition shows."""

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^"}
_SIGNS |= {"shl": "<<", "shr": ">>", "mad": "*", "fma": "*"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">"}
_COMPARED |= {"hs": ">=", "equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_LOADS = frozenset({"ld", "ldu", "atom", "tex", "tld4", "suld", "ldmatrix", "mma", "wgmma", "wmma", "tcgen05", "bar"})
_LOADS |= {"barrier"}
_WAITS = frozenset({"mbarrier", "clusterlaunchcontrol"})
_WITHOUT_RESULT = frozenset({"st", "red", "bra", "brx", "ret", "exit", "call", "cp", "fence", "membar", "prefetch"})
_CUDA = {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx", "nctaid": "gridDim"}
_OF_A_DEVICE = frozenset({"smid", "nsmid", "gridid", "warpid", "nwarpid"})
_PLAIN = frozenset({"ld", "mov", "cvt", "cvta", "add", "sub", "mul", "mad", "min", "max", "shl", "shr", "selp", "neg"})
_PLAIN |= {"and", "or", "not", "bfe", "bfi", "div", "setp"}
_SHAPE = frozenset({"thread", "block", "grid", "loop"})
_SETTLED = frozenset({"thread", "wait"})
_TYPE = re.compile(r"(b?f|[bsu])\d+(x2)?|v[248]|nc|rn|ftz")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a kernel: its line, how it reads, and what it depends on: ``parameters``, ``blocks`` (how many),
    ``grid``, ``block``, ``thread``, ``loop``, ``data``, ``clock``, ``device``, ``wait``. ``identity`` tells it from
    others, and ``is_bound`` says that it asks how far a thread or a loop goes."""

    identity: str
    file: str = field(compare=False)
    line: int = field(compare=False)
    text: str = field(compare=False)
    depends_on: frozenset[str] = field(compare=False)
    is_bound: bool = field(compare=False)

    @property
    def is_settled(self) -> bool:
        """Whether it is the same in every launch of blocks of this shape, or asks for nothing but a wait."""
        return self.depends_on <= _SETTLED


Outcomes = dict[Condition, int]
"""Of conditions, whether they were ``TRUE`` in a thread, and ``FALSE``."""


def merge(found: Outcomes, more: Outcomes) -> None:
    """Add other outcomes to those that were found."""
    for condition, bits in more.items():
        found[condition] = found.get(condition, 0) | bits


def outcomes(entry: Entry, noted: npt.NDArray[np.uint8]) -> Outcomes:
    """How the conditions of a kernel came out in launches, by the ``outcomes`` of the engine, ``(rows,)``."""
    found: Outcomes = {}
    for row, shift, condition in _conditions(entry):
        if bits := int(noted[row]) >> shift & 3:
            found[condition] = found.get(condition, 0) | bits
    return found


@lru_cache(maxsize=256)
def _conditions(entry: Entry) -> tuple[tuple[int, int, Condition], ...]:
    """Rows of a kernel that decide, where in the byte of a row the outcome is, and the condition."""
    flow, found, cases = _Flow(entry.instructions), [], 0
    compares = {number for number, (name, _) in enumerate(_engine.operations()) if name == "setp.eq.u32"}
    for row, index in enumerate(entry.decoded.instructions.tolist()):
        instruction = entry.instructions[index]
        if instruction.parts[0] == "brx":  # rows that compare the index with each place of the table
            cases += (is_case := int(entry.decoded.rows[row][0]) in compares)
            found += [(row, 0, flow.condition(instruction, f" of case {cases}"))] if is_case else []
            continue
        results = _results(instruction)
        pair = isinstance(instruction.operands[0], ptx.Pair) if results else False
        for place, register in enumerate(results):
            if register.type == "pred" and register in flow.used:
                found.append((row, 2 * place * pair, flow.condition(instruction)))
    return tuple(found)


def _results(instruction: Instruction) -> list[Register]:
    """The registers that an instruction may write, in order."""
    if not instruction.operands or instruction.parts[0] in _WITHOUT_RESULT:
        return []
    return [op for op in _flat(instruction.operands[0]) if isinstance(op, Register)]


def _flat(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, ptx.Vector | ptx.Group):
        for element in operand.elements:
            yield from _flat(element)
    elif isinstance(operand, ptx.Pair):
        yield from (*_flat(operand.first), *_flat(operand.second))
    elif isinstance(operand, Negated):
        yield from _flat(operand.operand)
    elif isinstance(operand, Address):
        yield from (operand.base, *operand.coordinates)
    else:
        yield operand


class _Flow:
    """Where the registers of a kernel have their values from; ``used`` are those that something reads."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._writers: dict[Register, list[Instruction]] = {}
        self.used: set[Register] = set()
        for instruction in instructions:
            results = _results(instruction)
            for register in results:
                self._writers.setdefault(register, []).append(instruction)
            read = instruction.operands[1:] if results else instruction.operands
            self.used.update(op for operand in read for op in _flat(operand) if isinstance(op, Register))
            self.used.update([instruction.guard] if instruction.guard else ())
        self._identities: dict[Register, str] = {}
        self._asked: set[Register] = set()  # whether they are bounds, at present
        self._depends: dict[Register, frozenset[str]] = {
            register: frozenset({"loop"} if len(writers) > 1 else ()) for register, writers in self._writers.items()
        }
        changed = True
        while changed:
            changed = False
            for register, writers in self._writers.items():
                new = self._depends[register].union(*map(self._of_result, writers))
                changed |= new != self._depends[register]
                self._depends[register] = new

    def condition(self, instruction: Instruction, more: str = "") -> Condition:
        """The condition that an instruction decides, or one of several of it."""
        at, found, operands = kernel_line(instruction), self._of_result(instruction), instruction.operands[1:]
        place = (at.file, str(at.line), str(at.column))
        bound = "data" not in found and self._is_bound(instruction)
        if bound:
            identity = _hashed(*place, *sorted(found - _SHAPE))
        elif "data" in found and instruction.parts[0] in ("setp", "set"):
            constants = [repr(op) for op in operands[:2] if isinstance(op, Immediate)]
            identity = _hashed(*place, str(_is_by_order(instruction)), *constants, *sorted(found & {"clock", "device"}))
        else:
            identity = _hashed(*place, more, _untyped(instruction), *map(self._identity, operands))
        depends = frozenset("parameters" if name.startswith("argument") else name for name in found)
        return Condition(identity, at.file, at.line, self._written(instruction, DEPTH) + more, depends, bound)

    def _is_bound(self, instruction: Instruction) -> bool:
        """Whether it compares by order what differs between threads or turns of a loop, or an extent or a part of a
        block with a small constant; asks for the low bits of an address or of what is left of a loop; or joins such
        conditions."""
        name, operands = instruction.parts[0], instruction.operands[1:]
        if name in ("and", "or", "not", "mov", "xor") and instruction.parts[-1] == "pred":
            return all(map(self._are_bounds, operands))
        if name != "setp" or not all(map(self._are_bounds, operands[2:])):
            return False
        far = any(isinstance(op, Immediate) and abs(op.value) > NEAR for op in operands)
        of_each = frozenset[str]().union(*map(self._of, operands[:2]))
        varies = not of_each.isdisjoint({"thread", "loop"})
        if _is_by_order(instruction):
            extents = map(self._is_extent, (self._capped(operands[0]), operands[1]))
            return varies or (not far and ("grid" in of_each or all(extents)))
        masked = [self._is_masked(op) for op in operands[:2]]
        zero = isinstance(operands[1], Immediate) and not operands[1].value
        return all(masked) or (zero and masked[0]) or (varies and not far)

    def _is_extent(self, operand: Operand) -> bool:
        """Whether a value is one of a parameter, or of several, up to tiles of it: no remainder and no hash."""
        if not isinstance(operand, Register):
            return not isinstance(operand, Immediate) or abs(operand.value) <= FAR
        writers = self._writers.get(operand, [])
        return "loop" in self._of(operand) or all(
            writer.parts[0] in _PLAIN
            and "hi" not in writer.parts
            and (writer.parts[0] == "ld" or all(map(self._is_extent, writer.operands[1:])))
            for writer in writers
        )

    def _capped(self, operand: Operand) -> Operand:
        """What is less than a small constant wherever a value is: of the smaller of it and a larger constant."""
        match self._only(operand, "min"):
            case (Register() as extent, Immediate(value=value)) if value > NEAR:
                return extent
        return operand

    def _are_bounds(self, operand: Operand) -> bool:
        return all(self._only_bounds(op) for op in _flat(operand) if isinstance(op, Register))

    def _only_bounds(self, register: Register) -> bool:
        """Whether bounds alone are written to a register; a loop may have it written from itself."""
        if register in self._asked:
            return True
        self._asked.add(register)
        try:
            return all(map(self._is_bound, self._writers.get(register, ())))
        finally:
            self._asked.discard(register)

    def _is_masked(self, operand: Operand) -> bool:
        return any(isinstance(op, Immediate) for op in self._only(operand, "and")[1:])

    def _of_result(self, instruction: Instruction) -> frozenset[str]:
        """What the result of an instruction depends on, whichever way a thread went."""
        name = instruction.parts[0]
        if name in _LOADS:
            return frozenset({self._written(instruction, 1) if "param" in instruction.parts else "data"})
        if name in _WAITS:
            return frozenset({"wait"})
        operands = instruction.operands if name == "brx" else instruction.operands[1:]
        return frozenset[str]().union(*map(self._of, operands))

    def _of(self, operand: Operand) -> frozenset[str]:
        if isinstance(operand, Register):
            return self._depends.get(operand, frozenset())
        if isinstance(operand, Special):
            return frozenset({_kind(operand.name[1:].partition(".")[0])})
        if isinstance(operand, Immediate | Symbol):
            return frozenset()
        return frozenset[str]().union(*(self._of(op) for op in _flat(operand) if op is not operand))

    def _identity(self, operand: Operand) -> str:
        return _hashed(*map(self._of_one, _flat(operand)), type(operand).__name__)

    def _of_one(self, operand: Operand) -> str:
        if not isinstance(operand, Register):
            return repr(operand)
        if operand not in self._identities:
            self._identities[operand] = "loop"  # what it is while its own value is among what it is computed from
            writers = self._writers.get(operand, [])
            if len(writers) == 1 and writers[0].parts[0] in ("mov", "cvt", "cvta"):
                self._identities[operand] = self._identity(writers[0].operands[1])
            else:
                self._identities[operand] = _hashed(*sorted(_hashed(self._of_writer(w, operand)) for w in writers))
        return self._identities[operand]

    def _of_writer(self, writer: Instruction, register: Register) -> str:
        place, name, given = str(_results(writer).index(register)), _untyped(writer), writer.operands[1:]
        if name == "sub" and (divided := self._only(given[1], "mul.lo")):  # a remainder, where there is a quotient, too
            for quotient, divisor in (divided, divided[::-1]):
                if [*map(self._identity, self._only(quotient, "div"))] == [*map(self._identity, (given[0], divisor))]:
                    name, given = "rem", (given[0], divisor)
        return _hashed(name, *map(self._identity, given), place)

    def _only(self, operand: Operand, name: str) -> tuple[Operand, ...]:
        """What a value is made of by this instruction alone; nothing where it is not."""
        writers = self._writers.get(operand, []) if isinstance(operand, Register) else []
        return writers[0].operands[1:] if len(writers) == 1 and _untyped(writers[0]) == name else ()

    def _written(self, instruction: Instruction, depth: int) -> str:
        name, operands = instruction.parts[0], instruction.operands[1:]
        if name in ("mov", "cvt", "cvta") and len(operands) == 1:
            return self._text(operands[0], depth)
        if name == "ld" and "param" in instruction.parts and isinstance(operands[0], Address):
            base, offset = operands[0].base, operands[0].offset
            number = base.name.rpartition("_")[2] if isinstance(base, Symbol) else "?"
            return f"argument {number}" + (f" at {offset}" if offset else "")
        if name in _LOADS:
            return "a loaded value"
        if name == "brx":
            return self._text(instruction.operands[0], depth)
        given = [self._text(op, depth - 1) for op in operands] if depth else ["..."]
        if name == "setp" and len(given) >= 2:
            sign = _COMPARED.get(instruction.parts[1], instruction.parts[1])
            joined = f" {instruction.parts[2]} {given[2]}" if len(given) > 2 else ""
            return f"{given[0]} {sign} {given[1]}{joined}"
        if name in _SIGNS and len(given) >= 2:
            more = f" + {given[2]}" if len(given) > 2 else ""
            return f"({given[0]} {_SIGNS[name]} {given[1]}{more})"
        return f"{name}({', '.join(given)})" if depth else "..."

    def _text(self, operand: Operand, depth: int) -> str:
        if isinstance(operand, Register):
            writers = self._writers.get(operand, [])
            return self._written(writers[0], depth) if len(writers) == 1 else "a variable"
        if isinstance(operand, Special):
            name, _, axis = operand.name[1:].partition(".")
            return f"{_CUDA.get(name, name)}{'.' * bool(axis)}{axis}"
        if isinstance(operand, Negated):
            return f"!({self._text(operand.operand, depth)})"
        if isinstance(operand, Immediate):
            return str(operand.value) if operand.width == 0 else _real(operand)
        return str(getattr(operand, "name", "..."))


def _kind(special: str) -> str:
    if special in ("tid", "laneid") or special.startswith("lanemask"):
        return "thread"
    if special in _OF_A_DEVICE:
        return "device"
    if "clock" in special or "timer" in special:
        return "clock"
    return {"ntid": "block", "nctaid": "blocks"}.get(special, "grid")


def _is_by_order(instruction: Instruction) -> bool:
    return instruction.parts[1][:2] in ("lt", "le", "gt", "ge", "lo", "ls", "hi", "hs")


def _untyped(instruction: Instruction) -> str:
    return ".".join(part for part in instruction.parts if not _TYPE.fullmatch(part))


def _real(number: Immediate) -> str:
    kinds = {16: np.float16, 32: np.float32, 64: np.float64}
    return f"{np.frombuffer(number.value.to_bytes(number.width // 8, 'little'), kinds[number.width])[0]:.6g}"


def _hashed(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=8).hexdigest()
