"""The page about what differs between the emulator and a device: tables of the record that a comparison left."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from known_differences import reason_of

from workbench.model import compact


def flushed_by(records: list[dict[str, Any]]) -> list[str]:
    """For each type that ``.ftz`` flushes, a sentence on the rule that the device follows."""
    kinds: dict[str, dict[str, int]] = {}
    for record in records:
        for rule, count in record.get("flushes", {}).items():
            types = re.findall(r"\.(f\d\w*)", record["operation"])
            kind = kinds.setdefault(" to ".join(types[::-1]), {})
            kind[rule] = kind.get(rule, 0) + count
    return [
        f"`.ftz` of {kind} flushes numbers that are subnormal "
        + ", ".join(f"{rule} in {count:,} results" for rule, count in rules.items())
        + ", of those that tell the rules apart."
        for kind, rules in sorted(kinds.items())
    ]


# -------------------------------------------------------------------------------------------------------------- report


def differences(records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The forms that differ, and those of them that do so for no reason that is known."""
    differing = [r for r in records if r["status"] not in AGREES]
    return differing, [r for r in differing if not reason_of(r)]


def report(options: argparse.Namespace) -> int:
    """A page of tables; 1 if a form differs for no reason that is known."""
    result = json.loads(Path(options.json).read_text())
    records = result["forms"]
    kept = {**result, "forms": [[r["operation"], r["body"], r["count"], r["status"]] for r in records]}
    differing, unexplained = differences(records)
    kept["differing"] = differing
    kept["flushes"] = {r["body"]: r["flushes"] for r in records if r.get("flushes")}
    compact.write(kept, Path(options.out).with_suffix(".json.gz"))
    made = result["environment"]
    by_status: dict[str, int] = {}
    for record in records:
        by_status[record["status"]] = by_status.get(record["status"], 0) + 1
    compared = sum(record["count"] for record in records)
    lines = [
        "# The emulator against the device",
        "",
        f"Commit `{made['commit'][:12]}`, {made['date'][:10]}; [what it is made from](differential.json.gz).",
        f"Device: {result['device']}. {len(records)} forms, {compared:,} results compared in {result['seconds']:g} s",
        "by `tests/emulator/differential.py`. Operands are random, with zeros, subnormals, infinities, NaNs, limits of",
        "integers and halves between numbers among them; for most forms pairs of such values meet. Any NaN counts as",
        "any other NaN.",
        "",
        "| outcome | forms |",
        "|---|---:|",
        *(f"| {REPORT_STATUS.get(status, status)} | {count} |" for status, count in sorted(by_status.items())),
        "",
    ]
    if differing:
        lines += ["## What differs", ""]
        lines += [f"{len(differing)} forms, {len(unexplained)} of them for no reason that is known.", ""]
        lines += ["| form | differ | of | example | reason |", "|---|---:|---:|---|---|"]
        lines += [difference_row(r) for r in differing]
        lines.append("")
    if rules := flushed_by(records):
        lines += ["## What is flushed", "", *(f"- {rule}" for rule in rules), ""]
    lines += [
        "## Instructions",
        "",
        "Errors of approximations are parts of the documented error (and half a unit in the last place, for the",
        "rounding of the result), those of sums are relative to the sum of the magnitudes added; both are against the",
        "exact result. Of all else every bit is compared. What the device's assembler refuses is only counted.",
        "",
        "| instruction | forms | results | outcome | error: device | emulator | documented | differ | refused |",
        "|---|---:|---:|---|---:|---:|---|---:|---:|",
        *family_rows(records),
        "",
    ]
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text("\n".join(lines))
    print(f"{len(differing)} forms differ, {len(unexplained)} unexplained: {options.out}")
    return 1 if unexplained else 0


AGREES = ("equal", "within", "rejected")
REPORT_STATUS = {
    "equal": "equal in every bit",
    "within": "approximations and sums within the documented error",
    "different": "different in some result",
    "error": "the device ends the launch with an error",
    "emulator failed": "the emulator cannot run it",
    "rejected": "refused by the device's assembler, known to the emulator alone",
}


def shown(text: str, length: int = 100) -> str:
    """Text for a cell of a table."""
    text = " ".join(text.replace("|", "\\|").split())
    return text if len(text) <= length else f"{text[: length - 3]}..."


def difference_row(record: dict[str, Any]) -> str:
    example = record["examples"][0] if record.get("examples") else {}
    words = [f"{key}: {', '.join(v) if isinstance(v, list) and key != 'place' else v}" for key, v in example.items()]
    seen = shown("; ".join(words) or record.get("error", ""), 160)
    name = shown(record["body"] if len(record["body"]) < 100 else f"{record['operation']} ({record['body'][:60]}...)")
    reason = reason_of(record) or "not known"
    return f"| `{name}` | {record.get('mismatches', '')} | {record['count']:,} | {seen} | {reason} |"


def family_of(operation: str) -> str:
    """The instruction that a form belongs to; approximations by the type as well."""
    operation = re.sub(r"^(load|store|reduce) ", "", operation)  # the name of a launch that ended with an error
    pattern = r"mma\.(sync|sp)|wgmma\.\w+(\.sp)?|(cp\.(reduce\.)?|st\.|red\.)async(\.bulk(\.tensor)?)?"
    if kept := re.match(pattern, operation):
        return kept[0]
    parts = operation.split(".")
    approximate = next((p for p in parts if p in ("approx", "full")), "")
    return f"{parts[0]}.{approximate} {parts[-1]}" if approximate else parts[0]


def family_rows(records: list[dict[str, Any]]) -> Iterator[str]:
    """One row for each instruction, and for each documented error of it."""
    families: dict[tuple[str, str], list[dict[str, Any]]] = {}
    bounded = {}
    for record in records:
        bounded.setdefault(family_of(record["operation"]), record.get("bound", ""))
    for record in records:
        name = family_of(record["operation"])
        aside = record["status"] in ("rejected", "error", "emulator failed")
        families.setdefault((name, bounded[name] if aside else record.get("bound", "")), []).append(record)
    for (name, bound), group in sorted(families.items()):
        tally = {status: sum(r["status"] == status for r in group) for status in REPORT_STATUS}
        inexact = [r for r in group if r["status"] == "within"]
        errors = [largest_error(inexact, side) for side in ("device", "emulator")]
        outcome = "within the bound" if inexact else "bit-equal" if tally["equal"] else ""
        differ = tally["different"] + tally["error"] + tally["emulator failed"]
        count = sum(r["count"] for r in group)
        cells = [
            f"`{name}`",
            f"{len(group)}",
            f"{count:,}",
            outcome,
            *errors,
            bound,
            f"{differ}",
            f"{tally['rejected']}",
        ]
        yield f"| {' | '.join(cells)} |"


def largest_error(records: list[dict[str, Any]], side: str) -> str:
    """As a part of the documented error for approximations, as a power of two for sums."""
    if parts := [r[f"{side}_part"] for r in records if f"{side}_part" in r]:
        return f"{max(parts):.2f} of it"
    if not records:
        return ""
    largest = max(r.get(f"{side}_error", 0.0) for r in records)
    return f"2^{np.log2(largest):.1f}" if largest else "0"
