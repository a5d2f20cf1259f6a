"""What goes wrong around tensor memory: faults planted in kernels that are right, each named at its line."""

from __future__ import annotations

import re

import numpy as np
import pytest

from workbench.emulator import Report, Severity, launch, load
from workbench.emulator.explain import SEVERITIES

KERNEL = """
#include <cuda_fp16.h>
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ unsigned long long matrix(const void* p) {
    return (unsigned long long)(at(p) >> 4) | 8ull << 16 | 16ull << 32 | 1ull << 46;  // matrix descriptor
}
__device__ void multiply(unsigned d, const void* a, const void* b, int accumulate) {
    const unsigned form = 1u << 4 | (64 / 8) << 17 | (128 / 16) << 24;  // instruction descriptor
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0;"
                 "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"
                 :: "r"(d), "l"(matrix(a)), "l"(matrix(b)), "r"(form), "r"(accumulate) : "memory");
}
__device__ void commit(const void* barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                 :: "r"(at(barrier)) : "memory");
}
__device__ void wait(const void* barrier, int parity) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }"
                 :: "r"(at(barrier)), "r"(parity) : "memory");
}
__device__ void load(unsigned (&r)[4], unsigned from) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ void store(unsigned to, unsigned value) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" :: "r"(to), "r"(value) : "memory");
}
__device__ void loaded() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ void stored() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
__device__ void before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ void give_up() { asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory"); }
__device__ void reserve(const void* where, unsigned columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
                 :: "r"(at(where)), "r"(columns) : "memory");
}
__device__ void release(unsigned address, unsigned columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" :: "r"(address), "r"(columns) : "memory");
}
// the accumulator of two products, with 1 added on its way through registers, from `a` [128][16] and `b` [64][16]
extern "C" __global__ void __launch_bounds__(128) k(const __half* a, const __half* b, float* d) {
    __shared__ alignas(1024) __half as[128 * 16], bs[64 * 16];
    __shared__ alignas(8) unsigned long long bar;
    __shared__ unsigned where;
    const int t = threadIdx.x, w = t / 32;
    for (int i = t; i < 128 * 16; i += 128) as[i / 128 * 128 + i / 8 % 2 * 64 + i / 16 % 8 * 8 + i % 8] = a[i];  // A
    for (int i = t; i < 64 * 16; i += 128) bs[i / 128 * 128 + i / 8 % 2 * 64 + i / 16 % 8 * 8 + i % 8] = b[i];
    if (w == 0) reserve(&where, 64);  // allocated
    if (w == 0) give_up();  // given up
    if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&bar)) : "memory");  // initialised
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // proxy
    before_sync();  // first before
    __syncthreads();  // met
    after_sync();  // first after
    const unsigned tensor = where;  // address
    if (t == 0) {
        multiply(tensor, as, bs, 0);  // multiplied
        commit(&bar);  // committed
    }
    wait(&bar, 0);  // waited
    after_sync();  // second after
    unsigned r[4];
    const unsigned own = tensor + (w << 21);  // lanes
    for (int c = 0; c < 64; c += 4) {
        load(r, own + c);  // loaded
        loaded();  // load waited
        for (int i = 0; i < 4; ++i) store(own + c + i, __float_as_uint(__uint_as_float(r[i]) + 1));  // stored
    }
    stored();  // store waited
    before_sync();  // third before
    __syncthreads();  // met again
    after_sync();  // third after
    if (t == 0) {
        multiply(tensor, as, bs, 1);  // multiplied again
        commit(&bar);  // committed again
    }
    wait(&bar, 1);  // waited again
    after_sync();  // fourth after
    for (int c = 0; c < 64; c += 4) {
        load(r, own + c);  // loaded again
        loaded();  // load waited again
        for (int i = 0; i < 4; ++i) d[t * 64 + c + i] = __uint_as_float(r[i]);  // out
    }
    before_sync();
    __syncthreads();  // before the end
    after_sync();
    if (w == 0) release(tensor, 64);  // freed
}
"""


def line(source: str, marker: str) -> str:
    (found,) = [text for text in source.splitlines() if text.endswith(f"// {marker}")]
    return found


