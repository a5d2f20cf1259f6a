"""Directives of the preprocessor: macros, includes, and which branches of conditionals show how a file is built."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .tokens import SourceError, Token, tokens_of

_PARTS = re.compile(r"#\s*(\w*)\s*(.*)", re.DOTALL)
_CONTINUED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*")|/\*.*?\*/|//[^\n]*""", re.DOTALL)
_DEFINITION = re.compile(r"([A-Za-z_]\w*)(\([^)]*\))?\s*(.*)", re.DOTALL)
_INCLUDED = re.compile(r"""(?:"([^"]+)"|<([^>]+)>)""")


@dataclass(frozen=True, slots=True)
class Include:
    """An ``#include``: its directive, the name, and whether it stands in quotes."""

    token: Token
    name: str
    quoted: bool


@dataclass(slots=True)
class Macro:
    """What a name stands for: the words of all its definitions, the last token, and its braces in balance or not."""

    words: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    last: str = ""
    braces: int = 0
    takes_arguments: bool = False


@dataclass(slots=True)
class Preprocessed:
    """A file without its directives: ``code`` are the tokens that show its structure.

    ``alternatives`` has, by the place where a branch ends that stands for all of its conditional, where that ends."""

    code: list[Token]
    directives: list[Token]
    includes: list[Include]
    macros: dict[str, Macro]
    alternatives: dict[int, int]


def directive(token: Token) -> tuple[str, str]:
    """The name of a directive and what follows, without comments, on one line."""
    text = _COMMENT.sub(lambda match: match[1] or " ", _CONTINUED.sub(" ", token.text))
    match = _PARTS.match(text)
    return (match[1], match[2].strip()) if match else ("", "")


def preprocessed(text: str) -> Preprocessed:
    """Takes a text apart. Raises ``SourceError`` where conditionals do not match, or a comment does not end."""
    tokens = tokens_of(text)
    directives = [token for token in tokens if token.kind == "directive"]
    alternatives: dict[int, int] = {}
    code, rest = _branch(tokens, 0, alternatives)
    if rest < len(tokens):
        raise SourceError(tokens[rest].line, f"#{directive(tokens[rest])[0]} without an #if")
    result = Preprocessed(code, directives, [], {}, alternatives)
    for token in directives:
        name, rest_of_line = directive(token)
        if name == "include" and (found := _INCLUDED.match(rest_of_line)):
            result.includes.append(Include(token, found[1] or found[2], found[1] is not None))
        elif name == "define" and (match := _DEFINITION.match(rest_of_line)):
            _define(result.macros.setdefault(match[1], Macro()), match[2], match[3])
    return result


def _define(macro: Macro, parameters: str | None, replacement: str) -> None:
    tokens = tokens_of(" " + replacement)  # a blank before, so that # is no directive
    macro.words.update(token.text for token in tokens if token.kind == "word")
    macro.takes_arguments |= parameters is not None
    macro.parameters.update(re.findall(r"\w+", parameters or ""))
    macro.last = tokens[-1].text if tokens else macro.last
    macro.braces = _depths(tokens)[2] or macro.braces


def _depths(tokens: Iterable[Token]) -> tuple[int, int, int]:
    """How many parentheses, brackets and braces are opened and not closed; negative where more are closed."""
    found = Counter(token.text for token in tokens if token.kind == "punctuation")
    return found["("] - found[")"], found["["] - found["]"], found["{"] - found["}"]


def _branch(tokens: Sequence[Token], position: int, alternatives: dict[int, int]) -> tuple[list[Token], int]:
    """The code up to the end of a branch, and the position of the directive that ends it."""
    code: list[Token] = []
    while position < len(tokens):
        token = tokens[position]
        if token.kind != "directive":
            code.append(token)
            position += 1
            continue
        name, _ = directive(token)
        if name in ("else", "elif", "elifdef", "elifndef", "endif"):
            break
        if name in ("if", "ifdef", "ifndef"):
            chosen, position = _conditional(tokens, position, alternatives)
            code += chosen
        else:
            position += 1
    return code, position


