"""clusterlaunchcontrol: blocks that do the work of others, which then never start."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from workbench.emulator import Report, launch, load

KERNEL = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
struct alignas(16) Response { unsigned long long low, high; };
__device__ void ask(Response* r, unsigned long long* b) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                 :: "r"(at(r)), "r"(at(b)) : "memory");
}
__device__ void expect(unsigned long long* b) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" :: "r"(at(b)) : "memory");
}
__device__ void wait(unsigned long long* b, int parity) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 :: "r"(at(b)), "r"(parity) : "memory");
}
__device__ bool cancelled(const Response& r) {
    int found;
    asm volatile("{ .reg .pred p; .reg .b128 x; mov.b128 x, {%1, %2};"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, x; selp.u32 %0, 1, 0, p; }"
                 : "=r"(found) : "l"(r.low), "l"(r.high));
    return found != 0;
}
__device__ int first(const Response& r) {
    int x;
    asm volatile("{ .reg .b128 x; mov.b128 x, {%1, %2};"
                 "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, x; }"
                 : "=r"(x) : "l"(r.low), "l"(r.high));
    return x;
}
// out[b] counts how often block b's work has been done, by[b] who did it
extern "C" __global__ void k(int* out, int* by) {
    __shared__ Response answer;
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(at(&bar)));
    }
    __syncthreads();
    int block = blockIdx.x;
    for (int n = 0;; ++n) {
        if (threadIdx.x == 0) {
            expect(&bar);  // expected
            ask(&answer, &bar);  // asked
        }
        if (threadIdx.x == 1) { out[block] += 1; by[block] = blockIdx.x; }
        wait(&bar, n & 1);  // waited
        const Response r = answer;  // read
        if (!cancelled(r)) break;  // queried
        block = first(r);  // named
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();  // met
    }
    // ended
}
"""
BLOCKS = 24


def run(source: str = KERNEL, seed: int = 0) -> tuple[Report, np.ndarray, np.ndarray]:
    out, by = np.zeros(BLOCKS, np.int32), np.full(BLOCKS, -1, np.int32)
    return launch(load(source, arch="sm_100a"), "k", BLOCKS, 64, [out, by], seed=seed), out, by


def planted(marker: str, new: str) -> str:
    (old,) = [line for line in KERNEL.splitlines() if line.endswith(f"// {marker}")]
    return KERNEL.replace(old, f"{new}  // {marker}")


def test_every_block_is_worked_on_once() -> None:
    helpers = set()
    for seed in range(6):
        result, out, by = run(seed=seed)
        assert result.ok, [str(finding) for finding in result.findings]
        assert np.array_equal(out, np.ones(BLOCKS))
        helpers.add(int(np.sum(by != np.arange(BLOCKS))))
    assert max(helpers) > 0 and len(helpers) > 1, "no block has done another one's work, or always as many"


FAULTS = {
    "a response that is read before its barrier": ({"waited": ";"}, "in_flight", "read"),
    "a response that nobody expects": ({"expected": ""}, "deadlock", "waited"),
    "a request after one that was refused": (
        {"queried": "if (!cancelled(r)) { if (threadIdx.x == 0) { expect(&bar); ask(&answer, &bar); } "
         "wait(&bar, ~n & 1); break; }"},
        "launch_control",
        "asked",
    ),
    "a block that a refusal does not name": ({"queried": "if (n == 40) break;"}, "launch_control", "named"),
    "the next request before all have read": ({"met": ";"}, "race", "asked"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    changes, cause, _ = FAULTS[name]
    ((marker, new),) = changes.items()
    codes = set()
    for seed in range(4):
        codes |= {finding.code for finding in run(planted(marker, new), seed=seed)[0].findings}
    assert cause in codes, codes


FORMS = list(itertools.product(("shared::cta.", ""), ("", ".multicast::cluster::all"), ("x", "y", "z", "v4")))


@pytest.mark.parametrize(("space", "multicast", "what"), FORMS)
def test_a_response_names_the_first_block(space: str, multicast: str, what: str) -> None:
    """Clusters of two blocks in a grid of (8, 3, 2): what is asked is a coordinate of a cluster that never starts."""
    place = "%r1" if space else "%d1"
    bar = "%r2" if space else "%d2"
    query = "get_first_ctaid"
    queries = {
        "v4": f"clusterlaunchcontrol.query_cancel.{query}.v4.b32.b128 {{%r4, %r5, %r6, _}}, %x;",
        **{d: f"clusterlaunchcontrol.query_cancel.{query}::{d}.b32.b128 %r{k}, %x;" for k, d in enumerate("xyz", 4)},
    }
    asks = "setp.ne.or.u32 %q, %r3, 0, %q;" if multicast else ""
    text = f"""
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 32 .explicitcluster .reqnctapercluster 2 {{
    .reg .b32 %r<16>; .reg .b64 %d<8>; .reg .pred %p; .reg .pred %q; .reg .b128 %x;
    .shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar;
    ld.param.u64 %d0, [out]; mov.u32 %r1, answer; mov.u32 %r2, bar; mov.u32 %r3, %cluster_ctarank;
    cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d1, %d1; cvt.u64.u32 %d2, %r2; cvta.shared.u64 %d2, %d2;
    mov.u32 %r7, %tid.x; setp.ne.u32 %q, %r7, 0; mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r6, 0;
    @%q bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
READY:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    {asks}
    @%q bra ASKED;
    clusterlaunchcontrol.try_cancel.async.{space}mbarrier::complete_tx::bytes{multicast}.b128 [{place}], [{bar}];
ASKED:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra ASKED;
    ld.shared.b128 %x, [answer];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %x;
    @!%p bra REFUSED;
    {queries[what]}
    mov.u32 %r8, %nctaid.x; mov.u32 %r9, %nctaid.y; mad.lo.u32 %r10, %r6, %r9, %r5; mad.lo.u32 %r10, %r10, %r8, %r4;
    mul.wide.u32 %d3, %r10, 4; add.u64 %d3, %d0, %d3;
    setp.eq.u32 %q, %r7, 0; @%q red.global.add.u32 [%d3], 1;
REFUSED:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    ret;
}}
"""
    out = np.zeros((2, 3, 8), np.uint32)
    result = launch(load(text, arch="sm_100a"), "k", (8, 3, 2), 32, [out], cluster=2)
    assert result.ok, [str(finding) for finding in result.findings]
    # of 24 clusters 12 start and ask once, and both blocks are told; or 8, and each of their blocks asks
    assert out.sum() == (24 if multicast else 16)
    places = {"x": out[0, 0], "y": out[0, :, 0], "z": out[:, 0, 0]}.get(what)
    assert not np.any(out[:, :, 1::2]), "a block that is not the first of its cluster"
    assert places is None or places.sum() == out.sum()
