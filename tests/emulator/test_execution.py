"""What a launch refuses before anything runs, and what it tells afterwards."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from emulation import compile_cuda, module

from workbench.emulator import (
    H200,
    ArgumentError,
    Checks,
    DeviceLimits,
    Entry,
    LaunchError,
    Memory,
    Program,
    TensorMap,
    UnsupportedInstruction,
    execute,
)

SOURCE = """
struct Pair { int a; float b; };
extern "C" __global__ void scale(float* data, float factor, int n, Pair pair) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * factor + pair.a * pair.b;
}
extern "C" __global__ void __launch_bounds__(128) bounded(int* x) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[1000];
    fixed[threadIdx.x] = 1; dynamic[threadIdx.x] = 2;
    x[threadIdx.x] = fixed[threadIdx.x] + dynamic[threadIdx.x];
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(int* x) { x[blockIdx.x] = 1; }
struct __align__(64) Map { unsigned long long opaque[16]; };
extern "C" __global__ void mapped(const __grid_constant__ Map map, unsigned long long* x) { *x = map.opaque[0]; }
"""
PAIR = np.array([(2, 0.25)], dtype=[("a", "i4"), ("b", "f4")])[0]


def entry(name: str) -> Entry:
    return compile_cuda(SOURCE).entries[name]


@pytest.fixture
def memory() -> Memory:
    return Memory()


def test_entries_tell_their_needs() -> None:
    scale, bounded, clustered = entry("scale"), entry("bounded"), entry("clustered")
    assert [(p.size, p.offset) for p in scale.parameters] == [(8, 0), (4, 8), (4, 12), (8, 16)]
    assert (scale.static_shared_bytes, scale.max_threads, scale.cluster) == (0, None, None)
    assert (bounded.static_shared_bytes, bounded.max_threads) == (4000, 128)
    assert clustered.cluster == (2, 1, 1)
    assert scale.register_count > 5


@pytest.mark.parametrize("pair", [PAIR, PAIR.tobytes(), bytearray(PAIR.tobytes())])
@pytest.mark.parametrize("count", [5, np.int32(5), np.uint32(5)])
def test_arguments_of_every_kind(memory: Memory, count: Any, pair: Any) -> None:
    data = memory.upload(np.arange(6, dtype=np.float32), "data")
    execute(entry("scale"), 1, 32, [data, 3.0, count, pair], memory=memory)
    assert memory.read(data, np.float32).tolist() == [0.5, 3.5, 6.5, 9.5, 12.5, 5]
    execute(entry("scale"), (1,), (32, 1), [data.address, np.float32(0), count, pair], memory=memory)
    assert memory.read(data, np.float32).tolist() == [0.5] * 5 + [5]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": None}, "has 4 parameters .u64, f32, u32, b8.8... but 3 arguments"),
        ({"factor": 3}, "parameter 1 of scale .*f32, 4 bytes.*integer 3 is given for a float; write 3.0"),
        ({"factor": np.float64(3)}, "float64 has 8 bytes"),
        ({"factor": np.int32(3)}, "int32 is given for a float"),
        ({"n": 3.5}, "parameter 2 .*float 3.5 is given for an integer"),
        ({"n": np.float32(3)}, "float32 is given for an integer"),
        ({"n": 2**32}, "does not fit into 32 bits"),
        ({"n": -(2**31) - 1}, "does not fit into 32 bits"),
        ({"n": np.int64(3)}, "int64 has 8 bytes"),
        ({"data": np.zeros(4, np.float32)}, "uploaded first"),
        ({"pair": 3}, "a struct is passed as its bytes"),
        ({"pair": b"123"}, "3 bytes are given"),
        ({"n": "array"}, "data is passed by pointer"),
        ({"n": [1]}, "list is not an argument"),
    ],
)
def test_arguments_that_do_not_match_the_signature(memory: Memory, change: dict[str, Any], words: str) -> None:
    data = memory.upload(np.zeros(6, np.float32), "data")
    arguments: dict[str, Any] = {"data": data, "factor": 3.0, "n": 5, "pair": PAIR, **change}
    given = [data if isinstance(a, str) else a for a in arguments.values() if a is not None]
    with pytest.raises(ArgumentError, match=words):
        execute(entry("scale"), 1, 32, given, memory=memory)


def test_freed_arrays_cannot_be_passed(memory: Memory) -> None:
    data = memory.upload(np.zeros(6, np.float32), "data")
    memory.free(data)
    with pytest.raises(ArgumentError, match="data has been freed"):
        execute(entry("scale"), 1, 32, [data, 3.0, 5, PAIR], memory=memory)


def test_tensor_maps_are_passed_by_value(memory: Memory) -> None:
    x = memory.allocate(8, "x")
    array = memory.upload(np.zeros((64, 64), np.float16), "A")
    with pytest.raises(ArgumentError, match="is passed as a `const __grid_constant__ CUtensorMap`"):
        execute(entry("clustered"), 2, 1, [TensorMap(array, 2, (64, 64), (128,), (64, 8))], memory=memory)
    beyond = TensorMap(array, 2, (64, 65), (128,), (64, 8))
    with pytest.raises(ArgumentError, match="covers 8320 bytes, but A has 8192"):
        execute(entry("mapped"), 1, 1, [beyond, x], memory=memory)
    nowhere = TensorMap(4096, 2, (64, 64), (128,), (64, 8))
    with pytest.raises(ArgumentError, match="nothing is allocated"):
        execute(entry("mapped"), 1, 1, [nowhere, x], memory=memory)


@pytest.mark.parametrize(
    ("name", "grid", "block", "options", "words"),
    [
        ("scale", 1, 1025, {}, "block has 1025 in x; 1 to 1024"),
        ("scale", 1, (32, 32, 2), {}, "2048 threads; 1024 are allowed on NVIDIA H200"),
        ("scale", 1, (1, 1, 65), {}, "65 in z; 1 to 64"),
        ("scale", 0, 32, {}, "grid has 0 in x"),
        ("scale", (1, 65536), 32, {}, "65536 in y; 1 to 65535"),
        ("scale", (1, 1, 1, 1), 32, {}, "one to three dimensions"),
        ("scale", 1, 32, {"shared_bytes": 232_449}, "232449 bytes of shared memory.*232448 are allowed"),
        ("scale", 1, 32, {"shared_bytes": -1}, "shared memory is a whole number from 0 to 2147483647, not -1"),
        ("scale", 1, 1024, {"registers_per_thread": 128}, "131072 registers.*has 65536"),
        ("scale", 3, 32, {"cluster": 2}, "3 blocks in x, which is not a multiple of the cluster's 2"),
        ("scale", 16, 32, {"cluster": 16}, "16 blocks; 1 to 8"),
        ("bounded", 1, 129, {}, "129 threads, but bounded is compiled for at most 128"),
        ("clustered", 4, 32, {"cluster": 4}, "compiled for clusters of .2, 1, 1., not .4, 1, 1."),
        ("clustered", 3, 32, {}, "not a multiple of the cluster's 2"),
    ],
)
def test_launches_that_a_device_refuses(
    memory: Memory, name: str, grid: Any, block: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(LaunchError, match=words):
        execute(entry(name), grid, block, [], memory=memory, **options)


def test_limits_can_be_another_device_s(memory: Memory) -> None:
    small = DeviceLimits("small", "sm_89", 24, shared_per_block=101_376, shared_per_sm=102_400, max_warps_per_sm=48)
    with pytest.raises(LaunchError, match="101376 are allowed on small"):
        execute(entry("bounded"), 1, 32, [], memory=memory, shared_bytes=100_000, limits=small)


def test_resident_blocks() -> None:
    assert H200.resident_blocks(1024, 0) == 132 * 2
    assert H200.resident_blocks(32, 0) == 132 * 32
    assert H200.resident_blocks(128, 200_000) == 132
    assert H200.resident_blocks(256, 0, 128) == 132 * 2
    assert H200.resident_blocks(128, 100_000) == 132 * 2


def test_dynamic_shared_memory_follows_the_static_arrays(memory: Memory) -> None:
    x = memory.allocate(128 * 4, "x")
    execute(entry("bounded"), 1, 128, [x], memory=memory, shared_bytes=512)
    assert memory.read(x, np.int32).tolist() == [3] * 128


def test_a_required_block() -> None:
    program = Program.from_ptx(module("ret;", directives=".reqntid 64, 2"))
    execute(program.entries["k"], 1, (64, 2), [], memory=Memory())
    with pytest.raises(LaunchError, match=r"blocks of \(64, 2, 1\), not \(128, 1, 1\)"):
        execute(program.entries["k"], 1, 128, [], memory=Memory())


def test_statistics_count_what_ran(memory: Memory) -> None:
    data = memory.upload(np.zeros(96, np.float32), "data")
    statistics = execute(entry("scale"), 3, 32, [data, 3.0, 96, PAIR], memory=memory)
    assert statistics.by_opcode()["st.global.f32"] == 3
    assert sum(statistics.by_opcode().values()) == statistics.warp_instructions
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if "if (i < n)" in text)
    assert any(file.endswith("kernel.cu") and number == line for file, number in statistics.by_line())


def test_a_launch_leaves_no_cycle_that_would_keep_its_memory() -> None:
    memory = Memory()
    x = memory.allocate(8, "x")
    kept = weakref.ref(x.data)
    execute(entry("clustered"), 2, 1, [x], memory=memory)
    del memory, x
    assert kept() is None


def test_the_same_seed_gives_the_same_run(memory: Memory) -> None:
    source = """
    extern "C" __global__ void k(int* order, int* next) {
        for (int i = 0; i < 3; ++i) {
            if (threadIdx.x % 32 == 0) order[atomicAdd(next, 1)] = threadIdx.x / 32;
            __syncthreads();
        }
    }
    """
    program = compile_cuda(source)

    def run(seed: int) -> list[int]:
        memory = Memory()
        order, next_ = memory.allocate(4 * 24, "order"), memory.upload(np.zeros(1, np.int32), "next")
        execute(program.entries["k"], 1, 256, [order, next_], memory=memory, seed=seed)
        return memory.read(order, np.int32).tolist()

    runs = [run(seed) for seed in range(6)]
    assert runs == [run(seed) for seed in range(6)]
    assert len({tuple(r) for r in runs}) > 1, "every seed runs the warps in the same order"


def test_an_instruction_that_is_not_known_is_refused_with_its_line() -> None:
    source = """
    extern "C" __global__ void k(cudaTextureObject_t texture, bool* x) {
        tex2D<float>(texture, 0, 0, x);  // here
    }
    """
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "here" in text)
    with pytest.raises(UnsupportedInstruction, match=f"kernel.cu:{line}: .*tex") as error:
        compile_cuda(source)
    assert error.value.location.line == line
    assert error.value.instruction.startswith("tex")
    text = module("frobnicate.b32 %r, %r;", "", ".reg .b32 %r;")
    with pytest.raises(UnsupportedInstruction, match=r"frobnicate\.b32 %r, %r"):
        Program.from_ptx(text)


def test_operands_that_do_not_fit_are_refused() -> None:
    for statement in ("add.u32 %r, %r;", "add.u32 %r, %r, %p;", "add.u64 %d, %r, %d;", "ld.global.u32 %r, %d;"):
        with pytest.raises(UnsupportedInstruction):
            Program.from_ptx(module(statement, "", ".reg .b32 %r; .reg .pred %p; .reg .b64 %d;"))


def test_a_register_that_is_read_before_it_is_written_is_zero_where_nobody_minds() -> None:
    text = module(
        "mov.u32 %a, 7; mov.u32 %b, 9; add.u32 %a, %a, %b; add.u32 %a, %a, %u; ld.param.u64 %d, [x];"
        "st.global.u32 [%d], %a; ret;",
        ".param .u64 x",
        ".reg .b32 %a; .reg .b32 %b; .reg .b32 %u; .reg .b64 %d;",
    )
    memory = Memory()
    x = memory.allocate(4, "x")
    execute(Program.from_ptx(text).entries["k"], 1, 1, [x], memory=memory, checks=Checks.NONE)
    assert memory.read(x, np.uint32)[0] == 16
