"""The command `workbench`, also as `python -m workbench`, in a process of its own.

A module of a project, a task or a script that the command executes may exit, crash, or kill its process. The process
that was started waits for the one that works, and hands signals on to it, so that the command never ends without a
word."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any

USES_GPU = frozenset(("agree", "bench", "replay", "run", "tune", "verify"))
"""Commands for which processes are begun that may use a GPU."""


def main() -> None:
    # of a stream that was closed before the start, Python makes None: what is printed there is for nobody
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    sys.exit(supervised(_main))


def _main() -> int:
    """The exit code of the command."""
    try:
        _command()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    finally:
        processes: Any = sys.modules.get("multiprocessing")
        for process in processes.active_children() if processes else ():
            process.kill()  # all at once: the driver takes a while to free what one has
    return 0


def _command() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:  # which packages ask for as they are imported
        sys.exit("Error: the working directory does not exist any more; change to another one")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of ASCII has no lines for tables
    # imported here: every worker process imports anew what the script of the command imports
    try:
        if not {"emulator", "--help"}.intersection(sys.argv) and USES_GPU.intersection(sys.argv):
            from .sandbox import processes

            if processes.has_gpu():
                processes.begin()
        from .cli.main import main as command_line
        from .model import errors
    except KeyboardInterrupt:  # imports take half a second
        sys.stderr.write("Error: interrupted\n")
        sys.exit(130)
    except ImportError as error:
        if error.name != "workbench.emulator._engine":
            raise
        sys.exit(f"error: {error}")
    errors.plain()
    command_line()


HANDED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
_OF_TERMINAL = 0x80
"""Where such a signal comes from the terminal, the whole group has it."""


def supervised(command: Callable[[], int]) -> int:
    """The exit code of a command, or 1 where its process ends before the command does, which is then said.

    Where there are no such processes (only Linux has them), the command is executed here."""
    if sys.platform != "linux":
        return command()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*HANDED_ON, signal.SIGCHLD})
    parent, (reader, writer) = os.getpid(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _end_with(parent)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt := _Interrupt())
            sys.unraisablehook = interrupt.swallowed
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = command()
        os.write(writer, bytes([code & 255]))
        return code
    os.close(writer)
    sent, status = _waited(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    said = os.read(reader, 1) if select.select([reader], [], [], 0)[0] else b""
    if said:
        return said[0]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in sent:  # by whoever wanted it
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(parent, os.WTERMSIG(status))
    code = os.waitstatus_to_exitcode(status)
    return _said(f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}")


class _Interrupt:
    """Raises KeyboardInterrupt once where Ctrl-C comes twice: from the terminal or a group, and handed on.

    Python swallows what is raised while it frees something (`sys.unraisablehook`): then it is raised a little later."""

    AGAIN, LATER = 0.5, 0.02

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self._last >= self.AGAIN:
            self._last = time.monotonic()
            raise KeyboardInterrupt

    def swallowed(self, about: Any) -> None:
        import threading

        if about.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(about)
            return
        self._last = float("-inf")
        threading.Timer(self.LATER, os.kill, (os.getpid(), signal.SIGINT)).start()


def _end_with(parent: int) -> None:
    """Be killed together with the process that waits for this one."""
    import ctypes

    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _waited(child: int) -> tuple[set[int], int]:
    """The signals that came until the child ended, and its status."""
    sent: set[int] = set()
    while True:
        about = signal.sigwaitinfo({*HANDED_ON, signal.SIGCHLD})
        if about.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return sent, status
            continue
        sent.add(about.si_signo)
        if about.si_code != _OF_TERMINAL:
            os.kill(child, about.si_signo)


def _said(how: str) -> int:
    """Say that the command has ended before its end; the exit code."""
    from .cli import documents
    from .cli.main import EndedEarly, ended

    words = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    command, about = words[0] if words else "workbench", words[1] if len(words) > 1 else ""
    message = (
        f"the process {how} before the command was done: it is without a verdict. Code that it executed may have ended "
        "it (a module of the project, a task or a script), or memory ran out"
    )
    if "--json" in sys.argv[1:]:
        documents.unfinished(command, EndedEarly(message), about)
    return ended(EndedEarly(message), message).exit_code


if __name__ == "__main__":
    main()
