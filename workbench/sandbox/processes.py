"""The processes of a command: started afresh, or forked from one in which everything but the declarations is loaded.

Each ends with the process that asked for it, however that ends, and none inherits a CUDA context or a lock."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

PRELOADED = "workbench.run.warm"
"""The module that the server imports."""

SERVER_ENDED = 255
"""The exit code that `multiprocessing` gives a process whose server has ended, which ends it too."""

_begun = False


def has_gpu() -> bool:
    """Whether there seems to be a GPU, which nothing is asked."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def begin() -> None:
    """From now on have the server fork the processes of this one. It begins to import at once.

    For commands alone: a program that calls the workbench may have a server of its own."""
    global _begun
    _begun = True
    server()


def server() -> ForkServerContext:
    """Starts processes by the server, which is there then."""
    forkserver.set_forkserver_preload([PRELOADED])
    with held_back():  # also from what it forks
        forkserver.ensure_running()
    return multiprocessing.get_context("forkserver")


def context() -> ForkServerContext | ForkContext | SpawnContext:
    """Starts processes: by the server where a command has begun one. What the server has just forked is as clean as
    the server, and is forked itself: a server of its own would have to import first."""
    if _begun:
        return multiprocessing.get_context("forkserver")
    parent = multiprocessing.parent_process()
    fresh = parent is not None and os.getppid() != parent.pid and PRELOADED in sys.modules
    if fresh and threading.active_count() == 1:
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def ignore_interrupts() -> None:
    """For processes that work for another one: Ctrl-C reaches the whole group, and who started them decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C comes at the end of this. Processes that are started meanwhile never get it: not even as they begin."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let signals in again as it begins
    came: list[tuple[int, Any]] = []
    is_main = threading.current_thread() is threading.main_thread()
    # a signal that another thread takes reaches the handler, too, whatever is blocked here
    handler = signal.signal(signal.SIGINT, lambda *how: came.append(how)) if is_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
            if came and callable(handler):
                handler(*came[0])


def end_with_parent() -> None:
    """Be killed when the process ends that started this one through `multiprocessing`, also by a SIGKILL, and also
    while a kernel hangs and no thread gets the interpreter's lock: on Linux the kernel sends the signal."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel: Any = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    if sys.platform == "linux":
        if os.getppid() != parent.pid:  # the server's, of which nothing is to stay behind either
            set_death_signal = 1
            ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
        set_signal = 10  # F_SETSIG
        fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(sentinel, set_signal, signal.SIGKILL)
        fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=watch, daemon=True).start()
