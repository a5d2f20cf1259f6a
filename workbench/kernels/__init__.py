"""One module an operation. Every `Operation` at module level here is in the registry."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    """The operation of a module, by its name: `MATVEC` of `matvec`. Raises AttributeError."""
    module = f"{__name__}.{name.lower()}"
    if name.isupper() and find_spec(module):
        return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__} has no {name}")
