"""What a race is told to be mended by: it has to hold for every warp that comes there, and to wait for no other.

Each kernel lacks one piece of synchronisation. The remedy that is named is put in its place, and then it runs clean.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from emulation import compile_cuda, line_of
from sample_kernels import on_device

from workbench.emulator import Finding, FindingKind, KernelFault, Memory, Program, execute

SOURCE = on_device("""
#define KERNEL(name) extern "C" __global__ void name(float* out, int n)
__device__ __forceinline__ void named(int id, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_at(u64* b) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(address(b)) : "memory");
}
#ifdef MENDED
#define LACKS(...) __VA_ARGS__
#else
#define LACKS(...)
#endif
KERNEL(whole_block) {
    __shared__ float tile[256];
    const int t = threadIdx.x;
    float sum = 0.f;
    for (int i = 0; i < 3; ++i) {
        tile[t] = i;                            // whole_block store
        __syncthreads();
        sum += tile[t ^ 1] + tile[255 - t];     // whole_block load
        LACKS(__syncthreads();)
    }
    out[t] = sum;
}
KERNEL(one_warp) {
    __shared__ float tile[256];
    const int t = threadIdx.x;
    tile[t] = t;
    LACKS(__syncwarp();)
    out[t] = tile[t ^ 1];
}
KERNEL(roles) {
    __shared__ float tile[256];
    const int t = threadIdx.x;
    if (t < 128) {
        for (int i = 0; i < 3; ++i) {
            named(2, 128);
            tile[t] = i;                        // roles store
            LACKS(named(1, 128);)
            out[t] = tile[127 - t];             // roles load
        }
    } else {
        tile[t] = 0;
        for (int i = 0; i < 400; ++i) tile[t] += i;
        out[t] = tile[t] * 0;
    }
}
KERNEL(handed_over) {
    __shared__ float tile[128];
    __shared__ u64 full, empty;
    const int t = threadIdx.x;
    if (t == 0) { init(&full, 128); init(&empty, 128); }
    __syncthreads();
    if (t < 128) {
        for (int i = 0; i < 3; ++i) {
            LACKS(wait(&empty, i & 1 ^ 1);)
            tile[t] = i;                        // handed_over store
            arrive_at(&full);
        }
    } else {
        for (int i = 0; i < 3; ++i) {
            wait(&full, i & 1);
            out[t] = tile[255 - t];             // handed_over load
            arrive_at(&empty);
        }
    }
}
KERNEL(in_a_branch) {
    __shared__ float tile[256];
    const int t = threadIdx.x;
    tile[t] = t;                                // in_a_branch store
    LACKS(__syncthreads();)
    if (t < 128) __syncthreads();               // in_a_branch barrier
    out[t] = tile[255 - t];                     // in_a_branch load
    LACKS(if (t >= 128) __syncthreads();)
}
KERNEL(with_a_loop) {
    __shared__ float tile[256];
    const int t = threadIdx.x;
    tile[t] = t;                                // with_a_loop store
    LACKS(__syncthreads();)
    for (int s = 128; s > 0; s /= 2) {
        if (t < s) tile[t] += tile[t + s];      // with_a_loop load
        __syncthreads();
    }
    out[t] = tile[0];
}
""")


@cache
def program(defines: str) -> Program:
    return compile_cuda(f"{defines}\n{SOURCE}")


def finding(kernel: str, seed: int = 0, defines: str = "") -> Finding | None:
    memory = Memory()
    out = memory.upload(np.zeros(256, np.float32), "out")
    try:
        execute(
            program(defines).entries[kernel],
            1,
            256,
            [out, np.int32(256)],
            memory=memory,
            seed=seed,
            max_warp_instructions=200_000,
        )
    except KernelFault as fault:
        return fault.finding
    return None


REMEDIES = {
    "whole_block": r"^__syncthreads\(\) is missing between \S+:{load} and \S+:{store}$",
    "one_warp": r"^__syncwarp\(\) is missing between",
    "roles": r"^a named barrier of warps? [0-3].*, bar\.sync ID, THREADS, is missing between"
    r"|^a barrier of all warps that come here is missing between .*: a named one, bar\.sync ID, THREADS,",
    "handed_over": r"warps? .* and warps? .* take different branches, so __syncthreads\(\) does not work: synchronise "
    r"them by the pipeline's mbarriers\. .*\. One of these is missing",
    "in_a_branch": r"^not all threads come to the barrier at \S+:{barrier}: .* between \S+:{store} and \S+:{load} that",
    "with_a_loop": r"^__syncthreads\(\) is missing between \S+:{store} and \S+:{load}$",
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kernel", REMEDIES)
def test_the_remedy_fits_all_warps_that_come_there(kernel: str, seed: int) -> None:
    found = finding(kernel, seed)
    assert found.kind is FindingKind.RACE
    places = {place: line_of(SOURCE, f"{kernel} {place}") + 1 for place in re.findall("{([a-z]+)}", REMEDIES[kernel])}
    assert re.search(REMEDIES[kernel].format(**places), found.advice), found.advice


@pytest.mark.parametrize("kernel", REMEDIES)
def test_with_it_the_kernel_is_clean(kernel: str) -> None:
    assert [finding(kernel, seed, "#define MENDED") for seed in range(3)] == [None] * 3
