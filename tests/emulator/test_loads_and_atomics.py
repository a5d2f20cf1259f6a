"""Loads, stores and atomics in several spaces at once; ``memory_forms.py`` has each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Array, apply, compile_cuda, line_of, module

from workbench.emulator import FindingKind, Memory, Program, execute, launch, load

RNG = np.random.default_rng(5)


def random_bytes(count: int) -> Array:
    return RNG.integers(0, 256, count).astype(np.uint8)


@pytest.mark.parametrize(
    ("type_name", "dtype"),
    [
        ("u8", "u1"),
        ("s8", "i1"),
        ("b8", "u1"),
        ("u16", "u2"),
        ("s16", "i2"),
        ("b16", "u2"),
        ("u32", "u4"),
        ("s32", "i4"),
    ],
)
@pytest.mark.parametrize("register", ["b32", "b64"])
def test_narrow_loads_extend_to_the_register(type_name: str, dtype: str, register: str) -> None:
    text = module(
        f"""
        ld.param.u64 %a, [a]; ld.param.u64 %x, [x]; mov.u32 %i, %tid.x;
        mul.wide.u32 %o, %i, {np.dtype(dtype).itemsize}; add.u64 %a, %a, %o;
        mul.wide.u32 %o, %i, {8 if register == "b64" else 4}; add.u64 %x, %x, %o;
        ld.global.{type_name} %v, [%a];
        st.global.{register} [%x], %v;
        ret;
        """,
        ".param .u64 a, .param .u64 x",
        f".reg .b64 %a; .reg .b64 %x; .reg .b64 %o; .reg .b32 %i; .reg .{register} %v;",
    )
    array = random_bytes(64 * np.dtype(dtype).itemsize).view(dtype)
    wide = f"{dtype[0]}{8 if register == 'b64' else 4}"
    memory = Memory()
    a, x = memory.upload(array, "a"), memory.allocate(64 * np.dtype(wide).itemsize, "x")
    execute(Program.from_ptx(text).entries["k"], 1, 64, [a, x], memory=memory)
    assert np.array_equal(memory.read(x, wide), array.astype(wide))


def test_a_narrow_store_takes_the_low_bits() -> None:
    array = RNG.integers(0, 2**63, 64).astype(np.uint64)
    for body in (
        "st.local.u32 [place], %a; ld.local.u32 %x, [place];",
        "{ .reg .b32 low; cvt.u32.u64 low, %a; st.local.u32 [place], low; ld.local.u32 %x, [place]; }",
    ):
        found = apply(body, [("u64", array)], "u32", registers=".local .align 8 .b8 place[8];")
        assert np.array_equal(found, array.astype(np.uint32))
    body = "st.local.u8 [place+3], %a; ld.local.s8 %x, [place+3];"
    found = apply(body, [("u64", array)], "s32", registers=".local .align 8 .b8 place[8];")
    assert np.array_equal(found, array.astype(np.int8))


@pytest.mark.parametrize("space", ["global", "shared", "local", ""])
@pytest.mark.parametrize(
    ("vector", "width"), [("v2", 8), ("v2", 16), ("v4", 16), ("v2", 32), ("v4", 32), ("v2", 64), ("v4", 8)]
)
def test_vectors(space: str, vector: str, width: int) -> None:
    """Every thread moves one vector from a to x, through the space; the elements swap their order on the way."""
    count, threads = int(vector[1]), 48
    size = count * width // 8
    names = [f"%v{n}" for n in range(count)]
    kind = f"b{max(width, 16)}"
    dot = f".{space}" if space else ""
    through = {
        "global": "",
        "": "",
        "shared": f"mul.lo.u32 %s, %i, {size}; mov.u32 %t, tile; add.u32 %s, %s, %t;",
        "local": "mov.u32 %s, place;",
    }[space]
    where = "%x" if space in ("global", "") else "%s"
    text = module(
        f"""
        ld.param.u64 %a, [a]; ld.param.u64 %x, [x]; mov.u32 %i, %tid.x;
        mul.wide.u32 %o, %i, {size}; add.u64 %a, %a, %o; add.u64 %x, %x, %o;
        {through}
        ld.global.{vector}.b{width} {{{", ".join(names)}}}, [%a];
        st{dot}.{vector}.b{width} [{where}], {{{", ".join(reversed(names))}}};
        ld{dot}.{vector}.b{width} {{{", ".join(names)}}}, [{where}];
        st.global.{vector}.b{width} [%x], {{{", ".join(names)}}};
        ret;
        """,
        ".param .u64 a, .param .u64 x",
        f".reg .b64 %a; .reg .b64 %x; .reg .b64 %o; .reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .{kind} %v<4>;"
        f".shared .align 32 .b8 tile[{size * threads}]; .local .align 32 .b8 place[{size}];",
    )
    array = random_bytes(size * threads).view(f"u{width // 8}").reshape(threads, count)
    memory = Memory()
    a, x = memory.upload(array, "a"), memory.allocate(array.nbytes, "x")
    execute(Program.from_ptx(text).entries["k"], 1, threads, [a, x], memory=memory)
    assert np.array_equal(memory.read(x, array.dtype, array.shape), array[:, ::-1])


def test_a_sink_in_a_vector_keeps_its_place() -> None:
    memory = Memory()
    text = module(
        "ld.param.u64 %a, [a]; ld.global.v4.u32 {%v0, _, %v1, _}, [%a]; st.global.v2.u32 [%a], {%v1, %v0}; ret;",
        ".param .u64 a",
        ".reg .b64 %a; .reg .b32 %v<2>;",
    )
    a = memory.upload(np.arange(4, dtype=np.uint32), "a")
    execute(Program.from_ptx(text).entries["k"], 1, 1, [a], memory=memory)
    assert memory.read(a, np.uint32).tolist() == [2, 0, 2, 3]


def test_generic_addresses_reach_every_space() -> None:
    source = """
    __constant__ int table[4] = {10, 20, 30, 40};
    __device__ int counter = 7;
    __device__ __noinline__ int fetch(const int* p) { return *p; }
    extern "C" __global__ void k(int* out, int which, int4 s) {
        __shared__ int shared_value[2];
        int local_value[4] = {100 + which, 200, 300, 400};
        shared_value[threadIdx.x & 1] = 5;
        __syncthreads();
        const int* p = which == 0 ? out : which == 1 ? shared_value : which == 2 ? local_value + (threadIdx.x & 3)
                     : which == 3 ? table + 2 : which == 4 ? &counter : (const int*)&s + 3;
        int space = __isShared(p) ? 1000 : __isGlobal(p) ? 2000 : __isLocal(p) ? 4000
                  : __isConstant(p) ? 3000 : 0;
        out[1 + threadIdx.x] = fetch(p) + space;
    }
    """
    entry = compile_cuda(source).entries["k"]
    expected = {0: [2999] * 4, 1: [1005] * 4, 2: [4102, 4200, 4300, 4400], 3: [3030] * 4, 4: [2007] * 4, 5: [3] * 4}
    for which, answer in expected.items():
        memory = Memory()
        out = memory.upload(np.full(5, 999, np.int32), "out")
        execute(entry, 1, 4, [out, which, np.arange(4, dtype=np.int32).tobytes()], memory=memory)
        found = memory.read(out, np.int32)[1:]
        if which == 5:  # a compiler may copy a parameter
            found = found % 1000
        assert found.tolist() == answer, which


def test_lanes_of_one_generic_access_may_be_in_several_spaces() -> None:
    source = """
    extern "C" __global__ void k(int* out) {
        __shared__ int there[32];
        int own[2] = {700, (int)threadIdx.x}, lane = threadIdx.x;
        there[lane] = 100 + lane;
        __syncthreads();
        int* p = lane % 3 == 0 ? there + lane : lane % 3 == 1 ? out + lane : own + (out[0] & 1);
        *p += 1000;
        __syncthreads();
        out[32 + lane] = lane % 3 == 0 ? there[lane] : lane % 3 == 1 ? out[lane] : own[1];
    }
    """
    memory = Memory()
    out = memory.upload(np.concatenate([np.arange(1, 64, 2), np.zeros(32)]).astype(np.int32), "out")
    execute(compile_cuda(source).entries["k"], 1, 32, [out], memory=memory)
    lane = np.arange(32)
    expected = np.choose(lane % 3, [1100 + lane, 1001 + 2 * lane, 1000 + lane])
    assert memory.read(out, np.int32)[32:].tolist() == expected.tolist()


def test_module_variables_keep_their_values_between_launches() -> None:
    source = """
    __device__ int table[4] = {1, 2, -3, 4};
    __device__ int* middle = table + 2;
    __constant__ float scale[2] = {0.5f, 8.f};
    extern "C" __global__ void k(float* out) { *middle += 1; out[0] = table[2] * scale[1]; }
    """
    program, memory = compile_cuda(source), Memory()
    out = memory.allocate(4, "out")
    for expected in (-16, -8):
        execute(program.entries["k"], 1, 1, [out], memory=memory)
        assert memory.read(out, np.float32)[0] == expected
    assert memory.read(program.variable("table", memory), np.int32).tolist() == [1, 2, -1, 4]
    fresh = Memory()
    execute(program.entries["k"], 1, 1, [fresh.allocate(4, "out")], memory=fresh)
    assert fresh.read(program.variable("table", fresh), np.int32)[2] == -2


def test_module_variables_are_placed_when_something_names_them() -> None:
    source = """
    __device__ int behind = 7, spare = 9;
    __device__ int* link = &behind;
    extern "C" __global__ void k(int* out) { out[0] = *link; }
    """
    program, memory = compile_cuda(source), Memory()
    out = memory.allocate(4, "out")
    execute(program.entries["k"], 1, 1, [out], memory=memory)
    assert memory.read(out, np.int32)[0] == 7
    assert {a.name for a in memory.allocations} == {"out", "behind", "link"}
    assert memory.read(program.variable("spare", memory), np.int32)[0] == 9
    assert program.variable("spare", memory) is program.variable("spare", memory)


def test_each_of_the_atomics_on_one_place_gets_what_another_has_left() -> None:
    source = """
    extern "C" __global__ void k(unsigned* place, unsigned* x) {
        __shared__ unsigned sum;
        if (threadIdx.x == 0) sum = 0;
        __syncthreads();
        x[threadIdx.x] = atomicAdd(&sum, 1u);
        x[200 + threadIdx.x] = atomicExch(place, threadIdx.x + 1);
    }
    """
    place, x = np.zeros(1, np.uint32), np.zeros(400, np.uint32)
    assert launch(source, "k", 1, 200, [place, x]).ok
    assert sorted(x[:200]) == list(range(200)) and sorted([*x[200:], *place]) == list(range(201))


def test_compare_and_swap_and_reductions_of_cuda() -> None:
    source = """
    extern "C" __global__ void k(unsigned* a, unsigned long long* b, float* c) {
        unsigned seen;
        do { seen = a[0]; } while (atomicCAS(a, seen, seen * 3 + 1) != seen);
        atomicAdd(b, 5ull); atomicMax((int*)a + 1, (int)threadIdx.x - 10); atomicAdd(c, .5f); atomicSub(a + 2, 1u);
    }
    """
    memory = Memory()
    a, b, c = (
        memory.upload(np.zeros(4, dtype), name)
        for dtype, name in ((np.uint32, "a"), (np.uint64, "b"), (np.float32, "c"))
    )
    execute(compile_cuda(source).entries["k"], 2, 32, [a, b, c], memory=memory)
    expected = 0
    for _ in range(64):
        expected = (expected * 3 + 1) % 2**32
    assert memory.read(a, np.uint32).tolist() == [expected, 21, 2**32 - 64, 0]
    assert memory.read(b, np.uint64)[0] == 320
    assert memory.read(c, np.float32)[0] == 32


# ------------------------------------------------------------------------------------------------------- local memory

OWN = """
extern "C" __global__ void k(const int* x, int* y, int* mine) {
    __shared__ int* passed[64];
    int own[4], n = blockIdx.x * 64 + threadIdx.x;
    for (int i = 0; i < 4; ++i) own[i] = 10 * n + i;
    passed[threadIdx.x] = own + (x[n] & 3);
    __syncthreads();
#ifdef BUG
    y[n] = *passed[threadIdx.x ^ OTHER];  // peeks
#else
    y[n] = *passed[threadIdx.x];
#endif
    mine[n] = *(passed[threadIdx.x] == own ? own : own + 1);
}
"""


def test_local_memory_belongs_to_one_thread() -> None:
    x, y, mine = np.arange(128, dtype=np.int32), np.zeros(128, np.int32), np.zeros(128, np.int32)
    for other in (1, 32):
        assert launch(load(OWN, defines={"OTHER": other}), "k", 2, 64, [x, y, mine]).ok
        assert y.tolist() == [10 * n + n % 4 for n in range(128)]
        assert mine.tolist() == [10 * n + (n % 4 != 0) for n in range(128)]
        (finding,) = launch(load(OWN, defines={"OTHER": other, "BUG": 1}), "k", 2, 64, [x, y, mine]).findings
        assert finding.kind is FindingKind.OUT_OF_BOUNDS and finding.location is not None
        assert finding.location.line == line_of(OWN, "// peeks")
        assert "reads local memory of another thread" in finding.message


def test_a_pointer_just_before_local_memory_is_out_of_bounds() -> None:
    source = OWN.replace("own + (x[n] & 3)", "own - 1 - (x[n] & 3)")
    arguments = [np.zeros(128, np.int32) for _ in range(3)]
    finding = launch(load(source, defines={"OTHER": 1}), "k", 2, 64, arguments).findings[0]
    assert finding.kind is FindingKind.OUT_OF_BOUNDS and "local memory at byte" in finding.message
