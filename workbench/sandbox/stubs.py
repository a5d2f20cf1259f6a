"""Modules of stages, which only the process of the stages imports: whoever else imports one gets a stub."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

STAGES = "stages"
"""A module of this name, or inside of a package of this name, has stages and nothing else."""


OURS = __name__.partition(".")[0]
"""The package of the workbench's own stages, which are imported everywhere."""


class Stub(ModuleType):
    """Stands for a module of stages; it has nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(
            f"{self.__name__}.{name} is not there: modules of stages are imported in a process of their own, and by no "
            "other module; move what an operation and stages share into the module of the operation",
            name=self.__name__,
        )


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ not in met:
            met.append(module.__name__)


met: list[str] = []
"""The modules of which stubs have been imported, in this order: it is that of the ladder."""


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.packages: set[str] = set()
        self.real: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top, *inner = fullname.split(".")
        if top not in self.packages or STAGES not in (inner or [top]) or fullname in self.real:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None:
            return None
        stub = importlib.machinery.ModuleSpec(fullname, _Loader(), origin=found.origin)
        stub.submodule_search_locations = found.submodule_search_locations
        stub.has_location = True  # so that it is known which file to watch
        return stub


_finder = _Finder()


def install(modules: Sequence[str]) -> None:
    """From now on the modules of stages in the top packages of these are stubs."""
    _finder.packages |= {name.partition(".")[0] for name in modules} - {OURS}
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def import_for_real(name: str) -> None:
    """Import a module of stages itself."""
    _finder.real.add(name)
    if isinstance(sys.modules.get(name), Stub):
        del sys.modules[name]
    importlib.import_module(name)


def is_stages(name: str) -> bool:
    """Whether a module of the project is one of stages, as far as its name says."""
    top, *inner = name.split(".")
    return STAGES in (inner or [top])
