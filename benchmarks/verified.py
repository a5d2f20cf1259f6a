"""All stages verified at length: makes `reports/verified.md`.

    python benchmarks/verified.py measure OUTPUT.json [--problems N] [--seconds S] [--turns T] [--processes P]
        [--only conv2d ...]
    python benchmarks/verified.py write [OUTPUT.json]                      # the page, of that file and nothing else

Many processes of `workbench verify` on GPUs take random problems of a stage from seeds that nobody has chosen. A stage
has several turns, so that a measurement that ends early has something of every stage. Where the file is there already,
it goes on: problems that failed are tried again first, and stages that have fewer problems come first.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import queue
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import recorded
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.toolchain import compiler

RECORD = Path(__file__).parents[1] / "reports/verified.json.gz"
TURNS = 2
"""Verifications of a stage, each of other problems. Nothing is kept of one that does not end in time. Each begins with
edge cases and hazards in the emulator, which take as long as some hundred random problems."""


def gpus() -> list[str]:
    """The GPUs that processes may be given, as CUDA_VISIBLE_DEVICES names them."""
    if given := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return given.split(",")
    import cupy

    return [str(number) for number in range(cupy.cuda.runtime.getDeviceCount())]


def asked(spec: str, gpu: str, seconds: float, *options: str) -> tuple[recorded.Record, str]:
    """What `workbench verify` found of a stage, in a process of its own: nothing, and why, where it did not end."""
    command = [sys.executable, "-m", "workbench", "verify", spec, "--device", "cuda", "--json", *options]
    # as many processes as there are cores: threads of BLAS, which wait by turning, would take them from each other
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        return {}, "not finished when the time was over"
    try:
        (stage,) = json.loads(done.stdout)["result"]["stages"]
    except (ValueError, KeyError, TypeError):
        return {}, f"exit code {done.returncode}: {done.stderr[-600:]}"
    return stage, ""


def code(spec: str) -> str:
    """SHA-256 of the sources of a stage without their comments."""
    (stage,) = registry.select([spec])
    sources = compiler.contents(compiler.source_of(stage)).values()
    lines = (line.partition(b"//")[0].strip() for source in sources for line in source.splitlines())
    return hashlib.sha256(b"\n".join(filter(None, lines))).hexdigest()


def verify(spec: str, examples: int, commit: str, gpu: str, seconds: float) -> recorded.Record:
    """One verification of a stage, as it is kept."""
    seed = secrets.randbelow(2**31)
    stage, message = asked(spec, gpu, seconds, "--examples", str(examples), "--seed", str(seed))
    kept: recorded.Record = {"stage": spec, "commit": commit, "seed": seed}
    if not stage:
        return kept | {"problems": 0, "verdict": "", "message": message}
    found = stage["verification"]
    kept |= {"code": code(spec), "problems": found["problems"], "verdict": found["verdict"]}
    if failure := found["failure"]:
        kept |= {"problem": failure["problem"], "message": failure["message"][:600]}
    return kept


def try_again(row: recorded.Record, commit: str, gpu: str, seconds: float) -> None:
    """Note what the problem of a verification that failed gives today."""
    stage, message = asked(row["stage"], gpu, seconds, "--problem", row["problem"])
    verdict = stage["verification"]["verdict"] if stage else message
    row["again"] = {"commit": commit, "verdict": verdict}


def measure(chosen: argparse.Namespace) -> None:
    stop = time.monotonic() + chosen.seconds
    device = open_device("cuda")
    record = recorded.begin(device.info(), "verifications")
    if chosen.file.exists():
        record["verifications"] = recorded.read(chosen.file)["verifications"]
    rows, cards, commit = record["verifications"], gpus(), record["environment"]["commit"]
    free: queue.Queue[str] = queue.Queue()
    for number in range(chosen.processes):
        free.put(cards[number % len(cards)])

    def work(job: Callable[[str, float], object]) -> None:
        gpu = free.get()
        try:
            if (left := stop - time.monotonic()) > 0:
                job(gpu, left)
        finally:
            free.put(gpu)

    def keep(spec: str, examples: int, gpu: str, left: float) -> None:
        rows.append(verify(spec, examples, commit, gpu, left))

    jobs: list[Callable[[str, float], object]] = [partial(try_again, row, commit) for row in wrong(record)]
    fitting = {s.spec for s in registry.select(chosen.only) if s.misfit(device.architecture) is None}
    so_far = {spec: count for spec, count in problems(record).items() if spec in fitting}
    missing = {spec: chosen.problems - count for spec, count in so_far.items() if count < chosen.problems}
    first = sorted(missing, key=lambda spec: -missing[spec])
    jobs += [partial(keep, spec, -(-missing[spec] // chosen.turns)) for spec in first] * chosen.turns
    with concurrent.futures.ThreadPoolExecutor(chosen.processes) as pool:
        for number, _ in enumerate(pool.map(work, jobs)):
            if number % 20 == 0:
                recorded.save(record, chosen.file)
    recorded.save(record, chosen.file)
    print(summary(record))


def problems(record: recorded.Record) -> dict[str, int]:
    """Problems that were judged right of every stage, as its sources are now, in the order of the catalogue."""
    found = {}
    for name, operation in registry.operations().items():
        for stage in operation.stages:
            spec, today = f"{name}:{stage.name}", code(f"{name}:{stage.name}")
            rows = [row for row in record["verifications"] if row["stage"] == spec and row.get("code") == today]
            found[spec] = sum(row["problems"] for row in rows)
    return found


def wrong(record: recorded.Record) -> list[recorded.Record]:
    """Verifications that ended with another verdict than pass."""
    return [row for row in record["verifications"] if row["verdict"] not in ("", "pass", "unsupported")]


def summary(record: recorded.Record) -> str:
    """Problems a stage, an operation a line."""
    counts = problems(record)
    rows = []
    for name in registry.operations():
        found = [count for spec, count in counts.items() if spec.partition(":")[0] == name]
        rows.append([f"`{name}`", len(found), sum(found), min(found), max(found)])
    rows.append(["all", len(counts), sum(counts.values()), min(counts.values()), max(counts.values())])
    headers = ["operation", "stages", "problems", "fewest of a stage", "most of a stage"]
    return str(tabulate(rows, headers, tablefmt="pipe", intfmt=","))


def failure(row: recorded.Record) -> str:
    """A line on a verification that failed."""
    again = row.get("again")
    since = f" At `{again['commit'][:12]}`: {again['verdict']}." if again else " Not tried again yet."
    first = row["message"].partition("\n")[0]
    return f"- `{row['stage']}` at `{row['commit'][:12]}`, {row['verdict']}: `{row['problem']}`: {first}.{since}"


def page(record: recorded.Record) -> str:
    failed = wrong(record)
    said = "No verification failed."
    if failed:
        said = (
            f"{len(failed)} verifications failed, and ended there. The next measurement tries their problems again:\n\n"
            + "\n".join(map(failure, failed))
        )
    return (
        "# All stages verified at length\n\n"
        "Written by `benchmarks/verified.py` from [the JSON beside it](verified.json.gz). Every stage is given random "
        "problems, a part of them from each of several seeds; a problem is judged in every tier of its operation. "
        "Some are also solved twice, on other inputs in the same memory, and asked for the operation's invariants. "
        "Meanwhile the emulator looks for hazards of the stage on small problems. Counted are problems of stages whose "
        "code is that of today.\n\n"
        f"{recorded.made_on(record)}\n{summary(record)}\n\n## What failed\n\n{said}\n"
    )


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        problems={"type": int, "default": 2000, "help": "random problems of a stage"},
        seconds={"type": float, "default": 3600.0, "help": "when no other verification begins, and those left end"},
        turns={"type": int, "default": TURNS, "help": "verifications of a stage, more for a short measurement"},
        only={"nargs": "*", "default": [], "choices": list(registry.operations())},
        processes={"type": int, "default": os.cpu_count() or 1, "help": "verifications at a time"},
    )
