"""Occupancy by hand-worked examples, and the limits it has to respect for any kernel."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample import assembled, is_thorough, suite

from workbench.catalogue import registry
from workbench.devices import open_device
from workbench.devices.cuda import CudaDevice
from workbench.emulator.architectures import BY_CAPABILITY
from workbench.harness import drawn
from workbench.kernels.gemm import GemmProblem
from workbench.model.launch import Launch, ceil_div
from workbench.model.problem import Problem, ProblemError
from workbench.model.stage import Stage
from workbench.records import tuned
from workbench.toolchain.compiler import compile_source, resources, suite_resources

KIB = 1024


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "architecture", "blocks", "fraction", "limiter"),
    [
        (32, 0, 256, 90, 8, 1.0, "warps and registers"),  # 64 warps / 8, 1,024 registers a warp
        (33, 0, 256, 90, 6, 48 / 64, "registers"),  # 33 -> 1,280 a warp: 51 warps, 48 in whole groups of four
        (33, 0, 96, 90, 16, 48 / 64, "registers"),  # not the 17 that 51 warps would make
        (168, 0, 128, 90, 3, 12 / 64, "registers"),  # 5,376 a warp: 12 warps
        (168, 0, 384, 90, 1, 12 / 64, "registers"),
        (16, 0, 32, 90, 32, 0.5, "blocks"),
        (32, 100 * KIB, 128, 90, 2, 8 / 64, "shared memory"),  # 101 KiB with the system's own, 228 in all
        (32, 113 * KIB, 128, 90, 2, 8 / 64, "shared memory"),
        (32, 113 * KIB + 1, 128, 90, 1, 4 / 64, "shared memory"),
        (64, 227 * KIB, 1024, 90, 1, 0.5, "registers and shared memory"),
        (0, 0, 100, 90, 16, 1.0, "warps"),  # 100 threads are four warps
        (32, 0, 1024, 86, 1, 32 / 48, "warps"),
        (32, 48 * KIB, 256, 80, 3, 24 / 64, "shared memory"),
    ],
)
def test_occupancy_of_worked_examples(
    registers: int, shared: int, threads: int, architecture: int, blocks: int, fraction: float, limiter: str
) -> None:
    found = BY_CAPABILITY[architecture].occupancy(threads, shared, registers)
    assert (found.blocks, found.fraction, found.limiter) == (blocks, fraction, limiter)


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "limiter"),
    [
        (255, 0, 1024, "registers"),  # fits no block at all
        (256, 0, 32, "more than 255 registers a thread"),
        (32, 227 * KIB + 1, 32, "more than 232448 bytes of shared memory a block"),
        (32, 0, 1025, "more than 1024 threads a block"),
    ],
)
def test_a_launch_that_cannot_run_has_no_resident_block(
    registers: int, shared: int, threads: int, limiter: str
) -> None:
    found = BY_CAPABILITY[90].occupancy(threads, shared, registers)
    assert (found.blocks, found.fraction, found.limiter) == (0, 0.0, limiter)


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"capability 3\.5; known are 7\.5"):
        resources(registry.operations()["gemm"].stages[0], GemmProblem(m=64, n=64, k=64), 35)


@given(st.integers(1, 255), st.integers(0, 227 * KIB), st.integers(1, 1024), st.sampled_from(sorted(BY_CAPABILITY)))
def test_resident_blocks_fit_and_more_of_anything_never_helps(
    registers: int, shared: int, threads: int, architecture: int
) -> None:
    limits = BY_CAPABILITY[architecture]
    found = limits.occupancy(threads, shared, registers)
    warps = found.blocks * -(-threads // 32)
    assert warps <= limits.max_warps_per_sm
    assert found.blocks <= limits.max_blocks_per_sm
    assert warps * 32 * registers <= limits.registers_per_sm
    assert found.blocks * (shared + limits.shared_reserved_per_block) <= limits.shared_per_sm
    assert found.fraction == warps / limits.max_warps_per_sm
    for more in ((threads, shared, registers + 1), (threads, shared + 1, registers), (threads + 1, shared, registers)):
        assert limits.occupancy(*more).blocks <= found.blocks


def test_resources_of_a_compiled_stage() -> None:
    stage = registry.operations()["gemm"].stages[0]
    (found,) = resources(stage, GemmProblem(m=64, n=64, k=64))
    assert found.kernel == "gemm_naive"
    assert found.block_threads == stage.parameters["BLOCK_X"] * stage.parameters["BLOCK_Y"]
    assert 8 <= found.registers <= 255
    assert found.blocks_per_sm * found.block_threads == found.occupancy * 2048


def test_each_variant_of_the_suite_comes_once() -> None:
    gemm = registry.operations()["gemm"]
    variants = [r.variant for r in suite_resources(gemm.stages[0], gemm.suite)]
    assert sorted(variants) == sorted(set(variants))
    assert {v.split()[-1] for v in variants} == {"TRANS_B=0", "TRANS_B=1"}


def _problems(stage: Stage, examples: int) -> Iterator[Problem]:
    """The suite, what is taken where not all is tested, and problems among which each type and each layout is that
    these lack: those that `test_stage` verifies, as far as they have it, since they are compiled anyhow."""
    operation = registry.operation_of(stage)
    choices = operation.problem.choices
    todo = {(name, word) for name, words in choices.items() for word in words}

    def new_in(problem: Problem) -> set[tuple[str, str]]:
        return todo & {(name, problem.text(name)) for name in choices}

    device = open_device("emulator")
    for problem in (*suite(stage, device), assembled(stage, device)):
        yield problem
        todo -= new_in(problem)
    verified = drawn(stage, device, examples=examples, seed=0)
    while has := new_in(most := max(verified, key=lambda problem: len(new_in(problem)))):
        yield most
        todo -= has
    for problem in filter(new_in, _combinations(operation.problem)):
        if stage.supports(problem) is None:
            yield problem
            todo -= new_in(problem)


def _combinations(problem: type[Problem]) -> Iterator[Problem]:
    """A problem of every combination of types and layouts that go together."""
    sizes, choices = dict.fromkeys(problem.extents, 256), problem.choices
    for words in itertools.product(*choices.values()):
        with contextlib.suppress(ProblemError):
            yield problem(**sizes, **dict(zip(choices, words, strict=True)))


def _tuned(stage: Stage) -> Iterator[tuple[Stage, Problem]]:
    """The stage with all parameters that the shipped table gives it, and a problem that it gives them for."""
    problem = registry.operation_of(stage).problem
    for device in tuned.shipped().values():
        for of_class, row in device.get(stage.operation, {}).items():
            if row["stage"] == stage.name:
                yield stage.with_parameters(row["parameters"]), problem.parse(of_class)


SPILT = {
    # 16 places of a transform and their roots
    **{"fft_conv:registers": 300, "fft_conv:paired": 340, "fft_conv:split": 1232, "fft_conv:tensor_core": 480},
    **{"fft_conv:symmetric": 32, "fft_conv:persistent": 32, "fft_conv:wgmma": 20},
    # 64 elements of a row
    **{"softmax:prefetch": 96, "rms_norm:prefetch": 80, "layer_norm:prefetch": 240},
    # 16 elements of two rows that begin anywhere, before they are shifted
    **{"rms_norm_backward:cluster": 96, "layer_norm_backward:cluster": 64, "layer_norm_backward:fused": 56},
    **{"layer_norm_backward:one_cluster": 20, "layer_norm:split_rows": 16},
    # several vectors of 16-bit types ahead
    **{"rms_norm_backward:split_rows": 36, "layer_norm_backward:split_rows": 20, "gemm:one_vector": 80},
    "gemm:thread_columns": 112,
    # two blocks or more a multiprocessor; of 64 threads ptxas makes it as many as shared memory has room for
    **{"conv2d:halo": 32, "conv2d:depthwise_tma": 20, "conv2d:pointwise": 12, "gemm:split_warp_tiles": 36},
    # accumulators of 256 columns, with some compilers; a state of 16 x 32
    **{"attention_backward:tensor_core": 8, "attention:small_blocks": 8, "ssd:chunked": 8},
    # a producer with 24 registers, beside consumers with 240
    "attention_varlen:packed_heads": 68,
    # rows of 32 sums that leave tensor memory, and of 128 weights; no device has run these
    **{"gemm:tensor_memory": 28, "gemm:tries_to_cancel": 40, "gemm_fp8:tensor_memory": 16, "attention:two_tiles": 192},
    "gemm_block_scaled:tensor_memory": 28,
}
"""Bytes a thread, and what takes the registers. The transforms and `prefetch` were slower with fewer elements a thread;
of the others most are of few problems, and not timed without."""


@pytest.mark.parametrize("stage", registry.stages(), ids=lambda s: s.spec)
def test_no_stage_spills_registers(stage: Stage, pytestconfig: pytest.Config) -> None:
    if is_thorough(pytestconfig, stage):
        problems = tuple(_problems(stage, pytestconfig.getoption("workbench_examples")))
    else:
        problems = (assembled(stage, open_device("emulator")),)
    found = list(suite_resources(stage, problems))
    for configured, problem in _tuned(stage):
        found += suite_resources(configured, (problem,))
    assert found
    spilt = [
        f"{r.kernel} {r.variant}: {r.spill_bytes} bytes" for r in found if r.spill_bytes > SPILT.get(stage.spec, 0)
    ]
    assert spilt == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        # of a row of one or two vectors there is nothing more to load
        ("matvec:shared_rows", "n=5000,k=9,dtype=bf16"),
        ("matvec:shared_rows", "n=5000,k=25,dtype=fp16"),
        # the next row begins anywhere too
        ("rms_norm_backward:fused", "rows=3000,columns=4001,dtype=fp32,out=fp32"),
        ("rms_norm_backward:fused", "rows=3000,columns=4001,dtype=bf16,out=fp32"),
    ],
)
def test_no_more_is_loaded_ahead_than_registers_hold(spec: str, problem: str) -> None:
    (stage,) = registry.select([spec])
    found = resources(stage, registry.operation_of(stage).problem.parse(problem))
    assert [r.spill_bytes for r in found] == [0] * len(found)


@pytest.mark.gpu
@pytest.mark.parametrize("stage", registry.stages(), ids=lambda s: s.spec)
def test_the_driver_counts_as_many_resident_blocks(stage: Stage) -> None:
    from cuda.bindings import driver

    device = CudaDevice()
    if misfit := stage.misfit(device.machine.architecture):
        pytest.skip(misfit)
    # a stage for few rows may take no problem of the suite
    problem = next(iter((*suite(stage, device), *drawn(stage, open_device("emulator"), examples=1, seed=0))))
    compiled = compile_source(stage.path, stage.defines(problem))
    for launch, found in zip(stage.plan(problem).launches, resources(stage, problem), strict=True):
        function = device.function(compiled, launch).kernel.ptr
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        error, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, launch.shared_bytes)
        assert int(error) == 0
        assert found.blocks_per_sm == blocks


@given(st.integers(1, 400), st.sampled_from((1, 2, 4)), st.integers(1, 150))
def test_a_persistent_launch_has_no_more_blocks_than_its_rounds_need(items: int, cluster: int, resident: int) -> None:
    launch = Launch("k", (items * cluster, 2, 1), (32, 1, 1), (), cluster=(cluster, 1, 1), persistent=True)
    most, blocks = launch.persistent_blocks(resident), launch.even_blocks(resident)
    rounds = ceil_div(launch.grid[0], most)
    assert blocks % cluster == 0 and blocks <= most and ceil_div(launch.grid[0], blocks) == rounds
    assert blocks == cluster or ceil_div(launch.grid[0], blocks - cluster) > rounds
    assert most == min(launch.grid[0], max(cluster, resident // cluster * cluster))
