"""The committed record has every fault, and one fault that takes its process down costs no other."""

from __future__ import annotations

import json
import time
from typing import Any

import harness_report
import pytest
from harness_report import FAULTS, LOST, RECORD, REPORTS, judge_in_children, judged, page
from planting import MOST_WARP_INSTRUCTIONS, Outcome

from workbench.checks.hazards import ANSWERS, BY_LUCK
from workbench.devices.emulated import EmulatedDevice


def committed() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((REPORTS / RECORD).read_text())
    return record


def test_the_committed_record_has_every_fault_found_in_the_emulator() -> None:
    results = committed()["emulator"]["results"]
    assert [result["key"] for result in results] == list(FAULTS)
    assert all(result["found"] for result in results)
    assert {fault.number for fault in FAULTS.values()} == set(range(1, 60))


def of_device(*results: tuple[str, str, bool, str]) -> dict[str, Any]:
    """The record of a device on which these came out: key, verdict, found and message."""
    return {
        "environment": {"commit": "0" * 40, "date": "2026-01-01T00:00:00Z"},
        "device": {"name": "a GPU", "driver": "1"},
        "results": [dict(zip(("key", "verdict", "found", "message"), r, strict=True)) for r in results],
    }


def test_a_row_says_what_each_device_said() -> None:
    emulator = of_device(
        ("5-no-barrier-after-reads", "race", True, "a.cu:7: race: `x_y` | x_y\nmore"),
        ("26-zeros-exact", "mismatch", True, "all are wrong\nlooks like: all zeros"),
        ("43-once", "not timed", True, "by the clock"),
    )
    gpu = of_device(
        ("5-no-barrier-after-reads", "race", True, f"{BY_LUCK}a.cu:7: race"),
        ("26-zeros-exact", "launch_error", False, "refused"),
        ("36-cleared-while-added", "race", True, f"b.cu:3: race\n{ANSWERS}not_deterministic: 2 of 9 elements"),
        ("43-once", "not timed", True, "on the GPU"),
    )
    text = page({"emulator": emulator, "cuda": gpu})
    rows = [[c.strip() for c in line.replace("\\|", "!").split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    cells = {fault.title: row[3:] for row in rows for fault in FAULTS.values() if row[1:2] == [fault.title]}
    titles = [
        FAULTS[key].title
        for key in ("5-no-barrier-after-reads", "26-zeros-exact", "36-cleared-while-added", "43-once", "44-drift")
    ]
    assert [cells[title] for title in titles] == [
        ["race", "right answers; in the emulator: race", "a.cu:7: race: `x_y` ! x\\_y"],
        ["mismatch", "launch error, **not for its reason**", "all are wrong; looks like: all zeros"],
        ["not run", "not deterministic; in the emulator: race", ""],
        ["not timed (by a clock)", "not timed", "on the GPU"],
        ["not run (by a clock)", "not run", ""],
    ]
    assert f"3 of {len(FAULTS)} found" in text
    assert f"3 of {len(FAULTS)} found, 1 of them behind right answers" in text
    assert "- Right answers on the GPU" in text


def test_a_fault_that_takes_its_process_down_costs_no_other() -> None:
    said: list[dict[str, Any]] = []
    keys = ["24-idle", "not there", "40-set"]
    judge_in_children("emulator", keys, seconds=60, until=time.monotonic() + 120, on=said.append)
    assert [(s["key"], s["verdict"]) for s in said if "key" in s] == [
        ("24-idle", "mismatch"),
        ("not there", LOST),
        ("40-set", "weak_check"),
    ]
    assert "KeyError: 'not there'" in next(s["message"] for s in said if s.get("key") == "not there")


def test_a_fault_that_hangs_is_ended() -> None:
    said: list[dict[str, Any]] = []
    judge_in_children("emulator", ["24-idle"], seconds=0.1, until=time.monotonic() + 60, on=said.append)
    assert [(s["key"], s["verdict"]) for s in said if "key" in s] == [("24-idle", LOST)]


class Pretender(EmulatedDevice):
    """The emulator under the name of a GPU: what follows a failure there follows here."""

    name = "cuda"


@pytest.mark.parametrize("key", ["5-no-barrier-after-reads", "10-does-not-compile", "28-input-changed"])
def test_a_failure_on_a_gpu_is_followed_by_what_the_emulator_finds(key: str) -> None:
    outcome, found = judged(FAULTS[key], Pretender(MOST_WARP_INSTRUCTIONS))
    assert found
    asked = "\nthe emulator, on the same problem: " in outcome.message or f"\n{ANSWERS}" in outcome.message
    assert asked == (outcome.verdict != "compile_error")


def test_a_gpu_has_to_fail_and_the_emulator_to_name_the_line() -> None:
    fault = FAULTS["5-no-barrier-after-reads"]
    named = judged(fault, Pretender(MOST_WARP_INSTRUCTIONS))[0].message
    assert fault.found_by(Outcome("mismatch", named), on_gpu=True)
    assert not fault.found_by(Outcome("mismatch", named))
    assert not fault.found_by(Outcome("pass", named), on_gpu=True)
    assert not fault.found_by(Outcome("mismatch", "some are wrong"), on_gpu=True)


def test_messages_keep_no_folders() -> None:
    text = 'File "/home/me/x/faults.py", line 3: /a/b/k.cu:7 of cuda_src/gemm/1.cu, m / 8, a/b'
    assert harness_report.without_folders(text) == 'File "faults.py", line 3: k.cu:7 of cuda_src/gemm/1.cu, m / 8, a/b'
