"""Whatever is given to the emulator, it answers with a result or one exception of its own: no crash, no hang.

`WORKBENCH_FUZZ=20000` draws as many cases of each property as that; the usual number takes seconds.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import sample_kernels as kernels
from emulation import module, ptx_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.emulator import (
    ArgumentError,
    CompileError,
    KernelFault,
    LaunchError,
    Memory,
    Output,
    Program,
    PtxSyntaxError,
    TensorMap,
    TensorMapOf,
    UnsupportedInstruction,
    execute,
    launch,
)

OWN = (PtxSyntaxError, UnsupportedInstruction, ArgumentError, LaunchError, KernelFault)

fuzzed = settings(
    max_examples=int(os.environ.get("WORKBENCH_FUZZ", "150")),
    deadline=20_000,
    derandomize="WORKBENCH_FUZZ" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)

MIXED = """
extern "C" __device__ __noinline__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
__device__ int table[4] = {1, 2, 3, 4};
__device__ int* pointer = table + 1;
__constant__ float weights[3] = {0.5f, 1.5f, 2.5f};
__device__ __noinline__ int more(int a, int b) { return a * b + clock(); }
extern "C" __global__ void mixed(float* x, int n) {
    extern __shared__ int dynamic[];
    __shared__ double fixed[64];
    int local[8];
    for (int i = 0; i < 8; ++i) local[i] = more(i, n);
    if (n <= 0) __assertfail("n > 0", "mixed.cu", 7, "mixed", 1);
    switch (n & 7) {
        case 0: x[0] = 1; break;
        case 1: x[1] = sinf(x[0]); break;
        case 2: x[2] = __shfl_xor_sync(~0u, x[1], 4); break;
        case 3: atomicAdd(x, weights[n % 3]); break;
        case 4: x[4] = __ballot_sync(~0u, x[1] > 0); break;
        case 5: __threadfence(); x[5] = *pointer; break;
        case 6: x[6] = local[n & 7]; break;
        default: x[7] = __popc(n) + (double)fixed[threadIdx.x & 63];
    }
    dynamic[threadIdx.x] = table[n & 3];
    fixed[threadIdx.x & 63] = 1.0 / dynamic[threadIdx.x];
    __syncthreads();
    float4 v = ((float4*)x)[threadIdx.x & 3];
    if (v.x > 100) __trap();
    ((float4*)x)[threadIdx.x & 3] = make_float4(v.y, v.z, v.w, __uint_as_float(local[n & 3]));
}
"""

CALLS = """
extern "C" __device__ int printf(const char*, ...);
typedef int (*Step)(int, int*);
__device__ __noinline__ int depth(int n, int* kept) {
    int own[3] = {n, n + 1, n * 2};
    if (n <= 0) return kept[0];
    return depth(n - 1, own) + depth(n - 3, kept) * own[n % 3];
}
__device__ int twice(int n, int* kept) { return 2 * n + *kept; }
__device__ Step steps[2] = {depth, twice};
extern "C" __global__ void calls(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = steps[i & 1](n % 7, &n);
    if (i == 5) printf("%d %s %f %*d%c", n, "text", x[i], 5, n, 10);
}
"""

HAND_WRITTEN = module(
    """
    ld.param.u64 %p0, [x]; cvta.to.global.u64 %p0, %p0;
    mov.u32 %r0, %tid.x; mov.u64 %p1, %clock64; mov.b64 {%r1, %r2}, %p1; mov.b64 %p2, {%r1, %r2};
    createpolicy.fractional.L2::evict_last.b64 %p3, 1.0;
    ld.global.L2::cache_hint.v2.b32 {%r3, %r4}, [%p0+8], %p3;
    setp.lt.and.s32 %q0|%q1, %r0, 16, %q1; @!%q0 bra DONE;
    membar.gl; fence.acq_rel.gpu; bar.warp.sync 0xffff; selp.b32 %r1, 0x1F, 0b11, %q0; mov.f32 %f0, 0f3F800000;
    { .reg .b32 %r<2>; .reg .pred %q<1>; mov.u32 %r1, 7; mad.lo.s32 %r1, %r1, -5, 017; st.shared.u32 [buffer+4], %r1; }
    fma.rn.f32 %f1, %f0, 0f40000000, %f0; cvt.rzi.s32.f32 %r3, %f1; lop3.b32 %r4, %r1, %r2, %r3, 0x96;
    atom.global.add.u32 %r4, [%p0+0], 1; st.global.v4.f32 [%p0+16], {%f0, %f1, %f0, 1.5};
    brx.idx %r0, LIST; LIST: .branchtargets ONE, DONE;
    ONE: shfl.sync.down.b32 %r1|%q0, %r0, 1, 31, -1; vote.sync.any.pred %q0, !%q1, 0xffffffff;
    cp.async.ca.shared.global [buffer], [%p0], 16; cp.async.commit_group; cp.async.wait_group 0;
    DONE: bar.sync 0; ret;
    """,
    ".param .u64 .ptr .align 8 x, .param .align 4 .b8 s[12]",
    ".reg .b32 %r<8>; .reg .b64 %p<8>; .reg .f32 %f<4>; .reg .pred %q<3>; .shared .align 16 .b8 buffer[64];",
    before=".global .align 4 .u32 g[3] = {1, 2, 3}; .global .u64 h = generic(g)+4; .const .f32 c = 0f3F800000;",
    directives=".maxntid 128, 1, 1",
)

TOKEN = re.compile(r"\s+|[\w$%]+|.", re.DOTALL)
WORDS = [*'{}()[]<>,;:.!|@+-*/"=_%\0', "-1", "0", "99999999999999999999999", "0x", "1e999", "0f7F80000", "é", "\n"]
WORDS += [".b8", ".reg", ".shared", "%r1", "%p1", "%tid.x", "%clock64", "WARP_SZ", "ret", "{{{{", "!!!!", "-2147483649"]
WORDS += [".align 0 ", ".align 3 ", "[1000000000000]", "<99999999999>", ".v4", ".local .b8 z[1000000000];", ".entry"]


@cache
def corpus() -> tuple[str, ...]:
    """PTX of all styles, without the sections for debuggers, which would take most of the mutations."""
    cuda = (MIXED, kernels.TILED, kernels.MMA, kernels.WGMMA, CALLS)
    return (HAND_WRITTEN, *(ptx_of(source).partition("\t.section")[0] for source in cuda))


def mutate(text: str, edits: list[tuple[str, int, int]]) -> str:
    """The text after each edit (kind, place, what)."""
    for kind, place, what in edits:
        if not text:
            return text
        if kind == "truncate":
            text = text[: place % len(text)]
        elif kind == "flip":
            raw = bytearray(text.encode("utf-8", "replace"))
            raw[place % len(raw)] ^= 1 << what % 8
            text = raw.decode("utf-8", "replace")
        elif kind == "byte":
            text = text[: place % len(text)] + chr(what % 256) + text[place % len(text) + 1 :]
        else:
            parts = text.splitlines(keepends=True) if kind.endswith("line") else TOKEN.findall(text)
            here, there = place % len(parts), what % len(parts)
            verb = kind.partition(" ")[0]
            if verb == "swap":
                parts[here], parts[there] = parts[there], parts[here]
            elif verb == "drop":
                del parts[here]
            elif verb == "repeat":
                parts.insert(here, parts[here])
            elif verb == "copy":
                parts[here] = parts[there]
            else:
                parts.insert(here, WORDS[what % len(WORDS)])
                if verb == "replace":
                    del parts[here + 1]
            text = "".join(parts)
    return text


KINDS = ["truncate", "flip", "byte", "insert token", "replace token"]
KINDS += [f"{verb} {unit}" for verb in ("swap", "drop", "repeat", "copy") for unit in ("line", "token")]
NUMBERS = st.integers(0, 2**32)
EDITS = st.lists(st.tuples(st.sampled_from(KINDS), NUMBERS, NUMBERS), min_size=1, max_size=5)


def run_all(text: str, seed: int) -> None:
    """Decodes the text and runs every entry with arguments that fit its parameters."""
    for entry in Program.from_ptx(text, "k.cu").entries.values():
        memory = Memory()
        arguments: list[Any] = []
        for parameter in entry.parameters:
            if parameter.size == 8:
                arguments.append(memory.upload(np.zeros(4096, np.float32), parameter.name))
            elif parameter.size == 128:
                tile = memory.upload(np.zeros((64, 64), np.uint16), parameter.name)
                arguments.append(
                    TensorMap(tile, 2, (64, 64), (128,), (64, 32 if parameter.offset else 64), swizzle=128)
                )
            else:
                arguments.append(16 if parameter.type in ("u32", "s32", "b32") else bytes(parameter.size))
        block = (16, 16) if entry.max_threads == 256 else entry.max_threads or 64
        execute(entry, 2, block, arguments, memory=memory, shared_bytes=40_000, seed=seed, max_warp_instructions=5_000)


@pytest.mark.long
@fuzzed
@given(st.integers(0, 5), EDITS, st.integers(0, 2**64 - 1))
def test_a_damaged_module_runs_or_is_refused(which: int, edits: list[tuple[str, int, int]], seed: int) -> None:
    try:
        run_all(mutate(corpus()[which], edits), seed)
    except OWN as error:
        assert str(error).strip()


@pytest.mark.parametrize("which", range(6))
def test_the_modules_are_right_before_they_are_damaged(which: int) -> None:
    try:
        run_all(corpus()[which], 0)
    except KernelFault as fault:
        assert which < 2, fault


@pytest.mark.long
@fuzzed
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_refused_as_ptx(text: str) -> None:
    for candidate in (text, f".version 8.0\n.target sm_90\n{text}", module(text)):
        try:
            Program.from_ptx(candidate)
        except OWN as error:
            assert str(error).strip()


@fuzzed
@given(st.binary(max_size=400), st.integers(0, 64))
def test_a_damaged_cubin_is_refused(tmp_path_factory: pytest.TempPathFactory, tail: bytes, kept: int) -> None:
    header = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7) + b"\x02\0\xbe\0\x01\0\0\0" + bytes(40)
    file = tmp_path_factory.getbasetemp() / "kernel.cubin"
    file.write_bytes(header[: max(kept, 4)] + tail)
    with pytest.raises(CompileError, match="cubin"):
        launch(file, "k", 1, 1, [])


@cache
def scale() -> Program:
    body = """
    .reg .b64 %p; .reg .b32 %i; .reg .f32 %f;
    ld.param.u64 %p, [x]; ld.param.u32 %i, [n]; ld.param.f32 %f, [f]; st.global.f32 [%p], %f; ret;
    """
    return Program.from_ptx(module(body, ".param .u64 x, .param .u32 n, .param .f32 f, .param .align 4 .b8 s[12]"))


INTEGERS = st.integers() | st.sampled_from([0, 1, -1, 2**31, 2**32, 2**40, 2**63, 2**64, 2**65, 300 * 1024])
THINGS = st.one_of(
    INTEGERS,
    st.floats(),
    st.none(),
    st.text(max_size=3),
    st.binary(max_size=16),
    st.booleans(),
    st.complex_numbers(),
    st.sampled_from(
        [np.float64("nan"), np.int8(-1), np.uint64(2**64 - 1), np.longdouble(1), np.str_("x"), object, [1]]
    ),
    st.builds(np.zeros, st.integers(0, 4), st.sampled_from(["f4", "i8", "O", "S0", "S3", "c16", "M8[s]", "U2", "?"])),
    st.builds(lambda n: Output(np.zeros(n, np.float32)), st.integers(0, 4)),
    st.builds(
        TensorMapOf,
        st.builds(np.zeros, st.sampled_from([(), (0,), (16,), (8, 16), (2, 2, 2, 2, 2, 2)])) | st.text(max_size=3),
        st.lists(INTEGERS, max_size=3),
        INTEGERS,
        st.none() | st.lists(INTEGERS, max_size=3),
        st.none() | st.lists(INTEGERS, max_size=3),
        st.booleans(),
    ),
    st.just(np.void(bytes(12))),
)
RIGHT = [np.zeros(1, np.float32), 1, 1.0, bytes(12)]


@fuzzed
@given(st.lists(st.tuples(st.integers(0, 5), THINGS), max_size=4), st.booleans())
def test_wrong_arguments_are_refused(edits: list[tuple[int, Any]], named: bool) -> None:
    arguments = list(RIGHT)
    for place, thing in edits:
        arguments[place : place + 1] = [thing]
    given_ = {str(number): value for number, value in enumerate(arguments)} if named else arguments
    try:
        assert launch(scale(), "k", 1, 1, given_).statistics.warp_instructions > 0
    except OWN as error:
        assert str(error).strip()


SIZES = st.sampled_from([0, 1, 2, 3, 31, 33, 1024, 1025, 65536, 2**31 - 1, 2**31, 2**40, 2**64, 2**70])
DIMENSIONS = (
    SIZES
    | SIZES.map(lambda n: -n)
    | st.lists(SIZES, max_size=4).map(tuple)
    | st.sampled_from([None, 1.5, "8", (1.0, 2.0), (None,), {}, np.int64(4), np.array([2, 2]), True])
)
ONE = st.just(1)


@fuzzed
@given(
    ONE | DIMENSIONS,
    ONE | DIMENSIONS,
    ONE | DIMENSIONS,
    st.just(0) | INTEGERS | st.sampled_from([None, 1.5, "8"]),
    st.just(0) | INTEGERS | st.sampled_from([None, 1.5, "8"]),
    st.just(1000) | INTEGERS | st.sampled_from([1.5, "8"]),
    st.sampled_from(["k", "k", "k", "kk", "", None, "k<int>", "\0"]),
)
def test_absurd_launches_are_refused(
    grid: Any, block: Any, cluster: Any, shared: Any, seed: Any, budget: Any, name: Any
) -> None:
    options = {"cluster": cluster, "shared": shared, "seed": seed, "max_warp_instructions": budget}
    try:
        launch(scale(), name, grid, block, RIGHT, **options)
    except OWN as error:
        assert str(error).strip()


@pytest.mark.parametrize(
    "text",
    [
        ".entry k() { .local .b8 x[400000000]; ret; }",
        ".global .b8 x[4000000000]; .entry k() { ret; }",
        ".global .u32 x[1] = {1, 2, 3}; .entry k() { ret; }",
        ".global .u64 x = generic(nowhere); .entry k() { ret; }",
        ".entry k() { .reg .b64 %p; mov.u64 %p, %lanemask_gt; ret; }",
        ".entry k() { .reg .b32 %r; add.u32 %r, " + "!" * 5000 + "%r; ret; }",
        ".entry k() .maxntid " + "1" * 5000 + " { ret; }",
        "".join(f".func f{i}() {{ call f{i - 1}; ret; }}\n" for i in range(1, 600))
        + ".func f0() { ret; } .entry k() { call f599; ret; }",
    ],
    ids=range(8),
)
def test_a_module_that_asks_for_too_much_is_refused(text: str) -> None:
    with pytest.raises((PtxSyntaxError, UnsupportedInstruction, LaunchError)):
        launch(f".version 8.0\n.target sm_90\n{text}", "k", 1, 1, [])
