"""A plan is made for the machine that it is told: a device with more or fewer multiprocessors than an H200 has."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from workbench import emulator, harness
from workbench.catalogue import registry
from workbench.devices import DeviceUnavailable
from workbench.devices.emulated import EmulatedDevice
from workbench.kernels.gemm import GemmProblem
from workbench.model.machine import H200, kept_by_machine, machine, planning_for
from workbench.model.results import Verdict
from workbench.model.stage import Stage

FEWER, MORE = (dataclasses.replace(H200, multiprocessors=count) for count in (78, 148))

PERSISTENT = (
    *("gemm:stream_k", "gemm:flexible_multicast", "gemm:fitted_pipeline", "gemm_fp8:promoted_sums"),
    *(
        "attention:row_by_row",
        "conv2d:flexible_tiles",
        "rms_norm:prefetch",
        "fft_conv:persistent",
        "attention_varlen:persistent",
    ),
)


def stage_of(spec: str) -> Stage[Any]:
    (stage,) = registry.select([spec])
    return stage


def test_an_h200_is_the_same_to_plans_and_to_the_emulator() -> None:
    limits = emulator.H200
    found = limits.sm_count, limits.shared_per_block, limits.registers_per_sm
    assert found == (H200.multiprocessors, H200.shared_bytes, H200.registers)
    assert EmulatedDevice().limits == limits


@pytest.mark.parametrize("chosen", [FEWER, MORE], ids=["78", "148"])
@pytest.mark.parametrize("spec", PERSISTENT)
def test_persistent_stages_are_right_with_other_numbers_of_multiprocessors(spec: str, chosen: Any) -> None:
    result = harness.verify(stage_of(spec), EmulatedDevice(machine=chosen), examples=2, seed=3)
    assert result.verdict is Verdict.PASS, result.failure


def test_sizes_and_launches_follow_the_machine_also_in_the_process_of_the_stages() -> None:
    for stage in (stage_of("gemm:multicast"), registry.local(stage_of("gemm:multicast"))):
        problem = GemmProblem(m=128 * 7, n=256 * 22)  # pairs of 8 rows are 176 tiles: two rounds of 132, not of 160
        sharing = {
            n: stage.on(dataclasses.replace(H200, multiprocessors=n)).sizes(problem)["SHARING"] for n in (132, 160)
        }
        assert sharing == {132: 2, 160: 1}
        assert stage.sizes(problem)["SHARING"] == 2
    tiles = {n: _fitted(n) for n in (78, 132, 148)}
    assert len(set(tiles.values())) > 1, tiles


def _fitted(multiprocessors: int) -> tuple[Any, ...]:
    chosen = dataclasses.replace(H200, multiprocessors=multiprocessors)
    plan = stage_of("gemm:flexible_multicast").on(chosen).plan(GemmProblem(m=1024, n=1384, k=4096))
    return plan.launches[0].grid


def test_a_stage_that_needs_more_shared_memory_than_the_machine_has_says_so() -> None:
    small = dataclasses.replace(H200, shared_bytes=100 * 1024)
    stage, problem = stage_of("gemm:tma_pipeline"), GemmProblem(m=128, n=256, k=64)
    assert stage.supports(problem) is None
    assert "do not fit into shared memory" in str(stage.on(small).supports(problem))


def test_what_is_kept_for_one_machine_is_not_used_for_another() -> None:
    @kept_by_machine()
    def count(factor: int) -> int:
        return factor * machine().multiprocessors

    assert count(2) == 264
    with planning_for(FEWER):
        assert count(2) == 156
    assert count(2) == 264


def test_the_emulator_has_the_limits_of_the_machine_and_refuses_other_architectures() -> None:
    device = EmulatedDevice(machine=MORE)
    assert (device.limits.sm_count, device.architecture, device.times) == (148, 90, False)
    assert device.info().sm_count == 148
    with pytest.raises(DeviceUnavailable, match=r"9\.0, not 10\.0"):
        EmulatedDevice(machine=dataclasses.replace(H200, architecture=100))
