"""What an mbarrier hands over: relaxed operations nothing, with fences all; by memory that is read on both sides."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import SEEDS, check, cuda, outer
from emulation import compile_cuda, fault_of, line_of

from workbench.emulator import FindingKind, KernelFault, Memory, execute
from workbench.emulator import launch as run

ORDER = cuda("""
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
""")


def outcomes(
    source: str, defines: tuple[str, ...], block: int, grid: int = 1
) -> set[tuple[FindingKind, int, int] | None]:
    """What launches of ``k`` end with under several seeds: the finding's kind and lines, or None."""
    found: set[tuple[FindingKind, int, int] | None] = set()
    for seed in SEEDS:
        memory = Memory()
        args = [memory.upload(np.arange(1024, dtype=np.int32), name) for name in ("a", "x")]
        try:
            execute(compile_cuda(source, *defines).entries["k"], grid, block, args, memory=memory, seed=seed)
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


FENCED_STORE = cuda("""
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
""")


def test_a_proxy_fence_is_handed_over_by_a_fenced_relaxed_arrival() -> None:
    check(FENCED_STORE, "BUG_PROXY", FindingKind.PROXY_FENCE, "copied", "stored", block=64)


def test_a_race_names_the_relaxed_mbarrier_operation() -> None:
    defines = 'ARRIVE_FORM="arrive.relaxed.cta.shared::cta.b64 _, [%0];"', f'WAIT_FORM="{WAITS[0].format("")}"'
    memory = Memory()
    args = [memory.upload(np.zeros(1024, np.int32), name) for name in ("a", "x")]
    finding = fault_of(FindingKind.RACE, compile_cuda(ORDER, *defines).entries["k"], 1, 64, args, memory=memory)
    line = line_of(ORDER, "ARRIVE_FORM")
    named = f"`mbarrier.arrive.relaxed.cta.shared::cta.b64` at kernel.cu:{line} orders nothing without fence.acq_rel"
    assert finding.advice.endswith(named)


RELAXED_COPY = cuda("""
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
""")


def test_a_relaxed_wait_does_not_make_a_copy_visible() -> None:
    """The copy itself releases what it wrote, however relaxed the arrival that announced it."""
    race = (FindingKind.RACE, line_of(RELAXED_COPY, "// read"), line_of(RELAXED_COPY, "// loaded"))
    assert outcomes(RELAXED_COPY, ("RELAXED",), 64) == {race}
    assert outcomes(RELAXED_COPY, ("ACQUIRE",), 64) == {None}
    assert outcomes(RELAXED_COPY, ("FENCED",), 64) == {None}


EMPTY_SLOT = cuda("""
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
""")


def test_a_relaxed_arrival_does_not_free_a_slot() -> None:
    """That of the loads with one another is noticed first."""
    race = (FindingKind.RACE, line_of(EMPTY_SLOT, "// loaded"), line_of(EMPTY_SLOT, "// loaded"))
    assert outcomes(EMPTY_SLOT, ('FREED=".relaxed.cta"',), 96) == {race}
    assert outcomes(EMPTY_SLOT, ('FREED=".release.cta"',), 96) == {None}
    assert outcomes(EMPTY_SLOT, ('FREED=""',), 96) == {None}


INITIALISED = cuda("""
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(8) u64 bar;
    if (blockIdx.x == 0) {
        for (int k = 0; k < 4; ++k) __syncwarp();
        if (threadIdx.x == 0) {
            init(&bar, 1);
            FENCE_INIT;
        }
        __syncwarp();
        CLUSTER_RELAXED;
        CLUSTER_WAIT;
    } else {
        if (threadIdx.x == 0) init(&bar, 1);  // first
    }
    if (threadIdx.x == 5) ARRIVE(&bar);  // second
}
""")


def test_what_a_block_knows_of_its_mbarriers_the_next_one_does_not() -> None:
    found = outcomes(INITIALISED, (), 32, grid=2)
    assert found == {(FindingKind.MBARRIER_MISUSE, line_of(INITIALISED, "// second"), line_of(INITIALISED, "// first"))}


ONE_ARRIVES = cuda("""
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(8) u64 full, empty;
    __shared__ int w[32];
    int t = threadIdx.x, lane = t % 32;
    if (t == 0) init(&full, ARRIVALS), init(&empty, ARRIVALS);
    __syncthreads();
    if (t < 32) {
        w[t] = a[t];  // stores
        MEETS;
        if (ARRIVES) ARRIVE(&full);
        asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }" ON(&empty));
        w[t] = a[t + 32];  // overwrites
    } else {
        asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }" ON(&full));
        x[lane] = w[READS];  // reads
        MEETS_AFTER;
        if (ARRIVES) ARRIVE(&empty);
    }
}
""")


def lockstep(arrivals: int, arrives: str, meets: str, meets_after: str, reads: str = "lane") -> set[tuple[str, int]]:
    """Codes and lines of what strict rules find in a producer and a consumer."""
    defines = f"ARRIVALS={arrivals}", f"ARRIVES={arrives}", f"MEETS={meets}", f"MEETS_AFTER={meets_after}"
    found = set()
    for seed in SEEDS:
        a, x = np.arange(64, dtype=np.int32), np.zeros(32, np.int32)
        report = run(compile_cuda(ONE_ARRIVES, *defines, f"READS={reads}"), "k", 1, 64, [a, x], seed=seed)
        assert report.ok, str(report)
        found |= {(finding.code, outer(finding.location)) for finding in report.findings}
    return found


@pytest.mark.parametrize(
    ("arrivals", "arrives"),
    [(1, "lane == 0"), (1, "lane == 7"), (32, "true"), (16, "lane < 16"), (2, "lane % 31 == 0")],
)
def test_an_arrival_orders_what_its_lane_did_or_had_met(arrivals: int, arrives: str) -> None:
    meets = "__syncwarp()"
    reads, overwrites = (("race_lockstep", line_of(ONE_ARRIVES, f"// {what}")) for what in ("reads", "overwrites"))
    assert lockstep(arrivals, arrives, meets, meets) == set()
    everyone = arrivals == 32
    assert lockstep(arrivals, arrives, "FENCE_PROXY", meets) == (set() if everyone else {reads})
    assert lockstep(arrivals, arrives, meets, "FENCE_PROXY") == (set() if everyone else {overwrites})
    assert lockstep(arrivals, arrives, meets, "FENCE_PROXY", "5") == (set() if everyone else {overwrites})
    assert lockstep(arrivals, arrives, "if (lane < 16) __syncwarp(0xffff)", meets) == (set() if everyone else {reads})
