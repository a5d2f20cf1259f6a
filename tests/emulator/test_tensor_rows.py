"""TMA of a Blackwell GPU: four rows at once, pixels along one dimension, and pairs of blocks."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from warpgroup_cases import swizzled

from workbench.emulator import (
    KernelFault,
    Memory,
    PixelBox,
    Report,
    TensorMap,
    TensorMapOf,
    _engine,
    execute,
    launch,
    load,
)

ROWS, COLUMNS, WIDTH = 40, 64, 32


def kernel(body: str, *, coordinates: int, nbytes: int, blocks: int = 1, arch: str = "sm_100a") -> str:
    """One thread of each block executes ``body`` with %m and %c0 ...; ``out`` receives shared memory of all blocks."""
    return f"""
.version 8.6
.target {arch}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 c, .param .u64 data) .reqntid 32
    .explicitcluster .reqnctapercluster {blocks} {{
    .reg .b32 %c<6>; .reg .b32 %i<8>; .reg .b64 %d<8>; .reg .b64 %m; .reg .pred %p; .reg .pred %first; .reg .pred %even;
    .reg .b16 %h<4>; .reg .b32 %bar; .reg .b32 %to; .reg .b32 %leader;
    .shared .align 1024 .b8 tile[{nbytes}]; .shared .align 8 .b64 bar;
    mov.b64 %m, map; cvta.param.u64 %m, %m; ld.param.u64 %d0, [c]; ld.param.u64 %d1, [data];
    {" ".join(f"ld.global.b32 %c{k}, [%d0+{4 * k}];" for k in range(coordinates))}
    mov.u32 %i0, %tid.x; setp.eq.u32 %first, %i0, 0; mov.u32 %i5, %cluster_ctarank; setp.eq.u32 %even, %i5, 0;
    mul.lo.u32 %i6, %i5, {nbytes}; cvt.u64.u32 %d4, %i6; add.u64 %d1, %d1, %d4;
    mov.u32 %bar, bar; mov.u32 %to, tile;
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    @%first fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    {body}
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    ret;
}}
"""


def wait_and_copy(nbytes: int) -> str:
    return f"""
W: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra W;
    {copy_out(nbytes)}
"""


def copy_out(nbytes: int) -> str:
    return f"""
    mov.u32 %i1, %i0;
L: setp.ge.u32 %p, %i1, {nbytes}; @%p bra E;
    add.u32 %i2, %to, %i1; ld.shared.u8 %i3, [%i2];
    cvt.u64.u32 %d2, %i1; add.u64 %d2, %d2, %d1; st.global.u8 [%d2], %i3;
    add.u32 %i1, %i1, 32; bra L;
