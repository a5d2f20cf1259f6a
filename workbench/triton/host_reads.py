"""What the host reads of arrays in which nothing has been stored: ``emulate(empty="unwritten")``."""

from __future__ import annotations

import functools
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from ..emulator import Finding, FindingKind, SourceLocation
from .host import as_numpy, bounds_of, bytes_at, is_dense
from .unwritten import Unwritten

_FLOATS, _OTHERS = 0xFF, 0xA5  # what new memory holds: floats are NaN
_MAKING = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})
_COPYING = frozenset({"clone", "_to_copy", "copy_"})
_NOT_READING = frozenset(
    re.findall(
        r"\S+",
        """
        zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full _unsafe_view
        """,
    )
)
_STORING = frozenset(
    re.findall(
        r"\S+",
        """
        fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ index_put_ _index_put_impl_ scatter_ masked_fill_
        index_copy_ index_fill_ masked_scatter_ set_ resize_
        """,
    )
)
"""Operations in place that do not read what they change."""
_OF_TENSORS = ("numpy", "tolist", "__array__")


class Follower:
    """Follows what has been stored through the operations of PyTorch and NumPy. ``report`` gets what is read."""

    def __init__(self, unwritten: Unwritten, report: Callable[[Finding], None]) -> None:
        self._unwritten, self._report = unwritten, report

    def made(self, value: Any) -> Any:
        """New memory, which holds what is seldom stored, so that stores of the host are found."""
        array = as_numpy(value)
        low, high = bounds_of(array)
        if high > low and array.flags.writeable:
            bytes_at(low, high - low)[:] = _FLOATS if array.dtype.kind in "fcV" else _OTHERS
            self._unwritten.declare(value)
        return value

    def read(self, value: Any, what: str, key: Any = ...) -> None:
        """The host reads elements of an array, all of them or those at an index."""
        array = as_numpy(value) if self._unwritten.some else None
        stored = self._unwritten.elements(array) if array is not None else None
        if array is None or stored is None or np.all(stored[key]):
            return
        read = np.zeros(array.shape, np.bool_)
        read[key] = True
        missing = np.argwhere(read & ~stored)
        first = "".join(f"[{int(i)}]" for i in missing[0]) or "[]"
        self._unwritten.stored_by_host(array)  # said once
        told = f"{what} reads {len(missing)} of {array.size} elements in which nothing was stored, first {first}"
        self._report(_finding(told))

    def methods(self) -> list[tuple[Any, str, Any]]:
        """Methods of tensors that go past PyTorch's dispatch."""
        torch = sys.modules["torch"]

        def reading(function: Any) -> Callable[..., Any]:
            @functools.wraps(function)
            def call(tensor: Any, *args: Any, **options: Any) -> Any:
                if is_dense(tensor):
                    self.read(tensor, function.__name__)
                return function(tensor, *args, **options)

            return call

        return [(torch.Tensor, name, reading(getattr(torch.Tensor, name))) for name in _OF_TENSORS]

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation of PyTorch."""
        name = func._schema.name.partition("::")[2]
        if name in _MAKING:
            result = func(*args, **kwargs)
            return self.made(result) if is_dense(result) else result
        given = [*zip(func._schema.arguments, args, strict=False)]
        given += [(a, kwargs[a.name]) for a in func._schema.arguments if a.name in kwargs]
        written = [t for a, value in given if a.alias_info and a.alias_info.is_write for t in _dense(value)]
        if name not in _COPYING and name not in _NOT_READING and not _is_view(func):
            for argument, value in given:
                writes = argument.alias_info is not None and argument.alias_info.is_write
                stores = writes and (name in _STORING or not name.endswith("_"))  # as its result alone
                for tensor in () if stores else _dense(value):
                    self.read(tensor, f"torch.{name}")
        result = func(*args, **kwargs)
        if name in _COPYING:
            source, copy = (args[1], args[0]) if name == "copy_" else (args[0], result)
            self._copied(source, copy)
        else:
            for tensor in written:
                self._unwritten.stored_by_host(as_numpy(tensor))
        return result

    def _copied(self, source: Any, copy: Any) -> None:
        """A copy holds nothing where its source does."""
        if not (is_dense(source) and is_dense(copy)):
            return
        stored = self._unwritten.elements(as_numpy(source))
        array = as_numpy(copy)
        self._unwritten.stored_by_host(array)
        if stored is not None:
            self._unwritten.declare(copy)
            self._unwritten.stored_by_host(array, np.broadcast_to(stored, array.shape))


def _dense(value: Any) -> list[Any]:
    values = value if isinstance(value, list | tuple) else [value]
    return [tensor for tensor in values if is_dense(tensor)]


def _is_view(func: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


# -------------------------------------------------------------------------------------------------------------- NumPy's


@contextmanager
def numpys_empty(follower: Follower) -> Iterator[None]:
    """``np.empty`` and ``np.empty_like`` whose arrays hold nothing yet, and tell what the host reads of them."""

    class Fresh(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
            for value in inputs:
                if isinstance(value, Fresh):
                    follower.read(value.view(np.ndarray), f"np.{ufunc.__name__}")
            if out:
                options["out"] = tuple(_plain(value) for value in out)
            return getattr(ufunc, method)(*map(_plain, inputs), **options)

        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            if func.__name__ not in _SILENT:
                for value in args[1:] if func is np.copyto else args:
                    for part in value if isinstance(value, list | tuple) else (value,):
                        if isinstance(part, Fresh):
                            follower.read(part.view(np.ndarray), f"np.{func.__name__}")
            return func(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})

        def __getitem__(self, key: Any) -> Any:
            found = self.view(np.ndarray)[key]
            if isinstance(found, np.ndarray) and np.may_share_memory(found, self):
                return found.view(Fresh)
            follower.read(self.view(np.ndarray), "an index", _plain(key))
            return found

    def reading(name: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **options: Any) -> Any:
            follower.read(self.view(np.ndarray), f"ndarray.{name}")
            return getattr(self.view(np.ndarray), name)(*args, **options)

        return call

    for name in ("tolist", "tobytes", "item", "astype", "copy", "__array__", "__repr__", "__str__"):
        setattr(Fresh, name, reading(name))
    held: tuple[Any, Any] = (np.empty, np.empty_like)

    def making(function: Any) -> Callable[..., Any]:
        def make(*args: Any, **options: Any) -> Any:
            array = function(*map(_plain, args), **options)
            return array if _is_inside(sys._getframe(1)) else follower.made(array.view(Fresh))

        return make

    def _plain(value: Any) -> Any:
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return type(value)(_plain(part) for part in value)
        return value.view(np.ndarray) if isinstance(value, Fresh) else value

    for name, function in zip(("empty", "empty_like"), held, strict=True):
        setattr(np, name, making(function))
    try:
        yield
    finally:
        for name, function in zip(("empty", "empty_like"), held, strict=True):
            setattr(np, name, function)


_SILENT = frozenset(
    ("shape", "ndim", "size", "zeros_like", "ones_like", "full_like", "may_share_memory", "shares_memory")
)

# ------------------------------------------------------------------------------------------------------------- findings
_INSIDE = ("torch", "numpy", "workbench", "triton")


def _finding(message: str) -> Finding:
    location, text = _caller()
    return Finding(
        FindingKind.UNINITIALISED,
        "uninitialised",
        message,
        "store all of it in a kernel, or read only what was stored",
        location,
        text,
        *((), "", None, "", None, None, None, None, None, "none", None, None, 0),
    )


def _is_inside(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _INSIDE


def _caller() -> tuple[SourceLocation | None, str]:
    """The line of Python that is executed, outside of libraries of arrays."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_inside(frame):
        frame = frame.f_back
    if frame is None:
        return None, ""
    file = frame.f_code.co_filename
    return SourceLocation(file, frame.f_lineno, 0), linecache.getline(file, frame.f_lineno)
