"""Hazards of Hopper's asynchronous machinery: each at its line, whatever the order of warps; the right kernel is clean.

A kernel is right as it stands; ``-DBUG_...`` plants one hazard, on the line that carries the bug's marker.
"""

from __future__ import annotations

import pytest
from async_hazards import SEEDS, check, cuda, launch, outer
from emulation import line_of

from workbench.emulator import FindingKind, KernelFault

IN_PLACE = cuda("""
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
""")


def test_what_a_copy_reads_stays_until_it_has_landed() -> None:
    """Not only until it was issued: even where its warp knows of the store by the time of the landing."""
    launch(IN_PLACE, "RIGHT", 1, 64, 0, None)
    for seed in range(20):
        finding = launch(IN_PLACE, "BUG", 1, 64, seed, FindingKind.RACE)
        lines = {outer(finding.location), outer(finding.other)}
        assert lines == {line_of(IN_PLACE, "// issued"), line_of(IN_PLACE, "// overwritten")}


# --------------------------------------------------------------------------------------------------------- proxy fence

BULK_STORE = cuda("""
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
""")


@pytest.mark.parametrize("bug", ["BUG_NONE", "BUG_ONE"])
def test_a_bulk_store_without_a_proxy_fence(bug: str) -> None:
    check(BULK_STORE, bug, FindingKind.PROXY_FENCE, "copied", "stored", "fence.proxy.async.shared::cta", block=64)


def test_a_proxy_fence_may_stand_anywhere_on_the_way() -> None:
    launch(BULK_STORE, "CONSUMER", 1, 64, 0, None)


OVERWRITTEN = cuda("""
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
""")


def test_a_bulk_load_over_ordinary_stores_without_a_proxy_fence() -> None:
    check(OVERWRITTEN, "BUG_CLEAR", FindingKind.PROXY_FENCE, "loaded", "cleared", "overwrites `tile`", block=64)


THROUGH_GLOBAL = cuda("""
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
""")


def test_a_bulk_load_of_what_the_launch_has_stored_to_global_memory() -> None:
    check(THROUGH_GLOBAL, "BUG_GLOBAL", FindingKind.PROXY_FENCE, "loaded", "stored", "proxy.async.global", block=64)


FLAG = cuda("""
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
""")


def test_a_proxy_fence_is_handed_over_by_a_flag() -> None:
    check(FLAG, "BUG_FLAG", FindingKind.PROXY_FENCE, "copied", "stored", block=64)


PEERS = cuda("""
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
""")


@pytest.mark.parametrize("bug", ["BUG_READ", "BUG_WRITE", "BUG_ARRIVE"])
def test_a_peer_that_may_have_exited(bug: str) -> None:
    launch(PEERS, "RIGHT", 2, 32, 0, None)
    messages = set()
    for seed in SEEDS:
        finding = launch(PEERS, bug, 2, 32, seed, FindingKind.EXITED_WITH_WORK)
        assert outer(finding.location) == line_of(PEERS, f"// peer {bug[4:]}"), str(finding)
        assert outer(finding.other) == line_of(PEERS, "// exit"), str(finding)
        messages.add("may have exited" in finding.message)
    assert messages == {True, False}


MULTICAST = cuda("""
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
""")


def test_a_multicast_into_a_block_that_does_not_wait_for_it() -> None:
    """Where the block has left first, the multicast is blamed; else its exit, and the other line is the copy's."""
    launch(MULTICAST, "RIGHT", 2, 32, 0, None)
    multicast, left = line_of(MULTICAST, "// multicast"), line_of(MULTICAST, "// left")
    found = set()
    for seed in SEEDS:
        finding = launch(MULTICAST, "BUG_MULTICAST", 2, 32, seed, FindingKind.EXITED_WITH_WORK)
        found.add(frozenset({outer(finding.location), outer(finding.other)}))
    assert found == {frozenset({multicast, left})}


@pytest.mark.parametrize(("mask", "says"), [(0b111, "blocks 0b111 of a cluster of 2 blocks"), (0, "blocks 0b0 of")])
def test_a_multicast_to_blocks_that_the_cluster_does_not_have(mask: int, says: str) -> None:
    source = MULTICAST.replace("(short)3", f"(short){mask}")
    finding = launch(source, "RIGHT", 2, 32, 0, FindingKind.BAD_OPERAND)
    assert outer(finding.location) == line_of(source, "// multicast")
    assert says in finding.message and "none beyond its last" in str(finding)


LEAK = cuda("""
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
""")


def test_a_block_that_never_waits_for_its_load() -> None:
    check(LEAK, "BUG_LEAK", FindingKind.EXITED_WITH_WORK, "exit", "loaded", "never waited for", block=64)


# --------------------------------------------------------------------------------------------------- parts of a copy

PIECE = cuda("""
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
""")


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
