"""The committed record has every fault, and one fault that takes its process down costs no other."""

from __future__ import annotations

import json
import time
from typing import Any

import harness_report
import pytest
from harness_report import FAULTS, LOST, RECORD, REPORTS, judge_in_children, judged
from planting import MOST_WARP_INSTRUCTIONS, Outcome

from workbench.checks.hazards import ANSWERS
from workbench.devices.emulated import EmulatedDevice


def committed() -> dict[str, Any]:
    return json.loads((REPORTS / RECORD).read_text())


def test_the_committed_record_has_every_fault_found_in_the_emulator() -> None:
    results = committed()["emulator"]["results"]
    assert [result["key"] for result in results] == list(FAULTS)
    assert all(result["found"] for result in results)
    assert {fault.number for fault in FAULTS.values()} == set(range(1, 60))


@pytest.mark.long
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

    times = True

    def __init__(self, most_warp_instructions: int) -> None:
        super().__init__(most_warp_instructions)
        self.name = "cuda"


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
