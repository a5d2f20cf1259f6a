"""What did not work besides and costs no verdict, said to a person: a warning without a file and a line of code."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


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
