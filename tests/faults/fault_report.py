"""Makes `reports/emulator.md`: each planted fault, in the emulator and under compute-sanitizer on a GPU.

    python tests/faults/fault_report.py emulate             # the catalogue under ten seeds
    python tests/faults/fault_report.py verify              # every stage, 200 random problems
    python tests/faults/fault_report.py device OUTPUT.json  # takes over what on_gpu.py wrote, of all or some of them
    python tests/faults/fault_report.py write               # the page

The first three put what they saw into `reports/emulator.json`; the page is made of nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from catalogue import CATALOGUE
from on_gpu import TOOLS
from planting import MOST_WARP_INSTRUCTIONS, Outcome, PlantedFault, Scenario, judge
from scenarios import SCENARIOS
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices.emulated import EmulatedDevice
from workbench.harness import verify
from workbench.model import compact
from workbench.model.results import Verdict
from workbench.records import environment

REPORTS = Path(__file__).parents[2] / "reports"
RECORD, PAGE = "emulator.json", "emulator.md"
SEEDS = range(10)
Record = dict[str, Any]


# ------------------------------------------------------------------------------------------- what is recorded


def emulate(record: Record) -> None:
    """Every fault and every correct kernel under ten seeds."""
    device = EmulatedDevice(MOST_WARP_INSTRUCTIONS)
    record["environment"] = asdict(environment.describe())
    record["faults"] = [_emulated_fault(fault, device) for fault in CATALOGUE]
    record["correct"] = [_emulated_kernel(make, device) for make in SCENARIOS]


def _emulated_fault(fault: PlantedFault, device: EmulatedDevice) -> Record:
    outcomes = [judge(fault.planted, device, seed) for seed in SEEDS]
    found = [o for o in outcomes if fault.found_by(o)]
    return {
        "key": fault.key,
        "number": fault.number,
        "title": fault.title,
        "hazard": not set(fault.verdicts) <= {Verdict.MISMATCH, Verdict.COMPILE_ERROR},
        "kernel": fault.planted.name,
        "lines": fault.lines,
        "verdicts": dict(Counter(str(o.verdict) for o in outcomes)),
        "found": len(found),
        "at_line": sum(map(fault.at_its_line, found)),
        "seeds": len(outcomes),
        "why": fault.pending,
        "first": _first_line(found[0]) if found else "",
    }


def _first_line(outcome: Outcome) -> str:
    """The first line of a message, without the folder that the source lies in."""
    return re.sub(r"\S*/(?=[\w.]+\.cuh?\b)", "", outcome.message.partition("\n")[0])


def _emulated_kernel(make: Callable[[], Scenario], device: EmulatedDevice) -> Record:
    clean = sum(judge(make(), device, seed).verdict is Verdict.PASS for seed in SEEDS)
    return {"name": make.__name__, "kernel": make().name, "clean": clean, "seeds": len(SEEDS)}


def verify_stages(record: Record, examples: int, save: Callable[[], None]) -> None:
    """Verifies every stage on random problems, each stage from a seed of its own."""
    record["stages"] = []
    for seed, stage in enumerate(registry.stages(), start=1):
        result = verify(stage, EmulatedDevice(), examples=examples, seed=seed)
        entry = {"spec": stage.spec, "seed": seed, "problems": result.problems, "verdict": str(result.verdict)}
        entry["message"] = result.failure.message if result.failure else ""
        record["stages"].append({**entry, "seconds": round(result.seconds, 1)})
        save()
        print(f"{stage.spec}: {result.verdict}, {result.problems} problems, {result.seconds:.0f} s", flush=True)


def taken(before: Record, device: Record) -> Record:
    """What ran on a GPU, with what of `before` was not run again. Raises ValueError for another GPU, driver or tool."""
    if before and (differ := [k for k in device if k != "runs" and device[k] != before[k]]):
        told = "; ".join(f"{key}: {before[key]!r}, now {device[key]!r}" for key in differ)
        raise ValueError(f"these runs were made under other conditions, run the whole catalogue again: {told}")
    again = {(run["key"], run["tool"]) for run in device["runs"]}
    kept = [run for run in before.get("runs", []) if (run["key"], run["tool"]) not in again]
    return {**device, "runs": kept + device["runs"]}


# ----------------------------------------------------------------------------------------- what a tool has said

_SUMMARY = re.compile(r"^ (ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target application|Internal|No attachable)")
_PLACE = re.compile(r"([\w.]+\.cuh?):(\d+)")
_SHORT = (
    (re.compile(r"Invalid (\S+) (read|write|atomic) of size.*"), r"invalid \2 (\1)"),
    (re.compile(r"Race reported between.*"), "race"),
    (re.compile(r"Potential (\S+) hazard.*"), r"race (\1)"),
    (re.compile(r"Uninitialized (\S+) memory read.*"), r"uninitialised read (\1)"),
    (re.compile(r"Barrier error detected\. (.*)"), r"barrier: \1"),
    (re.compile(r"Host API memory access error.*"), "output never written"),
    (re.compile(r"Program hit .*"), "launch fails"),
)


def headlines(log: Iterable[str]) -> list[str]:
    """What a tool reports, shortened: one text for each of its reports, without the lines that go with it."""
    found = []
    for line in log:
        if not line.startswith(" ") or line.startswith("  ") or _SUMMARY.match(line):
            continue
        text = re.sub(r"^(Error|Warning|ERROR|WARNING|Info): ", "", line.strip())
        for pattern, short in _SHORT:
            if pattern.match(text):
                text = pattern.sub(short, text)
                break
        found.append(text)
    return found


def places(log: Iterable[str]) -> list[tuple[str, int]]:
    """Files and lines that a tool names."""
    return list(dict.fromkeys((name, int(line)) for text in log for name, line in _PLACE.findall(text)))


def _names_a_line(run: Mapping[str, Any], lines: list[list[list[Any]]]) -> bool:
    """Whether the tool names one of the lines that belong to the fault."""
    wanted = {(file, line) for alternatives in lines for file, line in alternatives}
    return bool(wanted & set(places(run["log"])))


def found_by_tool(run: Mapping[str, Any]) -> list[str]:
    """Reports of the kernel's fault; that a launch failed is no finding."""
    return [text for text in dict.fromkeys(headlines(run["log"])) if text != "launch fails"]


