"""Makes `reports/faults.md`: every fault of the four catalogues, judged by the workbench in the emulator and on a GPU.

    python tests/faults/harness_report.py emulator           # into reports/faults.json
    python tests/faults/harness_report.py cuda OUTPUT.json   # on a machine with a GPU: into a file of its own
    python tests/faults/harness_report.py take OUTPUT.json   # takes that over into reports/faults.json
    python tests/faults/harness_report.py write              # the page, made of reports/faults.json and nothing else

Faults are judged in child processes: times one after the other while nothing else runs, then the others, several at a
time. A child that hangs or dies costs the fault that it was at, and another one goes on; each result is saved at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import unharmed
from catalogue import CATALOGUE
from harness_planting import HarnessFault
from planting import Outcome, PlantedFault, emulated
from tabulate import tabulate
from wrong_diagnoses import WRONG_DIAGNOSES
from wrong_results import WRONG_RESULTS
from wrong_times import ON_A_CLOCK, TIMES

from workbench import harness
from workbench.checks.hazards import ANSWERS, BY_LUCK
from workbench.devices import Device, open_device
from workbench.model import compact
from workbench.records import environment

REPORTS = Path(__file__).parents[2] / "reports"
RECORD, PAGE = "faults.json", "faults.md"

FAULTS: dict[str, PlantedFault | HarnessFault] = {
    fault.key: fault for fault in (*CATALOGUE, *WRONG_RESULTS, *TIMES, *WRONG_DIAGNOSES)
}

SHRINK_SECONDS = 3.0
"""Longest search for a smaller failing problem on a GPU: which problem it is matters little here."""

KEPT = 1500
"""Characters of a message that are kept."""

MARK = "RESULT "
LOST = "lost"

Record = dict[str, Any]

# ------------------------------------------------------------------------------------------------- in the child


def judge_all(kind: str, keys: Sequence[str]) -> None:
    """Judges faults one after the other and prints what comes of each, on a line of its own."""
    if kind == "cuda":
        harness.SHRINK_SECONDS = SHRINK_SECONDS
        device = small = open_device("cuda")
    else:
        device, small = open_device("emulator", isolate=True), emulated()
    info = device.info()
    _say({"device": {"name": info.name, "driver": info.driver}})
    for key in keys:
        fault = FAULTS[key]
        started = time.monotonic()
        outcome, found = judged(fault, small if isinstance(fault, PlantedFault) else device)
        _say(
            {
                "key": key,
                "verdict": str(outcome.verdict),
                "found": found,
                "message": without_folders(outcome.message)[:KEPT],
                "seconds": round(time.monotonic() - started, 1),
            }
        )


def judged(fault: PlantedFault | HarnessFault, device: Device) -> tuple[Outcome, bool]:
    """What comes of a fault, and whether that is what has to come of it; never fails."""
    try:
        outcome = fault.judge(device)
    except Exception:
        return Outcome("error", traceback.format_exc(limit=-3)), False
    return outcome, fault.found_by(outcome, on_gpu=device.name == "cuda")


def without_folders(message: str) -> str:
    """The message with the names of files alone: where they lie on this machine is nobody's business."""
    return re.sub(r"(?<![\w.])/(?:[\w.-]+/)+(?=[\w.-])", "", message)


def _say(result: Record) -> None:
    print(MARK + json.dumps(result), flush=True)


# ------------------------------------------------------------------------------------------------ in the parent


def judge_in_children(
    kind: str, keys: Sequence[str], seconds: float, until: float, on: Callable[[Record], None]
) -> None:
    """Judges faults in a child, each in so many seconds; after one that it did not survive, another child goes on.

    Ends at the time `until`. `on` gets what the child says: the device, and the faults.
    """
    left = list(keys)
    while left and time.monotonic() < until:
        command = [sys.executable, __file__, "child", kind, *left]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        words: list[str] = []
        alarm = _alarm(process, seconds, until)
        for line in process.stdout:
            if not line.startswith(MARK):
                words = [*words[-5:], line]
                continue
            alarm.cancel()
            alarm = _alarm(process, seconds, until)
            result = json.loads(line.removeprefix(MARK))
            on(result)
            if result.get("key") in left:
                left.remove(result["key"])
        alarm.cancel()
        process.wait()
        if left and time.monotonic() < until:
            message = without_folders("".join(words)) or f"no answer in {seconds:.0f} s"
            on({"key": left.pop(0), "verdict": LOST, "found": False, "message": message[-KEPT:], "seconds": seconds})


