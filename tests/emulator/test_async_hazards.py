"""Hazards of Hopper's asynchronous machinery: each at its line, whatever the order of warps; the right kernel is clean.

A kernel is right as it stands; ``-DBUG_...`` plants one hazard, on the line that carries the bug's marker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import compile_cuda, fault_of, line_of
from kernels import DEVICE

from workbench.emulator import Checks, Finding, FindingKind, KernelFault, Memory, execute
from workbench.emulator.ptx import SourceLocation

SEEDS = range(10)

HEAD = (
    DEVICE
    + """
#define FENCE_PROXY asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define FENCE asm volatile("fence.acq_rel.cta;" ::: "memory")
#define FENCE_INIT asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define COMMIT asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define WAIT_STORES asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
#define ON(b) :: "r"(address(b)) : "memory"
#define INVALIDATE(b) asm volatile("mbarrier.inval.shared.b64 [%0];" ON(b))
#define ARRIVE(b) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(address(b)) : "memory")
#define LOAD(to, from, bytes, b) asm volatile( \\
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \\
    :: "r"(address(to)), "l"(from), "r"(bytes), "r"(address(b)) : "memory")
#define STORE(to, from, bytes) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" \\
    :: "l"(to), "r"(address(from)), "r"(bytes) : "memory")
#define CLUSTER_ARRIVE asm volatile("barrier.cluster.arrive.aligned;" ::: "memory")
#define CLUSTER_RELAXED asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define CLUSTER_WAIT asm volatile("barrier.cluster.wait.aligned;" ::: "memory")
__device__ __forceinline__ unsigned rank() {
    unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r;
}
__device__ __forceinline__ unsigned at(const void* p, unsigned r) {
    unsigned a;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(address(p)), "r"(r));
    return a;
}
"""
)


def launch(source: str, define: str, grid: int, block: int, seed: int, kind: FindingKind | None) -> Finding | None:
    """Runs ``k(a, x)`` with 1024 ints each, a counting up; the finding, which must be of the kind."""
    memory = Memory()
    a, x = memory.upload(np.arange(1024, dtype=np.int32), "a"), memory.upload(np.zeros(1024, np.int32), "x")
    args: Any = compile_cuda(source, define).entries["k"], grid, block, [a, x]
    if kind is None:
        execute(*args, memory=memory, seed=seed)
        return None
    finding = fault_of(kind, *args, memory=memory, seed=seed)
    assert isinstance(finding, Finding)
    return finding


def outer(location: SourceLocation | None) -> int:
    """The line of the kernel itself."""
    assert location is not None
    return location.inlined_at[-1].line if location.inlined_at else location.line


def check(
    source: str, bug: str, kind: FindingKind, here: str, there: str = "", words: str = "", *, grid: int = 1, block: int
) -> None:
    """The bug is found under every seed, at the line marked ``here`` with its cause at ``there``."""
    launch(source, "RIGHT", grid, block, 0, None)
    for seed in SEEDS:
        finding = launch(source, bug, grid, block, seed, kind)
        assert finding is not None
        assert outer(finding.location) == line_of(source, f"// {here}"), str(finding)
        if there:
            assert outer(finding.other) == line_of(source, f"// {there}"), str(finding)
        assert words in str(finding), str(finding)
        assert finding.advice
        assert f"seed {seed}" in str(finding)


# ------------------------------------------------------------------------------------------------- what a copy reads

IN_PLACE = (
    HEAD
    + """
