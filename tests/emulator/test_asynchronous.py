"""Asynchronous copies, mbarriers and clusters."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cases import box_corners
from emulation import Array, compile_cuda, fault_of, module
from kernels import DEVICE

from workbench.emulator import Entry, FindingKind, Memory, Program, TensorMap, execute

RNG = np.random.default_rng(17)
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], {phase}; @!%done bra WAIT;"


def random_bytes(count: int) -> Array:
    return RNG.integers(0, 256, count).astype(np.uint8)


# ------------------------------------------------------------------------------------------------------------ cp.async


@pytest.mark.parametrize(("hint", "size"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
@pytest.mark.parametrize("form", ["plain", "partial", "ignored"])
def test_small_copies(hint: str, size: int, form: str) -> None:
    """Thread i copies one piece; in the other forms some bytes of it, or of some pieces, become zero."""
    threads = 40
    last = {"plain": "", "partial": ", %part", "ignored": ", %skip"}[form]
    text = module(
        f"""
        mov.u32 %i, %tid.x; ld.param.u64 %a, [a]; ld.param.u64 %x, [x];
        mul.wide.u32 %o, %i, {size}; add.u64 %a, %a, %o; add.u64 %x, %x, %o;
        mul.lo.u32 %s, %i, {size}; mov.u32 %t, tile; add.u32 %s, %s, %t;
        rem.u32 %part, %i, {size + 1}; and.b32 %t, %i, 1; setp.eq.u32 %skip, %t, 1;
        cp.async.{hint}.shared.global [%s], [%a], {size}{last};
        cp.async.commit_group;
        cp.async.wait_group 0;
        {copy_bytes(size)}
        ret;
        """,
        ".param .u64 a, .param .u64 x",
        f"{REGISTERS} .reg .b32 %part; .reg .pred %skip; .shared .align 16 .b8 tile[{size * threads}];",
    )
    array = random_bytes(size * threads).reshape(threads, size)
    memory = Memory()
    a, x = memory.upload(array, "a"), memory.allocate(array.nbytes, "x")
    execute(Program.from_ptx(text).entries["k"], 1, threads, [a, x], memory=memory)
    expected = array.copy()
    for thread, row in enumerate(expected):
        if form == "partial":
            row[thread % (size + 1) :] = 0
        if form == "ignored" and thread & 1:
            row[:] = 0
    assert np.array_equal(memory.read(x, np.uint8, array.shape), expected)


REGISTERS = (
    ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b64 %a; .reg .b64 %x; .reg .b64 %o; .reg .b64 %m;"
    ".reg .b64 %state; .reg .pred %done; .reg .pred %first; .reg .pred %p;"
)


def copy_bytes(size: int) -> str:
    """Bytes from [%s] in shared memory to [%x]."""
    return " ".join(f"ld.shared.u8 %v, [%s+{b}]; st.global.u8 [%x+{b}], %v;" for b in range(size))


GROUPS = (
    DEVICE
    + """
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ int tile[4];
    copy4(tile, a); copy4(tile + 1, a + 1); COMMIT;
    copy4(tile + 2, a + 2); COMMIT;
    copy4(tile + 3, a + 3);
#ifdef ALL
    asm volatile("cp.async.wait_all;" ::: "memory");
    x[0] = tile[0]; x[1] = tile[1]; x[2] = tile[2]; x[3] = tile[3];
#else
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    x[0] = tile[0]; x[1] = tile[1];
#ifdef EARLY
    x[2] = tile[2];
#endif
    COMMIT;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    x[2] = tile[2]; x[3] = tile[3];