def _conditional(tokens: Sequence[Token], position: int, alternatives: dict[int, int]) -> tuple[list[Token], int]:
    """Code of a conditional, and where it ends.

    All branches, one after the other, where each closes what it opens. Else the first: it and the others begin the
    same thing in different ways, and what holds of the one holds of all."""
    opened = tokens[position]
    branches: list[list[Token]] = []
    while True:
        if position >= len(tokens):
            raise SourceError(opened.line, f"#{directive(opened)[0]} without an #endif")
        name, condition = directive(tokens[position])
        if name == "endif":
            break
        code, position = _branch(tokens, position + 1, alternatives)
        if not (name in ("if", "elif") and condition in ("0", "false", "(0)")):
            branches.append(code)
    if all(_depths(branch) == (0, 0, 0) for branch in branches):
        return [token for branch in branches for token in branch], position + 1
    if branches[0]:
        alternatives[branches[0][-1].end] = tokens[position].start
    return branches[0], position + 1


# ------------------ macros that decide which branch is compiled: those of nvcc, and those of headers that are left out


_OF_NVCC = {"__NVCC__": "1", "__linux__": "1", "__unix__": "1", "__CUDACC_RTC__": ""}
"""Macros that nvcc has with another value than NVRTC, which is empty where it has none."""

_NAMES = "|".join(_OF_NVCC)
_IFDEF = re.compile(rf"#\s*if(n?)def\s+({_NAMES})\b")
_DEFINED = re.compile(rf"\bdefined\s*(?:\(\s*({_NAMES})\s*\)|({_NAMES})\b)|\b({_NAMES})\b")
_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+((?:0[xX][\da-fA-F]+|[\d\s()+\-*/<|&]|[uUlL]\b)+?)[ \t]*(?://.*|/\*.*)?$",
    re.MULTILINE,
)
_NEVER_DEFINED = frozenset({"USE_ROCM", "HIP_VERSION", "ROCM_VERSION", "TORCH_HIP_VERSION", "NDEBUG", "DEBUG"})
_OF_CUDA = ("CUDART_", "CCCL_", "CUB_", "THRUST_")  # the compiler or headers that it reads define them
_OPERATORS = frozenset({"defined", "true", "false", "and", "or", "not"})


def as_nvcc(token: Token) -> str | None:
    """A conditional as nvcc reads it, where that differs: ``#if 1`` for ``#ifdef __NVCC__``."""
    name, _ = directive(token)
    if name not in ("if", "ifdef", "ifndef", "elif") or not any(macro in token.text for macro in _OF_NVCC):
        return None
    if found := _IFDEF.match(token.text):
        return f"#if {int(bool(_OF_NVCC[found[2]]) != bool(found[1]))}"
    return _DEFINED.sub(lambda found: _OF_NVCC[found[1] or found[2] or found[3]] or "0", token.text)


def conditions(parts: Preprocessed) -> Iterator[tuple[Token, str]]:
    """The macros that conditionals of a file read, as far as neither it nor a compiler defines them."""
    for token in parts.directives:
        name, rest = directive(token)
        if name not in ("if", "ifdef", "ifndef", "elif"):
            continue
        for word in dict.fromkeys(re.findall(r"(?<![\w.])[A-Za-z_]\w*", rest)):
            if not word.startswith(("__", *_OF_CUDA)) and word not in _OPERATORS | _NEVER_DEFINED:
                yield token, word


def constants(path: Path, names: Collection[str]) -> dict[str, str]:
    """The macros of a header, among these names, that stand for numbers."""
    text = path.read_text("utf-8-sig", errors="replace")
    return {found[1]: found[2].strip() for found in _CONSTANT.finditer(text) if found[1] in names}
