"""Text of a PTX module to a tree of entries, instructions and operands.

The parser knows PTX's syntax and scoping, and nothing of what an instruction does: an opcode stays the string it was.
Statements end with ``;`` and may span lines, ``.loc``, ``.file`` and the module's directives end with the line, and
inline assembly brings nested ``{}`` scopes that declare the same names over and over; those are the three facts that
shape this file. One regular expression is matched a statement, and operands are parsed once a scope, so that 20,000
lines take well under a second.
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NoReturn

__all__ = [
    "Address",
    "Function",
    "Group",
    "Immediate",
    "Instruction",
    "Label",
    "Module",
    "Negated",
    "Operand",
    "Pair",
    "Parameter",
    "PtxSyntaxError",
    "Register",
    "Sink",
    "SourceLocation",
    "Special",
    "Symbol",
    "Variable",
    "Vector",
    "parse",
    "readable_symbol",
    "type_size",
]


class PtxSyntaxError(ValueError):
    """The text is not PTX as this parser knows it; ``line`` is the line of the PTX text, counted from one."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


# ---------------------------------------------------------------------------------------------------------- the tree

_TYPE_SIZES = {"pred": 1, "f16x2": 4, "bf16x2": 4, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "b128": 16}


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

    ``body`` is the text of a body that was passed over, of which ``variables`` then has those in shared memory.
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
    body: str = ""


@dataclass(slots=True)
class Module:
    """A parsed PTX text."""

    version: str
    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[int, str]


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


# -------------------------------------------------------------------------------------------------------- the parser

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"([A-Za-z_$%][\w$%]*)\s*:(?!:)")
_STATEMENT = re.compile(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([A-Za-z][\w.:]*)\s*(.*)", re.DOTALL)
_LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+([\w$]+)(?:\s*\+\s*(\d+))?)?"
    r"(?:\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)
_FILE = re.compile(r'^[ \t]*\.file\s+(\d+)\s+"([^"\n]*)"', re.MULTILINE)
_DEBUG_STRINGS = re.compile(r"\.section\s+\.debug_str\s*\{(.*?)\}", re.DOTALL)
_OPERAND = re.compile(r"(?:[^,\[\{\(]|\[[^\]]*\]|\{[^}]*\}|\([^)]*\))+")
_FIRST_OF_A_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uU]?")
_FLOAT_BITS = re.compile(r"([+-]?)0([fFdD])([0-9a-fA-F]+)")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
_BASE = re.compile(r"([A-Za-z_$%][\w$%.]*)?\s*(.*)", re.DOTALL)
_TERM = re.compile(r"\s*([+-]?)\s*([+-]?)\s*(\w+)\s*")
_RANGE = re.compile(r"([\w$%]+?)\s*<\s*(\d+)\s*>")
_TYPED_NAME = re.compile(r"((?:\.\w+(?:\s+\d+)?\s+|\.attribute\s*\([^)]*\)\s*)*)(.*)", re.DOTALL)
_ATTRIBUTE = re.compile(r"\.(\w+)(?:\s+(\d+))?")
_DECLARATION = re.compile(
    r"((?:\.(?:extern|visible|weak|common)\s+)*)\.(shared|global|const|local|param)(?:::\w+)?\s+(.*)", re.DOTALL
)
_DECLARATOR = re.compile(r"([\w$%]+)\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*))?", re.DOTALL)
_PARAMETER = re.compile(r"\.(?:param|reg)\s+((?:\.\w+(?:\s+\d+)?\s+)*)([\w$%]+)\s*((?:\[[^\]]*\]\s*)*)\Z")
_ELEMENT_SYMBOL = re.compile(r"(?:generic\s*\(\s*([\w$]+)\s*\)|([A-Za-z_$][\w$]*))\s*(.*)")
_HEADER = re.compile(
    r"((?:\.(?:visible|weak|extern|common)\s+)*)\.(entry|func)\s*(?:\.attribute\s*\([^)]*\)\s*)?"
    r"(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])"
)
_DIRECTIVE = re.compile(r"\.(\w+)\s*((?:\d+\s*,?\s*)*)")
_BRACE = re.compile(r'"[^"\n]*"|[{}]')
_SHARED = re.compile(r"\.shared(?<=[\s;{}:]\.shared)(?:::\w+)?\s[^;]*")  # no part of an opcode

