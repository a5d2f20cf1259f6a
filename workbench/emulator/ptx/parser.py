"""A PTX module: its variables, its functions and their bodies."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

from .tree import (
    TYPED_NAME,
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    PtxSyntaxError,
    Reader,
    Register,
    Sink,
    SourceLocation,
    Special,
    Symbol,
    Variable,
    Vector,
    number_of,
)

# ----------------------------------------------------------------------------------------------- the body of a function
_LABEL = re.compile(r"([A-Za-z_$%][\w$%]*)\s*:(?!:)")
_STATEMENT = re.compile(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([A-Za-z][\w.:]*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"(?:[^,\[\{\(]|\[[^\]]*\]|\{[^}]*\}|\([^)]*\))+")
_BASE = re.compile(r"([A-Za-z_$%][\w$%.]*)?\s*(.*)", re.DOTALL)
_RANGE = re.compile(r"([\w$%]+?)\s*<\s*(\d+)\s*>")

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


class Body:
    """Reads the body of one function."""

    def __init__(self, reader: Reader, function: Function) -> None:
        self.reader = reader
        self.function = function
        self.scope = _Scope(None)
        self.place = SourceLocation(reader.source_name or "<PTX>", 0, 0)
        self.branches: list[tuple[Label, _Scope, int]] = []
        self.last_label: str | None = None
        self.scoped = 0

    def read(self) -> None:
        reader, text = self.reader, self.reader.text
        while True:
            reader.skip_space()
            position = reader.position
            first = text[position : position + 1]
            if first == ".":
                self.directive()
            elif first == "{":
                self.scope = _Scope(self.scope)
                reader.position += 1
            elif first == "}":
                reader.position += 1
                if self.scope.outer is None:
                    break
                self.scope = self.scope.outer
            elif first == ";":
                reader.position += 1
            elif not first:
                reader.fail(f"the body of {self.function.name} has no closing brace")
            elif label := _LABEL.match(text, position):
                self.label(label[1])
                reader.position = label.end()
            else:
                statement = reader.statement()
                if not reader.files:  # PTX that was written by hand is its own source
                    self.place = SourceLocation(self.place.file, reader.line(), 0)
                self.instruction(statement)
                reader.position += len(statement) + 1
        self.resolve_branches()

    def label(self, name: str) -> None:
        if name in self.scope.labels:
            self.reader.fail(f"the label {name} is defined twice")
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
        reader, text, position = self.reader, self.reader.text, self.reader.position
        if text.startswith(".loc", position) and text[position + 4 : position + 5].isspace():
            self.place = reader.location() or self.place
            return
        if text.startswith(".file", position):
            reader.skip_line()
            return
        statement = reader.statement()
        if statement.startswith(".reg"):
            self.registers(statement)
        elif statement.startswith(".branchtargets"):
            self.branch_table(statement)
        elif statement.startswith((".callprototype", ".calltargets")):
            if self.last_label:
                self.function.prototypes[self.last_label] = " ".join(statement.split())
        elif not statement.startswith(".pragma"):
            self.variable(statement)
        reader.position += len(statement) + 1

    def registers(self, statement: str) -> None:
        typed = TYPED_NAME.fullmatch(statement[4:].strip())
        assert typed
        attributes = self.reader.type_and_alignment(typed[1])
        if attributes[2] & {"v2", "v4"}:
            self.reader.fail("registers of a vector type are not known here; declare one register for each element")
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
        for variable in self.reader.declaration(statement):
            name = variable.name
            if self.scope.outer is not None:  # every call sequence declares its own param0
                self.scoped += 1
                variable.name = f"{name}.{self.scoped}"
            self.scope.names[name] = Symbol(variable.name)
            self.scope.operands.clear()
            self.function.variables[variable.name] = variable

    def branch_table(self, statement: str) -> None:
        if self.last_label is None:
            self.reader.fail("a table of branch targets needs a label")
        names = statement.partition(" ")[2] if " " in statement else statement.partition("\t")[2]
        labels = tuple(self.reference(name.strip()) for name in names.split(","))
        self.function.branch_tables[self.last_label] = labels

    def reference(self, name: str) -> Label:
        label = Label(name)
        self.branches.append((label, self.scope, self.reader.line()))
        return label

    # ---------------------------------------------------------------------------------------------- instructions

    def instruction(self, statement: str) -> None:
        match = _STATEMENT.fullmatch(statement)
        if not match:
            self.reader.fail(f"{statement.split(chr(10))[0].strip()!r} is not an instruction")
        negated, guard_name, opcode, rest = match.groups()
        guard = self.guard(guard_name) if guard_name else None
        operands: list[Operand] = []
        if rest:
            known = self.scope.operands
            texts = _OPERAND.findall(rest) if "[" in rest or "{" in rest or "(" in rest else rest.split(",")
            if opcode.startswith("bra") and opcode.partition(".")[0] == "bra":
                if not texts:
                    self.reader.fail(f"{statement.strip()!r} has no target")
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
                self.reader.line(),
                " ".join(statement[match.start(3) :].split()),
            )
        )

    def guard(self, name: str) -> Register:
        found = self.named(name)
        if not isinstance(found, Register):
            self.reader.fail(f"{name} is not a predicate register")
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
            self.reader.fail(f"the register {name} is not declared")
        if name == "_":
            return _SINK
        return _WARP_SIZE if name == "WARP_SZ" else Symbol(name)

    def operand(self, text: str) -> Operand:
        first = text[:1]
        if first == "[":
            return self.address(text)
        if first in ("{", "("):
            registers, brace, predicate = text.rpartition("}")
            if first == "{" and predicate.lstrip().startswith("|"):  # of a texture: whether it is resident
                return Pair(self.operand(registers + brace), self.operand(predicate.lstrip()[1:].strip()))
            if text[-1] != {"{": "}", "(": ")"}[first]:
                self.reader.fail(f"{text!r} is not closed")
            inner = _OPERAND.findall(text[1:-1])
            elements = tuple(self.operand(element.strip()) for element in inner if element.strip())
            return Vector(elements) if first == "{" else Group(elements)
        if text.count("!") + text.count("|") > 4:
            self.reader.fail(f"{text!r} is not an operand")
        if first == "!":
            return Negated(self.operand(text[1:].strip()))
        if "|" in text:
            left, _, right = text.partition("|")
            return Pair(self.operand(left.strip()), self.operand(right.strip()))
        if (number := number_of(text)) is not None:
            return number
        match = _BASE.fullmatch(text)
        if not match or not match[1]:
            self.reader.fail(f"{text!r} is not an operand")
        base = self.named(match[1])
        if not match[2]:
            return base
        if not isinstance(base, Symbol):
            self.reader.fail(f"{text!r} is not an operand")
        return Symbol(base.name, base.offset + self.reader.sum(match[2]))

    def address(self, text: str) -> Address:
        if text[-1] != "]":
            self.reader.fail(f"{text!r} is not closed")
        inner = [part.strip() for part in _OPERAND.findall(text[1:-1])]
        coordinates: tuple[Operand, ...] = ()
        for extra in inner[1:]:
            operand = self.operand(extra)
            coordinates += operand.elements if isinstance(operand, Vector) else (operand,)
        match = _BASE.fullmatch(inner[0]) if inner else None
        if not match:
            self.reader.fail(f"{text!r} is not an address")
        offset = self.reader.sum(match[2])
        if not match[1]:
            return Address(Immediate(0), offset, coordinates)
        base = self.named(match[1])
        if isinstance(base, Register):
            return Address(base, offset, coordinates)
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset, coordinates)
        self.reader.fail(f"{text!r} is not an address")


# ------------------------------------------------------------------------------------------------------------- a module

_HEADER = re.compile(
    r"((?:\.(?:visible|weak|extern|common)\s+)*)\.(entry|func)\s*(?:\.attribute\s*\([^)]*\)\s*)?"
    r"(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])"
)

_DIRECTIVE = re.compile(r"\.(\w+)\s*((?:\d+\s*,?\s*)*)")
_BRACE = re.compile(r'"[^"\n]*"|[{}]')
_SHARED = re.compile(r"\.shared(?<=[\s;{}:]\.shared)(?:::\w+)?\s[^;]*")  # no part of an opcode
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_POINTER_CALL = re.compile(r"(?<![\w.$%])call(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?%")


@dataclass(slots=True)
class Module:
    """A PTX module: its variables, the heads of its functions, and their bodies as far as they have been read."""

    version: str
    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[int, str]
    reader: Reader = field(repr=False)

    def read(self, function: Function) -> None:
        """Parses the body of a function. Raises ``PtxSyntaxError``."""
        if function.defined and not function.is_read:
            Body(self.reader.at(function.body[0]), function).read()
            function.is_read = True

    def read_reached(self, function: Function) -> None:
        """Parses a function and what it may call."""
        for each in self.called(function):
            self.read(each)

    def called(self, function: Function) -> list[Function]:
        """A function and what it may call: all functions where it calls through a pointer."""
        reached = self.reached(function)
        by_pointer = any(_POINTER_CALL.search(self.body(f)) for f in reached)
        return list(self.functions.values()) if by_pointer else reached

    def in_shared(self, kernel: Function) -> list[Variable]:
        """The module's variables in shared memory that a kernel, or what it may call, names: a block has no others."""
        declared = [variable for variable in self.variables.values() if variable.space == "shared"]
        bodies = [self.body(f) for f in self.called(kernel) if f.defined] if declared else []
        named = {name for body in bodies for name in _NAME.findall(body)}
        return [variable for variable in declared if variable.name in named]

    def addresses(self) -> dict[str, int]:
        """The address of each function that is no kernel: numbers at which no memory lies."""
        names = [function.name for function in self.functions.values() if not function.is_entry]
        return dict(zip(names, itertools.count(0x1000, 16), strict=False))

    def body(self, function: Function) -> str:
        """The text of a function's body, without comments."""
        return self.reader.text[slice(*function.body)]

    def reached(self, function: Function) -> list[Function]:
        """The function, and those that its body or that of one of them names."""
        found = [function]
        others = {f.name for f in self.functions.values() if f.defined and not f.is_entry} - {function.name}
        for each in found:  # which grows
            named = others.intersection(_NAME.findall(self.body(each))) if others else set()
            others -= named
            found += [self.functions[name] for name in sorted(named)]
        return found

    def shared_variables(self, function: Function) -> list[Variable]:
        """The variables in shared memory that a function declares, whether or not it has been read."""
        start, stop = function.body
        found: list[Variable] = []
        for declared in _SHARED.finditer(self.reader.text, start, stop):
            found += self.reader.at(declared.start()).declaration(declared[0])
        return found

    def text_of(self, kernel: Function) -> str:
        """The module with this kernel alone and what it may reach: everything else is blank, lines keep their number.

        All of the text where debug sections describe its functions."""
        text = self.reader.text
        if ".debug_info" in text or ".alias" in text:
            return text
        kept = {f.name for f in self.reached(kernel)}
        for name in {name for variable in self.variables.values() for _, name, _, _ in variable.relocations}:
            if name in self.functions:
                kept |= {f.name for f in self.reached(self.functions[name])}
        pieces, end = [], 0
        for function in self.functions.values():
            if function.defined and function.name not in kept:
                start, stop = function.span
                pieces += [text[end:start], "\n" * text.count("\n", start, stop)]
                end = stop
        return "".join([*pieces, text[end:]])


