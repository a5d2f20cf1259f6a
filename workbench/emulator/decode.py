"""PTX instructions to the engine's table.

The engine lists what it can do: names with signatures (``engine/engine.hpp`` defines both). An instruction's opcode is
brought to its canonical name, its operands are matched with the signature's letters, and registers become cells of the
register file. An instruction that is not in the list is refused here, with its source line, before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .registers import CELL, Step, assign_cells

__all__ = ["Constant", "DecodedEntry", "UnsupportedInstruction", "decode", "normalise"]

ABSENT = _engine.ABSENT
PARAMETER_WINDOW = _engine.PARAM_WINDOW


class UnsupportedInstruction(NotImplementedError):
    """An instruction that the emulator does not carry out.

    ``instruction`` is its text, ``location`` the line of the CUDA source, ``ptx_line`` the line of the PTX.
    """

    def __init__(self, instruction: ptx.Instruction, reason: str) -> None:
        super().__init__(
            f"{instruction.location}: the emulator cannot carry out `{_shortened(instruction.text)}`: {reason} "
            f"(PTX line {instruction.line})"
        )
        self.instruction = instruction.text
        self.location = instruction.location
        self.ptx_line = instruction.line


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same in all lanes.

    ``kind`` is ``bits`` (``value`` is the bit pattern), ``special`` (``name`` of a uniform special register),
    ``shared``, ``dynamic`` (start of dynamic shared memory), ``local``, ``parameter`` (offsets in their spaces) or
    ``global`` (address of the module variable ``name``); ``value`` is then an offset in bytes. ``size`` is 4 or 8
    bytes a lane.
    """

    kind: str
    value: int
    size: int
    name: str = ""


@dataclass(slots=True)
class DecodedEntry:
    """An entry as the engine takes it, free of anything that depends on a launch.

    ``rows`` is an int32 array [rows][7], ``operands`` an int64 array [operands][3] of slots, bytes and offsets,
    ``instructions`` the index of the PTX instruction behind each row, ``constants`` the offset of each constant in
    the pool, ``register_names`` the registers that share each cell, ``unset`` slot and bytes of the registers that
    may be read before they are written.
    """

    rows: npt.NDArray[np.int32]
    operands: npt.NDArray[np.int64]
    instructions: npt.NDArray[np.int32]
    register_bytes: int
    special_offset: int
    constants: dict[Constant, int]
    constant_bytes: int
    register_names: dict[int, list[str]]
    unset: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an entry's variables lie: offsets in shared, local and parameter memory, names of module variables."""

    shared: dict[str, int]
    dynamic: frozenset[str]
    local: dict[str, int]
    module: frozenset[str]
    parameters: dict[str, int]
    functions: dict[str, int] = field(default_factory=dict)  # addresses


# ---------------------------------------------------------------------------------------------------- canonical names

_ORDERS = {"weak": 0, "volatile": 1, "mmio": 1, "relaxed": 1, "acquire": 2, "release": 3, "acq_rel": 4, "sc": 5}
_SCOPES = {"cta": 1 << 3, "cluster": 2 << 3, "gpu": 3 << 3, "sys": 4 << 3}
_MEMBAR_SCOPES = {"cta": "cta", "gl": "gpu", "sys": "sys"}
_ORDERED = {"ld", "ldu", "st", "atom", "red", "mbarrier", "fence"}
_HINTS = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"}
_VECTORS = {"v2", "v4", "v8"}
_CACHE_OPERATIONS = {"prefetch", "prefetchu", "applypriority", "discard"}  # of these, a hint is the operation itself
UNIFORM_SPECIALS = frozenset(
    re.findall(
        r"\S+",
        """
        %nwarpid %nsmid %gridid %is_explicit_cluster %cluster_nctarank %total_smem_size %aggr_smem_size
        %dynamic_smem_size %current_graph_exec %reserved_smem_offset_begin %reserved_smem_offset_end
        %reserved_smem_offset_cap %reserved_smem_offset_0 %reserved_smem_offset_1 %envreg1 %envreg2
        %ntid.x %ntid.y %ntid.z %nctaid.x %nctaid.y %nctaid.z %cluster_nctaid.x %cluster_nctaid.y %cluster_nctaid.z
        %nclusterid.x %nclusterid.y %nclusterid.z
        """,
    )
)
"""Special registers that are the same in every thread of a launch."""

_CLOCKS = {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}


def _is_hint(part: str, opcode: str) -> bool:
    """Whether a part of an opcode only says what caches should do."""
    if part in _HINTS:
        return not (part in ("ca", "cg") and opcode.startswith("cp.async."))
    return part.startswith(("L1::", "L2::")) and opcode.partition(".")[0] not in _CACHE_OPERATIONS