E:
"""


def run(text: str, tensor: TensorMapOf, coordinates: list[int], data: np.ndarray, **options: object) -> Report:
    program = load(text, arch=str(options.pop("arch", "sm_100a")))
    blocks = int(options.pop("blocks", 1))
    return launch(
        program, "k", blocks, 32, [tensor, np.array(coordinates, np.int32), data], cluster=blocks, strict=True
    )


def ok(result: Report) -> None:
    assert result.ok, [str(finding) for finding in result.findings]


def rows_of(matrix: np.ndarray, column: int, rows: list[int]) -> np.ndarray:
    """Four rows from a column on, zeros outside."""
    out = np.zeros((4, WIDTH), matrix.dtype)
    for k, row in enumerate(rows):
        for c in range(WIDTH):
            if 0 <= row < ROWS and 0 <= column + c < COLUMNS:
                out[k, c] = matrix[row, column + c]
    return out


PLACES = [(0, [3, 1, 39, 0]), (16, [7, 7, 7, 8]), (48, [5, -1, 40, 2]), (-16, [0, 1, 2, 3])]
BYTES = 4 * WIDTH * 4
COMPLETE = "mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(("place", "swizzle"), list(itertools.product(PLACES, (0, 128))))
@pytest.mark.parametrize("to", ["shared::cluster", "shared::cta"])
def test_gather4_loads_four_rows(to: str, place: tuple[int, list[int]], swizzle: int) -> None:
    matrix = np.random.default_rng(1).integers(0, 2**31, (ROWS, COLUMNS)).astype(np.int32)
    column, rows = place
    names = "%c0, %c1, %c2, %c3, %c4"
    body = f"""
    @!%first bra W;
    cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%m, {{{names}}}];
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {BYTES};
    cp.async.bulk.tensor.2d.{to}.global.tile::gather4.{COMPLETE} [%to], [%m, {{{names}}}], [%bar];
    {wait_and_copy(BYTES)}"""
    found = np.zeros(BYTES, np.uint8)
    text = kernel(body, coordinates=5, nbytes=BYTES)
    ok(run(text, TensorMapOf(matrix, (1, WIDTH), swizzle=swizzle), [column, *rows], found))
    expected = swizzled(rows_of(matrix, column, rows).view(np.uint8).reshape(-1), swizzle)
    assert np.array_equal(found, expected)


def test_gather4_for_several_blocks() -> None:
    """To both blocks, whose bytes both count at the mbarrier of the even one."""
    matrix = np.random.default_rng(2).integers(0, 2**31, (ROWS, COLUMNS)).astype(np.int32)
    for group, expected_bytes in (("", BYTES), (".cta_group::1", BYTES), (".cta_group::2", 2 * BYTES)):
        pair = "2" in group
        waits = "@!%even bra D;" if pair else ""
        body = f"""
    @!%first bra W0;
    {"@!%even bra W0;" if pair else ""}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {expected_bytes};
    @!%even bra W0;
    mov.b16 %h0, 3;
    barrier.cluster.arrive; barrier.cluster.wait;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.{COMPLETE}.multicast::cluster{group}
        [%to], [%m, {{%c0, %c1, %c2, %c3, %c4}}], [%bar], %h0;
    bra W1;
W0: barrier.cluster.arrive; barrier.cluster.wait;
W1: {waits}
W: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra W;
D: barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
    {copy_out(BYTES)}"""
        found = np.zeros(2 * BYTES, np.uint8)
        text = kernel(body, coordinates=5, nbytes=BYTES, blocks=2)
        ok(run(text, TensorMapOf(matrix, (1, WIDTH)), [16, 1, 2, 4, 8], found, blocks=2))
        expected = rows_of(matrix, 16, [1, 2, 4, 8]).view(np.uint8).reshape(-1)
        assert np.array_equal(found, np.tile(expected, 2)), group


REDUCTIONS = ["", *sorted({m[1] for n, _ in _engine.operations() if (m := re.fullmatch(
    r"cp\.reduce\.async\.bulk\.tensor\.2d\.global\.shared\.(\w+)\.tile::scatter4\.bulk_group", n))})]  # fmt: skip
UPDATES = {
    "": lambda old, new: new,
    "add": lambda old, new: old + new,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1).astype(old.dtype),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter4_stores_four_rows(reduction: str) -> None:
    matrix = np.random.default_rng(3).integers(0, 50, (ROWS, COLUMNS)).astype(np.uint32)
    data = np.random.default_rng(4).integers(0, 50, (4, WIDTH)).astype(np.uint32)
    opcode = "cp.async" if not reduction else "cp.reduce.async"
    update = f".{reduction}" if reduction else ""
    body = f"""
    mov.u32 %i1, %i0;
L: setp.ge.u32 %p, %i1, {BYTES}; @%p bra E;
    add.u32 %i2, %to, %i1; cvt.u64.u32 %d2, %i1; add.u64 %d2, %d2, %d1;
    ld.global.u8 %i3, [%d2]; st.shared.u8 [%i2], %i3;
    add.u32 %i1, %i1, 32; bra L;
E:  fence.proxy.async.shared::cta; bar.sync 0;
    @!%first bra D;
    {opcode}.bulk.tensor.2d.global.shared::cta{update}.tile::scatter4.bulk_group
        [%m, {{%c0, %c1, %c2, %c3, %c4}}], [%to];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
