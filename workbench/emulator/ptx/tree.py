"""The tree of a PTX module: entries, instructions and operands."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path


class PtxSyntaxError(ValueError):
    """The text is not PTX as this parser knows it; ``line`` is the line of the PTX text, counted from one."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


_TYPE_SIZES = {"pred": 1, "f16x2": 4, "bf16x2": 4, "bf16": 2, "tf32": 4, "f32x2": 8, "e4m3": 1, "e5m2": 1, "b128": 16}


@lru_cache(maxsize=256)
def type_size(name: str) -> int:
    """Bytes of a fundamental PTX type, such as 4 for ``f32`` or ``f16x2``; ``ValueError`` for anything else."""
    if name in _TYPE_SIZES:
        return _TYPE_SIZES[name]
    match = re.fullmatch(r"[busf](8|16|32|64)", name)
    if not match:
        raise ValueError(f"{name!r} is not a PTX type")
    return int(match[1]) // 8


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in the CUDA source.

    ``inlined_at`` lists the calls through which the line came to be inlined, the innermost first and the outermost
    last; ``function`` is the inlined function's name where the PTX tells it.
    """

    file: str
    line: int
    column: int
    inlined_at: tuple[SourceLocation, ...] = ()
    function: str | None = None

    def __str__(self) -> str:
        """``gemm.cu:41``, with the file as it is seen from the working directory."""
        path = Path(self.file)
        if path.is_relative_to(Path.cwd()):
            path = path.relative_to(Path.cwd())
        elif not path.exists():
            path = Path(path.name)  # a name that the compiler put into some directory
        return f"{path}:{self.line}"


@dataclass(eq=False, slots=True)
class Register:
    """A virtual register. One object per declared register: compared by identity."""

    name: str
    type: str
    index: int

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, such as ``%tid.x`` or ``%clock64``."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """The operand ``_``: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal: an ``int``, or the bit pattern of a float (``0f3F800000``) with its own width in bits.

    ``width`` is 0 for an integer, which takes the width of the instruction that uses it.
    """

    value: int
    width: int = 0

    def bits(self, type_name: str) -> int:
        """The literal's bit pattern as an operand of the type (``f32``, ``u64``, ...)."""
        size = 8 * type_size(type_name)
        if self.width == 0 and type_name not in ("f32", "f64"):
            return self.value & ((1 << size) - 1)
        if self.width == size or (self.width and type_name not in ("f16", "f32", "f64")):
            return self.value & ((1 << size) - 1)
        format_ = {16: "<e", 32: "<f", 64: "<d"}[size]
        try:
            number = float(self.value)
            if self.width:
                raw = self.value.to_bytes(self.width // 8, "little")
                (number,) = struct.unpack("<f" if self.width == 32 else "<d", raw)
            return int.from_bytes(struct.pack(format_, number), "little")
        except OverflowError:
            infinite = math.copysign(math.inf, number if self.width else self.value)
            return int.from_bytes(struct.pack(format_, infinite), "little")


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, parameter or function, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(eq=False, slots=True)
class Label:
    """A place in the code; ``target`` is the index of the instruction that follows it."""

    name: str
    target: int = -1


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, c, d}``"""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b)``: the arguments or results of a call."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two results, the second a predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p``"""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``, or ``[base, {coordinates}]`` for a tensor. The base of an absolute address is 0."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


Operand = Register | Special | Sink | Immediate | Symbol | Label | Vector | Group | Pair | Negated | Address


@dataclass(eq=False, slots=True)
class Instruction:
    """One instruction. ``text`` is it as written, without its guard; ``line`` is its line in the PTX text."""

    index: int
    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    location: SourceLocation
    line: int
    text: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode cut at its dots."""
        return _opcode_parts(self.opcode)


@lru_cache(maxsize=4096)
def _opcode_parts(opcode: str) -> tuple[str, ...]:
    return tuple(opcode.split("."))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: ``size``, ``align`` and ``offset`` in bytes, ``type`` as PTX writes it (``b8`` for structs)."""

    name: str
    size: int
    align: int
    type: str
    offset: int


@dataclass(slots=True)
class Variable:
    """A declared variable.

    ``initial`` holds the initial bytes, or None. ``relocations`` lists where the address of another symbol must be
    written: (byte offset, symbol, addend, bytes).
    """

    name: str
    space: str
    type: str
    align: int
    size: int
    external: bool = False
    initial: bytes | None = None
    relocations: tuple[tuple[int, str, int, int], ...] = ()

    @property
    def readable_name(self) -> str:
        """The name as the CUDA source wrote it, as far as that can be told."""
        return readable_symbol(self.name)


@dataclass(slots=True)
class Function:
    """An ``.entry`` or a ``.func``. ``instructions`` is empty for one that is only declared.

    ``span`` and ``body`` are where all of it and where its body lie in the text that the module keeps; ``is_read``
    tells whether the body has been parsed.
    """

    name: str
    is_entry: bool
    parameters: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    directives: dict[str, tuple[int, ...]]
    line: int
    instructions: list[Instruction] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: list[Label] = field(default_factory=list)
    branch_tables: dict[str, tuple[Label, ...]] = field(default_factory=dict)
    prototypes: dict[str, str] = field(default_factory=dict)
    defined: bool = False
    span: tuple[int, int] = (0, 0)
    body: tuple[int, int] = (0, 0)
    is_read: bool = False


def readable_symbol(name: str) -> str:
    """``full`` of ``_ZZ10wgmma_gemmE4full``: the last source name inside a mangled symbol, or the symbol itself."""
    if not name.startswith("_Z"):
        return name
    if name.startswith("_ZZ"):  # a local of a function: what follows the function's encoding
        for start in reversed([match.end() for match in re.finditer("E", name)]):
            names = _source_names(name, start)
            if names:
                return names[0]
    position = 2
    if name[position : position + 1] == "N":
        position += 1
    if name[position : position + 1] == "L":
        position += 1
    names = _source_names(name, position)
    return "::".join(names) if names else name


def _source_names(name: str, position: int) -> list[str]:
    found = []
    while match := re.compile(r"(\d+)([A-Za-z_]\w*)").match(name, position):
        length = int(match[1])
        if len(match[2]) < length:
            break
        found.append(match[2][:length])
        position = match.start(2) + length
    return found