def _tool_cell(run: Mapping[str, Any] | None, lines: list[list[list[Any]]]) -> str:
    if run is None:
        return "not run"
    found = found_by_tool(run)
    if not found:
        return "hangs" if run["hung"] else "-"
    where = ", its line" if _names_a_line(run, lines) else ""
    return found[0].rstrip(".") + where + (", hangs" if run["hung"] else "")


def _alone_cell(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "not run"
    if run["hung"]:
        return "hangs"
    if (answer := run["answer"]).startswith("error"):
        found = re.search(r"CUDA_ERROR_\w+|cudaError\w+", answer)
        return found[0] if found else answer[:60]
    return "does not compile" if answer.startswith("does not compile") else f"{answer or 'dies'}"


# ------------------------------------------------------------------------------------------------------- the page


def page(record: Record) -> str:
    """The page as Markdown. Raises KeyError where the catalogue was not emulated yet."""
    parts = [_introduction(record), _faults(record), _correct(record)]
    if record.get("stages"):
        parts.append(_stages(record["stages"]))
    return "\n\n".join(parts) + "\n"


def _runs(record: Record) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(run["key"], run["tool"]): run for run in record.get("device", {}).get("runs", [])}


def _introduction(record: Record) -> str:
    ran, gpu = record["environment"], record.get("device")
    text = (
        "# What the emulator finds, and what compute-sanitizer finds\n\n"
        "Made by `tests/faults/fault_report.py` from [the JSON beside it](emulator.json). "
        "[`tests/faults/catalogue.py`](../tests/faults/catalogue.py) says what is planted, and where. The classes 1 to "
        "10 are faults of hand-written matrix products, and 11 to 23 are faults of asynchronous code for Hopper.\n\n"
        f"- Emulator: commit `{ran['commit'][:12]}`, {ran['date'][:10]}, every fault under {len(SEEDS)} seeds.\n"
    )
    if gpu:
        text += (
            f"- GPU: {gpu['gpu']}, driver {gpu['driver']}, compute-sanitizer: {gpu['sanitizer']}. Each kernel ran "
            f"once alone and once under each tool, and was killed after {gpu['seconds']:.0f} s.\n"
        )
    hazards, runs = [f for f in record["faults"] if f["hazard"]], _runs(record)
    rows: list[list[Any]] = [["emulator", sum(f["found"] > 0 for f in hazards), sum(f["at_line"] > 0 for f in hazards)]]
    for tool in TOOLS[1:]:
        done = [(runs[key], f["lines"]) for f in hazards if (key := (f["key"], tool)) in runs]
        found = [(run, lines) for run, lines in done if found_by_tool(run)]
        if done:
            rows.append([f"`{tool}`", len(found), sum(_names_a_line(*each) for each in found)])
    return (
        f"{text}\nOf the {len(record['faults'])} faults {len(hazards)} are hazards. The others only give a wrong "
        "result, or do not compile. The table counts the hazards that are found, and those named with their line:\n\n"
        + tabulate(rows, headers=["", "found", "at a line of it"], tablefmt="pipe")
    )


