"""Names of kernels as the source has them, read from those of PTX by the demangler of the C++ library."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

_LIBRARY = "libc++.1.dylib" if sys.platform == "darwin" else "libstdc++.so.6"

_TYPE = r"(?:(?:un)?signed )?(?:long )*[\w:]+(?:<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)?"
_SPELLINGS = (  # of the library, and as sources usually have it
    (r"\(anonymous namespace\)::|_INTERNAL_\w+::|\[abi:\w+\]", ""),
    (r"> (?=>)", ">"),
    (rf"(?<![\w:>])((?!const\b|volatile\b){_TYPE}) (const|volatile)\b", r"\2 \1"),
    (r"(?<!\w)(\d+)(?:ull|ul|ll|u|l)\b", r"\1"),
    (r"\((?:(?:un)?signed )?(?:char|short|long long|__int128)\)(?=-?\d)", ""),
    (r"&?\(?\b([\w:]+)\([^()]*\)\)(?=[,>])", r"\1"),
    (r"decltype ?\(nullptr\)", "nullptr_t"),
)


@dataclass(frozen=True, slots=True)
class KernelName:
    """The name with its namespaces, the template arguments with their brackets, the parameters with theirs."""

    name: str
    arguments: str = ""
    parameters: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.arguments}{self.parameters}"


@lru_cache(4096)
def kernel_name_of(mangled: str) -> KernelName:
    """What a name of PTX says; the name as it is where it is not mangled, or cannot be read."""
    if not mangled.startswith("_Z"):
        return KernelName(mangled)
    text = _demangled(re.split(r"[.$]", mangled)[0])
    if text is None:  # the name alone can be told
        known = re.match(r"_Z(\d+)", mangled)
        return KernelName(mangled[known.end() :][: int(known[1])] if known else mangled)
    for pattern, usual in _SPELLINGS:
        while (again := re.sub(pattern, usual, text)) != text:  # what is in brackets, too
            text = again
    head, parameters = _cut(text, "(", ")")
    head, arguments = _cut(head, "<", ">")
    return KernelName(_last_word(head), arguments, parameters)


def _demangled(mangled: str) -> str | None:
    """The declaration by the rules of the Itanium C++ ABI, in which a template's has what it returns."""
    try:
        demangle, free = _functions()
    except OSError:  # there is no such library
        return None
    status = ctypes.c_int()
    found = demangle(mangled.encode(), None, None, ctypes.byref(status))
    try:
        return ctypes.string_at(found).decode() if found else None
    finally:
        free(found)


@cache
def _functions() -> tuple[Any, Any]:
    """`abi::__cxa_demangle`, and what frees its result."""
    demangle, free = ctypes.CDLL(_LIBRARY)["__cxa_demangle"], ctypes.CDLL(None)["free"]
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return demangle, free


def _cut(text: str, opening: str, closing: str) -> tuple[str, str]:
    """What stands before the brackets at the end of a text, and these with what is in them; nothing without any."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == closing) - (text[at] == opening)
        if not depth:
            break
    return (text[:at], text[at:]) if text.endswith(closing) else (text, "")


def _last_word(text: str) -> str:
    """What follows the last blank outside of angle brackets."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ">") - (text[at] == "<")
        if text[at] == " " and not depth:
            return text[at + 1 :]
    return text


def matches(kernel: KernelName, wanted: str) -> bool:
    """Whether the source's name for a kernel, with or without namespaces, arguments and parameters, means this one."""
    asked = _compact(wanted)
    bare = re.sub(r"[<(].*", "", asked, flags=re.DOTALL)
    full = _compact(kernel.name)
    if full != bare and not full.endswith(f"::{bare}"):
        return False
    rest = asked[len(bare) :]
    arguments, parameters = _compact(kernel.arguments), _compact(kernel.parameters)
    return rest in ("", arguments, parameters, arguments + parameters)


def _compact(text: str) -> str:
    """Without blanks, but for those between words."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", text.strip())
