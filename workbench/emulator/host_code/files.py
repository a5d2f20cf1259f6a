"""A file of CUDA C++ and the headers beside it, taken apart."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ..source_lines import cuda_headers, standard_headers
from .conditionals import Include, Macro, Preprocessed, directive, preprocessed
from .declarations import Declaration, declarations
from .stubs import header_of, is_device_library, is_host_library
from .tokens import SourceError, Token
from .torch_header import TORCH

_LONGEST_ARGUMENTS = 200  # tokens of a template's
_MOST_FOLDERS = 8  # above a file, where headers of its project are looked for
_OF_ROOTS = (".git", ".gitignore", "LICENSE", "LICENSE.md", "LICENSE.txt", "pyproject.toml", "setup.py")
_MOST_FILES = 50_000  # of a project, where a header is looked for in all of its folders
_OPENING, _CLOSING = ("(", "<", "["), (")", ">", "]")
_SHOUTED = re.compile(r"_*[A-Z][A-Z0-9_]*")
_IF_DEFINED = re.compile(r"(?:ifdef\s+|if\s+defined\s*\(?\s*)(\w+)\s*\)?")
_WITH_CUDA = re.compile(r"(?:WITH|USE|HAVE|ENABLE)_CUDA\b")
_NOT_TYPES = frozenset({"return", "case", "else", "goto", "sizeof", "in", "throw", "defined"})


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

    Raises ``SourceError`` for a file that cannot be taken apart. A header that cannot be is left as it is."""

    def __init__(self, text: str, name: str, folders: Sequence[str]) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._above, self._root = _folders_above(Path(name))
        self._project: dict[str, list[Path]] | None = None
        self.guessed: dict[str, Path] = {}  # headers that were found in some folder of the project
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
        required = self.template_arguments(defaults=False)
        return {name: f"{name}<{', '.join(arguments)}>" for name, arguments in required.items()}

    def template_arguments(self, *, defaults: bool) -> dict[str, list[str]]:
        """Kernels that are templates, with arguments by the kinds of their parameters, or with what these have by
        ``defaults``."""
        return {
            name: _template_arguments(declaration.tokens, defaults)
            for file in self.all
            for _, declaration in _kernels(file.declared)
            for name in sorted(declaration.names)[:1]
            if declaration.tokens[0].text == "template"
        }

    def switches(self, kernel: str) -> list[str]:
        """Macros that nothing here defines, and without which a kernel or what is for CUDA is not compiled."""
        around: list[str] = []
        for file in self.all:
            for _, declaration in _kernels(file.declared):
                if kernel in declaration.names and declaration.defined:
                    opened: list[str] = []
                    for token in file.parts.directives:
                        name, condition = directive(token)
                        if token.start > declaration.start:
                            break
                        if name in ("if", "ifdef", "ifndef"):
                            opened.append(f"{name} {condition}")
                        elif name == "endif" and opened:
                            opened.pop()
                        elif name in ("else", "elif") and opened:
                            opened[-1] = ""
                    around += opened
        of_cuda = [" ".join(directive(token)) for file in self.all for token in file.parts.directives]
        around += [condition for condition in of_cuda if _WITH_CUDA.search(condition)]
        found = [_IF_DEFINED.fullmatch(condition) for condition in around]
        names = dict.fromkeys(one[1] for one in found if one)
        return [name for name in names if name not in self.macros and not name.startswith("__")]

    def signatures(self) -> list[tuple[str, list[str]]]:
        """The kernels with a body, each by its name with namespaces, and its parameters as the source has them."""
        return [
            ("::".join([*path, next(iter(declaration.names))]), _parameters(file.text, declaration))
            for file in self.all
            for path, declaration in _kernels(file.declared)
            if declaration.defined
        ]

    def aliases(self) -> dict[str, str]:
        """Types by the names that the files give them."""
        found: dict[str, str] = {}
        for declaration in self._declared():
            texts = [token.text for token in declaration.tokens if token.text != ";"]
            plain = texts[0] in ("using", "typedef") and not {"(", "[", "template"} & {*texts}
            if declaration.kind == "type" and plain:
                using = texts[0] == "using" and texts[2:3] == ["="]
                name, meant = (texts[1], texts[3:]) if using else (texts[-1], texts[1:-1])
                found.setdefault(name, " ".join(meant).replace(" :: ", "::"))
        return found

    def names(self) -> set[str]:
        """What the files declare or define, outside of functions."""
        found = set(self.macros)
        for declaration in self._declared():
            own = _parameters_of_template(declaration.tokens) if declaration.kind in ("variable", "type") else set()
            texts = [token.text for token in declaration.tokens]
            if declaration.kind == "variable" and "=" in texts:
                own |= {*texts[texts.index("=") :]}  # of its value
            found |= declaration.names - own
        return found

    def undefined(self) -> list[str]:
        """Names of macros that code for the device uses as numbers, and that only a build can define."""
        every = list(self._declared())
        known = self.names().union(*(_parameters_of_template(declaration.tokens) for declaration in every))
        missing: dict[str, None] = {}
        for declaration in every:
            if declaration.heads("__global__", "__device__", "__constant__"):
                missing |= dict.fromkeys(_free_words(declaration.tokens, known))
        return [name for name in missing if header_of(name) is None and not _of_cuda(name)]

    def _declared(self) -> Iterator[Declaration]:
        waiting = [declaration for file in self.all for declaration in file.declared]
        while waiting:
            declaration = waiting.pop(0)
            yield declaration
            waiting = [*declaration.children, *waiting]

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
        return self._in_project(include.name, folder)

    def _in_project(self, name: str, folder: Path) -> Path | None:
        """A header in whatever folder of the project a build would be told of: the nearest one, if it is only one."""
        parts = Path(name).parts
        if self._root is None or is_host_library(name) or "." not in parts[-1] or ".." in parts:
            return None
        places = cuda_headers()
        if name.encode() in standard_headers(places) or any(Path(place, name).is_file() for place in places):
            return None
        if self._project is None:
            self._project = _headers_below(self._root)
        fitting = [path for path in self._project.get(parts[-1], ()) if path.parts[-len(parts) :] == parts]
        far = {path: len(Path(os.path.relpath(path, folder.resolve())).parts) for path in fitting}
        nearest = [path for path in fitting if far[path] == min(far.values())]
        if len(nearest) != 1:
            return None
        self.guessed.setdefault(name, nearest[0])
        return nearest[0]

    def _leave(self, file: SourceFile) -> None:
        """Leaves a header as it is."""
        self._by_path = {path: known if known is not file else None for path, known in self._by_path.items()}
        for other in self.all:
            other.headers = {place: header for place, header in other.headers.items() if header is not file}


