"""Takes what is for the host out of CUDA C++, so that a compiler of device code alone reads files as people have them.

Nothing moves: what is taken out becomes blanks, directives stay, and every line keeps its number. Kernels, device
functions and variables stay, and of types, constants and ``constexpr`` or ``__host__ __device__`` functions those that
they name. Headers beside the file are treated like it; those of libraries of the host are replaced."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..source_lines import STANDARD, is_of_cuda
from .conditionals import Include, as_nvcc, conditions, constants, preprocessed
from .declarations import Declaration, declarations
from .files import SourceFile, SourceFiles
from .selection import Selection, leaves, used_words
from .stubs import (
    HEADERS,
    cub_header,
    implicit_header,
    is_device_library,
    is_host_library,
    may_define_macros,
    standard_includes,
    stub_for,
)
from .tokens import SourceError

__all__ = ["DeviceCode", "HostCode", "SourceError", "SourceFiles"]

_CUB = "workbench/cub.h"
_WITHOUT_THEIR_OWN = ("cute/", "cutlass/")  # which use more of the C++ library than they include


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a compiler of device code is given.

    ``text`` of the file, ``headers`` by the name that they are included by, ``implicit`` the name of the one that
    is read before all others; ``has_host_code``: whether anything was taken out. ``absent`` are headers that were
    not found, ``taken_out`` names that are not declared any more, ``undecided`` macros that a conditional reads and a
    header that was left out might define, all with their places; ``left_out`` are those headers."""

    text: str
    headers: dict[str, str]
    implicit: str
    has_host_code: bool
    absent: dict[str, str] = field(default_factory=dict)
    taken_out: dict[str, str] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class HostCode:
    """Takes host code out of files.

    ``known`` are folders of headers that a compiler of device code reads, ``standard`` headers that it is given.
    ``named`` is what is asked for besides kernels, such as the arguments of a template. ``kernels``: the names of those
    that are wanted, or none for all. ``defined``: the names of macros that the compiler is given."""

    files: SourceFiles
    known: Sequence[str]
    standard: Collection[str]
    named: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()
    _refused: set[int] = field(default_factory=set)
    _libraries: dict[Path, SourceFile | None] = field(default_factory=dict)  # headers of device libraries, as refused
    _kept: list[tuple[SourceFile, Declaration]] = field(default_factory=list)

    def device_code(self) -> DeviceCode:
        """The files without it; as they are where there is none."""
        selection = Selection(self.files.macros, self._refused, self.kernels)
        selection.choose([d for file in self.files.all for d in file.declared], self.named)
        kept = {id(declaration) for declaration in selection.kept}
        self._kept = [(file, d) for file in self.files.all for d in _everything(file.declared) if id(d) in kept]
        directives = [token for file in self.files.all for token in file.parts.directives]
        needs_edits = self._includes_of_host() or any(as_nvcc(token) is not None for token in directives)
        if not (selection.host or self._refused or self.kernels or needs_edits):
            name, text = implicit_header(used_words(self.files.tokens()) | _words_of_macros(self.files))
            return DeviceCode(self.files.main.text, {name: text}, name, False)
        dropped = {id(declaration) for declaration in selection.dropped}
        words = selection.words
        name, implicit = implicit_header(words)
        implicit += (
            "".join(f"#include {header}\n" for header in standard_includes(words & self._of_std())) + self._namespaces()
        )
        if any(include.name.startswith(_WITHOUT_THEIR_OWN) for include in self._includes()):
            implicit += "".join(f"#include <{header}>\n" for header in ("cstdint", *STANDARD))
        headers = {name: implicit, **HEADERS, _CUB: cub_header(words)}
        absent: dict[str, str] = {}
        names = {header.name: f"workbench/{i}/{Path(header.name).name}" for i, header in enumerate(self.files.headers)}
        texts = {}
        for file in self.files.all:
            edits = [*self._blanked(file, dropped), *self._included(file, words, names, absent, headers)]
            edits += [(at.start, at.end, given) for at in file.parts.directives if (given := as_nvcc(at))]
            texts[file.name] = _edited(file.text, edits)
        for header in self.files.headers:
            headers[names[header.name]] = f'#line 1 "{header.name}"\n{texts[header.name]}'
        gone = {
            word: file.place(d)
            for file in self.files.all
            for d in _everything(file.declared)
            if id(d) in dropped
            for word in d.names
        }
        for path, library in self._libraries.items():
            if library is not None:
                text = _edited(library.text, list(self._blanked(library, self._refused)))
                headers[self._included_as(path)] = f'#line 1 "{path}"\n{text}'
        left_out = tuple(self._left_out())
        undecided = self._undecided(dropped, headers) if left_out or absent else {}
        return DeviceCode(texts[self.files.main.name], headers, name, True, absent, gone, undecided, left_out)

    def launches(self) -> list[tuple[str, int]]:
        """Files and lines where code for the device launches kernels."""
        found = []
        for file in self.files.all:
            for declaration in leaves(file.declared):
                texts = [token.text for token in declaration.tokens]
                if declaration.heads("__global__", "__device__"):
                    places = (at for at in range(len(texts) - 2) if texts[at : at + 3] == ["<"] * 3)
                    found += [(file.name, declaration.tokens[at].line) for at in places]
        return found

    def refuse(self, lines: Collection[tuple[str, int]]) -> bool:
        """Takes out what did not compile, of what stays only since something names it; whether there was any."""
        before = len(self._refused)
        read = self._read_libraries({name for name, _ in lines})
        libraries = [(file, declaration) for file in read for declaration in leaves(file.declared)]
        for file, declaration in (*self._kept, *libraries):
            text = file.text
            for name, line in lines:
                if Path(name).name == Path(file.name).name and line in _lines(text, declaration):
                    self._refused.add(id(_innermost(text, declaration, line)))
        return len(self._refused) > before

    def _read_libraries(self, names: Collection[str]) -> list[SourceFile]:
        """Takes headers of device libraries apart that do not compile: CUTLASS's have functions for the host."""
        own = {file.name for file in self.files.all}
        for name in names:
            path = Path(name)
            if name in own or path in self._libraries or not path.is_file() or not self._included_as(path):
                continue
            try:
                text = path.read_text("utf-8-sig", errors="replace")
                file = SourceFile(name, text, preprocessed(text))
                file.declared = declarations(file.parts.code, {**self.files.macros, **file.parts.macros})
                self._libraries[path] = file
            except SourceError:
                self._libraries[path] = None
        return [file for file in self._libraries.values() if file is not None]

    def _included_as(self, path: Path) -> str:
        """The name by which a header of a device library is included; empty for others."""
        names = [str(path.relative_to(folder)) for folder in self.known if path.is_relative_to(folder)]
        return next(filter(is_device_library, names), "") if not is_of_cuda(str(path)) else ""

    def _includes_of_host(self) -> bool:
        """Whether a header is included that a compiler of device code does not have or read."""
        return any(
            include.token.start not in file.headers
            and (is_host_library(include.name) or not self._is_known(include, file))
            for file in self.files.all
            for include in file.parts.includes
        )

    def _is_known(self, include: Include, file: SourceFile) -> bool:
        folders = [*self.known, *([str(Path(file.name).parent)] if include.quoted else [])]
        return include.name in self.standard or any(Path(folder, include.name).is_file() for folder in folders)

    def _blanked(self, file: SourceFile, dropped: Collection[int]) -> Iterator[tuple[int, int, str]]:
        """What becomes of declarations that are taken out: blanks, with directives among them left."""
        directives = [(token.start, token.end) for token in file.parts.directives]
        for declaration in _everything(file.declared):
            if id(declaration) in dropped:
                at, last = declaration.start, declaration.end
                last = file.parts.alternatives.get(last, last)
                for start, end in directives:
                    if at <= start < last:
                        yield at, start, ""
                        at = end
                yield at, max(at, last), ""

    def _includes(self) -> list[Include]:
        return [include for file in self.files.all for include in file.parts.includes]

    def _left_out(self) -> list[str]:
        """Headers of libraries of the host that are not there, so that their macros are not known."""
        names = dict.fromkeys(include.name for include in self._includes())
        return [f"<{name}>" for name in names if may_define_macros(name) and not self._path_of(name)]

    def _path_of(self, name: str) -> Path | None:
        folders = [*(str(Path(file.name).parent) for file in self.files.all), *self.known]
        return next((path for folder in folders if (path := Path(folder, name)).is_file()), None)

    def _undecided(self, dropped: Collection[int], headers: Mapping[str, str]) -> dict[str, str]:
        known = {*self.files.macros, *self.defined, *re.findall(r"#define (\w+)", "\n".join(headers.values()))}
        found: dict[str, str] = {}
        for file in self.files.all:
            gone = [d for d in _everything(file.declared) if id(d) in dropped]
            for token, macro in conditions(file.parts):
                if macro not in known and not any(d.start <= token.start < d.end for d in gone):
                    found.setdefault(macro, f"{Path(file.name).name}:{token.line}")
        return found

    def _with_macros(self, include: Include, headers: dict[str, str]) -> str:
        """What stands in place of a header of the host, with its macros that the files name, where they are known."""
        text, path = stub_for(include.name), self._path_of(include.name)
        named = _words_of_macros(self.files) | {token.text for token in self.files.tokens()}
        named.update(macro for each in self.files.all for _, macro in conditions(each.parts))
        macros = constants(path, named) if path else {}
        if not macros:
            return text
        defined = [f"#ifndef {name}\n#define {name} {value}\n#endif" for name, value in macros.items()]
        headers[f"workbench/macros/{include.name}"] = "\n".join(["#pragma once", text, *defined, ""])
        return f'#include "workbench/macros/{include.name}"'

    def _included(
        self,
        file: SourceFile,
        words: Collection[str],
        names: dict[str, str],
        absent: dict[str, str],
        headers: dict[str, str],
    ) -> Iterator[tuple[int, int, str]]:
        """What becomes of directives that include something."""
        for include in file.parts.includes:
            token = include.token
            header = file.headers.get(token.start)
            if header is not None:
                yield token.start, token.end, f'#include "{names[header.name]}"'
            elif include.name.startswith("cub/"):
                one = include.name.startswith(("cub/block/", "cub/warp/", "cub/thread/"))
                if "cub" not in words or not one:
                    yield token.start, token.end, f'#include "{_CUB}"' if "cub" in words else ""
            elif is_host_library(include.name):
                yield token.start, token.end, self._with_macros(include, headers)
            elif include.name in self.standard:
                yield token.start, token.end, ""  # what is used of it is in the implicit header
            elif not self._is_known(include, file):
                if "." in include.name or "/" in include.name:  # else one of the C++ library
                    shown = f'"{include.name}"' if include.quoted else f"<{include.name}>"
                    absent[shown] = f"{Path(file.name).name}:{token.line}"
                yield token.start, token.end, ""

    def _of_std(self) -> set[str]:
        """Words that stand behind ``std::`` somewhere; all where its names need not be qualified."""
        found: set[str] = set()
        for file in self.files.all:
            everything = list(_everything(file.declared))
            if any(d.kind == "using" and d.heads("std") for d in everything):
                return {token.text for token in self.files.tokens()} | _words_of_macros(self.files)
            texts = [token.text for token in file.parts.code]
            found.update(name for at, name in enumerate(texts[2:]) if texts[at] == "std" and texts[at + 1] == "::")
        macros = [macro.words for macro in self.files.macros.values() if "std" in macro.words]
        return found.union(*macros)

    def _namespaces(self) -> str:
        """Declares namespaces that are opened by ``using namespace`` and that were in headers which are not there."""
        everything = [d for file in self.files.all for d in _everything(file.declared)]
        aliases = {name for d in everything if d.kind == "type" for name in d.names}
        opened = []
        for declaration in everything:
            if declaration.kind == "using":
                path = [token.text for token in declaration.head[2:] if token.kind == "word"]
                if path and path[0] not in aliases:
                    opened.append(" ".join(f"namespace {name} {{" for name in path) + " }" * len(path))
        return "".join(f"{line}\n" for line in dict.fromkeys(opened))


def _everything(declared: Sequence[Declaration]) -> Iterator[Declaration]:
    for declaration in declared:
        yield declaration
        yield from _everything(declaration.children)


def _words_of_macros(files: SourceFiles) -> set[str]:
    return {word for macro in files.macros.values() for word in macro.words}


def _lines(text: str, declaration: Declaration) -> range:
    first = declaration.line
    return range(first, first + text.count("\n", declaration.start, declaration.end) + 1)


def _innermost(text: str, declaration: Declaration, line: int) -> Declaration:
    """The member function that a line of a class belongs to; the declaration itself where there is none."""
    for child in declaration.children:
        if child.kind in ("function", "class") and line in _lines(text, child):
            return _innermost(text, child, line)
    return declaration


def _edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with other text in some places, and as many lines."""
    parts, at = [], 0
    for start, end, new in sorted(edits):
        if start < at:
            continue  # within what has been taken out
        removed = text[start:end]
        blank = "".join(character if character == "\n" else " " for character in removed)
        parts += [text[at:start], new + "\n" * removed.count("\n") if new else blank]
        at = end
    return "".join([*parts, text[at:]])