def planted(changes: dict[str, str]) -> str:
    """The kernel with the lines of some markers replaced; a replacement may hold ``{}`` for the old line."""
    source = KERNEL
    for marker, new in changes.items():
        old = line(source, marker)
        code, _, comment = old.rpartition("  // ")
        text = new.replace("{}", code.strip())
        source = source.replace(old, f"    {text}  // {comment}" if text else f"    ;  // {comment}")
    return source


def run(source: str, *, strict: bool = False, seed: int = 0) -> Report:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-3, 4, (128, 16)).astype(np.float16), rng.integers(-3, 4, (64, 16)).astype(np.float16)
    d = np.zeros((128, 64), np.float32)
    report = launch(load(source, arch="sm_100a"), "k", 1, 128, [a, b, d], strict=strict, seed=seed)
    if not report.findings:
        assert np.array_equal(d, 2 * (a.astype(np.float32) @ b.astype(np.float32).T) + 1)
    return report


def test_the_kernel_is_right() -> None:
    for seed in range(3):
        report = run(KERNEL, strict=True, seed=seed)
        assert report.ok, [str(finding) for finding in report.findings]


def product(operands: str, a: str, *, collector: str = "") -> str:
    """A product of `bs`, with A as a constraint and a value, into the accumulator."""
    return (
        'asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; tcgen05.mma.cta_group::1.kind::f16'
        f'{collector} [%0], {operands}, %2, %3, p; }}" :: "r"(tensor), {a}, "l"(matrix(bs)), '
        '"r"(1u << 4 | 8 << 17 | 8 << 24) : "memory");'
    )


def collected(use: str, a: str = "matrix(as)") -> str:
    return product("%1", f'"l"({a})', collector=f".collector::a::{use}")


def test_a_matrix_stays_in_the_collector_until_its_last_use() -> None:
    report = run(planted({"multiplied": f"{collected('fill')} {collected('use')} {collected('lastuse')}"}))
    assert report.ok, [str(finding) for finding in report.findings]