extern "C" __global__ void k(int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 full;
    const int t = threadIdx.x;
    if (t == 0) {
        init(&full, 1);
        FENCE_INIT;
        FENCE_PROXY;
        expect(&full, 256);
        LOAD(tile, a, 256, &full);  // issued
    }
    __syncthreads();
#ifdef RIGHT
    wait(&full, 0);
#endif
    if (t == 63) a[5] = 7;  // overwritten
    __syncthreads();
    wait(&full, 0);
    x[t] = tile[t];
}
"""
)


def test_what_a_copy_reads_stays_until_it_has_landed() -> None:
    """Not only until it was issued: even where its warp knows of the store by the time of the landing."""
    launch(IN_PLACE, "RIGHT", 1, 64, 0, None)
    for seed in range(20):
        finding = launch(IN_PLACE, "BUG", 1, 64, seed, FindingKind.RACE)
        assert finding is not None
        lines = {outer(finding.location), outer(finding.other)}
        assert lines == {line_of(IN_PLACE, "// issued"), line_of(IN_PLACE, "// overwritten")}


# --------------------------------------------------------------------------------------------------------- proxy fence

BULK_STORE = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    tile[threadIdx.x] = a[threadIdx.x];  // stored
#if !defined(BUG_NONE) && !defined(BUG_ONE) && !defined(CONSUMER)
    FENCE_PROXY;
#endif
#ifdef BUG_ONE
    if (threadIdx.x == 0) FENCE_PROXY;
#endif
    __syncthreads();
    if (threadIdx.x == 0) {
#ifdef CONSUMER
        FENCE_PROXY;
#endif
        STORE(x, tile, 256);  // copied
        COMMIT;
        WAIT_STORES;
    }
}
"""
)


@pytest.mark.parametrize("bug", ["BUG_NONE", "BUG_ONE"])
def test_a_bulk_store_without_a_proxy_fence(bug: str) -> None:
    check(BULK_STORE, bug, FindingKind.PROXY_FENCE, "copied", "stored", "fence.proxy.async.shared::cta", block=64)


def test_a_proxy_fence_may_stand_anywhere_on_the_way() -> None:
    launch(BULK_STORE, "CONSUMER", 1, 64, 0, None)


OVERWRITTEN = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    tile[threadIdx.x] = -1;  // cleared
    if (threadIdx.x == 0) { init(&bar, 1); FENCE_INIT; }
#ifndef BUG_CLEAR
    FENCE_PROXY;
#endif
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, 256);
        LOAD(tile, a, 256, &bar);  // loaded
    }
    wait(&bar, 0);
    x[threadIdx.x] = tile[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {  // what was read may be overwritten without a fence
        expect(&bar, 256);
        LOAD(tile, a + 64, 256, &bar);
    }
    wait(&bar, 1);
    x[threadIdx.x] += tile[threadIdx.x];
}
"""
)


def test_a_bulk_load_over_ordinary_stores_without_a_proxy_fence() -> None:
    check(OVERWRITTEN, "BUG_CLEAR", FindingKind.PROXY_FENCE, "loaded", "cleared", "overwrites `tile`", block=64)


THROUGH_GLOBAL = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    x[threadIdx.x] = a[threadIdx.x];  // stored
#ifndef BUG_GLOBAL
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
    if (threadIdx.x == 0) { init(&bar, 1); FENCE_INIT; }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, 256);
        LOAD(tile, x, 256, &bar);  // loaded
    }
    wait(&bar, 0);
    x[64 + threadIdx.x] = tile[63 - threadIdx.x];
}
"""
)


def test_a_bulk_load_of_what_the_launch_has_stored_to_global_memory() -> None:
    check(THROUGH_GLOBAL, "BUG_GLOBAL", FindingKind.PROXY_FENCE, "loaded", "stored", "proxy.async.global", block=64)


FLAG = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[32];
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = a[threadIdx.x];  // stored
#ifndef BUG_FLAG
        FENCE_PROXY;
#endif
        __syncwarp();
        __threadfence_block();
        if (threadIdx.x == 0) flag = 1;
    } else if (threadIdx.x == 32) {
        while (!flag) {}
        __threadfence_block();
        STORE(x, tile, 128);  // copied
        COMMIT;
        WAIT_STORES;
    }
}
"""
)


def test_a_proxy_fence_is_handed_over_by_a_flag() -> None:
    check(FLAG, "BUG_FLAG", FindingKind.PROXY_FENCE, "copied", "stored", block=64)


# ----------------------------------------------------------------------------------------------------------- mbarriers

INITIALISED = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 32) {
        init(&bar, 1);  // initialised
#ifndef BUG_FENCE
        FENCE_INIT;
#endif
    }
#ifdef BUG_SYNC
    __syncwarp();
    for (int i = 0; i < 3000; ++i) asm volatile("");
    if (threadIdx.x == 0) __nanosleep(1);
#else
    __syncthreads();
#endif
    if (threadIdx.x == 0) {
        expect(&bar, 256);  // expected
        LOAD(tile, a, 256, &bar);  // loaded
    }
    wait(&bar, 0);
    x[threadIdx.x] = tile[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(address(&bar)) : "memory");
}
"""
)


