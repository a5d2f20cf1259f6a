"""Forks the processes in which stages run from one that has imported what each of them imports first.

The server has modules of the workbench and of its packages, and nothing of the judge: it is started afresh, is given
no seed and no input, and imports no stage and no project. A process that it forks has no file but its socket, and the
environment and the folder of whoever asks. It ends with the server, and the server with the thread that started it. For
Linux alone (pidfds, 5.3 and later): elsewhere every process is started afresh.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import channel, hosted

SECRETS = ("WORKBENCH_SEED",)
"""Of the environment, what is not handed on."""

CODE_BYTES = 4


def environment() -> dict[str, str]:
    """That of this process, without what a stage must not know."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def started(module: str, connection: socket.socket, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """A fresh process without a file but the socket, which calls `main(descriptor, parent)` of a module beside this."""
    number, root = connection.fileno(), str(Path(__file__).parents[2])
    program = (
        f"import sys; sys.path.append({root!r}); from workbench.catalogue import {module}; "
        f"{module}.main({number}, {os.getpid()})"
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(number,),
        env=variables,
    )


# ------------------------------------------------------------------------------------------------- where it is asked


class Forked:
    """A process that the server forked, as `subprocess.Popen` shows one that was started here."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server  # sends the exit code, and ends the process when this end is closed
        self._code: int | None = None
        self.orphaned = False  # the server ended first, and the process with it

    def kill(self) -> None:
        """End it, whatever it is doing."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a process of stages", timeout or 0.0)
            with self._server:
                code = self._server.recv(CODE_BYTES)
            self.orphaned = not code
            self._code = int.from_bytes(code, "big", signed=True) if code else -signal.SIGKILL
        return self._code


class ForkServer:
    """The server of this process. It is started with the first question, and again where it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self, connection: socket.socket) -> Forked:
        """A process of stages that answers at the other end of the connection. Raises OSError and channel.Closed."""
        try:
            return self._forked(connection)
        except (OSError, channel.Closed):  # it ended just now
            self.close()
            return self._forked(connection)

    def _forked(self, connection: socket.socket) -> Forked:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._control, theirs = socket.socketpair()
            with theirs:  # threads of BLAS would not survive a fork
                self._process = started("forkserver", theirs, environment() | {"OPENBLAS_NUM_THREADS": "1"})
        assert self._control is not None
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"\0"], [connection.fileno(), theirs.fileno()])
        channel.send(self._control, {"environment": environment(), "folder": os.getcwd()})  # noqa: PTH109
        return Forked(ours)

    def close(self) -> None:
        """End the server, and all processes that it forked."""
        process, self._process = self._process, None
        if self._control is not None:
            self._control.close()
            self._control = None
        if process is not None:
            process.kill()
            process.wait()


def usable() -> bool:
    """Whether there can be a server here."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------- the server


def main(descriptor: int, parent: int) -> None:
    """Fork a process for every question until the other end is closed."""
    import hypothesis.strategies  # noqa: F401  # which every operation imports

    hosted.end_with(parent)
    hosted.hide()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all objects
    _serve(socket.socket(fileno=descriptor))


def _serve(control: socket.socket) -> None:
    events = select.poll()
    events.register(control, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}  # a process by its pidfd, with the socket of who asked for it
    askers: dict[int, int] = {}  # the pidfd by that socket, as long as nothing has come from there
    while True:
        number = events.poll()[0][0]  # one at a time: others may be of descriptors that it closes
        if number == control.fileno():
            try:
                _, (connection, asker), _, _ = socket.recv_fds(control, 1, 2)
                question = channel.receive(control)
            except (ValueError, OSError, channel.Closed):
                return
            pid = os.fork()
            if pid == 0:
                others = {control.detach(), asker, *running, *(number for _, number in running.values())}
                _begin(connection, question, others)
            os.close(connection)
            handle = os.pidfd_open(pid)
            running[handle], askers[asker] = (pid, asker), handle
            events.register(handle, select.POLLIN)
            events.register(asker, select.POLLIN)
        elif number in askers:
            events.unregister(number)
            signal.pidfd_send_signal(askers.pop(number), signal.SIGKILL)
        else:
            pid, asker = running.pop(number)
            if askers.pop(asker, None) is not None:
                events.unregister(asker)
            events.unregister(number)
            os.close(number)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with socket.socket(fileno=asker) as answer, contextlib.suppress(OSError):
                answer.send(code.to_bytes(CODE_BYTES, "big", signed=True))


def _begin(connection: int, question: dict[str, Any], others: set[int]) -> None:
    """In the fork: make it what a process that is started afresh would be, and have it answer; it does not return."""
    code = 1
    try:
        for number in others:
            os.close(number)
        os.environ.clear()
        os.environ.update(question["environment"])
        with contextlib.suppress(OSError):  # it has been removed
            os.chdir(question["folder"])
        hosted.main(connection, os.getppid())
        code = 0
    finally:
        os._exit(code)
