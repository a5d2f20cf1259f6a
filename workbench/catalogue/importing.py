"""The import of a module that comes to an end."""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType, ModuleType

from ..toolchain.compiling import limit

SECONDS, DEFAULT_SECONDS = "WORKBENCH_IMPORT_SECONDS", 120.0
"""Environment variable for the longest that a module of kernels may take to be imported, and what holds without it."""


class ImportTooLong(BaseException):
    """The import did not end. No Exception: the module is not to catch it."""


def longest() -> float:
    """The seconds that an import may take. Raises WrongUsage for what is no positive number."""
    return limit(SECONDS, DEFAULT_SECONDS)


def imported(name: str) -> ModuleType:
    """The module of this name. Raises what its import raises, ImportTooLong, and WrongUsage for a wrong limit.

    Only the main thread can be interrupted, which imports the modules of every command; and not what is written in C.
    """
    seconds = longest()
    if threading.current_thread() is not threading.main_thread():
        return importlib.import_module(name)

    def stop(_: int, __: FrameType | None) -> None:
        raise ImportTooLong(f"its import has not ended after {seconds:g} s ({SECONDS} is another limit)")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return importlib.import_module(name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
