"""Values that nothing has written: followed through registers and memory, and blamed only where they matter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sample_kernels as kernels
from emulation import compile_cuda, fault_of, line_of, module

from workbench.emulator import Finding, FindingKind, KernelFault, Memory, Output, Program, execute, launch

SEEDS = range(10)

SOURCE = r"""
typedef unsigned u32; typedef unsigned long long u64;
__device__ __forceinline__ u32 shared(const void* p) { return __cvta_generic_to_shared(p); }
#define K extern "C" __global__ void

K unused(const float* x, float* y) {  // a tail is loaded, computed with, and not stored
    float v = x[threadIdx.x] * 2 + 1;
    if (threadIdx.x < 20) y[threadIdx.x] = v;
}
K stored(const float* x, float* y) {
    float v = x[threadIdx.x];            // stored: load
    v = fmaxf(v * 2 + 1, 0.f);
    y[threadIdx.x] = v;                  // stored: store
}
K address(const int* x, float* y) {
    int i = x[threadIdx.x];              // address: load
    y[i & 31] = 1;                       // address: store
}
K branch(const int* x, float* y) {
    int v = x[threadIdx.x];              // branch: load
    if (v + 1 > 4) {                     // branch: if
        __nanosleep(1);
        y[threadIdx.x] = 1;
    }
}
K updated(const int* x, int* y) {
    int v = x[threadIdx.x];              // updated: load
    atomicAdd(y, v);                     // updated: add
}
K old_value(int* x) {
    atomicAdd(x + threadIdx.x, 1);       // old value
}
K voted(const int* x, u32* y) {
    int v = x[threadIdx.x];              // voted: load
    y[threadIdx.x] = __ballot_sync(~0u, v != 0);  // voted: vote
}
K transposed(const u32* x, u32* y) {     // lane l of the result has rows l % 4 * 2 and the next of column l / 4
    u32 v = x[threadIdx.x], w;           // transposed: load
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(w) : "r"(v));
#ifdef USED
    y[threadIdx.x] = w & 0xffff;         // transposed: store
#else
    if (threadIdx.x % 4 < 3 || threadIdx.x < 8) y[threadIdx.x] = w & 0xffff;
#endif
}
K shuffled(const int* x, int* y) {       // 25 is the first that is not written
    int v = x[threadIdx.x];              // shuffled: load
    int w = __shfl_down_sync(~0u, v, 5);
#ifdef USED
    y[threadIdx.x] = w;                  // shuffled: store
#else
    if (threadIdx.x < 20) y[threadIdx.x] = w;
#endif
}
K chosen(const int* x, int* y) {
    int v = x[threadIdx.x], w = 7, r;
#ifdef USED
    asm("{.reg .pred p; setp.lt.u32 p, %1, 26; selp.b32 %0, %2, %3, p;}" : "=r"(r) : "r"(threadIdx.x), "r"(v), "r"(w));
#else
    asm("{.reg .pred p; setp.lt.u32 p, %1, 25; selp.b32 %0, %2, %3, p;}" : "=r"(r) : "r"(threadIdx.x), "r"(v), "r"(w));
#endif
    y[threadIdx.x] = r;                  // chosen: store
}
K halves(const unsigned short* x, u32* y) {  // one half of a pair is undefined, the other one used
    u32 pair = *(const u32*)(x + 24);
#ifdef USED
    y[threadIdx.x] = pair >> 8;          // halves: store
#else
    y[threadIdx.x] = pair & 0xffff;
#endif
}
K through_shared(const float* x, float* y) {
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];  // through shared: load
    __syncthreads();
    float v = tile[31 - threadIdx.x];
#ifdef USED
    y[threadIdx.x] = v;                  // through shared: store
#else
    if (threadIdx.x > 8) y[threadIdx.x] = v;
