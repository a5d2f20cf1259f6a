"""Wrong results that a weak harness passes, and times that it believes: each gets the verdict that names it.

Kernels are real ones with a piece of their source replaced, in the emulator and, where there is one, on a GPU. Without
a GPU times come from a device whose clock is a number, so that what cheats does so by an exact amount.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeLibrary
from harness_planting import HEAD, HarnessFault, Verified
from planting import Change
from synthetic_clock import COLD_US, WARM_US, timed_by_clock
from wrong_diagnoses import WRONG_DIAGNOSES
from wrong_results import ADD, KEPT_SUM, WRONG_RESULTS, add
from wrong_times import TIMES

from workbench import harness
from workbench.catalogue import registry
from workbench.devices import Device, Fault, open_device
from workbench.devices import cuda as cuda_device
from workbench.judge import case
from workbench.kernels.matvec import MatvecProblem
from workbench.measure import timing
from workbench.model.launch import Launch
from workbench.model.problem import Tier
from workbench.model.results import Conditions, Measurement, Verdict, Verification
from workbench.model.stage import Stage
from workbench.run import verifier


@pytest.fixture(scope="module")
def emulator() -> Device:
    return open_device("emulator")


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    device = open_device("cuda")
    yield device
    device.close()  # type: ignore[attr-defined]


HARNESS_FAULTS = (*WRONG_RESULTS, *TIMES, *WRONG_DIAGNOSES)

every_fault = pytest.mark.parametrize("fault", HARNESS_FAULTS, ids=lambda fault: fault.key)


@every_fault
def test_a_fault_is_found_for_its_own_reason(fault: HarnessFault, emulator: Device) -> None:
    outcome = fault.judge(emulator)
    assert fault.found_by(outcome), f"{outcome.verdict}\n{outcome.message}"


@pytest.mark.gpu
@every_fault
def test_a_fault_is_found_on_a_gpu(fault: HarnessFault, gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SHRINK_SECONDS", 1.0)
    outcome = fault.judge(gpu)
    assert fault.found_by(outcome, on_gpu=True), f"{outcome.verdict}\n{outcome.message}"


def test_every_class_of_fault_is_there_and_told_apart() -> None:
    assert {fault.number for fault in HARNESS_FAULTS} == set(range(24, 60))
    assert len({fault.key for fault in HARNESS_FAULTS}) == len(HARNESS_FAULTS)


# what is not to be found


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(add(), id="24: nothing is planted"),
        pytest.param(add((HEAD, KEPT_SUM)), id="33: nothing is kept"),
        pytest.param(
            dataclasses.replace(
                next(f.judge for f in HARNESS_FAULTS if f.number == 37),
                restage=lambda stage: dataclasses.replace(stage, deterministic=False),
            ),
            id="37: declared",
        ),
    ],
)
def test_what_is_right_passes(right: Verified, emulator: Device) -> None:
    assert right(emulator).verdict is Verdict.PASS


def test_37_the_last_bit_depends_on_where_the_arrays_lie(emulator: Device) -> None:
    change = "if (reinterpret_cast<unsigned long long>(a) >> 9 & 1) sum = __int_as_float(__float_as_int(sum) ^ 1);"
    store = "c[n] = from_float<OUT>(sum);"
    problem = MatvecProblem(n=256, k=64, dtype="fp32", out="fp32", tier=Tier.BOUNDED)
    outcome = Verified("matvec:naive", (Change(store, f"{change}\n  {store}"),), problem)(emulator)
    assert outcome.verdict == Verdict.NOT_DETERMINISTIC
    assert "256 of 256 elements" in outcome.message


def verify(stage: Stage[Any], device: Device) -> Verification:
    return verifier.verify(stage, device, remembers=False, examples=12, seed=0)


# stages that reach for what judges them


def _wrong_but(tamper: Callable[[], None]) -> Stage[Any]:
    """A stage that gives wrong results and changes something whenever it is asked for its launch."""
    wrong = add((ADD, "from_float<IN>(0.f)")).stage
    plan = wrong.plan_for

    def tampering(problem: Any, size: Mapping[str, int]) -> Launch:
        tamper()
        return plan(problem, size)

    return dataclasses.replace(wrong, plan_for=tampering)


def _accept_everything() -> None:
    harness.Case.judge = lambda *arguments: (None, 0.0)  # type: ignore[method-assign]


def _no_error() -> None:
    case.errors.__code__ = (lambda array, got, expected, bound, tier: expected * 0.0).__code__


def _stop_the_clock() -> None:
    import time

    time.perf_counter = lambda: 0.0  # type: ignore[assignment]


def _instant() -> None:
    timing.Stopwatch.cold = lambda watch, work: 1e-3  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("tamper", "name"),
    [
        (_accept_everything, "workbench.judge.case.Case.judge"),
        (_no_error, "workbench.judge.case.errors"),
        (_stop_the_clock, "time.perf_counter"),
        (_instant, "workbench.measure.timing.Stopwatch.cold"),
    ],
)
def test_changing_what_judges_is_found_out_and_put_back(
    emulator: Device, tamper: Callable[[], None], name: str
) -> None:
    result = verify(_wrong_but(tamper), emulator)
    assert result.verdict is Verdict.TAMPERING
    assert name in result.failure.message
    (right,) = registry.select(["vector_add:vectorized"])
    assert verify(right, emulator).verdict is Verdict.PASS
    only_x = Change("to_float(x.x[j]) + to_float(y.x[j])", "to_float(x.x[j])")
    assert verify(Verified("vector_add:grid_stride", (only_x,)).stage, emulator).verdict is Verdict.MISMATCH


# times


def test_an_honest_stage_is_timed_with_its_l2_flushed() -> None:
    measured = timed_by_clock()
    assert isinstance(measured, Measurement)
    assert set(measured.timing.cold_us) == {COLD_US}
    assert all(us < 1.25 * WARM_US for us in measured.timing.sustained_us)


class FakeL2:
    """The L2 that CuPy and the driver reach: a fill evicts all lines but those that persist. A launch takes a tenth of
    the time where it finds its data."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[str] = []
        self.lines: dict[str, bool] = {}
        self.set_aside, self.ms = 30 << 20, 0.0
        event = SimpleNamespace(record=lambda: self.order.append("event"), synchronize=lambda: None)
        cuda = SimpleNamespace(Event=lambda: event, get_elapsed_time=lambda start, stop: self.ms)
        memory = SimpleNamespace(empty=self.memory, uint8=np.uint8, cuda=cuda)
        monkeypatch.setitem(sys.modules, "cupy", memory)
        driver = FakeLibrary(cuCtxSetLimit=self.limit, cuCtxResetPersistingL2Cache=self.reset)
        monkeypatch.setattr(cuda_device, "_library", lambda: driver)

    def memory(self, size: int, dtype: Any) -> Any:
        def fill(value: int) -> None:
            self.order.append(f"flush {size}")
            self.lines = {name: True for name, persists in self.lines.items() if persists}

        return SimpleNamespace(fill=fill)

    def limit(self, which: int, size: Any) -> None:
        self.set_aside = size.value if which == cuda_device.PERSISTING_L2 else self.set_aside

    def reset(self) -> None:
        self.lines = dict.fromkeys(self.lines, False)

    def launch(self) -> None:
        self.order.append("launch")
        self.ms = 0.1 if "inputs" in self.lines else 1.0
        self.lines["inputs"] = True


