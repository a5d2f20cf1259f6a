"""Kill and interrupt commands at random moments, and look for harm.

No process may be left after five seconds, nothing may be written outside of the folders that the commands are told, no
store may be damaged or lack what it had, and the next command has to go on. After Ctrl-C there is no traceback, and no
temporary file. `python tests/kill_anywhere.py --kills 200` prints a line a kill and exits with 1 where one did harm.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import workbench
from workbench.model.errors import INTERRUPTED, WorkbenchError
from workbench.records import store

ORPHAN_SECONDS = 5.0

ROOT = Path(workbench.__file__).parents[1]
EMULATOR = ROOT / "tests" / "emulator"
SCALE = ("--grid", "64", "--block", "256", "--arg", "x:f32[16000]=ones", "--arg", "y:f32[16000]", "--arg", "f32=2")

COMMANDS = {
    "run": ("run", "vector_add", "--device", "emulator", "--examples", "40", "--fresh", "--output", "reports"),
    "verify": ("verify", "vector_add", "--device", "emulator", "--examples", "40", "--isolate"),
    "mutate": ("mutate", "vector_add:naive", "--examples", "3", "--jobs", "2"),
    "tune": ("tune", "gemm:vectorized", "--device", "emulator", "--problem", "m=32,n=32,k=32"),
    "watch": ("watch", "vector_add:naive", "--device", "emulator", "--examples", "40"),
    "emulate": ("emulate", str(EMULATOR / "scale.ptx"), *SCALE, "--arg", "i32=16000"),
    "capture": ("capture", sys.executable, str(EMULATOR / "captured" / "reverse.py"), "right"),
}
LONGEST = {"emulate": 1.5, "capture": 3.0, "verify": 4.0}
"""Seconds within which a command is mostly killed, where those of all would come after its end."""

BEGINS = 0.3
"""Seconds within which Python itself is interrupted as it begins."""

HOW = ("kill", "Ctrl-C", "worker")
"""SIGKILL for the process that was started, SIGINT for its group, SIGKILL for any of the group."""

FOLDERS = ("work", "cache", "versions", "temporary", "home")


@dataclass(frozen=True)
class Kill:
    """One command that was ended after so many seconds, and the harm that it did."""

    command: str
    how: str
    seconds: float
    ended_before: bool
    harm: tuple[str, ...]


def started(name: str, folder: Path) -> subprocess.Popen[str]:
    """The command, in a group of its own, as a shell starts it."""
    for part in FOLDERS:
        (folder / part).mkdir(exist_ok=True)
    own = {"WORKBENCH_CACHE": "cache", "WORKBENCH_VERSIONS": "versions", "TMPDIR": "temporary", "HOME": "home"}
    own["CUPY_CACHE_DIR"] = "cache"  # of the program that is captured
    return subprocess.Popen(
        [sys.executable, "-m", "workbench", *COMMANDS[name]],
        cwd=folder / "work",
        env={**os.environ, **{variable: str(folder / part) for variable, part in own.items()}},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill(name: str, seconds: float, folder: Path, how: str = "kill") -> Kill:
    """Begin a command in the folder, end it after so many seconds, and look for harm."""
    adopt_orphans = 36
    ctypes.CDLL(None).prctl(adopt_orphans, 1, 0, 0, 0)
    others, had, ours = children(), rows(folder), _files(ROOT / "workbench")
    files = [*(folder / "temporary").glob("*")]
    process = started(name, folder)
    try:
        said, ended_before = process.communicate(timeout=seconds)[0], True
    except subprocess.TimeoutExpired:
        ended_before = False
        with suppress(ProcessLookupError):
            if how == "Ctrl-C":
                os.killpg(process.pid, signal.SIGINT)
            else:
                group = [pid for pid, (_, group) in _processes().items() if group == process.pid]
                os.kill(random.choice(group) if how == "worker" else process.pid, signal.SIGKILL)
        if how == "worker" and name == "watch":  # goes on
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            process.kill()
        process.wait()
        said = ""
    harm = [*orphans({*others}), *damage(folder)]
    if process.stdout and not ended_before:
        said = process.stdout.read()
        process.stdout.close()
    if how == "Ctrl-C" and not ended_before:
        if name != "capture" and process.returncode != -signal.SIGINT and seconds > BEGINS:
            harm += [f"it ended with {process.returncode}"] if process.returncode not in (INTERRUPTED, 0) else []
            harm += [said.strip()[-600:]] if "Traceback" in said else []
        harm += [f"{path.name} is left" for path in (folder / "temporary").iterdir() if path not in files]
    harm += [f"{path} was written" for path in outside(folder)]
    harm += ["the package was changed"] if _files(ROOT / "workbench") != ours else []
    harm += [f"{table} has {now} rows, and had {had[table]}" for table, now in rows(folder).items() if now < had[table]]
    return Kill(name, how, seconds, ended_before, tuple(harm))


def outside(folder: Path) -> list[Path]:
    """Files where no command has to write."""
    here = [path for path in folder.iterdir() if path.name not in FOLDERS]
    return [*here, *(folder / "home").iterdir(), *(p for p in (folder / "work").iterdir() if p.name != "reports")]


def _files(root: Path) -> dict[Path, tuple[int, int]]:
    found = [(path, path.stat()) for path in root.rglob("*") if path.suffix not in (".pyc", "")]
    return {path: (about.st_size, about.st_mtime_ns) for path, about in found}


def _processes() -> dict[int, tuple[int, int]]:
    """Of each process: its parent and its group."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            _, parent, group, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            found[int(folder.name)] = int(parent), int(group)
    return found