def test_an_mbarrier_that_the_async_proxy_may_not_see() -> None:
    words = "fence.mbarrier_init.release.cluster or fence.proxy.async"
    check(INITIALISED, "BUG_FENCE", FindingKind.MBARRIER_MISUSE, "loaded", "initialised", words, block=64)


def test_an_mbarrier_that_other_threads_may_not_see() -> None:
    """Under some seeds it is not initialised yet, which is said instead; the line may be the wait's."""
    lines = {line_of(INITIALISED, "// expected"), line_of(DEVICE, "try_wait.parity")}
    causes = set()
    for seed in SEEDS:
        finding = launch(INITIALISED, "BUG_SYNC", 1, 64, seed, FindingKind.MBARRIER_MISUSE)
        assert finding is not None
        assert finding.location is not None
        assert finding.location.line in lines, str(finding)
        causes.add(finding.cause)
    assert causes == {"mbarrier_not_visible", "mbarrier_invalid"}


LANES = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) init(&bar, 32);  // initialised
#ifndef BUG_LANES
    __syncwarp();
#endif
    ARRIVE(&bar);  // arrived
    wait(&bar, 0);
    x[threadIdx.x] = 1;
}
"""
)


def test_an_mbarrier_that_other_lanes_may_not_see() -> None:
    words = "by lane 0 of the same warp"
    check(LANES, "BUG_LANES", FindingKind.MBARRIER_MISUSE, "arrived", "initialised", words, block=32)


AGAIN = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) init(&bar, 32);
    __syncthreads();
    if (threadIdx.x >= 32) {
        ARRIVE(&bar);  // arrived
    } else {
        wait(&bar, 0);
    }
    if (threadIdx.x >= 32) wait(&bar, 0);
#ifndef BUG_AGAIN
    __syncthreads();
#endif
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(address(&bar)) : "memory");  // invalidated
        init(&bar, 1);
    }
}
"""
)


def test_an_mbarrier_that_goes_away_while_others_may_use_it() -> None:
    """The other warp's wait comes before the end, or after it: then there is no mbarrier any more."""
    launch(AGAIN, "RIGHT", 1, 64, 0, None)
    found = set()
    for seed in SEEDS:
        finding = launch(AGAIN, "BUG_AGAIN", 1, 64, seed, FindingKind.MBARRIER_MISUSE)
        assert finding is not None
        assert finding.location is not None
        found.add((finding.cause, finding.location.line))
    wait_line = line_of(DEVICE, "try_wait.parity")
    assert found <= {
        ("mbarrier_in_use", line_of(AGAIN, "// invalidated")),
        ("mbarrier_invalid", wait_line),
        ("mbarrier_not_visible", wait_line),
    }
    assert any(cause == "mbarrier_in_use" for cause, _ in found)


CLUSTER_BARRIER = (
    HEAD
    + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const int* a, int* x) {
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 2);  // initialised
#ifndef BUG_RELAXED
        FENCE_INIT;
#endif
    }
    CLUSTER_RELAXED;
    CLUSTER_WAIT;
    if (threadIdx.x < 2)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"  // arrived
            :: "r"(at(&bar, threadIdx.x)) : "memory");
    __syncwarp();
    wait(&bar, 0);
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
}
"""
)


def test_a_relaxed_cluster_barrier_needs_the_fence_for_mbarriers() -> None:
    kind = FindingKind.MBARRIER_MISUSE
    check(CLUSTER_BARRIER, "BUG_RELAXED", kind, "arrived", "initialised", "of the cluster", grid=2, block=32)


# ------------------------------------------------------------------------------------------------ overwritten mbarriers

RING = (
    HEAD
    + """
