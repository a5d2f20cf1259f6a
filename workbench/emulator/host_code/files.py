"""A file of CUDA C++ and the headers beside it, taken apart."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from .conditionals import Include, Macro, Preprocessed, preprocessed
from .declarations import Declaration, declarations
from .stubs import is_device_library
from .tokens import SourceError, Token

__all__ = ["SourceFile", "SourceFiles"]

_LONGEST_ARGUMENTS = 200  # tokens of a template's
_MOST_FOLDERS = 8  # above a file, where headers of its project are looked for
_OF_ROOTS = (".git", ".gitignore", "LICENSE", "LICENSE.md", "LICENSE.txt", "pyproject.toml", "setup.py")
_OPENING, _CLOSING = ("(", "<", "["), (")", ">", "]")


@dataclass(slots=True)
class SourceFile:
    """One file. ``headers``: the includes that mean a file which is taken apart as well."""

    name: str
    text: str
    parts: Preprocessed
    declared: list[Declaration] = field(default_factory=list)
    headers: dict[int, SourceFile] = field(default_factory=dict)  # by the place of the directive

    def place(self, declaration: Declaration) -> str:
        return f"{Path(self.name).name}:{declaration.line}"


class SourceFiles:
    """A file, and those headers that lie beside it or in ``folders``.

    Raises ``SourceError`` for a file that cannot be taken apart. A header that cannot be is left as it is.
    """

    def __init__(self, text: str, name: str, folders: Sequence[str]) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._above = _folders_above(Path(name))
        self._by_path: dict[Path, SourceFile | None] = {}
        self.main = SourceFile(name, text, preprocessed(text))
        self.macros: dict[str, Macro] = {}
        self._follow(self.main, Path(name).parent)
        for file in self.all:
            _merge(self.macros, file.parts.macros)
        self.main.declared = declarations(self.main.parts.code, self.macros)
        for file in self.headers:
            try:
                file.declared = declarations(file.parts.code, self.macros)
            except SourceError:
                self._leave(file)

    @property
    def headers(self) -> list[SourceFile]:
        """The headers that have been taken apart, in the order in which they are included first."""
        return [file for file in self._by_path.values() if file is not None]

    @property
    def all(self) -> list[SourceFile]:
        return [self.main, *self.headers]

    def tokens(self) -> Iterator[Token]:
        for file in self.all:
            yield from file.parts.code

    def templates(self) -> dict[str, list[str]]:
        """Kernels that are templates, and the instances that the files launch."""
        found: dict[str, list[str]] = {}
        for file in self.all:
            for _, declaration in _kernels(file.declared):
                if declaration.tokens[0].text == "template":
                    found.setdefault(next(iter(declaration.names)), [])
        tokens = list(self.tokens())
        for position, token in enumerate(tokens):
            if token.text in found and (instance := _launched(tokens, position)):
                found[token.text] += [instance] if instance not in found[token.text] else []
        return found

    def examples(self) -> dict[str, str]:
        """Kernels that are templates, each with an instance by the kinds of its parameters."""
        return {
            name: f"{name}<{', '.join(_template_arguments(declaration.tokens))}>"
            for file in self.all
            for _, declaration in _kernels(file.declared)
            for name in sorted(declaration.names)[:1]
            if declaration.tokens[0].text == "template"
        }

    def signatures(self) -> list[tuple[str, list[str]]]:
        """The kernels with a body, each by its name with namespaces, and its parameters as the source has them."""
        return [
            ("::".join([*path, next(iter(declaration.names))]), _parameters(file.text, declaration))
            for file in self.all
            for path, declaration in _kernels(file.declared)
            if declaration.defined
        ]

    def namespaces(self, kernel: str) -> list[str]:
        """The namespaces around kernels of this name, each with those around it; none for one in no namespace."""
        found = {path for file in self.all for path, d in _kernels(file.declared) if kernel in d.names}
        if () in found:
            return []
        return sorted({"::".join(path[:count]) for path in found for count in range(1, len(path) + 1)})

    def _follow(self, file: SourceFile, folder: Path) -> None:
        """Reads the headers that a file includes."""
        for include in file.parts.includes:
            path = self._find(include, folder)
            if path is None:
                continue
            if path not in self._by_path:
                self._by_path[path] = None
                self._by_path[path] = self._read(path)
            header = self._by_path[path]
            if header is not None:
                file.headers[include.token.start] = header

    def _read(self, path: Path) -> SourceFile | None:
        text = path.read_text("utf-8-sig", errors="replace")
        try:
            file = SourceFile(str(path), text, preprocessed(text))
        except SourceError:
            return None
        self._by_path[path] = file  # before what it includes, which may include it again
        self._follow(file, path.parent)
        return file

    def _find(self, include: Include, folder: Path) -> Path | None:
        if is_device_library(include.name):
            return None
        for place in (*([folder] if include.quoted else []), *self._folders, *(self._above if include.quoted else [])):
            path = place / include.name
            if path.is_file():
                return path.resolve()
            if path.exists() and not path.is_dir():  # to read a pipe would never end
                raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return None

    def _leave(self, file: SourceFile) -> None:
        """Leaves a header as it is."""
        self._by_path = {path: known if known is not file else None for path, known in self._by_path.items()}
        for other in self.all:
            other.headers = {place: header for place, header in other.headers.items() if header is not file}


def _folders_above(file: Path) -> list[Path]:
    """Where a build would look for a project's headers: the folders above a file as far as its root, and `include`."""
    if not file.is_file():
        return []
    above = list(file.resolve().parents)[:_MOST_FOLDERS]
    roots = [count for count, folder in enumerate(above, 1) if any((folder / name).exists() for name in _OF_ROOTS)]
    found = [place for folder in above[: roots[0] if roots else 1] for place in (folder, folder / "include")]
    return [place for place in found if place.is_dir()]


