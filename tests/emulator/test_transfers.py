"""What moves through shared memory: what im2col tiles may be, ends of rows, remote stores; ``cases.py`` has values."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import cuda
from asynchronous import strides, tensor, tensor_kernel
from emulation import Array, compile_cuda, fault_of

from workbench.emulator import (
    FindingKind,
    KernelFault,
    Memory,
    PixelBox,
    TensorMap,
    TensorMapOf,
    execute,
    launch,
)

RNG = np.random.default_rng(23)

# -------------------------------------------------------------------------------------------------------------- im2col


@pytest.mark.parametrize(
    ("lower", "upper", "corner", "offset", "load", "words"),
    [
        (0, 0, (1, 0, 0), 0, True, "begins at element 1 of a row"),
        (0, 0, (1, 0, 0), 0, False, "begins at element 1 of a row"),
        (0, 0, (0, -1, 0), 0, False, "begins at -1 in dimension 1"),
        (0, 0, (0, 0, -1), 0, False, "begins at -1 in dimension 2"),
        (-2, 0, (0, 0, 0), 0, False, "begins at -2 in dimension 1"),
        (0, 3, (0, 0, 0), 0, False, "up to 3 beyond the tensor in dimension 1"),
    ],
)
def test_im2col_tiles_begin_where_a_device_takes_them(
    lower: int, upper: int, corner: tuple[int, int, int], offset: int, load: bool, words: str
) -> None:
    array = tensor("float32", (8, 9, 3))
    memory = Memory()
    a, x = memory.upload(array, "a"), memory.upload(np.zeros(32, np.float32), "x")
    tensor_map = TensorMap(a, 4, (8, 9, 3), strides(array), PixelBox((lower,), (upper,), 8, 4))
    mode = "im2col" if load else "im2col_no_offs"
    entry = tensor_kernel(3, 128, load=load, mode=mode, offsets=(offset,) if load else ())
    finding = fault_of(FindingKind.BAD_OPERAND, entry, 1, 64, [tensor_map, x, *corner], memory=memory)
    assert words in finding.message


@pytest.mark.parametrize(("rank", "most"), [(4, 255), (5, 31)])
def test_im2col_offsets_have_the_bits_of_the_rank(rank: int, most: int) -> None:
    shape = (8, 400, 2, 2, 2)[:rank]
    array = tensor("float32", shape)
    box = PixelBox((0,) * (rank - 2), (0,) * (rank - 2), 8, 4)
    for offset in (most, most + 1):
        memory = Memory()
        a, x = memory.upload(array, "a"), memory.allocate(128, "x")
        arguments = [TensorMap(a, 4, shape, strides(array), box), x, *(0,) * rank]
        entry = tensor_kernel(rank, 128, load=True, mode="im2col", offsets=(offset,) + (0,) * (rank - 3))
        if offset == most:
            execute(entry, 1, 64, arguments, memory=memory)
            expected = array[(0,) * (rank - 2)][most : most + 4]
            assert memory.read(x, np.uint8).tobytes() == expected.tobytes()
        else:
            finding = fault_of(FindingKind.BAD_OPERAND, entry, 1, 64, arguments, memory=memory)
            assert f"im2col offset {most + 1} in dimension 1" in finding.message


def test_a_map_is_of_the_mode_of_its_copy() -> None:
    array = tensor("float32", (8, 9, 3))
    for box, mode, offsets in (((8, 4, 1), "im2col", (0,)), (PixelBox((0,), (0,), 8, 4), "tile", ())):
        memory = Memory()
        a, x = memory.upload(array, "a"), memory.allocate(128, "x")
        tensor_map = TensorMap(a, 4, (8, 9, 3), strides(array), box)
        entry = tensor_kernel(3, 128, load=True, mode=mode, offsets=offsets)
        fault_of(FindingKind.DESCRIPTOR, entry, 1, 64, [tensor_map, x, 0, 0, 0], memory=memory)


@pytest.mark.parametrize(
    ("shape", "box", "words"),
    [
        ((8, 9), PixelBox((), (), 8, 4), "3 to 5 dimensions"),
        ((8, 9, 3), PixelBox((0, 0), (0,), 8, 4), "lower must list 1"),
        ((8, 9, 3), PixelBox((0,), (2**15,), 8, 4), "upper has 32768"),
        ((8, 9, 3, 2, 1), PixelBox((0, -17, 0), (0, 0, 0), 8, 4), "-16 to 15"),
        ((8, 9, 3), PixelBox((0,), (0,), 8, 1025), "1025 pixels"),
        ((8, 9, 3), PixelBox((4,), (-5,), 8, 4), "no pixel in dimension 1"),
        ((8, 9, 3), PixelBox((0,), (0,), 260, 4), "260 channels"),
        ((8, 9, 3), PixelBox((0,), (0,), 3, 4), "multiple of 16 bytes"),
    ],
)
def test_what_the_driver_refuses_of_pixels(shape: tuple[int, ...], box: PixelBox, words: str) -> None:
    steps = [32 * int(np.prod(shape[1:n])) for n in range(1, len(shape))]
    with pytest.raises(ValueError, match=words):
        TensorMap(1 << 40, 4, shape, steps, box)


IM2COL = """
struct __align__(64) Map { unsigned long long opaque[16]; };
extern "C" __global__ void k(const __grid_constant__ Map map, float* x) {
    __shared__ __align__(128) float tile[64];
    __shared__ __align__(8) unsigned long long bar;
    unsigned b = __cvta_generic_to_shared(&bar), t = __cvta_generic_to_shared(tile);
    asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async.shared::cta;" :: "r"(b) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" :: "r"(b) : "memory");
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %2}], [%5], {%6, %7};"
        :: "r"(t), "l"(&map), "r"(0), "r"(-1), "r"(0), "r"(b), "h"((short)1), "h"((short)2) : "memory");
    asm volatile("{ .reg .pred P; L: mbarrier.try_wait.parity.shared.b64 P, [%0], 0; @!P bra L; }"
        :: "r"(b) : "memory");
    for (int i = 0; i < 64; i++) x[i] = tile[i];
}
"""


def test_im2col_alone() -> None:
    """The same through ``launch``, whose sizes stand outermost first."""
    array = RNG.standard_normal((2, 5, 6, 4)).astype(np.float32)  # images, rows, columns, channels
    x = np.zeros((16, 4), np.float32)
    box = PixelBox(lower=(0, -1), upper=(-2, -1), channels=4, pixels=16)  # of rows and columns
    assert launch(IM2COL, "k", 1, 1, [TensorMapOf(array, box), x]).ok
    places = [(row, column) for row in range(5 - 2) for column in range(-1, 6 - 1)][:16]
    expected = [array[0, row + 2, column + 1] for row, column in places]
    assert np.array_equal(x, np.array(expected))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("L: mbarrier.try_wait.parity.shared.b64 P, [%0], 0; @!P bra L;", "", FindingKind.IN_FLIGHT),
        ("[%0], 256;", "[%0], 128;", FindingKind.MBARRIER_MISUSE),
        ("fence.proxy.async.shared::cta;", "", FindingKind.MBARRIER_MISUSE),  # it is not visible to the copy
        ('"r"(0), "r"(-1)', '"r"(1), "r"(-1)', FindingKind.BAD_OPERAND),
        ('"h"((short)2)', '"h"((short)-1)', FindingKind.BAD_OPERAND),
    ],
)
def test_hazards_of_im2col_copies(old: str, new: str, kind: FindingKind) -> None:
    assert old in IM2COL
    array, x = np.zeros((2, 5, 6, 4), np.float32), np.zeros((16, 4), np.float32)
    box = PixelBox(lower=(0, -1), upper=(-2, -1), channels=4, pixels=16)
    (finding,) = launch(IM2COL.replace(old, new), "k", 1, 1, [TensorMapOf(array, box), x]).findings
    assert finding.kind is kind


# --------------------------------------------------------------------------------------------------------- ends of rows


def test_a_store_writes_the_last_16_bytes_of_a_row_whole() -> None:
    """As an H200: what lies behind the row, up to the next 16 bytes and as far as the box goes, is overwritten."""
    padded = np.full((4, 32), 7, np.float16)
    tile = np.arange(1, 4 * 16 + 1, dtype=np.float16).reshape(4, 16)
    memory = Memory()
    a, x = memory.upload(padded, "a"), memory.upload(tile, "x")
    tensor_map = TensorMap(a, 2, (21, 4), (64,), (16, 4), element_type="float16")
    execute(tensor_kernel(2, tile.nbytes, load=False), 1, 64, [tensor_map, x, 8, 1], memory=memory)
    expected = padded.copy()
    expected[1:, 8:24] = tile[:3]  # 21 elements have 42 bytes: 48 are written
    assert np.array_equal(memory.read(a, np.float16, padded.shape), expected)
    kernel = tensor_kernel(2, tile.nbytes, load=False, reduce="add")
    execute(kernel, 1, 64, [tensor_map, x, 8, 1], memory=memory)
    expected[1:, 8:21] += tile[:3, :13]
    assert np.array_equal(memory.read(a, np.float16, padded.shape), expected)


def test_a_store_may_reach_beyond_its_array() -> None:
    memory = Memory()
    a, x = memory.allocate(21 * 2, "a", element_size=2), memory.upload(np.zeros(16, np.uint16), "x")
    entry = tensor_kernel(1, 32, load=False)
    finding = fault_of(
        FindingKind.OUT_OF_BOUNDS, entry, 1, 64, [TensorMap(a, 2, (21,), (), (16,)), x, 8], memory=memory
    )
    assert finding.array == "a"


# ----------------------------------------------------------------------------------------- into shared memory of others

CLUSTER = cuda("""
__device__ void meet() { CLUSTER_ARRIVE; CLUSTER_WAIT; }
constexpr int BLOCKS = 4;
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) k(const int* a, int* x) {
    __shared__ __align__(16) int source[32], inbox[32];
    __shared__ __align__(8) u64 bar;
    int t = threadIdx.x, r = rank();
    source[t] = a[blockIdx.x * 32 + t];
    inbox[t] = INITIAL;
    if (t == 0) {
        init(&bar, 1);
        expect(&bar, BYTES);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    meet();
    SEND
    wait(&bar, 0);
    x[blockIdx.x * 32 + t] = inbox[t];
    meet();
}
""")
NEXT = "(r + 1) % BLOCKS"
STORE = f"""
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
        :: "r"(at(inbox + t, {NEXT})), "r"(source[t]), "r"(at(&bar, {NEXT})) : "memory");