_BY_LIBRARY = 1 << 6  # as in engine.hpp
_LIBCUDACXX = "/cuda/__barrier/"


def _is_of_libcudacxx(location: ptx.SourceLocation) -> bool:
    """Whether an instruction was written in libcu++, or inlined into it."""
    return any(_LIBCUDACXX in place.file for place in (location, *location.inlined_at))


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
        if base in _ORDERED and (part in _ORDERS or part in _SCOPES):
            flags |= _ORDERS.get(part, 0) | _SCOPES.get(part, 0)
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


# --------------------------------------------------------------------------------------------------------- signatures


class _Letter(NamedTuple):
    letter: str
    optional: bool
    writes: bool
    reads: bool
    size: int  # bytes a lane


@cache
def _signature(text: str) -> tuple[_Letter, ...]:
    letters: list[_Letter] = []
    for letter, count, optional in re.findall(r"([A-Za-z])(\d*)(\??)", text):
        size = 8 if letter in "Dde" else 4
        letters += [_Letter(letter, bool(optional), letter in "WDPU", letter in "Uwdpfea", size)] * int(count or 1)
    return tuple(letters)


@cache
def _operations() -> dict[str, tuple[int, str]]:
    """The engine's list: number and signature of each name."""
    return {name: (number, signature) for number, (name, signature) in enumerate(_engine.operations())}


@cache
def _special_registers() -> dict[str, int]:
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


def _match(operands: Sequence[ptx.Operand], letters: Sequence[_Letter]) -> list[ptx.Operand | None] | None:
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
        rest = _match(operands[1:], letters[1:])
        if rest is not None:
            return [operands[0], *rest]
    if first.optional:
        rest = _match(operands, letters[1:])
        if rest is not None:
            return [None, *rest]
    return None


# ------------------------------------------------------------------------------------------------------------- decode


@dataclass(slots=True)
class _Operand:
    """One operand of a row: a register, a special register's number, a constant, or nothing."""

    value: ptx.Register | int | Constant | None
    letter: _Letter
    offset: int = 0
    size: int = 4


@dataclass(slots=True)
class _Row:
    operation: int
    name: str
    operands: list[_Operand]
    instruction: int
    guard: ptx.Register | None = None
    guard_negated: bool = False
    target: ptx.Label | int | None = None
    flags: int = 0


