"""The engine's list of operations, and whether operands have the form that a signature asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from . import _engine, ptx

__all__ = ["Letter", "letters_of", "listed_name", "match", "operations", "special_registers"]


class Letter(NamedTuple):
    letter: str
    optional: bool
    writes: bool
    reads: bool
    size: int  # bytes a lane


@cache
def letters_of(text: str) -> tuple[Letter, ...]:
    letters: list[Letter] = []
    for letter, count, optional in re.findall(r"([A-Za-z])(\d*)(\??)", text):
        size = 8 if letter in "Dde" else 4
        letters += [Letter(letter, bool(optional), letter in "WDPU", letter in "Uwdpfea", size)] * int(count or 1)
    return tuple(letters)


@cache
def operations() -> dict[str, tuple[int, str]]:
    """The engine's list: number and signature of each name."""
    return {name: (number, signature) for number, (name, signature) in enumerate(_engine.operations())}


_ORDERED = re.compile(r"[busf]\d+(x\d+)?|bf16(x2)?|tf32|e\dm\d(x\d)?|row|col|pred|rs|pack\d+|unpack\d+")
_SPACES = frozenset({"global", "shared", "shared::cluster", "local", "param", "const"})


def _any_order(name: str) -> tuple[str, ...]:
    """What two spellings of one operation share: ptxas minds the order of types and of spaces alone."""
    base, *modifiers = name.split(".")
    ordered = [m for m in modifiers if _ORDERED.fullmatch(m)]
    spaces = [m for m in modifiers if m in _SPACES]
    others = [m for m in modifiers if m not in _SPACES and not _ORDERED.fullmatch(m)]
    return (base, *ordered, "", *spaces, "", *sorted(others))


@cache
def _in_any_order() -> dict[tuple[str, ...], str]:
    """The listed name of each set of modifiers; the first where several names mean the same."""
    return {_any_order(name): name for name in reversed(operations())}


@cache
def listed_name(name: str) -> str | None:
    """The engine's name of an operation whose modifiers may stand in another order, or None where it has none."""
    return name if name in operations() else _in_any_order().get(_any_order(name))


@cache
def special_registers() -> dict[str, int]:
    return {f"%{name}": number for number, name in enumerate(_engine.special_names())}


def _fits(operand: ptx.Operand, letter: str) -> bool:
    """Whether an operand may stand where the signature has the letter, widths apart."""
    if isinstance(operand, ptx.Register):
        return (letter in "Pp") == (operand.type == "pred") and letter not in "al"
    if isinstance(operand, ptx.Negated):
        return letter == "p"
    if isinstance(operand, ptx.Sink):
        return letter in "WDP"
    if isinstance(operand, ptx.Address):
        return letter == "a"
    if isinstance(operand, ptx.Label):
        return letter == "l"
    return letter in "wdfep"


def match(operands: Sequence[ptx.Operand], letters: Sequence[Letter]) -> list[ptx.Operand | None] | None:
    """Operands by letter, None for an optional one left out; None altogether when they cannot be matched."""
    if len(operands) == len(letters):
        for operand, wanted in zip(operands, letters, strict=True):
            if not _fits(operand, wanted.letter):
                break
        else:
            return list(operands)
    if not letters:
        return None if operands else []
    first = letters[0]
    if operands and _fits(operands[0], first.letter):
        rest = match(operands[1:], letters[1:])
        if rest is not None:
            return [operands[0], *rest]
    if first.optional:
        rest = match(operands, letters[1:])
        if rest is not None:
            return [None, *rest]
    return None
