"""The declarations of a file, taken apart as far as it needs to tell what is for the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .conditionals import Macro
from .tokens import SourceError, Token

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_CLASS_KEYS = frozenset({"struct", "class", "union", "enum"})
_ACCESS = frozenset({"public", "private", "protected"})
# words before parentheses that hold no parameters
_ATTRIBUTES = frozenset(
    {"alignas", "decltype", "noexcept", "explicit", "requires", "typeof", "asm", "throw"}
    | {"__attribute__", "__declspec", "__align__", "__launch_bounds__", "__cluster_dims__", "__maxnreg__"}
    | {"__block_size__", "__typeof__", "__asm__", "_Pragma"}
)
_AFTER_PARAMETERS = frozenset({"const", "volatile", "noexcept", "override", "final", "try", "mutable"})


@dataclass(slots=True)
class Declaration:
    """One declaration, or a namespace or class with those inside of it.

    ``kind``: ``namespace``, ``linkage`` (a block of ``extern "C"``), ``class``, ``function``, ``variable``, ``type``
    (an alias), ``using`` (a directive), ``assertion``, ``macro`` (an invocation that is a declaration of its own),
    ``bracket`` (one that opens or closes a namespace), ``defaulted`` (a function without a body of its own).
    ``head`` are its tokens before a body, those in parentheses left out; ``inner`` all others."""

    kind: str
    head: list[Token]
    tokens: Sequence[Token]
    names: set[str]
    defined: bool = False
    children: list[Declaration] = field(default_factory=list)

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end

    @property
    def line(self) -> int:
        return self.tokens[0].line

    def heads(self, *words: str) -> bool:
        """Whether one of the words stands in the head."""
        return any(token.text in words for token in self.head)


def declarations(code: Sequence[Token], macros: dict[str, Macro]) -> list[Declaration]:
    """All declarations of a file. Raises ``SourceError`` with the line where one does not end."""
    parser = _Parser(code, macros)
    found = parser.until_closed(None)
    if parser.at < len(code):
        raise SourceError(code[parser.at].line, f"`{code[parser.at].text}` closes nothing that is open")
    return found


@dataclass(slots=True)
class _Head:
    """What has been seen of a declaration so far."""

    tokens: list[Token] = field(default_factory=list)
    groups: list[tuple[int, Token, Token]] = field(default_factory=list)  # after so many tokens: its word, its first
    operator: bool = False

    @property
    def words(self) -> list[str]:
        return [token.text for token in self.tokens]

    @property
    def has_parameters(self) -> bool:
        """Whether it declares a function, by what stands before and behind its parentheses."""
        if not self.groups:
            return False
        count, _, first = self.groups[-1]
        if first.text in ("*", "&", "^") and not self.operator:
            return False  # a pointer to a function
        behind = self.tokens[count:]
        texts = [token.text for token in behind]
        if ":" in texts or "->" in texts:
            return True
        plain = [
            t for t in behind if t.kind == "word" and t.text not in _AFTER_PARAMETERS and t.text not in _ATTRIBUTES
        ]
        return len(plain) < 2


class _Parser:
    def __init__(self, code: Sequence[Token], macros: dict[str, Macro]) -> None:
        self.code = code
        self.macros = macros
        self.at = 0

    def text(self, ahead: int = 0) -> str:
        position = self.at + ahead
        return self.code[position].text if position < len(self.code) else ""

    def until_closed(self, opening: Token | None) -> list[Declaration]:
        """Declarations up to the brace that closes ``opening``, which is left; to the end of the file for None."""
        found: list[Declaration] = []
        while self.at < len(self.code):
            text = self.text()
            if text == "}":
                return found
            if text == ";":
                self.at += 1
            elif text in _ACCESS and self.text(1) == ":":
                self.at += 2
            else:
                found.append(self.one())
        if opening is not None:
            raise SourceError(opening.line, "the brace that opens here is not closed")
        return found

    def group(self) -> int:
        """Passes over a bracket and what it holds; where that ends."""
        opening = self.code[self.at]
        pending = [_CLOSING[opening.text]]
        self.at += 1
        while pending:
            if self.at >= len(self.code):
                raise SourceError(opening.line, f"the `{opening.text}` that opens here is not closed")
            text = self.code[self.at].text
            if text in _CLOSING and self.code[self.at].kind == "punctuation":
                pending.append(_CLOSING[text])
            elif text in (")", "]", "}"):
                if text != pending[-1]:
                    raise SourceError(
                        self.code[self.at].line, f"`{text}` where `{pending[-1]}` is expected, opened at {opening.line}"
                    )
                pending.pop()
            self.at += 1
        return self.at

    def angles(self) -> None:
        """Passes over ``<...>`` behind ``template``."""
        opening, depth = self.code[self.at], 0
        while self.at < len(self.code):
            text = self.text()
            if text in _CLOSING:
                self.group()
                continue
            depth += (text == "<") - (text == ">")
            self.at += 1
            if depth == 0:
                return
        raise SourceError(opening.line, "the `<` that opens here is not closed")

    def one(self) -> Declaration:
        start = self.at
        if (macro := self.invocation(start)) is not None:
            return macro
        while self.text() == "template" and self.text(1) == "<":
            self.at += 1
            self.angles()
        if self.text() in ("namespace", "inline") and "namespace" in (self.text(), self.text(1)):
            return self.namespace(start)
        if self.text() == "extern" and self.text(1).startswith('"') and self.text(2) == "{":
            self.at += 2
            return self.block(start, "linkage", [])
        return self.declaration(start)

    def invocation(self, start: int) -> Declaration | None:
        """A macro that is a whole declaration, by its definition."""
        macro = self.macros.get(self.text())
        if macro is None or not (macro.last in ("}", ";") or macro.braces):
            return None
        if macro.takes_arguments and self.text(1) != "(":
            return None
        self.at += 1
        if macro.takes_arguments:
            self.group()
        is_bracket = bool(macro.braces) and (macro.braces < 0 or bool(macro.words & {"namespace", "extern"}))
        if macro.braces > 0 and not is_bracket:
            self.until_macro_closes(macro.braces, self.code[start])
        if self.text() == ";":
            self.at += 1
        tokens = self.code[start : self.at]
        kind = "bracket" if is_bracket else "macro"
        return Declaration(kind, [tokens[0]], tokens, {t.text for t in tokens if t.kind == "word"})

    def until_macro_closes(self, depth: int, opened: Token) -> None:
        """Passes over what stands between a macro that opens braces and what closes them."""
        while depth > 0:
            if self.at >= len(self.code):
                raise SourceError(opened.line, f"what `{opened.text}` opens here is not closed")
            text = self.text()
            other = self.macros.get(text)
            depth += (text == "{") - (text == "}") + (other.braces if other is not None else 0)
            self.at += 1
            if other is not None and other.takes_arguments and self.text() == "(":
                self.group()

    def namespace(self, start: int) -> Declaration:
        head = []
        while self.text() not in ("{", "=", ";", ""):
            head.append(self.code[self.at])
            if self.text() in ("(", "["):
                self.group()
            else:
                self.at += 1
        if self.text() != "{":  # an alias
            names = {token.text for token in head[1:] if token.kind == "word"}
            self.rest()
            return Declaration("type", head, self.code[start : self.at], names)
        return self.block(start, "namespace", head)

    def block(self, start: int, kind: str, head: list[Token]) -> Declaration:
        opening = self.code[self.at]
        self.at += 1
        children = self.until_closed(opening)
        self.at += 1
        return Declaration(kind, head, self.code[start : self.at], set(), True, children)

    def rest(self) -> None:
        """Passes over what is left up to a semicolon, and that."""
        first = self.code[min(self.at, len(self.code) - 1)]
        while self.at < len(self.code):
            text = self.text()
            if text == "}":
                return
            if text in _CLOSING:
                self.group()
                continue
            self.at += 1
            if text == ";":
                return
        raise SourceError(first.line, "the declaration here does not end with a semicolon")

    def declaration(self, start: int) -> Declaration:
        head = _Head()
        while self.at < len(self.code):
            token = self.code[self.at]
            text = token.text
            if token.kind == "punctuation" and text in (";", "}"):
                self.at += text == ";"
                return self.finished(start, head)
            if text == "operator" and token.kind == "word":
                self.operator(head)
            elif text in ("(", "[") and token.kind == "punctuation":
                self.parentheses(head)
            elif text == "=" and token.kind == "punctuation":
                return self.initialised(start, head)
            elif text == "{" and token.kind == "punctuation":
                return self.braced(start, head)
            elif text == "<" and head.tokens and head.tokens[-1].text == "template":
                self.angles()  # of a member template, behind other words
            else:
                head.tokens.append(token)
                self.at += 1
        if head.groups:  # a macro that nothing here defines
            return self.finished(start, head)
        raise SourceError(self.code[start].line, f"the declaration of `{self.code[start].text}` does not end")

    def operator(self, head: _Head) -> None:
        """The name of an operator: what stands up to the parentheses of its parameters."""
        head.operator = True
        head.tokens.append(self.code[self.at])
        self.at += 1
        if self.text() in ("(", "[") and self.text(1) in (")", "]"):
            self.at += 2
        while self.text() not in ("(", ";", ""):
            head.tokens.append(self.code[self.at])
            self.at += 1

    def parentheses(self, head: _Head) -> None:
        opening, before = self.code[self.at], head.tokens[-1] if head.tokens else None
        first = self.code[self.at + 1] if self.at + 1 < len(self.code) else opening
        self.group()
        if opening.text != "(" or before is None or before.text in _ATTRIBUTES:
            return
        if not (before.kind == "word" or before.text == ">" or head.operator):
            return
        if not any(head.tokens[count].text == ":" for count, *_ in head.groups if count < len(head.tokens)):
            head.groups.append((len(head.tokens), _named_by(head.tokens), first))  # else a constructor's initialisers

    def initialised(self, start: int, head: _Head) -> Declaration:
        """``= ...;``: of a variable, or a function that is defaulted, deleted or pure."""
        head.tokens += self.code[self.at : self.at + 2]
        self.at += 1
        first = self.text()
        words = head.words
        if first in ("default", "delete", "0") and head.has_parameters and "using" not in words:
            self.rest()
            return Declaration("defaulted", head.tokens, self.code[start : self.at], _function_names(head))
        self.rest()
        return self.named(start, head, is_function=False)

    def braced(self, start: int, head: _Head) -> Declaration:
        """A body: of a class, of a function, or the initial value of a variable."""
        opening, words = self.code[self.at], head.words
        is_function = head.has_parameters
        key = next((i for i, word in enumerate(words) if word in _CLASS_KEYS), None)
        if key is not None and not (is_function and head.groups[-1][0] > key + 2):
            return self.a_class(start, head, key, opening)
        if is_function:
            self.group()
            while self.in_initialisers(head):
                self.between_initialisers(head)
            tokens = self.code[start : self.at]
            return Declaration("function", head.tokens, tokens, _function_names(head), True)
        self.rest()
        return self.named(start, head, is_function=False)

    def in_initialisers(self, head: _Head) -> bool:
        """Whether the braces just passed were an initialiser of a constructor, and its body is still to come."""
        behind = head.words[head.groups[-1][0] :]
        return ":" in behind and self.text() in (",", "{", "(")

    def between_initialisers(self, head: _Head) -> None:
        while self.text() not in ("{", ";", ""):
            if self.text() == "(":
                self.group()
            else:
                self.at += 1
        if self.text() == "{":
            self.group()

    def a_class(self, start: int, head: _Head, key: int, opening: Token) -> Declaration:
        words = head.words
        is_enum = words[key] == "enum"
        names = _class_name(head.tokens[key + 1 :])
        inside = self.at
        if is_enum:
            self.group()
            names |= _enumerators(self.code[inside : self.at])
            children = []
        else:
            children = self.block(inside, "", []).children
        behind = self.at
        self.rest()
        names |= {token.text for token in self.code[behind : self.at] if token.kind == "word"}
        return Declaration("class", head.tokens, self.code[start : self.at], names, True, children)

    def finished(self, start: int, head: _Head) -> Declaration:
        return self.named(start, head, is_function=head.has_parameters)

    def named(self, start: int, head: _Head, *, is_function: bool) -> Declaration:
        """A declaration that has ended, by its first words."""
        tokens, words = self.code[start : self.at], head.words
        if "static_assert" in words[:1]:
            return Declaration("assertion", head.tokens, tokens, set())
        if "using" in words[:1]:
            if "namespace" in words[1:2]:
                return Declaration("using", head.tokens, tokens, set())
            name = words[1] if "=" in words else next((w for w in reversed(words) if w.isidentifier()), "")
            return Declaration("type", head.tokens, tokens, {name})
        if "typedef" in words:
            return Declaration("type", head.tokens, tokens, _declared(tokens))
        if "concept" in words[:1]:
            return Declaration("type", head.tokens, tokens, {words[1]})
        if is_function:
            return Declaration("function", head.tokens, tokens, _function_names(head))
        if words and words[0] in _CLASS_KEYS and "=" not in words and len(words) < 4:
            return Declaration("class", head.tokens, tokens, _class_name(head.tokens[1:]))
        return Declaration("variable", head.tokens, tokens, _declared(tokens))


def _named_by(tokens: Sequence[Token]) -> Token:
    """The name that parentheses or a value stand behind: the last token, or what its template arguments belong to."""
    position, depth = len(tokens) - 1, 0
    while position > 0:
        depth += (tokens[position].text == ">") - (tokens[position].text == "<")
        if depth <= 0 and tokens[position].text != "<":
            break
        position -= 1
    return tokens[position]


def _function_names(head: _Head) -> set[str]:
    """The name of a function, and of the classes and namespaces that qualify it."""
    count, name, _ = head.groups[-1]
    names = {name.text}
    position = next((i for i in range(count - 1, -1, -1) if head.tokens[i] is name), 0)
    while position >= 2 and head.tokens[position - 1].text == "::":
        owner = _named_by(head.tokens[: position - 1])
        names.add(owner.text)
        position = next((i for i in range(position - 2, -1, -1) if head.tokens[i] is owner), 0)
    return names


def _class_name(tokens: Sequence[Token]) -> set[str]:
    """The name behind the key of a class: the last word before its bases or template arguments."""
    name = ""
    for token in tokens:
        if token.text in (":", "<"):
            break
        if token.kind == "word" and token.text not in ("final", "class", "struct") and token.text not in _ATTRIBUTES:
            name = token.text
    return {name} if name else set()


def _enumerators(tokens: Sequence[Token]) -> set[str]:
    pairs = pairwise(tokens)
    return {token.text for before, token in pairs if before.text in ("{", ",") and token.kind == "word"}


def _declared(tokens: Sequence[Token]) -> set[str]:
    """Words that a variable's or typedef's declarators may declare: those before ``= [ ( { , ; )``, outside of values.

    Rather too many than too few: all of them are looked for."""
    names, depth = set(), 0
    for token, behind in pairwise(tokens):
        if token.kind == "punctuation":
            depth += (token.text in "{[") - (token.text in "}]")
        elif token.kind == "word" and depth == 0 and behind.text in ("=", "[", "(", "{", ",", ";", ")", "<"):
            names.add(token.text)
    return names
