"""Values of the fields of problems: which are allowed, their text, and what is read of a text."""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any

import numpy as np

from .errors import WrongUsage


class ProblemError(WrongUsage, ValueError):
    """A problem text or a field of a problem is not valid; the message says what would be valid."""


def text(value: Any) -> str:
    """A value as `parsed` reads it: `64`, `1e-6`, `true`, the value of a StrEnum, else the name of a member."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.value if isinstance(value, str) else value.name.lower()
    if isinstance(value, float):
        return re.sub(r"e([+-])0", r"e\1", repr(value)).replace("e+", "e")
    return str(value)


def values_of(default: Any) -> tuple[str, ...]:
    """The texts of all values that a field with this default can have; nothing where there is no list of them."""
    if isinstance(default, bool):
        return "false", "true"
    return tuple(map(text, type(default))) if isinstance(default, Enum) else ()


def parsed(name: str, default: Any, given: str) -> Any:
    """The value that a text gives to a field with this default. Raises ProblemError."""
    if isinstance(default, bool):
        if given.lower() not in ("true", "false"):
            raise ProblemError(f"{name} is {given!r}; it has to be true or false")
        return given.lower() == "true"
    if isinstance(default, Enum):
        return _member(name, default, given)
    if isinstance(default, int):
        try:
            return int(given)
        except ValueError:
            raise ProblemError(f"{name} is {given!r}; it has to be a whole number") from None
    if isinstance(default, float):
        try:
            return float(given)
        except ValueError:
            raise ProblemError(f"{name} is {given!r}; it has to be a number") from None
    return given


def checked(name: str, default: Any, value: Any, choices: tuple[str, ...] | None, allowed: tuple[float, float]) -> Any:
    """The value as the field keeps it, of the type of its default. Raises ProblemError for one that is not allowed."""
    if choices is not None:
        if value not in choices:
            raise ProblemError(f"{name} is {value!r}; it has to be one of {', '.join(choices)}")
        return value
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise ProblemError(f"{name} is {value!r}; it has to be True or False")
        return value if isinstance(value, bool) else bool(value)
    if isinstance(default, Enum):
        return value if isinstance(value, type(default)) else _member(name, default, value)
    if isinstance(default, int):
        return _in_range(name, _whole(name, value), allowed)
    if isinstance(default, float):
        return _in_range(name, _real(name, value), allowed)
    if isinstance(default, str) and (not isinstance(value, str) or set(value) & set(",= ")):
        raise ProblemError(f"{name} is {value!r}; it has to be a word without spaces, commas and equals signs")
    return value


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool | np.bool_ | Enum) or not isinstance(value, int | np.integer):
        raise ProblemError(f"{name} is {value!r}; it has to be a whole number")
    return value if isinstance(value, int) else int(value)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_ | Enum) or not isinstance(value, int | float | np.integer | np.floating):
        raise ProblemError(f"{name} is {value!r}; it has to be a number")
    if not math.isfinite(value):
        raise ProblemError(f"{name} is {value}; it has to be finite")
    return value if type(value) is float else float(value)


def _in_range(name: str, value: Any, allowed: tuple[float, float]) -> Any:
    least, most = allowed
    if value < least:
        raise ProblemError(f"{name} is {text(value)}; it has to be at least {text(least)}")
    if value > most:
        raise ProblemError(f"{name} is {text(value)}; it has to be at most {text(most)}")
    return value


def _member(name: str, default: Enum, given: Any) -> Enum:
    kind = type(default)
    for member in kind:
        if text(member) == given or (isinstance(given, str) and given.lower() == member.name.lower()):
            return member
    raise ProblemError(f"{name} is {given!r}; it has to be one of {', '.join(map(text, kind))}")
