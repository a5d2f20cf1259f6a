"""Warp operations, control flow and barriers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from emulation import apply, compile_cuda
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.emulator import H200, FindingKind, KernelFault, Memory, execute

LANES = np.arange(32)
RNG = np.random.default_rng(9)


def test_collectives_of_the_lanes_named_in_a_mask() -> None:
    source = """
    extern "C" __global__ void k(int* out) {
        int lane = threadIdx.x, value = lane * 10;
        if (lane & 1) value = __reduce_add_sync(0xAAAAAAAAu, value) + __popc(__ballot_sync(0xAAAAAAAAu, lane > 8));
        else value = __shfl_xor_sync(0x55555555u, value, 2);
        __syncwarp();
        out[lane] = value;
    }
    """
    memory = Memory()
    out = memory.allocate(128, "out")
    execute(compile_cuda(source).entries["k"], 1, 32, [out], memory=memory)
    odd = sum(10 * lane for lane in range(1, 32, 2)) + len([lane for lane in range(1, 32, 2) if lane > 8])
    assert memory.read(out, np.int32).tolist() == [odd if lane & 1 else (lane ^ 2) * 10 for lane in range(32)]


def test_special_registers_know_where_a_thread_is() -> None:
    source = """
    extern "C" __global__ void k(unsigned* out) {
        unsigned warp, lane, less;
        asm("mov.u32 %0, %%warpid;" : "=r"(warp)); asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        asm("mov.u32 %0, %%lanemask_lt;" : "=r"(less));
        unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        unsigned all = blockDim.x * blockDim.y * blockDim.z;
        unsigned* mine = out + 4 * (block * all + thread);
        mine[0] = block; mine[1] = warp * 32 + lane; mine[2] = less; mine[3] = threadIdx.y * 100 + threadIdx.z;
    }
    """
    memory = Memory()
    grid, block = (2, 3, 2), (5, 4, 3)
    out = memory.allocate(4 * 4 * 12 * 60, "out")
    execute(compile_cuda(source).entries["k"], grid, block, [out], memory=memory)
    found = memory.read(out, np.uint32, (12, 60, 4))
    threads = np.arange(60)
    assert np.array_equal(found[:, :, 0], np.broadcast_to(np.arange(12)[:, None], (12, 60)))
    assert np.array_equal(found[3, :, 1], threads)
    assert np.array_equal(found[3, :, 2], (1 << threads % 32) - 1)
    assert np.array_equal(found[3, :, 3], threads // 5 % 4 * 100 + threads // 20)


@given(st.lists(st.integers(-3, 40), min_size=32, max_size=32), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_lanes_that_go_their_own_ways_compute_what_they_would_alone(inputs: list[int], seed: int) -> None:
    source = """
    extern "C" __global__ void k(int* data) {
        int n = data[threadIdx.x], steps = 0;
        if (n < 0) { data[threadIdx.x] = -1; return; }
        for (int i = 0; i < n; ++i) {
            if (i % 3 == 0) continue;
            steps += i;
            if (steps > 200) break;
            switch (n & 3) {
                case 0: steps += 1; break;
                case 1: steps ^= 5; break;
                case 2: steps *= 2; break;
                default: --steps;
            }
        }
        while (n > 1) { n = n & 1 ? 3 * n + 1 : n / 2; ++steps; }
        data[threadIdx.x] = steps;
    }
    """

    def alone(n: int) -> int:
        if n < 0:
            return -1
        steps = 0
        for i in range(n):
            if i % 3 == 0:
                continue
            steps += i
            if steps > 200:
                break
            steps = [steps + 1, steps ^ 5, steps * 2, steps - 1][n & 3]
        while n > 1:
            n = 3 * n + 1 if n & 1 else n // 2
            steps += 1
        return steps

    memory = Memory()
    data = memory.upload(np.array(inputs, np.int32), "data")
    execute(compile_cuda(source).entries["k"], 1, 32, [data], memory=memory, seed=seed)
    assert memory.read(data, np.int32).tolist() == [alone(n) for n in inputs]


def test_indexed_branches() -> None:
    body = """
    T: .branchtargets L0, L1, L2;
    brx.idx %a, T;
    L0: mov.u32 %x, 10; bra J;
    L1: mov.u32 %x, 11; bra J;
    L2: mov.u32 %x, 12;
    J:
    """
    array = RNG.integers(0, 3, 64).astype(np.uint32)
    assert np.array_equal(apply(body, [("b32", array)], "b32"), array + 10)


def test_calls_are_expanded_with_registers_of_their_own() -> None:
    source = """
    __device__ __noinline__ float inner(float x, int n) {
        float part[4]; for (int i = 0; i < 4; ++i) part[(i + n) & 3] = x + i;
        if (n & 1) return part[n & 3] * 2;
        return part[1];
    }
    __device__ __noinline__ double outer(float x, int n, double z) { return inner(x, n) + inner(x + 1, n + 1) + z; }
    extern "C" __global__ void k(double* out) {
        int n = threadIdx.x;
        double a = outer(n, n, 0.5);
        if (n > 7) a += outer(1, 2, 3);
        out[n] = a;
    }
    """

    def inner(x: float, n: int) -> float:
        part = [0.0] * 4
        for i in range(4):
            part[(i + n) & 3] = x + i
        return part[n & 3] * 2 if n & 1 else part[1]

    def outer(x: float, n: int, z: float) -> float:
        return inner(x, n) + inner(x + 1, n + 1) + z

    memory = Memory()
    out = memory.allocate(32 * 8, "out")
    execute(compile_cuda(source).entries["k"], 1, 32, [out], memory=memory)
    expected = [outer(n, n, 0.5) + (outer(1, 2, 3) if n > 7 else 0) for n in range(32)]
    assert memory.read(out, np.float64).tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_barriers_order_warps(seed: int) -> None:
    source = """
    extern "C" __global__ void k(int* out) {
        __shared__ int ring[256];
        int t = threadIdx.x;
        ring[t] = t;
        for (int i = 0; i < 5; ++i) {
            __syncthreads();
            int other = ring[(t + 97) % 256];
            __syncthreads();
            ring[t] = other;
        }
        int many = __syncthreads_count(t % 3 == 0), any = __syncthreads_or(t == 77), all = __syncthreads_and(t < 255);
        out[t] = ring[t] + 1000 * many + 1000000 * any + 10000000 * all;
    }
    """
    memory = Memory()
    out = memory.allocate(1024, "out")
    execute(compile_cuda(source).entries["k"], 1, 256, [out], memory=memory, seed=seed)
    expected = (np.arange(256) + 5 * 97) % 256 + 1000 * 86 + 1000000
    assert memory.read(out, np.int32).tolist() == expected.tolist()


def test_named_barriers_pass_a_tile_from_warp_to_warp() -> None:
    source = """
    extern "C" __global__ void k(int* out) {
        __shared__ int slot[32];
        int lane = threadIdx.x & 31;
        for (int i = 0; i < 4; ++i) {
            if (threadIdx.x < 32) {
                slot[lane] = i * 100 + lane;
                asm volatile("bar.arrive 1, 64;" ::: "memory");
                asm volatile("bar.sync 2, 64;" ::: "memory");
            } else {
                asm volatile("bar.sync 1, 64;" ::: "memory");
                out[i * 32 + lane] = slot[31 - lane];
                asm volatile("bar.arrive 2, 64;" ::: "memory");
            }
        }
    }
    """
    for seed in range(4):
        memory = Memory()
        out = memory.allocate(512, "out")
        execute(compile_cuda(source).entries["k"], 1, 64, [out], memory=memory, seed=seed)
        expected = np.arange(4)[:, None] * 100 + LANES[::-1]
        assert np.array_equal(memory.read(out, np.int32, (4, 32)), expected)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_that_wait_for_each_other_are_resident_together(seed: int) -> None:
    source = """
    extern "C" __global__ void k(volatile int* flag, int* out) {
        if (threadIdx.x == 0) {
            if (blockIdx.x == 0) { while (*flag == 0) {} out[0] = 42; }
            else { __threadfence(); *flag = 1; }
        }
    }
    """
    memory = Memory()
    flag, out = memory.upload(np.zeros(1, np.int32), "flag"), memory.allocate(4, "out")
    execute(compile_cuda(source).entries["k"], 2, 32, [flag, out], memory=memory, seed=seed)
    assert memory.read(out, np.int32)[0] == 42


SMALL = dataclasses.replace(H200, sm_count=2, max_blocks_per_sm=2)
"""A device that holds four blocks."""

GRID_WIDE = """
extern "C" __global__ void flag(unsigned* arrived) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*static_cast<volatile unsigned*>(arrived) < gridDim.x * gridDim.y) {}  // flag
    }
    __syncthreads();
}
extern "C" __global__ void swap(unsigned* arrived) {
    __shared__ unsigned seen;
    if (threadIdx.x == 0) atomicAdd(arrived, 1u);
    do {
        if (threadIdx.x == 0) seen = atomicCAS(arrived, 0u, 0u);  // swap
        __nanosleep(20);
        __syncthreads();
        const bool all = seen >= gridDim.x * gridDim.y;
        __syncthreads();
        if (all) break;
    } while (true);
}
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", ["flag", "swap"])
def test_blocks_that_wait_for_one_that_is_not_resident_are_named(kernel: str, threads: int) -> None:
    entry = compile_cuda(GRID_WIDE).entries[kernel]
    memory = Memory()
    arrived = memory.upload(np.zeros(2, np.uint32), "arrived")
    execute(entry, 4, 64, [arrived], memory=memory, limits=SMALL, threads=threads)  # all are resident
    arrived = memory.upload(np.zeros(2, np.uint32), "arrived")
    with pytest.raises(KernelFault) as fault:
        execute(entry, (3, 2), 64, [arrived], memory=memory, limits=SMALL, threads=threads, max_seconds=60)
    finding, said = fault.value.finding, str(fault.value)
    assert finding.kind is FindingKind.DEADLOCK and finding.cause == "not_resident"
    assert finding.source_line.endswith(f"// {kernel}")
    assert "the device holds 4 blocks at once, all of them wait, and block (1, 1, 0) and 1 more have not begun" in said
    assert "launch at most 4 blocks" in said


