"""Names that end up in paths: what they may be made of, and a path that cannot leave its folder.

Names come from declarations, from records and from databases, and the last two may be a stranger's.
"""

from __future__ import annotations

import re
from pathlib import Path

from .errors import WorkbenchError

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
