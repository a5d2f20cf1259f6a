"""What an atomic or a poll has read orders as much as PTX says: updates before who has seen them, and no more.

Counters and locks are reset by plain stores everywhere, in samples of CUDA and in Marlin: that is no race for a thread
that has read what all updates left (PTX 8.9.5, observation order). What others stored before they updated, it knows by
fences only, and a barrier is none for what a relaxed load has polled.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulation import compile_cuda, line_of

from workbench.emulator import Output, Report, launch

SEEDS = range(6)

COUNTER = """
__device__ void add(unsigned* n) { asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" :: "l"(n) : "memory"); }
extern "C" __global__ void k(const float* x, float* partial, float* out, unsigned* count) {
    __shared__ bool last;
    int t = threadIdx.x;
    if (t == 0) {
        partial[blockIdx.x] = 2 * x[blockIdx.x];                   // part
#ifndef NO_FENCE
        __threadfence();
#endif
#ifdef UNSEEN
        add(count);
        last = blockIdx.x == gridDim.x - 1;
#else
        unsigned ticket = atomicAdd(count, 1);                     // looked
#ifdef EARLY
        last = ticket == 0;
#else
        last = ticket == gridDim.x - 1;
#endif
#endif
        __threadfence();
    }
    __syncthreads();
    if (last && t == RESETS) *count = 0;                           // resets
#if !defined(UNSEEN) && !defined(EARLY)
    if (last && t == 0) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += partial[i];     // sums
        *out = sum;
    }
#endif
}
"""


def count(*defines: str, resets: int = 0, seed: int = 0) -> tuple[Report, float, int]:
    x, out, counter = np.arange(5, dtype=np.float32), np.zeros(1, np.float32), np.zeros(1, np.uint32)
    arguments = [x, Output(np.empty_like(x)), out, counter]
    report = launch(compile_cuda(COUNTER, *defines, f"RESETS={resets}"), "k", 5, 64, arguments, seed=seed)
    return report, float(out[0]), int(counter[0])


@pytest.mark.parametrize("resets", [0, 3, 40])
def test_who_has_seen_all_updates_of_a_counter_may_reset_it(resets: int) -> None:
    for seed in SEEDS:
        report, total, left = count(resets=resets, seed=seed)
        assert not report.findings, str(report)
        assert (total, left) == (20, 0)


@pytest.mark.parametrize(
    ("bug", "markers"),
    [("UNSEEN", {"resets"}), ("EARLY", {"looked", "resets"}), ("NO_FENCE", {"part", "sums"})],
)
def test_a_reset_without_a_look_and_what_came_before_the_updates_are_races(bug: str, markers: set[str]) -> None:
    expected = {line_of(COUNTER, f"// {marker}") for marker in markers}
    for seed in SEEDS:
        report, _, _ = count(bug, seed=seed)
        assert {f.code for f in report.failures} == {"race"}, str(report)
        lines = {place.line for place in (report.failures[0].location, report.failures[0].other) if place}
        assert lines == expected if len(expected) > 1 else lines > expected, str(report)


TURNS = """
__device__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
extern "C" __global__ void k(const int* x, int* sum, int* lock) {
    int t = threadIdx.x, n = gridDim.x, mine = n - 1 - blockIdx.x;
    if (t == 0) {
        int turn;
        do asm volatile("ld." POLL ".global.b32 %0, [%1];" : "=r"(turn) : "l"(lock) : "memory"); while (turn != mine);
#ifdef FENCE_BEFORE
        fence();
#endif
    }
#ifndef NO_BARRIER
    __syncthreads();
#endif
#ifdef FENCE_BEHIND
    fence();
#endif
    sum[t] = (mine ? sum[t] : 0) + x[blockIdx.x * 64 + t];         // adds
    __syncthreads();
    if (t == 0 && mine == n - 1) *lock = 0;                        // resets
    else if (t == 0) {
        fence();
        asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" :: "l"(lock) : "memory");
    }
}
"""


def take_turns(*defines: str, seed: int) -> tuple[Report, bool]:
    x, total, lock = np.arange(256, dtype=np.int32), np.zeros(64, np.int32), np.zeros(1, np.int32)
    report = launch(compile_cuda(TURNS, *defines), "k", 4, 64, [x, Output(total), lock], seed=seed)
    return report, bool((total == x.reshape(4, 64).sum(axis=0)).all() and lock[0] == 0)


@pytest.mark.parametrize(
    "right",
    [
        ('POLL="acquire.gpu"',),
        ('POLL="relaxed.gpu"', "FENCE_BEFORE"),
        ('POLL="relaxed.gpu"', "FENCE_BEHIND"),
        ('POLL="volatile"', "FENCE_BEHIND"),
    ],
)
def test_a_lock_that_is_polled_with_a_fence_orders_what_it_protects(right: tuple[str, ...]) -> None:
    for seed in SEEDS:
        report, correct = take_turns(*right, seed=seed)
        assert {f.code for f in report.findings} == ({"race_volatile"} if "volatile" in right[0] else set()), str(
            report
        )
        assert correct


@pytest.mark.parametrize(
    "bug",
    [
        ('POLL="relaxed.gpu"',),
        ('POLL="volatile"',),
        ('POLL="relaxed.gpu"', "FENCE_BEFORE", "NO_BARRIER"),
        ('POLL="acquire.gpu"', "NO_BARRIER"),
    ],
)
def test_a_barrier_is_no_fence_for_what_a_load_has_polled(bug: tuple[str, ...]) -> None:
    lines = {line_of(TURNS, "// adds")} | ({line_of(TURNS, "// resets")} if "volatile" in bug[0] else set())
    for seed in SEEDS:
        report, _ = take_turns(*bug, seed=seed)
        assert report.failures, bug
        for finding in report.failures:
            assert re.search(r"race|uninitialised", finding.code), str(finding)
            assert finding.location.line in lines, str(finding)


POLLS = """
extern "C" __global__ void k(const int* x, int* sum, int* lock) {
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t == 0) {
            sum[0] = x[0];                                         // stores
            __threadfence();
            asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" :: "l"(lock) : "memory");
        }
        return;
    }
    if (t == 0) {
        int turn;
#ifdef LOADS
        do asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(turn) : "l"(lock)); while (!turn);
#endif
#ifdef UPDATES
        do asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], 0;" : "=r"(turn) : "l"(lock)); while (!turn);
#endif
    }
    __syncthreads();
    sum[t + 1] = sum[0];                                           // reads
}
"""


@pytest.mark.parametrize("polls", [("LOADS",), ("UPDATES",), ("LOADS", "UPDATES")])
def test_what_an_atomic_reads_is_handed_on_whether_or_not_a_load_has_read_it_before(polls: tuple[str, ...]) -> None:
    for seed in SEEDS:
        x, total, lock = np.ones(1, np.int32), np.zeros(65, np.int32), np.zeros(1, np.int32)
        report = launch(compile_cuda(POLLS, *polls), "k", 2, 64, [x, total, lock], seed=seed)
        assert {f.code for f in report.failures} == (set() if "UPDATES" in polls else {"race"}), str(report)