def test_blocks_that_take_long_are_not_taken_for_waiting_ones() -> None:
    source = """
    extern "C" __global__ void steps(unsigned* out) {
        unsigned x = blockIdx.x;
        #pragma unroll 1
        for (int i = 0; i < 60000; ++i) x = (x * 1664525u) ^ (x >> 7);
        out[blockIdx.x] = x;
    }
    extern "C" __global__ void countdown(volatile int* left) {
        while (left[blockIdx.x] > 0) left[blockIdx.x] = left[blockIdx.x] - 1;
    }
    extern "C" __global__ void turns(volatile int* next) {
        while (*next != blockIdx.x) {}
        for (int i = 0; i < 50000; ++i) next[8 + blockIdx.x % 2] = i;
        *next = blockIdx.x + 1;
    }
    extern "C" __global__ void high_half(unsigned* count) {  // no register tells that memory changes
        while (reinterpret_cast<volatile unsigned short*>(count + blockIdx.x)[1] < 2)
            asm volatile("red.global.add.u32 [%0], 1;" :: "l"(__cvta_generic_to_global(count + blockIdx.x)));
    }
    extern "C" __global__ void high_half_of_own(unsigned* count) {
        __shared__ unsigned own;
        own = count[blockIdx.x];
        while (reinterpret_cast<volatile unsigned short*>(&own)[1] < 2)
            asm volatile("red.shared.add.u32 [%0], 1;" :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(&own))));
    }
    """
    for name in ("steps", "countdown", "turns", "high_half", "high_half_of_own"):
        memory = Memory()
        values = memory.upload(np.array([0, *[20_000] * 9] if name == "turns" else [20_000] * 10, np.int32), "values")
        statistics = execute(compile_cuda(source).entries[name], 6, 1, [values], memory=memory, limits=SMALL)
        assert statistics.warp_instructions > 6 * 2 * 2**15, name  # long enough to be looked at
