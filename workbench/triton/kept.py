"""Decoded programs, kept beside what Triton keeps of a kernel, from run to run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from functools import cache
from pathlib import Path
from typing import Any

from .. import emulator
from ..emulator import Program, _engine

__all__ = ["decoded"]

_MOST = 64
_PROGRAMS: dict[str, Program] = {}
"""Those used last, by their text."""


def decoded(text: str, kernel: Any) -> Program:
    """The program of a kernel's PTX. Raises what ``Program.from_ptx`` raises."""
    if text not in _PROGRAMS:
        while len(_PROGRAMS) >= _MOST:
            del _PROGRAMS[next(iter(_PROGRAMS))]
        _PROGRAMS[text] = _kept(text, kernel) or _from_text(text, kernel)
    return _PROGRAMS[text]


def _from_text(text: str, kernel: Any) -> Program:
    program = Program.from_ptx(_at_lines_of_python(text))
    program.replicas = True
    file = _file(text, kernel)
    if file is not None:
        with contextlib.suppress(OSError):  # a cache that cannot be written is none
            partly = file.with_name(f"{file.name}.{os.getpid()}")
            partly.write_bytes(pickle.dumps(program))
            partly.replace(file)
    return program


def _kept(text: str, kernel: Any) -> Program | None:
    file = _file(text, kernel)
    if file is None:
        return None
    try:
        program = pickle.loads(file.read_bytes())
    except Exception:  # none yet, or damaged
        return None
    return program if isinstance(program, Program) else None


def _file(text: str, kernel: Any) -> Path | None:
    """Where the program lies, for this text and this emulator; None where Triton keeps no files."""
    own = getattr(kernel, "metadata_group", {})
    beside = next((Path(path) for name, path in own.items() if name.endswith(".ptx")), None)
    if beside is None:
        return None
    return beside.with_name(f"{hashlib.sha256((_of_emulator() + text).encode()).hexdigest()[:32]}.decoded")


@cache
def _of_emulator() -> str:
    """A digest of the code that decodes, and of the engine, whose operations decoded rows name."""
    digest = hashlib.sha256(Path(str(_engine.__file__)).read_bytes())
    for file in sorted(Path(str(emulator.__file__)).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _at_lines_of_python(ptx: str) -> str:
    """PTX whose inline assembly stands at one line of Python.

    Triton writes many instructions as inline assembly, and LLVM has line numbers go up by one with each line of such a
    text: those after the first are of code that has nothing to do with it.
    """
    lines, inside, located = ptx.split("\n"), False, False
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("// begin inline asm"):
            inside, located = True, False
        elif text.startswith("// end inline asm"):
            inside = False
        elif inside and text.startswith(".loc"):
            lines[number] = "" if located else line  # as many lines as before
            located = True
    return "\n".join(lines)