#endif
}
K through_local(const float* x, float* y, int n) {
    float mine[8];
    for (int i = 0; i < n; ++i) mine[(i + n) & 7] = x[threadIdx.x];  // through local: load
    y[threadIdx.x] = mine[(n * 3) & 7];  // through local: store
}
K copied(const float4* x, float4* y) {
    __shared__ float4 tile[8];
    if (threadIdx.x < 8)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"  // copied: copy
            :: "r"(shared(tile + threadIdx.x)), "l"(x + threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
#ifdef USED
    if (threadIdx.x < 8) y[threadIdx.x] = tile[threadIdx.x];  // copied: store
#else
    if (threadIdx.x < 6) y[threadIdx.x] = tile[threadIdx.x];
#endif
}
K bulk_copied(const float* x, float* y) {
    __shared__ __align__(128) float tile[32];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(shared(&bar)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" :: "r"(shared(&bar)) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global"  // bulk copied: copy
            ".mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
            :: "r"(shared(tile)), "l"(x), "r"(shared(&bar)) : "memory");
    }
    __syncthreads();
    asm volatile("{.reg .pred P; L: mbarrier.try_wait.parity.shared.b64 P, [%0], 0; @!P bra L;}"
        :: "r"(shared(&bar)) : "memory");
#ifdef USED
    y[threadIdx.x] = tile[threadIdx.x];  // bulk copied: store
#else
    if (threadIdx.x < 25) y[threadIdx.x] = tile[threadIdx.x];
#endif
}
K bulk_stored(const float* x, float* y) {
    __shared__ __align__(128) float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];  // bulk stored: load
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"  // bulk stored: store
            :: "l"(y), "r"(shared(tile)), "r"(BYTES) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
