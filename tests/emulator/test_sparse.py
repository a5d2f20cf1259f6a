"""Products of a sparse A: what metadata may not say, whose counts, what of B it leaves out; hazards of wgmma.

What the instructions compute is in ``sparse_cases.py`` and ``warpgroup_cases.py``.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from emulation import Array, compile_cuda, fault_of, line_of, ptx_of

from workbench.emulator import Entry, Finding, FindingKind, Memory, Program, execute

FIRST = 0x44444444
"""Metadata of which every chunk names its first two places."""

PRODUCT = """
extern "C" __global__ void k(const unsigned* e, const uint4* b, unsigned* x) {
    int t = threadIdx.x;
#ifdef WRITTEN
    __shared__ unsigned said[32];
    if (WRITTEN) said[t] = e[t];
    __syncwarp();
    unsigned metadata = said[t];  // load
#else
    unsigned metadata = e[t];
#endif
    unsigned d[4] = {};
    asm volatile(OPCODE " {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %6, %7, %8}, {%0, %1, %2, %3}, %9, %10;"  // multiply
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(0x3c003c00), "r"(b[t].x), "r"(b[t].y), "r"(b[t].z), "r"(b[t].w), "r"(metadata), "n"(SELECTOR));
    for (int i = 0; i < 4; ++i)
        if (STORED) x[4 * t + i] = d[i];  // store
}
"""
HALVES = "mma.{}.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
TF32 = "mma.{}.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
BYTES = "mma.{}.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32"
ORDERED = "sp::ordered_metadata"


def product_text(opcode: str, selector: int = 0, stored: str = "true", written: str = "") -> str:
    more = [f"WRITTEN={written}"] if written else []
    return ptx_of(PRODUCT, f'OPCODE="{opcode}"', f"SELECTOR={selector}", f"STORED={stored}", *more)


def product(opcode: str, selector: int = 0, stored: str = "true", written: str = "") -> Entry:
    text = product_text(opcode, selector, stored, written)
    return Program.from_ptx(text, "kernel.cu", sources={"kernel.cu": PRODUCT}).entries["k"]


def arguments(metadata: Array, right: Array | None = None) -> tuple[Memory, list[Any]]:
    memory = Memory()
    b = np.zeros((32, 4), np.uint32) if right is None else right
    return memory, [memory.upload(metadata, "e"), memory.upload(b, "b"), memory.allocate(512, "x")]


def said(lane: int, shift: int, bits: int) -> Array:
    """Metadata of all lanes, sound but for one chunk."""
    metadata = np.full(32, FIRST, np.uint32)
    metadata[lane] = metadata[lane] & ~np.uint32(15 << shift) | np.uint32(bits << shift)
    return metadata


@pytest.mark.parametrize(
    ("opcode", "lane", "shift", "bits", "words"),
    [
        (
            HALVES.format(ORDERED),
            9,
            24,
            0b0001,
            "0b0001 for elements 24 to 27 of row 10 of A, which names place 1 before",
        ),
        (HALVES.format("sp"), 8, 12, 0b1010, "0b1010 for elements 12 to 15 of row 2 of A, which names place 2 twice"),
        (TF32.format("sp"), 1, 0, 0b1100, "0b1100 for elements 8 to 9 of row 0 of A\n"),
        (
            BYTES.format(ORDERED),
            31,
            28,
            0b1111,
            "0b1111 for elements 60 to 63 of row 15 of A, which names place 3 twice",
        ),
    ],
)
def test_metadata_that_ptx_leaves_undefined(opcode: str, lane: int, shift: int, bits: int, words: str) -> None:
    memory, args = arguments(said(lane, shift, bits))
    finding = fault_of(FindingKind.BAD_OPERAND, product(opcode), 1, 32, args, memory=memory)
    assert isinstance(finding, Finding)
    assert (finding.code, finding.lane) == ("sparse_metadata", lane)
    assert finding.location is not None and finding.location.line == line_of(PRODUCT, "// multiply")
    assert words in str(finding), str(finding)


def test_selectors_that_there_are_not() -> None:
    """ptxas refuses them, so that they come in PTX alone."""
    for opcode, selector, last in ((HALVES.format("sp"), 2, "0 to 1"), (BYTES.format(ORDERED), 1, "0:")):
        memory, args = arguments(said(0, 0, 0b0100))
        text, count = re.subn(r"(mma\.sp.*), 0;", rf"\1, {selector};", product_text(opcode))
        assert count == 1
        entry = Program.from_ptx(text).entries["k"]
        finding = fault_of(FindingKind.BAD_OPERAND, entry, 1, 32, args, memory=memory)
        assert f"has the sparsity selector {selector}" in finding.message
        assert f"of this shape and type it is {last}" in finding.advice


@pytest.mark.parametrize(
    ("opcode", "selector", "lane", "bits"),
    [
        (HALVES.format("sp"), 0, 8, 0b0001),  # the later one first, where that is allowed
        (HALVES.format(ORDERED), 0, 10, 0b0000),  # lanes that the selector does not name
        (HALVES.format(ORDERED), 1, 9, 0b0000),
    ],
)
def test_metadata_that_may_be(opcode: str, selector: int, lane: int, bits: int) -> None:
    memory, args = arguments(said(lane, 4, bits))
    execute(product(opcode, selector), 1, 32, args, memory=memory, strict=True)


def test_rows_of_b_that_no_element_meets() -> None:
    """What is not stored of A is not multiplied: infinity and NaN of B are met where metadata says so alone."""
    right = np.ones((32, 4, 2), np.float16)
    right[1::2] = np.nan, np.inf  # rows 2 and 3 of every four
    memory, args = arguments(np.full(32, FIRST, np.uint32), right.view(np.uint32).reshape(32, 4))
    execute(product(HALVES.format(ORDERED)), 1, 32, args, memory=memory, strict=True)
    assert set(memory.read(args[2], np.float32).tolist()) == {16.0}
    memory, args = arguments(said(1, 16, 0b1000), right.view(np.uint32).reshape(32, 4))
    execute(product(HALVES.format(ORDERED)), 1, 32, args, memory=memory, strict=True)
    expected = np.full((8, 4, 2, 2), 16, np.float32)
    expected[0, :, 1] = np.nan  # row 8, whose fifth chunk names place 2
    np.testing.assert_array_equal(memory.read(args[2], np.float32, expected.shape), expected)


def test_metadata_that_nothing_has_written_spoils_its_rows() -> None:
    clean = [("t != 10", "true"), ("t != 9", "t / 4 != 2")]  # a lane that is not asked; its rows are not stored
    for written, stored in clean:
        memory, args = arguments(np.full(32, FIRST, np.uint32))
        entry = product(HALVES.format(ORDERED), stored=stored, written=written)
        execute(entry, 1, 32, args, memory=memory, strict=True)
    memory, args = arguments(np.full(32, FIRST, np.uint32))
    entry = product(HALVES.format(ORDERED), stored="t / 4 == 2", written="t != 9")
    finding = fault_of(FindingKind.UNINITIALISED, entry, 1, 32, args, memory=memory)
    assert finding.location.line == line_of(PRODUCT, "// store")
    assert finding.other.line == line_of(PRODUCT, "// load")


def test_its_operations_are_counted_apart_from_dense_ones() -> None:
    memory, args = arguments(np.full(32, FIRST, np.uint32))
    counted = execute(product(BYTES.format(ORDERED)), 1, 32, args, memory=memory, counters=True).counters
    assert counted.tensor_operations() == {"sp.m16n8k64.s32.s8.s8.s32": 2 * 16 * 8 * 64}


GROUP = """
typedef unsigned long long u64;
__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ u64 descriptor(const void* p) {
    return (u64)((address(p) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
extern "C" __global__ void __launch_bounds__(128) k(const unsigned* e, float* x) {
    __shared__ __align__(1024) unsigned a[2048], b[256];
    int t = threadIdx.x;
    for (int i = t; i < 2304; i += 128) (i < 2048 ? a : b - 2048)[i] = 0;  // fill
#ifndef BUG_PROXY
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
    unsigned metadata = e[t];
    float d[4] = {1, 1, 1, 1};
#ifndef BUG_FENCE
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
    asm volatile("add.u32 %0, %0, 0;" : "+r"(metadata));
    asm volatile("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 "  // multiply
        "{%0, %1, %2, %3}, %4, %5, %6, 0, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(descriptor(a)), "l"(descriptor(b)), "r"(metadata));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("mov.u32 %0, 0;" : "+r"(metadata));
#ifdef BUG_OVERWRITE
    b[12] = metadata;  // overwrite
#endif
#ifndef BUG_WAIT
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
    x[t] = d[0] + d[1] + d[2] + d[3] + metadata;  // store
}
"""


@pytest.mark.parametrize(
    ("bug", "kind", "here", "there"),
    [
        ("BUG_WAIT", FindingKind.ACCUMULATOR_IN_FLIGHT, "store", "multiply"),
        ("BUG_FENCE", FindingKind.WGMMA_FENCE, "multiply", ""),
        ("BUG_PROXY", FindingKind.PROXY_FENCE, "multiply", "fill"),
        ("BUG_OVERWRITE", FindingKind.IN_FLIGHT, "overwrite", "multiply"),  # bytes 48 to 51 of a row of B
        ("METADATA", FindingKind.BAD_OPERAND, "multiply", ""),
    ],
)
def test_hazards_of_a_sparse_product_of_a_warpgroup(bug: str, kind: FindingKind, here: str, there: str) -> None:
    for seed in range(3):
        memory = Memory()
        metadata = np.full(128, FIRST, np.uint32)
        if bug == "METADATA":
            metadata[32 + 5] = 0x44F44444
        args = [memory.upload(metadata, "e"), memory.allocate(512, "x")]
        finding = fault_of(kind, compile_cuda(GROUP, bug).entries["k"], 1, 128, args, memory=memory, seed=seed)
        assert finding.location.line == line_of(GROUP, f"// {here}"), str(finding)
        if there:
            assert finding.other.line == line_of(GROUP, f"// {there}"), str(finding)
        if bug == "METADATA":  # lane 5 is the second of rows 1 and 9 of the second warp
            assert "0b1111 for elements 20 to 23 of row 25 of A, which names place 3 twice" in finding.message


def test_metadata_is_read_when_the_product_is_issued() -> None:
    """It needs no wgmma.fence, and may change before the product has ended."""
    memory = Memory()
    metadata = np.full(128, FIRST, np.uint32)
    metadata[np.arange(128) % 4 > 1] = 0  # not asked
    args = [memory.upload(metadata, "e"), memory.allocate(512, "x")]
    execute(compile_cuda(GROUP, "RIGHT").entries["k"], 1, 128, args, memory=memory, strict=True)
    assert set(memory.read(args[1], np.float32).tolist()) == {4.0}