PLANTS: dict[str, tuple[dict[str, str], str, str]] = {
    # allocation
    "columns that are no power of two": (
        {"allocated": "if (w == 0) reserve(&where, 96);"},
        "tensor_allocation",
        "in reserve",
    ),
    "too few columns": ({"allocated": "if (w == 0) reserve(&where, 16);"}, "tensor_allocation", "in reserve"),
    "too many columns": ({"allocated": "if (w == 0) reserve(&where, 1024);"}, "tensor_allocation", "in reserve"),
    "allocated after giving up": (
        {"given up": "if (w == 0) { give_up(); reserve(&where, 32); }"},
        "tensor_allocation",
        "in reserve",
    ),
    "allocated twice what there is": (
        {"allocated": "if (w == 0) { reserve(&where, 512); reserve(&where, 64); }"},
        "tensor_allocation",
        "in reserve",
    ),
    "not freed": ({"freed": ""}, "tensor_not_freed", "in reserve"),
    "freed twice": (
        {"freed": "if (w == 0) { release(tensor, 64); release(tensor, 64); }"},
        "tensor_free",
        "in release",
    ),
    "freed in part": ({"freed": "if (w == 0) release(tensor, 32);"}, "tensor_free", "in release"),
    "freed at another address": ({"freed": "if (w == 0) release(tensor + 32, 32);"}, "tensor_free", "in release"),
    "freed while loads are in flight": (
        {"load waited again": "", "out": "", "freed": "{} d[t] = r[0];"},
        "tensor_load_pending",
        "in release",
    ),
    "freed before the products end": (
        {"waited again": "", "loaded again": "", "load waited again": "", "out": ""},
        "tensor_not_committed",
        "in release",
    ),
    "freed while others read": ({"before the end": ""}, "tensor_race", "in release"),
    "allocated by half a warp": ({"allocated": "if (t < 16) reserve(&where, 64);"}, "barrier_diverged", "in reserve"),
    "loaded by half a warp": (
        {"loaded again": "if (t % 32 < 16) load(r, own + c);"},
        "barrier_diverged",
        "in load",
    ),
    "used before the allocation is known": (
        {"first before": "const unsigned early = where; {}", "address": "const unsigned tensor = early;"},
        "race",
        "in reserve",
    ),
    # bounds and lanes
    "columns beyond the allocation": ({"loaded again": "load(r, own + c + 64);"}, "tensor_bounds", "in load"),
    "a product beyond the allocation": (
        {"multiplied": "multiply(tensor + 32, as, bs, 0);"},
        "tensor_bounds",
        "in multiply",
    ),
    "used after it was freed": (
        {"freed": "{} __syncthreads(); load(r, own); loaded(); d[t] = r[0];"},
        "tensor_bounds",
        "in load",
    ),
    "lanes of another warp": ({"lanes": "const unsigned own = tensor;"}, "tensor_lanes", "in load"),
    "lanes beyond the last": ({"lanes": "const unsigned own = tensor + (256 << 16);"}, "tensor_bounds", "in load"),
    "lanes from the middle of a warp's": (
        {"lanes": "const unsigned own = tensor + (w << 21) + (16 << 16);"},
        "tensor_bounds",
        "in load",
    ),
    "a shift from the middle of 32 lanes": (
        {"multiplied again": 'asm volatile("tcgen05.shift.cta_group::1.down [%0];" :: "r"(tensor + (8 << 16)));'},
        "tensor_bounds",
        "multiplied again",
    ),
    "rows that begin at another lane": (
        {"multiplied again": product("[%1]", '"r"(tensor + 32 + (16 << 16))')},
        "tensor_bounds",
        "multiplied again",
    ),
    "a result over its own operand": (
        {"multiplied again": product("[%1]", '"r"(tensor + 32)')},
        "tensor_overlap",
        "multiplied again",
    ),
    # the collector
    "a matrix that nothing has filled in": ({"multiplied": collected("use")}, "tensor_collector", "multiplied"),
    "a matrix that a product between has discarded": (
        {"multiplied": f"{collected('fill')} multiply(tensor, as, bs, 0); {collected('use')}"},
        "tensor_collector",
        "multiplied",
    ),
    "another matrix than was filled in": (
        {"multiplied": f"{collected('fill')} {collected('lastuse', 'matrix(as) ^ 1ull << 32')}"},
        "tensor_collector",
        "multiplied",
    ),
    # values
    "an accumulator that was never written": (
        {"multiplied": "multiply(tensor, as, bs, 1);"},
        "tensor_unwritten",
        "in multiply",
    ),
    "columns that were never written": (
        {
            "allocated": "if (w == 0) reserve(&where, 128);",
            "freed": "if (w == 0) release(tensor, 128);",
            "loaded again": "load(r, own + c + 64);",
        },
        "uninitialised",
        "out",
    ),
    "a matrix that was never stored": ({"A": ""}, "uninitialised", "out"),
    # completion
    "a product that nobody waits for": ({"waited": ""}, "tensor_not_committed", "in load"),
    "a wait of the other parity": ({"waited again": "wait(&bar, 0);"}, "tensor_not_committed", "in load"),
    "no commit": ({"committed": ""}, "deadlock", "in wait"),
    "one lane waits for a commit that does not come": (
        {"committed": "wait(&bar, 0);", "waited": "__syncthreads();"},
        "deadlock",
        "in wait",
    ),
    "a commit to global memory": (
        {
            "committed": 'asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" '
            ':: "l"(d) : "memory");'
        },
        "mbarrier_invalid",
        "committed",
    ),
    "committed before the product": (
        {"committed": "", "multiplied": "commit(&bar); multiply(tensor, as, bs, 0);"},
        "tensor_not_committed",
        "in load",
    ),
    "committed by another thread": (
        {"committed": "", "waited": "if (t == 32) commit(&bar); {}"},
        "tensor_not_committed",
        "in load",
    ),
    "a barrier that was never initialised": ({"initialised": ""}, "mbarrier_invalid", "in wait"),
    "shared memory that a product still reads": ({"committed": "{} as[0] = a[0];"}, "race", "committed"),
    "stores that were not waited for": ({"store waited": ""}, "tensor_store_pending", "in multiply"),
    "overwritten while a load is in flight": (
        {
            "load waited": "",
            "stored": "for (int i = 0; i < 4; ++i) store(own + c + i, 1 + (i > 4 ? r[i] : 0));",
            "loaded": "{}",
        },
        "tensor_load_pending",
        "in store",
    ),
    "a product over what others read": ({"met again": ""}, "tensor_race", "in multiply"),
    "products of two threads": (
        {"waited": "if (t == 32) multiply(tensor, as, bs, 1); {}"},
        "tensor_not_committed",
        "in multiply",
    ),
    # strict
    "generic stores without a proxy fence": ({"proxy": ""}, "product_proxy_fence", "in multiply"),
    "a register before its wait": ({"load waited": ""}, "tensor_load_unwaited", "stored"),
    "no fence before a barrier": ({"third before": ""}, "tensor_fence", "in multiply"),
    "no fence after a barrier": ({"third after": ""}, "tensor_fence", "in multiply"),
    "no fence after a wait": ({"second after": ""}, "tensor_fence", "in load"),
    # descriptors
    "a matrix descriptor of wgmma": (
        {"matrix descriptor": "return at(p) >> 4 | 8ull << 16 | 16ull << 32;"},
        "tensor_descriptor",
        "in multiply",
    ),
    "a swizzle that there is not": (
        {"matrix descriptor": "return at(p) >> 4 | 8ull << 16 | 16ull << 32 | 1ull << 46 | 3ull << 61;"},
        "tensor_descriptor",
        "in multiply",
    ),
    **{
        why: ({"instruction descriptor": f"const unsigned form = {bits};"}, "tensor_descriptor", "in multiply")
        for why, bits in {
            "integers as the result of f16": "2u << 4 | 8 << 17 | 8 << 24",
            "a type of A that f16 does not have": "1u << 4 | 2 << 7 | 8 << 17 | 8 << 24",
            "a type of B that f16 does not have": "1u << 4 | 5 << 10 | 8 << 17 | 8 << 24",
            "an N that does not go with M": "1u << 4 | 9 << 17 | 8 << 24",
            "an M of a pair": "1u << 4 | 8 << 17 | 16 << 24",
            "a sparsity that the opcode has not": "1u << 2 | 1u << 4 | 8 << 17 | 8 << 24",
            "saturated floats": "1u << 3 | 1u << 4 | 8 << 17 | 8 << 24",
            "reserved bits": "1u << 4 | 1u << 6 | 8 << 17 | 8 << 24",
            "a shift without stationary weights": "1u << 4 | 8 << 17 | 8 << 24 | 1u << 30",
        }.items()
    },
}


