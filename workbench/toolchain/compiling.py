"""NVRTC with a deadline and a limit of memory: in a process of its own, as nothing can interrupt it.

A process serves one compilation after the other. As many are kept as have been needed at once."""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from ..model.errors import WorkbenchError, limit

SECONDS, DEFAULT_SECONDS = "WORKBENCH_COMPILE_SECONDS", 120.0
"""Environment variable for the longest that a source may take to be compiled, and what holds without it."""

MEMORY, DEFAULT_MB = "WORKBENCH_COMPILE_MB", 8192.0
"""Environment variable for the megabytes of address space that a compilation may take, and what holds without it."""

START_SECONDS = 120.0
"""Longest that the process may take to start."""

SCRIPT = Path(__file__).with_name("_nvrtc_process.py")


class CompileError(WorkbenchError):
    """NVRTC rejected the source, or did not finish; the message holds its diagnostics."""


class CompilerUnavailable(WorkbenchError, RuntimeError):
    """NVRTC or the CUDA headers are missing, the cache cannot be written, or the system kills the compiler for want of
    memory; the message says what to do."""


class _Killed(Exception):
    """The system has killed the compiler."""


@dataclass(frozen=True)
class Product:
    """What NVRTC made of a source, and what ptxas said of it."""

    ptx: str
    cubin: bytes
    log: str


class _Process:
    """One process. `alive`, whose other end it has, is closed when this process ends, however that does."""

    def __init__(self, memory: int, readable: Sequence[Path] = ()) -> None:
        self.memory, self.readable = memory, tuple(readable)
        theirs, self._alive = os.pipe()
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        try:
            _registered()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SCRIPT), str(theirs), str(memory), *map(str, readable)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                pass_fds=(theirs,),
                process_group=0,  # Ctrl-C is for who started it
            )
        finally:
            os.close(theirs)
        self._first = True

    def ask(self, task: Mapping[str, Any], seconds: float) -> dict[str, str]:
        """Its answer. Raises CompileError where there is none in time, or none at all: then the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        ends = time.monotonic() + seconds + (START_SECONDS if self._first else 0.0)
        self._first = False
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                if not selector.select(max(0.0, ends - time.monotonic())):
                    raise CompileError(
                        f"the compiler was stopped after {seconds:g} s: a template or constant expression that does "
                        f"not end, or a source that is too large ({SECONDS} is another limit)"
                    )
                part = os.read(self._process.stdout.fileno(), 1 << 20)
                if not part:
                    raise CompileError(self._why())
                answer += part
        found: dict[str, str] = json.loads(answer)
        return found

    def _why(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            raise _Killed
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._words.seek(0)
        words = self._words.read()[-2000:].decode(errors="replace").strip()
        return (
            f"the compiler ended with {how} while it had this source: a fault of it, or more than "
            f"{self.memory / 1e6:,.0f} MB were needed ({MEMORY} is another limit)" + (f"\n{words}" if words else "")
        )

    def usable(self, memory: int, readable: Sequence[Path]) -> bool:
        return self._process.poll() is None and (self.memory, self.readable) == (memory, tuple(readable))

    def forget(self) -> None:
        """In a fork: it answers the parent, and ends with that."""
        os.close(self._alive)

    def end(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        os.close(self._alive)


_lock = threading.Lock()
_idle: list[_Process] = []


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    while _idle:
        _idle.pop().forget()


os.register_at_fork(after_in_child=_after_fork)


def _end_idle() -> None:
    """Processes that are left when this one ends would be resources that nobody has closed."""
    while _idle:
        _idle.pop().end()


@cache
def _registered() -> None:
    """The first process of this one is started."""
    atexit.register(_end_idle)


def begin() -> None:
    """Start a process, without waiting for it, so that the first compilation need not. Raises WrongUsage."""
    process = _Process(int(limit(MEMORY, DEFAULT_MB) * 1e6))
    with _lock:
        _idle.append(process)


def _ask(task: Mapping[str, Any], seconds: float, memory: int, readable: Sequence[Path]) -> dict[str, str]:
    """The answer of a process that is idle, or of a new one. Raises CompileError and _Killed."""
    with _lock:
        process = next((p for p in _idle if p.usable(memory, readable)), None)
        if process is not None:
            _idle.remove(process)
    if process is None:
        process = _Process(memory, readable)
    try:
        answer = process.ask(task, seconds)
    except BaseException:  # also when the user interrupts: an answer to this question would be taken for another's
        process.end()
        raise
    with _lock:
        _idle.append(process)
    return answer


def run(
    text: str, name: str, flags: Sequence[str], headers: Mapping[bytes, bytes], readable: Sequence[Path] = ()
) -> Product:
    """Compile a source; `headers` are texts by their names, others are found in the folders of the flags. Where there
    are `readable` folders, the compiler can read no others, as far as Landlock is there.

    A compiler that the system kills is started once more. Raises CompileError, with NVRTC's diagnostics or why it did
    not end, CompilerUnavailable where the system kills it again, and WrongUsage for a wrong limit."""
    seconds, memory = limit(SECONDS, DEFAULT_SECONDS), int(limit(MEMORY, DEFAULT_MB) * 1e6)
    names, texts = ([part.decode("latin-1") for part in parts] for parts in (headers, headers.values()))
    task = {"text": text, "name": name, "flags": [*flags], "headers": texts, "header_names": names}
    try:
        answer = _ask(task, seconds, memory, readable)
    except _Killed:
        try:
            answer = _ask(task, seconds, memory, readable)
        except _Killed:
            raise CompilerUnavailable(
                f"the system has killed the compiler twice while it had {name}, as it does when memory is short; no "
                "source is to blame. Use fewer processes (--jobs, pytest -n), or end other programs"
            ) from None
    if "failed" in answer:
        raise CompileError(answer["failed"])
    if "memory" in answer:
        raise CompileError(f"the compiler needs more than {memory / 1e6:,.0f} MB for it ({MEMORY} is another limit)")
    if "broken" in answer:
        raise CompileError(f"the compiler failed: {answer['broken']}")
    return Product(answer["ptx"], base64.b64decode(answer["cubin"]), answer["log"])
