"""The seed from which problems and their inputs are drawn: one that nobody can guess, unless one is asked for."""

from __future__ import annotations

import os
import secrets

from ..model.errors import WrongUsage

VARIABLE = "WORKBENCH_SEED"
"""Environment variable for the seed of everything that is given none. No stage is told it."""


class BadSeed(WrongUsage, ValueError):
    """The environment variable `WORKBENCH_SEED` does not hold a seed."""


def asked(seed: int | None) -> int | None:
    """The seed that is asked for, or None. Raises BadSeed."""
    if seed is not None or VARIABLE not in os.environ:
        return seed
    if not (text := os.environ[VARIABLE]).isdecimal():
        raise BadSeed(f"{VARIABLE} is {text!r}; it has to be a whole number from 0 on")
    return int(text)


def chosen(seed: int | None) -> int:
    """The seed that is asked for, else a fresh one of 32 bits. Raises BadSeed."""
    found = asked(seed)
    return secrets.randbits(32) if found is None else found
