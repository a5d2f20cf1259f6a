"""Lines of the host's code, by the addresses from which it called."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

_OF_NOBODY = ("cuda_runtime.h", "crt/", "/bits/", "/c++/", ".cudafe1.stub.c", "cuda_runtime_api.h")
_LIBRARIES = ("/libc.so", "/libstdc++", "/ld-linux", "libpthread")


def test_of(site: str) -> str:
    """The test of pytest in which a call was made, or nothing."""
    return site.partition("\n")[0][2:] if site.startswith("@@") else ""


def line_of(site: str, kernel: str = "") -> str:
    """`file.cu:12` of a call, whose addresses are given as `file+offset` a line, the innermost first.

    Of a program of Python they come as `@file:12`; the innermost that is in no installed package is taken.
    Of a launch of `kernel`, the functions between that a compiler has made are left out.

    A function's name stands where the program has no lines (nvcc -g gives it some), and the address where it has none.
    """
    if python := [frame[1:] for frame in site.splitlines() if re.match("@[^@]", frame)]:
        return _short(next((frame for frame in python if not _is_library(frame)), python[0]))
    frames = [frame.rpartition("+") for frame in site.splitlines()]
    own = [(path, offset) for path, _, offset in frames if not any(word in path for word in _LIBRARIES)]
    fallback = ""
    for path, offset in own:
        for function, place in _symbolised(path, offset):
            if _is_made(function, kernel) or any(word in place for word in _OF_NOBODY):
                continue
            if place:
                return place
            if not fallback and function:
                fallback = f"{Path(path).name}, in {function}"
    return fallback or (f"{Path(own[0][0]).name}+{own[0][1]}" if own else "")


def _short(place: str) -> str:
    """Relative to the working directory where it lies below."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else place


def _is_library(frame: str) -> bool:
    return "-packages/" in frame or "/lib/python" in frame or frame.startswith("<")


def _is_made(function: str, kernel: str) -> bool:
    name = function.partition("<")[0].split()[-1:]
    return function.startswith(("cuda", "__cuda", "__device_stub", "__wrapper")) or name == [kernel.partition("<")[0]]


@cache
def _symbolised(path: str, offset: str) -> tuple[tuple[str, str], ...]:
    """Functions and lines of an address, inlined ones first, by binutils' or LLVM's tool where one is installed."""
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None or not Path(path).exists():
        return ()
    command = [tool, "-f", "-C", "-i", "-e", path, _file_address(path, offset)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=False)
    return tuple((name.partition("(")[0] if name != "??" else "", _place(place)) for name, place in pairs)


def _place(text: str) -> str:
    file, _, line = text.partition(" (")[0].rpartition(":")
    return f"{file}:{line}" if file not in ("", "??") and line not in ("0", "?") else ""


@cache
def _load_address(path: str) -> int:
    """Of a program that is not relocated, the address that it is linked for."""
    header = Path(path).read_bytes()[:64]
    return 0x400000 if int.from_bytes(header[16:18], "little") == 2 else 0


def _file_address(path: str, offset: str) -> str:
    return hex(int(offset, 16) + _load_address(path))