def _faults(record: Record) -> str:
    runs = _runs(record)
    rows = []
    for fault in record["faults"]:
        verdicts = ", ".join(
            v.replace("_", " ") for v in sorted(fault["verdicts"], key=lambda v: -fault["verdicts"][v])
        )
        line = "-" if not fault["lines"] else "yes" if fault["at_line"] == fault["found"] > 0 else "no"
        row = [
            fault["number"],
            fault["title"],
            f"`{fault['kernel']}`",
            verdicts,
            line,
            f"{fault['found']}/{fault['seeds']}",
        ]
        if runs:
            row.append(_alone_cell(runs.get((fault["key"], "none"))))
            row += [_tool_cell(runs.get((fault["key"], tool)), fault["lines"]) for tool in TOOLS[1:]]
        rows.append(row)
    headers = ["", "fault", "kernel", "emulator", "its line", "seeds"]
    headers += ["on the GPU", *TOOLS[1:]] if runs else []
    notes = [f"- {f['number']}, {f['title']}: {f['why']}." for f in record["faults"] if f["why"]]
    text = "## Planted faults\n\n"
    text += "A fault that only gives a wrong answer (`mismatch`) has no line. `-`: nothing was reported.\n\n"
    text += tabulate(rows, headers=headers, tablefmt="pipe")
    return text + ("\n\nNot found, or not under every seed:\n\n" + "\n".join(notes) if notes else "")


def _correct(record: Record) -> str:
    runs = _runs(record)
    rows = []
    for kernel in record["correct"]:
        row = [f"`{kernel['kernel']}`", f"{kernel['clean']}/{kernel['seeds']}"]
        if runs:
            key = f"correct-{kernel['name']}"
            row.append(_alone_cell(runs.get((key, "none"))))
            row += [_tool_cell(runs.get((key, tool)), []) for tool in TOOLS[1:]]
        rows.append(row)
    headers = ["kernel", "clean seeds", *(["on the GPU", *TOOLS[1:]] if runs else [])]
    return "## The same kernels without a fault\n\nEvery report in this table is a false alarm.\n\n" + tabulate(
        rows, headers=headers, tablefmt="pipe"
    )


def _stages(stages: list[Record]) -> str:
    rows = [[f"`{s['spec']}`", s["seed"], s["problems"], s["verdict"].replace("_", " "), s["seconds"]] for s in stages]
    total = sum(s["problems"] for s in stages)
    findings = sum(s["verdict"] != "pass" for s in stages)
    return (
        f"## All stages on random problems\n\n{total:,} problems, each in two tiers and some twice, in the emulator: "
        f"{findings or 'no'} finding{'' if findings == 1 else 's'}.\n\n"
        + tabulate(rows, headers=["stage", "seed", "problems", "verdict", "seconds"], tablefmt="pipe")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Make reports/emulator.md.")
    parser.add_argument("step", choices=("emulate", "verify", "device", "write"))
    parser.add_argument("file", type=Path, nargs="?", help="what on_gpu.py wrote")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--reports", type=Path, default=REPORTS)
    options = parser.parse_args()
    path = options.reports / RECORD
    record: Record = json.loads(path.read_text()) if path.exists() else {}

    def save() -> None:
        temporary = path.with_name(path.name + ".part")
        compact.write(record, temporary)
        temporary.replace(path)

    if options.step == "write":
        (options.reports / PAGE).write_text(page(record))
        return
    if options.step == "emulate":
        emulate(record)
    elif options.step == "verify":
        verify_stages(record, options.examples, save)
    else:
        if options.file is None:
            parser.error("the file that on_gpu.py wrote is missing")
        text = re.sub(r"/[\w./-]*/planted/\w+/", "", options.file.read_text())  # whose machine it was does not matter
        record["device"] = taken(record.get("device", {}), json.loads(text))
    save()


if __name__ == "__main__":
    main()