class _Parser(Reader):
    """Reads the heads of one module's functions and passes over their bodies."""

    def __init__(self, text: str, source_name: str | None) -> None:
        super().__init__(text, source_name)
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}

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
                self.fail(f"a directive was expected instead of {self.skip_line()[:60]!r}")
            self.skip_space()
        if not version:
            raise PtxSyntaxError("there is no .version directive: this is not a PTX module", 1)
        for name, line in relocated:
            if name in self.functions:
                continue
            if name not in self.variables or self.variables[name].space not in ("global", "const"):
                raise PtxSyntaxError(f"a variable has the address of {name}, which is not a variable", line)
        return Module(version, target, self.functions, self.variables, self.files, self)

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
            self.pass_over(function)
            function.span = header.start(), self.position
        if name not in self.functions or function.defined:
            self.functions[name] = function

    def pass_over(self, function: Function) -> None:
        """Passes over the body of a function and its closing brace."""
        start, depth = self.position, 1
        for brace in _BRACE.finditer(self.text, start):
            depth += (brace[0] == "{") - (brace[0] == "}")
            if not depth:
                break
        else:
            self.position = len(self.text)
            self.fail(f"the body of {function.name} has no closing brace")
        function.body = start, brace.end()
        self.position = brace.end()


def parse(text: str, source_name: str | None = None, *, bodies: bool = True) -> Module:
    """Parses a PTX module; without ``bodies`` those of functions are left to ``Module.read``, which saves nine tenths.

    ``source_name`` names the CUDA source where the PTX itself does not. Raises ``PtxSyntaxError`` with the PTX line."""
    if digits := re.search(r"\d{1000}", text):
        raise PtxSyntaxError("a number has a thousand digits", text.count("\n", 0, digits.start()) + 1)
    module = _Parser(text.rstrip("\0"), source_name).module()  # some compilers end it as C does
    if bodies:
        for function in module.functions.values():
            module.read(function)
    return module
