"""Hazards of mbarriers: who may see one, and what overwrites it, is named at its line; the right kernel is clean."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import SEEDS, check, cuda, launch, outer
from emulation import compile_cuda, fault_of, line_of
from sample_kernels import DEVICE

from workbench.emulator import Checks, FindingKind, Memory, execute

INITIALISED = cuda("""
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
""")


def test_an_mbarrier_that_the_async_proxy_may_not_see() -> None:
    words = "fence.mbarrier_init.release.cluster or fence.proxy.async"
    check(INITIALISED, "BUG_FENCE", FindingKind.MBARRIER_MISUSE, "loaded", "initialised", words, block=64)


def test_an_mbarrier_that_other_threads_may_not_see() -> None:
    """Under some seeds it is not initialised yet, which is said instead; the line may be the wait's."""
    lines = {line_of(INITIALISED, "// expected"), line_of(DEVICE, "try_wait.parity")}
    causes = set()
    for seed in SEEDS:
        finding = launch(INITIALISED, "BUG_SYNC", 1, 64, seed, FindingKind.MBARRIER_MISUSE)
        assert finding.location.line in lines, str(finding)
        causes.add(finding.cause)
    assert causes == {"mbarrier_not_visible", "mbarrier_invalid"}


LANES = cuda("""
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
""")


def test_an_mbarrier_that_other_lanes_may_not_see() -> None:
    words = "by lane 0 of the same warp"
    check(LANES, "BUG_LANES", FindingKind.MBARRIER_MISUSE, "arrived", "initialised", words, block=32)


AGAIN = cuda("""
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
""")


def test_an_mbarrier_that_goes_away_while_others_may_use_it() -> None:
    """The other warp's wait comes before the end, or after it: then there is no mbarrier any more."""
    launch(AGAIN, "RIGHT", 1, 64, 0, None)
    found = set()
    for seed in SEEDS:
        finding = launch(AGAIN, "BUG_AGAIN", 1, 64, seed, FindingKind.MBARRIER_MISUSE)
        found.add((finding.cause, finding.location.line))
    wait_line = line_of(DEVICE, "try_wait.parity")
    assert found <= {
        ("mbarrier_in_use", line_of(AGAIN, "// invalidated")),
        ("mbarrier_invalid", wait_line),
        ("mbarrier_not_visible", wait_line),
    }
    assert any(cause == "mbarrier_in_use" for cause, _ in found)


CLUSTER_BARRIER = cuda("""
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
""")


def test_a_relaxed_cluster_barrier_needs_the_fence_for_mbarriers() -> None:
    kind = FindingKind.MBARRIER_MISUSE
    check(CLUSTER_BARRIER, "BUG_RELAXED", kind, "arrived", "initialised", "of the cluster", grid=2, block=32)


# ------------------------------------------------------------------------------------------------ overwritten mbarriers

RING = cuda("""
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
""")


@pytest.mark.parametrize("by", ["STORE", "BYTE", "VOLATILE", "ATOMIC", "ASYNC", "BULK", "REMOTE"])
def test_what_overwrites_an_mbarrier_is_found_at_its_next_use(by: str) -> None:
    check(RING, f"BUG_{by}", FindingKind.MBARRIER_MISUSE, f"written by {by}", "used", "overwrites", grid=2, block=64)


def test_an_overwritten_mbarrier_is_named_with_its_initialisation_and_its_use() -> None:
    finding = launch(RING, "BUG_STORE", 2, 64, 0, FindingKind.MBARRIER_MISUSE)
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


USED = cuda("""
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
""")


@pytest.mark.parametrize(
    "use", ["ARRIVE", "EXPECT", "EXPECT_ONLY", "COMPLETE", "TEST", "WAIT", "LOAD", "ASYNC", "INVALIDATE"]
)
def test_every_use_of_an_overwritten_mbarrier_is_a_hazard(use: str) -> None:
    check(USED, f"BUG_{use}", FindingKind.MBARRIER_MISUSE, "overwritten", f"{use} used", "overwrites", block=64)


LANDING = cuda("""
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
""")


