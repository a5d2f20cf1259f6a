"""A plan is made for the machine that it is told: a device with more or fewer multiprocessors than an H200 has."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from command_line import invoke, said

from workbench import emulator, harness
from workbench.catalogue import registry
from workbench.devices import DeviceUnavailable, open_device
from workbench.devices.emulated import EmulatedDevice
from workbench.harness import drawn
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.scan import ScanProblem
from workbench.model.launch import B200, H200, kept_by_machine, machine, planning_for, scaled
from workbench.model.results import Verdict
from workbench.model.stage import Stage
from workbench.records.store import slug

FEWER, MORE = (dataclasses.replace(H200, multiprocessors=count) for count in (78, 148))

PERSISTENT = (
    *("gemm:stream_k", "gemm:flexible_multicast", "gemm:fitted_pipeline", "gemm_fp8:promoted_sums"),
    *(
        "attention:row_by_row",
        "conv2d:flexible_tiles",
        "rms_norm:prefetch",
        "fft_conv:persistent",
        "attention_varlen:persistent",
        "attention_varlen:packed_heads",
    ),
    *("gemm:split_tiles", "layer_norm_backward:cluster", "scan:look_back", "reduce:one_launch", "ssd:paired"),
)


LONG_ROW = ScanProblem(rows=1, columns=2**26, dtype="fp32")


def stage_of(spec: str) -> Stage[Any]:
    (stage,) = registry.select([spec])
    return stage


def test_an_h200_is_the_same_to_plans_and_to_the_emulator() -> None:
    limits = emulator.H200
    found = limits.sm_count, limits.shared_per_block, limits.registers_per_sm
    assert found == (H200.multiprocessors, H200.shared_bytes, H200.registers)
    assert EmulatedDevice().limits == limits


@pytest.mark.long
@pytest.mark.parametrize("chosen", [FEWER, MORE], ids=lambda machine: str(machine.multiprocessors))
@pytest.mark.parametrize("spec", PERSISTENT)
def test_persistent_stages_are_right_with_other_numbers_of_multiprocessors(spec: str, chosen: Any) -> None:
    result = harness.verify(stage_of(spec), EmulatedDevice(machine=chosen), examples=2, seed=3)
    assert result.verdict is Verdict.PASS, result.failure


@pytest.mark.parametrize("isolate", [False, True])
def test_a_device_is_emulated_as_its_name_says_and_opened_again_by_it(isolate: bool) -> None:
    device = open_device("emulator:shared_bytes=102400,multiprocessors=78", isolate=isolate)
    assert device.machine == dataclasses.replace(H200, multiprocessors=78, shared_bytes=100 * 1024)
    assert open_device(device.name).machine == device.machine
    assert open_device("emulator").name == open_device("emulator:").name == "emulator"
    assert slug(device.info()) == "emulated-device-with-78-multiprocessors" != slug(EmulatedDevice().info())
    problem = drawn(stage_of("gemm:naive"), device, examples=1, seed=0)[0]
    assert problem in drawn(stage_of("gemm:naive"), EmulatedDevice(), examples=1, seed=0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("emulator:sms=78", "has no 'sms'; it has architecture, multiprocessors, shared_bytes, registers"),
        ("emulator:multiprocessors=0", "multiprocessors is '0'; it has to be a whole number above 0"),
        ("emulator:78", "has no '78'"),
        ("emulator:architecture=95", "architecture is 95; stages are verified for 90 or 100"),
    ],
)
def test_a_device_that_cannot_be_emulated_is_refused_with_what_would_be_right(name: str, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        open_device(name)
    refused = invoke("verify", "gemm:naive", "--device", name)
    assert refused.exit_code == 2 and message in refused.stderr


def test_a_replay_names_the_machine() -> None:
    name = "emulator:multiprocessors=78"
    result = invoke("verify", "gemm:naive", "--device", name, "--examples", "1", "--json")
    assert said(result)["device"]["sm_count"] == 78
    assert f"--device {name}" in harness.replay_command(stage_of("gemm:naive"), open_device(name), "any")


def test_blocks_that_were_declared_for_an_h200_are_as_many_for_each_multiprocessor() -> None:
    assert scaled(264) == 264
    with planning_for(FEWER):
        assert (scaled(264), scaled(1)) == (156, 1)
    grids = [stage_of("scan:split_rows").on(m).plan(LONG_ROW).launches[0].grid[0] for m in (FEWER, H200, MORE)]
    assert grids[0] < grids[1] < grids[2]


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
    with pytest.raises(DeviceUnavailable, match=r"9\.0 and 10\.0, not 8\.0"):
        EmulatedDevice(machine=dataclasses.replace(H200, architecture=80))


def test_a_stage_is_verified_on_a_machine_of_its_architecture_unless_another_one_is_named() -> None:
    newer, given = stage_of("gemm:tensor_memory"), GemmProblem(m=5, n=9, k=16)
    for name in ("emulator", "emulator:multiprocessors=78", "emulator:architecture=100"):
        result = harness.verify(newer, open_device(name), problem=given)
        assert result.verdict is Verdict.PASS, result.failure
    assert newer.home == newer.fitting(H200) == B200 and newer.fitting(FEWER).multiprocessors == 78
    assert stage_of("gemm:naive").home == H200
    assert newer.supports(given) is None and newer.on(H200).supports(given) == (
        "needs compute capability 10.0, the device has 9.0"
    )


def test_a_machine_of_a_later_architecture_refuses_what_is_for_an_earlier_one_alone() -> None:
    device = open_device("emulator:architecture=100")
    assert (device.name, device.machine, device.info().architecture) == ("emulator:architecture=100", B200, "sm_100a")
    assert slug(device.info()) == "emulated-nvidia-b200"
    given = GemmProblem(m=5, n=9, k=16)
    assert harness.verify(stage_of("gemm:tensor_core"), device, problem=given).verdict is Verdict.PASS
    refused = harness.verify(stage_of("gemm:tma_pipeline"), device, problem=given)
    assert refused.verdict is Verdict.UNSUPPORTED
    assert list(refused.unsupported) == ["uses instructions of compute capability 9.0 alone, the device has 10.0"]