K synchronised(const u32* x) {
    u32 count = x[threadIdx.x] & 0 | x[31];  // synchronised: load
    asm volatile("bar.sync 1, %0;" :: "r"(count) : "memory");  // synchronised: barrier
}
K expected(const u32* x) {
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x) return;
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(shared(&bar)) : "memory");
    u32 bytes = x[30];                   // expected: load
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"  // expected: expect
        :: "r"(shared(&bar)), "r"(bytes) : "memory");
}
"""


def run(name: str, *defines: str, bytes_written: int = 100, seed: int = 0) -> None:
    """One warp; of the 32 words of x the first 25 are written. Raises what the launch ends with."""
    memory = Memory()
    x, y = memory.allocate(128, "x", element_size=4), memory.upload(np.zeros(256, np.uint32), "y")
    memory.write(x.address, np.arange(bytes_written // 2, dtype=np.uint16))
    entry = compile_cuda(SOURCE, "BYTES=128", *defines).entries[name]
    arguments: list[Any] = [x, y, 3]
    execute(entry, 1, 32, arguments[: len(entry.parameters)], memory=memory, seed=seed)


def finding_of(name: str, *defines: str, bytes_written: int = 100, seed: int = 0) -> Finding:
    with pytest.raises(KernelFault) as caught:
        run(name, *defines, bytes_written=bytes_written, seed=seed)
    assert caught.value.finding.kind == FindingKind.UNINITIALISED, str(caught.value)
    return caught.value.finding


def check_lines(finding: Finding, matters: str, enters: str | None, source: str = SOURCE) -> None:
    assert finding.location.line == line_of(source, matters), str(finding)
    if enters is None:
        assert finding.other is None
    else:
        assert finding.other.line == line_of(source, enters), str(finding)
        assert f"a value that kernel.cu:{finding.other.line} " in str(finding)
    assert f"kernel.cu:{finding.location.line}: uninitialised: " in str(finding)


USES = [
    ("stored", "store", "stores to global memory a value"),
    ("address", "store", "computes an address from a value"),
    ("branch", "if", "decides by a value"),
    ("updated", "add", "updates memory with a value"),
    ("voted", "vote", "hands to other lanes a value"),
]


@pytest.mark.parametrize(("name", "use", "message"), USES)
def test_a_value_is_blamed_where_it_matters(name: str, use: str, message: str) -> None:
    for seed in SEEDS:
        finding = finding_of(name, seed=seed)
        check_lines(finding, f"// {name}: {use}", f"// {name}: load")
        assert (finding.array, finding.index, finding.space) == ("x", 25, "global")
        assert finding.lane == 25
        assert message in finding.message
        assert "from x[25], where nothing has been written" in finding.message
        run(name, bytes_written=128, seed=seed)


def test_an_update_of_what_nothing_has_written_reads_it() -> None:
    finding = finding_of("old_value")
    check_lines(finding, "// old value", None)
    assert "reads x[25], where nothing has been written" in finding.message
    run("old_value", bytes_written=128)


def test_operands_of_barriers_matter() -> None:
    check_lines(finding_of("synchronised"), "// synchronised: barrier", "// synchronised: load")
    finding = finding_of("expected")
    check_lines(finding, "// expected: expect", "// expected: load")
    assert finding.index == 30
    assert "uses as an operand a value" in finding.message


# A value that does not get anywhere is nobody's business: (kernel, lines of the store and the load, lane and index)
TRAVELS = [
    ("transposed", "transposed: store", "transposed: load", 11, 25),
    ("shuffled", "shuffled: store", "shuffled: load", 20, 25),
    ("through_shared", "through shared: store", "through shared: load", 0, 31),
    ("copied", "copied: store", "copied: copy", 6, 25),
    ("bulk_copied", "bulk copied: store", "bulk copied: copy", 25, 25),
]


@pytest.mark.parametrize(("name", "store", "load", "lane", "index"), TRAVELS)
def test_a_copy_of_an_undefined_value_is_undefined(name: str, store: str, load: str, lane: int, index: int) -> None:
    for seed in SEEDS:
        run(name, seed=seed)
        finding = finding_of(name, "USED", seed=seed)
        check_lines(finding, f"// {store}", f"// {load}")
        assert (finding.lane, finding.array, finding.index) == (lane, "x", index)
        run(name, "USED", bytes_written=128, seed=seed)


def test_a_tail_that_is_not_stored_is_no_fault() -> None:
    run("unused")


def test_a_choice_takes_what_it_chooses() -> None:
    run("chosen")
    assert finding_of("chosen", "USED").lane == 25
    assert finding_of("chosen", "USED").index == 25


def test_bytes_are_told_apart() -> None:
    run("halves", bytes_written=50)
    finding = finding_of("halves", "USED", bytes_written=50)
    assert (finding.array, finding.address is not None and finding.address % 4) == ("x", 2)


def test_local_memory_keeps_undefined_values() -> None:
    finding = finding_of("through_local")
    check_lines(finding, "// through local: store", "// through local: store")  # mine[1], which has no value
    assert finding.space == "local"
    memory = Memory()
    x, y = memory.allocate(128, "x"), memory.allocate(128, "y")
    finding = fault_of(
        FindingKind.UNINITIALISED,
        compile_cuda(SOURCE, "BYTES=0").entries["through_local"],
        1,
        32,
        [x, y, 4],
        memory=memory,
    )
    check_lines(finding, "// through local: store", "// through local: load")
    assert (finding.array, finding.index) == ("x", 0)


def test_a_bulk_store_is_a_store() -> None:
    finding = finding_of("bulk_stored")
    check_lines(finding, "// bulk stored: store", "// bulk stored: load")
    assert (finding.array, finding.index) == ("x", 25)
    run("bulk_stored", bytes_written=128)
    memory = Memory()
    x, y = memory.allocate(128, "x"), memory.allocate(128, "y")
    memory.write(x.address, np.zeros(24, np.float32))
    execute(compile_cuda(SOURCE, "BYTES=96").entries["bulk_stored"], 1, 32, [x, y], memory=memory)


# ------------------------------------------------------------------------------------------------------- tensor cores

SKIPPED_ROWS = kernels.MMA.replace("copy16(address(&As", "if (a) copy16(address(&As").replace(
    "copy16(address(&Bs", "if (b) copy16(address(&Bs"
)


def product(source: str, m: int, n: int, k: int, seed: int) -> None:
    memory = Memory()
    rng = np.random.default_rng(seed)
    a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
    c = memory.allocate(4 * m * n, "C", shape=(m, n))
    arguments = [memory.upload(a, "A"), memory.upload(b, "Bt"), c, m, n, k]
    grid = (-(-n // 32), -(-m // 32))
    execute(compile_cuda(source).entries["gemm"], grid, 128, arguments, memory=memory, seed=seed)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    assert np.array_equal(memory.read(c, np.float32).reshape(m, n), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_are_not_stored_may_hold_anything(seed: int) -> None:
    """Rows and columns past the matrix are not even filled with zeros; of the sum, every term counts."""
    product(SKIPPED_ROWS, 32 + seed, 11 + 2 * seed, 32, seed)
    with pytest.raises(KernelFault) as caught:
        product(SKIPPED_ROWS, 32 + seed, 24, 24, seed)
    finding = caught.value.finding
    assert finding.kind == FindingKind.UNINITIALISED
    check_lines(finding, "C[(size_t)row * N + column] = sum[j][e];", "// fragments", SKIPPED_ROWS)
    assert finding.array == "As"


GROUP = r"""
typedef unsigned u32; typedef unsigned long long u64;
__device__ __forceinline__ u64 descriptor(const void* p) {  // no swizzle: 128 bytes along K, 256 across
    return (u64)((__cvta_generic_to_shared(p) & 0x3FFFF) >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}
extern "C" __global__ void __launch_bounds__(128) k(float* C, int rows, int columns, int accumulate, int M, int N) {
    __shared__ __align__(128) unsigned short A[64 * 16], B[8 * 16];
    int t = threadIdx.x;
    for (int e = t; e < 64 * 16; e += 128) {
        int r = e / 16, k = e % 16, at = r / 8 * 128 + k / 8 * 64 + r % 8 * 8 + k % 8;
        if (r < rows) A[at] = 0x3f80;
        if (r < columns) B[at] = 0x3f80;
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    float d[4];
    if (accumulate) for (float& x : d) x = 1;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{.reg .pred p; setp.ne.b32 p, %6, 0;\n"  // product
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(descriptor(A)), "l"(descriptor(B)), "r"(accumulate));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int e = 0; e < 4; ++e) {
        int row = t / 32 * 16 + t % 32 / 4 + e / 2 * 8, column = t % 4 * 2 + e % 2;
        if (row < M && column < N) C[row * N + column] = d[e];  // result
    }
}
"""


@pytest.mark.parametrize(("rows", "columns", "m", "n", "wrong"), [
    (64, 8, 64, 8, None), (37, 8, 37, 8, None), (64, 5, 64, 5, None), (37, 5, 37, 5, None),
    (37, 8, 38, 8, "A"), (64, 5, 64, 6, "B"),
])  # fmt: skip
def test_of_a_group_product_only_what_is_used_counts(
    rows: int, columns: int, m: int, n: int, wrong: str | None
) -> None:
    entry = compile_cuda(GROUP).entries["k"]
    for accumulate in (0, 1):  # without, the accumulators may be anything
        memory = Memory()
        c = memory.allocate(4 * m * n, "C")
        arguments = [c, rows, columns, accumulate, m, n]
        if wrong is None:
            execute(entry, 1, 128, arguments, memory=memory)
            assert (memory.read(c, np.float32) == 16 + accumulate).all()
            continue
        finding = fault_of(FindingKind.UNINITIALISED, entry, 1, 128, arguments, memory=memory)
        check_lines(finding, "// result", "// product", GROUP)
        assert finding.array == wrong


# ----------------------------------------------------------------------------- instructions: no lost bit, none too many

# (instruction, undefined bytes of %a, bytes of the result that are undefined; %b and %c hold a number)
INSTRUCTIONS = [
    ("mov.b32 %x, %a;", 0b0101, 0b0101),
    ("add.u32 %x, %a, %b;", 0b0001, 0b1111),
    ("add.f32 %x, %b, %c;", 0b1111, 0b0000),
    ("shl.b32 %x, %a, 8;", 0b0011, 0b0110),
    ("shr.u32 %x, %a, 16;", 0b1000, 0b0010),
    ("shr.s32 %x, %a, 16;", 0b1000, 0b1110),
    ("shl.b32 %x, %b, %a;", 0b0001, 0b1111),
    ("and.b32 %x, %a, 0x00ff00ff;", 0b1111, 0b0101),
    ("or.b32 %x, %a, 0xffff0000;", 0b1111, 0b0011),
    ("xor.b32 %x, %a, %b;", 0b0100, 0b0100),
    ("not.b32 %x, %a;", 0b1000, 0b1000),
    ("lop3.b32 %x, %a, 0x0000ffff, %b, 0xca;", 0b1111, 0b1011),  # it chooses between equal bytes
    ("lop3.b32 %x, 0x0000ffff, %a, %b, 0xca;", 0b1111, 0b0011),
    ("prmt.b32 %x, %a, %b, 0x7610;", 0b0010, 0b0010),
    ("prmt.b32 %x, %b, %a, 0x7610;", 0b0011, 0b0000),
    ("bfe.u32 %x, %a, 8, 8;", 0b0010, 0b0001),
    ("bfe.s32 %x, %a, 8, 8;", 0b0010, 0b1111),
    ("bfi.b32 %x, %a, %b, 16, 8;", 0b0001, 0b0100),
    ("shf.l.wrap.b32 %x, %a, %b, 8;", 0b1000, 0b0001),
    ("brev.b32 %x, %a;", 0b0001, 0b1000),
    ("cvt.u32.u8 %x, %a;", 0b0110, 0b0000),
    ("cvt.s32.s16 %x, %a;", 0b0010, 0b1110),
    ("add.f16x2 %x, %a, %b;", 0b0001, 0b0011),
    ("add.f16x2 %x, %a, %b;", 0b1000, 0b1100),
    ("cvt.rn.bf16x2.f32 %x, %a, %b;", 0b0001, 0b1100),
    ("cvt.rn.bf16x2.f32 %x, %b, %a;", 0b0001, 0b0011),
    ("{.reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, %a, %b; cvt.u32.u16 %x, h;}", 0b0001, 0b0010),
    ("{.reg .b16 h; cvt.rn.satfinite.e5m2x2.f32 h, %b, %a; cvt.u32.u16 %x, h;}", 0b1000, 0b0001),
    ("{.reg .b16 h; cvt.rn.satfinite.e4m3x2.f16x2 h, %a; cvt.u32.u16 %x, h;}", 0b0100, 0b0010),
    ("{.reg .b16 h; cvt.rn.satfinite.e5m2x2.f16x2 h, %a; cvt.u32.u16 %x, h;}", 0b0001, 0b0001),
    ("{.reg .b16 l, h; mov.b32 {l, h}, %a; cvt.rn.f16x2.e4m3x2 %x, l;}", 0b0010, 0b1100),
    ("{.reg .b16 l, h; mov.b32 {l, h}, %a; cvt.rn.f16x2.e5m2x2 %x, l;}", 0b0001, 0b0011),
    ("{.reg .b16 l, h; mov.b32 {l, h}, %a; mov.b32 %x, {h, l};}", 0b0001, 0b0100),
    ("{.reg .b16 l, h; mov.b32 {l, h}, %a; add.u16 l, l, 1; cvt.u32.u16 %x, l;}", 0b0100, 0b0000),
    ("{.reg .b64 d; mov.b64 d, {%b, %a}; shr.u64 d, d, 8; cvt.u32.u64 %x, d;}", 0b0001, 0b1000),
    ("{.reg .b32 t; add.cc.u32 t, %a, %b; addc.u32 %x, %b, %c;}", 0b0001, 0b1111),
    ("{.reg .b32 t; add.cc.u32 t, %a, %b; add.cc.u32 t, %b, %c; addc.u32 %x, %b, %c;}", 0b0001, 0b0000),
    ("{.reg .pred p; setp.eq.u32 p, %a, %b; selp.b32 %x, %b, %c, p;}", 0b0001, 0b1111),
    ("{.reg .pred p, q; setp.eq.u32 p, %a, %b; setp.ne.u32 q, %b, %b; and.pred p, p, q; selp.b32 %x, %b, %c, p;}",
     0b0001, 0b0000),
    ("{.reg .pred p, q; setp.eq.u32 p, %a, %b; setp.ne.u32 q, %b, %b; or.pred p, p, !q; selp.b32 %x, %b, %c, p;}",
     0b0001, 0b0000),
    ("mov.b32 %x, %a; mov.b32 %x, %b;", 0b1111, 0b0000),
    ("redux.sync.add.u32 %x, %a, 1;", 0b0001, 0b1111),
]  # fmt: skip


def result_byte(instruction: str, undefined: int, garbage: int, byte: int | None) -> tuple[bytes, bool]:
    """The result in one thread, and whether its byte may be stored; of None, all four with no check of it."""
    store = "st.shared.b32 [tile], %x; st.global.u32 [%out], %x;"
    if byte is not None:
        store = f"st.shared.b32 [tile], %x; ld.shared.u8 %x, [tile+{byte}]; st.global.u8 [%out], %x;"
    text = module(
        f"""ld.param.u64 %in, [x]; ld.param.u64 %out, [y];
        ld.global.u32 %a, [%in]; ld.global.u32 %b, [%in+4]; ld.global.u32 %c, [%in+8]; {instruction} {store} ret;""",
        ".param .u64 x, .param .u64 y",
        ".reg .b32 %a, %b, %c, %x; .reg .b64 %in, %out; .shared .align 4 .b8 tile[4];",
    )
    memory = Memory()
    x, y = memory.upload(np.array([0x12345678, 0x3C003F81, 0x40104001], np.uint32), "x"), memory.allocate(4, "y")
    holes = np.array([undefined >> k & 1 for k in range(4)], bool)
    x.data[:4][holes] = np.frombuffer(garbage.to_bytes(4, "little"), np.uint8)[holes]
    if byte is not None:
        x.written = np.ones(12, np.uint8)
        x.written[:4] = ~holes
    try:
        execute(Program.from_ptx(text).entries["k"], 1, 1, [x, y], memory=memory)
    except KernelFault as fault:
        assert fault.finding.kind == FindingKind.UNINITIALISED, str(fault)
        return b"", False
    return memory.read(y, np.uint8)[: 4 if byte is None else 1].tobytes(), True


@pytest.mark.parametrize(("instruction", "undefined", "expected"), INSTRUCTIONS)
def test_instructions_hand_on_what_is_undefined(instruction: str, undefined: int, expected: int) -> None:
    blamed = sum((not result_byte(instruction, undefined, 0, byte)[1]) << byte for byte in range(4))
    assert f"{blamed:04b}" == f"{expected:04b}"
    results = [result_byte(instruction, undefined, garbage, None)[0] for garbage in (0, 0xFFFFFFFF, 0x3355CCAA)]
    for byte in range(4):  # what is not blamed does not depend on what was there
        assert blamed >> byte & 1 or len({result[byte] for result in results}) == 1


def test_registers_that_nothing_has_set() -> None:
    text = module(
        """ld.param.u64 %p, [x]; mov.u32 %t, %tid.x; setp.lt.u32 %few, %t, 20; @%few mov.u32 %v, 5;
        add.u32 %w, %v, 1; @%few st.global.u32 [%p], %w; @!%few bra $end; ret; $end: STORE ret;""",
        ".param .u64 x",
        ".reg .b32 %t, %v, %w; .reg .b64 %p; .reg .pred %few;",
    )
    memory = Memory()
    x = memory.allocate(4, "x")
    execute(Program.from_ptx(text.replace("STORE", "")).entries["k"], 1, 32, [x], memory=memory)
    program = Program.from_ptx(text.replace("STORE", "st.global.u32 [%p], %w;"))
    finding = fault_of(FindingKind.UNINITIALISED, program.entries["k"], 1, 32, [x], memory=memory)
    assert (finding.lane, finding.array, finding.space) == (20, None, "none")
    assert finding.instruction == "st.global.u32 [%p], %w"
    assert finding.other_instruction == "add.u32 %w, %v, 1"
    assert "stores to global memory a value that nothing has set (register %v)" in finding.message


@pytest.mark.parametrize("far", [40, 192, 60_000])
@pytest.mark.parametrize("value", ["own[i]", "mine[i & 3]", "x[i]"], ids=["shared", "local", "global"])
def test_an_undefined_value_stored_past_the_end_of_shared_memory_is_a_finding(value: str, far: int) -> None:
    source = f"""
    extern "C" __global__ void k(const unsigned* x, unsigned* y, unsigned far) {{
        __shared__ unsigned own[192];
        unsigned i = threadIdx.x, mine[4];
        mine[far & 1] = 1;
        own[i + far] = {value};  // store
        __syncthreads();
        y[i] = own[i];
    }}
    """
    arguments = {"x": Output(np.zeros(128, np.uint32)), "y": np.zeros(128, np.uint32), "far": far + 152}
    findings = launch(source, "k", 1, 128, arguments, seed=0).findings
    lines = [finding.location and finding.location.line for finding in findings if finding.kind == "out_of_bounds"]
    assert lines == [line_of(source, "// store")], findings
