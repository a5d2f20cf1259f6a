"""A verification in words: one line when it went well, the whole evidence when it did not."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from ..model.errors import shown
from ..model.origin import SOURCES
from ..model.results import Failure, Run, Untested, Verdict, Verification
from ..model.stage import Stage
from ..records.versions import failure_id
from ..toolchain.compiler import sources_of
from . import derived, frame

if TYPE_CHECKING:
    from pandas import DataFrame


def failed(verification: Verification) -> bool:
    """Whether something is wrong. A stage that merely does not support what was asked has not failed."""
    return verification.verdict is not Verdict.PASS and not (
        verification.verdict is Verdict.UNSUPPORTED and verification.failure is None
    )


def passed(run: Run) -> bool:
    """Whether something was verified, and nothing failed."""
    verdicts = [s.verification for s in run.stages]
    return any(v.verdict is Verdict.PASS for v in verdicts) and not any(failed(v) for v in verdicts)


def unsupported_reasons(verification: Verification) -> str:
    """Why problems were not taken, most frequent reason first."""
    ordered = sorted(verification.unsupported.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(reason for reason, _ in ordered)


def tiers(counts: Mapping[str, int]) -> str:
    """Comparisons in each tier: `exact 50, bounded 50`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), reverse=True)) or "-"


def published(stage: Stage[Any], message: str) -> str:
    """The message as a record has it: where the checkout lies on this machine is nobody's business."""
    for folder in sorted((str(sources_of(stage).parent), str(SOURCES.parent)), key=len, reverse=True):
        message = message.replace(f"{folder}{os.sep}", "")
    return message


def publish(stage: Stage[Any], verification: Verification) -> None:
    """Make the failure, and what is untested, what a record may hold."""
    for one in verification.untested:
        one.file = published(stage, one.file)
    if (failure := verification.failure) is None:
        return
    failure.message = published(stage, failure.message)
    for hazard in failure.hazards:
        hazard.message = published(stage, hazard.message)
        hazard.file, hazard.other_file = published(stage, hazard.file), published(stage, hazard.other_file)


NOT_OF_A_PROBLEM = (
    Verdict.COMPILE_ERROR,
    Verdict.WEAK_CHECK,
    Verdict.OPERATION_ERROR,
    Verdict.TAMPERING,
    Verdict.UNSUPPORTED,
    Verdict.UNTESTED,
)
"""Failures that another verification finds whatever it tries first; the problems of others are kept."""


def problem_line(failure: Failure) -> list[str]:
    """The problem that failed; of a check that is too weak, the message names what it was tried on."""
    if failure.verdict is Verdict.WEAK_CHECK:
        return []
    return [f"{'smallest failing' if failure.smallest else 'failing'} problem: {failure.problem}"]


def explain(spec: str, verification: Verification, kept: bool = False) -> str:
    """Everything known about a failure: verdict, problem, message, wrong elements, how to see it again.

    `kept`: its problem is kept, and can be asked for by its id."""
    failure = verification.failure
    if failure is None:
        return shown(f"{spec}: {verification.verdict} ({unsupported_reasons(verification) or 'no problem was tried'})")
    parts = [f"{spec}: {failure.verdict}", *problem_line(failure), failure.message.rstrip()]
    if failure.looks_like:
        parts += [f"looks like: {failure.looks_like}", failure.map]
    if failure.wrong:
        parts.append(wrong_elements(failure, "simple"))
        if failure.wrong_count > len(failure.wrong):
            parts.append(f"... and {failure.wrong_count - len(failure.wrong):,} more wrong elements")
    if failure.replay:
        parts.append(f"replay: {failure.replay}")
    if kept and failure.verdict not in NOT_OF_A_PROBLEM:
        parts.append(f"kept as {(name := failure_id(spec, failure.problem))}: workbench replay {name}")
    return shown("\n".join(parts))


MOST_UNTESTED, TELLING = 3, 10
"""Conditions that are shown of a stage that has passed, and the fewest problems of which they are."""


def untested(spec: str, verification: Verification) -> str:
    """The conditions of a stage that has passed which no problem has tried both ways, in a few lines; those of bounds
    are left out. Empty where there are none, and for a few problems, which try hardly anything both ways."""
    found = [one for one in verification.untested if not one.is_bound and verification.problems >= TELLING]
    lines = [f"  {sentence(one, verification.problems)}" for one in found[:MOST_UNTESTED]]
    if len(found) > MOST_UNTESTED:
        lines.append(f"  and {len(found) - MOST_UNTESTED} more, which --json lists")
    return shown("\n".join([f"{spec}: not every condition was tried both ways", *lines])) if found else ""


def sentence(one: Untested, problems: int) -> str:
    """`kernel.cu:14: argument 2 == 12345 was never true in 50 problems`."""
    return f"{one.file}:{one.line}: `{one.text}` was {one.outcome} in {problems} problems"


def wrong_elements(failure: Failure, table_format: str) -> str:
    """The first wrong elements as a table in one of tabulate's formats."""
    rows = [
        (f"{e.output}[{', '.join(map(str, e.index))}]", e.got, e.expected, f"{e.bound:.3g}" if e.bound else "equal")
        for e in failure.wrong
    ]
    headers = ("element", "got", "expected", "permitted error")
    align = ("left", "right", "right", "right")
    return str(tabulate(rows, headers, tablefmt=table_format, disable_numparse=True, colalign=align))


Cells = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]
"""Headers and rows of a table, as text."""


def verification_cells(run: Run) -> Cells:
    """Headers, and one line a stage, its verdict second. Where every problem is supported, no column says so."""
    headers: tuple[str, ...]
    headers = ("stage", "verdict", "problems", "by tier", "not supported", "worst error / bound", "seconds")
    rows: list[tuple[str, ...]] = [
        (
            f"{s.operation}:{s.stage}",
            str(s.verification.verdict),
            str(s.verification.problems or "-"),
            tiers(s.verification.tiers),
            str(sum(s.verification.unsupported.values())),
            f"{s.verification.worst_error:.3f}" if s.verification.tiers.get("bounded") else "-",
            f"on {s.verification.date[:10]}" if s.verification.date else f"{s.verification.seconds:.1f}",
        )
        for s in run.stages
    ]
    if not any(s.verification.unsupported for s in run.stages):
        left_out = headers.index("not supported")
        headers = headers[:left_out] + headers[left_out + 1 :]
        rows = [row[:left_out] + row[left_out + 1 :] for row in rows]
    return headers, rows


def timing_cells(rows: DataFrame, metric: str) -> Cells:
    """Headers, and one line a stage or other implementation that was timed on this problem."""
    cells = [
        (
            row.shown,
            derived.duration(row.time_us),
            derived.duration(row.sustained_us),
            derived.three_digits(getattr(row, frame.column(metric))),
            derived.percent(row.of_vendor),
            derived.percent(row.of_roofline),
            derived.times(row.gain),
        )
        for row in frame.only(rows, frame.STAGE, frame.OTHER).itertuples()
    ]
    return ("stage", "cold", "sustained", metric, "of vendor", "of roofline", "gain"), cells
