"""What CUDA C++ brings along: printf, special registers, 128-bit values, cooperative groups and the headers of CCCL."""

from __future__ import annotations

import signal
import threading
import time
from functools import cache
from typing import Any

import numpy as np
import pytest
from cuda.pathfinder import find_nvidia_header_directory
from emulation import apply, line_of, module
from hypothesis import given
from hypothesis import strategies as st

from workbench.emulator import (
    CompileError,
    FindingKind,
    KernelFault,
    LaunchError,
    Memory,
    Program,
    UnsupportedInstruction,
    launch,
    load,
)
from workbench.emulator.printing import printed_text
from workbench.emulator.source import _assembler

RNG = np.random.default_rng(7)


def has_cccl() -> bool:
    try:
        return bool(find_nvidia_header_directory("cccl"))
    except Exception:
        return False


@cache
def loaded(source: str) -> Program:
    return load(source)


needs_cccl = pytest.mark.skipif(not has_cccl(), reason="the headers of nvidia-cuda-cccl are not installed")


# ---------------------------------------------------------------------------------------------------------- printing


def test_printf_is_formatted_in_the_order_of_execution() -> None:
    source = r"""
    __device__ const char* names[2] = {"even", "odd"};
    extern "C" __global__ void k(double* x, int n) {
        int i = threadIdx.x;
        if (i < n) {
            x[i] = printf(
                "%d %s|%5.2f|%-4u|%#x|%c|%lld|%*d|%%\n", i, names[i & 1], x[i], 7u, 255, 'a' + i, -1ll << 40, 5, i);
        }
        printf("end\n");
    }
    """
    x = np.array([0.5, -1.25, 3.0])
    report = launch(source, "k", 1, 3, [x, 2])
    assert report.ok
    line = "{} {}|{}|7   |0xff|{}|-1099511627776|    {}|%\n"
    expected = line.format(0, "even", " 0.50", "a", 0) + line.format(1, "odd", "-1.25", "b", 1) + "end\n" * 3
    assert report.output == expected
    assert x.tolist() == [8, 8, 3]


def test_what_was_printed_before_a_hazard_is_kept() -> None:
    source = 'extern "C" __global__ void k(int* x) { printf("at %p\\n", (void*)0x10); x[7] = 1; }'
    report = launch(source, "k", 1, 1, [np.zeros(1, np.int32)])
    assert not report.ok and report.output == "at 0x10\n"


@given(st.text(st.sampled_from("%*.-+ #0123456789hlzLdiouxXeEfgGaAcspnq\0é"), max_size=20), st.binary(max_size=40))
def test_any_format_gives_text(format_: str, arguments: bytes) -> None:
    memory = Memory()
    where = memory.upload(np.frombuffer(format_.encode() + b"\0", np.uint8))
    assert isinstance(printed_text([(where.address, arguments), (0, b"")], 0, memory), str)


