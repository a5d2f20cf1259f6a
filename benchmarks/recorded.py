"""The command line of a benchmark that keeps what it measured as JSON, and makes its page of that and nothing else."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench import environment
from workbench.results import DeviceInfo

Record = dict[str, Any]


def begin(device: DeviceInfo, *lists: str) -> Record:
    """A record of this code on a device, with lists that are still empty."""
    made: Record = {"environment": asdict(environment.describe()), "device": asdict(device)}
    return made | {name: [] for name in lists}


def made_on(record: Record) -> str:
    """The line of a page that says where, when and of which commit its figures are."""
    made, device = record["environment"], record["device"]
    return f"{device['name']}, driver {device['driver']}, commit `{made['commit'][:12]}`, {made['date'][:10]}.\n"


def save(record: Record, path: Path) -> None:
    """Write a record as it is now, in one line."""
    path.write_text(json.dumps(record, separators=(",", ":")) + "\n")


def main(
    description: str | None,
    committed: Path,
    measure: Callable[[argparse.Namespace], None],
    page: Callable[[Record], str],
    **options: dict[str, Any],
) -> None:
    """`measure FILE` lets `measure` fill the file; `write [FILE]` takes it over and makes the page beside `committed`.

    `options` are those of argparse, by name.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("measure", "write"))
    parser.add_argument("file", type=Path, nargs="?", default=committed)
    for name, how in options.items():
        parser.add_argument(f"--{name}", **how)
    chosen = parser.parse_args()
    if chosen.step == "measure":
        measure(chosen)
        return
    record: Record = json.loads(chosen.file.read_text())
    if chosen.file != committed:
        save(record, committed)
    committed.with_suffix(".md").write_text(page(record))
