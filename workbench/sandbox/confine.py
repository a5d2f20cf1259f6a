"""What the process of stages may not do: Linux's Landlock, a filter of system calls, and namespaces.

Each holds without the others, as far as it reaches: containers and hosted CI refuse namespaces, old kernels have no
Landlock. Nothing here needs privileges. The numbers are those of the kernel's headers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

LANDLOCK, FILTER, NAMESPACES = "Landlock", "system calls", "namespaces"
"""What the protections are called."""

_NO_NEW_PRIVILEGES, _SECCOMP, _DUMPABLE = 38, 22, 4


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def confined() -> list[str]:
    """From now on this process and its children cannot change a file, reach another process or start one that stays.

    Returns which protections hold."""
    held = []
    if sys.platform == "linux":
        _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if version := _landlock(_readable()):
            held.append(f"{LANDLOCK} {version}")
        if _filter():
            held.append(FILTER)
    return held


def hide() -> None:
    """Where Landlock does not keep stages from it: nobody may read the memory of this process, or of its forks."""
    if sys.platform == "linux" and landlock_version() < 1:
        _libc().prctl(_DUMPABLE, 0, 0, 0, 0)


# ------------------------------------------------------------------------------------------------------------ Landlock

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_WRITE_FILE, _READ_FILE, _READ_FOLDER, _MOVE, _TRUNCATE, _DEVICES = 1 << 1, 1 << 2, 1 << 3, 1 << 13, 1 << 14, 1 << 15
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Rights to write to files, and to make and remove them."""
_BENEATH = 1
_SCOPES = 0b11
"""Abstract sockets and signals."""

_HIDDEN = ("proc", "dev")
"""Folders at the root of the file system of which only what follows may be read."""
_SHOWN = (
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys"),
)


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def landlock_version() -> int:
    """Of the kernel's Landlock; 0 or less where there is none."""
    if sys.platform != "linux":
        return 0
    return int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def read_only(folders: Iterable[str]) -> None:
    """From now on this process and its children can read what is in the folders and nothing else, and write nothing."""
    if sys.platform == "linux":
        _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _landlock(folders)


def _landlock(readable: Iterable[str]) -> int:
    """Let nothing be written, and nothing be read but this; the version, 0 where it failed."""
    libc, version = _libc(), landlock_version()
    if version < 1:
        return 0
    late = (_MOVE, 2), (_TRUNCATE, 3), (_DEVICES, 5)
    handled = _CHANGES | _READ_FILE | _READ_FOLDER | sum(right for right, since in late if version >= since)
    rules = _Ruleset(handled, 0b11 if version >= 4 else 0, _SCOPES if version >= 6 else 0)  # TCP, too
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return 0
    try:
        for path in readable:
            with contextlib.suppress(OSError):
                _allow(libc, ruleset, path)
        return version if libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


def _readable() -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from (f"/{name}" for name in os.listdir("/") if name not in _HIDDEN)  # noqa: PTH208
    yield from _SHOWN


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    """Let a file, or all in a folder, be read. Raises OSError."""
    number = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        folder = _READ_FOLDER if Path(path).is_dir() else 0
        libc.syscall(_ADD_RULE, ruleset, _BENEATH, struct.pack("<Qi", _READ_FILE | folder, number), 0)
    finally:
        os.close(number)


# -------------------------------------------------------------------------------------------------------- system calls

_X86, _ARM = "x86_64", "aarch64"
_AUDIT = {_X86: 0xC000003E, _ARM: 0xC00000B7}
_EPERM, _EACCES, _ENOSYS = 1, 13, 38