def test_formats_are_those_of_c() -> None:
    def text(format_: str, *values: Any) -> str:
        memory = Memory()
        where = memory.upload(np.frombuffer(format_.encode() + b"\0", np.uint8))
        raw = b""
        for value in values:
            data = np.asarray(value).tobytes()
            raw = raw.ljust(-(-len(raw) // len(data)) * len(data), b"\0") + data
        return printed_text([(where.address, raw)], 0, memory)

    assert text("%i|%u|%hhd|%hu", np.int32(-1), np.int32(-1), np.int32(255), np.int32(-1)) == "-1|4294967295|-1|65535"
    assert text("%08.3f|%+e|%g", 3.14159, 1.0, 1e-7) == "0003.142|+1.000000e+00|1e-07"
    assert text("%-6d|%06d|% d|%o", *[np.int32(42)] * 4) == "42    |000042| 42|52"
    assert (
        text("%*d|%-*d|%.*f", np.int32(4), np.int32(7), np.int32(3), np.int32(8), np.int32(1), 2.25) == "   7|8  |2.2"
    )
    assert text("%#o|%#o|%#x|%#X", *map(np.int32, (8, 0, 0, 255))) == "010|0|0|0XFF"
    assert text("%+u|% u|%+x|%+d", *[np.int32(7)] * 4) == "7|7|7|+7"
    assert text("%05.3d|%.0d|%.4x|%#06x|%-#6o|%05d", *map(np.int32, (42, 0, 10, 10, 8, -7))) == (
        "  042||000a|0x000a|010   |-0007"
    )
    assert text("%s", np.uint64(0)) == "(null)"
    assert printed_text([], 3, Memory()) == "[3 more calls of printf are not shown]\n"


# ------------------------------------------------------------------------------------------------------------- limits

ENDLESS = """
extern "C" __global__ void k(volatile int* x) {
    int turns = 0;  // what changes: a loop that is again as it was is named at once
    while (x[0] == 0) turns++;  // here
    x[0] = turns;
}
"""


def test_a_launch_that_takes_too_long_is_ended_where_it_is() -> None:
    started = time.monotonic()
    (finding,) = launch(
        ENDLESS, "k", 2, 64, [np.zeros(1, np.int32)], max_seconds=0.2, max_warp_instructions=10**12
    ).findings
    assert time.monotonic() - started < 10
    assert finding.kind is FindingKind.LIVELOCK and "0.2 seconds" in finding.message
    assert finding.location is not None and finding.location.line == line_of(ENDLESS, "// here")


def test_the_limit_in_seconds_is_a_positive_number() -> None:
    for wrong in (0, -1, float("nan"), float("inf"), "8", [1]):
        with pytest.raises(LaunchError, match="seconds"):
            launch(ENDLESS, "k", 1, 1, [np.zeros(1, np.int32)], max_seconds=wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_launch() -> None:
    program = load(ENDLESS)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch(program, "k", 1, 32, [np.zeros(1, np.int32)], max_seconds=20, max_warp_instructions=10**12)
    assert time.monotonic() - started < 10


# -------------------------------------------------------------------------------------------------------- instructions


def test_relu_may_stand_behind_the_type_as_in_the_headers() -> None:
    a, b = (RNG.integers(0, 2**32, 200, dtype=np.uint32) for _ in range(2))
    for name, pick in (("min", np.minimum), ("max", np.maximum)):
        for kind, dtype in (("s32", np.int32), ("s16x2", np.int16)):
            found = apply(f"{name}.{kind}.relu %x, %a, %b;", [("b32", a), ("b32", b)], "b32")
            assert np.array_equal(found.view(dtype), pick(a.view(dtype), b.view(dtype)).clip(0))


def test_integers_of_128_bits_are_divided() -> None:
    """NVRTC divides by 64-bit steps that add with the carry of a subtraction."""
    source = """
    extern "C" __global__ void k(const long long* a, const long long* b, long long* q, long long* r) {
        int i = threadIdx.x;
        __int128 wide = (__int128)a[2 * i] << 64 | (unsigned long long)a[2 * i + 1];
        q[i] = wide / b[i];
        r[i] = wide % b[i];
    }
    """
    numbers = [int(x) for x in RNG.integers(-(2**63), 2**63, 256)]
    wide = [
        (high << 64 | abs(low)) >> 7 * i % 100 for i, (high, low) in enumerate(zip(numbers, numbers[::-1], strict=True))
    ]
    by = [x >> 5 * i % 60 or 1 for i, x in enumerate(numbers)]
    halves = np.array([[x >> 64, signed_64(x)] for x in wide], np.int64)
    q, r = np.zeros(256, np.int64), np.zeros(256, np.int64)
    assert launch(source, "k", 1, 256, [halves.reshape(-1), np.array(by, np.int64), q, r]).ok
    for x, y, quotient, rest in zip(wide, by, q.tolist(), r.tolist(), strict=True):
        whole = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert (quotient, rest) == (signed_64(whole), x - whole * y)


def signed_64(x: int) -> int:
    return (x + 2**63) % 2**64 - 2**63


def test_vectors_are_reduced_in_global_memory() -> None:
    source = r"""
    extern "C" __global__ void k(unsigned* pairs, float* x, const unsigned* with) {
        unsigned a = with[threadIdx.x], b = with[threadIdx.x + 32];
        asm volatile("red.global.add.noftz.v2.f16x2 [%0], {%1, %2};" :: "l"(pairs), "r"(a), "r"(b));
        asm volatile("red.global.v2.f16x2.max.noftz [%0], {%1, %2};" :: "l"(pairs + 2), "r"(a), "r"(b));
        asm volatile("red.global.v2.f32.add [%0], {%1, %1};" :: "l"(x), "f"(1.0f));
    }
    """
    given_ = RNG.integers(-8, 8, (2, 32, 2)).astype(np.float16)
    pairs, x = np.zeros(4, np.uint32), np.zeros(2, np.float32)
    assert launch(source, "k", 1, 32, [pairs, x, given_.view(np.uint32).reshape(-1)]).ok
    generic = source.replace("red.global", "red")
    again, sums = np.zeros_like(pairs), np.zeros_like(x)
    assert launch(generic, "k", 1, 32, [again, sums, given_.view(np.uint32).reshape(-1)]).ok
    assert np.array_equal(again, pairs) and np.array_equal(sums, x)
    halves = pairs.view(np.float16).reshape(2, 2, 2)
    assert np.array_equal(halves[0], given_.sum(axis=1)) and np.array_equal(halves[1], given_.max(axis=1).clip(0))
    assert x.tolist() == [32, 32]


@pytest.mark.parametrize("name", ["%envreg3", "%pm0", "%reserved_smem_offset_7"])
def test_a_special_register_that_is_not_known_is_refused_before_anything_runs(name: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=f"special register {name}"):
        load(module(f"mov.u32 %r, {name}; ret;", "", ".reg .b32 %r;"))


# ------------------------------------------------------------------------------------------------------- the assembler

NOT_FOR_HOPPER = "cvt.rna.relu.tf32.f32"  # which the emulator carries out, and ptxas refuses


def test_what_ptxas_refuses_is_refused() -> None:
    source = """extern "C" __global__ void k(int* x) { asm volatile(FORM " %0, 0f3F800000;" : "=r"(x[0])); }"""
    with pytest.raises(CompileError, match=r"relu"):
        load(source, defines={"FORM": f'"{NOT_FOR_HOPPER}"'})
    text = module(f"{NOT_FOR_HOPPER} %r, 0f3F800000; ret;", "", ".reg .b32 %r;")
    if _assembler() is None:
        pytest.skip("ptxas is not installed")
    for _ in range(2):
        with pytest.raises(CompileError, match=r"kernel\.ptx:\d+: ptxas refuses it: .*relu"):
            load(text)
    load(text.replace(".relu", ""))


# --------------------------------------------------------------------------------------------------------- the headers

GROUPS = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
"""

TILES = (
    GROUPS
    + r"""
extern "C" __global__ void k(const int* x, int* sums, int* scans, int* odd, int* wide) {
    __shared__ cg::block_tile_memory<128> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<8>(block);
    int i = block.thread_rank();
    sums[i] = cg::reduce(tile, x[i], cg::plus<int>());
    scans[i] = cg::exclusive_scan(tile, x[i], cg::plus<int>());
    odd[i] = -1;
    if (x[i] & 1) {
        auto active = cg::coalesced_threads();
        odd[i] = active.shfl(i, 0) * 100 + active.size();
    }
    auto labelled = cg::labeled_partition(cg::tiled_partition<32>(block), x[i] % 3);
    odd[i] += 10000 * cg::reduce(labelled, 1, cg::plus<int>());
    auto half = cg::tiled_partition<64>(block);
    wide[i] = cg::reduce(half, x[i], cg::greater<int>());
    half.sync();
    block.sync();
}
"""
)


@needs_cccl
@pytest.mark.parametrize("seed", range(3))
def test_tiles_and_coalesced_threads(seed: int) -> None:
    x = RNG.integers(0, 1000, 128).astype(np.int32)
    sums, scans, odd, wide = (np.zeros(128, np.int32) for _ in range(4))
    report = launch(loaded(TILES), "k", 1, 128, [x, sums, scans, odd, wide], seed=seed)
    assert report.ok, str(report)
    tiles = x.reshape(16, 8)
    assert np.array_equal(sums.reshape(16, 8), np.repeat(tiles.sum(axis=1)[:, None], 8, axis=1))
    assert np.array_equal(scans.reshape(16, 8), np.cumsum(tiles, axis=1) - tiles)
    for i in range(128):
        warp = range(i // 32 * 32, i // 32 * 32 + 32)
        odds = [j for j in warp if x[j] & 1]
        expected = odds[0] * 100 + len(odds) if x[i] & 1 else -1
        assert odd[i] == expected + 10000 * sum(x[j] % 3 == x[i] % 3 for j in warp)
    assert np.array_equal(wide.reshape(2, 64), np.repeat(x.reshape(2, 64).max(axis=1)[:, None], 64, axis=1))


GRID = r"""
#include <cooperative_groups.h>
extern "C" __global__ void k(const int* x, int* partial, int* out, bool waits) {
    auto grid = cooperative_groups::this_grid();
    partial[grid.thread_rank()] = x[grid.thread_rank()] + 1;
    if (waits) grid.sync();
    out[grid.thread_rank()] = partial[grid.num_threads() - 1 - grid.thread_rank()];
}
"""


@needs_cccl
def test_a_barrier_of_the_whole_grid() -> None:
    program = loaded(GRID)
    x, partial, out = np.arange(6 * 64, dtype=np.int32), np.zeros(6 * 64, np.int32), np.zeros(6 * 64, np.int32)
    for seed in range(3):
        report = launch(program, "k", 6, 64, [x, partial, out, 1], seed=seed)
        assert report.ok, str(report)
        assert np.array_equal(out, (x + 1)[::-1])
        (finding,) = launch(program, "k", 6, 64, [x, partial, out, 0], seed=seed).findings
        assert finding.kind is FindingKind.RACE and finding.array == "a1"
    with pytest.raises(LaunchError, match=r"whole grid.* holds 264 .*not 265"):
        launch(program, "k", 265, 1024, [np.zeros(1, np.int32)] * 3 + [1])


CLUSTER = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* y) {
    __shared__ float own[32];
    auto cluster = cg::this_cluster();
    int i = blockIdx.x * 32 + threadIdx.x;
    own[threadIdx.x] = x[i];
    cluster.sync();
    y[i] = cluster.map_shared_rank(own, cluster.block_rank() ^ 1)[threadIdx.x] * cluster.num_blocks();
    cluster.sync();
}
"""

BARRIER = r"""
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/atomic>
extern "C" __global__ void k(const float* x, float* y) {
    __shared__ alignas(16) float tile[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int count;
    auto block = cooperative_groups::this_thread_block();
    if (threadIdx.x == 0) init(&barrier, blockDim.x), count = 0;
    block.sync();
    cuda::memcpy_async(block, tile, x, cuda::aligned_size_t<16>(sizeof(tile)), barrier);
    barrier.arrive_and_wait();
    cuda::atomic_ref<int, cuda::thread_scope_block>(count).fetch_add(1, cuda::memory_order_relaxed);
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
    y[threadIdx.x] = 2 * tile[threadIdx.x ^ 32] + count - 64;
}
"""

PIPELINE = r"""
#include <cooperative_groups.h>
#include <cuda/pipeline>
extern "C" __global__ void k(const float* x, float* y) {
    __shared__ float tile[2][16];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int i = 0; i < 5; ++i) {
        if (i < 4) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[i & 1], x + 16 * i, sizeof(tile[0]), pipe);
            pipe.producer_commit();
        }
        if (i == 0) continue;
        pipe.consumer_wait();
        if (threadIdx.x < 16) {
            int j = 16 * (i - 1) + threadIdx.x;
            y[(j + 32) % 64] = 2 * tile[i - 1 & 1][threadIdx.x];
        }
        pipe.consumer_release();
    }
}
"""

HALVES = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
extern "C" __global__ void k(const float* x, float* y) {
    int i = threadIdx.x;
    __half2 h = __floats2half2_rn(x[i ^ 32], 1.0f);
    __nv_bfloat16 b = __float2bfloat16(x[i ^ 32]);
    __nv_fp8_e4m3 f(x[i ^ 32]);
    h = __hmax2_nan(__hadd2(h, h), h);
    y[i] = (__low2float(h) + 2 * __bfloat162float(b) + 2 * float(f)) / 3 + float(__hequ(h.x, h.x)) - 1;
}
"""


STANDARD = r"""
#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <float.h>
#include <functional>
#include <limits.h>
#include <limits>
#include <numeric>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void k(const float* x, float* y) {
    uint32_t i = threadIdx.x;
    static_assert(std::is_same_v<std::uint32_t, uint32_t> && sizeof(std::size_t) == sizeof(int64_t));
    assert(i < INT_MAX);
    float copy;
    std::memcpy(&copy, x + (i ^ 32), sizeof copy);
    y[i] = std::max(copy, std::numeric_limits<float>::lowest()) * float(M_PI / M_PI_2);
}
"""

HEADERS = {"cluster": CLUSTER, "barrier": BARRIER, "pipeline": PIPELINE, "halves": HALVES, "standard": STANDARD}


@needs_cccl
@pytest.mark.parametrize("which", HEADERS)
def test_the_headers_of_cuda_compile_and_run(which: str) -> None:
    program = loaded(HEADERS[which])
    x, y = (np.arange(64) % 16).astype(np.float32), np.zeros(64, np.float32)
    blocks = 2 if which == "cluster" else 1
    for seed in range(2):
        try:
            report = launch(program, "k", blocks, 64 // blocks, [x, y], seed=seed, raise_on_hazard=True)
        except KernelFault as fault:
            raise AssertionError(str(fault)) from None
        assert report.ok
        assert np.array_equal(y, 2 * np.roll(x, 32))


@needs_cccl
def test_work_that_a_library_started_is_named_at_the_call_of_it() -> None:
    source = PIPELINE.replace("        pipe.consumer_wait();\n", "")
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    finding = launch(source, "k", 1, 64, [x, y]).findings[0]
    assert finding.kind is FindingKind.IN_FLIGHT
    assert f" at kernel.cu:{line_of(source, 'cuda::memcpy_async')} may not be done" in finding.message
