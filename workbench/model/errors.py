"""The base class of every error that is foreseen: the command line shows its message and no traceback."""

from __future__ import annotations

from typing import ClassVar


class WorkbenchError(Exception):
    """Something that can go wrong on any machine; the message says what, and what would help."""

    exit_code: ClassVar[int] = 1
    """Of a command that ends with this error."""


class WrongUsage(WorkbenchError):
    """What was asked for makes no sense; the message says what would."""

    exit_code = 2
