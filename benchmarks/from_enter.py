"""How long a person waits from Enter: the wall time of commands on a GPU, each in a process of its own.

python benchmarks/from_enter.py run --out reports/from-enter.json    # on the GPU, of a commit
python benchmarks/from_enter.py page reports/from-enter.json
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recorded import Record, begin, made_on, page_beside, read, save

from workbench.devices import open_device
from workbench.report.markdown import table

COMMANDS = {
    "run vector_add": 5.0,
    "bench gemm:naive": 8.0,
    "bench attention:row_by_row": 15.0,
    "bench softmax": 30.0,
    "verify gemm": 60.0,
}
"""Commands, and the seconds that they should take on an H200 with 16 cores."""


def waited(what: str, limit: float) -> tuple[float, int | None, str]:
    """Seconds, the exit code or None where it was stopped at the limit, and the last line that was printed."""
    with tempfile.TemporaryDirectory() as folder:
        name, *rest = what.split()
        output = [] if name == "verify" else ["--output", folder, "--fresh"]
        kept = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}  # as a person's shell has it
        started = time.monotonic()
        try:
            command = [sys.executable, "-m", "workbench", name, *rest, *output]
            done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return time.monotonic() - started, None, ""
        lines = done.stderr.strip().splitlines()
        return time.monotonic() - started, done.returncode, lines[-1] if lines else ""


def page(record: Record) -> str:
    """The page of a record."""
    rows = [
        (
            f"`workbench {c['command']}`",
            "stopped" if c["code"] is None else f"{c['seconds']:.1f} s",
            f"{c['target']:g} s",
        )
        for c in record["commands"]
    ]
    text = "Wall time of whole commands, each in a process of its own, the second time with what compilers had kept.\n"
    return f"# From Enter\n\n{made_on(record)}\n{text}\n{table(('command', 'takes', 'target'), rows)}\n"


def main() -> None:
    """Time the commands, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    run = tasks.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--limit", type=float, default=120.0, help="seconds after which a command is stopped")
    tasks.add_parser("page").add_argument("record", type=Path)
    asked = parser.parse_args()
    if asked.task == "page":
        page_beside(asked.record).write_text(page(read(asked.record)))
        return
    record = begin(open_device("cuda").info(), "commands")
    for command, target in COMMANDS.items():
        for attempt in ("cold", "warm"):
            seconds, code, last = waited(command, asked.limit)
            name = command if attempt == "warm" else f"{command} (first time)"
            record["commands"].append(
                {"command": name, "seconds": seconds, "code": code, "last": last, "target": target}
            )
            print(f"{name}: {seconds:.1f} s, exit code {code}: {last}", flush=True)
            save(record, asked.out)


if __name__ == "__main__":
    main()
