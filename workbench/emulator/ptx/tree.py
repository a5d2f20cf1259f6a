"""The tree of a PTX module: entries, instructions and operands; and the reader of its text."""

from __future__ import annotations

import linecache
import math
import re
import struct
from bisect import bisect_right
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NoReturn


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
    last; ``function`` is the inlined function's name where the PTX tells it."""

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

    ``width`` is 0 for an integer, which takes the width of the instruction that uses it."""

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
    written: (byte offset, symbol, addend, bytes)."""

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
    tells whether the body has been parsed."""

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


# ----------------------------------------------------------------------------------------------- the reader of its text

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SPACE = re.compile(r"\s*")

_LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+([\w$]+)(?:\s*\+\s*(\d+))?)?"
    r"(?:\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)

_FILE = re.compile(r'^[ \t]*\.file\s+(\d+)\s+"([^"\n]*)"', re.MULTILINE)
_BEYOND_ASCII = re.compile(r"(?:\\[2-3][0-7]{2})+")  # bytes of UTF-8
_DEBUG_STRINGS = re.compile(r"\.section\s+\.debug_str\s*\{(.*?)\}", re.DOTALL)
_FIRST_OF_A_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uU]?")
_FLOAT_BITS = re.compile(r"([+-]?)0([fFdD])([0-9a-fA-F]+)")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
_TERM = re.compile(r"\s*([+-]?)\s*([+-]?)\s*(\w+)\s*")
TYPED_NAME = re.compile(r"((?:\.\w+(?:\s+\d+)?\s+|\.attribute\s*\([^)]*\)\s*)*)(.*)", re.DOTALL)
_ATTRIBUTE = re.compile(r"\.(\w+)(?:\s+(\d+))?")

_DECLARATION = re.compile(
    r"((?:\.(?:extern|visible|weak|common)\s+)*)\.(shared|global|const|local|param)(?:::\w+)?\s+(.*)", re.DOTALL
)

_DECLARATOR = re.compile(r"([\w$%]+)\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*))?", re.DOTALL)
_PARAMETER = re.compile(r"\.(?:param|reg)\s+((?:\.\w+(?:\s+\d+)?\s+)*)([\w$%]+)\s*((?:\[[^\]]*\]\s*)*)\Z")
_ELEMENT_SYMBOL = re.compile(r"(?:generic\s*\(\s*([\w$]+)\s*\)|([A-Za-z_$][\w$]*))\s*(.*)")
_MOST_ELEMENTS = 1 << 32
_MOST_OFFSET = 1 << 48
_MOST_DIGITS = 64


def source_files(text: str) -> dict[int, str]:
    """The paths of ``.file`` directives by their numbers."""
    return {int(number): _BEYOND_ASCII.sub(_from_octal, path) for number, path in _FILE.findall(text)}


def text_of(file: str, sources: Mapping[str, str]) -> str:
    """The text of a file that was compiled, else as it is now; empty where there is none."""
    for name in (file, Path(file).name):
        if name in sources:
            return sources[name]
    return "".join(linecache.getlines(file))


def _from_octal(match: re.Match[str]) -> str:
    return bytes(int(digits, 8) for digits in match[0].split("\\")[1:]).decode(errors="replace")


class Reader:
    """The text of a module and how far it has been read; every error carries the line of the PTX text."""

    def __init__(self, text: str, source_name: str | None) -> None:
        self.text = _COMMENT.sub(_blank_comment, text)
        self.source_name = source_name
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self.files = source_files(self.text)
        self.places: dict[tuple[int, int, int], SourceLocation] = {}
        self.position = 0

    def at(self, position: int) -> Reader:
        """A reader of the same text that stands at another place and knows no ``.loc`` yet."""
        assert self.debug_strings is not None  # found once for all
        other = copy(self)
        other.position, other.places = position, {}
        return other

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
        place = None
        if match[6]:
            place = int(match[6]), int(match[7]), int(match[8])
            caller = self.places.get(place) or SourceLocation(self.file_name(place[0]), place[1], place[2])
            callers = (SourceLocation(caller.file, caller.line, caller.column, (), caller.function), *caller.inlined_at)
        function = self.debug_strings.get((match[4], int(match[5] or 0))) if match[4] else None
        found = SourceLocation(self.file_name(file), line, column, callers, function)
        if place != (file, line, column):  # a call within a macro has the place of its caller
            self.places[file, line, column] = found
        return found

    def file_name(self, number: int) -> str:
        return self.files.get(number) or self.source_name or f"<file {number}>"

    def declaration(self, statement: str) -> list[Variable]:
        match = _DECLARATION.fullmatch(statement.strip())
        if not match:
            self.fail(f"{statement.strip().splitlines()[0]!r} is not a declaration known here")
        typed = TYPED_NAME.fullmatch(match[3])
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
            number = number_of(length) if length else Immediate(0)
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
            if (number := number_of(element)) is not None:
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
            number = number_of(match[3]) if match else None
            if match is None or number is None or number.width:
                self.fail(f"{text!r} is not an offset in bytes")
            negative = (match[1] == "-") != (match[2] == "-")
            total += -number.value if negative else number.value
            position = match.end()
        if abs(total) > _MOST_OFFSET:
            self.fail(f"{text!r} is too large for an offset in bytes")
        return total


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


def number_of(text: str) -> Immediate | None:
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
