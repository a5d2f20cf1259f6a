"""Hazards of wgmma, setmaxnreg, barriers and byte counts: each at its line, whatever the order of warps.

A kernel is right as it stands; ``-DBUG_...`` plants one hazard.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from async_hazards import SEEDS, cuda, launch, outer
from emulation import compile_cuda, fault_of, line_of
from sample_kernels import on_device

from workbench.emulator import Checks, Entry, Finding, FindingKind, Memory, Severity, TensorMap, execute

PRODUCT = on_device("""
struct __align__(64) Map { u64 opaque[16]; };
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
#ifndef SWIZZLE_CODE
#define SWIZZLE_CODE 1ull
#define ATOM 1024
#endif
__device__ __forceinline__ u64 descriptor(const void* p) {
    return (u64)((address(p) & 0x3FFFF) >> 4) | 1ull << 16 | (u64)(ATOM >> 4) << 32 | SWIZZLE_CODE << 62;
}
#define MULTIPLY(d, a, b) asm volatile( \\
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" \\
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(descriptor(a)), "l"(descriptor(b)))
extern "C" __global__ void __launch_bounds__(128) k(const __grid_constant__ Map map, float* x) {
    __shared__ __align__(1024) unsigned char tile[9216];
    __shared__ __align__(8) u64 bar;
    int t = threadIdx.x;
    if (t == 0) {
        init(&bar, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (t == 0) {
#ifdef BUG_FEW
        expect(&bar, 8192 - 16);  // expect few
#elif defined(BUG_MANY)
        expect(&bar, 8192 + 16);
#else
        expect(&bar, 8192);  // expect
#endif
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "  // copy
            "[%0], [%1, {0, 0}], [%2];" :: "r"(address(tile)), "l"(&map), "r"(address(&bar)) : "memory");
    }
    wait(&bar, 0);
    float d[4] = {1, 1, 1, 1};
#ifdef BUG_THREE
    if (t < 96)
#endif
    {
#ifndef BUG_NO_FENCE
        FENCE;  // fence
#endif
#ifdef BUG_LATE_WRITE
        for (int i = 0; i < 4; ++i) asm volatile("add.f32 %0, %0, 0f3F800000;" : "+f"(d[i]));  // late
#endif
#ifdef START
        MULTIPLY(d, tile + START, tile);  // start
#else
        MULTIPLY(d, tile, tile);  // multiply
#endif
#ifndef BUG_NO_COMMIT
        COMMIT;  // commit
#endif
        WAIT;
    }
    x[t] = d[0];  // store
#ifdef BUG_SECOND
    for (int i = 0; i < 4; ++i) asm volatile("mul.f32 %0, %0, 0f3F000000;" : "+f"(d[i]));  // scaled
    MULTIPLY(d, tile, tile);  // second
    COMMIT;
    WAIT;
    x[t] = d[0] + d[1] + d[2] + d[3];
#endif
}  // end
""")


def product(define: str, *, swizzle: int = 128, box: int = 64, **options: Any) -> tuple[Entry, list[Any], Memory]:
    """Entry, arguments and memory for ``PRODUCT``; the tile has 64 rows of ``box`` elements."""
    memory = Memory()
    a = memory.upload(np.zeros((128, 64), np.uint16), "a")
    tensor_map = TensorMap(a, 2, (64, 128), (128,), (box, 64 * 64 // box), swizzle=swizzle)
    x = memory.allocate(4 * 128, "x")
    return compile_cuda(PRODUCT, define, **options).entries["k"], [tensor_map, x], memory


def run(define: str, seed: int, kind: FindingKind, **options: Any) -> Finding:
    entry, args, memory = product(define, **options)
    finding = fault_of(kind, entry, 1, 128, args, memory=memory, seed=seed)
    assert isinstance(finding, Finding)
    assert finding.advice
    return finding


@pytest.mark.parametrize("seed", SEEDS)
def test_the_right_product_is_clean(seed: int) -> None:
    entry, args, memory = product("RIGHT")
    execute(entry, 1, 128, args, memory=memory, seed=seed)
    assert set(memory.read(args[1], np.float32).tolist()) == {1.0}


@pytest.mark.parametrize("start", [128, 256, 896])
def test_a_tile_may_begin_in_an_atom_at_128_bytes(start: int) -> None:
    """The swizzle acts on the address, so that such a tile is one of later rows: row i is the i-th of 1s here."""
    memory = Memory()
    rows = np.zeros((128, 64), np.float32)
    rows[np.arange(64), np.arange(64) % 16] = np.arange(64) + 1
    bits = (rows.view(np.uint32) >> 16).astype(np.uint16)
    tensor_map = TensorMap(memory.upload(bits, "a"), 2, (64, 128), (128,), (64, 64), swizzle=128)
    x = memory.allocate(4 * 128, "x")
    entry = compile_cuda(PRODUCT, f"START={start}").entries["k"]
    found = execute(entry, 1, 128, [tensor_map, x], memory=memory, strict=True, checks=Checks.ALL & ~Checks.INITIALISED)
    assert not found.findings
    first = start // 128
    product = 1 + rows[first : first + 64] @ rows[:8].T  # the last rows are those behind the tile
    thread = np.arange(96)
    expected = product[thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2]
    np.testing.assert_array_equal(memory.read(x, np.float32)[:96], expected)


def test_a_tile_that_begins_in_a_row_of_an_atom_is_refused() -> None:
    _, args, memory = product("START=64", swizzle=64, box=32)
    entry = compile_cuda(PRODUCT, "START=64", "SWIZZLE_CODE=2ull", "ATOM=512").entries["k"]
    finding = fault_of(FindingKind.DESCRIPTOR, entry, 1, 128, args, memory=memory)
    assert outer(finding.location) == line_of(PRODUCT, "// start")
    assert "in the middle of an atom of the 64-byte swizzle" in str(finding)


@pytest.mark.parametrize(
    ("bug", "kind", "here", "there", "words"),
    [
        ("BUG_NO_FENCE", FindingKind.WGMMA_FENCE, "multiply", "", "no wgmma.fence before its first"),
        ("BUG_LATE_WRITE", FindingKind.WGMMA_FENCE, "multiply", "late", "after the last wgmma.fence"),
        ("BUG_SECOND", FindingKind.WGMMA_FENCE, "second", "scaled", "after the last wgmma.fence"),
        ("BUG_NO_COMMIT", FindingKind.ACCUMULATOR_IN_FLIGHT, "store", "multiply", "which no commit covers"),
        ("BUG_THREE", FindingKind.DIVERGENT_COLLECTIVE, "fence", "end", "only some of warps 0-3 execute `wgmma.fence"),
        ("BUG_FEW", FindingKind.MBARRIER_MISUSE, "copy", "expect few", "16 more bytes came to mbarrier `bar`"),
    ],
)
def test_hazards_of_a_product(bug: str, kind: FindingKind, here: str, there: str, words: str) -> None:
    for seed in SEEDS:
        finding = run(bug, seed, kind)
        assert outer(finding.location) == line_of(PRODUCT, f"// {here}"), str(finding)
        if there:
            assert outer(finding.other) == line_of(PRODUCT, f"// {there}"), str(finding)
        assert words in str(finding), str(finding)


def test_too_many_bytes_are_waited_for() -> None:
    for seed in SEEDS:
        finding = run("BUG_MANY", seed, FindingKind.DEADLOCK)
        assert outer(finding.location) == line_of(PRODUCT, "    wait(&bar, 0);")
        assert "for mbarrier `bar` phase 0: 0 arrivals and 16 bytes pending" in str(finding)


@pytest.mark.parametrize(("swizzle", "box"), [(64, 32), (32, 16), (0, 64)])
def test_a_tensor_map_and_a_descriptor_that_disagree_about_the_swizzle(swizzle: int, box: int) -> None:
    wrote = f"wrote it with {f'a swizzle of {swizzle} bytes' if swizzle else 'no swizzle'}"
    for seed in SEEDS:
        finding = run("RIGHT", seed, FindingKind.DESCRIPTOR, swizzle=swizzle, box=box)
        assert outer(finding.location) == line_of(PRODUCT, "// multiply")
        assert outer(finding.other) == line_of(PRODUCT, "// copy")
        assert "with a swizzle of 128 bytes" in finding.message
        assert wrote in finding.message


def test_a_warpgroup_of_three_warps() -> None:
    entry, args, memory = product("RIGHT")
    for seed in SEEDS:
        finding = fault_of(FindingKind.DIVERGENT_COLLECTIVE, entry, 1, 96, args, memory=memory, seed=seed)
        assert outer(finding.location) == line_of(PRODUCT, "// fence")
        assert "needs a warpgroup of 4 warps; that of warp" in finding.message
        assert "has 3" in finding.message


TWO_COPIES = cuda("""
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); FENCE_INIT; }
    __syncthreads();
    if (threadIdx.x == 0) {
#ifdef BUG_HALF
        expect(&bar, 128);  // expected
#else
        expect(&bar, 256);
#endif
        for (int i = 0; i < 2; ++i) LOAD(tile + 32 * i, a + 32 * i, 128, &bar);  // loaded
    }
    wait(&bar, 0);
    x[threadIdx.x] = tile[threadIdx.x];
}
""")


def test_a_phase_that_ends_before_all_its_copies() -> None:
    launch(TWO_COPIES, "RIGHT", 1, 64, 0, None)
    for seed in SEEDS:
        finding = launch(TWO_COPIES, "BUG_HALF", 1, 64, seed, FindingKind.MBARRIER_MISUSE)
        assert outer(finding.location) == line_of(TWO_COPIES, "// loaded"), str(finding)
        assert outer(finding.other) == line_of(TWO_COPIES, "// expected"), str(finding)
        assert "128 bytes is on its way: too few are expected" in finding.message


# ---------------------------------------------------------------------------------------------------------- setmaxnreg

REGISTERS = """
#ifndef LIMIT
#define LIMIT __launch_bounds__(512, 1)
#endif
#ifndef DOWN
#define DOWN 24
#endif
#ifndef UP
#define UP 232
#endif
#define TAKE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(n))
#define GIVE(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(n))
extern "C" __global__ void LIMIT k(const int* a, int* x) {
    __shared__ volatile int done;
    if (threadIdx.x >= 128) {
#if defined(BUG_THREE)
        if (threadIdx.x < 224) GIVE(DOWN);  // three
#elif defined(BUG_RAISE)
        GIVE(UP);  // raise
#elif defined(BUG_NONE)
        asm volatile("barrier.sync 1, 256;");
#else
        GIVE(DOWN);  // give
#endif
        x[threadIdx.x] = a[threadIdx.x];
    } else {
#if defined(BUG_LOWER)
        TAKE(DOWN);  // lower
#else
        TAKE(UP);  // take
#endif
        x[threadIdx.x] = 2 * a[threadIdx.x];
#if defined(BUG_NONE)
        asm volatile("barrier.sync 1, 256;");
#endif
    }
}  // end
"""


def registers(*defines: str, seed: int, limit: int | None = 128) -> Finding | None:
    memory = Memory()
    a, x = memory.upload(np.arange(256, dtype=np.int32), "a"), memory.allocate(1024, "x")
    entry = compile_cuda(REGISTERS, *defines).entries["k"]
    kind = {
        "RIGHT": None,
        "BUG_NONE": FindingKind.DEADLOCK,
        "UP=240": FindingKind.DEADLOCK,
        "BUG_THREE": FindingKind.DIVERGENT_COLLECTIVE,
    }.get(defines[0], FindingKind.REGISTER_MISUSE)
    args: Any = entry, 1, 256, [a, x]
    if kind is None:
        execute(*args, memory=memory, seed=seed, registers_per_thread=limit)
        return None
    finding = fault_of(kind, *args, memory=memory, seed=seed, registers_per_thread=limit)
    assert isinstance(finding, Finding)
    return finding


def test_registers_given_and_taken() -> None:
    for seed in SEEDS:
        registers("RIGHT", seed=seed)
    registers("RIGHT", seed=0, limit=None)


@pytest.mark.parametrize(
    ("define", "line", "words"),
    [
        ("BUG_RAISE", "raise", "setmaxnreg.dec to 232 registers, of 128 that each thread has"),
        ("BUG_LOWER", "lower", "setmaxnreg.inc to 24 registers, of 128 that each thread has"),
        ("BUG_NONE", "take", "for 3328 registers: 0 are free in the block"),
        ("UP=240", "take", "for 3584 registers: "),
    ],
)
def test_misused_setmaxnreg(define: str, line: str, words: str) -> None:
    for seed in SEEDS:
        finding = registers(define, seed=seed)
        lines = [line] if line else ["give", "take"]
        assert outer(finding.location) in [line_of(REGISTERS, f"// {name}") for name in lines], str(finding)
        assert words in str(finding), str(finding)


@pytest.mark.parametrize("limit", ["", "__launch_bounds__(512)"])
def test_setmaxnreg_without_a_limit_is_noted_and_does_nothing(limit: str) -> None:
    """ptxas, too: "setmaxnreg ignored; unable to determine register count at entry"."""
    memory = Memory()
    a, x = memory.upload(np.arange(256, dtype=np.int32), "a"), memory.allocate(1024, "x")
    entry = compile_cuda(REGISTERS, f"LIMIT={limit}").entries["k"]
    found = execute(entry, 1, 256, [a, x], memory=memory, strict=True, registers_per_thread=16).findings
    assert {finding.code for finding in found} == {"registers_unlimited"}
    assert {finding.severity for finding in found} == {Severity.NOTE}
    assert "without a limit on its registers has no effect" in str(found[0])


def test_setmaxnreg_by_three_warps() -> None:
    """The taking warpgroup cannot go on either, so that the blame is found when the giving warps have gone."""
    for seed in SEEDS:
        finding = registers("BUG_THREE", seed=seed)
        assert outer(finding.location) == line_of(REGISTERS, "// three")
        assert outer(finding.other) == line_of(REGISTERS, "// end")
        assert "only some of warps 4-7 execute `setmaxnreg.dec" in finding.message


def test_equal_setmaxnreg_at_two_places_of_a_warpgroup_are_a_strict_finding() -> None:
    two = "if (threadIdx.x < 192) GIVE(24); else { GIVE(OTHER); x[threadIdx.x] = 1; }"
    source = REGISTERS.replace("GIVE(DOWN);  // give", two)
    for other, kind in ((24, None), (32, FindingKind.DIVERGENT_COLLECTIVE)):
        memory = Memory()
        args = [memory.upload(np.arange(256, dtype=np.int32), "a"), memory.allocate(1024, "x")]
        launched: Any = compile_cuda(source, f"OTHER={other}").entries["k"], 1, 256, args
        if kind is not None:
            assert fault_of(kind, *launched, memory=memory, registers_per_thread=128).code == "warpgroup_diverged"
            continue
        found = execute(*launched, memory=memory, registers_per_thread=128).findings
        assert ("warpgroup_apart", Severity.STRICT) in {(each.code, each.severity) for each in found}


# ------------------------------------------------------------------------------------------------------------ barriers

BARRIERS = """
extern "C" __global__ void k(const int* a, int* x) {
    int t = threadIdx.x, lane = t % 32, value = a[t];
#if defined(BUG_BRANCH)
    if (lane < 7) __syncthreads();  // branch
#elif defined(BUG_BRANCHES)
    if (lane < 16) { asm volatile("bar.sync 0;"); x[t] = 1; }  // first
    else { asm volatile("bar.sync 0;"); x[t] = 2; }  // second
#elif defined(BUG_COUNT)
    asm volatile("bar.sync 1, 96;");  // count
#elif defined(BUG_TOO_MANY)
    asm volatile("bar.sync 1, 160;");  // many
#elif defined(BUG_ODD)
    asm volatile("bar.sync 1, %0;" :: "r"(value >= 0 ? 100 : 96));  // odd
#elif defined(BUG_DISAGREE)
    if (t < 64) asm volatile("bar.sync 1, 128;");  // some
    else asm volatile("bar.sync 1, 64;");  // others
#elif defined(BUG_ABSENT)
    if (lane < 8) value = __shfl_sync(~0u, value, 0);  // absent
    __syncthreads();
#elif defined(BUG_OUTSIDE)
    value = __shfl_sync(0xffff, value, 0);  // outside
#else
    __syncthreads();
    asm volatile("bar.sync 1, 128;");
    value = __shfl_sync(~0u, value, 0);
#endif
    x[t] = value;
}
"""


@pytest.mark.parametrize(
    ("bug", "kind", "lines", "words"),
    [
        ("BUG_BRANCH", FindingKind.DIVERGENT_COLLECTIVE, ["branch"], "only the lanes 0-6 of the warp reach"),
        ("BUG_BRANCHES", FindingKind.DIVERGENT_COLLECTIVE, ["first", "second"], "of the warp reach `b"),
        ("BUG_COUNT", FindingKind.DEADLOCK, ["count"], "for barrier 1: 32 of 96 threads have arrived"),
        ("BUG_TOO_MANY", FindingKind.DEADLOCK, ["many"], "for barrier 1: 128 of 160 threads have arrived"),
        ("BUG_ODD", FindingKind.BARRIER_MISUSE, ["odd"], "barrier 1 is used with 100 threads"),
        ("BUG_DISAGREE", FindingKind.BARRIER_MISUSE, ["some", "others"], "threads disagree about a barrier"),
        ("BUG_ABSENT", FindingKind.DEADLOCK, ["absent"], "the lanes 8-31 of its mask have not come"),
        ("BUG_OUTSIDE", FindingKind.DIVERGENT_COLLECTIVE, ["outside"], "is not in its own mask 0x0000ffff"),
    ],
)
def test_misused_barriers(bug: str, kind: FindingKind, lines: list[str], words: str) -> None:
    launch(BARRIERS, "RIGHT", 1, 128, 0, None)
    for seed in SEEDS:
        finding = launch(BARRIERS, bug, 1, 128, seed, kind)
        assert outer(finding.location) in [line_of(BARRIERS, f"// {line}") for line in lines], str(finding)
        assert words in str(finding), str(finding)
