"""Barriers that part of a block goes past, waits that do not wait, and lanes that need not be together again."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import line_of

from workbench.emulator import Finding, launch

KERNEL = """
extern "C" __global__ void k(float* x, int n) {{
    __shared__ float part[96];
    part[threadIdx.x] = x[threadIdx.x];
    {body}
}}
"""
SKIPPED = {
    "lanes": "if (threadIdx.x % 3) __syncthreads();  // barrier",
    "warps": "if (threadIdx.x >= 32) __syncthreads();  // barrier",
    "one thread": "if (threadIdx.x != 70) __syncthreads();  // barrier",
    "work before": "if (x[threadIdx.x] < n) { part[threadIdx.x] *= 2;\n __syncthreads();  // barrier\n }",
    "work behind": "if (threadIdx.x < 64)\n __syncthreads();  // barrier\n x[threadIdx.x] = 3;",
    "loop": "for (int i = 0; i < (threadIdx.x < 32 ? n : n - 1); ++i)\n __syncthreads();  // barrier\n",
}
COMPLETE = {
    "all": "if (n > 3) __syncthreads();",
    "none": "if (n < 3) __syncthreads();",
    "returned": "if (threadIdx.x >= 64) return;\n __syncthreads();\n x[threadIdx.x] = part[63 - threadIdx.x];",
    "returned in a block": "if (threadIdx.x >= 64) {\n x[0 + threadIdx.x] = 1;\n return;\n }\n __syncthreads();",
    "loop": "for (int i = 0; i < n; ++i) { __syncthreads(); part[threadIdx.x] += 1; }",
    "of some warps": 'if (threadIdx.x < 64) asm volatile("bar.sync 1, 64;");',
}


def run(body: str, seed: int = 0) -> list[Finding]:
    x = np.arange(96, dtype=np.float32) % 13
    return list(launch(KERNEL.format(body=body), "k", 1, 96, {"x": x, "n": 7}, seed=seed).findings)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", SKIPPED)
def test_a_barrier_that_part_of_a_block_skips_is_named(kind: str, seed: int) -> None:
    source = KERNEL.format(body=SKIPPED[kind])
    found = [f for f in run(SKIPPED[kind], seed) if f.kind == "divergent_collective"]
    assert found and found[0].location is not None
    assert found[0].location.line == line_of(source, "// barrier")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", COMPLETE)
def test_barriers_of_all_threads_that_have_not_returned_are_clean(kind: str, seed: int) -> None:
    assert not run(COMPLETE[kind], seed)


WAITING = """
extern "C" __global__ void k(const float* x, float* y) {{
    __shared__ alignas(16) float tile[64];
    __shared__ alignas(8) unsigned long long full;
    unsigned bar = __cvta_generic_to_shared(&full), to = __cvta_generic_to_shared(tile), t = threadIdx.x;
    if (t == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(bar) : "memory");
    __syncthreads();
    if (t == 0) {{
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(bar) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     ::"r"(to), "l"(x), "r"(bar) : "memory");
    }}
    {wait}
    y[t] = tile[t];  // read
}}
"""
TRY = "mbarrier.try_wait.parity.shared.b64 p, [%0], 0;"
PASSED = f'asm volatile("{{.reg .pred p; {TRY} selp.u32 %1, 1, 0, p;}}" : "+r"(bar), "=r"(ok) :: "memory");'
WAITS = {
    "loop": f'asm volatile("{{.reg .pred p; W: {TRY} @!p bra W;}}" ::"r"(bar) : "memory");',
    "while": f"unsigned ok = 0; while (!ok) {{ {PASSED} }}",
    "first a look": f"unsigned ok; {PASSED} if (!ok) do {{ {PASSED} }} while (!ok);",
}
DOES_NOT_WAIT = {
    "nobody reads": f'asm volatile("{{.reg .pred p; {TRY}}}" ::"r"(bar) : "memory");',
    "once": f"unsigned ok; {PASSED} if (!ok) __nanosleep(20);",
    "twice": f"unsigned ok; {PASSED} if (!ok) {PASSED}",
}


def wait_by(wait: str) -> list[Finding]:
    arrays = {"x": np.ones(64, np.float32), "y": np.zeros(64, np.float32)}
    return list(launch(WAITING.format(wait=wait), "k", 1, 64, arrays, seed=1).findings)


@pytest.mark.parametrize("kind", WAITS)
def test_a_try_wait_that_is_tried_until_it_succeeds_waits(kind: str) -> None:
    assert not wait_by(WAITS[kind])


@pytest.mark.parametrize("kind", DOES_NOT_WAIT)
def test_a_try_wait_that_is_not_tried_again_may_have_failed(kind: str) -> None:
    lines = [f.location.line for f in wait_by(DOES_NOT_WAIT[kind]) if f.kind == "in_flight" and f.location]
    assert lines == [line_of(WAITING.format(wait=""), "// read")]


TOGETHER = """
extern "C" __global__ void k(const int* x, int* y) {{
    int t = threadIdx.x, v = x[t];
    for (int i = 0; i < x[t]; ++i) v = v * 3 + i;
    {mask}
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(mask, v, step);  // shuffle
    y[t] = v;
}}
"""


def shuffled(mask: str, seed: int) -> list[Finding]:
    arrays = {"x": np.arange(32, dtype=np.int32) % 5, "y": np.zeros(32, np.int32)}
    return list(launch(TOGETHER.format(mask=mask), "k", 1, 32, arrays, seed=seed).findings)


def test_lanes_need_not_be_together_again_after_a_branch() -> None:
    assert any(shuffled("unsigned mask = __activemask();", seed) for seed in range(3))
    assert not any(shuffled("unsigned mask = ~0u;", seed) for seed in range(3))
    for meeting in ("__syncwarp()", "__ballot_sync(~0u, v > 0)"):
        assert not any(shuffled(f"{meeting}; unsigned mask = __activemask();", seed) for seed in range(3))


def test_lanes_of_a_branch_that_have_met_in_a_vote_are_together() -> None:
    source = """
    extern "C" __global__ void k(const int* x, unsigned* y) {
        if (x[threadIdx.x] < 3) {
            unsigned met = __ballot_sync(0x39ce7u, true);
            y[threadIdx.x] = __activemask() ^ met;
        }
    }
    """
    x = np.array([0 if 0x39CE7 >> lane & 1 else 9 for lane in range(32)], np.int32)
    for seed in range(6):
        y = np.zeros(32, np.uint32)
        assert not launch(source, "k", 1, 32, {"x": x, "y": y}, seed=seed).findings
        assert not y.any()


def test_sums_over_the_lanes_that_are_active_are_right_whichever_these_are() -> None:
    source = """
    extern "C" __global__ void k(const int* x, int* counts) {
        int key = x[threadIdx.x];
        for (int i = 0; i < key; ++i) __nanosleep(1);
        if (key % 2) {
            unsigned mask = __activemask();
            if (threadIdx.x == __ffs(mask) - 1) atomicAdd(counts, __popc(mask));
        }
    }
    """
    for seed in range(4):
        counts = np.zeros(1, np.int32)
        keys = np.arange(32, dtype=np.int32) % 5
        result = launch(source, "k", 1, 32, {"x": keys, "counts": counts}, seed=seed)
        assert not result.findings
        assert counts[0] == np.count_nonzero(keys % 2)