struct Ring { int tile[64]; u64 bars[2]; };
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const int* a, int* x) {
    __shared__ __align__(128) Ring ring;
    __shared__ __align__(8) u64 full;
    int* tile = ring.tile;
    const int t = threadIdx.x;
    if (t == 0) { init(ring.bars, 64); init(ring.bars + 1, 1); init(&full, 1); FENCE_INIT; }  // initialised
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
#if defined(RIGHT)
    tile[t] = a[t];
#elif defined(BUG_STORE)
    tile[t + 2] = a[t];  // written by STORE
#elif defined(BUG_BYTE)
    if (t == 0) ((char*)tile)[263] = 1;  // written by BYTE
#elif defined(BUG_VOLATILE)
    if (t == 0) *(volatile int*)(tile + 64) = 1;  // written by VOLATILE
#elif defined(BUG_ATOMIC)
    atomicAdd(tile + 65, 1);  // written by ATOMIC
#elif defined(BUG_ASYNC)
    if (t == 0) {
        copy4(tile + 64, a);  // written by ASYNC
        asm volatile("cp.async.wait_all;" ::: "memory");
    }
#elif defined(BUG_BULK)
    if (t == 0) {
        FENCE_PROXY;
        expect(&full, 272);
        LOAD(tile, a, 272, &full);  // written by BULK
    }
    wait(&full, 0);
#elif defined(BUG_REMOTE)
    if (rank() == 0 && t == 0)
        asm volatile("st.shared::cluster.u32 [%0], %1;"  // written by REMOTE
            :: "r"(at(tile + 64, 1)), "r"(1) : "memory");
#endif
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
    ARRIVE(ring.bars);  // used
    wait(ring.bars, 0);
    x[64 * rank() + t] = 1;
}
"""
)


@pytest.mark.parametrize("by", ["STORE", "BYTE", "VOLATILE", "ATOMIC", "ASYNC", "BULK", "REMOTE"])
def test_what_overwrites_an_mbarrier_is_found_at_its_next_use(by: str) -> None:
    check(RING, f"BUG_{by}", FindingKind.MBARRIER_MISUSE, f"written by {by}", "used", "overwrites", grid=2, block=64)


def test_an_overwritten_mbarrier_is_named_with_its_initialisation_and_its_use() -> None:
    finding = launch(RING, "BUG_STORE", 2, 64, 0, FindingKind.MBARRIER_MISUSE)
    assert finding is not None
    assert (finding.warp, finding.lane) == (1, 30)
    assert "overwrites mbarrier `ring" in finding.message
    assert f"initialised at kernel.cu:{line_of(DEVICE, 'mbarrier.init')} (from kernel.cu:" in finding.message
    assert f"(from kernel.cu:{line_of(RING, '// initialised')})" in finding.message
    assert f"which lane 0 of the same warp then uses at kernel.cu:{line_of(RING, '// used')}" in finding.message


def test_an_overwritten_mbarrier_is_found_at_its_use_where_races_are_not_looked_for() -> None:
    memory = Memory()
    args = [memory.upload(np.zeros(1024, np.int32), name) for name in ("a", "x")]
    entry = compile_cuda(RING, "BUG_STORE").entries["k"]
    checks = Checks.ALL & ~Checks.RACES
    finding = fault_of(FindingKind.MBARRIER_MISUSE, entry, 2, 64, args, memory=memory, checks=checks)
    assert finding.location.line == line_of(RING, "// used")
    assert f"(from kernel.cu:{line_of(RING, '// initialised')})" in finding.message
    assert "has been overwritten since" in finding.message


USED = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    int* behind = (int*)&bar;
    if (threadIdx.x == 0) { init(&bar, 64); FENCE_INIT; }
    __syncthreads();
#ifndef RIGHT
    if (threadIdx.x == 0) *behind = 0;  // overwritten
    __syncthreads();
#endif
#if defined(BUG_ARRIVE)
    ARRIVE(&bar);  // ARRIVE used
#elif defined(BUG_EXPECT)
    expect(&bar, 16);  // EXPECT used
#elif defined(BUG_EXPECT_ONLY)
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ON(&bar));  // EXPECT_ONLY used
#elif defined(BUG_COMPLETE)
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ON(&bar));  // COMPLETE used
#elif defined(BUG_TEST)
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%0], 0; }" ON(&bar));  // TEST used
#elif defined(BUG_WAIT)
    wait(&bar, 0);  // WAIT used
#elif defined(BUG_LOAD)
    if (threadIdx.x == 0) LOAD(tile, a, 256, &bar);  // LOAD used
#elif defined(BUG_ASYNC)
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ON(&bar));  // ASYNC used
#elif defined(BUG_INVALIDATE)
    if (threadIdx.x == 0) INVALIDATE(&bar);  // INVALIDATE used
#endif
    x[threadIdx.x] = 1;
}
"""
)


