"""What stores, atomics and loads do not show to others: bulk stores waited for by .read, narrow scopes, the read-only
cache. Each kernel is right without its bug."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import cuda, launch, outer
from emulation import compile_cuda, line_of

from workbench.emulator import FindingKind
from workbench.emulator import launch as run

SEEDS = range(3)


def check(source: str, bug: str, lines: set[str], words: str, *, block: int, grid: int = 2) -> None:
    """The bug is found under every seed, as a race of the lines that are marked so; without it there is none."""
    for seed in SEEDS:
        launch(source, "RIGHT", grid, block, seed, None)
        finding = launch(source, bug, grid, block, seed, FindingKind.RACE)
        assert {outer(finding.location), outer(finding.other)} == {line_of(source, f"// {m}") for m in lines}, finding
        for part in words.split(" ... "):
            assert part in str(finding), str(finding)


BULK_STORE = cuda("""
#define WAIT_READ asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
#define RAISE(f) asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(f) : "memory")
__device__ __forceinline__ void await(int* f) {
    int v;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(f) : "memory"); while (!v);
}
extern "C" __global__ void k(int* a, int* x) {
    __shared__ alignas(128) int tile[64];
    if (blockIdx.x == 0) {
        tile[threadIdx.x] = threadIdx.x + 1;
        FENCE_PROXY;
        __syncthreads();
        if (threadIdx.x == 0) {
            STORE(x, tile, 256);                // bulk store
            COMMIT;
#ifdef NO_WAIT
            a[0] = x[1];                        // reads at once
#endif
#if defined(READ_BACK) || defined(OWN_BLOCK) || defined(OTHER_BLOCK)
            WAIT_READ;
#else
            WAIT_STORES;
#endif
#if defined(READ_BACK) || defined(RIGHT)
            a[0] = x[1];                        // reads back
#endif
#if defined(STORED_TWICE) || defined(OVERWRITES) || defined(RIGHT)
            STORE(x + 64, tile, 32);            // second store
            COMMIT;
#ifndef STORED_TWICE
            WAIT_STORES;
#endif
            STORE(x + 64, tile + 8, 32);        // third store
            COMMIT;
            WAIT_READ;                          // its source is free now
#endif
            RAISE(x + 512);
        }
        __syncthreads();
        tile[threadIdx.x] = 0;
#if defined(OVERWRITES)
        x[64 + threadIdx.x] = 0;                // overwrites
#endif
#if defined(OWN_BLOCK) || defined(RIGHT)
        a[1 + threadIdx.x] = x[threadIdx.x ^ 32];  // own block reads
#endif
    } else if (threadIdx.x == 0) {
        await(x + 512);
        a[128] = x[5];                          // other block reads
    }
    if (threadIdx.x == 0) WAIT_STORES;
}
""")


@pytest.mark.parametrize(
    ("bug", "lines"),
    [
        ("NO_WAIT", {"bulk store", "reads at once"}),
        ("READ_BACK", {"bulk store", "reads back"}),
        ("OWN_BLOCK", {"bulk store", "own block reads"}),
        ("OTHER_BLOCK", {"bulk store", "other block reads"}),
        ("STORED_TWICE", {"second store", "third store"}),
        ("OVERWRITES", {"third store", "overwrites"}),
    ],
)
def test_what_a_bulk_store_writes_is_visible_after_a_wait_without_read_only(bug: str, lines: set[str]) -> None:
    grid = 1 if bug in ("OWN_BLOCK", "READ_BACK") else 2
    check(BULK_STORE, bug, lines, "cp.async.bulk.wait_group, without .read", block=64, grid=grid)


SCOPES = cuda("""
#define ASM(text, place) asm volatile(text :: "l"(place) : "memory")
#define POLL(scope, place) do { \\
    asm volatile("ld." scope ".global.u32 %0, [%1];" : "=r"(v) : "l"(place) : "memory"); } while (!v)
