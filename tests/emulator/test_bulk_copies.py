"""Bulk copies, with and without tensors, and clusters against NumPy; boxes of all kinds are in ``box_cases.py``."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import cuda
from asynchronous import REGISTERS, WAIT, tensor_kernel
from emulation import compile_cuda, fault_of, module
from sample_kernels import on_device

from workbench.emulator import FindingKind, Memory, Program, TensorMap, execute

STORE = """
extern "C" __global__ void store(const __grid_constant__ Map map, int step) {
    __shared__ alignas(128) float tile[2][32];
    tile[0][threadIdx.x] = tile[1][threadIdx.x] = threadIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    const unsigned from = (unsigned)__cvta_generic_to_shared(tile[threadIdx.x % 2 * step]);
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {0, 0}], [%1];"
                 "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::"l"(&map), "r"(from) : "memory");
}
"""


@pytest.mark.parametrize("step", [0, 1])
def test_all_lanes_may_store_one_tile_from_one_place(step: int) -> None:
    memory, tile = Memory(), np.zeros((8, 4), np.float32)
    array = memory.upload(tile, "array")
    source = "struct alignas(64) Map { unsigned long long words[16]; };" + STORE
    entry, arguments = compile_cuda(source).entries["store"], [TensorMap(array, 4, (4, 8), (16,), (4, 8)), step]
    if step:
        fault_of(FindingKind.RACE, entry, 1, 32, arguments, memory=memory)
    else:
        assert not execute(entry, 1, 32, arguments, memory=memory).findings
        assert np.array_equal(memory.read(array, np.float32), np.arange(32))


def test_outside_a_tensor_may_be_nan() -> None:
    array = np.ones((4, 16), np.float32)
    memory = Memory()
    a, x = memory.upload(array, "a"), memory.allocate(16 * 8 * 4, "x")
    tensor_map = TensorMap(a, 4, (16, 4), (64,), (16, 8), element_type="float32", nan_fill=True)
    execute(tensor_kernel(2, 512, load=True), 1, 64, [tensor_map, x, 0, 0], memory=memory)
    found = memory.read(x, np.float32, (8, 16))
    assert (found[:4] == 1).all()
    assert np.isnan(found[4:]).all()
    assert (found[4:].view(np.uint32) == 0x7FF77FF7).all()  # as an H200 fills


BULK = on_device("""
extern "C" __global__ void k(const int* a, int* x, int bytes) {
    __shared__ __align__(128) int tile[64];
    __shared__ __align__(8) u64 bar;
    unsigned b = address(&bar), t = address(tile);
    tile[threadIdx.x] = -1;
    if (threadIdx.x == 0) init(&bar, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, bytes);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
            :: "r"(t), "l"(a), "r"(bytes), "r"(b) : "memory");
    }
    wait(&bar, 0);
    tile[threadIdx.x] *= 2;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
            :: "l"(x), "r"(t), "r"(bytes) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
            :: "l"(x + 64), "r"(t), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#ifdef REUSE
        tile[0] = 5;  // reuse
