"""What devices forgive is strict and no failure; the real fault beside it is an error."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import cuda
from emulation import compile_cuda, line_of

from workbench.emulator import Report, Severity, launch

BULK = cuda("""
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64], out[64];
    __shared__ __align__(8) u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 1);
#ifndef NO_INIT_FENCE
    if (t == 0) FENCE_INIT;
#endif
#ifndef BUG_NO_BARRIER
    __syncthreads();
#endif
    if (t == 32) {
        expect(&bar, 256);
        LOAD(tile, a, 256, &bar);  // a prefetch
    }
    out[t] = t;
#ifndef BUG_NO_PROXY_FENCE
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
    __syncthreads();
#ifndef DEAD
    wait(&bar, 0);
#endif
    if (t == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;"
                     :: "l"(x), "r"(address(out)) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#ifndef UNWAITED
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    }
}
""")


def bulk(*defines: str, seed: int = 0, strict: bool = False) -> tuple[Report, list[int]]:
    x = np.zeros(64, np.int32)
    arguments = [np.arange(64, dtype=np.int32), x]
    return launch(compile_cuda(BULK, *defines), "k", 1, 64, arguments, seed=seed, strict=strict), x.tolist()


@pytest.mark.parametrize(
    ("define", "code"),
    [
        ("RIGHT", None),
        ("NO_INIT_FENCE", "mbarrier_init_fence"),
        ("DEAD", "loads_pending"),
        ("UNWAITED", "stores_pending"),
    ],
)
def test_what_is_only_formal_is_strict_and_the_result_right(define: str, code: str | None) -> None:
    for seed in range(4):
        report, x = bulk(define, seed=seed)
        assert report.ok, str(report)
        assert [(f.code, f.severity) for f in report.findings] == ([(code, Severity.STRICT)] if code else [])
        assert x == list(range(64))
        assert bulk(define, seed=seed, strict=True)[0].ok == (code is None)


@pytest.mark.parametrize(
    ("define", "codes"),
    [
        ("BUG_NO_BARRIER", {"mbarrier_not_visible", "mbarrier_invalid"}),
        ("BUG_NO_PROXY_FENCE", {"proxy_fence"}),
    ],
)
def test_the_real_fault_is_an_error(define: str, codes: set[str]) -> None:
    for seed in range(4):
        report, _ = bulk(define, seed=seed)
        assert report.failures[0].code in codes, str(report)


SENT = cuda("""
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64], got[64];
    __shared__ __align__(8) u64 bar;
    const int t = threadIdx.x, n = blockIdx.x * 64 + t;
    if (t == 0) {
        init(&bar, 1);
        FENCE_INIT;
        expect(&bar, 256);
    }
    tile[t] = a[n];
    FENCE_PROXY;
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
    if (t == 0)
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     :: "r"(at(got, rank() ^ 1)), "r"(address(tile)), "r"(at(&bar, rank() ^ 1)) : "memory");  // sent
    wait(&bar, 0);
    x[n] = got[t];
#ifndef BUG
    CLUSTER_ARRIVE;
    CLUSTER_WAIT;
#endif
}
""")


def test_a_block_that_exits_while_a_copy_may_read_its_shared_memory() -> None:
    """The other block knows when the copy has landed, and this one does not."""
    for seed in range(8):
        x = np.zeros(128, np.int32)
        for define in ("RIGHT", "BUG"):
            arguments = [np.arange(128, dtype=np.int32), x]
            report = launch(compile_cuda(SENT, define), "k", 2, 64, arguments, cluster=(2, 1, 1), seed=seed)
            assert report.ok and x.tolist() == [*range(64, 128), *range(64)]
            assert {(f.code, f.severity) for f in report.findings} == (
                {("loads_pending", Severity.STRICT)} if define == "BUG" else set()
            ), str(report)
            sent = line_of(SENT, 'asm volatile("cp.async.bulk.shared')
            assert all(finding.other and finding.other.line == sent for finding in report.findings)
