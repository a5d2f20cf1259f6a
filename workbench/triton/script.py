"""A Python file that launches Triton kernels, executed in the emulator: `workbench emulate --triton FILE.py`."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model.errors import WorkbenchError, WrongUsage
from .emulation import Emulation, emulate


class ScriptFailed(WorkbenchError):
    """The file ended with an exception that no hazard explains; the message has the exception, with its line."""


def run_script(path: Path, target: str | int = "sm_90a", **options: Any) -> Emulation:
    """Executes a file as ``__main__`` with its launches emulated; ``options`` are those of ``emulate``.

    Hazards are collected. What the file raises after one, such as a comparison with what the kernel was to compute, is
    left out. Raises ``ScriptFailed``, ``WrongUsage`` where no kernel was launched, and ``OSError``."""
    path.read_bytes()  # what is wrong with the file is said before anything else
    run = emulate(target, raise_on_hazard=False, **options)
    with run, _as_main(path):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as error:
            if error.code not in (None, 0) and run.ok:
                raise ScriptFailed(f"{path} ended with exit code {error.code}") from None
        except WorkbenchError:
            raise
        except Exception as error:
            if not run.launches or all(launched.ok for launched in run.launches):
                raise ScriptFailed(_described(path, error)) from error
    if not run.launches:
        raise WrongUsage(
            f"{path} launched no Triton kernel: it has to call its kernels when it is executed; pytest runs tests, "
            "inside of workbench.triton.emulate()"
        )
    return run


@contextlib.contextmanager
def _as_main(path: Path) -> Iterator[None]:
    """With the arguments and the search path that `python FILE.py` would have."""
    argv, folders = sys.argv, list(sys.path)
    sys.argv, sys.path[:] = [str(path)], [str(path.parent.resolve()), *folders]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, folders


def _described(path: Path, error: BaseException) -> str:
    """``file.py:12: ValueError: what it says``, at the last line of the file that was reached."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    reached = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == path.resolve()]
    line = f"{path}:{reached[-1].lineno}" if reached else str(path)
    return f"{line}: {type(error).__name__}: {error}"
