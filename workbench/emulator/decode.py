"""PTX instructions to the engine's table.

The engine lists what it can do: names with signatures (``engine/engine.hpp`` defines both). An instruction's opcode is
brought to its canonical name, its operands are matched with the signature's letters, and registers become cells of the
register file. An instruction that is not in the list is refused here, with its source line, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import ptx
from .architectures import DEFAULT, missing
from .dataflow import index_flags, registers_in, samples, thread_bits
from .memory import HEAP
from .operations import (
    Letter,
    edit_steps,
    letters_of,
    listed_name,
    lowered,
    match,
    normalise,
    operations,
    result_type,
    special_registers,
    tensor_operation,
)
from .source_lines import outside_cuda
from .table import Constant, DecodedEntry, Operand, Row, Table, cell_size

ALLOCA, ALLOCA_BYTES = "%alloca", 1 << 13
"""The local variable that ``alloca`` takes its memory of, and its bytes: of one thread."""


def observing(instructions: list[ptx.Instruction]) -> frozenset[int]:
    """Loads and atomics whose result is used, by index: their threads may know what others have stored there."""
    used = {i.guard.index for i in instructions if i.guard is not None}
    for instruction in instructions:
        results = 1 if instruction.parts[0] in ("ld", "atom") else 0
        used.update(register.index for register in registers_in(instruction.operands[results:]))
    return frozenset(
        instruction.index
        for instruction in instructions
        if instruction.parts[0] in ("ld", "atom")
        and any(register.index in used for register in registers_in(instruction.operands[:1]))
    )


# ------------------------------------------------------------------------------------------------------------- decoding
# The engine lists what it can do: names with signatures (``engine/engine.hpp`` defines both). An instruction's opcode
# is brought to its canonical name, its operands are matched with the signature's letters, and registers become cells of
# the register file. An instruction that is not in the list is refused here, with its source line, before anything runs.


class UnsupportedInstruction(NotImplementedError):
    """An instruction that the emulator does not support.

    ``instruction`` is its text, ``location`` the line of the CUDA source outside CUDA's headers, ``ptx_line`` the line
    of the PTX."""

    def __init__(self, instruction: ptx.Instruction, reason: str) -> None:
        location = outside_cuda(instruction.location)
        super().__init__(
            f"{location}: the emulator cannot carry out `{_shortened(instruction.text)}`: {reason} "
            f"(PTX line {instruction.line})"
        )
        self.instruction = instruction.text
        self.location = location
        self.ptx_line = instruction.line


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an entry's variables lie: offsets in shared, local and parameter memory, names of module variables."""

    shared: dict[str, int]
    dynamic: frozenset[str]
    local: dict[str, int]
    module: frozenset[str]
    parameters: dict[str, int]
    functions: dict[str, int] = field(default_factory=dict)  # addresses


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
_BY_LIBRARY, _READ_ONLY_CACHE = 1 << 6, 1 << 7  # as in engine.hpp
_UNUSED_SHIFT, _ORDER_MASK, _OBSERVES, _SAMPLES = 8, 7, 1 << 18, 1 << 23  # as in engine.hpp
_MIXED = {("f32", "f16"), ("f32", "bf16")}
_LIBCUDACXX = "/cuda/__barrier/"


def _clears_rank(operand: ptx.Operand) -> bool:
    """Whether it is the mask that makes of an address in shared memory one in the pair's block with the even rank.

    Compilers leave lower bits out of it that they know to be zero in the address of an mbarrier or a tile."""
    return isinstance(operand, ptx.Immediate) and operand.value & 0xFFFF0000 == 0xFEFF0000


def _is_of_libcudacxx(location: ptx.SourceLocation) -> bool:
    """Whether an instruction was written in libcu++, or inlined into it."""
    return any(_LIBCUDACXX in place.file for place in (location, *location.inlined_at))