@pytest.mark.parametrize(
    "use", ["ARRIVE", "EXPECT", "EXPECT_ONLY", "COMPLETE", "TEST", "WAIT", "LOAD", "ASYNC", "INVALIDATE"]
)
def test_every_use_of_an_overwritten_mbarrier_is_a_hazard(use: str) -> None:
    check(USED, f"BUG_{use}", FindingKind.MBARRIER_MISUSE, "overwritten", f"{use} used", "overwrites", block=64)


LANDING = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1); FENCE_INIT;
        expect(&bar, 256);
        LOAD(tile, a, 256, &bar);  // loaded
#ifdef BUG_LANDING
        *(u64*)&bar = 0;  // overwritten
#endif
        __nanosleep(1);
        wait(&bar, 0);  // awaited
        x[0] = tile[0];
    }
}
"""
)


def test_a_copy_that_completes_on_an_overwritten_mbarrier() -> None:
    """Where it lands before the store, the wait is the next use."""
    launch(LANDING, "RIGHT", 1, 32, 0, None)
    used = set()
    for seed in SEEDS:
        finding = launch(LANDING, "BUG_LANDING", 1, 32, seed, FindingKind.MBARRIER_MISUSE)
        assert finding is not None
        assert outer(finding.location) == line_of(LANDING, "// overwritten"), str(finding)
        used.add(outer(finding.other))
    assert line_of(LANDING, "// loaded") in used
    assert used <= {line_of(LANDING, "// loaded"), line_of(LANDING, "// awaited")}


REUSED = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) u64 memory[32];
    u64* bar = memory + 3;
    int* tile = (int*)memory;
    tile[threadIdx.x] = -1;  // what was stored before counts for nothing
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        if (threadIdx.x == 0) init(bar, 64);
        __syncthreads();
        ARRIVE(bar);
        wait(bar, 0);
        if (threadIdx.x == 0) x[100 + round] = tile[6] == tile[7];  // a barrier's bytes can be read
        __syncthreads();
        if (threadIdx.x == 0 && round < 2) INVALIDATE(bar);
        __syncthreads();
        tile[threadIdx.x] = a[threadIdx.x] + round;  // after inval, in the last round after the last use
        __syncthreads();
        x[threadIdx.x] = tile[threadIdx.x ^ 1];
        __syncthreads();
    }
}
"""
)


def test_memory_of_an_mbarrier_is_free_after_inval_and_after_the_last_use() -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(1024, dtype=np.int32), "a"), memory.upload(np.zeros(1024, np.int32), "x")
    for seed in SEEDS:
        execute(compile_cuda(REUSED).entries["k"], 1, 64, [a, x], memory=memory, seed=seed)
        assert np.array_equal(memory.read(x, np.int32)[:64], (np.arange(64) ^ 1) + 2)


# --------------------------------------------------------------------------------------------- order of mbarriers

