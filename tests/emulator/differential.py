"""Every form in the emulator and on a CUDA device, on the same random operands, bit for bit.

    python tests/emulator/differential.py run --out differential.json   on a machine with a GPU
    python tests/emulator/differential.py report differential.json      writes reports/differential.md

Work is cut into groups, each in a process of its own, so that a launch that ruins the CUDA context costs only what it
was about: the group goes on behind it in a fresh process. ``--machine emulator`` compares the emulator with itself,
``--machine assembled`` as well, but only what ptxas accepts.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import forms as lane_forms
import memory_forms
import numpy as np
from batches import Batch, batch_of, grouped, operands_of
from case import Case, unequal
from cases import GROUPS, cases
from differential_report import differences, flushed_by, report
from form import Array, Form, Near
from lowered_names import LOWERED
from machines import Assembled, Cuda, Emulated, Machine, Rejected
from softfloat import BF16, F16, Format

from workbench.emulator import _engine
from workbench.records import environment

LANES, MEMORY = "lanes", "memory"
LANE_PARTS, MEMORY_PARTS = 24, 6
BATCH = 32
MACHINES: dict[str, Callable[[], Machine]] = {"cuda": Cuda, "emulator": Emulated, "assembled": Assembled}
EXACT = 4096
"""Operands for which an approximation is also compared with the exact result."""
TELLING = 512
"""Operands for which the rules of what ``.ftz`` flushes are compared with the device."""


def all_forms(kind: str) -> list[Form]:
    """The forms of single lanes that compute (``lanes``) or that reach memory (``memory``)."""
    found = []
    for name in [*(name for name, _ in _engine.operations()), *LOWERED]:
        computed = lane_forms.forms_of(name)
        found += computed if kind == LANES else [] if computed else memory_forms.forms_of(name)
    return found


def group_names() -> list[str]:
    """The groups that run in processes of their own."""
    return [
        *(f"{LANES} {n}" for n in range(LANE_PARTS)),
        *(f"{MEMORY} {n}" for n in range(MEMORY_PARTS)),
        *GROUPS,
    ]


def form_groups(name: str) -> list[list[Form]]:
    """The batches of one part of the forms."""
    kind, _, part = name.partition(" ")
    parts = LANE_PARTS if kind == LANES else MEMORY_PARTS
    forms = [form for form in all_forms(kind) if not form.newer]
    return grouped(forms, BATCH)[int(part) :: parts]


# ---------------------------------------------------------------------------------------------------------- comparison


def numbers_of(bits: Array, form: Format) -> Array:
    """Bit patterns of a format as doubles."""
    if form.bits == 64:
        return bits.astype(np.uint64).view(np.float64)
    if form == F16:
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    wide = bits.astype(np.uint32) << np.uint32(16) if form == BF16 else bits.astype(np.uint32)
    with np.errstate(invalid="ignore"):
        return wide.view(np.float32).astype(np.float64)


def elements(bits: Array, form: Format) -> Array:
    """The formats' elements in each result, as bit patterns [result][element]."""
    size = f"u{form.bits // 8}"
    return bits.view(size).reshape(len(bits), -1)


def is_nan(bits: Array, form: Format) -> Array:
    magnitude = bits & np.array(form.sign - 1, bits.dtype)
    return magnitude > np.array(form.infinity, bits.dtype)


def differing(first: Array, second: Array, form: Form) -> tuple[Array, int]:
    """Which results differ, and how many differ only in the bits of a NaN, which do not count."""
    different = first != second
    number = form.number
    if number is None or first.dtype.itemsize * 8 < number.bits:
        return different, 0
    a, b = elements(first, number), elements(second, number)
    nans = is_nan(a, number) & is_nan(b, number)
    wrong = ((a != b) & ~nans).any(1)
    return wrong, int((different & ~wrong).sum())