def expected_line(source: str, where: str) -> int:
    if where.startswith("in "):  # the instruction in one of the small functions
        lines = source.splitlines()
        first = next(n for n, text in enumerate(lines) if re.match(rf"__device__ .* {where[3:]}\(", text))
        return next(
            n
            for n, text in enumerate(lines[first:], first + 1)
            if "tcgen05" in text or "mbarrier" in text or "asm" in text
        )
    return source.splitlines().index(line(source, where)) + 1


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_named_at_its_line(name: str) -> None:
    changes, cause, where = PLANTS[name]
    source = planted(changes)
    strict = SEVERITIES[cause] is Severity.STRICT
    findings = run(source, strict=strict).findings
    named = [finding for finding in findings if finding.code == cause]
    assert named, [str(finding) for finding in findings]
    finding = named[0]
    wanted = expected_line(source, where)
    assert finding.location
    lines = {finding.location.line, *(place.line for place in finding.location.inlined_at)}
    near = range(wanted, wanted + 3) if where.startswith("in ") else [wanted]
    assert lines & set(near), f"{sorted(lines)} instead of {wanted}: {finding}"


def test_rules_that_compilers_do_not_keep_are_strict() -> None:
    for changes, cause, _ in PLANTS.values():
        if SEVERITIES[cause] is Severity.STRICT:
            report = run(planted(changes))
            assert report.ok and all(finding.severity is Severity.STRICT for finding in report.findings)