def _alarm(process: subprocess.Popen[str], seconds: float, until: float) -> threading.Timer:
    """Ends the process, with those that it has started, after so many seconds or at the time `until`."""

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(max(0.1, min(seconds, until - time.monotonic())), end)
    timer.daemon = True
    timer.start()
    return timer


def judge_everything(
    kind: str, keys: Sequence[str], jobs: int, seconds: float, budget: float, save: Callable[[Record], None]
) -> Record:
    """The record of one device. `save` gets it whenever something is added."""
    record: Record = {"environment": asdict(environment.describe()), "device": {}, "results": []}
    order = list(FAULTS)
    lock = threading.Lock()
    until = time.monotonic() + budget

    def on(result: Record) -> None:
        with lock:
            if "device" in result:
                record["device"] = result["device"]
            else:
                record["results"].append(result)
                record["results"].sort(key=lambda r: order.index(r["key"]))
                print(f"{result['key']}: {result['verdict']}{'' if result['found'] else ', MISSED'}", flush=True)
            save(record)

    times = {fault.key for fault in TIMES}
    judge_in_children(kind, [key for key in keys if key in times], seconds, until, on)
    others = [key for key in keys if key not in times]
    with ThreadPoolExecutor(jobs) as pool:
        parts = [pool.submit(judge_in_children, kind, others[i::jobs], seconds, until, on) for i in range(jobs)]
    for part in parts:
        part.result()
    return record


def write(path: Path, record: Record) -> None:
    """Replaces the file in one step."""
    temporary = path.with_name(path.name + ".part")
    compact.write(record, temporary)
    temporary.replace(path)


# ------------------------------------------------------------------------------------------------------- the page


def page(record: Record) -> str:
    """The page as Markdown; the same record gives the same bytes."""
    emulator, gpu = record["emulator"], record.get("cuda")
    said = _by_key(emulator), _by_key(gpu)
    rows = [_row(fault, *(results.get(key) for results in said)) for key, fault in FAULTS.items()]
    headers = [
        "",
        "fault",
        "planted in",
        "emulator",
        gpu["device"]["name"] if gpu else "GPU",
        "first line of the message",
    ]
    return (
        "# Faults, and what the workbench says of them\n\n"
        "Made by `tests/faults/harness_report.py` from [the JSON beside it](faults.json). The faults are in "
        "[`catalogue.py`](../tests/faults/catalogue.py) (1 to 23: hand-written matrix products, asynchronous code for "
        "Hopper), [`wrong_results.py`](../tests/faults/wrong_results.py) (24 to 40: wrong results that a weak harness "
        "passes), [`wrong_times.py`](../tests/faults/wrong_times.py) (41 to 49: wrong times that a weak harness "
        "believes) and [`wrong_diagnoses.py`](../tests/faults/wrong_diagnoses.py) (50 to 59: faults that are easily "
        "given a wrong name).\n\n"
        f"- Emulator: {_circumstances(emulator)}\n- GPU: {_circumstances(gpu) if gpu else 'not run yet.'}\n\n"
        "A fault counts as found if it gets its verdict for the right reason: the message has its line, or the words "
        "that name it. A GPU names no hazard. There the emulator checks the kernel as well, and its finding has to be "
        "that of the fault. Messages are the emulator's; for 41 to 47 they are the GPU's.\n\n"
        + tabulate(rows, headers=headers, tablefmt="pipe", disable_numparse=True)
        + "\n\n"
        + "\n".join(f"- {note}" for note in _notes(*said))
        + "\n"
        + "".join(f"\n{section}" for section in unharmed.sections(record))
    )


def _by_key(record: Record | None) -> dict[str, Record]:
    return {result["key"]: result for result in record["results"]} if record else {}


def _circumstances(record: Record) -> str:
    ran, device, results = record["environment"], record["device"], record["results"]
    driver = f", driver {device['driver']}" if device["driver"] else ""
    found = sum(result["found"] for result in results)
    lucky = sum(map(_right, results))
    luck = f", {lucky} of them behind right answers, by the emulator" if lucky else ""
    commit = f"commit `{ran['commit'][:12]}`, {ran['date'][:10]}"
    return f"{device['name']}{driver}, {commit}: {found} of {len(FAULTS)} found{luck}."


