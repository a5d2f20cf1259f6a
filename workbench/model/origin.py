"""Where operations and CUDA sources come from, and what is wrong with what users declare."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import sys
import tokenize
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from .errors import WorkbenchError

if TYPE_CHECKING:
    import numpy as np

_HERE = Path(__file__).parents[1]

SOURCES = next(p for p in (_HERE / "cuda_src", _HERE.parent / "cuda_src") if p.is_dir() or p.parent != _HERE)
"""The workbench's own CUDA sources: inside the installed package, or beside it in a checkout."""

SUFFIXES = (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")
"""Of files with CUDA C++."""

DEVICES = ("auto", "cuda", "emulator")
"""What a device is asked for by; `auto` is the GPU where there is one, otherwise the emulator."""

BUILT_IN = "workbench"
"""Where the workbench's own operations come from."""


def clone() -> Path | None:
    """The clone of the repository that the workbench runs from; None where it is an installed wheel."""
    return None if SOURCES.is_relative_to(_HERE) else SOURCES.parent.resolve()


def text_of(function: Any) -> str:
    """The text of a function as it is declared, its decorator included; that of its first line where Python cannot tell
    where it ends, and nothing of what is declared in a string or is no function."""
    with contextlib.suppress(OSError, TypeError):
        try:
            return inspect.getsource(function)
        except (tokenize.TokenError, SyntaxError):  # a lambda behind a text of several lines
            code = inspect.unwrap(function).__code__
            return linecache.getline(code.co_filename, code.co_firstlineno)
    return ""


def file_of(module: object) -> str | None:
    """The file of a module that is loaded. One that is to be loaded when it is used, as CuPy's are, is not for this."""
    try:
        file = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None
    return file if isinstance(file, str) else None


OURS = ("workbench.kernels.", "workbench.experiments.")
"""Modules with declarations of our own."""

LIBRARIES = {"workbench", "hypothesis", "numpy"} | sys.stdlib_module_names
"""All other code that runs on behalf of a declaration."""


class BadOperation(WorkbenchError, ValueError):
    """The Python code of an operation raises an exception or returns something unusable; the message says where, or
    what it has to return."""


class BadStage(BadOperation):
    """The Python code of a stage raises an exception, returns something unusable, or (`ended`) ended its process."""

    def __init__(self, message: str, ended: bool = False) -> None:
        super().__init__(message)
        self.ended = ended


def declares(file: str) -> bool:
    """Whether code in this file is that of a declaration, and neither of imports nor of the workbench around it."""
    package, path = Path(__file__).parents[1], Path(file)
    return "importlib" not in file and (not path.is_relative_to(package) or path.is_relative_to(package / "kernels"))


@contextlib.contextmanager
def declared(what: str) -> Iterator[None]:
    """Whatever `what`, which is code of an operation, raises becomes BadOperation, with the lines that raised it."""
    try:
        yield
    except (BadOperation, MemoryError):
        raise
    except BaseException as error:
        if is_control(error):
            raise
        raise BadOperation(f"{what} cannot be used:\n{_shown(error, _tail(error.__traceback__))}") from None


def is_control(error: BaseException) -> bool:
    """Whether it steers this program and is no failure of code that it has called: the user's Ctrl-C, and what ends a
    search of Hypothesis."""
    ours = type(error).__module__.partition(".")[0] in ("workbench", "hypothesis")
    return isinstance(error, KeyboardInterrupt) or (ours and not isinstance(error, Exception))


def trouble(error: BaseException, modules: Collection[str]) -> str:
    """What is wrong with the code of an operation, which is in these modules, where that has raised the error; nothing
    where it was other code."""
    part = error.__traceback__
    while part and part.tb_frame.f_globals.get("__name__") not in modules:
        part = part.tb_next
    return f"the Python code of an operation fails:\n{_shown(error, part)}" if part else ""


def raised_at(error: BaseException) -> str:
    """`FILE:LINE: CODE: ERROR`: the innermost line of a declaration that raised the error, and where a library did so
    on its behalf, that place, too."""
    frames = list(traceback.walk_tb(error.__traceback__))
    lines = traceback.StackSummary.extract(iter(frames))
    own = [i for i, (frame, _) in enumerate(frames) if _declares(frame)]
    own = [i for i in own if "site-packages" not in lines[i].filename] or own
    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    if not lines:
        return said
    at, last = lines[own[-1] if own else -1], lines[-1]
    text = f"{at.filename}:{at.lineno}: {at.line or at.name}: {said}"
    return text if at is last else f"{text}\n(raised at {last.filename}:{last.lineno}, in {last.name})"


def _declares(frame: FrameType) -> bool:
    """Whether this is code of a declaration, and not of a library."""
    name = frame.f_globals.get("__name__", "")
    library = name.partition(".")[0] in LIBRARIES or name.startswith("hypothesis_temporary_module")
    return name.startswith(OURS) or not library


def _tail(part: TracebackType | None) -> TracebackType | None:
    """The traceback from where the code of a declaration begins; None where no line of it is there."""
    while part and not _declares(part.tb_frame):
        part = part.tb_next
    return part


def _shown(error: BaseException, part: TracebackType | None) -> str:
    shown = traceback.TracebackException(type(error), error, part, limit=3)
    shown.__notes__ = None  # Hypothesis's, of many lines
    return "".join(shown.format(chain=False)).strip()


def where(function: Any) -> str:
    """The file and line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def arrays_like(what: str, given: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray[Any, Any]]:
    """What an operation gives, which has an array of each of these names and shapes. Raises BadOperation."""
    import numpy as np  # slow to load, and the help of commands needs none

    if not isinstance(given, dict) or not set(shapes) <= set(given):
        names = f"a dict with {', '.join(map(str, given)) or 'nothing'}" if isinstance(given, dict) else repr(given)
        raise BadOperation(f"{what} gives {names}; it has to give a dict with {', '.join(shapes)}")
    for name, shape in shapes.items():
        array = given[name]
        if not isinstance(array, np.ndarray) or array.shape != shape:
            found = f"of shape {array.shape}" if isinstance(array, np.ndarray) else repr(array)
            raise BadOperation(f"{what} gives {name} {found}; it has to be an array of shape {shape}")
    return given
