"""A PTX module: its variables and its functions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .body import Body
from .reader import Reader
from .tree import Function, PtxSyntaxError, Variable

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
        """Parses a function and what it may call: all functions where it calls through a pointer."""
        reached = self.reached(function)
        if any(_POINTER_CALL.search(self.body(f)) for f in reached):
            reached = list(self.functions.values())
        for each in reached:
            self.read(each)

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

        All of the text where debug sections describe its functions.
        """
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

    ``source_name`` names the CUDA source where the PTX itself does not. Raises ``PtxSyntaxError`` with the PTX line.
    """
    if digits := re.search(r"\d{1000}", text):
        raise PtxSyntaxError("a number has a thousand digits", text.count("\n", 0, digits.start()) + 1)
    module = _Parser(text, source_name).module()
    if bodies:
        for function in module.functions.values():
            module.read(function)
    return module
