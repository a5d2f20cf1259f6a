"""What a process of stages tries to do to others, and what it needs for itself; run as a script by `test_confine.py`.

`python confinement.py FOLDER LAYERS`: as an ordinary user where it may become one, with namespaces refused. It prints
what was done before it was confined, and what was done and which ordinary things failed after that.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workbench.sandbox import child, confine

NOBODY = 65534
LIBC = ctypes.CDLL(None, use_errno=True)


def called(name: str, *arguments: object) -> None:
    """A system call. Raises OSError."""
    number = {**confine._REFUSED, **confine._FILES}[name][os.uname().machine != "x86_64"]
    if LIBC.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def forked() -> None:
    if os.fork() == 0:
        os.setsid()
        os._exit(0)
    os.wait()


def owned() -> None:
    ours, theirs = os.pipe()
    try:
        fcntl.fcntl(ours, fcntl.F_SETOWN, os.getppid())
    finally:
        os.close(ours)
        os.close(theirs)


def outlived() -> None:
    if LIBC.prctl(1, 0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


def attacks(victim: int, folder: Path) -> dict[str, Callable[[], object]]:
    """By name what must not be done to a process of the same user, to files of his, and to the system."""
    file, buffer = folder / "file", ctypes.create_string_buffer(8)
    proc = f"/proc/{victim}"
    return {
        "prlimit": lambda: resource.prlimit(victim, resource.RLIMIT_CPU, (10**6, 10**6)),
        "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, victim, 10),
        "setpriority_of_all": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 10),
        "sched_setscheduler": lambda: os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0)),
        "sched_setparam": lambda: os.sched_setparam(victim, os.sched_param(0)),
        "sched_setaffinity": lambda: os.sched_setaffinity(victim, {min(os.sched_getaffinity(0))}),
        "kill": lambda: os.kill(victim, 0),
        "kill_group": lambda: os.killpg(os.getpgid(0), 0),
        "pidfd_open": lambda: os.close(os.pidfd_open(victim)),
        "own": owned,
        "death_signal": outlived,
        "fork": forked,
        "spawn": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
        "run": lambda: subprocess.run(["/bin/true"], check=True),
        "open_for_writing": lambda: file.open("r+").close(),
        "chmod": lambda: file.chmod(0o600),
        "chown": lambda: os.chown(file, os.getuid(), os.getgid()),
        "utime": lambda: os.utime(file, (0, 0)),
        "xattr": lambda: os.setxattr(file, "user.told", b"1"),
        "truncate": lambda: os.truncate(file, 0),
        "lock": lambda: fcntl.flock(os.open(file, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB),
        "link": lambda: (folder / "link").hardlink_to(file),
        "symlink": lambda: (folder / "symlink").symlink_to(file),
        "mkdir": lambda: (folder / "folder").mkdir(),
        "fifo": lambda: os.mkfifo(folder / "fifo"),
        "rename": lambda: (folder / "other").rename(folder / "another"),
        "unlink": lambda: (folder / "removed").unlink(),
        "shared_memory": lambda: called("shmget", 0, 4096, 0o1600),
        "semaphores": lambda: called("semget", 0, 1, 0o1600),
        "messages": lambda: called("msgget", 0, 0o1600),
        "ptrace": lambda: called("ptrace", 0x4206, victim, 0, 0),
        "read_memory": lambda: called("process_vm_readv", victim, buffer, 0, buffer, 0, 0),
        "connect": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
        "socketpair": lambda: [s.close() for s in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)],
        "watch": lambda: called("inotify_init1", 0),
        "keys": lambda: called("keyctl", 0, -3, 1),
        "command_line": lambda: Path(f"{proc}/cmdline").read_bytes(),
        "state": lambda: Path(f"{proc}/stat").read_bytes(),
        "environment": lambda: Path(f"{proc}/environ").read_bytes(),
        "processes": lambda: list(Path("/proc").iterdir()),
        "shared_files": lambda: list(Path("/dev/shm").iterdir()),
    }


def ordinary() -> dict[str, Callable[[], object]]:
    """By name what a stage's function may need."""

    def thread() -> None:
        started = threading.Thread(target=time.monotonic)
        started.start()
        started.join()

    return {
        "thread": thread,
        "read": lambda: Path("/etc/passwd").read_bytes(),  # a checkout may be the owner's alone
        "list": lambda: list(Path("/etc").iterdir()),
        "memory": lambda: mmap.mmap(-1, 1 << 20).close(),
        "product": lambda: np.ones((200, 200)) @ np.ones((200, 200)),
        "random": lambda: np.random.default_rng().random(),
        "about_itself": lambda: Path("/proc/self/status").read_text(),
        "processor": lambda: Path("/proc/cpuinfo").read_text(),
        "own_limits": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        "own_signal": lambda: os.kill(os.getpid(), 0),
        "own_cores": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        "terminal": lambda: os.isatty(0),
    }


def done(tried: dict[str, Callable[[], object]]) -> list[str]:
    found = []
    for name, action in tried.items():
        try:
            action()
        except OSError:
            continue
        found.append(name)
    return found


def ready(folder: Path) -> None:
    """Files that are attacked, as they are at first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("file", "other", "removed"):
        (folder / name).write_text("kept")


def main(folder: Path, layers: list[str]) -> None:
    if os.geteuid() == 0:
        folder.chmod(0o777)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        LIBC.prctl(4, 1, 0, 0, 0)  # whose processes may be traced, as those of any user
    refused = [(0x20, 0, 0, 0), (0x15, 0, 1, confine._REFUSED["unshare"][os.uname().machine != "x86_64"])]
    LIBC.prctl(38, 1, 0, 0, 0)
    assert confine.filtered([*refused, (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)])
    assert not confine.separated()
    victim = os.fork()
    if victim == 0:
        child.end_with(os.getppid())
        signal.pause()
    ready(folder / "before")
    before = elsewhere(lambda: done(attacks(victim, folder / "before")))
    ready(folder / "after")

    def confined() -> object:
        if "Landlock" not in layers:
            confine.landlock_version = lambda: 0
        if "system calls" not in layers:
            confine._AUDIT.clear()
        held = confine.confined()
        after = done(attacks(victim, folder / "after"))
        return {"held": held, "after": after, "failed": sorted(set(ordinary()) - set(done(ordinary())))}

    after = elsewhere(confined)
    os.kill(victim, signal.SIGKILL)  # a confined parent's death would not
    files = {path.name: path.read_text() for path in (folder / "after").iterdir() if path.is_file()}
    print(json.dumps({"before": before, "files": files, **after}))


def elsewhere(function: Callable[[], object]) -> Any:
    """What a function returns in a process of its own."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setpgid(0, 0)
        os.write(writer, json.dumps(function()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return json.load(pipe)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