def _merge(macros: dict[str, Macro], more: Mapping[str, Macro]) -> None:
    for name, macro in more.items():
        known = macros.get(name)
        if known is None:
            macros[name] = macro
            continue
        known.words |= macro.words
        known.parameters |= macro.parameters
        known.last = known.last or macro.last
        known.braces = known.braces or macro.braces
        known.takes_arguments |= macro.takes_arguments


def _kernels(
    declared: Iterable[Declaration], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Declaration]]:
    """Kernels, and the namespaces that they stand in, those without a name left out."""
    for declaration in declared:
        if declaration.kind == "function" and declaration.heads("__global__"):
            yield path, declaration
        names = [t.text for t in declaration.head if t.kind == "word" and t.text not in ("namespace", "inline")]
        yield from _kernels(declaration.children, (*path, *(names if declaration.kind == "namespace" else [])))


def _template_arguments(tokens: Sequence[Token]) -> list[str]:
    """An argument for each parameter of a template that has no default, by its kind."""
    depth, parameter, found = 0, list[str](), list[str]()
    for token in tokens[1:]:
        depth += (token.text == "<") - (token.text == ">")
        if depth == 0 or (depth == 1 and token.text == ","):
            kind = parameter[:-1] or parameter
            if "=" in parameter:
                break
            if parameter[:1] in (["typename"], ["class"]):
                found.append("float")
            elif parameter:
                of_numbers = {"int", "unsigned", "size_t", "long", "short", "int32_t", "uint32_t", "auto"}
                found.append("true" if "bool" in kind else "32" if of_numbers & {*kind} else f"{' '.join(kind)}(0)")
            parameter = []
            if depth == 0:
                break
        elif not (depth == 1 and token.text == "<"):
            parameter.append(token.text)
    return found


def _parameters(text: str, kernel: Declaration) -> list[str]:
    """The parameters of a kernel, each on one line and without comments."""
    named = next(at for at, token in enumerate(kernel.tokens) if token.text in kernel.names)
    depth, begin, found = 0, named + 2, list[str]()
    for at, token in enumerate(kernel.tokens[named + 1 :], named + 1):
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if at >= begin and (depth == 0 or (depth == 1 and token.text == ",")):
            written = " ".join(_written(text, kernel.tokens[begin:at]).split())
            found += [written] if written else []
            begin = at + 1
        if depth == 0:
            break
    return found


def _written(text: str, tokens: Sequence[Token]) -> str:
    """Tokens with the blanks that the text has between them, but no comments."""
    parts = [token.text for token in tokens[:1]]
    for before, token in pairwise(tokens):
        parts += [" " if before.end < token.start else "", token.text]
    return "".join(parts)


def _launched(tokens: Sequence[Token], position: int) -> str:
    """``name<...>`` as it is written where ``<<<`` stands behind it; nothing elsewhere."""
    depth = 0
    for end in range(position + 1, min(len(tokens), position + _LONGEST_ARGUMENTS)):
        text = tokens[end].text
        depth += (text == "<") - (text == ">")
        if depth == 0:
            if text != ">" or [token.text for token in tokens[end + 1 : end + 4]] != ["<"] * 3:
                return ""
            arguments = " ".join(token.text for token in tokens[position + 2 : end])
            return f"{tokens[position].text}<{arguments.replace(' ,', ',').replace(' :: ', '::')}>"
    return ""