ORDER = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(8) u64 bar;
    __shared__ int value;
    if (threadIdx.x == 0) init(&bar, 1);
    __syncthreads();
    if (threadIdx.x == 32) {
        value = a[1];  // written
#ifdef FENCE_BEFORE
        FENCE;
#endif
        asm volatile("mbarrier." ARRIVE_FORM ON(&bar));
    } else if (threadIdx.x < 32) {
        asm volatile("{ .reg .pred p; L: mbarrier." WAIT_FORM " p, [%0], 0; @!p bra L; }" ON(&bar));
#ifdef FENCE_AFTER
        FENCE;
#endif
        x[threadIdx.x] = value;  // read
    }
}
"""
)


def outcomes(source: str, defines: tuple[str, ...], block: int) -> set[tuple[FindingKind, int, int] | None]:
    """What launches of ``k`` end with under several seeds: the finding's kind and lines, or None."""
    found: set[tuple[FindingKind, int, int] | None] = set()
    for seed in SEEDS:
        memory = Memory()
        args = [memory.upload(np.arange(1024, dtype=np.int32), name) for name in ("a", "x")]
        try:
            execute(compile_cuda(source, *defines).entries["k"], 1, block, args, memory=memory, seed=seed)
            found.add(None)
        except KernelFault as fault:
            finding = fault.finding
            found.add((finding.kind, outer(finding.location), outer(finding.other)))
    return found


def handed_over(arrive: str, wait: str, *fences: str) -> bool:
    """Whether data is handed over by these, under every seed; if not, it is a race at the reader under each."""
    forms = f'ARRIVE_FORM="{arrive}"', f'WAIT_FORM="{wait}"'
    found = outcomes(ORDER, (*forms, *fences), 64)
    race = (FindingKind.RACE, line_of(ORDER, "// read"), line_of(ORDER, "// written"))
    assert found in ({None}, {race}), found
    return found == {None}


ARRIVES = [
    "arrive{}.shared::cta.b64 _, [%0];",
    "arrive_drop{}.shared::cta.b64 _, [%0];",
    "arrive{}.shared::cluster.b64 _, [%0], 1;",
]
WAITS = ["test_wait.parity{}.shared::cta.b64", "try_wait.parity{}.shared::cta.b64"]


@pytest.mark.parametrize("arrive", ARRIVES)
@pytest.mark.parametrize("wait", WAITS)
def test_relaxed_mbarrier_operations_hand_nothing_over(arrive: str, wait: str) -> None:
    assert handed_over(arrive.format(""), wait.format(""))
    assert handed_over(arrive.format(".release.cta"), wait.format(".acquire.cta"))
    assert not handed_over(arrive.format(".relaxed.cta"), wait.format(""))
    assert not handed_over(arrive.format(".release.cluster"), wait.format(".relaxed.cluster"))


@pytest.mark.parametrize("fenced", [(), ("FENCE_BEFORE",), ("FENCE_AFTER",), ("FENCE_BEFORE", "FENCE_AFTER")])
@pytest.mark.parametrize("releases", [True, False])
@pytest.mark.parametrize("acquires", [True, False])
def test_a_fence_makes_up_for_a_relaxed_mbarrier_operation(
    fenced: tuple[str, ...], releases: bool, acquires: bool
) -> None:
    arrive = ARRIVES[0].format(".release.cta" if releases else ".relaxed.cta")
    wait = WAITS[1].format(".acquire.cta" if acquires else ".relaxed.cta")
    wanted = (releases or "FENCE_BEFORE" in fenced) and (acquires or "FENCE_AFTER" in fenced)
    assert handed_over(arrive, wait, *fenced) == wanted


