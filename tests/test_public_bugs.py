"""Faults of public kernels: each named at its lines, and its remedy clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from refresh import script

from reports import REPORTED, Reported, read
from workbench.cli.main import main

ROOT = Path(__file__).parents[1]


def found(reported: Reported, *, fixed: bool, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The findings: of the fault by strict rules, of its remedy by the default ones."""
    monkeypatch.chdir(ROOT)
    rules = [] if fixed else ["--strict"]
    result = CliRunner().invoke(main, ["emulate", *reported.arguments(fixed), "--json", *rules])
    document = json.loads(result.stdout)
    assert document["error"] is None, document["error"]
    assert result.exit_code == (0 if fixed or reported.finding == "none" else 1)
    first = document["result"]
    return [finding for launch in (first, *first["then"]) for finding in launch["findings"]]


def lines_of(finding: dict[str, Any], reported: Reported) -> set[int]:
    """Lines of the file that a finding names, those of calls among them."""
    sides = [side for side in (finding["location"], finding["other"]) if side]
    places = [place for side in sides for place in (side, *side["inlined_at"])]
    return {place["line"] for place in places if Path(place["file"]).name == reported.file.name}


@pytest.mark.parametrize("reported", REPORTED, ids=lambda reported: reported.file.stem)
def test_reported_fault_is_named_at_its_lines(reported: Reported, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = found(reported, fixed=False, monkeypatch=monkeypatch)
    if reported.finding == "none":  # what is missed is said on the page
        assert findings == []
        return
    assert findings[0]["code"] == reported.finding, findings
    marked = {line for mark in ("HERE", "THERE") if (line := reported.line(mark)) is not None}
    assert reported.line("HERE") and marked <= lines_of(findings[0], reported), findings


@pytest.mark.parametrize("reported", REPORTED, ids=lambda reported: reported.file.stem)
def test_remedy_of_a_reported_fault_is_clean(reported: Reported, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "FIXED" in reported.code
    assert found(reported, fixed=True, monkeypatch=monkeypatch) == []


def test_a_head_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text("// A title\n//\n// A text.\n//\n// report: https://a\n// finding: race\n__global__ void k();\n")
    with pytest.raises(ValueError, match=r"a\.cu lacks kind, launch"):
        read(file)


def test_every_kind_has_its_section() -> None:
    made = script("tools/public_bugs.py")
    assert {reported.kind for reported in REPORTED} == set(made.KINDS)
    assert sum(reported.finding != "none" for reported in REPORTED) >= 40
    assert made.page().count("\n### ") >= len(REPORTED) + 17