D:"""
    expected = matrix.copy()
    rows = [9, 0, 31, 12]
    for k, row in enumerate(rows):
        expected[row, 32:] = UPDATES[reduction](expected[row, 32:], data[k])
    text = kernel(body, coordinates=5, nbytes=BYTES)
    ok(run(text, TensorMapOf(matrix, (1, WIDTH)), [32, *rows], data.reshape(-1).view(np.uint8)))
    assert np.array_equal(matrix, expected)


def test_a_box_of_several_rows_is_refused() -> None:
    matrix = np.zeros((ROWS, COLUMNS), np.int32)
    names = "{%c0, %c1, %c2, %c3, %c4}"
    body = f"@%first cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.{COMPLETE} [%to], [%m, {names}], [%bar];"
    text = kernel(body, coordinates=5, nbytes=4 * BYTES)
    result = run(text, TensorMapOf(matrix, (4, WIDTH)), [0, 0, 1, 2, 3], np.zeros(4, np.uint8))
    assert result.findings[0].code == "descriptor" and "box has 4 rows" in result.findings[0].message


@pytest.mark.parametrize("to", ["shared::cta", "shared::cluster", "multicast"])
@pytest.mark.parametrize("mode", ["im2col::w", "im2col::w::128"])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_pixels_along_one_dimension(rank: int, mode: str, to: str) -> None:
    """Pixels from a place beyond the lower edge on, over the upper one, and of the next image; also with an offset."""
    channels, wide, pixels = 8, 7, 12
    shape = (9, *(3,) * (rank - 3), wide, channels)
    array = np.random.default_rng(5).integers(1, 2**31, shape).astype(np.int32)
    count = 128 if mode.endswith("128") else pixels
    for lower, upper, start, offset in ((0, 0, 0, 0), (-1, -1, 2, 1), (-2, 1, -2, 2)):
        place = [0, start, *(1,) * (rank - 3), 2]
        names = ", ".join(f"%c{k}" for k in range(rank))
        nbytes = count * channels * 4
        many = to == "multicast"
        blocks = 2 if many else 1
        begin = "@!%first bra W;" if not many else "@!%first bra W; @!%even bra W;"
        space, form, mask = ("shared::cluster", ".multicast::cluster.cta_group::1", ", 3") if many else (to, "", "")
        body = f"""
    mov.b16 %h0, 0; mov.b16 %h1, {offset};
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    {begin}
    cp.async.bulk.prefetch.tensor.{rank}d.L2.global.{mode} [%m, {{{names}}}], {{%h0, %h1}};
    cp.async.bulk.tensor.{rank}d.{space}.global.{mode}.{COMPLETE}{form}
        [%to], [%m, {{{names}}}], [%bar], {{%h0, %h1}}{mask};
    {wait_and_copy(nbytes)}"""
        expected = np.zeros((count, channels), np.int32)
        w, image = start + offset, 2
        for k in range(count):
            if 0 <= w < wide and image < shape[0]:
                expected[k] = array[(image, *(1,) * (rank - 3), w)]
            w += 1
            if w >= wide + upper + offset:
                w, image = lower + offset, image + 1
        found = np.zeros(blocks * nbytes, np.uint8)
        tensor = TensorMapOf(array, PixelBox((lower,), (upper,), channels, pixels, wide=True))
        ok(run(kernel(body, coordinates=rank, nbytes=nbytes, blocks=blocks), tensor, place, found, blocks=blocks))
        assert np.array_equal(found, np.tile(expected.reshape(-1).view(np.uint8), blocks))


def test_a_halo_is_refused() -> None:
    tensor = TensorMapOf(np.zeros((2, 8, 8), np.int32), PixelBox((0,), (0,), 8, 4, wide=True))
    body = f"""
    mov.b16 %h0, 1; mov.b16 %h1, 0;
    @%first cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.{COMPLETE} [%to], [%m, {{%c0, %c1, %c2}}], [%bar],
        {{%h0, %h1}};"""
    result = run(kernel(body, coordinates=3, nbytes=256), tensor, [0, 0, 0], np.zeros(4, np.uint8))
    assert result.findings[0].code == "unsupported"


@pytest.mark.parametrize(("mode", "wide"), [("im2col", True), ("im2col::w", False)])
def test_a_map_of_the_other_mode_is_refused(mode: str, wide: bool) -> None:
    tensor = TensorMapOf(np.zeros((2, 8, 8), np.int32), PixelBox((0,), (0,), 8, 4, wide=wide))
    offsets = "{%h0}" if mode == "im2col" else "{%h0, %h1}"
    body = f"""
    mov.b16 %h0, 0; mov.b16 %h1, 0;
    @%first cp.async.bulk.tensor.3d.shared::cluster.global.{mode}.{COMPLETE} [%to], [%m, {{%c0, %c1, %c2}}], [%bar],
        {offsets};"""
    finding = run(kernel(body, coordinates=3, nbytes=256), tensor, [0, 0, 0], np.zeros(4, np.uint8)).findings[0]
    assert finding.code == "descriptor" and ("a wide im2col" if wide else "an im2col") in finding.message


def pair(body: str, waits: str = "@!%even bra D;") -> str:
    """Each block copies a box of its own; both count at the mbarrier of the even block."""
    return kernel(
        f"""
    and.b32 %leader, %bar, 0xFEFFFFFF;
    @!%first bra S;
    @!%even bra S0;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {2 * BYTES};
