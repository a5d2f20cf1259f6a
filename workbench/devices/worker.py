"""A process for work that may hang, crash or be killed: whoever asks gets the answer, or the reason why there is none.

The process ends with the one that asked for it: see `sandbox.processes`. It keeps one object, the subject, on which
the functions that it is sent work."""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import multiprocessing.process
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import IO, Any

from ..sandbox.processes import SERVER_ENDED, context, end_with_parent, ignore_interrupts

START_SECONDS = 120.0
"""Longest that a process may take to start: imports, and a CUDA context on a machine with many GPUs."""

END_SECONDS = 10.0
"""Longest wait for a killed process: the driver first has to stop what it was running."""

SHARED_BYTES = 1 << 20
"""Arrays of a message from which on they are handed over in shared memory."""

LAST_WORDS = 2000
"""Characters of what a process wrote to stderr before it ended that are kept as evidence."""


class Late(Exception):
    """The answer did not come in time; the process has been killed."""


class Ended(Exception):
    """The process ended instead of answering.

    `signal` is what ended it, or None where it exited; `killed` that somebody else sent it a SIGKILL."""

    def __init__(self, exit_code: int | None, last_words: str) -> None:
        exit_code = -signal.SIGKILL if exit_code == SERVER_ENDED else exit_code
        self.signal = signal.Signals(-exit_code) if exit_code and exit_code < 0 else None
        self.killed = self.signal is signal.SIGKILL
        how = f"it was ended by {self.signal.name}" if self.signal else f"it exited with code {exit_code}"
        super().__init__(how + (f"; its last words:\n{last_words}" if last_words else ""))


class Broken(Exception):
    """The function raised something that nobody foresaw; the message holds the traceback."""


class Worker:
    """One process at a time, replaced when it is lost. `start` (picklable) makes the subject in the process.

    `expected` are the exceptions that reach whoever asks as they are."""

    def __init__(self, start: Callable[[], Any], expected: tuple[type[Exception], ...] = ()) -> None:
        self._start, self._expected = start, expected
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._words: IO[bytes] | None = None
        self.generation = 0
        """How many processes have been started: what an earlier one was told is lost."""

    @property
    def pid(self) -> int | None:
        """The process as it is now, None where there is none."""
        return self._process.pid if self._process else None

    def ask(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """`function(subject, *arguments)`, called in the process. Raises Late, Ended, Broken, and what is expected."""
        self.ready()
        return self._exchange((function, arguments), seconds)

    def ready(self) -> None:
        """Start a process where there is none, or none alive. Raises what `start` raises, Late, Ended and Broken."""
        if self.alive():
            return
        self.kill()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `kill`
        self._connection, theirs = multiprocessing.Pipe()
        self._process = context().Process(target=_serve, args=(theirs, self._start, self._expected), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        with contextlib.suppress(OSError):  # it has ended, which is said below
            send_handle(self._connection, self._words.fileno(), None)
        self.generation += 1
        self._exchange(None, START_SECONDS)

    def alive(self) -> bool:
        """Whether there is a process, which has kept what it was told."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """End the process, whatever it is doing; the next question starts another one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join(END_SECONDS)
        if self._connection is not None:
            self._connection.close()
        if self._words is not None:
            self._words.close()
        self._connection = self._words = None

    def _exchange(self, question: Any, seconds: float) -> Any:
        assert self._connection is not None
        try:
            if question is not None:
                _send(self._connection, question)
            if not self._connection.poll(seconds):
                raise Late(f"no answer within {seconds:.3g} s")
            kind, answer = _receive(self._connection)
        except (EOFError, OSError):  # also in the middle of a message
            raise self._end() from None
        except BaseException:  # also when the user interrupts: an answer to this question would be taken for another's
            self.kill()
            raise
        if kind == "answer":
            return answer
        if kind == "expected":
            raise answer
        raise Broken(answer)

    def _end(self) -> Ended:
        """Why the process has ended, which it has."""
        assert self._process is not None
        process, words = self._process, self._last_words()
        process.join(END_SECONDS)
        ended = Ended(process.exitcode, words)
        self.kill()
        return ended

    def _last_words(self) -> str:
        assert self._words is not None
        size = os.fstat(self._words.fileno()).st_size
        self._words.seek(max(0, size - LAST_WORDS))
        return self._words.read().decode(errors="replace").strip()


def _serve(connection: Connection, start: Callable[[], Any], expected: tuple[type[Exception], ...]) -> None:
    """What the process does: make the subject, then answer until the other end is closed."""
    ignore_interrupts()
    os.dup2(2, 1)  # what kernels print must not get into the JSON on stdout
    os.dup2(words := recv_handle(connection), 2)
    os.close(words)
    faulthandler.enable()
    end_with_parent()
    _volunteer_for_the_oom_killer()
    subject: Any = None

    def answer(function: Callable[..., Any], *arguments: Any) -> None:
        try:
            reply = "answer", function(*arguments)
        except expected as error:
            reply = "expected", error
        except Exception:
            reply = "broken", traceback.format_exc()
        with contextlib.suppress(ConnectionError):
            _send(connection, reply)

    def begin() -> None:
        nonlocal subject
        subject = start()

    answer(begin)
    while True:
        try:
            function, arguments = _receive(connection)
        except (EOFError, OSError):
            return
        answer(function, subject, *arguments)


def _send(connection: Connection, message: Any) -> None:
    """Send a message; large arrays in it travel in shared memory instead of through the pipe."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(message, 5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    total = sum(view.nbytes for view in views)
    if total < SHARED_BYTES or not hasattr(os, "memfd_create"):
        connection.send((data, [bytearray(view) for view in views], 0))  # bytearrays, so that arrays can be written to
        return
    memory = os.memfd_create("workbench")  # without a name: it goes with the last process that has it open
    try:
        for view in views:
            while view:  # one call writes 2 GiB at most
                view = view[os.write(memory, view) :]
        connection.send((data, [view.nbytes for view in views], total))
        send_handle(connection, memory, None)
    finally:
        os.close(memory)


def _receive(connection: Connection) -> Any:
    """The message that `_send` sent. Arrays that came in shared memory lie there as long as they live."""
    data, buffers, total = connection.recv()  # of buffers in shared memory, their sizes
    if not total:
        return pickle.loads(data, buffers=buffers)
    memory = recv_handle(connection)
    try:
        shared = memoryview(mmap.mmap(memory, total, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)))
    finally:
        os.close(memory)
    parts, at = [], 0
    for size in buffers:
        parts.append(shared[at : at + size])
        at += size
    return pickle.loads(data, buffers=parts)


def _volunteer_for_the_oom_killer() -> None:
    """When memory runs out, this process is to go and not the one with the results."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