#endif
}
"""
)


@pytest.mark.parametrize("define", ["ALL", "SOME"])
def test_waiting_for_groups(define: str) -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(4, dtype=np.int32) + 5, "a"), memory.allocate(16, "x")
    execute(compile_cuda(GROUPS, define).entries["k"], 1, 1, [a, x], memory=memory)
    assert memory.read(x, np.int32).tolist() == [5, 6, 7, 8]


def test_waiting_for_one_group_too_few() -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(4, dtype=np.int32), "a"), memory.allocate(16, "x")
    finding = fault_of(FindingKind.IN_FLIGHT, compile_cuda(GROUPS, "EARLY").entries["k"], 1, 1, [a, x], memory=memory)
    assert finding.array == "tile"
    assert "`tile` + 8 bytes" in str(finding)


def test_copies_that_arrive_at_an_mbarrier() -> None:
    source = (
        DEVICE
        + """
    extern "C" __global__ void k(const int* a, int* x) {
        __shared__ int tile[64];
        __shared__ __align__(8) u64 bar;
        int t = threadIdx.x;
        if (t == 0) init(&bar, 64);
        __syncthreads();
        copy4(tile + t, a + t);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(address(&bar)) : "memory");
        wait(&bar, 0);
        x[t] = tile[63 - t];
    }
    """
    )
    for seed in range(4):
        memory = Memory()
        a, x = memory.upload(np.arange(64, dtype=np.int32), "a"), memory.allocate(256, "x")
        execute(compile_cuda(source).entries["k"], 1, 64, [a, x], memory=memory, seed=seed)
        assert memory.read(x, np.int32).tolist() == list(range(63, -1, -1))


# ----------------------------------------------------------------------------------------------------------- mbarriers


def mbarrier(body: str, words: int = 8, **options: Any) -> Array:
    """One thread; %r0, %r1, ... are stored in the end. ``bar`` is an mbarrier in shared memory."""
    zeros = " ".join(f"mov.u32 %r{n}, 0;" for n in range(words))
    stores = " ".join(f"st.global.u32 [%x+{4 * n}], %r{n};" for n in range(words))
    text = module(
        f"ld.param.u64 %x, [x]; {zeros} {body} {stores} ret;",
        ".param .u64 x",
        f"{REGISTERS} .reg .b32 %r<{words}>; .reg .b64 %old; .shared .align 8 .b64 bar; .shared .align 8 .b64 other;",
    )
    memory = Memory()
    x = memory.allocate(4 * words, "x")
    execute(Program.from_ptx(text).entries["k"], 1, 1, [x], memory=memory, **options)
    return memory.read(x, np.uint32)


def ready(number: int, test: str) -> str:
    return f"mbarrier.test_wait{test}; selp.u32 %r{number}, 1, 0, %done;"


def test_a_phase_ends_with_its_last_arrival() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 3;
        mbarrier.arrive.shared.b64 %old, [bar];
        {ready(0, ".shared.b64 %done, [bar], %old")}
        mbarrier.arrive.shared.b64 %state, [bar], 1;
        {ready(1, ".parity.shared.b64 %done, [bar], 0")}
        {ready(2, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.arrive.shared::cta.b64 _, [bar];
        {ready(3, ".shared.b64 %done, [bar], %old")}
        {ready(4, ".parity.shared.b64 %done, [bar], 0")}
        {ready(5, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.arrive.shared.b64 %state, [bar], 3;
        {ready(6, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.pending_count.b64 %r7, %old;
        """
    )
    assert found[:7].tolist() == [0, 0, 1, 1, 1, 0, 1]
    assert found[7] == 3


