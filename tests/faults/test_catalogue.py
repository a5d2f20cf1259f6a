"""Every fault of the catalogue gets its verdict at its line, whatever order the seed draws; right kernels get none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from catalogue import CATALOGUE, SCENARIOS
from planting import PlantedFault, Scenario, judge

from workbench.devices.emulated import EmulatedDevice
from workbench.results import Verdict

SEEDS = range(10)
MOST_WARP_INSTRUCTIONS = 200_000
"""Of a block: ten times what the longest of these kernels needs."""


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
    assert len(outcomes) - len(missed) >= fault.seeds, f"{missed[0].verdict}\n{missed[0].message}\n{fault.lines}"


def test_every_class_of_fault_is_planted() -> None:
    assert {fault.number for fault in CATALOGUE} == set(range(1, 24))


def test_entries_are_told_apart_and_say_what_they_leave_out() -> None:
    keys = [fault.key for fault in CATALOGUE]
    assert len(set(keys)) == len(keys)
    for fault in CATALOGUE:
        assert fault.changes or fault.relaunch, f"{fault.key} changes nothing"
        assert fault.at or set(fault.verdicts) <= {Verdict.MISMATCH} or fault.pending, f"{fault.key} names no line"
        assert (fault.seeds == 10) == (not fault.why), fault.key


def test_a_line_that_the_finding_does_not_name_is_not_accepted(emulator: EmulatedDevice) -> None:
    fault = next(f for f in CATALOGUE if f.key == "6-no-fence")
    outcome = judge(fault.planted, emulator, 0)
    assert fault.found_by(outcome)
    (file, line), *_ = fault.lines[0]
    assert not outcome.names((file, line + 1000))
    assert not outcome.names(("other.cu", line))
