"""The base class of every expected error: the command line shows its message and no traceback."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Any, ClassVar


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

    `before` is put before a name that is near.
    """
    if not known:
        return f"there are no {kind}"
    near = [before + n for n in difflib.get_close_matches(name, known, 3)]
    return f"did you mean {' or '.join(near)}?" if near else f"the {kind} are {', '.join(known)}"