def test_bytes_keep_a_phase_open() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 1;
        mbarrier.arrive.expect_tx.shared.b64 %old, [bar], 48;
        {ready(0, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 32;
        {ready(1, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 16;
        {ready(2, ".shared.b64 %done, [bar], %old")}
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;
        mbarrier.arrive.shared.b64 %old, [bar];
        {ready(3, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 16;
        {ready(4, ".shared.b64 %done, [bar], %old")}
        """
    )
    assert found[:5].tolist() == [0, 0, 1, 0, 1]


def test_a_dropped_participant_is_not_expected_again() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 2;
        mbarrier.arrive_drop.shared.b64 %old, [bar];
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(0, ".shared.b64 %done, [bar], %state")}
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(1, ".shared.b64 %done, [bar], %state")}
        """
    )
    assert found[:2].tolist() == [1, 1]


def test_generic_addresses_of_mbarriers() -> None:
    found = mbarrier(
        f"""
        mov.u64 %a, bar; cvta.shared.u64 %a, %a;
        mbarrier.init.b64 [%a], 1;
        mbarrier.arrive.b64 %old, [%a];
        {ready(0, ".b64 %done, [%a], %old")}
        mbarrier.inval.b64 [%a];
        """
    )
    assert found[0] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mbarrier.arrive.shared.b64 %old, [bar];", "mbarrier `bar` is not initialised"),
        ("mbarrier.init.shared.b64 [bar], 0;", "initialised with 0 arrivals"),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %old, [bar], 3;",
            "more arrivals at mbarrier `bar` than",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar];"
            "mbarrier.arrive.shared.b64 %old, [bar];",
            "not init",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %old, [bar];"
            "mbarrier.init.shared.b64 [bar], 2;",
            "initialises mbarrier `bar` again, initialised at",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.test_wait.parity.shared.b64 %done, [bar], 2;",
            "waits for parity 2 of mbarrier `bar`",
        ),
    ],
)
def test_misused_mbarriers(body: str, words: str) -> None:
    text = module(f"{body} ret;", "", f"{REGISTERS} .reg .b64 %old; .shared .align 8 .b64 bar;")
    finding = fault_of(FindingKind.MBARRIER_MISUSE, Program.from_ptx(text).entries["k"], 1, 1, [], memory=Memory())
    assert words in str(finding)


def test_a_block_waits_on_its_own_barriers_only() -> None:
    body = """
        mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %s, bar; mov.u32 %t, %cluster_ctarank; xor.b32 %t, %t, 1; mapa.shared::cluster.u32 %s, %s, %t;
        mbarrier.test_wait.parity.shared.b64 %done, [%s], 0; ret;
    """
    text = module(body, "", f"{REGISTERS} .shared .align 8 .b64 bar;")
    entry = Program.from_ptx(text).entries["k"]
    finding = fault_of(FindingKind.MBARRIER_MISUSE, entry, 2, 1, [], memory=Memory(), cluster=2)
    assert "of another block" in str(finding)


# -------------------------------------------------------------------------------------------------------- bulk copies


def swizzled(tile: Array, swizzle: int) -> Array:
    """Bytes as they lie in shared memory from an address that is a multiple of 1024."""
    position = np.arange(tile.size)
    pattern = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    place = position ^ ((position >> 7) & pattern) << 4
    out = np.empty_like(tile)
    out[place] = tile
    return out


def tensor_kernel(
    rank: int, nbytes: int, load: bool, reduce: str = "", mode: str = "tile", offsets: tuple[int, ...] = ()
) -> Entry:
    """One block moves one box between the tensor and ``x``, whose bytes are those of shared memory.

    ``offsets`` are those of the pixels in the mode ``im2col``.
    """
    shifts = ", {" + ", ".join(f"%h{n}" for n in range(len(offsets))) + "}" if offsets else ""
    coordinates = ", ".join(f"%c{n}" for n in range(rank))
    load_coordinates = " ".join(f"ld.param.s32 %c{n}, [c{n}];" for n in range(rank))
    head = f"""
    mov.u32 %i, %tid.x; ld.param.u64 %x, [x]; mov.b64 %m, map; cvta.param.u64 %m, %m; {load_coordinates}
    setp.eq.u32 %first, %i, 0;
    {" ".join(f"mov.b16 %h{n}, {offset};" for n, offset in enumerate(offsets))}
    """
    if load:
        body = f"""
        @%first mbarrier.init.shared::cta.b64 [bar], 1;
        @%first fence.mbarrier_init.release.cluster;
        bar.sync 0;
        @!%first bra GO;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
        cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
            [tile], [%m, {{{coordinates}}}], [bar]{shifts};
        GO: {WAIT.format(phase=0)}
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra END;
        mov.u32 %t, tile; add.u32 %t, %t, %s; ld.shared.u8 %v, [%t];
        cvt.u64.u32 %o, %s; add.u64 %a, %x, %o; st.global.u8 [%a], %v;
        add.u32 %s, %s, 64; bra LOOP;
        END: ret;
        """
    else:
        opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{reduce}" if reduce else ""
        opcode = opcode or f"cp.async.bulk.tensor.{rank}d.global.shared::cta"
        body = f"""
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra STORE;
        mov.u32 %t, tile; add.u32 %t, %t, %s; cvt.u64.u32 %o, %s; add.u64 %a, %x, %o;
        ld.global.u8 %v, [%a]; st.shared.u8 [%t], %v;
        add.u32 %s, %s, 64; bra LOOP;
        STORE: fence.proxy.async.shared::cta;
        bar.sync 0;
        @!%first bra END;
        {opcode}.{mode}.bulk_group [%m, {{{coordinates}}}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        END: ret;
        """
    parameters = ".param .align 64 .b8 map[128], .param .u64 x" + "".join(f", .param .s32 c{n}" for n in range(rank))
    registers = f"{REGISTERS} .reg .b32 %c<5>; .reg .b16 %h<3>; .shared .align 8 .b64 bar;"
    registers += f".shared .align 1024 .b8 tile[{nbytes}];"
    return Program.from_ptx(module(head + body, parameters, registers)).entries["k"]


def box_of(array: Array, box: tuple[int, ...], corner: tuple[int, ...], fill: Any = 0) -> Array:
    """The box with its corner at a position, all innermost first, with ``fill`` outside the array."""
    out = np.full(box[::-1], fill, array.dtype)
    for place in itertools.product(*(range(n) for n in box)):
        position = tuple(c + p for c, p in zip(corner, place, strict=True))
        if all(0 <= p < n for p, n in zip(position, array.shape[::-1], strict=True)):
            out[place[::-1]] = array[position[::-1]]
    return out


CASES = [
    ("float32", (40,), (16,), 0),
    ("uint8", (64, 20), (32, 8), 0),
    ("uint16", (64, 20), (64, 9), 128),
    ("uint16", (64, 20), (32, 9), 64),
    ("uint16", (64, 20), (16, 9), 32),
    ("float32", (36, 20), (8, 24), 32),
    ("float32", (32, 20), (16, 3), 64),
    ("uint64", (16, 6, 5), (4, 3, 2), 0),
    ("uint16", (16, 6, 5, 3), (8, 4, 3, 2), 0),
    ("uint8", (32, 4, 3, 2, 3), (16, 3, 2, 2, 2), 0),
]


def tensor(dtype: str, shape: tuple[int, ...]) -> Array:
    return random_bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape[::-1])


