"""Every fault of the catalogue gets its verdict at its line, whatever order the seed draws; right kernels get none."""

from __future__ import annotations

from collections.abc import Callable

import fault_report
import pytest
from catalogue import CATALOGUE
from planting import MOST_WARP_INSTRUCTIONS, PlantedFault, Scenario, judge
from scenarios import SCENARIOS

from workbench.devices.emulated import EmulatedDevice
from workbench.model.results import Verdict

SEEDS = range(10)


@pytest.fixture(scope="module")
def emulator() -> EmulatedDevice:
    return EmulatedDevice(MOST_WARP_INSTRUCTIONS)


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
def test_the_correct_kernel_is_clean_under_every_seed(make: Callable[[], Scenario], emulator: EmulatedDevice) -> None:
    for seed in SEEDS:
        outcome = judge(make(), emulator, seed)
        assert outcome.verdict is Verdict.PASS, outcome.message


def _case(fault: PlantedFault) -> object:
    marks = pytest.mark.xfail(reason=fault.pending, strict=True, raises=AssertionError) if fault.pending else ()
    return pytest.param(fault, id=fault.key, marks=marks)


@pytest.mark.parametrize("fault", [_case(fault) for fault in CATALOGUE])
def test_a_planted_fault_is_named_at_its_line(fault: PlantedFault, emulator: EmulatedDevice) -> None:
    outcomes = [judge(fault.planted, emulator, seed) for seed in SEEDS]
    missed = [o for o in outcomes if not fault.found_by(o)]
    assert not missed, f"{missed[0].verdict}\n{missed[0].message}\n{fault.lines}"


def test_every_class_of_fault_is_planted() -> None:
    assert {fault.number for fault in CATALOGUE} == set(range(1, 24))


def test_entries_are_told_apart_and_say_what_they_leave_out() -> None:
    keys = [fault.key for fault in CATALOGUE]
    assert len(set(keys)) == len(keys)
    for fault in CATALOGUE:
        assert fault.changes or fault.relaunch, f"{fault.key} changes nothing"
        assert fault.at or set(fault.verdicts) <= {Verdict.MISMATCH} or fault.pending, f"{fault.key} names no line"


def test_a_line_that_the_finding_does_not_name_is_not_accepted(emulator: EmulatedDevice) -> None:
    fault = next(f for f in CATALOGUE if f.key == "6-no-fence")
    outcome = judge(fault.planted, emulator, 0)
    assert fault.found_by(outcome)
    (file, line), *_ = fault.lines[0]
    assert not outcome.names((file, line + 1000))
    assert not outcome.names(("other.cu", line))


TOOL_OUTPUT = [
    " Invalid __global__ read of size 4 bytes",
    "     at gemm_naive+0x4b0 in 1_naive.cu:24",
    "     by thread (0,2,0) in block (0,0,0)",
    " Error: Race reported between Read access at gemm+0x10 in tile.cuh:7",
    "     and Write access at gemm+0x20 in tile.cuh:5 [12 hazards]",
    ' Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call.',
    " ERROR SUMMARY: 3 errors",
]


def test_what_a_tool_reports_becomes_a_few_words_and_its_lines() -> None:
    assert fault_report.headlines(TOOL_OUTPUT) == ["invalid read (__global__)", "race", "launch fails"]
    assert fault_report.places(TOOL_OUTPUT) == [("1_naive.cu", 24), ("tile.cuh", 7), ("tile.cuh", 5)]
    run = {"key": "", "tool": "memcheck", "answer": "", "hung": False, "log": TOOL_OUTPUT[-2:]}
    assert fault_report.found_by_tool(run) == []  # that a launch fails is seen without a tool
    assert fault_report.found_by_tool({**run, "log": TOOL_OUTPUT}) == ["invalid read (__global__)", "race"]


def test_runs_of_some_faults_replace_those_of_the_same_and_leave_the_others() -> None:
    def device(driver: str, **answers: str) -> dict[str, object]:
        runs = [{"key": key, "tool": "none", "answer": answer} for key, answer in answers.items()]
        return {"gpu": "a GPU", "driver": driver, "runs": runs}

    before = device("1", a="right", b="right")
    assert fault_report.taken({}, before) == before
    assert fault_report.taken(before, device("1", b="wrong", c="wrong")) == device("1", a="right", b="wrong", c="wrong")
    with pytest.raises(ValueError, match="'1', now '2'"):
        fault_report.taken(before, device("2", b="wrong"))
