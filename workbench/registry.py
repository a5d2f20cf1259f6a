"""Finds operations and stages, and what a SPEC on the command line means."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from typing import Any

from . import kernels
from .operation import Operation, Stage


class UnknownSpec(ValueError):
    """A SPEC that names no stage; the message lists the nearest right ones."""


@cache
def operations() -> dict[str, Operation[Any]]:
    """All operations by name: every `Operation` at module level in `workbench.kernels`."""
    modules = [importlib.import_module(f"{kernels.__name__}.{m.name}") for m in pkgutil.iter_modules(kernels.__path__)]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Operation)]
    return {operation.name: operation for operation in found}


def stages() -> list[Stage[Any]]:
    """Every stage of every operation, in ladder order."""
    return [stage for operation in operations().values() for stage in operation.stages]


def select(specs: Iterable[str]) -> list[Stage[Any]]:
    """The stages that the specs name: `gemm` (an operation), `gemm:naive`, or `naive` (in every operation that has it).

    No spec at all means every stage. Raises UnknownSpec.
    """
    wanted = list(specs)
    every = stages()
    if not wanted:
        return every
    chosen: list[Stage[Any]] = []
    for spec in wanted:
        matches = [s for s in every if spec in (s.operation, s.name, s.spec)]
        if not matches:
            names = dict.fromkeys(n for s in every for n in (s.operation, s.name, s.spec))
            near = difflib.get_close_matches(spec, names, 3) or list(operations())
            raise UnknownSpec(f"no stage or operation is called {spec!r}; did you mean {' or '.join(near)}?")
        chosen += [s for s in matches if s not in chosen]
    return chosen