def strides(array: Array) -> tuple[int, ...]:
    return array.strides[:-1][::-1]


@pytest.mark.parametrize(("dtype", "shape", "box", "swizzle"), CASES)
def test_tensor_loads(dtype: str, shape: tuple[int, ...], box: tuple[int, ...], swizzle: int) -> None:
    array = tensor(dtype, shape)
    entry = tensor_kernel(len(shape), int(np.prod(box)) * array.itemsize, load=True)
    for corner in box_corners(shape, array.itemsize, 1, RNG, store=False):
        memory = Memory()
        a = memory.upload(array, "a")
        tile = box_of(array, box, corner)
        x = memory.allocate(tile.nbytes, "x")
        tensor_map = TensorMap(a, array.itemsize, shape, strides(array), box, swizzle=swizzle)
        execute(entry, 1, 64, [tensor_map, x, *corner], memory=memory)
        assert np.array_equal(memory.read(x, np.uint8), swizzled(tile.view(np.uint8).ravel(), swizzle)), corner


@pytest.mark.parametrize(("dtype", "shape", "box", "swizzle"), CASES)
def test_tensor_stores_leave_what_is_outside(
    dtype: str, shape: tuple[int, ...], box: tuple[int, ...], swizzle: int
) -> None:
    array = tensor(dtype, shape)
    entry = tensor_kernel(len(shape), int(np.prod(box)) * array.itemsize, load=False)
    for corner in box_corners(shape, array.itemsize, 1, RNG, store=True):
        memory = Memory()
        a = memory.upload(array, "a")
        tile = tensor(dtype, box)
        x = memory.upload(swizzled(tile.view(np.uint8).ravel(), swizzle), "x")
        tensor_map = TensorMap(a, array.itemsize, shape, strides(array), box, swizzle=swizzle)
        execute(entry, 1, 64, [tensor_map, x, *corner], memory=memory)
        expected = array.copy()
        for place in itertools.product(*(range(n) for n in box)):
            position = tuple(c + p for c, p in zip(corner, place, strict=True))
            if all(0 <= p < n for p, n in zip(position, shape, strict=True)):
                expected[position[::-1]] = tile[place[::-1]]
        assert memory.read(a, np.uint8).tobytes() == expected.tobytes(), corner


