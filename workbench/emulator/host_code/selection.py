"""Which declarations are for the device: kernels, what they name, and what that names in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .conditionals import Macro
from .declarations import Declaration
from .stubs import ANNOTATING
from .tokens import Token

_ON_DEVICE = frozenset({"__device__", "__constant__", "__shared__", "__managed__", "__global__", "__grid_constant__"})
_OF_EXPANSION = _ON_DEVICE | {"__host__", "constexpr", "consteval"}
_OF_TYPES = frozenset({"struct", "class", "union", "enum", "using", "typedef", "constexpr", "concept"})
_KEYWORDS = frozenset(
    {"alignas", "alignof", "auto", "bool", "break", "case", "char", "class", "const", "consteval", "constexpr"}
    | {"continue", "decltype", "default", "delete", "do", "double", "else", "enum", "explicit", "extern", "false"}
    | {"float", "for", "friend", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "nullptr"}
    | {"operator", "private", "protected", "public", "requires", "return", "short", "signed", "sizeof", "static"}
    | {"static_assert", "static_cast", "struct", "switch", "template", "this", "true", "typedef", "typename", "union"}
    | {"unsigned", "using", "virtual", "void", "volatile", "while", "__device__", "__host__", "__global__"}
    | {"__shared__", "__constant__", "__restrict__", "__forceinline__"}
)


def used_words(tokens: Iterable[Token]) -> set[str]:
    """What a piece of code names, members of objects left out."""
    words, before, last = set(), "", ""
    for token in tokens:
        member = last == "." or (last == "->" and before != ")")  # behind a parenthesis it may be a type
        if token.kind == "word" and not member:
            words.add(token.text)
        before, last = last, token.text
    return words - _KEYWORDS


@dataclass(slots=True)
class Selection:
    """Finds the declarations that are kept among those of several files.

    ``macros`` are those of all files, ``refused`` declarations that did not compile and are not kept again. After
    ``choose``, ``dropped`` are declarations that are taken out, ``kept`` those that stay though they are not marked
    for the device, ``words`` what all that stays names, and ``host`` whether a compiler without a host would refuse
    any of what is taken out. ``kernels`` are those that are wanted, or none for all."""

    macros: dict[str, Macro]
    refused: Collection[int] = ()
    kernels: frozenset[str] = frozenset()
    dropped: list[Declaration] = field(default_factory=list)
    kept: list[Declaration] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    host: bool = False
    _expanded: dict[str, frozenset[str]] = field(default_factory=dict)

    def choose(self, declared: Sequence[Declaration], named: Collection[str]) -> None:
        """``named`` are words that are asked for besides: of a template's instance."""
        every = list(leaves(declared))
        waiting: dict[str, list[Declaration]] = {}
        reached: deque[Declaration] = deque()
        seen: set[int] = set()
        for leaf in every:
            if id(leaf) in self.refused or leaf.kind == "assertion":
                continue
            if self._is_root(leaf):
                reached.append(leaf)
                seen.add(id(leaf))
            elif self._may_stay(leaf):
                for name in leaf.names:
                    waiting.setdefault(name, []).append(leaf)
        pending = deque(named)
        while reached or pending:
            if reached:
                leaf = reached.popleft()
                pending.extend(used_words(self._remaining(leaf)) - self.words)
                continue
            word = pending.popleft()
            if word in self.words:
                continue
            self.words.add(word)
            if (macro := self.macros.get(word)) is not None:
                pending.extend(macro.words - macro.parameters)
            for leaf in waiting.pop(word, ()):
                if id(leaf) not in seen:
                    seen.add(id(leaf))
                    reached.append(leaf)
        self._settle(every, seen)

    def _settle(self, every: Sequence[Declaration], seen: set[int]) -> None:
        gone = {name for leaf in every if id(leaf) not in seen for name in leaf.names}
        here = {name for leaf in every if id(leaf) in seen for name in leaf.names}
        for leaf in every:
            if leaf.kind == "assertion":
                missing = used_words(leaf.tokens) & gone - here
                self.host |= bool(missing)
                stays = not missing and id(leaf) not in self.refused
            else:
                stays = id(leaf) in seen
            if not stays:
                self.dropped.append(leaf)
                self.host |= self._needs_host(leaf)
            elif leaf.kind == "class":
                self._drop_members(leaf)
            if stays and not self._is_root(leaf):
                self.kept.append(leaf)
                self.host |= leaf.kind == "function" and not self.marks(leaf) & _ON_DEVICE

    def _drop_members(self, leaf: Declaration) -> None:
        for child in leaf.children:
            if id(child) in self.refused or self._is_host_member(child):
                self.dropped.append(child)
                self.host = True
            elif child.kind == "class":
                self._drop_members(child)

    def _remaining(self, leaf: Declaration) -> Iterator[Token]:
        """The tokens of a declaration, without members of classes that are taken out."""
        members = leaf.children if leaf.kind == "class" else ()
        gone = [child for child in members if id(child) in self.refused or self._is_host_member(child)]
        for token in leaf.tokens:
            if not any(child.start <= token.start < child.end for child in gone):
                yield token

    def _is_host_member(self, child: Declaration) -> bool:
        return child.kind == "function" and not self.marks(child) & (_ON_DEVICE | {"constexpr", "consteval"})

    def marks(self, declaration: Declaration) -> frozenset[str]:
        """What the head says of where it belongs, through macros."""
        marks: frozenset[str] = frozenset()
        for token in declaration.head:
            if token.kind == "word":
                marks |= self._marks_of(token.text)
        return marks

    def _marks_of(self, word: str, within: frozenset[str] = frozenset()) -> frozenset[str]:
        if word in _OF_EXPANSION:
            return frozenset({word})
        if word in ANNOTATING:
            return frozenset(ANNOTATING[word])
        macro = self.macros.get(word)
        if macro is None or word in within:
            return frozenset()
        if word not in self._expanded:
            found: frozenset[str] = frozenset()
            for inner in macro.words:
                found |= self._marks_of(inner, within | {word})
            self._expanded[word] = found
        return self._expanded[word]

    def _is_root(self, leaf: Declaration) -> bool:
        """Whether it stays whatever names it."""
        if leaf.kind in ("using", "bracket"):
            return True
        marks = self.marks(leaf)
        if leaf.kind == "function" and leaf.heads("operator"):  # called without being named
            return bool(marks & _ON_DEVICE)
        if self.kernels and leaf.kind == "function":
            return "__global__" in marks and not self.kernels.isdisjoint(leaf.names)
        return "__global__" in marks or (bool(marks & _ON_DEVICE) and "__host__" not in marks)

    def _may_stay(self, leaf: Declaration) -> bool:
        """Whether it stays where something names it."""
        marks = self.marks(leaf)
        if leaf.kind == "function":
            return bool(marks & (_ON_DEVICE | {"constexpr", "consteval"}))
        if leaf.kind == "macro":
            return bool(marks & _ON_DEVICE or self.macros[leaf.head[0].text].words & _OF_TYPES)
        if leaf.kind == "variable":
            return bool(marks & (_ON_DEVICE | {"constexpr"})) or leaf.heads("const")
        return True

    def _needs_host(self, leaf: Declaration) -> bool:
        marks = self.marks(leaf)
        if leaf.kind == "function":
            return not marks & _ON_DEVICE
        if leaf.kind == "variable":
            return not marks & (_ON_DEVICE | {"constexpr"}) and not leaf.heads("const")
        if leaf.kind == "class":
            return any(self._is_host_member(child) for child in leaf.children)
        return leaf.kind == "macro" or id(leaf) in self.refused


def leaves(declared: Iterable[Declaration]) -> Iterator[Declaration]:
    for declaration in declared:
        if declaration.kind in ("namespace", "linkage"):
            yield from leaves(declaration.children)
        else:
            yield declaration