@dataclass(slots=True)
class _Decoder:
    """Decodes one entry; rows gather in ``table``."""

    function: ptx.Function
    layout: Layout
    arch: str
    table: Table = field(default_factory=Table)
    wide: dict[int, tuple[ptx.Register, ptx.Register]] = field(default_factory=dict)
    unused: dict[int, int] = field(default_factory=dict)  # of loads
    observing: frozenset[int] = frozenset()  # atomics and strong loads, by index
    samples: frozenset[int] = frozenset()  # of these
    indices: dict[int, int] = field(default_factory=dict)  # flags of arithmetic that makes addresses
    top: ptx.Register | None = None  # of what alloca has given out, where the entry has it
    pairs: bool = False  # whether blocks work in pairs

    def decode(self) -> DecodedEntry:
        self.unused = thread_bits(self.function.instructions)
        self.observing = observing(self.function.instructions)
        self.samples = self.observing & samples(self.function.instructions)
        self.indices = index_flags(self.function.instructions)
        self.pairs = any("cta_group::2" in i.parts for i in self.function.instructions)
        self.table.registers = list(self.function.registers)
        if ALLOCA in self.layout.local:
            self.top = self.scratch("b64")
            self.row(self.function.instructions[0], "mov.b64", [self.top, ptx.Symbol(ALLOCA)])
        for instruction in self.function.instructions:
            self.table.row_of.append(len(self.table.rows))
            self.instruction(instruction)
        self.table.row_of.append(len(self.table.rows))
        last = len(self.function.instructions) - 1
        self.table.rows.append(Row(operations()["exit"][0], "exit", [], max(last, 0)))
        return self.table.assemble()

    # ---------------------------------------------------------------------------------------------- one instruction

    def instruction(self, instruction: ptx.Instruction) -> None:
        self.require(instruction)
        name, flags, policy = normalise(instruction.opcode)
        operands = self.flatten(instruction.operands[:-1] if policy else instruction.operands)
        base = instruction.parts[0]
        if base in ("tex", "tld4"):  # caches of textures see no store of the same launch
            flags |= _READ_ONLY_CACHE
        if not flags & _ORDER_MASK:
            flags |= self.unused.get(instruction.index, 0) << _UNUSED_SHIFT
        flags |= self.indices.get(instruction.index, 0)
        if instruction.index in self.observing and (base == "atom" or flags & _ORDER_MASK):
            flags |= _OBSERVES | (_SAMPLES if instruction.index in self.samples else 0)
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
        elif base in ("alloca", "stacksave", "stackrestore"):
            self.stack(instruction, operands)
            return
        elif base == "tcgen05":
            self.tensor(instruction, operands)
            return
        elif self.pairs and instruction.opcode == "and.b32" and any(_clears_rank(o) for o in operands[1:]):
            name, operands = "mapa.leader.u32", [operands[0], *sorted(operands[1:], key=_clears_rank)]
        elif base in ("add", "sub", "fma") and instruction.parts[-2:] in _MIXED:
            self.mixed(instruction, operands)
            return
        elif base == "tensormap" or "tensormap::generic" in instruction.parts:
            self.edit(instruction)
            return
        elif name == "fence.proxy":
            operands = []  # the tensor map that it is about
        elif base == "mbarrier" and _is_of_libcudacxx(instruction.location):
            flags |= _BY_LIBRARY
        elif "b128" in instruction.parts and base in ("ld", "st"):
            name = name.replace(".b128", ".v2.b64")
        elif base == "createpolicy" and operands:
            self.row(instruction, "mov.b64", [operands[0], ptx.Immediate(0)])
            return
        elif base == "cp" and instruction.parts[1] == "async" and not {"ca", "cg"}.isdisjoint(instruction.parts):
            if operands and (isinstance(operands[-1], ptx.Negated) or _is_predicate(operands[-1])):
                name += ".ignore"
        elif base in ("min", "max") and len(operands) == 4:
            result, *sources = operands
            sources.sort(key=lambda source: source != result)  # what the first step overwrites is read there
            self.row(instruction, name, [result, *sources[:2]])
            operands = [result, result, sources[2]]
        elif base == "wgmma" and len(instruction.operands) > 1 and isinstance(instruction.operands[1], ptx.Vector):
            name += ".rs"
        self.row(instruction, name, operands, flags)

    def require(self, instruction: ptx.Instruction) -> None:
        """Raises ``UnsupportedInstruction`` for one that the architecture does not have."""
        opcode = instruction.opcode
        if opcode.startswith("mbarrier.arrive") and "noComplete" not in opcode and len(instruction.operands) > 2:
            opcode += ",count"
        if opcode.startswith("tcgen05.mma") and isinstance(instruction.operands[-1], ptx.Immediate):
            opcode += ",scaled"
        if instruction.parts[0] in ("min", "max") and len(instruction.operands) == 4:
            opcode += ",three"
        if why := missing(opcode, self.arch):
            raise UnsupportedInstruction(instruction, why)

    def row(self, instruction: ptx.Instruction, name: str, operands: Sequence[ptx.Operand], flags: int = 0) -> None:
        """Adds the row, with conversions before and after it where a register is wider than its operand."""
        listed = listed_name(name)
        if listed is None and (steps := lowered(name)):
            self.steps(instruction, steps, operands)
            return
        if listed is None:
            raise UnsupportedInstruction(instruction, f"it does not know the operation {name}")
        name = listed
        number, signature = operations()[name]
        letters = letters_of(signature)
        matched = match(operands, letters)
        if matched is None:
            raise UnsupportedInstruction(instruction, f"the operands do not have the form it knows for {name}")
        row = Row(number, name, [], instruction.index, instruction.guard, instruction.guard_negated, flags=flags)
        after: list[tuple[ptx.Register, ptx.Register]] = []
        for operand, letter in zip(matched, letters, strict=True):
            if isinstance(operand, ptx.Label):
                row.target = operand
                continue
            if isinstance(operand, ptx.Register) and letter.letter != "a" and cell_size(operand) != letter.size:
                if cell_size(operand) < letter.size:
                    raise UnsupportedInstruction(instruction, f"{operand.name} is too narrow for {name}")
                scratch = self.scratch("b32")
                if letter.reads:
                    self.row(instruction, "cvt.u32.u64", [scratch, operand])
                if letter.writes:
                    after.append((operand, scratch))
                operand = scratch
            row.operands.append(self.operand(operand, letter, instruction))
        self.table.rows.append(row)
        for wide, narrow in after:
            signed = name.rpartition(".")[2].startswith("s")
            self.row(instruction, "cvt.s64.s32" if signed else "cvt.u64.u32", [wide, narrow])

    def edit(self, instruction: ptx.Instruction) -> None:
        """Rows that edit or copy a tensor map, or make edits visible to bulk copies."""
        steps = edit_steps(instruction, self.scratch)
        if isinstance(steps, str):
            raise UnsupportedInstruction(instruction, steps)
        for name, operands, flags in steps:
            self.row(instruction, name, operands, flags)

    def tensor(self, instruction: ptx.Instruction, operands: Sequence[ptx.Operand]) -> None:
        """A row for an instruction of ``tcgen05``."""
        operation = tensor_operation(instruction)
        if isinstance(operation, str):
            raise UnsupportedInstruction(instruction, operation)
        self.row(instruction, operation.name, operands, operation.flags)

    def mixed(self, instruction: ptx.Instruction, operands: list[ptx.Operand]) -> None:
        """Arithmetic of f32 with operands of 16 bits, which are widened first: all but the last."""
        *parts, kind = instruction.parts
        result, *narrow, last = operands
        wide = [self.scratch("f32") for _ in narrow]
        for source, register in zip(narrow, wide, strict=True):
            self.row(instruction, f"cvt.f32.{kind}", [register, source])
        self.row(instruction, normalise(".".join(parts))[0], [result, *wide, last])

    def steps(self, instruction: ptx.Instruction, names: Sequence[str], operands: Sequence[ptx.Operand]) -> None:
        """A row for each name, of which every one takes the result of the one before it."""
        sources = list(operands[1:])
        for number, name in enumerate(names, 1):
            results: list[ptx.Operand] = [self.scratch(result_type(name))] if number < len(names) else [*operands[:1]]
            self.row(instruction, name, results + sources)
            sources = results

    def scratch(self, type_name: str) -> ptx.Register:
        register = ptx.Register(f"%scratch{len(self.table.registers)}", type_name, len(self.table.registers))
        self.table.registers.append(register)
        return register

    def operand(self, operand: ptx.Operand | None, letter: Letter, instruction: ptx.Instruction) -> Operand:
        size = letter.size
        if isinstance(operand, ptx.Register):
            return Operand(operand, letter, 0, size)
        if operand is None or isinstance(operand, ptx.Sink):
            return Operand(None, letter)
        if isinstance(operand, ptx.Negated):
            inner = self.operand(operand.operand, letter, instruction)
            inner.offset ^= 1
            return inner
        if isinstance(operand, ptx.Immediate):
            return Operand(Constant("bits", self.bits(operand, letter), size), letter, 0, size)
        if isinstance(operand, ptx.Special):
            if operand.name in special_registers():
                if size != 4:
                    raise UnsupportedInstruction(instruction, f"{operand.name} has 32 bits, not {8 * size}")
                return Operand(special_registers()[operand.name], letter)
            if operand.name not in UNIFORM_SPECIALS:
                raise UnsupportedInstruction(instruction, f"it does not know the special register {operand.name}")
            return Operand(Constant("special", 0, size, operand.name), letter, 0, size)
        if isinstance(operand, ptx.Symbol):
            return Operand(self.symbol(operand, size, instruction), letter, 0, size)
        if isinstance(operand, ptx.Address):
            return self.address(operand, letter, instruction)
        raise UnsupportedInstruction(instruction, f"it does not know what to do with the operand {operand}")

    @staticmethod
    def bits(immediate: ptx.Immediate, letter: Letter) -> int:
        if letter.letter == "p":
            return 0xFFFFFFFF if immediate.value else 0
        if letter.letter in "fe":
            return immediate.bits("f32" if letter.letter == "f" else "f64")
        return immediate.value & ((1 << 8 * letter.size) - 1)

    def address(self, address: ptx.Address, letter: Letter, instruction: ptx.Instruction) -> Operand:
        base = address.base
        if isinstance(base, ptx.Register):
            return Operand(base, letter, address.offset, cell_size(base))
        if isinstance(base, ptx.Symbol):
            constant = self.symbol(base, 8, instruction)
        else:
            constant = Constant("bits", base.value & (2**64 - 1), 8)
        return Operand(constant, letter, address.offset, 8)

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
        if any("GetParameterBuffer" in one.text for one in self.function.instructions):
            raise UnsupportedInstruction(instruction, "the kernel launches another one: launch both from the host")
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
                self.table.rows[-1].guard = None
                self.row(instruction, "and.pred", [condition, condition, guard])
                self.table.rows[-1].guard = None
            self.row(instruction, "bra", [label])
            self.table.rows[-1].guard, self.table.rows[-1].guard_negated = condition, False

    def stack(self, instruction: ptx.Instruction, operands: Sequence[ptx.Operand]) -> None:
        """``alloca`` and what saves and restores the place that it has come to: a variable of local memory grows."""
        base, top = instruction.parts[0], self.top
        if top is None or instruction.parts[-1] not in ("u64", "b64"):
            raise UnsupportedInstruction(instruction, "it knows it in functions with alloca.u64 alone")
        if base != "alloca":
            self.row(instruction, "mov.b64", [operands[0], top] if base == "stacksave" else [top, operands[0]])
            return
        result, align = self.scratch("b64"), operands[2] if len(operands) > 2 else ptx.Immediate(8)
        assert isinstance(align, ptx.Immediate)
        self.row(instruction, "add.s64", [result, top, ptx.Immediate(align.value - 1)])
        self.row(instruction, "and.b64", [result, result, ptx.Immediate(-align.value)])
        self.row(instruction, "add.s64", [top, result, operands[1]])
        self.row(instruction, "mov.b64", [operands[0], result])

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
        if called and called[0].name in ("malloc", "free") and groups:
            self.heap(instruction, called[0].name, groups)
            return
        name = ptx.readable_symbol(called[0].name) if called else "a function pointer"
        raise UnsupportedInstruction(instruction, f"it cannot call {name}: inline the function")

    def heap(self, instruction: ptx.Instruction, name: str, groups: Sequence[Sequence[ptx.Operand]]) -> None:
        """``malloc`` and ``free``, which ``new`` and ``delete`` call, too."""
        given, heap = self.arguments(instruction, groups[-1], (8,)), ptx.Symbol(HEAP)
        if name == "free":
            self.row(instruction, "free", [*given, heap])
            return
        pointer = self.scratch("b64")
        self.row(instruction, "malloc", [pointer, *given, heap])
        if isinstance(groups[0][0], ptx.Address):
            self.row(instruction, "st.local.b64", [groups[0][0], pointer])

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


def _is_predicate(operand: ptx.Operand) -> bool:
    return isinstance(operand, ptx.Register) and operand.type == "pred"


def _shortened(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:120]} ... {text[-30:]}"


def decode(function: ptx.Function, layout: Layout, arch: str = DEFAULT) -> DecodedEntry:
    """Decodes an entry.

    Raises ``UnsupportedInstruction`` for the first instruction that the engine does not list or the architecture does
    not have."""
    return _Decoder(function, layout, arch).decode()