def children() -> list[int]:
    """The processes whose parent is this one."""
    return [pid for pid, (parent, _) in _processes().items() if parent == os.getpid()]


def orphans(others: set[int]) -> list[str]:
    """Children beside the others that are still there after a while, which then are ended."""
    ends = time.monotonic() + ORPHAN_SECONDS
    while (left := set(children()) - others) and time.monotonic() < ends:
        for pid in left:  # the first process of a namespace ends after all others there were waited for
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
    found = []
    for pid in left:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append(f"process {pid} is left: {words}")
            os.kill(pid, signal.SIGKILL)
    return found


def rows(folder: Path) -> Counter[str]:
    """Rows of each table of the databases in a folder that can be read."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*.sqlite3"):
        with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.Error):
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                found[table] += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return found


def damage(folder: Path) -> list[str]:
    """What is wrong with the records and databases in a folder."""
    found = []
    for path in folder.rglob("*.sqlite3"):
        try:
            with closing(sqlite3.connect(path)) as connection:
                (said,) = connection.execute("PRAGMA integrity_check").fetchone()
        except sqlite3.Error as error:
            said = str(error)
        found += [] if said == "ok" else [f"{path.name} is damaged: {said}"]
    for device in store.folders(folder / "work" / "reports"):
        try:
            store.Folder(device)
        except (OSError, WorkbenchError) as error:
            found.append(f"{device.name}: {error}")
    return found


def goes_on(folder: Path) -> list[str]:
    """What is wrong where every command is let run to its end."""
    found = []
    for name in COMMANDS.keys() - {"watch", "tune"}:  # without end; and ends with 1 where its time is up
        said = (process := started(name, folder)).communicate()[0]
        found += [f"{name} ended with {process.returncode}: {said[-600:]}"] if process.returncode else []
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--longest", type=float, default=6.0, help="seconds after which a command is ended at the latest"
    )
    parser.add_argument("--command", choices=COMMANDS, action="append")
    chosen = parser.parse_args()
    rng, harmful, early = random.Random(chosen.seed), 0, 0
    random.seed(chosen.seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has those in the background ignore it
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in range(chosen.kills):
            names = chosen.command or [*COMMANDS]
            name, how = names[number % len(names)], HOW[number // len(names) % len(HOW)]
            done = kill(name, rng.uniform(0.0, min(chosen.longest, LONGEST.get(name, 6.0))), folder, how)
            harmful += bool(done.harm)
            early += done.ended_before
            said = "; ".join(done.harm) or ("it had ended" if done.ended_before else "no harm")
            print(f"{number + 1:3} {done.command:7} {done.how:6} {done.seconds:5.2f} s  {said}", flush=True)
        left = len([*(folder / "temporary").iterdir()])
        stopped = goes_on(folder)
    print(
        f"{chosen.kills} kills, {early} after the end of the command, {harmful} with harm; {left} temporary files left"
    )
    print("every command goes on" if not stopped else "\n".join(stopped))
    return bool(harmful or stopped)


if __name__ == "__main__":
    sys.exit(main())
