"""Suites of kernels that others wrote, judged by `workbench emulate`: makes `reports/suites.md`.

    python benchmarks/suites.py measure OUTPUT.json --snapshots FOLDER [--suite NAME]   # goes on where it stopped
    python benchmarks/suites.py write [OUTPUT.json]     # the page, of that file and nothing else

FOLDER has clones of the public repositories that `suite_cases.SUITES` names. Nothing of them is kept but the names of
cases. Each case is a process of its own, which ends itself after a time limit. Programs of HeCBench are built with nvcc
and run by `workbench capture`. TritonBench needs PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import re
import resource
import signal
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import recorded
from suite_cases import NOT_EXECUTED, NOTES, PRELUDE, SUITES, Case, document_of
from tabulate import tabulate

from workbench.devices.emulated import EmulatedDevice
from workbench.records import environment

RECORD = Path(__file__).parents[1] / "reports/suites.json"
TOOLS = RECORD.with_name("suite-tools.json")
"""What `suite_tools.py` found of the same cases."""
OURS = "kernel-workbench"
SECONDS, WALL_SECONDS = 60, 900
OUTCOMES = ("found", "strict", "missed", "alarm", "clean", "not run")
"""Of faulty cases: named by an error, only by a strict finding, not at all. Of correct ones: blamed or not."""
FAULTY, RIGHT = ("found", "strict", "missed"), ("alarm", "clean", "clean")
"""What an error, a warning and nothing of another tool count as."""
ABOUT_TOOLS = (
    "`racecheck` looks at shared memory only, and at waits that never end: races in global memory are beyond it. "
    "`synccheck` looks at barriers and masks, `memcheck` at addresses, `initcheck` at what nothing has written; none "
    "of them looks for races. ConSan checks kernels of Triton and Gluon; it was not run, because the time on the GPU "
    "was used up. FpSan compares the numbers of two kernels and says nothing of one. The TIRx harness is for kernels "
    "in its own language, of which no suite has one. triton-viz interprets Triton on a CPU and was not run. So "
    "TritonBench is not in the table."
)


def refusal(message: str) -> str:
    """The sentence of a refusal that says why: a compiler's first error, and no path."""
    lines = message.splitlines()
    return re.sub(r"^\S*/", "", next((line for line in lines if re.search("error: |fatal", line)), lines[0])).strip()[
        :120
    ]


def findings_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a kernel, of a captured program, or of what a file of Triton launches."""
    launched = result.get("launches")
    reports = [one["report"] for one in launched if one["report"]] if isinstance(launched, list) else []
    found: list[dict[str, Any]] = list(result.get("host", []))
    for each in (result, *reports):
        found += each.get("findings", [])
    return found


def outcome(case: Case, documents: list[dict[str, Any]]) -> dict[str, Any]:
    """What the launches of a case say of it: a row of the record."""
    row: dict[str, Any] = {"case": case.name, "faulty": case.faulty}
    if case.left_out:
        return row | {"as": "not run", "said": case.left_out}
    said, strict = "", ""
    for document in documents:
        if document.get("error") and not document.get("result"):
            return row | {"as": "not run", "said": refusal(document["error"]["message"])}
        for finding in findings_of(document["result"]):
            if finding["code"] == "budget":
                return row | {"as": "not run", "said": "the launch takes too long"}
            places = [p["line"] for p in (finding.get("location"), finding.get("other")) if p]
            if finding["kind"] in case.kinds and finding["severity"] == "error":
                row["at"] = row.get("at", False) or not case.lines.isdisjoint(places)
                said = said or f"{finding['code']} at {places[0] if places else 0}"
            elif finding["kind"] in case.kinds:
                strict = strict or f"{finding['code']} at {places[0] if places else 0}"
    if not case.lines:
        row.pop("at", None)
    if case.faulty:
        return row | {"as": "found" if said else "strict" if strict else "missed", "said": said or strict}
    refused = [why for document in documents for why in document["result"].get("refused", [])]
    if refused and not said:
        return row | {"as": "not run", "said": refusal(refused[0])}
    if documents and documents[-1]["result"].get("launches", True) in ({}, []):
        return row | {"as": "not run", "said": "the program ends before it launches a kernel"}
    return row | {"as": "alarm" if said else "clean", "said": said or strict}


def _judge(case: Case, options: list[str], answer: Connection) -> None:
    """In a process of its own: the launches of a case, up to the first that finds what counts."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))  # each of the processor's time
    signal.alarm(WALL_SECONDS)
    documents = []
    if case.build:
        os.chdir(case.file.parent)
        built = subprocess.run(case.build, capture_output=True, text=True)
        if built.returncode:
            case = replace(case, left_out=refusal(built.stderr or "it is not built"), launches=())
    for launch in case.launches:
        command = [*launch] if case.build else ["emulate", str(case.file), *launch, *options]
        documents.append(document_of(command))
        if outcome(case, documents)["as"] in ("found", "alarm"):
            break
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    taken = round(sum(one.ru_utime + one.ru_stime for one in used), 2)
    answer.send(outcome(case, documents) | {"seconds": taken})


