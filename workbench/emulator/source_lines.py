"""Lines of the CUDA source: how findings name them, and their text."""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Mapping
from pathlib import Path

from .headers import is_of_cuda
from .ptx import SourceLocation

__all__ = ["outside_cuda", "source_line", "through"]


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
    for name in (location.file, Path(location.file).name):
        if name in sources:
            lines = sources[name].splitlines()
            return lines[location.line - 1] if 0 < location.line <= len(lines) else ""
    return linecache.getline(location.file, location.line) if location.line > 0 else ""
