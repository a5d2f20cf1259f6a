"""An operation called as a function: what is to be solved, and who solves it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .problem import Problem


@dataclass(frozen=True)
class Call:
    """A problem whose inputs are arrays of the caller, on a device.

    `finish` makes of the outputs, by name, what the caller gets: by default the only one, or a named tuple of them in
    the order in which they are declared.
    """

    problem: Problem
    inputs: Mapping[str, Any]
    finish: Callable[[dict[str, Any]], Any] | None = None


Solver = Callable[[str, Call], dict[str, Any]]
"""Solves a call of the operation of that name: returns its outputs by name, in the order of their declaration."""

_solvers: list[Solver] = []


def solve_with(solver: Solver) -> None:
    """Name who solves all calls from now on: `workbench.ops`, which knows devices and tables."""
    _solvers[:] = [solver]


def solve(operation: str, call: Call) -> Any:
    """Solve a call. Raises RuntimeError where nobody can."""
    if not _solvers:
        raise RuntimeError(f"import workbench.ops to call {operation}: it chooses the stage and launches it")
    outputs = _solvers[0](operation, call)
    if call.finish:
        return call.finish(outputs)
    return next(iter(outputs.values())) if len(outputs) == 1 else _named(operation, tuple(outputs))(**outputs)


@cache
def _named(operation: str, outputs: tuple[str, ...]) -> Any:
    return namedtuple(f"{operation}_outputs", outputs)  # its fields are known at run time only
