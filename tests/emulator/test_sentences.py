"""What a finding says leads to the cause: the user's line, who does what to which memory, which wait is missing."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from emulation import line_of

from workbench.emulator import Finding, FindingKind, launch
from workbench.emulator.ptx import SourceLocation
from workbench.emulator.source_lines import outside_cuda


def found(source: str, *, blocks: int = 1, threads: int = 64) -> Finding:
    """The finding of kernel `k(unsigned* x)`, on 64 elements."""
    (finding,) = launch(source, "k", blocks, threads, [np.zeros(64, np.uint32)]).findings
    return finding


LIBRARY = """
#include <cuda/atomic>
__device__ void count(unsigned* x) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> one(x[70]);
    one.fetch_add(1u);  // counted
}
extern "C" __global__ void k(unsigned* x) {
    count(x);  // called
}
"""

BARRIER = """
#include <cuda/barrier>
extern "C" __global__ void k(unsigned* x) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
    __syncthreads();
    bar.arrive_and_wait();  // waits
}
"""


def test_a_line_of_the_user_comes_before_those_of_a_library() -> None:
    finding = found(LIBRARY)
    assert finding.location and finding.location.line == line_of(LIBRARY, "// counted")
    first, code, caller, header, *_ = str(finding).splitlines()
    assert first.startswith(f"kernel.cu:{line_of(LIBRARY, '// counted')}: out of bounds: updates 4 bytes at ")
    assert code.strip() == "one.fetch_add(1u);  // counted"
    assert caller == f"  inlined into kernel.cu:{line_of(LIBRARY, '// called')}: count(x);  // called"
    assert header.startswith("  in a header of CUDA: ") and "atom.add" in header


@pytest.mark.long
def test_who_waits_in_a_library_waits_at_a_line_of_the_user() -> None:
    finding, line = found(BARRIER), line_of(BARRIER, "// waits")
    assert str(finding).startswith(f"kernel.cu:{line}: deadlock: ")
    assert f"warps 0-1 wait at kernel.cu:{line} for mbarrier `bar` phase 0: 1 arrival pending" in str(finding)


REDUCES = """
__device__ void reduce(unsigned* x, unsigned* tile, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
                 :: "l"(__cvta_generic_to_global(x)), "r"(static_cast<unsigned>(__cvta_generic_to_shared(tile))),
                    "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
extern "C" __global__ void k(unsigned* x) {
    __shared__ alignas(128) unsigned tile[64];
    BODY
}
"""
FILLED = 'tile[threadIdx.x] = 1; asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();'
STORED = "tile[threadIdx.x] = 1; __syncthreads();"
LEADER = "if (threadIdx.x == 0 && blockIdx.x == 0) reduce("


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (f"{FILLED} {LEADER} x + 48, tile, 256);", "updates 256 bytes at "),
        (f"{LEADER} x, tile, 256);", "reads `tile`, where nothing has been written"),
        (f"{STORED} {LEADER} x, tile, 256);", "the async proxy reads `tile`, which"),
        (f"{FILLED} {LEADER} x, tile, 256); if (blockIdx.x == 1) x[threadIdx.x] = 2;", "of block (0, 0, 0) updates at"),
    ],
)
def test_a_bulk_reduction_updates_global_and_reads_shared_memory(body: str, says: str) -> None:
    assert says in found(REDUCES.replace("BODY", body), blocks=2).message


BARRIERS = """
__device__ void init(unsigned bar, int n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(bar), "r"(n)); }
__device__ void arrive(unsigned bar) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(bar) : "memory"); }
__device__ void expect(unsigned bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ void wait(unsigned bar, unsigned parity) {
    asm volatile("{ .reg .pred p; L%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L%=; }"
                 :: "r"(bar), "r"(parity) : "memory");
}
extern "C" __global__ void k(unsigned* x) {
    __shared__ unsigned long long bars[2];
    const unsigned full = __cvta_generic_to_shared(bars), empty = full + 8;
    if (threadIdx.x == 0) { init(full, 1); init(empty, 64); }
    __syncthreads();
    BODY
}
"""


def test_a_wait_names_the_phase_and_not_its_parity() -> None:
    body = "for (int i = 0; i < 33; ++i) { if (threadIdx.x < 60 || i < 32) arrive(empty); wait(empty, i & 1); }"
    finding = found(BARRIERS.replace("BODY", body))
    assert finding.kind is FindingKind.DEADLOCK
    assert "for mbarrier `bars[1]` phase 32 (parity 0): 4 arrivals pending" in str(finding)
    assert "not waited for" not in str(finding)


def test_a_deadlock_names_a_phase_that_a_wrong_parity_skipped() -> None:
    body = "for (int i = 0; i < 3; ++i) { if (threadIdx.x == 0) arrive(full); __syncthreads(); wait(full, 0); }"
    finding = found(BARRIERS.replace("BODY", body))
    assert finding.kind is FindingKind.DEADLOCK
    assert "phase 2 (parity 0): 1 arrival pending (phase 1 ended and was not waited for: a parity is" in str(finding)


def test_a_deadlock_names_the_wait_that_took_an_old_phase_for_the_next_one() -> None:
    arrive = "if (threadIdx.x == 0) arrive(full); __syncthreads();"
    body = f"{arrive} wait(full, 0);\n    wait(full, 0);  // too early, and not for parity 1\n{arrive} wait(full, 0);"
    source = BARRIERS.replace("BODY", body)
    line = source[: source.index("// too early")].count("\n") + 1
    passed = (
        rf"warps 0-1 passed at [^ ]*:\d+ \(from [^ ]*:{line}\) the end of phase 0 of mbarrier `bars\[0\]` a second time"
    )
    assert re.search(passed, str(found(source)))
    # who waits twice for one phase, and skips none, may have its reasons
    twice = f"{arrive} wait(full, 0); wait(full, 0); wait(full, 1);"
    assert "a second time" not in str(found(BARRIERS.replace("BODY", twice)))


def test_a_deadlock_after_a_first_pass_of_an_empty_barrier_names_no_skipped_phase() -> None:
    body = "for (int i = 0; i < 3; ++i) { wait(empty, (i & 1) ^ 1); if (i == 0) arrive(empty); }"
    finding = found(BARRIERS.replace("BODY", body))
    assert finding.kind is FindingKind.DEADLOCK
    assert "not waited for" not in str(finding)


@pytest.mark.parametrize(
    ("body", "barrier", "count"),
    [
        ("if (threadIdx.x == 0) for (int i = 0; i < 2; ++i) expect(full, 64);", "bars[0]", 1),
        (
            "for (int i = 0; i < 2; ++i) { if (threadIdx.x) arrive(empty); else expect(empty, 64); }",
            "bars[1]",
            64,
        ),
    ],
)
def test_an_arrival_without_the_wait_before_it_is_no_matter_of_the_count(body: str, barrier: str, count: int) -> None:
    finding = found(BARRIERS.replace("BODY", body))
    assert finding.kind is FindingKind.MBARRIER_MISUSE
    assert f"more arrivals at mbarrier `{barrier}` than the {count} it was initialised for: " in finding.message
    assert "a thread arrives a second time, at kernel.cu:" in finding.message
    assert finding.advice.startswith("wait before arriving again: a producer on the empty barrier")


def test_more_threads_than_a_barrier_is_initialised_for_are_a_matter_of_the_count() -> None:
    finding = found(BARRIERS.replace("BODY", "if (threadIdx.x < 2) expect(full, 64);"))
    assert finding.message == "more arrivals at mbarrier `bars[0]` than the 1 it was initialised for"
    assert finding.advice.startswith("initialise it with the number of threads")


def test_an_arrival_after_phases_of_the_right_count_comes_too_early() -> None:
    body = """
    if (threadIdx.x == 0) { arrive(full); expect(full, 64); }
    __syncthreads();
    if (threadIdx.x == 32) expect(full, 64);
    """
    finding = found(BARRIERS.replace("BODY", body))
    assert finding.message.endswith("in a phase that has not ended: an arrival for the next one comes too early")
    assert finding.advice.startswith("wait for the end of the phase before arriving for the next: a producer on")


def test_an_arrival_from_another_block_without_the_wait_before_it() -> None:
    body = """
    unsigned peer;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(peer) : "r"(full));
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (blockIdx.x == 1 && threadIdx.x == 0)
        for (int i = 0; i < 2; ++i)
            asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], 64;" :: "r"(peer));
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    """
    arguments = [np.zeros(64, np.uint32)]
    (finding,) = launch(BARRIERS.replace("BODY", body), "k", 2, 64, arguments, cluster=2).findings
    assert "mbarrier `bars[0]` of block 0 of the cluster" in finding.message
    assert "a thread arrives a second time, at kernel.cu:" in finding.message


@pytest.mark.parametrize(
    "header",
    [
        "/usr/local/cuda-12.4/targets/x86_64-linux/include/cooperative_groups/details/helpers.h",
        "/home/user/cccl/cub/cub/block/block_scan.cuh",
        "/home/user/cccl/libcudacxx/include/cuda/__barrier/barrier.h",
        "/usr/local/cuda/include/cuda_pipeline_helpers.h",
    ],
)
def test_headers_of_the_machine_that_compiled_are_no_lines_of_the_user(header: str) -> None:
    callers = (SourceLocation("/home/user/include/cuda/tiles.cuh", 7, 1), SourceLocation("k.cu", 8, 1))
    assert outside_cuda(SourceLocation(header, 315, 1, callers)) == replace(callers[0], inlined_at=callers[1:])
