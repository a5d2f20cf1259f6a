"""Races: small kernels that are right, and the same kernels with one piece of synchronisation missing. What single
operations order is tested by random programs, in test_happens_before.py; here kernels are as people write them.

``GUARD`` stands for what puts accesses in order; each broken variant leaves it out. A broken kernel has to be found
whatever the order of warps that the seed draws, a right one has to be clean in all of them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from emulation import compile_cuda, line_of
from sample_kernels import on_device

from workbench.emulator import Checks, Finding, FindingKind, KernelFault, Memory, execute

SEEDS = range(10)

SOURCE = on_device("""
#ifdef BROKEN
#define GUARD(...)
#else
#define GUARD(...) __VA_ARGS__
#endif
#define KERNEL extern "C" __global__ void
__device__ __forceinline__ void sync_named(int n, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(n), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive(u64* b) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(address(b)) : "memory");
}
KERNEL before_reads(float* out, int n) {
    __shared__ float tile[128];
    tile[threadIdx.x] = 0;
    __syncthreads();
    tile[threadIdx.x] = threadIdx.x;             // before_reads store
    GUARD(__syncthreads();)
    out[threadIdx.x] = tile[127 - threadIdx.x];  // before_reads load
}
KERNEL after_reads(float* out, int n) {
    __shared__ float tile[128];
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
        tile[threadIdx.x] = i + threadIdx.x;     // after_reads store
        __syncthreads();
        sum += tile[127 - threadIdx.x];          // after_reads load
        GUARD(__syncthreads();)
    }
    out[threadIdx.x] = sum;
}
KERNEL within_warp(float* out, int n) {
    __shared__ float tile[128];
    tile[threadIdx.x] = threadIdx.x;             // within_warp store
    GUARD(__syncwarp();)
    out[threadIdx.x] = tile[threadIdx.x ^ 1];    // within_warp load
}
KERNEL same_instruction(float* out, int n) {
    __shared__ int flag;
#ifdef BROKEN
    if (threadIdx.x < 32) flag = threadIdx.x;    // same_instruction
#else
    if (threadIdx.x < 32) flag = 7;
#endif
    __syncthreads();
    out[threadIdx.x] = flag;
}
KERNEL handshake(float* out, int n) {
    __shared__ float data[32];
    __shared__ int flag_storage;
    volatile int* flag = &flag_storage;
    if (threadIdx.x == 0) *flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        data[threadIdx.x] = threadIdx.x;         // handshake store
        __syncwarp();
        GUARD(__threadfence_block();)
        if (threadIdx.x == 0) *flag = 1;
    } else if (threadIdx.x < 64) {
        while (*flag == 0) {}
        GUARD(__threadfence_block();)
        out[threadIdx.x - 32] = data[threadIdx.x - 32];  // handshake load
    }
}
KERNEL one_lane_polls(float* out, int n) {
    __shared__ float data[32];
    __shared__ int flag_storage;
    volatile int* flag = &flag_storage;
    if (threadIdx.x == 0) *flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        data[threadIdx.x] = threadIdx.x;
        __syncwarp();
        if (threadIdx.x == 0) { __threadfence_block(); *flag = 1; }
    } else if (threadIdx.x < 64) {
        if (threadIdx.x == 32) { while (*flag == 0) {} __threadfence_block(); }
        GUARD(__syncwarp();)
        out[threadIdx.x - 32] = data[threadIdx.x - 32];
    }
}
KERNEL one_lane_waits(float* out, int n) {
    __shared__ float ring[2][32];
    __shared__ u64 full[2], empty[2];
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; ++s) init(&full[s], 1), init(&empty[s], 1);
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int i = 0; i < 6; ++i) {
            if (threadIdx.x == 5) wait(&empty[i % 2], i / 2 % 2 ^ 1);
            __syncwarp();
            ring[i % 2][threadIdx.x] = i + threadIdx.x;
            __syncwarp();
            if (threadIdx.x == 7) arrive(&full[i % 2]);
        }
    } else if (threadIdx.x < 64) {
        float sum = 0;
        for (int i = 0; i < 6; ++i) {
            if (threadIdx.x == 32) wait(&full[i % 2], i / 2 % 2);
            GUARD(__syncwarp();)
            sum += ring[i % 2][63 - threadIdx.x];  // one_lane_waits load
            __syncwarp();
            if (threadIdx.x == 63) arrive(&empty[i % 2]);
        }
        out[threadIdx.x - 32] = sum;
    }
}
KERNEL lanes_wait_in_turn(float* out, int n) {  // a warp that has come apart: all of its lanes wait for themselves
    __shared__ float tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) init(&full, 32);
    __syncthreads();
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = threadIdx.x;
        arrive(&full);
    } else if (threadIdx.x < 64) {
        if (threadIdx.x < 40) { __nanosleep(100); wait(&full, 0); }
        else if (threadIdx.x < 64) { GUARD(wait(&full, 0);) }
        out[threadIdx.x - 32] = tile[63 - threadIdx.x];
    }
}
KERNEL two_groups(float* out, int n) {  // hand a tile back and forth through flags, and wait busily
    __shared__ float tile[64];
    __shared__ int full_storage;
    volatile int* full = &full_storage;
    if (threadIdx.x == 0) *full = 0;
    __syncthreads();
    if (threadIdx.x < 64) {
        for (int i = 0; i < 3; ++i) {
            if (threadIdx.x == 0) { while (*full == 1) {} GUARD(__threadfence_block();) }
            GUARD(sync_named(1, 64);)
            tile[threadIdx.x] = i + threadIdx.x;  // two_groups store
            GUARD(sync_named(1, 64);)
            if (threadIdx.x == 0) { GUARD(__threadfence_block();) *full = 1; }
        }
    } else {
        float sum = 0;
        for (int i = 0; i < 3; ++i) {
            if (threadIdx.x == 64) { while (*full == 0) {} GUARD(__threadfence_block();) }
            GUARD(sync_named(2, 64);)
            sum += tile[127 - threadIdx.x];       // two_groups load
            GUARD(sync_named(2, 64);)
            if (threadIdx.x == 64) { GUARD(__threadfence_block();) *full = 0; }
        }
        out[threadIdx.x - 64] = sum;
    }
}
KERNEL histogram(int* out, int n) {
    __shared__ int bins[8];
    if (threadIdx.x < 8) bins[threadIdx.x] = 0;
    __syncthreads();
#ifdef BROKEN
    bins[threadIdx.x / 32 % 4]++;
#else
    atomicAdd(&bins[threadIdx.x % 8], 1);
#endif
    __syncthreads();
    if (threadIdx.x < 4) out[threadIdx.x] = bins[threadIdx.x];
}
KERNEL last_block(float* out, float* part, unsigned* count) {
    __shared__ bool last;
    part[blockIdx.x * 128 + threadIdx.x] = blockIdx.x;     // last_block store
    GUARD(__threadfence();)
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(count, 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    GUARD(__threadfence();)
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += part[b * 128 + threadIdx.x];  // last_block load
    out[threadIdx.x] = sum;
}
KERNEL last_block_by_one_thread(float* out, float* part, unsigned* count) {
    __shared__ bool last;
    part[blockIdx.x * 128 + threadIdx.x] = blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        GUARD(__threadfence();)
        last = atomicAdd(count, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += part[b * 128 + threadIdx.x];
    out[threadIdx.x] = sum;
}
KERNEL look_back(float* out, float* part, unsigned* flag_storage) {
    volatile unsigned* flag = flag_storage;
    float before = 0;
    if (threadIdx.x == 0) {
        if (blockIdx.x > 0) {
            while (flag[blockIdx.x] == 0) {}
            GUARD(__threadfence();)
            before = part[blockIdx.x - 1];
        }
        part[blockIdx.x] = before + 1;
        GUARD(__threadfence();)
        if (blockIdx.x + 1 < gridDim.x) flag[blockIdx.x + 1] = 1;
        out[blockIdx.x] = before;
    }
}
KERNEL polled_then_acquired(float* out, float* part, unsigned* flag) {
    if (blockIdx.x == 0) {
        part[threadIdx.x] = threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) asm volatile("st.release.gpu.u32 [%0], 1;" :: "l"(flag) : "memory");
    } else {
        unsigned seen;
        do asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); while (!seen);
        GUARD(asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");)
        out[blockIdx.x * 128 + threadIdx.x] = part[threadIdx.x];
    }
}
KERNEL grid_barrier(float* out, float* part, unsigned* count) {
    part[blockIdx.x * 128 + threadIdx.x] = blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        GUARD(__threadfence();)
        atomicAdd(count, 1);
        while (*(volatile unsigned*)count < gridDim.x) {}
        GUARD(__threadfence();)
    }
    __syncthreads();
    int other = (blockIdx.x + 1) % gridDim.x;
    out[blockIdx.x * 128 + threadIdx.x] = part[other * 128 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        GUARD(__threadfence();)
        atomicAdd(count, 1);
        while (*(volatile unsigned*)count < 2 * gridDim.x) {}
        GUARD(__threadfence();)
    }
    __syncthreads();
    part[blockIdx.x * 128 + threadIdx.x] = 1;
}
KERNEL one_output(float* out, float* part, unsigned* count) {
#ifdef BROKEN
    out[threadIdx.x] = 1;                        // one_output
#else
    out[blockIdx.x * 128 + threadIdx.x] = 1;
#endif
}
KERNEL zeroed_and_added(float* out, float* part, unsigned* count) {
#ifdef BROKEN
    if (blockIdx.x == 0) part[threadIdx.x] = 0;  // zeroed
#endif
    atomicAdd(&part[threadIdx.x], 1.f);          // added
}
""")

KERNELS = re.findall(r"KERNEL (\w+)\((.*?)\)", SOURCE)
ONE_BLOCK = [name for name, parameters in KERNELS if "part" not in parameters]
GRID = [name for name, parameters in KERNELS if "part" in parameters]


def run(kernel: str, *defines: str, seed: int = 0, threads: int = 1, checks: Checks = Checks.ALL) -> Any:
    memory = Memory()
    zeros = np.zeros(8 * 128, np.float32)
    grid: int
    args: list[Any]
    out = memory.allocate(zeros.nbytes, "out")
    if kernel in GRID:
        part = memory.upload(zeros, "part")
        count = memory.upload(np.zeros(16, np.uint32), "count")
        grid, args = 8, [out, part, count]
    else:
        grid, args = 1, [out, 128]
    entry = compile_cuda(SOURCE, *defines).entries[kernel]
    execute(
        entry,
        grid,
        128,
        args,
        memory=memory,
        seed=seed,
        threads=threads,
        checks=checks,
        max_warp_instructions=500_000,
        strict=True,
        suppress=("race_volatile",),  # of flags that are volatile
    )
    return memory.read(out, np.float32, 1024)


def race_of(kernel: str, seed: int = 0, threads: int = 1) -> Finding:
    with pytest.raises(KernelFault) as caught:
        run(kernel, "BROKEN", seed=seed, threads=threads)
    finding = caught.value.finding
    assert finding.kind == FindingKind.RACE, str(finding)
    return finding


@pytest.mark.parametrize("kernel", ONE_BLOCK + GRID)
def test_synchronised_kernels_are_clean(kernel: str) -> None:
    for seed in SEEDS:
        run(kernel, seed=seed)
    run(kernel, seed=1, threads=2)


@pytest.mark.parametrize("kernel", ONE_BLOCK + GRID)
def test_a_missing_synchronisation_is_found_under_every_seed(kernel: str) -> None:
    for seed in SEEDS:
        race_of(kernel, seed)


@pytest.mark.parametrize("kernel", ["before_reads", "within_warp", "same_instruction", "one_output"])
def test_the_check_can_be_turned_off(kernel: str) -> None:
    run(kernel, "BROKEN", checks=Checks.ALL & ~Checks.RACES)


def test_host_threads_do_not_hide_races_between_blocks() -> None:
    for seed in SEEDS:
        race_of("one_output", seed, threads=2)


def lines_of(*markers: str) -> set[int]:
    return {line_of(SOURCE, f"// {marker}") for marker in markers}


def named(finding: Finding) -> set[int]:
    return {finding.location.line, finding.other.line}


def test_both_lines_are_named_and_what_is_missing_between_them() -> None:
    for seed in SEEDS:
        finding = race_of("before_reads", seed)
        assert named(finding) == lines_of("before_reads store", "before_reads load")
        assert (finding.array, finding.space) == ("tile", "shared")
        assert "__syncthreads() is missing between kernel.cu:" in finding.advice
        assert "nothing orders the two accesses" in str(finding)


def test_the_barrier_after_the_reads() -> None:
    assert named(race_of("after_reads", 3)) == lines_of("after_reads store", "after_reads load")


def test_lanes_of_a_warp_are_told_to_sync() -> None:
    finding = race_of("within_warp")
    assert "lane 1 of the same warp writes" in finding.message
    assert finding.advice.startswith("__syncwarp() is missing between")


def test_groups_that_hand_over_through_flags_without_fences() -> None:
    for seed in SEEDS:
        finding = race_of("two_groups", seed)
        assert finding.array == "tile"
        assert finding.location.line in lines_of("two_groups store", "two_groups load")


def test_one_instruction_that_stores_two_values() -> None:
    finding = race_of("same_instruction")
    assert {finding.location.line} == lines_of("same_instruction")
    assert "lanes 0 and 1 write different values to `flag`" in finding.message


def test_blocks_that_store_one_output() -> None:
    finding = race_of("one_output")
    assert (finding.array, finding.space) == ("out", "global")
    assert "of block (" in finding.message
    assert "__threadfence() and an atomic flag" in finding.advice


def test_zeroing_and_adding() -> None:
    for seed in SEEDS:
        assert named(race_of("zeroed_and_added", seed)) == lines_of("zeroed", "added")