FENCED_STORE = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[32];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) init(&bar, 32);
    __syncthreads();
    if (threadIdx.x >= 32) {
        tile[threadIdx.x - 32] = a[threadIdx.x];  // stored
#ifndef BUG_PROXY
        FENCE_PROXY;
#endif
        FENCE;
        asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" ON(&bar));
    } else if (threadIdx.x == 0) {
        wait(&bar, 0);
        STORE(x, tile, 128);  // copied
        COMMIT;
        WAIT_STORES;
    }
}
"""
)


def test_a_proxy_fence_is_handed_over_by_a_fenced_relaxed_arrival() -> None:
    check(FENCED_STORE, "BUG_PROXY", FindingKind.PROXY_FENCE, "copied", "stored", block=64)


def test_a_race_names_the_relaxed_mbarrier_operation() -> None:
    defines = 'ARRIVE_FORM="arrive.relaxed.cta.shared::cta.b64 _, [%0];"', f'WAIT_FORM="{WAITS[0].format("")}"'
    memory = Memory()
    args = [memory.upload(np.zeros(1024, np.int32), name) for name in ("a", "x")]
    finding = fault_of(FindingKind.RACE, compile_cuda(ORDER, *defines).entries["k"], 1, 64, args, memory=memory)
    line = line_of(ORDER, "ARRIVE_FORM")
    named = f"nothing is ordered by `mbarrier.arrive.relaxed.cta.shared::cta.b64` at kernel.cu:{line}"
    assert finding.advice.endswith(named)


RELAXED_COPY = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1); FENCE_INIT;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], 256;" ON(&bar));
        LOAD(tile, a, 256, &bar);  // loaded
    }
#ifdef ACQUIRE
    wait(&bar, 0);
#else
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 p, [%0], 0; @!p bra L; }"
        ON(&bar));
#endif
#ifdef FENCED
    FENCE;
#endif
    x[threadIdx.x] = tile[threadIdx.x];  // read
}
"""
)


def test_a_relaxed_wait_does_not_make_a_copy_visible() -> None:
    """The copy itself releases what it wrote, however relaxed the arrival that announced it."""
    race = (FindingKind.RACE, line_of(RELAXED_COPY, "// read"), line_of(RELAXED_COPY, "// loaded"))
    assert outcomes(RELAXED_COPY, ("RELAXED",), 64) == {race}
    assert outcomes(RELAXED_COPY, ("ACQUIRE",), 64) == {None}
    assert outcomes(RELAXED_COPY, ("FENCED",), 64) == {None}


EMPTY_SLOT = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 full, empty;
    if (threadIdx.x == 0) { init(&full, 1); init(&empty, 64); FENCE_INIT; }
    __syncthreads();
    for (int slice = 0; slice < 2; ++slice) {
        if (threadIdx.x == 64) {
            wait(&empty, slice + 1 & 1);
            expect(&full, 256);
            LOAD(tile, a, 256, &full);  // loaded
        } else if (threadIdx.x < 64) {
            wait(&full, slice);
            x[threadIdx.x] = tile[threadIdx.x];  // read
            asm volatile("mbarrier.arrive" FREED ".shared::cta.b64 _, [%0];" ON(&empty));
        }
    }
}
"""
)


def test_a_relaxed_arrival_does_not_free_a_slot() -> None:
    """That of the loads with one another is noticed first."""
    race = (FindingKind.RACE, line_of(EMPTY_SLOT, "// loaded"), line_of(EMPTY_SLOT, "// loaded"))
    assert outcomes(EMPTY_SLOT, ('FREED=".relaxed.cta"',), 96) == {race}
    assert outcomes(EMPTY_SLOT, ('FREED=".release.cta"',), 96) == {None}
    assert outcomes(EMPTY_SLOT, ('FREED=""',), 96) == {None}


# ------------------------------------------------------------------------------------------------- peers of a cluster

PEERS = (
    HEAD
    + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const int* a, int* x) {
    __shared__ __align__(128) int mine[32];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); FENCE_INIT; }
    mine[threadIdx.x] = threadIdx.x;
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
    if (rank() == 0) {
        int value = 0;
#ifdef BUG_READ
        asm volatile("ld.shared::cluster.u32 %0, [%1];"  // peer READ
            : "=r"(value) : "r"(at(mine + threadIdx.x, 1)) : "memory");
#endif
#ifdef BUG_WRITE
        asm volatile("st.shared::cluster.u32 [%0], %1;"  // peer WRITE
            :: "r"(at(mine + threadIdx.x, 1)), "r"(1) : "memory");
#endif
#ifdef BUG_ARRIVE
        if (threadIdx.x == 0)
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"  // peer ARRIVE
                :: "r"(at(&bar, 1)) : "memory");
#endif
        x[threadIdx.x] = value;
    }
#if defined(RIGHT)
    if (rank() == 0)
        asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(at(mine + threadIdx.x, 1)), "r"(1) : "memory");
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
#endif
}  // exit
"""
)