def _row(fault: PlantedFault | HarnessFault, emulator: Record | None, gpu: Record | None) -> list[str]:
    by_clock = " (by a clock)" if fault.number in ON_A_CLOCK else ""
    of = gpu if fault.number in ON_A_CLOCK and gpu else emulator
    message = _headline(of["message"]) if of else ""
    return [str(fault.number), _escaped(fault.title), fault.where, _cell(emulator) + by_clock, _cell(gpu), message]


LONGEST = 220
"""Characters of a message on the page."""


def _headline(message: str) -> str:
    """The first line of a message, and what a wrong result looks like, for a cell of a table."""
    first, *others = message.splitlines() or [""]
    looks = [line for line in others if line.startswith("looks like: ")]
    text = "; ".join([first.rstrip(":"), *looks[:1]])
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return _escaped(text + "`" * (text.count("`") % 2))


def _escaped(text: str) -> str:
    """The text with nothing in it that Markdown takes for its own, but code."""
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"[*_]", r"\\\g<0>", parts[i]).replace("&", "&amp;").replace("<", "&lt;")
    return "`".join(parts).replace("|", "\\|")


def _right(result: Record) -> bool:
    """Whether the answers were right, and only the emulator saw the fault."""
    return bool(result["message"].startswith(BY_LUCK))


def _cell(result: Record | None) -> str:
    if result is None:
        return "not run"
    verdict = result["verdict"].replace("_", " ")
    if _right(result):
        verdict = f"right answers; in the emulator: {verdict}"
    elif answers := re.search(rf"^{ANSWERS}(\w+)", result["message"], re.MULTILINE):
        verdict = f"{answers[1].replace('_', ' ')}; in the emulator: {verdict}"
    return verdict if result["found"] else f"{verdict}, **not for its reason**"


def _notes(emulator: dict[str, Record], gpu: dict[str, Record]) -> list[str]:
    """Why a device does not show a fault."""
    notes = [
        "41 to 47 in the emulator: the emulator times nothing. `timing.bench` gets the samples of a synthetic device "
        "instead, which cheats by an exact amount ([`synthetic_clock.py`](../tests/faults/synthetic_clock.py)), and "
        "has to refuse them.",
        "46 on a GPU: the test cannot slow down the clock of the GPU. Instead, one kernel does its work three times, "
        "from the nineteenth launch on. For the others the GPU is idle, or has more work than its power limit allows. "
        "The clock that NVML reports has to reach the record.",
    ]
    if any(map(_right, gpu.values())):
        notes.append(
            "Right answers on the GPU: the order of the warps hid the fault, or the hardware does not need what is "
            "missing. Verification also solves a few small problems in the emulator, which names the fault."
        )
    return notes


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        judge_all(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description="Make reports/faults.md.")
    parser.add_argument("step", choices=("emulator", "cuda", "take", "write"))
    parser.add_argument("file", type=Path, nargs="?", help="what is made on the machine with the GPU")
    parser.add_argument("--keys", nargs="*", default=list(FAULTS), help="faults to judge; all of them by default")
    parser.add_argument("--jobs", type=int, default=max(1, environment.core_count() * 3 // 4))
    parser.add_argument("--seconds", type=float, default=45.0, help="limit of each fault")
    parser.add_argument("--budget", type=float, default=600.0, help="limit of everything, in seconds")
    parser.add_argument("--reports", type=Path, default=REPORTS)
    options = parser.parse_args()
    if options.step in ("cuda", "take") and options.file is None:
        parser.error("the file for the GPU's results is missing")
    kept = options.reports / RECORD
    record: Record = json.loads(kept.read_text()) if kept.exists() else {}
    how = options.keys, options.jobs, options.seconds, options.budget
    if options.step == "cuda":
        judge_everything("cuda", *how, lambda made: write(options.file, made))
    elif options.step == "emulator":
        judge_everything("emulator", *how, lambda made: write(kept, {**record, "emulator": made}))
    elif options.step == "take":
        write(kept, {**record, "cuda": json.loads(options.file.read_text())})
    else:
        (options.reports / PAGE).write_text(page(record))


if __name__ == "__main__":
    main()