def judged(cases: Iterable[Case], options: list[str], jobs: int) -> Iterator[dict[str, Any]]:
    """The row of each case, in the order in which they end, with the seconds that its process has computed."""
    fork, waiting = multiprocessing.get_context("fork"), iter(cases)
    running: dict[Any, tuple[Case, Any]] = {}
    while True:
        for case in itertools.islice(waiting, jobs - len(running)):
            receiver, sender = fork.Pipe(duplex=False)
            process = fork.Process(target=_judge, args=(case, options, sender))
            process.start()
            sender.close()
            running[receiver] = (case, process)
        if not running:
            return
        ready: list[Any] = wait([*running])
        for receiver in ready:
            case, process = running.pop(receiver)
            row: dict[str, Any] = {"case": case.name, "faulty": case.faulty, "as": "not run"}
            with receiver, contextlib.suppress(EOFError):
                row = receiver.recv()
            process.join()
            yield row if "said" in row else row | {"said": f"no answer within {SECONDS} s", "seconds": SECONDS}


def measure(chosen: argparse.Namespace) -> None:
    """Makes the record, or goes on with it. Ends the program where a snapshot is missing."""
    if chosen.file.exists():
        record = recorded.read(chosen.file)
    else:
        record = recorded.begin(EmulatedDevice().info()) | {"suites": {}}
    with tempfile.TemporaryDirectory() as folder:
        prelude = Path(folder) / "annotations.h"
        prelude.write_text(PRELUDE)
        first = Path(folder) / "first.cu"
        first.write_text("__global__ void first(int* a) { a[0] += a[threadIdx.x]; }")
        document_of(["emulate", str(first), "--grid=1", "--block=64", "--arg=i32[9]"])  # loads what all processes need
        for name in chosen.suite or SUITES:
            suite = SUITES[name]
            root = chosen.snapshots / suite.repository.rpartition("/")[2]
            if not root.is_dir():
                raise SystemExit(f"{root} is missing: clone https://github.com/{suite.repository} there")
            commit = subprocess.run(
                ["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
            ).stdout.strip()
            judged_by = environment.describe().commit
            kept = record["suites"].setdefault(name, {"commit": commit, "judged_by": judged_by, "rows": []})
            done = {row["case"] for row in kept["rows"]}
            made = Path(folder) / name
            made.mkdir()
            cases = list(suite.cases(root, made))
            kept["cases"] = len(cases)
            left = (case for case in cases if case.name not in done)
            options = [*suite.options, f"--option=--pre-include={prelude}"] if suite.options else []
            for row in judged(left, options, chosen.jobs):
                kept["rows"].append(row)
                kept["rows"].sort(key=lambda row: row["case"])
                recorded.save(record, chosen.file)
                print(name, *row.values(), flush=True)


def ratio(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def figures(rows: list[dict[str, Any]], not_executed: int = 0) -> list[Any]:
    """The cells of one suite: counts, recall, that without what is `not_executed`, precision, places that are right."""
    count = Counter(row["as"] for row in rows)
    found, strict, missed, alarm = (count[name] for name in OUTCOMES[:4])
    placed = [row["at"] for row in rows if row["as"] == "found" and "at" in row]
    return [
        len(rows),
        *(count[name] for name in OUTCOMES),
        ratio(found + strict, found + strict + missed),
        ratio(found + strict, found + strict + missed - not_executed),
        ratio(found, found + alarm),
        f"{sum(placed)} of {len(placed)}" if placed else "-",
    ]


def compared(
    record: dict[str, Any], made: dict[str, Any]
) -> Iterator[tuple[str, str, bool, bool, dict[str, list[Any]]]]:
    """Of each case that other tools were given: suite, name, whether it is faulty, whether its kernel has an array in
    shared memory, and by tool the outcome and the seconds."""
    for suite, runs in made["runs"].items():
        for row in record["suites"].get(suite, {"rows": []})["rows"]:
            if row["case"] not in runs:
                continue
            faulty, told = row["faulty"], dict(runs[row["case"]])
            words = dict(zip(("found", "warned", "nothing"), FAULTY if faulty else RIGHT, strict=True))
            shared = told.pop("shared")
            said = {tool: [words.get(one[0], "not run"), one[-1]] for tool, one in told.items()}
            seconds = row.get("seconds")
            late = seconds is not None and seconds > made["seconds"]
            yield suite, row["case"], faulty, shared, {OURS: ["not run" if late else row["as"], seconds], **said}


def beside(record: dict[str, Any], made: dict[str, Any]) -> str:
    """The part of the page on the tools of compute-sanitizer."""
    cases = list(compared(record, made))
    both = [one for one in cases if all(one[4].get(tool, ["not run"])[0] != "not run" for tool in (OURS, "racecheck"))]
    groups = {suite: [one for one in cases if one[0] == suite] for suite in made["runs"]} | {"all": cases}
    groups |= {"executed by both": both, "of them with shared memory": [one for one in both if one[3]]}
    table = []
    for name, group in groups.items():
        for tool in (OURS, *made["options"]):
            rows = [one[4].get(tool, ["not run", None]) for one in group]
            count, taken = Counter(row[0] for row in rows), [row[1] for row in rows if row[1] is not None]
            if count["not run"] < len(rows) and (name in made["runs"] or name == "all" or tool in (OURS, "racecheck")):
                seconds = f"{statistics.median(taken):.2f}" if taken else "-"
                table.append([name, tool, *(count[outcome] for outcome in OUTCOMES), seconds])
    left = sum(len(cases) - sum(tool in one[4] for one in cases) for tool in made["options"])
    looked = [
        [f"`{case}`", "wrong" if faulty else "right", told[OURS][0], said, NOTES.get(f"{suite}/{case}", "")]
        for suite, case, faulty, _, told in cases
        if (said := made["runs"][suite][case].get("racecheck", [""])[0]) in ("found", "warned")
        and told[OURS][0] != "found"
    ]
    options = [f"- `{tool}`: `{' '.join((made['common'], words)).strip()}`" for tool, words in made["options"].items()]
    return "\n".join(
        [
            "## Beside other tools\n",
            f"The {len(cases)} cases of CUDA that compile, under compute-sanitizer {made['sanitizer']} on an "
            f"{made['gpu'].replace(', ', ', driver ')}: the machine code, launches and arrays that the emulator is "
            "given, one process a case and a tool. Only messages about what a suite is about count. *strict* and, of "
            "correct cases, *clean* include those with a warning or a note only. *not run*: an error, no answer within "
            f"{made['seconds']:.0f} s, or not reached. Seconds are medians: of the tools those of a process beside 11 "
            "others, ours those that one core has computed.\n",
            ABOUT_TOOLS + f" {left} runs of the tools were not reached, most of `memcheck` and all of `initcheck`.\n",
            tabulate(table, ["suite", "tool", *OUTCOMES, "seconds"], "pipe") + "\n",
            "Where `racecheck` reports something and the emulator has no error:\n",
            tabulate(looked, ["case", "label", OURS, "racecheck", "who is right"], "pipe") + "\n",
            "Options:\n\n" + "\n".join(options) + "\n",
        ]
    )


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    suites = {name: record["suites"][name] for name in SUITES if name in record["suites"]}
    head = ["suite", "cases", *OUTCOMES, "recall", "executed", "precision", "at the line"]
    absent = {n: sum(f"{n}/{row['case']}" in NOT_EXECUTED for row in suites[n]["rows"]) for n in suites}
    table = [
        [f"[{n}](https://github.com/{SUITES[n].repository})", *figures(suites[n]["rows"], absent[n])] for n in suites
    ]
    every = [row for kept in suites.values() for row in kept["rows"]]
    table.append(["all", *figures(every, sum(absent.values()))])
    parts = [
        "# Suites that others wrote\n",
        "`workbench emulate` judges public suites whose authors say which kernels are wrong. *found*, *strict* and "
        "*missed* count the faulty ones, *alarm* and *clean* the correct ones. Recall counts strict findings; "
        "*executed* is recall of races in what is executed, without those that the compiler has removed and mutations "
        "that make none; precision is that of errors. *at the line*: findings where a suite marks the line, those that "
        "name it. "
        "Written by `benchmarks/suites.py` from [the JSON beside it](suites.json).\n",
        recorded.made_on(record),
        tabulate(table, head, "pipe") + "\n",
        beside(record, recorded.read(TOOLS)),
    ]
    for name, kept in suites.items():
        suite = SUITES[name]
        parts.append(
            f"## {name}\n\n{suite.about} Snapshot: commit `{kept['commit'][:12]}`, "
            f"judged by commit `{kept['judged_by'][:12]}`: {len(kept['rows'])} of {kept['cases']} cases.\n"
        )
        looked = [
            [f"`{row['case']}`", row["as"], row["said"] or "nothing", NOTES.get(f"{name}/{row['case']}", "")]
            for row in kept["rows"]
            if row["as"] in ("missed", "alarm")
        ]
        if looked:
            parts.append(tabulate(looked, ["case", "as", "said", "who is right"], "pipe") + "\n")
        reasons = Counter(row["said"] for row in kept["rows"] if row["as"] == "not run")
        if reasons:
            shown = [f"- {number}: {reason.replace(os.sep, ' ')}" for reason, number in reasons.most_common(12)]
            parts.append("Not run:\n\n" + "\n".join(shown) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    recorded.main(
        __doc__,
        RECORD,
        measure,
        page,
        snapshots={"type": Path, "default": Path("snapshots"), "help": "Folder of clones."},
        suite={"action": "append", "choices": [*SUITES], "help": "Only this one."},
        jobs={"type": int, "default": 2},
    )