_SPECIALS = frozenset(
    re.findall(
        r"\w+",
        """
        tid ntid laneid warpid nwarpid ctaid nctaid smid nsmid gridid is_explicit_cluster clusterid
        nclusterid cluster_ctaid cluster_nctaid cluster_ctarank cluster_nctarank lanemask_eq
        lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi clock64 globaltimer
        globaltimer_lo globaltimer_hi total_smem_size aggr_smem_size dynamic_smem_size
        current_graph_exec reserved_smem_offset_begin reserved_smem_offset_end
        reserved_smem_offset_cap
        """,
    )
)
_WARP_SIZE = Immediate(32)
_MOST_ELEMENTS = 1 << 32
_MOST_OFFSET = 1 << 48
_MOST_DIGITS = 64
_SINK = Sink()


class _Scope:
    """The names declared between one pair of braces."""

    __slots__ = ("labels", "names", "operands", "outer", "ranges")

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.names: dict[str, Register | Symbol] = {}
        self.ranges: dict[str, tuple[int, str]] = {}
        self.labels: dict[str, Label] = {}
        self.operands: dict[str, Operand] = {}

    def find_label(self, name: str) -> Label | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.outer
        return None


class _Parser:
    """Reads one module; every error carries the line of the PTX text."""

    def __init__(self, text: str, source_name: str | None, bodies: bool) -> None:
        self.bodies = bodies
        self.text = _COMMENT.sub(_blank_comment, text)
        self.source_name = source_name
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self.files = {int(number): path for number, path in _FILE.findall(self.text)}
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.places: dict[tuple[int, int, int], SourceLocation] = {}
        self.position = 0

    @cached_property
    def debug_strings(self) -> dict[tuple[str, int], str]:
        return _debug_strings(self.text)

    def fail(self, message: str) -> NoReturn:
        raise PtxSyntaxError(message, self.line())

    def line(self) -> int:
        return bisect_right(self.line_starts, self.position)

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match
        self.position = match.end()

    def skip_line(self) -> str:
        """The rest of the line."""
        start, stop = self.position, self.text.find("\n", self.position)
        self.position = len(self.text) if stop < 0 else stop
        return self.text[start : self.position]

    def statement(self) -> str:
        """The text up to the next semicolon, which is passed over by ``next_statement``."""
        stop = self.text.find(";", self.position)
        if stop < 0:
            self.fail(f"the statement {self.text[self.position :].splitlines()[0]!r} has no semicolon")
        return self.text[self.position : stop]

    # ------------------------------------------------------------------------------------------------ module level

    def module(self) -> Module:
        text, version, target = self.text, "", ""
        relocated: list[tuple[str, int]] = []
        self.skip_space()
        while self.position < len(text):
            if text.startswith(".version", self.position):
                version = self.skip_line().split(maxsplit=1)[-1].strip()
            elif text.startswith(".target", self.position):
                target = self.skip_line().split(maxsplit=1)[-1].strip()
            elif text.startswith((".address_size", ".file"), self.position):
                self.skip_line()
            elif text.startswith(".loc ", self.position) or text.startswith(".loc\t", self.position):
                self.location()
            elif text.startswith(".section", self.position):
                stop = text.find("}", self.position)
                self.position = len(text) if stop < 0 else stop + 1
            elif header := _HEADER.match(text, self.position):
                self.function(header)
            elif text.startswith((".pragma", ".alias"), self.position):
                self.position += len(self.statement()) + 1
            elif text.startswith(".", self.position):
                statement = self.statement()
                for variable in self.declaration(statement):
                    self.variables[variable.name] = variable
                    relocated += [(name, self.line()) for _, name, _, _ in variable.relocations]
                self.position += len(statement) + 1
            else:
                self.fail(f"a directive was expected instead of {self.skip_line()!r}")
            self.skip_space()
        if not version:
            raise PtxSyntaxError("there is no .version directive: this is not a PTX module", 1)
        for name, line in relocated:
            if name in self.functions:
                continue
            if name not in self.variables or self.variables[name].space not in ("global", "const"):
                raise PtxSyntaxError(f"a variable is initialised with the address of {name}, which is none", line)
        return Module(version, target, self.functions, self.variables, self.files)

    def location(self) -> SourceLocation | None:
        """Reads ``.loc``. None for line 0, with which the compiler says that it has no line."""
        match = _LOC.match(self.text, self.position)
        if not match:
            self.fail(f"{self.skip_line()!r} is not a .loc directive")
        self.position = match.end()
        file, line, column = int(match[1]), int(match[2]), int(match[3])
        if line == 0:
            return None
        callers: tuple[SourceLocation, ...] = ()
        if match[6]:
            place = int(match[6]), int(match[7]), int(match[8])
            caller = self.places.get(place) or SourceLocation(self.file_name(place[0]), place[1], place[2])
            callers = (SourceLocation(caller.file, caller.line, caller.column, (), caller.function), *caller.inlined_at)
        function = self.debug_strings.get((match[4], int(match[5] or 0))) if match[4] else None
        found = SourceLocation(self.file_name(file), line, column, callers, function)
        self.places[file, line, column] = found
        return found

    def file_name(self, number: int) -> str:
        return self.files.get(number) or self.source_name or f"<file {number}>"

    def declaration(self, statement: str) -> list[Variable]:
        match = _DECLARATION.fullmatch(statement.strip())
        if not match:
            self.fail(f"{statement.strip().splitlines()[0]!r} is not a declaration known here")
        typed = _TYPED_NAME.fullmatch(match[3])
        assert typed
        type_name, align, attributes = self.type_and_alignment(typed[1])
        lanes = 4 if "v4" in attributes else 2 if "v2" in attributes else 1
        declarators = [typed[2]] if "=" in typed[2] else typed[2].split(",")
        variables = []
        for declarator in declarators:
            parts = _DECLARATOR.fullmatch(declarator.strip())
            if not parts:
                self.fail(f"{declarator.strip()!r} is not a variable's name")
            count = self.array_length(parts[2])
            initial: bytes | None = None
            relocations: tuple[tuple[int, str, int, int], ...] = ()
            if parts[3] is not None:
                initial, relocations, given = self.initialiser(parts[3], type_name)
                count = count or given
                if given > count * lanes:
                    self.fail(f"{parts[1]} has {count * lanes} elements and {given} initial values")
                initial = initial.ljust((count or 0) * type_size(type_name) * lanes, b"\0")
            size = type_size(type_name) * lanes * (1 if count is None else count)
            variables.append(
                Variable(
                    parts[1],
                    match[2],
                    type_name,
                    align or type_size(type_name) * lanes,
                    size,
                    "extern" in match[1],
                    initial,
                    relocations,
                )
            )
        return variables

    def type_and_alignment(self, text: str) -> tuple[str, int, set[str]]:
        """Type, alignment in bytes (0: none given) and all attributes of ``.align 4 .b8`` or ``.u64 .ptr``."""
        type_name, align, words = "", 0, set()
        for word, number in _ATTRIBUTE.findall(text):
            if word == "align" and "ptr" not in words:
                align = int(number) if 0 < len(number) < 10 else 0
                if not align or align & (align - 1):
                    self.fail(f"an alignment is a power of two, not {number or 'nothing'}")
            words.add(word)
            if not type_name:
                try:
                    type_size(word)
                    type_name = word
                except ValueError:
                    if word in ("texref", "samplerref", "surfref"):
                        type_name = "b64"
        if not type_name:
            self.fail(f"no type is given in {text.strip()!r}")
        return type_name, align, words

    def array_length(self, text: str) -> int | None:
        """Elements of ``[2][3]``, 0 for ``[]``, None when there is no bracket."""
        lengths = re.findall(r"\[\s*(\w*)\s*\]", text)
        if not lengths:
            return None
        count = 1
        for length in lengths:
            number = _number(length) if length else Immediate(0)
            if number is None or number.width or not 0 <= number.value < _MOST_ELEMENTS:
                self.fail(f"an array does not have {length} elements")
            count *= number.value
        if count >= _MOST_ELEMENTS:
            self.fail(f"an array does not have {count} elements")
        return count

    def initialiser(self, text: str, type_name: str) -> tuple[bytes, tuple[tuple[int, str, int, int], ...], int]:
        """Bytes, relocations and number of elements of ``{1, 0f3F800000, generic(table)+8}`` or of one such element."""
        size, relocations = type_size(type_name), []
        elements = [element for element in re.sub(r"[{}]", "", text).split(",") if element.strip()]
        data = bytearray()
        for element in elements:
            element = element.strip()
            if (number := _number(element)) is not None:
                data += number.bits(type_name).to_bytes(size, "little")
                continue
            symbol = _ELEMENT_SYMBOL.fullmatch(element)
            if not symbol:
                self.fail(f"{element!r} is not an initial value known here")
            if size not in (4, 8):
                self.fail(f"an address does not fit into {type_name}")
            relocations.append((len(data), symbol[1] or symbol[2], self.sum(symbol[3]), size))
            data += bytes(size)
        return bytes(data), tuple(relocations), len(elements)

    # ------------------------------------------------------------------------------------------------- functions

    def function(self, header: re.Match[str]) -> None:
        _, kind, results, name, parameters, directives, end = header.groups()
        line = self.line()
        function = Function(
            name,
            kind == "entry",
            self.parameters(parameters),
            self.parameters(results),
            {
                word: tuple(int(number) for number in re.findall(r"\d+", numbers))
                for word, numbers in _DIRECTIVE.findall(directives)
            },
            line,
        )
        self.position = header.end()
        if end == "{":
            function.defined = True
            if self.bodies:
                _Body(self, function).read()
            else:
                self.pass_over(function)
        if name not in self.functions or function.defined:
            self.functions[name] = function

    def pass_over(self, function: Function) -> None:
        """Passes over the body of a function, up to its closing brace."""
        start, depth = self.position, 1
        for brace in _BRACE.finditer(self.text, start):
            depth += (brace[0] == "{") - (brace[0] == "}")
            if not depth:
                break
        else:
            self.fail(f"the body of {function.name} has no closing brace")
        function.body = self.text[start : brace.start()]
        for declared in _SHARED.finditer(self.text, start, brace.start()):
            self.position = declared.start()
            for variable in self.declaration(declared[0]):
                function.variables[f"{variable.name}.{len(function.variables)}"] = variable  # of whatever scope
        self.position = brace.end()

    def parameters(self, text: str | None) -> tuple[Parameter, ...]:
        parameters: list[Parameter] = []
        offset = 0
        for declaration in (text or "").split(","):
            if not declaration.strip():
                continue
            match = _PARAMETER.match(declaration.strip())
            if not match:
                self.fail(f"{declaration.strip()!r} is not a parameter")
            type_name, align, _ = self.type_and_alignment(match[1])
            count = self.array_length(match[3])
            size = type_size(type_name) * (1 if count is None else count)
            align = align or type_size(type_name)
            offset = -(-offset // align) * align
            parameters.append(Parameter(match[2], size, align, type_name, offset))
            offset += size
        return tuple(parameters)

    def sum(self, text: str) -> int:
        """The value of ``+4``, ``+-1024`` or ``+8+16``."""
        total, position = 0, 0
        while position < len(text):
            match = _TERM.match(text, position)
            number = _number(match[3]) if match else None
            if match is None or number is None or number.width:
                self.fail(f"{text!r} is not an offset in bytes")
            negative = (match[1] == "-") != (match[2] == "-")
            total += -number.value if negative else number.value
            position = match.end()
        if abs(total) > _MOST_OFFSET:
            self.fail(f"{text!r} is too large for an offset in bytes")
        return total


class _Body:
    """Reads the body of one function."""

    def __init__(self, parser: _Parser, function: Function) -> None:
        self.parser = parser
        self.function = function
        self.scope = _Scope(None)
        self.place = SourceLocation(parser.source_name or "<PTX>", 0, 0)
        self.branches: list[tuple[Label, _Scope, int]] = []
        self.last_label: str | None = None
        self.scoped = 0

    def read(self) -> None:
        parser, text = self.parser, self.parser.text
        while True:
            parser.skip_space()
            position = parser.position
            first = text[position : position + 1]
            if first == ".":
                self.directive()
            elif first == "{":
                self.scope = _Scope(self.scope)
                parser.position += 1
            elif first == "}":
                parser.position += 1
                if self.scope.outer is None:
                    break
                self.scope = self.scope.outer
            elif first == ";":
                parser.position += 1
            elif not first:
                parser.fail(f"the body of {self.function.name} has no closing brace")
            elif label := _LABEL.match(text, position):
                self.label(label[1])
                parser.position = label.end()
            else:
                statement = parser.statement()
                self.instruction(statement)
                parser.position += len(statement) + 1
        self.resolve_branches()

    def label(self, name: str) -> None:
        if name in self.scope.labels:
            self.parser.fail(f"the label {name} is defined twice")
        label = Label(name, len(self.function.instructions))
        self.scope.labels[name] = label
        self.function.labels.append(label)
        self.last_label = name

    def resolve_branches(self) -> None:
        for reference, scope, line in self.branches:
            found = scope.find_label(reference.name)
            if found is None:
                raise PtxSyntaxError(f"there is no label {reference.name} for this branch", line)
            reference.target = found.target

    # ------------------------------------------------------------------------------------------------ directives

    def directive(self) -> None:
        parser, text, position = self.parser, self.parser.text, self.parser.position
        if text.startswith(".loc", position) and text[position + 4 : position + 5].isspace():
            self.place = parser.location() or self.place
            return
        if text.startswith(".file", position):
            parser.skip_line()
            return
        statement = parser.statement()
        if statement.startswith(".reg"):
            self.registers(statement)
        elif statement.startswith(".branchtargets"):
            self.branch_table(statement)
        elif statement.startswith((".callprototype", ".calltargets")):
            if self.last_label:
                self.function.prototypes[self.last_label] = " ".join(statement.split())
        elif not statement.startswith(".pragma"):
            self.variable(statement)
        parser.position += len(statement) + 1

    def registers(self, statement: str) -> None:
        typed = _TYPED_NAME.fullmatch(statement[4:].strip())
        assert typed
        attributes = self.parser.type_and_alignment(typed[1])
        if attributes[2] & {"v2", "v4"}:
            self.parser.fail("registers of a vector type are not known here; declare one register for each element")
        self.scope.operands.clear()
        for declared in typed[2].split(","):
            declared = declared.strip()
            if numbered := _RANGE.fullmatch(declared):
                self.scope.ranges[numbered[1]] = int(numbered[2]), attributes[0]
            else:
                self.scope.names[declared] = self.new_register(declared, attributes[0])

    def new_register(self, name: str, type_name: str) -> Register:
        register = Register(name, type_name, len(self.function.registers))
        self.function.registers.append(register)
        return register

    def variable(self, statement: str) -> None:
        for variable in self.parser.declaration(statement):
            name = variable.name
            if self.scope.outer is not None:  # every call sequence declares its own param0
                self.scoped += 1
                variable.name = f"{name}.{self.scoped}"
            self.scope.names[name] = Symbol(variable.name)
            self.scope.operands.clear()
            self.function.variables[variable.name] = variable

    def branch_table(self, statement: str) -> None:
        if self.last_label is None:
            self.parser.fail("a table of branch targets needs a label")
        names = statement.partition(" ")[2] if " " in statement else statement.partition("\t")[2]
        labels = tuple(self.reference(name.strip()) for name in names.split(","))
        self.function.branch_tables[self.last_label] = labels

    def reference(self, name: str) -> Label:
        label = Label(name)
        self.branches.append((label, self.scope, self.parser.line()))
        return label

    # ---------------------------------------------------------------------------------------------- instructions

    def instruction(self, statement: str) -> None:
        match = _STATEMENT.fullmatch(statement)
        if not match:
            self.parser.fail(f"{statement.split(chr(10))[0].strip()!r} is not an instruction")
        negated, guard_name, opcode, rest = match.groups()
        guard = self.guard(guard_name) if guard_name else None
        operands: list[Operand] = []
        if rest:
            known = self.scope.operands
            texts = _OPERAND.findall(rest) if "[" in rest or "{" in rest or "(" in rest else rest.split(",")
            if opcode.startswith("bra") and opcode.partition(".")[0] == "bra":
                if not texts:
                    self.parser.fail(f"{statement.strip()!r} has no target")
                operands.append(self.reference(texts[0].strip()))
            else:
                for text in texts:
                    text = text.strip()
                    operand = known.get(text)
                    if operand is None:
                        operand = known[text] = self.operand(text)
                    operands.append(operand)
        instructions = self.function.instructions
        instructions.append(
            Instruction(
                len(instructions),
                opcode,
                tuple(operands),
                guard,
                negated == "!",
                self.place,
                self.parser.line(),
                " ".join(statement[match.start(3) :].split()),
            )
        )

    def guard(self, name: str) -> Register:
        found = self.named(name)
        if not isinstance(found, Register):
            self.parser.fail(f"{name} is not a predicate register")
        return found

    def named(self, name: str) -> Operand:
        """What a name stands for in the present scope."""
        scope: _Scope | None = self.scope
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        while scope is not None:
            if found := scope.names.get(name):
                return found
            if number and scope.ranges and (declared := scope.ranges.get(stem)) and int(number) < declared[0]:
                register = scope.names[name] = self.new_register(name, declared[1])
                return register
            scope = scope.outer
        if name.startswith("%"):
            if name[1:].partition(".")[0] in _SPECIALS or re.fullmatch(r"%(envreg|pm|reserved_smem_offset_)\d+", name):
                return Special(name)
            self.parser.fail(f"the register {name} is not declared")
        if name == "_":
            return _SINK
        return _WARP_SIZE if name == "WARP_SZ" else Symbol(name)

    def operand(self, text: str) -> Operand:
        first = text[:1]
        if first == "[":
            return self.address(text)
        if first in ("{", "("):
            if text[-1] != {"{": "}", "(": ")"}[first]:
                self.parser.fail(f"{text!r} is not closed")
            inner = _OPERAND.findall(text[1:-1])
            elements = tuple(self.operand(element.strip()) for element in inner if element.strip())
            return Vector(elements) if first == "{" else Group(elements)
        if text.count("!") + text.count("|") > 4:
            self.parser.fail(f"{text!r} is not an operand")
        if first == "!":
            return Negated(self.operand(text[1:].strip()))
        if "|" in text:
            left, _, right = text.partition("|")
            return Pair(self.operand(left.strip()), self.operand(right.strip()))
        if (number := _number(text)) is not None:
            return number
        match = _BASE.fullmatch(text)
        if not match or not match[1]:
            self.parser.fail(f"{text!r} is not an operand")
        base = self.named(match[1])
        if not match[2]:
            return base
        if not isinstance(base, Symbol):
            self.parser.fail(f"{text!r} is not an operand")
        return Symbol(base.name, base.offset + self.parser.sum(match[2]))

    def address(self, text: str) -> Address:
        if text[-1] != "]":
            self.parser.fail(f"{text!r} is not closed")
        inner = [part.strip() for part in _OPERAND.findall(text[1:-1])]
        coordinates: tuple[Operand, ...] = ()
        for extra in inner[1:]:
            operand = self.operand(extra)
            coordinates += operand.elements if isinstance(operand, Vector) else (operand,)
        match = _BASE.fullmatch(inner[0]) if inner else None
        if not match:
            self.parser.fail(f"{text!r} is not an address")
        offset = self.parser.sum(match[2])
        if not match[1]:
            return Address(Immediate(0), offset, coordinates)
        base = self.named(match[1])
        if isinstance(base, Register):
            return Address(base, offset, coordinates)
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset, coordinates)
        self.parser.fail(f"{text!r} is not an address")