def test_45_the_l2_is_flushed_before_each_launch_and_outside_of_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    l2 = FakeL2(monkeypatch)
    timing.Stopwatch(60 << 20).cold(l2.launch)
    assert l2.order == [f"flush {120 << 20}", "event", "launch", "event"]


def test_lines_that_persist_in_the_l2_are_evicted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    l2 = FakeL2(monkeypatch)
    watch = timing.Stopwatch(60 << 20)
    assert [watch.cold(l2.launch) for _ in range(3)] == [1000.0] * 3 and l2.set_aside == 0


@pytest.mark.parametrize(("status", "harm"), [(801, False), (700, True)])
def test_only_a_device_without_persisting_lines_may_refuse_to_reset_them(
    status: int, harm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeLibrary(cuCtxResetPersistingL2Cache=lambda: status)
    monkeypatch.setattr(cuda_device, "_library", lambda: library)
    with pytest.raises(Fault, match="700") if harm else nullcontext():
        cuda_device.let_nothing_persist()


def test_the_conditions_of_a_measurement_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(conditions: Conditions) -> None:
        conditions.throttle_reasons.append("SwPowerCap")

    monkeypatch.setattr(timing.nvml, "sample", sample)
    measured = timed_by_clock()
    assert isinstance(measured, Measurement)
    assert "SwPowerCap" in measured.conditions.throttle_reasons
