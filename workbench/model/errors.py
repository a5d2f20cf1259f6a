"""The base class of every expected error, the names that may end up in paths, and notices.

The command line shows the message of an expected error and no traceback. Names come from declarations, from records and
from databases, and the last two may be a stranger's."""

from __future__ import annotations

import difflib
import os
import re
import sys
import threading
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TextIO

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
