"""Macros that decide which branch is compiled: those of nvcc, and those of headers that are left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from .conditionals import Preprocessed, directive
from .tokens import Token

__all__ = ["as_nvcc", "conditions", "constants"]

_OF_NVCC = {"__NVCC__": "1", "__linux__": "1", "__unix__": "1", "__CUDACC_RTC__": ""}
"""Macros that nvcc has with another value than NVRTC, which is empty where it has none."""

_NAMES = "|".join(_OF_NVCC)
_IFDEF = re.compile(rf"#\s*if(n?)def\s+({_NAMES})\b")
_DEFINED = re.compile(rf"\bdefined\s*(?:\(\s*({_NAMES})\s*\)|({_NAMES})\b)|\b({_NAMES})\b")
_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+((?:0[xX][\da-fA-F]+|[\d\s()+\-*/<|&]|[uUlL]\b)+?)[ \t]*(?://.*|/\*.*)?$",
    re.MULTILINE,
)
_NEVER_DEFINED = frozenset({"USE_ROCM", "HIP_VERSION", "ROCM_VERSION", "TORCH_HIP_VERSION", "NDEBUG", "DEBUG"})
_OF_CUDA = ("CUDART_", "CCCL_", "CUB_", "THRUST_")  # the compiler or headers that it reads define them
_OPERATORS = frozenset({"defined", "true", "false", "and", "or", "not"})


def as_nvcc(token: Token) -> str | None:
    """A conditional as nvcc reads it, where that differs: ``#if 1`` for ``#ifdef __NVCC__``."""
    name, _ = directive(token)
    if name not in ("if", "ifdef", "ifndef", "elif") or not any(macro in token.text for macro in _OF_NVCC):
        return None
    if found := _IFDEF.match(token.text):
        return f"#if {int(bool(_OF_NVCC[found[2]]) != bool(found[1]))}"
    return _DEFINED.sub(lambda found: _OF_NVCC[found[1] or found[2] or found[3]] or "0", token.text)


def conditions(parts: Preprocessed) -> Iterator[tuple[Token, str]]:
    """The macros that conditionals of a file read, as far as neither it nor a compiler defines them."""
    for token in parts.directives:
        name, rest = directive(token)
        if name not in ("if", "ifdef", "ifndef", "elif"):
            continue
        for word in dict.fromkeys(re.findall(r"(?<![\w.])[A-Za-z_]\w*", rest)):
            if not word.startswith(("__", *_OF_CUDA)) and word not in _OPERATORS | _NEVER_DEFINED:
                yield token, word


def constants(path: Path, names: Collection[str]) -> dict[str, str]:
    """The macros of a header, among these names, that stand for numbers."""
    text = path.read_text("utf-8-sig", errors="replace")
    return {found[1]: found[2].strip() for found in _CONSTANT.finditer(text) if found[1] in names}
