"""Has the Python code of a stage changed what judges or times it? Compared before and after, and put back.

Stages are declared in Python, and their functions run in the process that compares answers. What they can reach there
and have no business with is listed here: the workbench's own functions and classes, and the clocks."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOMS = ("devices", "judge", "judge.forensics", "measure", "toolchain")
"""Packages of the workbench in whose modules functions, classes and constants have to stay what they are."""

MODULES = (
    "checks.hazards",
    "harness",
    "model.arrays",
    "model.errors",
    "model.origin",
    "model.launch",
    "model.operation",
    "model.problem",
    "model.results",
    "model.stage",
    "records.versions",
    "run.budget",
    "run.timer",
    "run.verifier",
    "sandbox.integrity",
    "sandbox.plain",
    "reference",
    "workers.prefetch",
    "workers.cluster",
)
"""Modules of other packages of which the same holds."""

CLOCKS = ("time", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")

NUMPY = ("abs", "allclose", "argwhere", "array_equal", "isfinite", "isnan", "percentile", "median")

Place = tuple[Any, str]


class Tampered(RuntimeError):
    """In another process the Python code of a stage has changed what judges it; the arguments are the names of it."""


def watched() -> list[str]:
    """The names of all modules that are watched, without that of the package."""
    root = Path(__file__).parents[1]
    rooms = (pkgutil.iter_modules([str(root.joinpath(*room.split(".")))], f"{room}.") for room in ROOMS)
    return [*ROOMS, *(module.name for found in rooms for module in found), *MODULES]


@cache
def _modules() -> tuple[types.ModuleType, ...]:
    package = __name__.partition(".")[0]
    found = []
    for name in watched():
        with contextlib.suppress(ImportError, RuntimeError):  # the emulator's engine may not be there
            found.append(importlib.import_module(f"{package}.{name}"))
    return tuple(found)


def _places() -> Iterator[Place]:
    """Everything that is watched, as an object and the name of its attribute."""
    for module in _modules():
        for name, value in list(vars(module).items()):
            if name.startswith("__") or isinstance(value, types.ModuleType):
                continue
            yield module, name
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from ((value, attribute) for attribute in list(vars(value)) if _is_code(vars(value)[attribute]))
    yield from ((importlib.import_module("time"), name) for name in CLOCKS)
    yield from ((importlib.import_module("numpy"), name) for name in NUMPY)
    if "cupy" in sys.modules:
        yield from ((sys.modules["cupy"].cuda, name) for name in ("Event", "get_elapsed_time"))


def _is_code(value: Any) -> bool:
    return isinstance(value, types.FunctionType | property | classmethod | staticmethod)


def _value(place: Place) -> Any:
    return vars(place[0]).get(place[1])


def _function(value: Any) -> Any:
    """The function inside of a property or a class's method."""
    return getattr(value, "__func__", getattr(value, "fget", value))


def _state(value: Any) -> tuple[Any, ...]:
    """What of a value can be changed without putting another one in its place."""
    function = _function(value)
    return (function.__code__, function.__defaults__) if isinstance(function, types.FunctionType) else ()


class Watch:
    """What everything watched is at one moment."""

    def __init__(self) -> None:
        self._before = [(place, value, _state(value)) for place in _places() for value in (_value(place),)]

    def restore(self) -> list[str]:
        """Put back what has changed; the names of it, `workbench.measure.timing.measure`."""
        changed = []
        for (owner, name), value, state in self._before:
            now = vars(owner).get(name)
            if now is not value:
                setattr(owner, name, value)
            elif _state(value) != state:
                function = _function(value)
                function.__code__, function.__defaults__ = state
            else:
                continue
            where = (
                owner.__name__ if isinstance(owner, types.ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
            )
            changed.append(f"{where}.{name}")
        return changed