def test_a_copy_that_completes_on_an_overwritten_mbarrier() -> None:
    """Where it lands before the store, the wait is the next use."""
    launch(LANDING, "RIGHT", 1, 32, 0, None)
    used = set()
    for seed in SEEDS:
        finding = launch(LANDING, "BUG_LANDING", 1, 32, seed, FindingKind.MBARRIER_MISUSE)
        assert outer(finding.location) == line_of(LANDING, "// overwritten"), str(finding)
        used.add(outer(finding.other))
    assert line_of(LANDING, "// loaded") in used
    assert used <= {line_of(LANDING, "// loaded"), line_of(LANDING, "// awaited")}


REUSED = cuda("""
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
""")


def test_memory_of_an_mbarrier_is_free_after_inval_and_after_the_last_use() -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(1024, dtype=np.int32), "a"), memory.upload(np.zeros(1024, np.int32), "x")
    for seed in SEEDS:
        execute(compile_cuda(REUSED).entries["k"], 1, 64, [a, x], memory=memory, seed=seed)
        assert np.array_equal(memory.read(x, np.int32)[:64], (np.arange(64) ^ 1) + 2)


LACKING = cuda("""
extern "C" __global__ void __launch_bounds__(256, 2) k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    const int t = threadIdx.x;
    if (t == 0) { init(&bar, ARRIVALS); FENCE_INIT; }
    __syncthreads();
    if (t == 0) {
        if (EXPECTED) expect(&bar, EXPECTED);
        LOAD(tile, a, 256, &bar);
    }
    if (REGISTERS && t >= 128) asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
    wait(&bar, 0);
    x[t] = tile[t % 64];
}
""")


@pytest.mark.parametrize(
    ("expected", "arrivals", "registers", "says"),
    [
        (272, 1, 0, "`bar` expects 16 bytes more than have come"),
        (0, 2, 0, "`bar` has got bytes that nobody has expected"),
        (256, 1, 1, "must fit into the registers that the launch gives to the block"),
        (256, 2, 0, "every wait needs an arrival"),
    ],
)
def test_a_deadlock_says_what_is_lacking(expected: int, arrivals: int, registers: int, says: str) -> None:
    source = LACKING.replace("EXPECTED", str(expected)).replace("ARRIVALS", str(arrivals))
    finding = launch(source.replace("REGISTERS", str(registers)), "RIGHT", 1, 256, 0, FindingKind.DEADLOCK)
    assert finding and says in finding.advice, str(finding)


COPIED_AWAY = cuda("""
extern "C" __global__ void __cluster_dims__(2) k(const int* a, int* x) {
    __shared__ __align__(128) int from[32], to[32];
    __shared__ __align__(8) u64 bar;
    const int t = threadIdx.x;
    from[t] = a[t];
    if (t == 0) { init(&bar, 1); FENCE_INIT; expect(&bar, 128); }
    FENCE_PROXY;
    CLUSTER_ARRIVE; CLUSTER_WAIT;
    if (t == 0)
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
                     :: "r"(at(to, rank() ^ 1)), "r"(address(from)), "r"(at(&bar, rank() ^ 1)) : "memory");
#ifdef BUG
    from[t ^ 1] = 0;  // stored
#endif
#ifdef BUG_READ
    x[t] = to[t];  // read
#endif
    wait(&bar, 0);
    x[t] = to[t];
    CLUSTER_ARRIVE; CLUSTER_WAIT;
}
""")


def test_a_race_with_a_copy_is_mended_by_a_wait_for_it() -> None:
    launch(COPIED_AWAY, "RIGHT", 2, 32, 0, None)
    finding = launch(COPIED_AWAY, "BUG", 2, 32, 0, FindingKind.RACE)
    assert finding and outer(finding.location) == line_of(COPIED_AWAY, "// stored"), str(finding)
    assert "the copy may still be reading: the phase of its mbarrier" in finding.advice
    finding = launch(COPIED_AWAY, "BUG_READ", 2, 32, 1, FindingKind.RACE)
    assert finding and "nothing beyond its cluster" not in finding.advice, str(finding)