#endif
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        tile[1] = 5;
    }
}
""")


@pytest.mark.parametrize("seed", range(3))
def test_bulk_copies_to_and_from_shared_memory(seed: int) -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(64, dtype=np.int32), "a"), memory.upload(np.full(128, 7, np.int32), "x")
    execute(compile_cuda(BULK, "GOOD").entries["k"], 1, 64, [a, x, 160], memory=memory, seed=seed)
    doubled = np.arange(40) * 2
    assert memory.read(x, np.int32).tolist() == [*doubled, *[7] * 24, *(doubled + 7), *[7] * 24]


@pytest.mark.parametrize("seed", range(3))
def test_the_source_of_a_bulk_store_is_in_flight(seed: int) -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(64, dtype=np.int32), "a"), memory.upload(np.full(128, 7, np.int32), "x")
    entry = compile_cuda(BULK, "REUSE").entries["k"]
    finding = fault_of(FindingKind.IN_FLIGHT, entry, 1, 64, [a, x, 160], memory=memory, seed=seed)
    assert "// reuse" in finding.source_line
    assert finding.array == "tile"


def test_a_tensor_map_may_lie_in_global_memory() -> None:
    array = np.arange(64, dtype=np.float32).reshape(4, 16)
    text_entry = tensor_kernel(2, 256, load=True)
    text = module(
        f"""
        ld.param.u64 %m, [map]; ld.param.u64 %x, [x]; mov.u32 %i, %tid.x; setp.eq.u32 %first, %i, 0;
        mbarrier.init.shared::cta.b64 [bar], 1; fence.proxy.async.shared::cta;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%m, {{0, 0}}], [bar];
        {WAIT.format(phase=0)}
        ld.shared.f32 %v, [tile+252]; st.global.f32 [%x], %v; ret;
        """,
        ".param .u64 map, .param .u64 x",
        f"{REGISTERS} .shared .align 1024 .b8 tile[256]; .shared .align 8 .b64 bar;",
    )
    assert text_entry.parameters[0].size == 128
    memory = Memory()
    tensor_map = memory.upload(TensorMap(memory.upload(array, "a"), 4, (16, 4), (64,), (16, 4)), "map")
    x = memory.allocate(4, "x")
    execute(Program.from_ptx(text).entries["k"], 1, 1, [tensor_map, x], memory=memory)
    assert memory.read(x, np.float32)[0] == 63


# ------------------------------------------------------------------------------------------------------------ clusters

CLUSTER = cuda("""
__device__ void meet() { CLUSTER_ARRIVE; CLUSTER_WAIT; }
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int* x) {
    __shared__ int mine[32], inbox[32];
    __shared__ __align__(8) u64 bar;
    int t = threadIdx.x, r = rank();
    mine[t] = 100 * r + t; inbox[t] = 0;
    if (t == 0) init(&bar, 4);
    meet();
    int next = (r + 1) % 4, value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(at(mine + t, next)) : "memory");
    asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(at(inbox + t, next)), "r"(r + 1) : "memory");
    if (t < 4)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(at(&bar, t)) : "memory");
    wait(&bar, 0);
    meet();
    x[blockIdx.x * 64 + t] = value; x[blockIdx.x * 64 + 32 + t] = inbox[t];
}
""")


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_a_cluster_reach_each_other(seed: int) -> None:
    memory = Memory()
    x = memory.allocate(8 * 64 * 4, "x")
    execute(compile_cuda(CLUSTER).entries["k"], 8, 32, [x], memory=memory, seed=seed)
    found = memory.read(x, np.int32, (8, 2, 32))
    rank = np.arange(8)[:, None] % 4
    assert np.array_equal(found[:, 0], 100 * ((rank + 1) % 4) + np.arange(32))
    assert np.array_equal(found[:, 1], np.broadcast_to((rank - 1) % 4 + 1, (8, 32)))


MULTICAST = on_device("""
struct __align__(64) Map { unsigned long long opaque[16]; };
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const __grid_constant__ Map map, float* x) {
    __shared__ __align__(1024) float tile[64];
    __shared__ __align__(8) u64 bar;
    unsigned b = address(&bar), t = address(tile), rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        init(&bar, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(&bar, 256);
    }
    asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0)  // each block fetches half of the tile for both
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
            :: "r"(t + rank * 128), "l"(&map), "r"(b), "r"(0), "r"((int)rank * 2), "h"((short)3) : "memory");
    wait(&bar, 0);
    x[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
    asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
}
""")


@pytest.mark.parametrize("seed", range(3))
def test_multicast(seed: int) -> None:
    array = np.arange(64, dtype=np.float32).reshape(4, 16)
    memory = Memory()
    tensor_map = TensorMap(memory.upload(array, "a"), 4, (16, 4), (64,), (16, 2))
    x = memory.allocate(2 * 64 * 4, "x")
    execute(compile_cuda(MULTICAST).entries["k"], 2, 64, [tensor_map, x], memory=memory, seed=seed)
    assert np.array_equal(memory.read(x, np.float32, (2, 64)), np.stack([array.ravel()] * 2))
