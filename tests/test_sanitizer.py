"""compute-sanitizer's reports are read, merged by source line, and end up in the verdict. The tool is stood in for."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from workbench.catalogue import registry
from workbench.checks import sanitizer
from workbench.kernels.vector_add import VectorAddProblem
from workbench.model.results import Verdict, Verification

WRITE = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at add+0x90 in /src/add.cu:3
=========     by thread ({thread},0,0) in block (0,0,0)
=========     Address 0x7f2c5a000190 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2c5a000000 of size 400 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x331d50]
=========                in /usr/lib/libcuda.so.1
=========
========= ERROR SUMMARY: 1 error
"""

OLDER = """========= Invalid __shared__ read of size 16
=========     at 0x000000c8 in /src/add.cuh:75:void add(float*, int)
=========     by thread (9,0,0) in block (0,0,0)
=========     Address 0x000370e8 is misaligned
"""

RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at add+0x170 in /src/add.cu:11
=========     and Read access at add+0x280 in /src/add.cu:14 [2016 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""

UNINITIALISED = """========= Uninitialized __global__ memory read of size 4 bytes
=========     at add+0x60 in /src/add.cu:3
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""

BARRIER = """========= Barrier error detected. Divergent thread(s) in warp.
=========     at add+0xb0 in /src/add.cu:9
=========     by thread (32,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""

FAILED_CALL = """========= Program hit cudaErrorLaunchFailure (error 719) on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 1 error
"""


@pytest.mark.parametrize(
    ("output", "line", "verdict"),
    [
        (WRITE.format(thread=100), 3, Verdict.OUT_OF_BOUNDS),
        (OLDER, 75, Verdict.MISALIGNED),
        (RACE, 11, Verdict.RACE),
        (UNINITIALISED, 3, Verdict.UNINITIALISED),
        (BARRIER, 9, Verdict.DIVERGENT_COLLECTIVE),
    ],
)
def test_a_report_has_its_line_and_its_name(output: str, line: int, verdict: Verdict) -> None:
    (report,) = sanitizer.parse("memcheck", "what the program printed\n" + output)
    assert (report.line, report.verdict) == (line, verdict)
    assert report.file.startswith("/src/add.cu")
    assert not any("Host Frame" in detail for detail in report.details)


REAL = json.loads((Path(__file__).parents[1] / "reports" / "emulator.json").read_text())["device"]["runs"]
"""What the tools of a real compute-sanitizer said of the planted faults on an H200, without the prefix of its lines."""

NAMES = {
    r"Invalid __\w+__ (read|write) of size": Verdict.OUT_OF_BOUNDS,
    r"Illegal instruction": Verdict.TRAP,
    r"Error: Race reported between": Verdict.RACE,
    r"Uninitialized __\w+__ memory read": Verdict.UNINITIALISED,
    r"Barrier error detected\. Divergent thread": Verdict.DIVERGENT_COLLECTIVE,
    r"Barrier error detected\. Missing wait": Verdict.MBARRIER_MISUSE,
}


def _said(log: Iterable[str]) -> list[tuple[str, int, Verdict]]:
    """File, line and verdict of everything in a log that begins with one of `NAMES`."""
    found: list[tuple[str, int, Verdict]] = []
    for part in re.split(r"\n(?= \S)", "\n" + "\n".join(log)):
        verdict = next((verdict for name, verdict in NAMES.items() if re.match(rf" {name}", part)), None)
        if verdict:
            place = re.search(r"(\w+\.cuh?):(\d+)", part)
            assert place, f"names no line: {part}"
            found.append((place[1], int(place[2]), verdict))
    return found


@pytest.mark.parametrize("run", [pytest.param(r, id=f"{r['key']}-{r['tool']}") for r in REAL if r["log"]])
def test_all_that_a_real_tool_says_of_a_line_is_read(run: dict[str, Any]) -> None:
    reports = sanitizer.parse(run["tool"], "".join(f"========={line}\n" for line in run["log"]))
    assert [(r.file, r.line, r.verdict) for r in reports] == _said(run["log"])


def test_every_tool_and_every_kind_of_report_is_among_the_real_ones() -> None:
    said = {run["tool"]: _said(run["log"]) for run in REAL if _said(run["log"])}
    assert set(said) == set(sanitizer.TOOLS)
    assert {verdict for run in REAL for *_, verdict in _said(run["log"])} == set(NAMES.values())


def test_what_names_no_line_is_left_out() -> None:
    assert sanitizer.parse("memcheck", FAILED_CALL) == []
    assert sanitizer.parse("memcheck", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == []


def test_reports_are_merged_by_line(tmp_path: Path) -> None:
    source = tmp_path / "add.cu"
    source.write_text("one\ntwo\n  c[i] = a[i];\n")
    text = "".join(WRITE.format(thread=t) for t in (100, 101)).replace("/src/add.cu", str(source))
    uninitialised = UNINITIALISED.replace("/src/add.cu", str(source))
    reports = [*sanitizer.parse("memcheck", text), *sanitizer.parse("initcheck", uninitialised)]
    lines = sanitizer.merged(reports).splitlines()
    assert lines[0] == f"{source}:3: c[i] = a[i];"
    assert lines[1] == "  memcheck: Invalid __global__ write of size 4 bytes (2 times)"
    assert "by thread (100,0,0) in block (0,0,0)" in lines[3]
    assert "  initcheck: Uninitialized __global__ memory read of size 4 bytes" in lines
    assert sum(str(source) in line for line in lines if not line.startswith(" ")) == 1


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compute-sanitizer that notes how it was called and says what `racecheck` says of a race."""
    path = tmp_path / "compute-sanitizer"
    (tmp_path / "race").write_text(RACE)
    path.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f'if [ "$2" = racecheck ]; then cat {tmp_path}/race; else echo "========= ERROR SUMMARY: 0 errors"; fi\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return path


def test_what_is_found_fails_a_stage_that_passed_and_is_told_with_one_that_failed(tool: Path) -> None:
    (stage,) = registry.select(["vector_add:naive"])
    passed = Verification(Verdict.PASS, seed=0)
    sanitizer.add(stage, passed, [VectorAddProblem(n=4)])
    assert passed.verdict is Verdict.RACE
    assert "/src/add.cu:11" in passed.failure.message
    assert "and Read access at add+0x280 in /src/add.cu:14 [2016 hazards]" in passed.failure.message
    calls = (tool.parent / "calls").read_text().splitlines()
    assert [call.split()[1] for call in calls] == list(sanitizer.TOOLS)
    assert all("workbench.checks.sanitizer vector_add:naive n=4," in call for call in calls)
    before = passed.failure.message
    sanitizer.add(stage, passed, [VectorAddProblem(n=4)])
    assert passed.failure.message.startswith(before)
    assert passed.failure.message.count("racecheck: Race reported") == 2


def test_a_tool_that_breaks_is_not_taken_for_one_that_finds_nothing(tool: Path) -> None:
    tool.write_text("#!/bin/sh\necho 'no device' >&2; exit 1\n")
    (stage,) = registry.select(["vector_add:naive"])
    reports, trouble = sanitizer.look(stage, VectorAddProblem(n=4))
    assert reports == []
    assert len(trouble) == len(sanitizer.TOOLS)
    assert "no device" in trouble[0]


def test_without_the_tool_the_message_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "toolkit_program", lambda name: None)
    with pytest.raises(sanitizer.SanitizerUnavailable, match="CUDA toolkit"):
        sanitizer.find()
