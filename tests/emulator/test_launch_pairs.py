"""Faults between launches: each is named at both of its lines, and what mends it is clean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from launch_pairs import PAIRS, N, Pair

from workbench.emulator import Finding, Program, Session, load


def line_of(pair: Pair, mark: str) -> int | None:
    """The line with a mark, in the source as it is given to the compiler."""
    lines = source_of(pair).splitlines()
    return next((number for number, line in enumerate(lines, 1) if f"// {mark}" in line), None)


def source_of(pair: Pair) -> str:
    fix = "#ifdef FIXED\n#define FIX(...) __VA_ARGS__\n#else\n#define FIX(...)\n#endif\n"
    return f"constexpr int N = {N};\n{fix}{pair.source}"


def found(pair: Pair, program: Program, fixed: bool) -> list[Finding]:
    arrays = {name: np.zeros(N if name != "p" else 2 * N, np.float32) for name in "xyzwdqrkp"}
    arrays |= {"c": np.zeros(N, np.uint32)}
    session = Session(program)
    reports = pair.steps(session, arrays, fixed)
    session.synchronize()
    return [finding for report in reports for finding in report.findings] + session.findings


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name.replace(" ", "-"))
def test_fault_is_named_at_both_lines_and_its_remedy_is_clean(pair: Pair, here: Path) -> None:
    file = Path("kernels.cu")
    file.write_text(source_of(pair))
    (finding,) = found(pair, load(file), fixed=False)
    lines = {place.line for place in (finding.location, finding.other) if place is not None}
    assert finding.code == "race", str(finding)
    assert lines == {line for mark in ("HERE", "THERE") if (line := line_of(pair, mark))}, str(finding)
    assert finding.location is None or finding.location.line == line_of(pair, "HERE"), str(finding)
    assert pair.says in finding.advice, str(finding)
    assert found(pair, load(file, defines={"FIXED": 1}), fixed=True) == []


def test_pairs_are_as_many_as_they_should_be() -> None:
    assert len(PAIRS) >= 20 and sum(bool(pair.report) for pair in PAIRS) >= 8