"""
REDUCE = """
    for (int to = 0; to < BLOCKS; ++to)
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
            :: "r"(at(inbox + t, to)), "r"(source[t]), "r"(at(&bar, to)) : "memory");
"""
REDUCE_COPY = """
    if (t == 0)
        for (int to = 0; to < BLOCKS; ++to)
            asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
                " [%0], [%1], 128, [%2];"
                :: "r"(at(inbox, to)), "r"(address(source)), "r"(at(&bar, to)) : "memory");
"""


def drawn() -> Array:
    return RNG.integers(-(2**31), 2**31, (8, 32)).astype(np.int32)


@pytest.mark.parametrize("send", [REDUCE, REDUCE_COPY])
def test_what_several_blocks_add_to_one_place_is_summed(send: str) -> None:
    source = CLUSTER.replace("SEND", send).replace("BYTES", str(4 * 128)).replace("INITIAL", "1234567")
    a, x = drawn(), np.zeros((8, 32), np.int32)
    assert launch(compile_cuda(source), "k", 8, 32, [a, x]).ok
    sums = a.reshape(2, 4, 32).sum(axis=1, dtype=np.int32) + np.int32(1234567)
    assert np.array_equal(x, np.repeat(sums, 4, axis=0))


def test_a_remote_store_is_in_flight_until_its_barrier_was_waited_for() -> None:
    a = drawn()
    source = CLUSTER.replace("SEND", f"{STORE} x[blockIdx.x * 32 + t] = inbox[t];  // early")
    source = source.replace("BYTES", "128").replace("INITIAL", "0")
    for seed in range(4):
        memory = Memory()
        arguments = [memory.upload(a, "a"), memory.allocate(a.nbytes, "x")]
        with pytest.raises(KernelFault) as caught:
            execute(compile_cuda(source).entries["k"], 8, 32, arguments, memory=memory, seed=seed)
        assert caught.value.finding.kind in (FindingKind.IN_FLIGHT, FindingKind.RACE)


def test_prefetches_change_nothing() -> None:
    source = """
    struct __align__(64) Map { unsigned long long opaque[16]; };
    extern "C" __global__ void k(const __grid_constant__ Map map, const __grid_constant__ Map pixels, const float* a,
                                 float* x) {
        asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %1, %1}];" :: "l"(&map), "r"(0));
        asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%0, {%1, %1, %1}], {%2};"
            :: "l"(&PIXELS), "r"(0), "h"((short)0));
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], 64;" :: "l"(a));
        asm volatile("prefetch.tensormap [%0];" :: "l"(&map));
        x[0] = a[1];
    }
    """
    a, x = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
    array = a.reshape(4, 4, 4).copy()
    arguments = [TensorMapOf(array, (4, 4, 4)), TensorMapOf(array, PixelBox((0,), (0,), 4, 4)), a, x]
    assert launch(source.replace("PIXELS", "pixels"), "k", 1, 1, arguments).ok
    assert x[0] == 1
    (finding,) = launch(source.replace("PIXELS", "map"), "k", 1, 1, arguments).findings
    assert finding.kind is FindingKind.DESCRIPTOR
    assert "is given a tiled tensor map" in finding.message


# --------------------------------------------------------------------------------------------- places in other blocks

PLACES = (
    CLUSTER.replace("BYTES", "0")
    .replace("INITIAL", "7")
    .replace(
        "SEND",
        """
    int* mapped; unsigned found, rank_of_mapped; int old;
    asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(inbox + t), "r"((r + 1) % BLOCKS));
    asm("getctarank.u64 %0, %1;" : "=r"(found) : "l"(mapped));
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank_of_mapped) : "r"(at(inbox, (r + 2) % BLOCKS)));
    asm volatile("atom.add.relaxed.cluster.s32 %0, [%1], %2;" : "=r"(old) : "l"(mapped), "r"(100) : "memory");
    asm volatile("atom.relaxed.cluster.shared::cluster.max.s32 %0, [%1], %2;"
        : "=r"(old) : "r"(at(inbox + t, (r + 1) % BLOCKS)), "r"(old + 500) : "memory");
    if (t == 0)  // one arrival more than the barrier's own, which must come first
        asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], 0;"
            :: "r"(at(&bar, r)) : "memory");
    meet();
    inbox[t] += 1000 * found + 10000 * rank_of_mapped;
    """,
    )
)


def test_places_in_other_blocks() -> None:
    source = PLACES.replace("init(&bar, 1)", "init(&bar, 2)")
    memory = Memory()
    x = memory.allocate(8 * 32 * 4, "x")
    execute(compile_cuda(source).entries["k"], 8, 32, [memory.upload(drawn(), "a"), x], memory=memory)
    rank = np.arange(8)[:, None] % 4
    expected = 507 + 1000 * ((rank + 1) % 4) + 10000 * ((rank + 2) % 4)
    assert np.array_equal(memory.read(x, np.int32, (8, 32)), np.broadcast_to(expected, (8, 32)))
