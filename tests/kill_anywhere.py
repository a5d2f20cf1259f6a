"""Kill commands at random moments: no store may be damaged, and no process may be left after five seconds.

`python tests/kill_anywhere.py --kills 60 --seed 0` prints a line a kill and exits with 1 where one did harm.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from workbench.model.errors import WorkbenchError
from workbench.records import store

MARK = "WORKBENCH_KILL_MARK"
"""Environment variable by which the processes of one command are told from all others."""

ORPHAN_SECONDS = 5.0

COMMANDS = {
    "run": ("run", "vector_add", "--device", "emulator", "--examples", "40", "--fresh", "--output", "reports"),
    "verify": ("verify", "vector_add", "--device", "emulator", "--examples", "40", "--isolate"),
    "mutate": ("mutate", "vector_add:naive", "--examples", "3", "--jobs", "2"),
    "tune": ("tune", "gemm:vectorized", "--device", "emulator", "--problem", "m=32,n=32,k=32"),
    "watch": ("watch", "vector_add:naive", "--device", "emulator", "--examples", "40"),
}


@dataclass(frozen=True)
class Kill:
    """One command that was killed after so many seconds, and the harm that it did."""

    command: str
    seconds: float
    ended_before: bool
    harm: tuple[str, ...]


def kill(name: str, seconds: float, folder: Path) -> Kill:
    """Begin a command in the folder, kill it with SIGKILL after so many seconds, and look for harm."""
    mark = uuid.uuid4().hex
    own = {"WORKBENCH_CACHE": str(folder / "cache"), "WORKBENCH_VERSIONS": str(folder / "versions"), MARK: mark}
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *COMMANDS[name]],
        cwd=folder,
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(seconds)
        ended_before = True
    except subprocess.TimeoutExpired:
        ended_before = False
        process.send_signal(signal.SIGKILL)
        process.wait()
    return Kill(name, seconds, ended_before, (*orphans(mark), *damage(folder)))


def orphans(mark: str) -> list[str]:
    """The processes of a command that are still there after a while, which then are ended."""
    ends = time.monotonic() + ORPHAN_SECONDS
    while (left := _processes(mark)) and time.monotonic() < ends:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return [f"process {pid} is left: {words}" for pid, words in left.items()]


def _processes(mark: str) -> dict[int, str]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
        except OSError:  # it has ended, or is another user's
            continue
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
    for device in store.folders(folder / "reports"):
        try:
            store.Folder(device)
        except (OSError, WorkbenchError) as error:
            found.append(f"{device.name}: {error}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--longest", type=float, default=6.0, help="seconds after which a command is killed at the latest"
    )
    parser.add_argument("--command", choices=COMMANDS, action="append")
    chosen = parser.parse_args()
    rng, harmful, early = random.Random(chosen.seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(chosen.kills):
            names = chosen.command or [*COMMANDS]
            done = kill(names[number % len(names)], rng.uniform(0.0, chosen.longest), Path(folder))
            harmful += bool(done.harm)
            early += done.ended_before
            said = "; ".join(done.harm) or ("it had ended" if done.ended_before else "no harm")
            print(f"{number + 1:3} {done.command:7} {done.seconds:5.2f} s  {said}", flush=True)
    print(f"{chosen.kills} kills, {early} after the end of the command, {harmful} with harm")
    return bool(harmful)


if __name__ == "__main__":
    sys.exit(main())
