"""The engine's list of operations, and whether operands have the form that a signature asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from . import _engine, ptx

__all__ = ["Letter", "letters_of", "match", "operations", "special_registers"]


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