def test_tensor_reductions() -> None:
    array = RNG.integers(-9, 9, (12, 32)).astype(np.float32)
    tile = RNG.integers(-9, 9, (8, 16)).astype(np.float32)
    memory = Memory()
    a, x = memory.upload(array, "a"), memory.upload(tile, "x")
    tensor_map = TensorMap(a, 4, (32, 12), (128,), (16, 8), element_type="float32")
    execute(tensor_kernel(2, tile.nbytes, load=False, reduce="add"), 1, 64, [tensor_map, x, 8, 2], memory=memory)
    array[2:10, 8:24] += tile
    assert np.array_equal(memory.read(a, np.float32, array.shape), array)


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


def test_rows_may_be_padded() -> None:
    padded = RNG.integers(0, 9, (10, 24)).astype(np.float32)
    memory = Memory()
    a, x = memory.upload(padded, "a"), memory.allocate(16 * 8 * 4, "x")
    execute(
        tensor_kernel(2, 512, load=True), 1, 64, [TensorMap(a, 4, (20, 10), (96,), (16, 8)), x, 8, 4], memory=memory
    )
    expected = np.zeros((8, 16), np.float32)
    expected[:6, :12] = padded[4:10, 8:20]
    assert np.array_equal(memory.read(x, np.float32, (8, 16)), expected)


BULK = (
    DEVICE
    + """
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
"""
)


@pytest.mark.parametrize("seed", range(3))
def test_bulk_copies_there_and_back(seed: int) -> None:
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

CLUSTER = (
    DEVICE
    + """
__device__ unsigned rank() { unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ unsigned at(const void* p, unsigned r) {
    unsigned a;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(address(p)), "r"(r));
    return a;
}
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
"""
)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_a_cluster_reach_each_other(seed: int) -> None:
    memory = Memory()
    x = memory.allocate(8 * 64 * 4, "x")
    execute(compile_cuda(CLUSTER).entries["k"], 8, 32, [x], memory=memory, seed=seed)
    found = memory.read(x, np.int32, (8, 2, 32))
    rank = np.arange(8)[:, None] % 4
    assert np.array_equal(found[:, 0], 100 * ((rank + 1) % 4) + np.arange(32))
    assert np.array_equal(found[:, 1], np.broadcast_to((rank - 1) % 4 + 1, (8, 32)))


MULTICAST = (
    DEVICE
    + """
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
"""
)


@pytest.mark.parametrize("seed", range(3))
def test_multicast(seed: int) -> None:
    array = np.arange(64, dtype=np.float32).reshape(4, 16)
    memory = Memory()
    tensor_map = TensorMap(memory.upload(array, "a"), 4, (16, 4), (64,), (16, 2))
    x = memory.allocate(2 * 64 * 4, "x")
    execute(compile_cuda(MULTICAST).entries["k"], 2, 64, [tensor_map, x], memory=memory, seed=seed)
    assert np.array_equal(memory.read(x, np.float32, (2, 64)), np.stack([array.ravel()] * 2))
