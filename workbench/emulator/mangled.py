"""Names of kernels as the source has them, read from those of PTX by the rules of the Itanium C++ ABI (5.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KernelName", "kernel_name_of", "matches"]

_BUILTIN = {
    **{"v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short"},
    **{"t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long"},
    **{"y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double"},
    **{"e": "long double", "z": "...", "Dh": "__half", "Dn": "nullptr_t", "Di": "char32_t", "Ds": "char16_t"},
}
_STANDARD = {"Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string"}
_HIDDEN = ("_GLOBAL__N_", "_INTERNAL_")  # an anonymous namespace, and a file's own


_DECLARATOR = "\1"
"""In the type of a function: where its name would stand, or the mark of a pointer to it."""


def _listed(types: list[str]) -> str:
    return f"({', '.join(found.replace(_DECLARATOR, '') for found in types if found != 'void')})"


class _Unreadable(ValueError):
    """A mangled name with something that kernels rarely have."""


@dataclass(frozen=True, slots=True)
class KernelName:
    """The name with its namespaces, the template arguments with their brackets, the parameters with theirs."""

    name: str
    arguments: str = ""
    parameters: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.arguments}{self.parameters}"


def kernel_name_of(mangled: str) -> KernelName:
    """What a name of PTX says; the name as it is where it is not mangled, or cannot be read."""
    if not mangled.startswith("_Z"):
        return KernelName(mangled)
    try:
        return _Reader(mangled).encoding()
    except (_Unreadable, IndexError, ValueError):
        return KernelName(mangled)


def matches(kernel: KernelName, wanted: str) -> bool:
    """Whether the source's name for a kernel, with or without namespaces, arguments and parameters, means this one."""
    asked = _compact(wanted)
    bare = re.sub(r"[<(].*", "", asked, flags=re.DOTALL)
    full = _compact(kernel.name)
    if full != bare and not full.endswith(f"::{bare}"):
        return False
    rest = asked[len(bare) :]
    arguments, parameters = _compact(kernel.arguments), _compact(kernel.parameters)
    return rest in ("", arguments, parameters, arguments + parameters)


def _compact(text: str) -> str:
    """Without blanks, but for those between words."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", text.strip())


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 2
        self.known: list[str] = []  # what S_, S0_, ... stand for
        self.arguments: list[str] = []  # what T_, T0_, ... stand for

    def took(self, prefix: str) -> bool:
        if self.text.startswith(prefix, self.at):
            self.at += len(prefix)
            return True
        return False

    def encoding(self) -> KernelName:
        name, arguments = self.function_name()
        if arguments:
            self.type()  # what a template returns comes first
        parameters = []
        try:
            while self.at < len(self.text) and self.text[self.at] not in ".$":
                parameters.append(self.type())
        except (_Unreadable, IndexError, ValueError):  # the name alone can be told
            return KernelName(name, arguments)
        return KernelName(name, arguments, _listed(parameters))

    def function_name(self) -> tuple[str, str]:
        """The name, and its template arguments where it is a template's instance."""
        if not self.took("N"):
            name = ("std::" if self.took("St") else "") + self.source_name()
            if self.text[self.at] == "I":
                self.known.append(name)
                self.arguments, arguments = self.template_arguments()
                return name, arguments
            return name, ""
        while self.text[self.at] in "KVr":
            self.at += 1
        return self.nested(of_function=True)

    def nested(self, *, of_function: bool = False) -> tuple[str, str]:
        path, arguments = "", ""
        while not self.took("E"):
            arguments = ""
            if self.text[self.at] == "S" and self.text[self.at + 1] != "t":
                path = self.substitution()
                continue
            if self.text[self.at] == "I":
                listed, arguments = self.template_arguments()
                if of_function:
                    self.arguments = listed
                if self.text[self.at] == "E" and of_function:
                    continue
                path += arguments
            else:
                part = "std" if self.took("St") else self.source_name()
                path = "::".join(filter(None, (path, part)))
            self.known.append(path)
        return path, arguments

    def source_name(self) -> str:
        match = re.compile(r"\d+").match(self.text, self.at)
        if match is None:
            raise _Unreadable
        start = match.end()
        self.at = start + int(match[0])
        name = self.text[start : self.at]
        while self.took("B"):  # a tag, which Numba puts behind its kernels
            self.source_name()
        return "" if name.startswith(_HIDDEN) else name

    def template_arguments(self) -> tuple[list[str], str]:
        self.took("I")
        found = []
        while not self.took("E"):
            if self.took("J"):  # a pack
                while not self.took("E"):
                    found.append(self.argument())
            else:
                found.append(self.argument())
        return found, f"<{', '.join(found)}>"

    def argument(self) -> str:
        if not self.took("L"):
            return self.type()
        if self.took("_Z"):
            name = self.function_name()[0]
            while not self.took("E"):
                self.type()
            return name
        kind = self.type()
        end = self.text.index("E", self.at)
        value, self.at = self.text[self.at : end].replace("n", "-"), end + 1
        if kind == "bool":
            return "true" if value == "1" else "false"
        return value if kind in _BUILTIN.values() else f"({kind}){value}"

    def substitution(self) -> str:
        for code, name in _STANDARD.items():
            if self.took(code):
                return name
        self.took("S")
        return self.known[self.number()]

    def number(self) -> int:
        """Of S_ (0), S0_ (1), ... in base 36."""
        end = self.text.index("_", self.at)
        digits, self.at = self.text[self.at : end], end + 1
        return int(digits, 36) + 1 if digits else 0

    def type(self) -> str:
        for length in (1, 2):
            code = self.text[self.at : self.at + length]
            if code in _BUILTIN:
                self.at += length
                return _BUILTIN[code]
        code = self.text[self.at]
        if code == "T":
            self.at += 1
            found = self.arguments[self.number()]
            if self.text[self.at : self.at + 1] == "I":  # a template itself
                self.known.append(found)
                found += self.template_arguments()[1]
        elif code == "S" and self.text[self.at + 1] != "t":
            found = self.substitution()
            if self.text[self.at : self.at + 1] != "I":
                return found
            found += self.template_arguments()[1]
        elif code in "PROKVr":
            found = self.qualified(code)
        elif code == "A":
            end = self.text.index("_", self.at)
            extent, self.at = self.text[self.at + 1 : end], end + 1
            found = f"{self.type()}[{extent}]"
        elif self.took("F"):
            self.took("Y")
            found, parameters = self.type() + " " + _DECLARATOR, list[str]()
            while not self.took("E"):
                parameters.append(self.type())
            found += _listed(parameters)
        elif self.took("Dp"):
            found = self.type() + "..."
        elif self.took("N"):
            return self.nested()[0]
        else:
            found = ("std::" if self.took("St") else "") + self.source_name()
            if self.text[self.at : self.at + 1] == "I":
                self.known.append(found)
                found += self.template_arguments()[1]
        self.known.append(found)
        return found

    def qualified(self, code: str) -> str:
        self.at += 1
        if code in "PRO":
            inner, mark = self.type(), {"P": "*", "R": "&", "O": "&&"}[code]
            if _DECLARATOR not in inner:
                return inner + mark
            marked = mark + _DECLARATOR
            return inner.replace(_DECLARATOR, marked if f"*{_DECLARATOR}" in inner else f"({marked})")
        while code == "r" and self.text[self.at] in "VK":  # restrict stands before const, which is one with it
            code = self.text[self.at]
            self.at += 1
        inner = self.type()
        if code == "r":
            return inner
        word = {"K": "const", "V": "volatile"}[code]
        return f"{inner} {word}" if inner.endswith("*") else f"{word} {inner}"