#if !defined(RELEASED)
#define RELEASED "gpu"
#endif
#if !defined(ACQUIRED)
#define ACQUIRED "acquire.gpu"
#endif
#if !defined(BEFORE)
#define BEFORE "gpu"
#endif
#if !defined(BEHIND)
#define BEHIND "gpu"
#endif
#if !defined(COUNTED)
#define COUNTED
#endif
extern "C" __global__ void k(int* a, int* x) {
    int v;
    if (threadIdx.x) return;
    asm volatile("red" COUNTED ".global.add.u32 [%0], 1;" :: "l"(x + 2) : "memory");  // counts
    if (blockIdx.x == 0) {
        a[0] = 7;                                            // stores
        ASM("st.release." RELEASED ".global.u32 [%0], 1;", x);  // releases
        a[1] = 8;                                            // stores before the fence
        ASM("fence.acq_rel." BEFORE "; st.relaxed.gpu.global.u32 [%0], 1;", x + 1);
    } else {
        POLL(ACQUIRED, x);                                   // acquires
        x[9] = a[0];                                         // loads
        POLL("relaxed.gpu", x + 1);
        asm volatile("fence.acq_rel." BEHIND ";" ::: "memory");
        x[10] = a[1];                                        // loads behind the fence
    }
}
""")
FENCED = {"stores before the fence", "loads behind the fence"}


@pytest.mark.parametrize(
    ("bug", "lines", "words"),
    [
        ('COUNTED=".cta"', {"counts"}, "`red.cta.global.add.u32` is atomic within its block only"),
        ('COUNTED=".cluster"', {"counts"}, "is atomic within its cluster only"),
        ('RELEASED="cta"', {"releases", "acquires"}, "`st.release.cta.global.u32` is atomic within its block only"),
        ('ACQUIRED="acquire.cta"', {"releases", "acquires"}, "is atomic within its block only"),
        ('BEFORE="cta"', FENCED, "`fence.acq_rel.cta` at kernel.cu: ... orders nothing beyond its block"),
        ('BEHIND="cta"', FENCED, "`fence.acq_rel.cta` at kernel.cu: ... orders nothing beyond its block"),
        ('BEHIND="cluster"', FENCED, "`fence.acq_rel.cluster` at kernel.cu: ... orders nothing beyond its cluster"),
    ],
)
def test_a_scope_without_the_other_block_is_neither_atomic_nor_ordered(bug: str, lines: set[str], words: str) -> None:
    check(SCOPES, bug, lines, words, block=32)


BLOCK_SCOPE = cuda("""
#if !defined(FENCE_SCOPE)
#define FENCE_SCOPE "cta"
#endif
extern "C" __global__ void k(int* a, int* x) {
    __shared__ int flag, value;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        value = a[5];                        // stores
        asm volatile("red.release.cta.shared.add.u32 [%0], 1;" :: "r"(address(&flag)) : "memory");
    } else if (threadIdx.x == 32) {
        int v;
        do asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(address(&flag)) : "memory");
        while (!v);
#ifdef RIGHT
        asm volatile("fence.acq_rel.cta;" ::: "memory");
#endif
        a[blockIdx.x] = value;               // loads
    }
}
""")


def test_the_scope_of_a_block_is_enough_within_it() -> None:
    check(BLOCK_SCOPE, "NO_FENCE", {"stores", "loads"}, "", block=64)


FENCE_OF_ONE = BLOCK_SCOPE.replace("threadIdx.x == 32", "threadIdx.x / 32 == 1").replace(
    "#ifdef RIGHT", "#if defined(ONE_LANE)\n        if (threadIdx.x % 2)\n#endif"
)


def test_a_fence_of_one_lane_is_none_of_another_that_has_read_a_flag() -> None:
    source = FENCE_OF_ONE.replace('memory");\n#endif', 'memory");').replace(
        "a[blockIdx.x] =", "a[blockIdx.x * 64 + threadIdx.x] ="
    )
    check(source, "ONE_LANE", {"stores", "loads"}, "", block=64)


READ_ONLY = cuda("""
extern "C" __global__ void k(int* a, int* x) {
    int i = threadIdx.x;
#if defined(STORED_BEFORE)
    x[i] = 3;                        // stores
    __syncthreads();
    a[i] = __ldg(x + (i ^ 32));      // loads
#elif defined(STORED_BEHIND)
    int v = __ldg(x + i);            // loads
    __syncthreads();
    x[i ^ 32] = v;                   // stores
#elif defined(ADDED_BEHIND)
    int v = __ldg(x + i);            // loads
    __syncthreads();
    atomicAdd(x + i, v);             // stores
#elif defined(IN_PLACE)
    int v = __ldg(x + i);            // loads
    x[i] = v + 1;                    // stores
#else
    x[i] = 3;                        // stores
    __syncthreads();
    x[i] += __ldg(a + i) + x[i ^ 32];  // loads
#endif
}
""")


@pytest.mark.parametrize("bug", ["STORED_BEFORE", "STORED_BEHIND", "ADDED_BEHIND", "IN_PLACE"])
def test_the_read_only_cache_is_for_what_no_thread_writes(bug: str) -> None:
    branch = READ_ONLY[READ_ONLY.index(f"({bug})") :].split("#el")[0]
    start = READ_ONLY[: READ_ONLY.index(f"({bug})")].count("\n")
    expected = {start + line_of(branch, f"// {marker}") for marker in ("stores", "loads")}
    for seed in SEEDS:
        launch(READ_ONLY.replace("i ^ 32]", "i]"), "RIGHT", 1, 64, seed, None)
        finding = launch(READ_ONLY, bug, 1, 64, seed, FindingKind.RACE)
        assert {outer(finding.location), outer(finding.other)} == expected, str(finding)
        assert finding.cause == ("incoherent_load" if bug == "STORED_BEFORE" else "read_only_changed")
        assert "goes through the read-only cache" in finding.message


def test_a_launch_goes_on_behind_a_load_through_the_read_only_cache() -> None:
    for bug, ok in ("STORED_BEFORE", False), ("IN_PLACE", True):
        a, x = np.arange(64, dtype=np.int32), np.arange(64, dtype=np.int32)
        report = run(compile_cuda(READ_ONLY, bug), "k", 1, 64, [a, x])
        assert (report.ok, len(report.findings), report.statistics.stopped) == (ok, 1, False), str(report)
        np.testing.assert_array_equal(x, np.arange(1, 65) if ok else np.full(64, 3))
