"""Lines of the CUDA source: how findings name them, and their text."""

from __future__ import annotations

import dataclasses
import linecache
import re
from bisect import bisect
from collections.abc import Mapping
from pathlib import Path

from .headers import is_of_cuda
from .ptx import SourceLocation, source_files

__all__ = ["asm_at_its_first_line", "outside_cuda", "source_line", "text_of", "through"]


def outside_cuda(location: SourceLocation) -> SourceLocation:
    """The innermost line that is not in a header of CUDA, into which one was inlined; the location itself where there
    is none."""
    calls = (location, *location.inlined_at)
    own = next((i for i, call in enumerate(calls) if not is_of_cuda(call.file)), 0)
    return dataclasses.replace(calls[own], inlined_at=calls[own + 1 :]) if own else location


def through(location: SourceLocation) -> str:
    """``tma.cuh:17 (from gemm.cu:71)``: a line, and the one that it was inlined into.

    That is the first in another file, which says more than the call in the kernel's body; else the outermost. Of
    headers of CUDA, which call one another, it is the first that is none; lines in them are left out.
    """
    location = outside_cuda(location)
    if not location.inlined_at:
        return str(location)
    elsewhere = [caller for caller in location.inlined_at if caller.file != location.file]
    own = [caller for caller in elsewhere if not is_of_cuda(caller.file)]
    return f"{location} (from {(own or elsewhere or location.inlined_at[-1:])[0]})"


def source_line(location: SourceLocation, sources: Mapping[str, str]) -> str:
    lines = text_of(location.file, sources).splitlines()
    return lines[location.line - 1] if 0 < location.line <= len(lines) else ""


def text_of(file: str, sources: Mapping[str, str]) -> str:
    """The text of a file that was compiled, else as it is now; empty where there is none."""
    for name in (file, Path(file).name):
        if name in sources:
            return sources[name]
    return "".join(linecache.getlines(file))


_BEGIN = "// begin inline asm"
_PLACE_OR_ASM = re.compile(rf"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[ \t]+(\d+)(.*)$|^[ \t]*{_BEGIN}", re.MULTILINE)
_ASM = re.compile(r"\b(?:asm|__asm__)\s*(?:(?:volatile|__volatile__)\s*)?\(")
_ASM_PART = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[()]', re.DOTALL)


def asm_at_its_first_line(ptx: str, sources: Mapping[str, str]) -> str:
    """PTX in which an asm statement over several lines has the place of its first.

    NVRTC 13.0 gives it that of one of its operands, as NVRTC 13.5 does not. Lines of the PTX keep their numbers.
    `sources` are texts of CUDA sources by file name; others are read where they exist.
    """
    if _BEGIN not in ptx:
        return ptx
    first = {number: _asm_lines(text_of(path, sources)) for number, path in source_files(ptx).items()}
    if not any(first.values()):
        return ptx
    last: re.Match[str] | None = None

    def placed(found: re.Match[str]) -> str:
        nonlocal last
        if found[1]:
            last = found
        elif last and (line := first.get(int(last[1]), {}).get(int(last[2]))):
            return f"\t.loc\t{last[1]} {line} {last[3]}{last[4]} {found[0].strip()}"
        return found[0]

    return _PLACE_OR_ASM.sub(placed, ptx)


def _asm_lines(text: str) -> dict[int, int]:
    """The first line of the asm statement that each line of one continues."""
    lines: dict[int, int] = {}
    ends = [match.start() for match in re.finditer("\n", text)]
    for statement in _ASM.finditer(text):
        depth, position = 1, statement.end()
        while depth and (part := _ASM_PART.search(text, position)):
            depth += {"(": 1, ")": -1}.get(part[0], 0)
            position = part.end()
        if not depth:
            first, final = (bisect(ends, place) + 1 for place in (statement.start(), position - 1))
            lines |= dict.fromkeys(range(first + 1, final + 1), first)
    return lines