_NONE = -1
_REFUSED = {  # name: its number on x86-64, on AArch64
    # other processes
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272)},
    **{"process_madvise": (440, 440), "process_mrelease": (448, 448), "tkill": (200, 130)},
    **{"pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424)},
    **{"setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118)},
    **{"sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "migrate_pages": (256, 238)},
    **{"move_pages": (279, 239), "fork": (57, _NONE), "vfork": (58, _NONE)},
    # memory, messages and sockets that others have, too
    **{"shmget": (29, 194), "shmctl": (31, 195), "shmat": (30, 196), "shmdt": (67, 197), "semget": (64, 190)},
    **{"semctl": (66, 191), "semtimedop": (220, 192), "semop": (65, 193), "msgget": (68, 186), "msgctl": (71, 187)},
    **{"msgrcv": (70, 188), "msgsnd": (69, 189), "mq_open": (240, 180), "mq_unlink": (241, 181)},
    **{"socket": (41, 198), "socketpair": (53, 199), "bind": (49, 200), "connect": (42, 203), "flock": (73, 32)},
    # the system
    **{"unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41)},
    **{"chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430)},
    **{"fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442)},
    **{"perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282), "add_key": (248, 217)},
    **{"request_key": (249, 218), "keyctl": (250, 219), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426)},
    **{"io_uring_register": (427, 427), "fanotify_init": (300, 262), "inotify_init": (253, _NONE)},
    **{"inotify_init1": (294, 26), "open_by_handle_at": (304, 265), "kexec_load": (246, 104), "reboot": (169, 142)},
    **{"kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273)},
    **{"delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89)},
    **{"quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112)},
    **{"clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162)},
    **{"syslog": (103, 116), "iopl": (172, _NONE), "ioperm": (173, _NONE), "vhangup": (153, 58)},
}
_FILES = {  # what changes them without a right of Landlock, and with one
    **{"chmod": (90, _NONE), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    **{"chown": (92, _NONE), "fchown": (93, 55), "lchown": (94, _NONE), "fchownat": (260, 54)},
    **{"utime": (132, _NONE), "utimes": (235, _NONE), "futimesat": (261, _NONE), "utimensat": (280, 88)},
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14)},
    **{"lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463), "removexattrat": (466, 466)},
    **{"file_setattr": (469, 469), "truncate": (76, 45), "creat": (85, _NONE), "rename": (82, _NONE)},
    **{"renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, _NONE), "mkdirat": (258, 34)},
    **{"rmdir": (84, _NONE), "unlink": (87, _NONE), "unlinkat": (263, 35), "link": (86, _NONE), "linkat": (265, 37)},
    **{"symlink": (88, _NONE), "symlinkat": (266, 36), "mknod": (133, _NONE), "mknodat": (259, 33)},
}
_UNREADABLE = {"clone3": (435, 435), "openat2": (437, 437)}
"""A filter does not see their arguments: libraries use `clone` and `openat` where these are not there."""
_OF_SELF = {  # which argument is the process: 0 is the caller where that is allowed
    **{"kill": (62, 129), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)}
}
_OF_SELF_OR_0 = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122)}
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Is it a terminal and how large, how much is there to read, may it wait, is it inherited."""
_FCNTLS = (6, 7, 8, 10, 15, 37, 38, 1024, 1026)
"""Locks, signals at input, leases."""
_WRITES = 0b11 | 0o100 | 0o1000
_THREAD = 0x10000
_DEATH_SIGNAL = 1

_LOAD, _EQUAL, _SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOWED, _REFUSAL = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_Code = list[tuple[int, int, int, int]]


def _argument(index: int) -> int:
    return 16 + 8 * index  # the low half: both architectures are little-endian


def _only(index: int, values: tuple[int, ...]) -> _Code:
    """Refuse unless the argument is one of the values."""
    tests = [(_EQUAL, len(values) - n, 0, value) for n, value in enumerate(values)]
    return [(_LOAD, 0, 0, _argument(index)), *tests, (_RETURN, 0, 0, _REFUSAL | _EPERM), (_RETURN, 0, 0, _ALLOWED)]


def _none_of(index: int, values: tuple[int, ...], error: int = _EPERM, how: int = _EQUAL) -> _Code:
    """Refuse where the argument is one of the values, or has one of their bits."""
    tests = [(how, len(values) - n, 0, value) for n, value in enumerate(values)]
    return [(_LOAD, 0, 0, _argument(index)), *tests, (_RETURN, 0, 0, _ALLOWED), (_RETURN, 0, 0, _REFUSAL | error)]


def _program(machine: str, own: int) -> _Code:
    """The filter of a process of this number."""
    column = (_X86, _ARM).index(machine)

    def numbers(calls: dict[str, tuple[int, int]]) -> list[int]:
        return [call[column] for call in calls.values() if call[column] != _NONE]

    cases: list[tuple[int, _Code]] = []
    for calls, error in ((_REFUSED, _EPERM), (_FILES, _EACCES), (_UNREADABLE, _ENOSYS)):
        cases += [(number, [(_RETURN, 0, 0, _REFUSAL | error)]) for number in numbers(calls)]
    cases += [(number, _only(0, (own,))) for number in numbers(_OF_SELF)]
    cases += [(number, _only(0, (0, own))) for number in numbers(_OF_SELF_OR_0)]
    clone, prctl, fcntl, ioctl, openat = ((56, 220), (157, 167), (72, 25), (16, 29), (257, 56))
    cases.append((clone[column], _thread()))
    cases.append((prctl[column], _none_of(0, (_DEATH_SIGNAL,))))
    cases.append((fcntl[column], _none_of(1, _FCNTLS)))
    cases.append((ioctl[column], _only(1, _IOCTLS)))
    cases.append((openat[column], _none_of(2, (_WRITES,), _EACCES, _SET)))
    if machine == _X86:
        cases.append((2, _none_of(1, (_WRITES,), _EACCES, _SET)))  # open
    code: _Code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _AUDIT[machine]), (_RETURN, 0, 0, _REFUSAL | _ENOSYS)]
    code.append((_LOAD, 0, 0, _NUMBER))
    if machine == _X86:  # nor calls of x32
        code += [(_SET, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSAL | _ENOSYS)]
    for number, body in cases:
        code += [(_EQUAL, 0, len(body), number), *body]
    return [*code, (_RETURN, 0, 0, _ALLOWED)]


def _thread() -> _Code:
    """Allow a thread, and no process."""
    allow, refuse = (_RETURN, 0, 0, _ALLOWED), (_RETURN, 0, 0, _REFUSAL | _EPERM)
    return [(_LOAD, 0, 0, _argument(0)), (_SET, 0, 1, _THREAD), allow, refuse]


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _filter() -> bool:
    """Whether system calls are filtered from now on."""
    machine = platform.machine()
    if machine not in _AUDIT or sys.maxsize < 2**32:
        return False
    return filtered(_program(machine, os.getpid()))


def filtered(program: _Code) -> bool:
    """Whether system calls go through this program from now on: lines of an opcode, two jumps and a number."""
    code = b"".join(struct.pack("<HBBI", *line) for line in program)
    return bool(_libc().prctl(_SECCOMP, 2, ctypes.byref(_Filter(len(program), code)), 0, 0) == 0)


# ---------------------------------------------------------------------------------------------------------- namespaces

_NEW_USER, _NEW_PROCESSES, _NEW_MESSAGES = 0x10000000, 0x20000000, 0x08000000


def separated() -> bool:
    """Whether processes that this one forks from now on see none but each other, and end with the first of them.

    As an ordinary user in a namespace of users, which many containers refuse. A privileged user needs none, and would
    lose the right to read others' files in it."""
    if sys.platform != "linux":
        return False
    user, group, libc = os.geteuid(), os.getegid(), _libc()
    alone = _NEW_PROCESSES | _NEW_MESSAGES
    if libc.unshare(alone) != 0:
        if libc.unshare(alone | _NEW_USER) != 0:
            return False
        with contextlib.suppress(OSError):  # without it the process has nobody's number
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True