def _folders_above(file: Path) -> tuple[list[Path], Path | None]:
    """Where a build would look for a project's headers: the folders above a file as far as its root, and `include`.

    And the root, where something shows that it is one."""
    if not file.is_file():
        return [], None
    above = list(file.resolve().parents)[:_MOST_FOLDERS]
    roots = [count for count, folder in enumerate(above, 1) if any((folder / name).exists() for name in _OF_ROOTS)]
    found = [place for folder in above[: roots[0] if roots else 1] for place in (folder, folder / "include")]
    return [place for place in found if place.is_dir()], above[roots[0] - 1] if roots else None


def _headers_below(root: Path) -> dict[str, list[Path]]:
    """The headers in all folders of a project, by their names."""
    found, seen = dict[str, list[Path]](), 0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name[0] != "."]
        seen += len(names)
        for name in names:
            if name.endswith((".h", ".cuh", ".hpp", ".hh", ".inl", ".inc")):
                found.setdefault(name, []).append(Path(folder, name))
        if seen > _MOST_FILES:
            break
    return found


def _of_cuda(name: str) -> bool:
    """Whether a header of CUDA has this word, so that it need not be given."""
    pattern = re.compile(rf"\b{name}\b" if len(name) > 3 else rf"#\s*define\s+{name}\b")  # else of a template
    headers = [path for folder in cuda_headers()[:1] for path in Path(folder).glob("*.h*")]
    return any(pattern.search(text) for text in (TORCH, *(path.read_text(errors="replace") for path in headers)))


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


def _template_arguments(tokens: Sequence[Token], defaults: bool) -> list[str]:
    """An argument for each parameter of a template that has no default, by its kind; or all with ``defaults``."""
    depth, parameter, found, names = 0, list[str](), list[str](), dict[str, str]()
    for token in tokens[1:]:
        depth += (token.text == "<") - (token.text == ">")
        if depth == 0 or (depth == 1 and token.text == ","):
            kind = parameter[:-1] or parameter
            if "=" in parameter and not defaults:
                break
            if "=" in parameter:
                value = " ".join(parameter[parameter.index("=") + 1 :])
                found.append(names.get(value, value))
            elif parameter[:1] in (["typename"], ["class"]):
                found.append("int" if "index" in parameter[-1].lower() else "float")
            elif parameter:
                of_numbers = {"int", "unsigned", "size_t", "long", "short", "int32_t", "uint32_t", "auto"}
                found.append("true" if "bool" in kind else "32" if of_numbers & {*kind} else f"{' '.join(kind)}(0)")
            if parameter:
                names[parameter[parameter.index("=") - 1] if "=" in parameter else parameter[-1]] = found[-1]
            parameter = []
            if depth == 0:
                break
        elif not (depth == 1 and token.text == "<"):
            parameter.append(token.text)
    return found


def _free_words(tokens: Sequence[Token], known: Collection[str]) -> list[str]:
    """Words in capitals that are used as numbers and not declared among the tokens, nor known."""
    used, own = dict[str, None](), set[str]()
    body = next((token.start for token in tokens if token.text == "{"), tokens[-1].end)
    for before, token, behind in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.kind != "word" or token.text in known or not _SHOUTED.fullmatch(token.text):
            continue
        used[token.text] = None
        declared = before.kind == "word" and before.text not in _NOT_TYPES
        parameter = token.start < body and before.text in ("*", "&") and behind.text in (",", ")", "[")
        other = before.text in (".", "->", "::", "&", "...", ">") or behind.text in ("(", "::", "<", "&")
        if declared or parameter or other or (before.text == "*" and behind.text == "="):
            own.add(token.text)  # or it is no number
    return [word for word in used if word not in own]


def _parameters_of_template(tokens: Sequence[Token]) -> set[str]:
    """The words between ``template <`` and its end; none of what is no template."""
    depth, found = 0, set[str]()
    for token in tokens[1:] if tokens[0].text == "template" else ():
        depth += (token.text == "<") - (token.text == ">")
        if depth == 0:
            break
        found.add(token.text)
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
