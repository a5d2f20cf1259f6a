"""The base class of every expected error, the names that may end up in paths, notices, and what is wrong with the code
that users declare.

The command line shows the message of an expected error and no traceback. Names come from declarations, from records and
from databases, and the last two may be a stranger's."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import linecache
import os
import re
import sys
import threading
import tokenize
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

if TYPE_CHECKING:
    import numpy as np

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

_CONTROLS = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}


def shown(text: str) -> str:
    """Text of others as it is printed: control characters, which would command a terminal, are written out."""
    return text.translate(_CONTROLS)


class WorkbenchError(Exception):
    """An expected error without a code of its own; the message says what is wrong, and what would help."""

    exit_code: ClassVar[int] = 1
    """The exit code of a command that ends with this error."""

    code: str = "workbench_error"
    """The stable name of the error for programs. By default it is the name of the class: `UnknownSpec` is
    `unknown_spec`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


class WrongUsage(WorkbenchError):
    """The request is not valid; the message says what would be valid."""

    exit_code = 2


def hint(name: str, known: Collection[str], kind: str, before: str = "") -> str:
    """What a message says of an unknown name: the nearest of the known ones, or all of them where none is near.

    `before` is put before a name that is near."""
    if not known:
        return f"there are no {kind}"
    near = [before + n for n in difflib.get_close_matches(name, known, 3)]
    return f"did you mean {' or '.join(near)}?" if near else f"the {kind} are {', '.join(known)}"


NAME = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9_][A-Za-z0-9_.-]*(?: [A-Za-z0-9_.-]+)*")
"""Of an operation and of a stage. Neither a dot nor a dash comes first: `..` is no name, and no name is an option.
Experiments have variants of several words."""

TITLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:()+ -]{0,99}")
"""Of another implementation and of a track, which are shown and are never in a path."""


class BadName(WorkbenchError, ValueError):
    """A name contains characters that a path may not have; the message says which name, and what is allowed."""


def check_name(name: object, what: str) -> str:
    """The name, where it is one. Raises BadName."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    raise BadName(f"{what} is called {name!r:.80}; a name has letters, digits, _ . -, and begins with no . or -")


def check_title(name: object, what: str) -> str:
    """The name of what is in no path. Raises BadName."""
    if isinstance(name, str) and TITLE.fullmatch(name):
        return name
    raise BadName(f"{what} is called {name!r:.80}; such a name has letters, digits, spaces and _ . , : ( ) + -")


def inside(folder: Path, name: str | Path) -> Path:
    """The path of `name` in `folder`, links followed. Raises BadName where that is not in the folder."""
    try:
        path = (folder / name).resolve()
        within = path != folder.resolve() and path.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a NUL, or a circle of links
        within = False
    if not within:
        raise BadName(f"{str(name)!r:.200} does not stay in the folder {folder}: nothing was read or written there")
    return path


def file_in(folder: Path, name: str) -> Path:
    """The path of the file `name` right in `folder`, as that is called. Raises BadName as `inside` does."""
    return folder / inside(folder, name).name


class Notice(UserWarning):
    """The message says what is not there, why, and what to do."""


def warn(message: str) -> None:
    """Issue a notice."""
    warnings.warn(message, Notice, stacklevel=3)


@contextmanager
def after(seconds: float, message: str) -> Iterator[None]:
    """Says on the standard error what takes so long, where what is done here takes longer than that."""
    timer = threading.Timer(seconds, print, (f"workbench: {message} ...",), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def plain() -> None:
    """From now on this process shows a notice as its message alone, and the same one once."""
    usual, said = warnings.showwarning, set[str]()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, Notice):
            usual(message, category, filename, lineno, file, line)
        elif str(message) not in said:
            said.add(str(message))
            print(f"warning: {message}", file=file or sys.stderr)

    warnings.showwarning = show


def limit(variable: str, default: float) -> float:
    """The positive number in an environment variable. Raises WrongUsage."""
    text = os.environ.get(variable, str(default))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise WrongUsage(f"{variable} is {text!r}; it has to be a positive number, for example {default:g}")
    return value


# --------------------------------------------------------------------------------------------- what users declare


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