S0: shl.b32 %i7, %i5, 2; add.u32 %c1, %c1, %i7;
    {body}
S:  {waits}
W:  mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra W;
D:  barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
    {copy_out(BYTES)}""",
        coordinates=2,
        nbytes=BYTES,
        blocks=2,
    )


COPY = f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{COMPLETE}{{}} [%to], [%m, {{{{%c0, %c1}}}}], [{{}}];"


@pytest.mark.parametrize("mask", ["0xFEFFFFFF", "0xFEFFFFF8", "-16777232"])
def test_a_pair_counts_its_bytes_in_one_block(mask: str) -> None:
    matrix = np.random.default_rng(6).integers(0, 2**31, (ROWS, COLUMNS)).astype(np.int32)
    found = np.zeros(2 * BYTES, np.uint8)
    text = pair(COPY.format(".cta_group::2", "%leader")).replace("0xFEFFFFFF", mask)
    ok(run(text, TensorMapOf(matrix, (4, WIDTH)), [16, 8], found, blocks=2))
    assert np.array_equal(found, matrix[8:16, 16:48].copy().reshape(-1).view(np.uint8))


def test_a_barrier_of_the_other_block_needs_the_pair() -> None:
    matrix, found = np.zeros((ROWS, COLUMNS), np.int32), np.zeros(2 * BYTES, np.uint8)
    text = pair(COPY.format("", "%leader"))
    text = text.replace("and.b32 %leader, %bar, 0xFEFFFFFF;", "mapa.shared::cluster.u32 %leader, %bar, 0;")
    result = run(text, TensorMapOf(matrix, (4, WIDTH)), [16, 8], found, blocks=2)
    assert result.findings[0].code == "mbarrier_invalid"
    assert "copies to another block" in result.findings[0].message


def test_the_bytes_of_the_odd_block_are_missed_where_it_counts_its_own() -> None:
    matrix, found = np.zeros((ROWS, COLUMNS), np.int32), np.zeros(2 * BYTES, np.uint8)
    text = pair(COPY.format(".cta_group::2", "%bar"))
    result = run(text, TensorMapOf(matrix, (4, WIDTH)), [16, 8], found, blocks=2)
    assert result.findings[0].code in ("deadlock", "mbarrier_bytes", "exited_with_work")


ATOMS: dict[str, tuple[int, int, int]] = {  # rows that differ, the lowest bit that is exchanged, halves by odd rows
    "128B_ATOM_32B": (3, 5, 0),
    "128B_ATOM_32B_FLIP_8B": (3, 5, 1),
    "128B_ATOM_64B": (1, 6, 0),
}
PACKED = {"16u4_align8b": (4, 0), "16u4_align16b": (4, 8), "16u6_align16b": (6, 4)}  # bits, bytes behind 16 elements


def loaded(
    tensor: TensorMap, memory: Memory, place: tuple[int, int], nbytes: int, counted: int, after: str = ""
) -> bytes:
    """Shared memory after a box has come there, whose bytes are counted."""
    body = f"""
    @!%first bra W;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {counted};
    cp.async.bulk.tensor.2d.shared::cta.global.tile.{COMPLETE} [%to], [%m, {{%c0, %c1}}], [%bar];
    {wait_and_copy(nbytes)} {after}"""
    found = memory.upload(np.zeros(nbytes, np.uint8), "found")
    given = [tensor, memory.upload(np.array(place, np.int32), "c"), found]
    entry = load(kernel(body, coordinates=2, nbytes=nbytes), arch="sm_100a").entries["k"]
    execute(entry, 1, 32, given, memory=memory, cluster=1, strict=True)
    return memory.read(found, np.uint8, (nbytes,)).tobytes()


@pytest.mark.parametrize("swizzle", [0, 128, "128B_ATOM_32B"])
@pytest.mark.parametrize("kind", PACKED)
def test_packed_elements_come_with_their_gaps_and_count_without(kind: str, swizzle: int | str) -> None:
    bits, gap = PACKED[kind]
    row, memory = 256 * bits // 8, Memory()
    matrix = np.random.default_rng(3).integers(0, 256, (5, row)).astype(np.uint8)
    unit = 16 * bits // 8
    tensor = TensorMap(
        *(memory.upload(matrix, "x"), 1 if gap == 0 else unit, (256, 5), (row,), (128, 4)),
        swizzle=swizzle,
        element_type=kind,
    )
    assert tensor.extent == matrix.nbytes and tensor.box_bytes == 4 * 8 * unit
    wanted = np.zeros((4, 8, unit + gap), np.uint8)
    wanted[:3, :, :unit] = matrix[2:, row // 2 :].reshape(3, 8, unit)  # the fourth row is outside
    place = np.arange(wanted.size)
    lines = place >> 7
    place ^= (lines & 7) << 4 if swizzle == 128 else (lines & 3) << 5 if swizzle else 0
    laid = np.empty(wanted.size, np.uint8)
    laid[place] = wanted.reshape(-1)
    assert loaded(tensor, memory, (128, 2), wanted.size, tensor.box_bytes) == laid.tobytes()


@pytest.mark.parametrize("swizzle", ATOMS)
def test_swizzles_exchange_larger_pieces_and_stores_bring_them_back(swizzle: str) -> None:
    rows, lowest, halves = ATOMS[swizzle]
    matrix, memory = np.arange(8 * 128, dtype=np.uint32).astype(np.uint8).reshape(8, 128) ^ 90, Memory()
    matrix[:, ::2] += np.arange(8, dtype=np.uint8)[:, None]
    x = memory.upload(matrix, "x")
    place = np.arange(matrix.size)
    line = place >> 7
    laid = np.empty(matrix.size, np.uint8)
    laid[place ^ (line & rows) << lowest ^ (line & halves) << 3] = matrix.reshape(-1)
    tensor = TensorMap(x, 1, (128, 8), (128,), (128, 8), swizzle=swizzle)
    mirrored = "@!%first bra X; cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {%c1, %c0}], [%to]; "
    mirrored += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; X:"
    before = "fence.proxy.async; "
    assert loaded(tensor, memory, (0, 0), 1024, 1024, before + mirrored) == laid.tobytes()
    assert memory.read(x, np.uint8, (8, 128)).tobytes() == matrix.tobytes()


def test_packed_boxes_begin_at_whole_units_of_16_bytes() -> None:
    memory = Memory()
    x = memory.upload(np.zeros((4, 64), np.uint8), "x")
    tensor = TensorMap(x, 1, (128, 4), (64,), (32, 4), element_type="16u4_align8b")
    for column in (1, 16):
        with pytest.raises(KernelFault) as caught:
            loaded(tensor, memory, (column, 0), 64, 64)
        assert f"copies a box that begins at element {column} of a row" in str(caught.value.finding)
        assert "multiples of 32 elements" in caught.value.finding.advice