def unit(values: Array, form: Format) -> Array:
    """The distance from one number of a format to the next, at each value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log2(np.abs(values)))
    lowest = 1 - form.bias
    exponent = np.where(np.isfinite(exponent), np.maximum(exponent, lowest), lowest)
    return np.asarray(2.0 ** (exponent - form.fraction))


def far(found: Array, exact: Array, near: Near, operand: Array) -> tuple[Array, float, float]:
    """Which results (doubles) are further from the exact ones than they may be.

    Also the largest error in units in the last place, and as a part of what is allowed.
    """
    step = unit(exact, near.form)
    with np.errstate(invalid="ignore"):
        allowed = np.maximum(near.absolute, np.maximum(near.relative * np.abs(exact), near.ulp * step)) + step / 2
        error = np.abs(found - exact)
    finite = np.isfinite(found) & np.isfinite(exact)
    inside = (np.abs(operand) >= near.low) & (np.abs(operand) <= near.high) | np.isnan(operand)
    same_kind = (np.isnan(found) & np.isnan(exact)) | (found == exact)
    largest = numbers_of(np.array([near.form.largest]), near.form)[0]  # an infinity counts as the number after it
    beyond = np.isinf(found) & np.isfinite(exact) & (np.sign(found) == np.sign(exact))
    with np.errstate(invalid="ignore", over="ignore"):
        same_kind |= beyond & (largest - np.abs(exact) + unit(largest, near.form) <= allowed)
    wrong = np.where(finite, error > allowed, ~same_kind) & inside
    counted = finite & inside & (error > 0)
    if not counted.any():
        return wrong, 0.0, 0.0
    with np.errstate(divide="ignore"):  # of the smallest doubles half a unit is zero
        return wrong, *(float((error[counted] / of[counted]).max()) for of in (step, allowed))


def examples(
    form: Form, arrays: Sequence[Array], wrong: Array, results: dict[str, list[Array]]
) -> list[dict[str, Any]]:
    found = []
    for index in np.flatnonzero(wrong)[:4]:
        row = {"operands": [hex(int(a[index])) for a in arrays]}
        row.update({name: [hex(int(o[index])) for o in outputs] for name, outputs in results.items()})
        found.append(row)
    return found


def compare_form(form: Form, arrays: Sequence[Array], emulated: list[Array], device: list[Array]) -> dict[str, Any]:
    """The record of one form."""
    record: dict[str, Any] = {"operation": form.operation, "body": " ".join(form.body.split()), "count": len(arrays[0])}
    both = {"emulator": emulated, "device": device}
    if form.flushes:
        record["flushes"] = rules_followed(form, arrays, device[0])
    if form.near is None:
        wrong, nans = np.zeros(len(arrays[0]), bool), 0
        for a, b in zip(emulated, device, strict=True):
            different, ignored = differing(a, b, form)
            wrong, nans = wrong | different, nans + ignored
        record.update(mismatches=int(wrong.sum()), nan_bits=nans, status="different" if wrong.any() else "equal")
        if wrong.any():
            record["examples"] = examples(form, arrays, wrong, both)
        return record
    count = min(EXACT, len(arrays[0]))
    rows = zip(*(a[:count].tolist() for a in arrays), strict=True)
    exact = np.array([form.define(*row) for row in rows], np.uint64).astype(emulated[0].dtype)
    near = form.near
    operand = numbers_of(elements(arrays[-1][:count], near.form), near.form)
    values = {n: numbers_of(elements(o[0][:count], near.form), near.form) for n, o in both.items()}
    true = numbers_of(elements(exact, near.form), near.form)
    wrong = np.zeros(count, bool)
    for name, found in values.items():
        beyond, worst, part = far(found, true, near, operand)
        record[f"{name}_part"] = round(part, 3)
        record[f"{name}_ulp"] = round(worst, 3)
        record[f"{name}_beyond"] = int(beyond.sum())
        wrong |= beyond.any(1)
    same, nans = differing(emulated[0], device[0], form)
    record.update(
        mismatches=int(wrong.sum()),
        unequal=int(same.sum()),
        nan_bits=nans,
        status="different" if wrong.any() else "within",
    )
    record["bound"] = bound_text(near)
    if wrong.any():
        record["examples"] = examples(form, [a[:count] for a in arrays], wrong, {**both, "exact": [exact]})
    return record


def rules_followed(form: Form, arrays: Sequence[Array], device: Array) -> dict[str, int]:
    """How many of the device's results follow each rule of what ``.ftz`` flushes, among those that tell."""
    drawn = np.r_[: min(TELLING, len(device)), -min(TELLING, len(device) // 8) : 0]  # special or drawn for it
    rows = zip(*(a[drawn].tolist() for a in arrays), strict=True)
    by_rule = [[define(*row) for define in form.flushes.values()] for row in rows]
    telling = [(r, d) for r, d in zip(by_rule, device[drawn].tolist(), strict=True) if len(set(r)) > 1]
    return {rule: sum(r[n] == d for r, d in telling) for n, rule in enumerate(form.flushes)} if telling else {}


def bound_text(near: Near) -> str:
    parts = [f"{near.ulp:g} ulp"] if near.ulp else []
    parts += [
        f"{kind} 2^{np.log2(e):.4g}" for kind, e in (("absolute", near.absolute), ("relative", near.relative)) if e
    ]
    return ", ".join(parts)


def compare_case(case: Case, emulated: list[Array], device: list[Array]) -> dict[str, Any]:
    """The record of one launch; errors of sums are relative to the magnitudes that were added."""
    record: dict[str, Any] = {"operation": case.operations[0], "body": case.name, "operations": case.operations}
    count = mismatches = 0
    shown: list[dict[str, Any]] = []
    for number, (a, b, exact) in enumerate(zip(emulated, device, case.expected, strict=True)):
        if exact is None and a.tobytes() == b.tobytes():
            continue
        count += a.size
        if number in case.near:
            scale, bound = case.near[number]
            wide = [np.asarray(x, np.float64) for x in (a, b, exact)]
            safe = np.maximum(scale, 1e-300)
            wrong = np.zeros(a.shape, bool)
            for name, found in zip(("emulator", "device"), wide, strict=False):
                error = np.abs(found - wide[2]) / safe
                record[f"{name}_error"] = max(record.get(f"{name}_error", 0.0), float(error.max()))
                wrong |= ~(error <= bound)
            record["bound"] = f"2^{np.log2(bound):g} of the sum of magnitudes"
            record["unequal"] = record.get("unequal", 0) + int((a != b).sum())
        else:
            wrong = unequal(a, b)
        mismatches += int(wrong.sum())
        for place in np.argwhere(wrong)[:3]:
            where = tuple(int(p) for p in place)
            known = None if exact is None else str(exact[where])
            shown.append(
                {"array": number, "place": where, "emulator": str(a[where]), "device": str(b[where]), "defined": known}
            )
    record.update(
        count=count, mismatches=mismatches, status="different" if mismatches else "within" if case.near else "equal"
    )
    if shown:
        record["examples"] = shown[:6]
    return record


# ----------------------------------------------------------------------------------------------------------- execution


def run_batch(left: list[Form], count: int, seed: int, machine: Machine, emulated: Machine) -> Iterator[dict[str, Any]]:
    """Records of forms with the same operands; those that the assembler of the device refuses are left out."""
    while left:
        arrays = operands_of(left[0], count, seed)
        batch = batch_of(left, arrays)
        yield {"running": [key_of(form) for form in left]}
        try:
            device = machine.run(batch.kernel)
        except Rejected as refusal:
            refused = refused_forms(batch, refusal)
            if not refused and len(left) > 1:  # it does not say where: look in halves
                half = len(left) // 2
                for part in (left[:half], left[half:]):
                    yield from run_batch(part, count, seed, machine, emulated)
                return
            for form, message in refused or [(left[0], str(refusal))]:
                yield refusal_record(form, "rejected", message)
            names = {key_of(form) for form, _ in refused or [(left[0], "")]}
            left = [form for form in left if key_of(form) not in names]
            continue
        try:
            known = emulated.run(batch.kernel)
        except Exception as error:  # one form spoils the batch in the emulator: find it
            if len(left) == 1:
                yield refusal_record(left[0], "emulator failed", str(error))
                return
            half = len(left) // 2
            for part in (left[:half], left[half:]):
                yield from run_batch(part, count, seed, machine, emulated)
            return
        for place, form in enumerate(left):
            yield compare_form(form, arrays, batch.outputs(place, known), batch.outputs(place, device))
        return


def key_of(form: Form) -> str:
    return f"{form.operation} | {' '.join(form.body.split())}"


def refusal_record(form: Form, status: str, message: str) -> dict[str, Any]:
    body = " ".join(form.body.split())
    return {"operation": form.operation, "body": body, "status": status, "error": message[:400], "count": 0}


def refused_forms(batch: Batch, refusal: Rejected) -> list[tuple[Form, str]]:
    """Forms on the lines that the assembler complains about."""
    lines = batch.kernel.text.splitlines()
    found: dict[str, tuple[Form, str]] = {}
    for number, message in re.findall(r"line (\d+); error\s*: ([^\n]*)", str(refusal)):
        text = lines[int(number) - 1].strip() if int(number) <= len(lines) else ""
        for form, scope in zip(batch.forms, batch.scopes, strict=True):
            if scope == text:
                found.setdefault(key_of(form), (form, message))
    return list(found.values())


def run_group(
    name: str, count: int, size: int, machine: Machine, done: set[str], alone: set[str]
) -> Iterator[dict[str, Any]]:
    """Records of a group, a line before each piece that says what is running; ``done`` is left out.

    Forms of ``alone`` get a kernel of their own.
    """
    emulated = Emulated()
    if name not in GROUPS:
        for batch_forms in form_groups(name):
            left = [form for form in batch_forms if key_of(form) not in done]
            single = [[form] for form in left if key_of(form) in alone]
            for part in [[form for form in left if key_of(form) not in alone], *single]:
                yield from run_batch(part, count, 1, machine, emulated)
        return
    for case in cases(name, size):
        if case.name in done:
            continue
        yield {"running": [case.name]}
        record = {"operation": case.operations[0], "body": case.name, "operations": case.operations, "count": 0}
        try:
            device = machine.run(case.kernel)
        except Rejected as refusal:
            yield {**record, "status": "rejected", "error": str(refusal)[:600]}
            continue
        try:
            known = emulated.run(case.kernel)
        except Exception as error:
            yield {**record, "status": "emulator failed", "error": str(error)[:600]}
            continue
        yield compare_case(case, known, device)


def work(options: argparse.Namespace) -> None:
    """A process of its own: records of one group, a line of JSON each."""
    machine: Machine = MACHINES[options.machine]()
    plan = json.loads(Path(options.plan).read_text()) if options.plan else {"done": [], "alone": []}
    with Path(options.out).open("a") as out:
        try:
            for record in run_group(
                options.group, options.count, options.size, machine, set(plan["done"]), set(plan["alone"])
            ):
                out.write(json.dumps(record) + "\n")
                out.flush()
        except Exception as error:
            out.write(json.dumps({"failed": f"{type(error).__name__}: {error}"[:600]}) + "\n")
            raise


def record_key(record: dict[str, Any]) -> str:
    return record["body"] if "operations" in record else f"{record['operation']} | {record['body']}"


def supervise(name: str, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """All records of a group, in as many processes as it takes. What ends a process is tried alone, then given up."""
    records: dict[str, dict[str, Any]] = {}
    lines = folder / f"{name.replace(' ', '_')}.jsonl"
    alone: set[str] = set()
    for _ in range(40):
        plan = folder / f"{lines.stem}.plan.json"
        plan.write_text(json.dumps({"done": [*records], "alone": [*alone]}))
        lines.unlink(missing_ok=True)
        arguments = ["work", "--group", name, "--out", str(lines), "--plan", str(plan)]
        arguments += ["--count", str(options.count), "--size", str(options.size), "--machine", options.machine]
        message = ""
        try:
            process = subprocess.run(
                [sys.executable, __file__, *arguments], capture_output=True, text=True, timeout=options.timeout
            )
            code = process.returncode
            message = process.stderr[-300:]
        except subprocess.TimeoutExpired:
            code, message = 1, f"no end after {options.timeout} s"
        running: list[str] = []
        for line in lines.read_text().splitlines() if lines.exists() else []:
            entry = json.loads(line)
            if "running" in entry:
                running = entry["running"]
            elif "failed" in entry:
                message = entry["failed"]
            else:
                records[record_key(entry)] = entry
        if code == 0:
            break
        suspects = [key for key in running if key not in records]
        if not suspects:
            records[f"group {name}"] = {
                "operation": name,
                "body": f"group {name}",
                "status": "error",
                "error": message,
                "count": 0,
            }
            break
        if len(suspects) > 1:  # one of them spoilt the kernel of all
            alone.update(suspects)
            continue
        for key in suspects:
            operation, _, body = key.partition(" | ")
            records[key] = {
                "operation": operation,
                "body": body or key,
                "status": "error",
                "error": message,
                "count": 0,
            }
    for record in records.values():
        record["group"] = name
    return list(records.values())


def run(options: argparse.Namespace) -> int:
    """All groups, some at a time; writes one JSON file. 1 if a form differs for no reason that is known."""
    begin = time.perf_counter()
    names = [n for n in group_names() if not options.only or any(o in n for o in options.only)]
    names.sort(key=lambda n: n.split()[0] in (LANES, MEMORY))  # the longest first: what is not cut in parts
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda name: supervise(name, options, Path(folder)), names))
    records = [record for part in found for record in part]
    result = {
        "environment": asdict(environment.describe()),
        "device": device_name(options.machine),
        "operands": options.count,
        "seconds": round(time.perf_counter() - begin, 1),
        "forms": sorted(records, key=lambda r: (r["operation"], r["body"])),
    }
    Path(options.out).write_text(json.dumps(result, indent=1))
    tally: dict[str, int] = {}
    for record in records:
        tally[record["status"]] = tally.get(record["status"], 0) + 1
    print(f"{len(records)} forms in {result['seconds']} s: {tally}", *flushed_by(records), sep="\n")
    differing, unexplained = differences(records)
    for record in differing[:60]:
        print(record["status"], record["body"][:100], record.get("mismatches", ""), str(record.get("error", ""))[:120])
    print(f"{len(differing)} forms differ, {len(unexplained)} unexplained: {options.out}")
    return 1 if unexplained else 0


def device_name(machine: str) -> str:
    if machine != "cuda":
        return "the emulator"
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return f"{properties['name'].decode()}, CUDA driver {cupy.cuda.runtime.driverGetVersion()}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "work"):
        command = commands.add_parser(name)
        command.add_argument("--out", required=True)
        command.add_argument("--count", type=int, default=32768, help="operands of a form; a multiple of 256")
        command.add_argument(
            "--size", type=int, default=16, help="how many times the data of a test in launches of warps"
        )
        command.add_argument("--machine", choices=[*MACHINES], default="cuda")
    commands.choices["run"].add_argument("--jobs", type=int, default=12)
    commands.choices["run"].add_argument("--timeout", type=float, default=150)
    commands.choices["run"].add_argument("--only", action="append", help="groups whose names contain this")
    commands.choices["work"].add_argument("--group", required=True)
    commands.choices["work"].add_argument("--plan", help="a JSON file of what is done, and of what must run alone")
    command = commands.add_parser("report")
    command.add_argument("json")
    command.add_argument("--out", default="reports/differential.md")
    options = parser.parse_args(arguments)
    if options.command == "work":
        work(options)
        return 0
    return run(options) if options.command == "run" else report(options)


if __name__ == "__main__":
    raise SystemExit(main())
