"""All stages verified at length: makes `reports/verified.md`.

    python benchmarks/verified.py measure OUTPUT.json [--problems N] [--seconds S] [--processes P]   # on GPUs
    python benchmarks/verified.py write [OUTPUT.json]                      # the page, of that file and nothing else

Many processes of `workbench verify`, shared among the GPUs, take random problems of a stage from seeds that nobody has
chosen. A stage has several turns, so that a measurement that ends early has something of every stage.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import queue
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import recorded
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices import open_device

RECORD = Path(__file__).parents[1] / "reports/verified.json"
TURNS = 4
"""Verifications of a stage, each of other problems."""


def gpus() -> list[str]:
    """The GPUs that processes may be given, as CUDA_VISIBLE_DEVICES names them."""
    if given := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return given.split(",")
    import cupy

    return [str(number) for number in range(cupy.cuda.runtime.getDeviceCount())]


def verify(spec: str, examples: int, gpu: str, seconds: float) -> dict[str, Any]:
    """One verification of a stage in a process of its own, and what is kept of it."""
    seed = secrets.randbelow(2**31)
    command = [sys.executable, "-m", "workbench", "verify", spec, "--device", "cuda", "--json"]
    command += ["--examples", str(examples), "--seed", str(seed)]
    kept: dict[str, Any] = {"stage": spec, "seed": seed, "problems": 0, "verdict": "", "message": ""}
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        return kept | {"message": "not finished when the time was over"}
    try:
        (stage,) = json.loads(done.stdout)["result"]["stages"]
    except (ValueError, KeyError, TypeError):
        return kept | {"message": f"exit code {done.returncode}: {done.stderr[-600:]}"}
    found = stage["verification"]
    failure = found["failure"] or {}
    said = f"{failure['problem']}: {failure['message'][:600]}" if failure else ""
    counted = {name: found[name] for name in ("problems", "verdict", "seconds", "worst_error", "tiers")}
    return kept | counted | {"message": said}


def measure(chosen: argparse.Namespace) -> None:
    stop = time.monotonic() + chosen.seconds
    record = recorded.begin(open_device("cuda").info(), "verifications")
    free: queue.Queue[str] = queue.Queue()
    for number in range(chosen.processes):
        cards = gpus()
        free.put(cards[number % len(cards)])

    def turn(spec: str) -> None:
        gpu = free.get()
        try:
            if (left := stop - time.monotonic()) > 0:
                record["verifications"].append(verify(spec, -(-chosen.problems // TURNS), gpu, left))
        finally:
            free.put(gpu)

    specs = [f"{name}:{stage.name}" for name, op in registry.operations().items() for stage in op.stages]
    with concurrent.futures.ThreadPoolExecutor(chosen.processes) as pool:
        for number, _ in enumerate(pool.map(turn, [spec for _ in range(TURNS) for spec in specs])):
            if number % 20 == 0:
                recorded.save(record, chosen.file)
    recorded.save(record, chosen.file)
    print(summary(record))


def problems(record: recorded.Record) -> dict[str, int]:
    """Problems judged of every stage, in the order of the catalogue."""
    found: dict[str, int] = {}
    for row in record["verifications"]:
        found[row["stage"]] = found.get(row["stage"], 0) + row["problems"]
    return found


def wrong(record: recorded.Record) -> list[recorded.Record]:
    """Verifications that ended with another verdict than pass."""
    return [row for row in record["verifications"] if row["verdict"] not in ("", "pass")]


def summary(record: recorded.Record) -> str:
    """Problems a stage and verifications that failed, an operation a line."""
    counts, failed = problems(record), wrong(record)
    rows = []
    for name, operation in registry.operations().items():
        found = [counts.get(f"{name}:{stage.name}", 0) for stage in operation.stages]
        bad = sum(row["stage"].partition(":")[0] == name for row in failed)
        rows.append([f"`{name}`", len(found), sum(found), min(found), max(found), bad])
    rows.append(["all", *(sum(row[column] for row in rows) for column in (1, 2))])
    rows[-1] += [min(row[3] for row in rows[:-1]), max(row[4] for row in rows[:-1]), len(failed)]
    headers = ["operation", "stages", "problems", "fewest of a stage", "most", "verifications that failed"]
    return tabulate(rows, headers, tablefmt="pipe", intfmt=",")


def page(record: recorded.Record) -> str:
    failed = [f"- `{row['stage']}`, seed {row['seed']}: {row['verdict']}: {row['message']}" for row in wrong(record)]
    failures = "\n".join(["## What failed", "", *failed, ""]) if failed else "No verification failed.\n"
    unfinished = sum(not row["verdict"] for row in record["verifications"])
    return (
        "# All stages verified at length\n\n"
        "Written by `benchmarks/verified.py` from [the JSON beside it](verified.json). Every stage is given random "
        "problems, a part of them from each of several seeds; a problem is judged in every tier of its operation. Some "
        "are also solved twice, on other inputs in the same memory, and asked for the operation's invariants. Meanwhile "
        "the emulator looks for hazards of the stage on small problems.\n\n"
        f"{recorded.made_on(record)}\n{summary(record)}\n\n{failures}\n"
        f"Of {len(record['verifications'])} verifications {unfinished} had not ended when the time was over; their "
        "problems are not counted.\n"
    )


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        problems={"type": int, "default": 2000, "help": "random problems of a stage"},
        seconds={"type": float, "default": 3600.0, "help": "when no other verification begins, and those left end"},
        processes={"type": int, "default": os.cpu_count() or 1, "help": "verifications at a time"},
    )
