"""The base class of every error that is foreseen: the command line shows its message and no traceback."""

from __future__ import annotations

import re
from typing import Any, ClassVar


class WorkbenchError(Exception):
    """Something that can go wrong on any machine; the message says what, and what would help."""

    exit_code: ClassVar[int] = 1
    """Of a command that ends with this error."""

    code: str = "workbench_error"
    """What programs know it by: the name of its class, `UnknownSpec` is `unknown_spec`, unless that has its own."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


class WrongUsage(WorkbenchError):
    """What was asked for makes no sense; the message says what would."""

    exit_code = 2
