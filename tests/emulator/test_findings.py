"""Every hazard is named for what it is, at its line, with the array, the element and the thread."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sample_kernels as kernels
from emulation import compile_cuda, fault_of, line_of, module

from workbench.emulator import (
    Checks,
    Finding,
    FindingKind,
    KernelFault,
    Memory,
    Program,
    Severity,
    TensorMap,
    execute,
    launch,
)

SOURCE = """
__device__ __forceinline__ float at(const float* p, int i) {
    return p[i];                                                      // inner
}
extern "C" __global__ void copy(const float* A, float* C, int shift) {
    int i = blockIdx.x * 64 + threadIdx.x;
    C[i] = at(A, i + shift);                                          // call
}
extern "C" __global__ void wide(const float* A, float4* C) {
    C[threadIdx.x] = *(const float4*)(A + threadIdx.x);               // wide
}
extern "C" __global__ void shared_copy(float* C, int shift) {
    __shared__ float first[64];
    __shared__ float tile[64];
    first[threadIdx.x] = 0;
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    C[threadIdx.x] = tile[threadIdx.x + shift] + first[threadIdx.x];  // tile
}
extern "C" __global__ void dynamic_copy(float* C, int shift) {
    extern __shared__ float dynamic[];
    if (threadIdx.x != 5) dynamic[threadIdx.x] = 1;
    __syncthreads();
    C[threadIdx.x] = dynamic[threadIdx.x + shift];                    // dynamic
}
extern "C" __global__ void local_copy(float* C, int n) {
    float mine[4];
    for (int i = 0; i < n; ++i) mine[i] = i;
    C[threadIdx.x] = mine[(threadIdx.x + n) & 3];                     // local
}
__constant__ float table[4] = {1, 2, 3, 4};
extern "C" __global__ void constant_copy(float* C) {
    C[threadIdx.x] = table[threadIdx.x];
}
extern "C" __global__ void stop(int n) {
    if (threadIdx.x == n) __trap();                                   // trap
}
"""


def program_entry(name: str) -> Any:
    return compile_cuda(SOURCE).entries[name]


def check_place(finding: Finding, marker: str, source: str = SOURCE) -> None:
    assert finding.location.file.endswith("kernel.cu")
    assert finding.location.line == line_of(source, marker)
    assert marker in finding.source_line
    severity = "" if finding.severity is Severity.ERROR else f"{finding.severity}: "
    assert f"kernel.cu:{finding.location.line}: {severity}{str(finding.kind).replace('_', ' ')}: " in str(finding)
    assert finding.source_line.strip() in str(finding)


def arrays(count: int = 100) -> tuple[Memory, Any, Any]:
    memory = Memory()
    return memory, memory.upload(np.arange(count, dtype=np.float32), "A"), memory.allocate(512, "C")


def test_one_past_the_end() -> None:
    memory, a, c = arrays()
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("copy"), 2, 64, [a, c, 0], memory=memory, seed=7)
    check_place(finding, "// inner")
    assert [place.line for place in finding.location.inlined_at] == [line_of(SOURCE, "// call")]
    assert (finding.block, finding.warp, finding.lane, finding.thread) == ((1, 0, 0), 1, 4, (36, 0, 0))
    assert (finding.array, finding.index, finding.space, finding.address) == ("A", 100, "global", a.end)
    assert finding.instruction.startswith("ld.global")
    text = str(finding)
    assert "reads 4 bytes at A[100]: A[100] is one past the end of A (100 elements of 4 bytes)" in text
    assert "block (1, 0, 0), warp 1, lane 4, thread (36, 0, 0), seed 7" in text
    assert f"inlined into kernel.cu:{line_of(SOURCE, '// call')}: C[i] = at(A, i + shift);" in text


def test_far_past_the_end_and_before_the_start() -> None:
    memory, a, c = arrays()
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("copy"), 1, 32, [a, c, 200], memory=memory)
    assert "A[200] is 101 past the end of A" in str(finding)
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("copy"), 1, 32, [a, c, -2], memory=memory)
    assert "A[-2] lies 2 elements before the start of A" in str(finding)
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("copy"), 1, 64, [0, c, 0], memory=memory)
    assert "no allocation is near" in str(finding)
    assert finding.array is None


def test_a_store_out_of_bounds_writes() -> None:
    memory, a, _ = arrays(200)
    small = memory.allocate(4 * 100, "C")
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("copy"), 2, 64, [a, small, 0], memory=memory)
    check_place(finding, "// call")
    assert "writes 4 bytes at C[100]" in str(finding)
    memory.free(a)
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("copy"), 1, 64, [a.address, small, 0], memory=memory)
    assert "A had been freed" in str(finding)


def test_misaligned_access() -> None:
    memory, a, c = arrays()
    finding = fault_of(FindingKind.MISALIGNED, program_entry("wide"), 1, 8, [a, c], memory=memory)
    check_place(finding, "// wide")
    assert finding.lane == 1
    assert "A[1]" in str(finding)
    assert "not a multiple of 16 bytes" in str(finding)


def test_uninitialised_global_memory() -> None:
    memory, _, c = arrays()
    matrix = memory.allocate(400, "X", shape=(10, 10))
    memory.write(matrix.address, np.zeros(25, np.float32))
    finding = fault_of(FindingKind.UNINITIALISED, program_entry("copy"), 1, 32, [matrix, c, 0], memory=memory)
    check_place(finding, "// call")
    assert (finding.array, finding.index, finding.lane) == ("X", 25, 25)
    assert finding.other.line == line_of(SOURCE, "// inner")
    assert "stores to global memory a value that kernel.cu:3 (from kernel.cu:7) reads from X[2][5], " in str(finding)
    execute(program_entry("copy"), 1, 64, [matrix, c, 0], memory=memory, checks=Checks.NONE)


def test_a_copy_hands_on_whether_memory_is_initialised() -> None:
    memory, a, c = arrays(64)
    execute(program_entry("copy"), 1, 64, [a, c, 0], memory=memory)
    assert memory.initialised(c).tolist() == [True] * 256 + [False] * 256


def test_shared_memory_has_names() -> None:
    memory, _, c = arrays()
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("shared_copy"), 1, 64, [c, 1], memory=memory)
    check_place(finding, "// tile")
    assert (finding.space, finding.thread) == ("shared", (63, 0, 0))
    assert "shared memory at byte 512: the block has 512 bytes" in str(finding)
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("shared_copy"), 1, 64, [c, -(1 << 20)], memory=memory)
    assert finding.space == "shared"


def test_uninitialised_shared_memory() -> None:
    memory, _, c = arrays()
    finding = fault_of(
        FindingKind.UNINITIALISED, program_entry("dynamic_copy"), 1, 64, [c, 0], memory=memory, shared_bytes=256
    )
    check_place(finding, "// dynamic")
    assert finding.lane == 5
    assert "dynamic shared memory + 20 bytes" in str(finding)
    source = SOURCE.replace("tile[threadIdx.x] = threadIdx.x;", "if (threadIdx.x != 3) tile[threadIdx.x] = 1;")
    entry = compile_cuda(source).entries["shared_copy"]
    finding = fault_of(FindingKind.UNINITIALISED, entry, 1, 64, [c, 0], memory=memory)
    check_place(finding, "// tile", source)
    assert finding.array == "tile"
    assert "reads from `tile` + 12 bytes, where nothing has been written" in str(finding)


def test_missing_dynamic_shared_memory() -> None:
    memory, _, c = arrays()
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("dynamic_copy"), 1, 64, [c, 0], memory=memory)
    assert "the launch gave it no dynamic shared memory" in str(finding)


def test_local_memory() -> None:
    memory, _, c = arrays()
    finding = fault_of(FindingKind.UNINITIALISED, program_entry("local_copy"), 1, 32, [c, 2], memory=memory)
    assert finding.space == "local"
    assert "local memory at byte" in str(finding)
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, program_entry("local_copy"), 1, 32, [c, 5], memory=memory)
    assert finding.space == "local"
    entry = compile_cuda(SOURCE.replace("mine[i] = i", "mine[i - 1] = i")).entries["local_copy"]
    finding = fault_of(FindingKind.OUT_OF_BOUNDS, entry, 1, 32, [c, 4], memory=memory)
    assert "local memory at byte -4 of " in str(finding)


def test_what_is_read_only() -> None:
    memory, a, _ = arrays()
    table = program_entry("copy").program.variable("table", memory)
    fixed = memory.upload(np.zeros(100, np.float32), "B", writable=False)
    for to, says in ((table, "writes table[0] in constant memory, which no kernel may change"), (fixed, "B[0]")):
        finding = fault_of(FindingKind.READ_ONLY, program_entry("copy"), 1, 4, [a, to, 0], memory=memory)
        check_place(finding, "// call")
        assert says in str(finding)


def test_trap() -> None:
    finding = fault_of(FindingKind.TRAP, program_entry("stop"), 1, 64, [40], memory=Memory())
    check_place(finding, "// trap")
    assert finding.thread == (40, 0, 0)


def test_breakpoint() -> None:
    entry = Program.from_ptx(module("brkpt; ret;")).entries["k"]
    assert fault_of(FindingKind.TRAP, entry, 1, 32, [], memory=Memory()).thread == (0, 0, 0)


def test_assertion() -> None:
    source = """
    extern "C" __global__ void k(int n) {
        assert(threadIdx.x < n);  // claim
    }
    """
    finding = fault_of(FindingKind.ASSERTION, compile_cuda(source).entries["k"], 1, 64, [40], memory=Memory())
    check_place(finding, "// claim", source)
    assert f"the assertion `threadIdx.x < n` at kernel.cu:{line_of(source, '// claim')} failed" in str(finding)


# ------------------------------------------------------------------------------------------------------------- hanging


def test_deadlock_tells_who_waits_for_what() -> None:
    source = """
    extern "C" __global__ void k(int* x) {
        __shared__ __align__(8) unsigned long long pad, ring[2];
        unsigned at = __cvta_generic_to_shared(&ring[1]);
        if (threadIdx.x == 0) { pad = 0; asm volatile("mbarrier.init.shared.b64 [%0], 2;" :: "r"(at) : "memory"); }
        __syncthreads();
        if (threadIdx.x < 64) {
            if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at) : "memory");
            asm volatile("{ .reg .pred P; L: mbarrier.try_wait.parity.shared.b64 P, [%0], 0; @!P bra L; }"  // never
                :: "r"(at) : "memory");
        } else {
            asm volatile("bar.sync 3, 96;" ::: "memory");  // alone
        }
        x[threadIdx.x] = pad;
    }
    """
    memory = Memory()
    x = memory.allocate(4 * 128, "x")
    finding = fault_of(FindingKind.DEADLOCK, compile_cuda(source).entries["k"], 1, 128, [x], memory=memory)
    text = str(finding)
    never, alone = line_of(source, "// never"), line_of(source, "// alone")
    assert f"block (0, 0, 0): warps 0-1 wait at kernel.cu:{never} for mbarrier `ring[1]`" in text
    assert "1 arrival pending" in text
    assert f"warps 2-3 wait at kernel.cu:{alone} for barrier 3: 64 of 96 threads have arrived" in text
    assert finding.block is None


def test_deadlock_of_warps_that_skip_a_barrier() -> None:
    source = """
    extern "C" __global__ void k(int* x) {
        if (threadIdx.x < 64) __syncthreads();                  // barrier
        else asm volatile("bar.sync 1, 128;" ::: "memory");     // other
        x[threadIdx.x] = 1;
    }
    """
    memory = Memory()
    x = memory.allocate(4 * 128, "x")
    finding = fault_of(FindingKind.DEADLOCK, compile_cuda(source).entries["k"], 3, 128, [x], memory=memory)
    assert f"warps 0-1 wait at kernel.cu:{line_of(source, '// barrier')} for barrier 0" in str(finding)
    assert f"warps 2-3 wait at kernel.cu:{line_of(source, '// other')} for barrier 1" in str(finding)


def test_divergent_barrier() -> None:
    source = """
    extern "C" __global__ void k(int* x) {
        if (threadIdx.x % 32 < 7) { __syncthreads(); x[threadIdx.x] = 1; }  // some
        else { x[threadIdx.x] = 2; __syncthreads(); }                       // others
    }
    """
    memory = Memory()
    x = memory.allocate(4 * 64, "x")
    finding = fault_of(FindingKind.DIVERGENT_COLLECTIVE, compile_cuda(source).entries["k"], 1, 64, [x], memory=memory)
    assert {finding.location.line, finding.other.line} == {line_of(source, "// some"), line_of(source, "// others")}
    assert "only the lanes 0-6" in str(finding) or "only the lanes 7-31" in str(finding)


def test_barrier_counts_that_disagree_or_do_not_fit() -> None:
    source = """
    extern "C" __global__ void k(int* x, int a, int b) {
        if (threadIdx.x < 32) asm volatile("bar.sync 1, %0;" :: "r"(a) : "memory");
        else asm volatile("bar.sync 1, %0;" :: "r"(b) : "memory");
        x[threadIdx.x] = 1;
    }
    """
    entry = compile_cuda(source).entries["k"]
    memory = Memory()
    x = memory.allocate(4 * 64, "x")
    assert "disagree" in str(fault_of(FindingKind.BARRIER_MISUSE, entry, 1, 64, [x, 64, 96], memory=memory))
    assert "33 threads" in str(fault_of(FindingKind.BARRIER_MISUSE, entry, 1, 64, [x, 33, 33], memory=memory))


# ----------------------------------------------------------------------------------------------- asynchronous hazards


def product(source: str, define: str, **options: Any) -> KernelFault | None:
    """Launches a product of kernels.py with a planted fault; what it ended with."""
    m, n, k = 64, 64, 320
    rng = np.random.default_rng(1)
    a, b = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (n, k))
    memory = Memory()
    bf16 = ml_dtypes.bfloat16
    left, right, c = (
        memory.upload(a.astype(bf16), "A"),
        memory.upload(b.astype(bf16), "Bt"),
        memory.allocate(4 * m * n, "C"),
    )
    entry = compile_cuda(source, define).entries["gemm"]
    try:
        if source is kernels.WGMMA:
            maps = [
                TensorMap(left, 2, (k, m), (2 * k,), (64, 64), swizzle=128),
                TensorMap(right, 2, (k, n), (2 * k,), (64, 32), swizzle=128),
            ]
            arguments = [*maps, c, m, n, k]
            execute(entry, (2, 1), 160, arguments, memory=memory, shared_bytes=3 * (64 + 32) * 64 * 2, **options)
        else:
            execute(entry, (2, 2), 128, [left, right, c, m, n, k], memory=memory, **options)
    except KernelFault as fault:
        return fault
    return None


@pytest.mark.parametrize("source", [kernels.MMA, kernels.WGMMA])
@pytest.mark.parametrize("seed", range(8))
def test_the_products_without_planted_faults_are_clean(source: str, seed: int) -> None:
    assert product(source, "GOOD", seed=seed) is None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("source", "define", "kinds", "words"),
    [
        (kernels.MMA, "BUG_WAIT", {FindingKind.IN_FLIGHT}, "cp.async.cg"),
        (kernels.WGMMA, "BUG_FULL", {FindingKind.IN_FLIGHT, FindingKind.RACE, FindingKind.UNINITIALISED}, ""),
        (kernels.WGMMA, "BUG_EMPTY", {FindingKind.IN_FLIGHT, FindingKind.MBARRIER_MISUSE}, ""),
        (kernels.WGMMA, "BUG_BYTES", {FindingKind.DEADLOCK}, "`full[0]`"),
        (kernels.WGMMA, "BUG_GROUP", {FindingKind.IN_FLIGHT, FindingKind.ACCUMULATOR_IN_FLIGHT}, ""),
        (kernels.WGMMA, "BUG_INIT", {FindingKind.MBARRIER_MISUSE}, "is not initialised"),
    ],
)
def test_asynchronous_faults(source: str, define: str, kinds: set[FindingKind], words: str, seed: int) -> None:
    fault = product(source, define, seed=seed)
    assert fault is not None, f"{define} went unnoticed"
    assert fault.finding.kind in kinds, str(fault)
    assert words in str(fault)


def test_a_read_in_flight_names_both_lines() -> None:
    fault = product(kernels.MMA, "BUG_WAIT")
    finding = fault.finding
    check_place(finding, "// fragments", kernels.MMA)
    assert finding.other.line == line_of(kernels.MMA, "// copy")
    assert "cp.async.wait_group" in finding.advice


def test_a_deadlock_in_a_pipeline_names_the_barrier_and_the_bytes() -> None:
    fault = product(kernels.WGMMA, "BUG_BYTES")
    waits, data = line_of(kernels.WGMMA, "// wait"), line_of(kernels.WGMMA, "// data")
    room = line_of(kernels.WGMMA, "// room")
    text = str(fault)
    assert f"warps 0-3 wait at kernel.cu:{waits} (from kernel.cu:{data}) for mbarrier `full[0]` phase 0: " in text
    assert "0 arrivals and 16 bytes pending" in text
    assert (
        f"lane 0 of warp 4 waits at kernel.cu:{waits} (from kernel.cu:{room}) for mbarrier `empty[0]` phase 0" in text
    )


def test_planted_faults_of_the_plain_products() -> None:
    memory = Memory()
    m, n, k = 20, 18, 21
    a, b = memory.upload(np.ones((m, k), np.float32), "A"), memory.upload(np.ones((k, n), np.float32), "B")
    c = memory.allocate(4 * m * n, "C", shape=(m, n))
    finding = fault_of(
        FindingKind.OUT_OF_BOUNDS,
        compile_cuda(kernels.NAIVE, "BUG_EDGE").entries["gemm"],
        (2, 2),
        (16, 16),
        [a, b, c, m, n, k],
        memory=memory,
    )
    check_place(finding, "// product", kernels.NAIVE)
    assert finding.array == "B"
    assert f"B[{k * n}] is one past the end" in str(finding)
    finding = fault_of(
        FindingKind.UNINITIALISED,
        compile_cuda(kernels.TILED, "BUG_TAIL").entries["gemm"],
        (2, 2),
        (16, 16),
        [a, b, c, m, n, 5],  # of a tile before it the tail would still hold finite values, and A holds zeros there
        memory=memory,
    )
    check_place(finding, "// result", kernels.TILED)
    assert finding.other.line == line_of(kernels.TILED, "// product")
    assert finding.array == "Bs"


def test_a_constant_array_has_elements_and_not_bytes() -> None:
    source = """
    __constant__ int table[4] = {1, 2, 3, 4};
    extern "C" __global__ void k(int* x) { x[0] = table[x[1]]; }
    """
    (finding,) = launch(source, "k", 1, 1, [np.array([0, 5], np.int32)]).findings
    assert (finding.kind, finding.array, finding.index) == (FindingKind.OUT_OF_BOUNDS, "table", 5)
    assert "table (4 elements of 4 bytes)" in finding.message