def _blank_comment(match: re.Match[str]) -> str:
    text = match[0]
    return text if text.startswith('"') else "\n" * text.count("\n")


def _debug_strings(text: str) -> dict[tuple[str, int], str]:
    """Names in ``.debug_str`` by label and offset. A label's bytes may hold several strings, each ended by a zero."""
    names: dict[tuple[str, int], str] = {}
    for section in _DEBUG_STRINGS.findall(text):
        for label, listing in re.findall(r"([\w$]+)\s*:((?:\s*\.b8[^\n]*)*)", section):
            data = bytes(int(number) & 255 for number in re.findall(r"(?<![\w$.])-?\d+", listing))
            start = 0
            for string in data.split(b"\0"):
                if string:
                    names[label, start] = readable_symbol(string.decode("utf-8", "replace"))
                start += len(string) + 1
    return names


def _number(text: str) -> Immediate | None:
    """The literal that the text is, or None when it is none."""
    if text[:1] not in _FIRST_OF_A_NUMBER or len(text) > _MOST_DIGITS:
        return None
    if _INTEGER.fullmatch(text):
        digits = text.rstrip("uU").lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        if octal and ("8" in digits or "9" in digits):
            return None
        value = int(digits, 8 if octal else 0)
        return Immediate(-value if text[0] == "-" else value)
    if match := _FLOAT_BITS.fullmatch(text):
        width = 32 if match[2] in "fF" else 64
        if len(match[3]) * 4 != width:
            return None
        bits = int(match[3], 16)
        return Immediate(bits ^ (1 << (width - 1)) if match[1] == "-" else bits, width)
    if _DECIMAL.fullmatch(text):
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)
    return None


def parse(text: str, source_name: str | None = None, *, bodies: bool = True) -> Module:
    """Parses a PTX module; without ``bodies`` those of functions are passed over, which takes a tenth of the time.

    ``source_name`` names the CUDA source where the PTX itself does not. Raises ``PtxSyntaxError`` with the PTX line.
    """
    if digits := re.search(r"\d{1000}", text):
        raise PtxSyntaxError("a number has a thousand digits", text.count("\n", 0, digits.start()) + 1)
    return _Parser(text, source_name, bodies).module()
