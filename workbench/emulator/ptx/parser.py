"""A PTX module: its variables and its functions."""

from __future__ import annotations

import re

from .body import Body
from .reader import Reader
from .tree import Function, Module, PtxSyntaxError, Variable

_HEADER = re.compile(
    r"((?:\.(?:visible|weak|extern|common)\s+)*)\.(entry|func)\s*(?:\.attribute\s*\([^)]*\)\s*)?"
    r"(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])"
)

_DIRECTIVE = re.compile(r"\.(\w+)\s*((?:\d+\s*,?\s*)*)")
_BRACE = re.compile(r'"[^"\n]*"|[{}]')
_SHARED = re.compile(r"\.shared(?<=[\s;{}:]\.shared)(?:::\w+)?\s[^;]*")  # no part of an opcode


class _Parser(Reader):
    """Reads one module; without ``bodies`` those of functions are passed over."""

    def __init__(self, text: str, source_name: str | None, bodies: bool) -> None:
        super().__init__(text, source_name)
        self.bodies = bodies
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
                Body(self, function).read()
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


def parse(text: str, source_name: str | None = None, *, bodies: bool = True) -> Module:
    """Parses a PTX module; without ``bodies`` those of functions are passed over, which takes a tenth of the time.

    ``source_name`` names the CUDA source where the PTX itself does not. Raises ``PtxSyntaxError`` with the PTX line.
    """
    if digits := re.search(r"\d{1000}", text):
        raise PtxSyntaxError("a number has a thousand digits", text.count("\n", 0, digits.start()) + 1)
    return _Parser(text, source_name, bodies).module()
