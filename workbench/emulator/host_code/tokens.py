"""Tokens of CUDA C++: words, strings and punctuation, and directives of the preprocessor as whole logical lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


class SourceError(ValueError):
    """A source that cannot be taken apart; ``line`` is where, the message what was not understood."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its ``kind`` (word, number, string, punctuation or directive), text, place in characters, and line."""

    kind: str
    text: str
    start: int
    end: int
    line: int


_SCANNER = re.compile(
    r"""
      (?P<newline>\n)
    | (?P<blank>[ \t\r\f\v]+|\\\r?\n)
    | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
    | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
        | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
        | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
    | (?P<word>[^\W\d][\w$]*|\$[\w$]*)
    | (?P<punctuation>::|->|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"""(?:/\*.*?\*/|//(?:\\\r?\n|[^\n])*|"(?:\\.|[^"\\\n])*"|\\\r?\n|[^\n])*""", re.DOTALL)


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, without blanks and comments. Raises ``SourceError`` for a comment that does not end."""
    return list(_scanned(text))


def _scanned(text: str) -> Iterator[Token]:
    position, line, fresh = 0, 1, True  # fresh: nothing but blanks so far on this line
    while position < len(text):
        if fresh and text[position] == "#":
            match = _DIRECTIVE.match(text, position)
            kind = "directive"
        else:
            match = _SCANNER.match(text, position)
            kind = str(match.lastgroup) if match else ""
        assert match is not None  # the last alternative takes any character
        found, start = match[0], position
        position = match.end()
        if found == "/" and text.startswith("/*", start):
            raise SourceError(line, "the comment that begins here does not end")
        if kind == "mark":
            kind = "string"
        if kind in ("newline", "blank", "comment"):
            fresh = fresh or kind == "newline"
        else:
            yield Token(kind, found, start, position, line)
            fresh = False
        line += found.count("\n")
