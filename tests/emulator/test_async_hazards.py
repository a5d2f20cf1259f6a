"""Hazards of Hopper's asynchronous machinery: each at its line, whatever the order of warps; the right kernel is clean.

A kernel is right as it stands; ``-DBUG_...`` plants one hazard, on the line that carries the bug's marker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import compile_cuda, fault_of, line_of
from kernels import DEVICE

from workbench.emulator import Finding, FindingKind, KernelFault, Memory, execute
from workbench.emulator.ptx import SourceLocation

SEEDS = range(10)

HEAD = (
    DEVICE
    + """
#define FENCE_PROXY asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define FENCE_INIT asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define COMMIT asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define WAIT_STORES asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
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
