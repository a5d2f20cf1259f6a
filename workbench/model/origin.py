"""Where operations and CUDA sources come from."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parents[1]

SOURCES = next(p for p in (_HERE / "cuda_src", _HERE.parent / "cuda_src") if p.is_dir() or p.parent != _HERE)
"""The workbench's own CUDA sources: inside the installed package, or beside it in a checkout."""

SUFFIXES = (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")
"""Of files with CUDA C++."""

DEVICES = ("auto", "cuda", "emulator")
"""What a device is asked for by; `auto` is the GPU where there is one, otherwise the emulator."""

BUILT_IN = "workbench"
"""Where the workbench's own operations come from."""


def clone() -> Path | None:
    """The clone of the repository that the workbench runs from; None where it is an installed wheel."""
    return None if SOURCES.is_relative_to(_HERE) else SOURCES.parent.resolve()