@pytest.mark.parametrize("bug", ["BUG_READ", "BUG_WRITE", "BUG_ARRIVE"])
def test_a_peer_that_may_have_exited(bug: str) -> None:
    launch(PEERS, "RIGHT", 2, 32, 0, None)
    messages = set()
    for seed in SEEDS:
        finding = launch(PEERS, bug, 2, 32, seed, FindingKind.EXITED_WITH_WORK)
        assert finding is not None
        assert outer(finding.location) == line_of(PEERS, f"// peer {bug[4:]}"), str(finding)
        assert outer(finding.other) == line_of(PEERS, "// exit"), str(finding)
        messages.add("may have exited" in finding.message)
    assert messages == {True, False}


MULTICAST = (
    HEAD
    + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); FENCE_INIT; expect(&bar, 256); }
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
    if (rank() == 0 && threadIdx.x == 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"  // multicast
            ".multicast::cluster [%0], [%1], %2, [%3], %4;"
            :: "r"(address(tile)), "l"(a), "r"(256), "r"(address(&bar)), "h"((short)3) : "memory");
    __syncwarp();
#ifdef BUG_MULTICAST
    if (rank() == 1) return;
#endif
    wait(&bar, 0);
    x[rank() * 32 + threadIdx.x] = tile[threadIdx.x];
}  // left
"""
)


def test_a_multicast_into_a_block_that_does_not_wait_for_it() -> None:
    """Where the block has left first, the multicast is blamed; else its exit, and the other line is the copy's."""
    launch(MULTICAST, "RIGHT", 2, 32, 0, None)
    multicast, left = line_of(MULTICAST, "// multicast"), line_of(MULTICAST, "// left")
    found = set()
    for seed in SEEDS:
        finding = launch(MULTICAST, "BUG_MULTICAST", 2, 32, seed, FindingKind.EXITED_WITH_WORK)
        assert finding is not None
        found.add(frozenset({outer(finding.location), outer(finding.other)}))
    assert found == {frozenset({multicast, left})}


@pytest.mark.parametrize(("mask", "says"), [(0b111, "blocks 0b111 of a cluster of 2 blocks"), (0, "blocks 0b0 of")])
def test_a_multicast_to_blocks_that_the_cluster_does_not_have(mask: int, says: str) -> None:
    source = MULTICAST.replace("(short)3", f"(short){mask}")
    finding = launch(source, "RIGHT", 2, 32, 0, FindingKind.BAD_OPERAND)
    assert finding is not None
    assert outer(finding.location) == line_of(source, "// multicast")
    assert says in finding.message and "none beyond its last" in str(finding)


LEAK = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1); FENCE_INIT;
        expect(&bar, 256);
        LOAD(tile, a, 256, &bar);  // loaded
    }
    __syncthreads();
#ifndef BUG_LEAK
    wait(&bar, 0);
#endif
    x[threadIdx.x] = 1;
}  // exit
"""
)


def test_a_block_that_never_waits_for_its_load() -> None:
    check(LEAK, "BUG_LEAK", FindingKind.EXITED_WITH_WORK, "exit", "loaded", "never waited for", block=64)


# --------------------------------------------------------------------------------------------------- parts of a copy

PIECE = (
    HEAD
    + """
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); FENCE_INIT; }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, 48);
        LOAD(tile + 4, a, 48, &bar);
        wait(&bar, 0);
        x[0] = tile[4] + tile[15];
    }
    if (threadIdx.x == 32) {
        tile[AT] = 1;
        x[1] = tile[AT];
    }
}
"""
)


@pytest.mark.parametrize("at", [3, 4, 7, 8, 15, 16])
def test_a_store_beside_a_copy_is_none_into_it(at: int) -> None:
    """A copy of 48 bytes from byte 16 on; another warp stores to an int before, in and behind it."""
    kinds = set()
    for seed in SEEDS:
        try:
            launch(PIECE, f"AT={at}", 1, 64, seed, None)
        except KernelFault as fault:
            kinds.add(fault.finding.kind)
    assert kinds <= {FindingKind.RACE, FindingKind.IN_FLIGHT}
    assert (FindingKind.RACE in kinds) == (4 <= at < 16)