@dataclass(slots=True)
class _Decoder:
    """Decodes one entry; rows gather in ``rows``."""

    function: ptx.Function
    layout: Layout
    rows: list[_Row] = field(default_factory=list)
    registers: list[ptx.Register] = field(default_factory=list)
    row_of: list[int] = field(default_factory=list)
    wide: dict[int, tuple[ptx.Register, ptx.Register]] = field(default_factory=dict)

    def decode(self) -> DecodedEntry:
        self.registers = list(self.function.registers)
        for instruction in self.function.instructions:
            self.row_of.append(len(self.rows))
            self.instruction(instruction)
        self.row_of.append(len(self.rows))
        last = len(self.function.instructions) - 1
        self.rows.append(_Row(_operations()["exit"][0], "exit", [], max(last, 0)))
        return self.assemble()

    # ---------------------------------------------------------------------------------------------- one instruction

    def instruction(self, instruction: ptx.Instruction) -> None:
        name, flags, policy = normalise(instruction.opcode)
        operands = self.flatten(instruction.operands[:-1] if policy else instruction.operands)
        base = instruction.parts[0]
        if base == "mov" and instruction.parts[-1] == "b128" and len(operands) == 4:
            for number in (0, 1):
                self.row(instruction, "mov.b64", [operands[number], operands[number + 2]])
            return
        if base == "mov":
            name, operands = self.move(name, instruction, operands)
        elif base == "call":
            self.call(instruction)
            return
        elif base == "brx":
            self.branch_table(instruction)
            return
        elif base == "ret":
            name = "exit"
        elif name == "fence.proxy":
            operands = []  # the tensor map that it is about
        elif base == "mbarrier" and _is_of_libcudacxx(instruction.location):
            flags |= _BY_LIBRARY
        elif "b128" in instruction.parts and base in ("ld", "st"):
            name = name.replace(".b128", ".v2.b64")
        elif base == "createpolicy" and operands:
            self.row(instruction, "mov.b64", [operands[0], ptx.Immediate(0)])
            return
        elif base == "cp" and instruction.opcode.startswith(("cp.async.ca", "cp.async.cg")):
            if operands and (isinstance(operands[-1], ptx.Negated) or _is_predicate(operands[-1])):
                name += ".ignore"
        elif base == "wgmma" and len(instruction.operands) > 1 and isinstance(instruction.operands[1], ptx.Vector):
            name += ".rs"
        self.row(instruction, name, operands, flags)

    def row(self, instruction: ptx.Instruction, name: str, operands: Sequence[ptx.Operand], flags: int = 0) -> None:
        """Adds the row, with conversions before and after it where a register is wider than its operand."""
        if name not in _operations():
            raise UnsupportedInstruction(instruction, f"it does not know the operation {name}")
        number, signature = _operations()[name]
        letters = _signature(signature)
        matched = _match(operands, letters)
        if matched is None:
            raise UnsupportedInstruction(instruction, f"the operands do not have the form it knows for {name}")
        row = _Row(number, name, [], instruction.index, instruction.guard, instruction.guard_negated, flags=flags)
        after: list[tuple[ptx.Register, ptx.Register]] = []
        for operand, letter in zip(matched, letters, strict=True):
            if isinstance(operand, ptx.Label):
                row.target = operand
                continue
            if isinstance(operand, ptx.Register) and letter.letter != "a" and _cell_size(operand) != letter.size:
                if _cell_size(operand) < letter.size:
                    raise UnsupportedInstruction(instruction, f"{operand.name} is too narrow for {name}")
                scratch = self.scratch("b32")
                if letter.reads:
                    self.row(instruction, "cvt.u32.u64", [scratch, operand])
                if letter.writes:
                    after.append((operand, scratch))
                operand = scratch
            row.operands.append(self.operand(operand, letter, instruction))
        self.rows.append(row)
        for wide, narrow in after:
            signed = name.rpartition(".")[2].startswith("s")
            self.row(instruction, "cvt.s64.s32" if signed else "cvt.u64.u32", [wide, narrow])

    def scratch(self, type_name: str) -> ptx.Register:
        register = ptx.Register(f"%scratch{len(self.registers)}", type_name, len(self.registers))
        self.registers.append(register)
        return register

    def operand(self, operand: ptx.Operand | None, letter: _Letter, instruction: ptx.Instruction) -> _Operand:
        size = letter.size
        if isinstance(operand, ptx.Register):
            return _Operand(operand, letter, 0, size)
        if operand is None or isinstance(operand, ptx.Sink):
            return _Operand(None, letter)
        if isinstance(operand, ptx.Negated):
            inner = self.operand(operand.operand, letter, instruction)
            inner.offset ^= 1
            return inner
        if isinstance(operand, ptx.Immediate):
            return _Operand(Constant("bits", self.bits(operand, letter), size), letter, 0, size)
        if isinstance(operand, ptx.Special):
            if operand.name in _special_registers():
                if size != 4:
                    raise UnsupportedInstruction(instruction, f"{operand.name} has 32 bits, not {8 * size}")
                return _Operand(_special_registers()[operand.name], letter)
            if operand.name not in UNIFORM_SPECIALS:
                raise UnsupportedInstruction(instruction, f"it does not know the special register {operand.name}")
            return _Operand(Constant("special", 0, size, operand.name), letter, 0, size)
        if isinstance(operand, ptx.Symbol):
            return _Operand(self.symbol(operand, size, instruction), letter, 0, size)
        if isinstance(operand, ptx.Address):
            return self.address(operand, letter, instruction)
        raise UnsupportedInstruction(instruction, f"it does not know what to do with the operand {operand}")

    @staticmethod
    def bits(immediate: ptx.Immediate, letter: _Letter) -> int:
        if letter.letter == "p":
            return 0xFFFFFFFF if immediate.value else 0
        if letter.letter in "fe":
            return immediate.bits("f32" if letter.letter == "f" else "f64")
        return immediate.value & ((1 << 8 * letter.size) - 1)

    def address(self, address: ptx.Address, letter: _Letter, instruction: ptx.Instruction) -> _Operand:
        base = address.base
        if isinstance(base, ptx.Register):
            return _Operand(base, letter, address.offset, _cell_size(base))
        if isinstance(base, ptx.Symbol):
            constant = self.symbol(base, 8, instruction)
        else:
            constant = Constant("bits", base.value & (2**64 - 1), 8)
        return _Operand(constant, letter, address.offset, 8)

    def symbol(self, symbol: ptx.Symbol, size: int, instruction: ptx.Instruction) -> Constant:
        """The address of a variable in its own space."""
        name, layout = symbol.name, self.layout
        for kind, offsets in (("shared", layout.shared), ("local", layout.local), ("parameter", layout.parameters)):
            if name in offsets:
                return Constant(kind, offsets[name] + symbol.offset, size)
        if name in layout.dynamic:
            return Constant("dynamic", symbol.offset, size)
        if name in layout.functions:
            return Constant("bits", layout.functions[name] + symbol.offset, size)
        if name in layout.module:
            return Constant("global", symbol.offset, size, name)
        raise UnsupportedInstruction(instruction, f"it does not know the symbol {name}")

    def flatten(self, operands: Sequence[ptx.Operand]) -> list[ptx.Operand]:
        flat: list[ptx.Operand] = []
        for operand in operands:
            if isinstance(operand, ptx.Vector):
                flat += operand.elements
            elif isinstance(operand, ptx.Pair):
                flat += [operand.first, operand.second]
            elif isinstance(operand, ptx.Register) and operand.type == "b128":
                flat += self.halves(operand)
            else:
                flat.append(operand)
                if isinstance(operand, ptx.Address):
                    flat += operand.coordinates
        return flat

    def halves(self, wide: ptx.Register) -> tuple[ptx.Register, ptx.Register]:
        """The two registers of 64 bits that stand for one of 128, the low one first."""
        if wide.index not in self.wide:
            self.wide[wide.index] = self.scratch("b64"), self.scratch("b64")
        return self.wide[wide.index]

    # -------------------------------------------------------------------------------- what needs a word of its own

    def move(
        self, name: str, instruction: ptx.Instruction, operands: list[ptx.Operand]
    ) -> tuple[str, list[ptx.Operand]]:
        """``mov``: vectors are packed or unpacked, clocks are read."""
        if len(instruction.operands) != 2:
            raise UnsupportedInstruction(instruction, "it has a destination and a source")
        destination, source = instruction.operands
        if isinstance(source, ptx.Vector):
            return f"mov.{instruction.parts[-1]}.pack{len(source.elements)}", operands
        if isinstance(destination, ptx.Vector):
            return f"mov.{instruction.parts[-1]}.unpack{len(destination.elements)}", operands
        if isinstance(source, ptx.Special) and source.name in _CLOCKS:
            return f"read.{source.name[1:]}", operands[:1]
        if isinstance(destination, ptx.Register) and destination.type != "pred" and isinstance(source, ptx.Immediate):
            # a float written into an untyped register, or the other way round: bits are bits
            size = self.type_size(instruction)
            operands[1] = ptx.Immediate(source.bits(instruction.parts[-1]))
            return f"mov.b{8 * size}", operands
        return name, operands

    def branch_table(self, instruction: ptx.Instruction) -> None:
        """``brx.idx`` as a chain of comparisons and branches."""
        if len(instruction.operands) < 2:
            raise UnsupportedInstruction(instruction, "it has an index and a table of targets")
        index, table = instruction.operands[:2]
        labels = self.function.branch_tables.get(table.name) if isinstance(table, ptx.Symbol) else None
        if labels is None:
            raise UnsupportedInstruction(instruction, "its table of targets is not known")
        condition = self.scratch("pred")
        for number, label in enumerate(labels):
            self.row(instruction, "setp.eq.u32", [condition, index, ptx.Immediate(number)])
            if instruction.guard is not None:
                guard: ptx.Operand = ptx.Negated(instruction.guard) if instruction.guard_negated else instruction.guard
                self.rows[-1].guard = None
                self.row(instruction, "and.pred", [condition, condition, guard])
                self.rows[-1].guard = None
            self.row(instruction, "bra", [label])
            self.rows[-1].guard, self.rows[-1].guard_negated = condition, False

    @staticmethod
    def type_size(instruction: ptx.Instruction) -> int:
        """Bytes of the type at the opcode's end."""
        try:
            return ptx.type_size(instruction.parts[-1])
        except ValueError as error:
            raise UnsupportedInstruction(instruction, str(error)) from None

    def call(self, instruction: ptx.Instruction) -> None:
        """A call of what is not a function of the module: some belong to the run-time system."""
        called = [operand for operand in instruction.operands if isinstance(operand, ptx.Symbol)]
        groups = [operand.elements for operand in instruction.operands if isinstance(operand, ptx.Group)]
        if called and called[0].name == "__assertfail" and groups:
            self.row(instruction, "assertfail", self.arguments(instruction, groups[-1], (8, 8, 4, 8, 8)))
            return
        if called and called[0].name == "vprintf" and len(groups) == 2:
            count = self.scratch("b32")
            self.row(instruction, "printf", [count, *self.arguments(instruction, groups[1], (8, 8))])
            if groups[0] and isinstance(groups[0][0], ptx.Address):
                self.row(instruction, "st.local.b32", [groups[0][0], count])
            return
        name = ptx.readable_symbol(called[0].name) if called else "a function pointer"
        raise UnsupportedInstruction(instruction, f"it cannot call {name}: inline the function")

    def arguments(
        self, instruction: ptx.Instruction, group: Sequence[ptx.Operand], sizes: Sequence[int]
    ) -> list[ptx.Operand]:
        """Registers with the arguments of a call, which lie in local memory."""
        loaded: list[ptx.Operand] = []
        for operand, size in zip(group, sizes, strict=False):
            register = self.scratch(f"b{8 * size}")
            self.row(instruction, f"ld.local.b{8 * size}", [register, operand])
            loaded.append(register)
        return loaded

    # ---------------------------------------------------------------------------------------------------- the table

    def assemble(self) -> DecodedEntry:
        sizes = self.cell_sizes()
        cells, top, unset = assign_cells([self.step(index) for index in range(len(self.rows))], sizes)
        special_offset = top
        constants: dict[Constant, int] = {}
        pool = 0
        table: list[tuple[int, ...]] = []
        operands: list[tuple[int, int, int]] = []
        for row in self.rows:
            guard = ABSENT if row.guard is None else cells[row.guard.index]
            first = len(operands)
            for operand in row.operands:
                value = operand.value
                if value is None:
                    slot = ABSENT
                elif isinstance(value, ptx.Register):
                    slot = cells[value.index]
                elif isinstance(value, int):
                    slot = special_offset + CELL * value
                else:
                    if value not in constants:
                        constants[value] = pool
                        pool += CELL * value.size // 4
                    slot = ~constants[value]
                operands.append((slot, operand.size, operand.offset))
            target = self.target(row)
            jump = -1 if target is None else target
            table.append((row.operation, guard, row.guard_negated, first, len(row.operands), jump, row.flags))
        names: dict[int, list[str]] = {}
        for register, cell in zip(self.registers, cells, strict=True):
            if cell >= 0:
                names.setdefault(cell, []).append(register.name)
        return DecodedEntry(
            np.array(table, np.int32),
            np.array(operands, np.int64).reshape(-1, 3),
            np.array([row.instruction for row in self.rows], np.int32),
            special_offset + CELL * len(_special_registers()),
            special_offset,
            constants,
            pool,
            names,
            [(cells[register], sizes[register]) for register in unset],
        )

    def cell_sizes(self) -> list[int]:
        return [_cell_size(register) for register in self.registers]

    def target(self, row: _Row) -> int | None:
        return self.row_of[row.target.target] if isinstance(row.target, ptx.Label) else row.target

    def step(self, index: int) -> Step:
        """What the row means for the lives of registers."""
        row = self.rows[index]
        uses: list[int] = []
        defines: list[int] = []
        for operand in row.operands:
            if isinstance(operand.value, ptx.Register):
                if operand.letter.reads:
                    uses.append(operand.value.index)
                if operand.letter.writes:
                    defines.append(operand.value.index)
        if row.guard is not None:
            uses.append(row.guard.index)
        successors: tuple[int, ...] = (index + 1,)
        target = self.target(row)
        if target is not None:
            successors = (target,) if row.guard is None else (target, index + 1)
        elif row.name in ("exit", "trap", "assertfail"):
            successors = () if row.guard is None else successors
        asynchronous = row.name.startswith("wgmma.mma_async")
        return Step(
            tuple(uses),
            tuple(defines),
            tuple(successor for successor in successors if successor < len(self.rows)),
            row.guard is not None,
            tuple(uses) if asynchronous else (),
            row.name.startswith("wgmma.wait_group") and self.waits_for_all(row),
        )

    @staticmethod
    def waits_for_all(row: _Row) -> bool:
        value = row.operands[0].value
        return row.guard is None and isinstance(value, Constant) and value.kind == "bits" and value.value == 0


def _cell_size(register: ptx.Register) -> int:
    return 8 if ptx.type_size(register.type) == 8 else 4


def _is_predicate(operand: ptx.Operand) -> bool:
    return isinstance(operand, ptx.Register) and operand.type == "pred"


def _shortened(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:120]} ... {text[-30:]}"


def decode(function: ptx.Function, layout: Layout) -> DecodedEntry:
    """Decodes an entry. Raises ``UnsupportedInstruction`` for the first instruction that the engine does not list."""
    return _Decoder(function, layout).decode()
