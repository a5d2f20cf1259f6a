"""Where the CUDA sources and the operations of the workbench come from."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parents[1]

SOURCES = next(p for p in (_HERE / "cuda_src", _HERE.parent / "cuda_src") if p.is_dir() or p.parent != _HERE)
"""The workbench's own CUDA sources: inside the installed package, or beside it in a checkout."""

SUFFIXES = (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")
"""Of files with CUDA C++."""

BUILT_IN = "workbench"
"""Where the workbench's own operations come from."""


def clone() -> Path | None:
    """The clone of the repository that the workbench runs from; None where it is an installed wheel."""
    return None if SOURCES.is_relative_to(_HERE) else SOURCES.parent.resolve()


def file_of(module: object) -> str | None:
    """The file of a module that is loaded. One that is to be loaded when it is used, as CuPy's are, is not for this."""
    try:
        file = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None
    return file if isinstance(file, str) else None
