"""Warps and blocks take turns between two atomic accesses: what a protocol leaves for a moment is seen by others."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import compile_cuda, line_of

from workbench.emulator import FindingKind, Report, launch

SEEDS = range(8)

LOCKS = """
__device__ int global[2];
__device__ void take(int* lock) { while (atomicCAS(lock, 0, 1) != 0); __threadfence(); }
__device__ void give(int* lock) { __threadfence(); atomicExch(lock, 0); }
extern "C" __global__ void k(int* x, int warps) {
    __shared__ int shared[2];
    if (threadIdx.x < 2) shared[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x % 32) return;
    int* lock = warps ? shared : global;
#ifdef BUG
    int first = (warps ? threadIdx.x / 32 : blockIdx.x) % 2;
#else
    int first = 0;
#endif
    for (int i = 0; i < 5; ++i) {
        take(lock + first);
        take(lock + (first ^ 1));  // the other one
        x[blockIdx.x * warps] += 1;
        give(lock + (first ^ 1));
        give(lock + first);
    }
}
"""


def locks(define: str, warps: bool, seed: int) -> tuple[Report, int]:
    x = np.zeros(1, np.int32)
    blocks, threads = (1, 128) if warps else (4, 32)
    report = launch(
        compile_cuda(LOCKS, define), "k", blocks, threads, [x, warps], seed=seed, max_warp_instructions=200_000
    )
    return report, int(x[0])


@pytest.mark.parametrize("warps", [False, True])
def test_locks_that_are_taken_in_two_orders(warps: bool) -> None:
    hung = []
    for seed in SEEDS:
        report, x = locks("RIGHT", warps, seed)
        assert report.ok and x == 20, str(report)
        hung += locks("BUG", warps, seed)[0].failures
    assert len(hung) >= len(SEEDS) // 2
    assert {finding.kind for finding in hung} == {FindingKind.LIVELOCK}
    assert all("take" in LOCKS.splitlines()[finding.location.line - 1] for finding in hung if finding.location)


LOST = """
extern "C" __global__ void k(int* x) {
    if (threadIdx.x % 32) return;
#ifdef BUG
    const int seen = atomicAdd(x, 0);
    atomicExch(x, seen + 1);
#else
    atomicAdd(x, 1);
#endif
}
"""


def test_an_update_in_two_steps_is_lost() -> None:
    for define, blocks, threads in (("BUG", 8, 32), ("BUG", 1, 256), ("RIGHT", 8, 32), ("RIGHT", 1, 256)):
        results = []
        for seed in SEEDS:
            x = np.zeros(1, np.int32)
            assert launch(compile_cuda(LOST, define), "k", blocks, threads, [x], seed=seed).ok
            results.append(int(x[0]))
        assert (set(results) == {8}) == (define == "RIGHT"), results


LOOK_BACK = """
__device__ int next;
extern "C" __global__ void k(const int* x, int* y, int* sum, int* total, int* state) {
    const int tile = atomicAdd(&next, 1);
    int before = 0;
    sum[tile] = x[tile];
#ifdef BUG
    asm volatile("st.relaxed.gpu.s32 [%0], 1;" :: "l"(state + tile) : "memory");
#else
    asm volatile("st.release.gpu.s32 [%0], 1;" :: "l"(state + tile) : "memory");
#endif
    for (int other = tile - 1; other >= 0; --other) {
        int seen;
        do asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(seen) : "l"(state + other) : "memory"); while (!seen);
        if (seen == 2) { before += total[other]; break; }
        before += sum[other];  // looks back
    }
    total[tile] = before + x[tile];
    asm volatile("st.release.gpu.s32 [%0], 2;" :: "l"(state + tile) : "memory");
    y[tile] = before + x[tile];
}
"""


def test_look_back_meets_tiles_that_have_only_their_own_sum() -> None:
    found = []
    for seed in SEEDS:
        x, y = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
        spaces = [np.zeros(8, np.int32) for _ in range(3)]
        assert launch(compile_cuda(LOOK_BACK, "RIGHT"), "k", 8, 1, [x, y, *spaces], seed=seed).ok
        assert y.tolist() == np.cumsum(x).tolist()
        spaces = [np.zeros(8, np.int32) for _ in range(3)]
        found += launch(compile_cuda(LOOK_BACK, "BUG"), "k", 8, 1, [x, y, *spaces], seed=seed).failures
    assert {finding.kind for finding in found} == {FindingKind.RACE}
    assert {finding.location.line for finding in found if finding.location} == {line_of(LOOK_BACK, "// looks back")}


GRID_BARRIER = """
__device__ unsigned arrived;
__device__ unsigned look() {
#ifdef ATOMIC
    return atomicAdd(&arrived, 0);
#else
    unsigned seen;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(&arrived) : "memory");
    return seen;
#endif
}
__device__ void meet() {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const unsigned old = atomicAdd(&arrived, blockIdx.x ? 1 : (1u << 31) - (gridDim.x - 1));
        while (((old ^ look()) >> 31) == 0) {}
        __threadfence();
    }
    __syncthreads();
}
extern "C" __global__ void k(int* x, int* y) {
    const int n = gridDim.x * blockDim.x, here = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < 3; ++i) {
        x[here] += 1;
        meet();
        y[here] += x[(here + blockDim.x) % n];
        meet();
    }
}
"""


@pytest.mark.parametrize("reads", ["ATOMIC", "ACQUIRE"])
@pytest.mark.parametrize("blocks", [16, 64])
def test_blocks_that_wait_for_all_others_end_after_few_instructions(blocks: int, reads: str) -> None:
    """A slice of a block that polls ends soon, and a block whose other warps have come to a barrier may go on."""
    for seed in SEEDS[:2]:
        x, y = (np.zeros(blocks * 256, np.int32) for _ in range(2))
        module = compile_cuda(GRID_BARRIER, reads)
        report = launch(module, "k", blocks, 256, [x, y], seed=seed, max_warp_instructions=20_000)
        assert report.ok, str(report)
        assert (y == 6).all()
