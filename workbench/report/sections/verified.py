"""What was verified, and what is known of failures."""

from __future__ import annotations

from collections.abc import Collection

from ...model.results import Run, StageResult, Verification
from ...records import store
from ..evidence import explain, failed, problem_line, tiers, wrong_elements
from ..markdown import fenced, one_line, table
from ..page import Page, alt, picture_name

REASONS = 4
"""Reasons for not taking problems that are written out for each stage."""


def verified(page: Page, pictures: Collection[str]) -> list[str]:
    worst_seed = ("worst error / bound", "seed")
    headers = ("stage", "verdict", "problems", "comparisons", "covered", "negative controls rejected", *worst_seed)
    rows: list[tuple[object, ...]] = []
    for s, run in page.entries:
        v = s.verification
        verdict = f"**{v.verdict}**" if failed(v) else str(v.verdict)
        covered = "; ".join(
            f"{field}: {', '.join(f'{value} {count}' for value, count in sorted(counts.items()))}"
            for field, counts in sorted(v.covered.items())
        )
        worst = f"{v.worst_error:.3f}" if v.tiers.get("bounded") else "-"
        counts = (problems(v, run), tiers(v.tiers), covered or "-", v.wrong_rejected or "-", worst, v.seed)
        rows.append((page.name(s.stage, run), verdict, *counts))
    rows += [(f"`{name}`", "not tried", *["-"] * (len(headers) - 2)) for name in page.missing()]
    where = "in the emulator" if page.newest.device.kind == "emulator" else "on the device"
    parts = [
        "## What was verified",
        f"Random problems were solved {where} and compared element by element with a float64 NumPy reference, before "
        "anything was timed. In the exact tier, inputs are small integers and results must be bit-equal. In the "
        "bounded tier, inputs have zero mean, and every element's error must be within its a-priori bound (1 in the "
        "column of errors). The comparison had to reject the answers of broken kernels (all zeros, a dropped term, the "
        "last row missing ...).",
        table(headers, rows, headers[2:3] + headers[5:]),
        *page.key(run for _, run in page.entries),
    ]
    earlier: dict[str, list[str]] = {}
    for s, _ in page.entries:
        if s.verification.date:
            earlier.setdefault(s.verification.date, []).append(f"`{s.stage}`")
    if earlier:
        said = "; ".join(f"{', '.join(stages)} on {date}" for date, stages in earlier.items())
        parts.append(f"Verified by an earlier run, of exactly this code on this device: {said}.")
    refused = [line for s, _ in page.entries for line in _refused(s)]
    if refused:
        parts += ["Some drawn problems were left out, because a stage does not support them:", "\n".join(refused)]
    for s, _ in page.entries:
        if failed(s.verification):
            parts += _failure(s, pictures)
    return [*parts, *_agreement(page)]


def problems(v: Verification, run: Run) -> str:
    """How many problems were solved, and of how many where the run had no time for as many as it asks for."""
    return f"{v.problems:,}" + (f" of {run.examples:,}" if 0 < v.examples < run.examples else "")


def _agreement(page: Page) -> list[str]:
    if page.agreement is None:
        return []
    rows = [
        (f"`{s.stage}`", f"{s.problems:,}", tiers(s.tiers), s.seed, s.disagreement or "they agree")
        for s in page.agreement.stages
        if s.operation == page.operation
    ]
    if not rows:
        return []
    made = page.agreement.environment
    compared = {s.stage for s in page.agreement.stages if s.operation == page.operation}
    others = [f"`{s.stage}`" for s, _ in page.entries if s.stage not in compared]
    parts = [
        "### The device and the emulator",
        "The same random problems were solved on this device and in the emulator: bit-equal results in the exact "
        f"tier, both within the bound in the other ([{store.AGREEMENT}]({store.AGREEMENT}), {made.date}, commit "
        f"`{made.commit[:12]}`" + (" with uncommitted changes)." if made.dirty else ")."),
        table(("stage", "problems", "agreeing comparisons", "seed", "outcome"), rows, ("problems", "seed")),
    ]
    return [*parts, f"Not compared in this way yet: {', '.join(others)}."] if others else parts


def _failure(s: StageResult, pictures: Collection[str]) -> list[str]:
    parts = [f"### `{s.operation}:{s.stage}` failed: {s.verification.verdict}"]
    failure = s.verification.failure
    if failure is None:
        return [*parts, fenced(explain(f"{s.operation}:{s.stage}", s.verification))]
    for line in problem_line(failure):
        parts.append(line[0].upper() + line[1:].replace(failure.problem, f"`{failure.problem}`"))
    parts.append(fenced(failure.message.rstrip()))
    if failure.looks_like:
        parts += [f"Looks like: {one_line(failure.looks_like)}", fenced(failure.map)]
    if picture_name(s) in pictures:
        parts.append(f"![{alt(picture_name(s))}]({picture_name(s)})")
    if failure.wrong:
        shown = f"The first {len(failure.wrong)} of {failure.wrong_count:,} wrong elements"
        parts += [f"{shown} ({failure.element_count:,} in all):", wrong_elements(failure, "pipe")]
    return [*parts, f"Replay: `{failure.replay}`"] if failure.replay else parts


def _refused(s: StageResult) -> list[str]:
    """Why a stage left problems out, the most frequent reasons first."""
    ordered = sorted(s.verification.unsupported.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"- `{s.stage}`: {one_line(reason)} ({count:,} drawn)" for reason, count in ordered[:REASONS]]
    if rest := ordered[REASONS:]:  # reasons that name sizes can be as many as the problems
        lines.append(f"- `{s.stage}`: {len(rest)} more such reasons ({sum(count for _, count in rest):,} drawn)")
    return lines
