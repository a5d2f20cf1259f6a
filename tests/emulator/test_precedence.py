"""Which of several findings is reported: the cause, not what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from async_hazards import cuda, launch, outer
from emulation import compile_cuda, fault_of, line_of
from test_warpgroup_hazards import PRODUCT

from workbench.emulator import DeviceLimits, FindingKind, Memory, TensorMap, execute
from workbench.emulator import launch as run

SEEDS = range(5)

DIVERGED = cuda("""
extern "C" __global__ void k(int* a, int* x) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];                  // fills
#if defined(BUG_HALF)
    if (t % 32 < 16) __syncthreads();  // half
    x[t] = tile[t ^ 33];
#elif defined(BUG_LOOP)
    for (int i = 0; i <= t % 2; ++i) {
        __syncthreads();             // in a loop
        x[t] = tile[t ^ 32] + tile[t];
        tile[t] = a[t] + i;
    }
#elif defined(BUG_RACE)
    for (int i = 0; i < t % 5; ++i) x[64 + t] += i;
    x[t] = tile[t ^ 32];             // reads
    for (int i = 0; i < t % 7; ++i) x[64 + t] -= i;
#else
    for (int i = 0; i < t % 5; ++i) x[64 + t] += i;
    __syncthreads();
    x[t] = tile[t ^ 33];
#endif
    __syncthreads();                 // all
    a[t] = tile[t];
}
""")


@pytest.mark.parametrize(("bug", "marker"), [("BUG_HALF", "half"), ("BUG_LOOP", "in a loop")])
def test_a_barrier_that_part_of_a_warp_passes_by_comes_before_the_race_it_leads_to(bug: str, marker: str) -> None:
    for seed in SEEDS:
        launch(DIVERGED, "RIGHT", 1, 64, seed, None)
        finding = launch(DIVERGED, bug, 1, 64, seed, FindingKind.DIVERGENT_COLLECTIVE)
        assert finding is not None
        barriers = {outer(where) for where in (finding.location, finding.other) if where}
        assert barriers & {line_of(DIVERGED, f"// {m}") for m in (marker, "all")}, str(finding)


def test_of_a_launch_that_could_go_on_only_the_barrier_is_reported_or_only_the_race() -> None:
    for bug, kind in ("BUG_HALF", FindingKind.DIVERGENT_COLLECTIVE), ("BUG_RACE", FindingKind.RACE):
        for seed in SEEDS:
            a, x = np.arange(1024, dtype=np.int32), np.zeros(1024, np.int32)
            report = run(compile_cuda(DIVERGED, bug), "k", 1, 64, [a, x], seed=seed)
            assert {f.kind for f in report.findings} == {kind}, str(report)
            assert report.statistics.stopped == (bug == "BUG_HALF")


def test_a_race_is_one_while_lanes_are_yet_to_come_to_a_barrier() -> None:
    expected = {line_of(DIVERGED, f"// {marker}") for marker in ("fills", "reads")}
    for seed in SEEDS:
        finding = launch(DIVERGED, "BUG_RACE", 1, 64, seed, FindingKind.RACE)
        assert {outer(finding.location), outer(finding.other)} == expected, str(finding)
        assert "__syncthreads() is missing between" in finding.advice


TWO_STAGES = PRODUCT.replace("tile[9216]", "tile[16384]").replace(
    "    wait(&bar, 0);",
    """
    __shared__ __align__(8) u64 later;
    if (t == 0) {
        init(&later, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(&later, 8192);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {0, 0}], [%2];" :: "r"(address(tile + 8192)), "l"(&map), "r"(address(&later)) : "memory");
    }
    wait(&bar, 0);""",
)


@pytest.mark.parametrize(("code", "atom", "said"), [(0, 2048, "no swizzle"), (3, 4096, "a swizzle of 32 bytes")])
def test_another_swizzle_comes_before_what_it_reads_of_other_tiles(code: int, atom: int, said: str) -> None:
    entry = compile_cuda(TWO_STAGES, f"SWIZZLE_CODE={code}ull", f"ATOM={atom}").entries["k"]
    for seed in SEEDS:
        memory = Memory()
        a = memory.upload(np.zeros((128, 64), np.uint16), "a")
        args: list[Any] = [TensorMap(a, 2, (64, 128), (128,), (64, 64), swizzle=128), memory.allocate(512, "x")]
        finding = fault_of(FindingKind.DESCRIPTOR, entry, 1, 128, args, memory=memory, seed=seed)
        assert outer(finding.location) == line_of(TWO_STAGES, "// multiply")
        assert f"reads `tile` with {said}, but the tensor copy at" in finding.message


COUNTING = cuda("""
extern "C" __global__ void k(int* a, int* x) {
    extern __shared__ int large[];
    atomicAdd(x, 1);
    int turns = 0;
    while (*(volatile int*)x < gridDim.x) ++turns;  // waits
    a[blockIdx.x] = turns;
}
""")


FOUR = DeviceLimits("of four multiprocessors", "sm_90a", 4)


@pytest.mark.parametrize("blocks", [4, 5])
def test_a_loop_that_counts_its_turns_may_wait_for_a_block_that_is_not_resident(blocks: int) -> None:
    memory = Memory()
    args = [memory.upload(np.zeros(256, np.int32), name) for name in "ax"]
    options: Any = {"memory": memory, "shared_bytes": 200 << 10, "limits": FOUR, "max_warp_instructions": 40_000}
    entry = compile_cuda(COUNTING).entries["k"]
    if blocks == 4:
        execute(entry, blocks, 1, args, **options)
        return
    options["suppress"] = ("race_volatile",)
    finding = fault_of(FindingKind.LIVELOCK, entry, blocks, 1, args, **options)
    assert outer(finding.location) == line_of(COUNTING, "// waits")
    assert "the device is full, and block (4, 0, 0) has not begun" in finding.message
    assert "launch no more than the device holds at once" in finding.advice
