"""wgmma in its shapes, types and shared memory layouts: tiles are laid out here byte by byte."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from asynchronous import swizzled
from emulation import Array, fault_of, module, near_the_ends

from workbench.emulator import Entry, FindingKind, Memory, Program, execute

RNG = np.random.default_rng(99)
DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "b1": np.uint8,
}
LAYOUT = {0: 0, 128: 1, 64: 2, 32: 3}  # of a descriptor, by bytes of the swizzle


def descriptor(leading: int, stride: int, swizzle: int) -> int:
    """All of a matrix descriptor but the address."""
    return leading >> 4 << 16 | stride >> 4 << 32 | LAYOUT[swizzle] << 62


def k_major(matrix: Array, swizzle: int) -> tuple[Array, int]:
    """Bytes in shared memory of a matrix [rows][depth] whose depth is contiguous, and its descriptor."""
    rows = matrix.shape[0]
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, -1)
    width = raw.shape[1]
    if swizzle == 0:  # core matrices of 8 rows of 16 bytes: those of one depth follow one another
        image = raw.reshape(rows, width // 16, 16).transpose(1, 0, 2)
        return image.ravel(), descriptor(rows * 16, 128, 0)
    padded = np.zeros((rows, swizzle), np.uint8)  # one row of the swizzle for one row of the matrix
    padded[:, :width] = raw
    return swizzled(padded.ravel(), swizzle), descriptor(16, 8 * swizzle, swizzle)


def mn_major(matrix: Array, swizzle: int) -> tuple[Array, int]:
    """The same for a matrix [rows][depth] whose rows are contiguous: slabs as wide as the swizzle, 8 deep a block."""
    across = swizzle // matrix.itemsize
    rows, depth = matrix.shape
    slabs = np.ascontiguousarray(matrix.T).reshape(depth, rows // across, across).transpose(1, 0, 2)
    raw = np.ascontiguousarray(slabs).view(np.uint8).ravel()
    return swizzled(raw, swizzle), descriptor(depth * swizzle, 8 * swizzle, swizzle)


@cache
def kernel(shape: str, types: str, accumulators: int, a_bytes: int, b_bytes: int, tail: str, half: bool) -> Entry:
    """One warpgroup: copies both tiles to shared memory, multiplies, adds to what ``c`` holds, and stores registers."""
    registers = ", ".join(f"%d{n}" for n in range(accumulators))
    kind = "b32" if half else "f32"
    from_registers = a_bytes == 0
    a = "{%a0, %a1, %a2, %a3}" if from_registers else "%da"
    load = "" if not from_registers else " ".join(f"ld.global.b32 %a{n}, [%pa+{4 * n}];" for n in range(4))
    text = module(
        f"""
        mov.u32 %i, %tid.x; ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pd, [d];
        mov.u32 %s, %i; mov.u32 %base, tile;
        A: setp.ge.u32 %p, %s, {a_bytes}; @%p bra ADONE;
        cvt.u64.u32 %o, %s; add.u64 %q, %pa, %o; ld.global.u8 %v, [%q]; add.u32 %t, %base, %s; st.shared.u8 [%t], %v;
        add.u32 %s, %s, 128; bra A;
        ADONE: mov.u32 %s, %i;
        B: setp.ge.u32 %p, %s, {b_bytes}; @%p bra BDONE;
        cvt.u64.u32 %o, %s; add.u64 %q, %pb, %o; ld.global.u8 %v, [%q]; add.u32 %t, %base, %s;
        st.shared.u8 [%t+{_up(a_bytes)}], %v;
        add.u32 %s, %s, 128; bra B;
        BDONE: fence.proxy.async.shared::cta; bar.sync 0;
        ld.param.u64 %da, [descriptor_a]; ld.param.u64 %db, [descriptor_b];
        and.b32 %t, %base, 0x3ffff; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %da, %da, %o;
        add.u32 %t, %base, {_up(a_bytes)}; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %db, %db, %o;
        mul.wide.u32 %o, %i, {4 * accumulators}; add.u64 %pd, %pd, %o;
        mul.wide.u32 %o, %i, 16; add.u64 %pa, %pa, %o; {load}
        {" ".join(f"ld.global.b32 %d{n}, [%pd+{4 * n}];" for n in range(accumulators))}
        ld.param.u32 %t, [keep]; setp.ne.u32 %p, %t, 0;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.{shape}.{types} {{{registers}}}, {a}, %db, %p{tail};
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        {" ".join(f"st.global.b32 [%pd+{4 * n}], %d{n};" for n in range(accumulators))}
        ret;
        """,
        ".param .u64 a, .param .u64 b, .param .u64 d, .param .u64 descriptor_a, .param .u64 descriptor_b,"
        ".param .u32 keep",
        f".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b32 %base; .reg .pred %p; .reg .b32 %a<4>;"
        f".reg .b64 %pa; .reg .b64 %pb; .reg .b64 %pd; .reg .b64 %o; .reg .b64 %q; .reg .b64 %da; .reg .b64 %db;"
        f".reg .{kind} %d<{accumulators}>; .shared .align 1024 .b8 tile[{_up(a_bytes) + b_bytes}];",
        directives=".maxntid 128",
    )
    return Program.from_ptx(text).entries["k"]


def _up(nbytes: int) -> int:
    return -(-nbytes // 1024) * 1024


def places(columns: int) -> tuple[Array, Array]:
    """Row and column of each accumulator of each thread."""
    thread, number = np.ogrid[:128, : columns // 2]
    row = thread // 32 * 16 + thread % 32 // 4 + number // 2 % 2 * 8
    return row, number // 4 * 8 + thread % 4 * 2 + number % 2


def random_matrix(name: str, shape: tuple[int, int]) -> Array:
    """Elements; of bits, eight in a byte."""
    if name in ("s8", "u8", "b1"):
        info = np.iinfo(DTYPES[name])
        return RNG.integers(info.min, info.max, shape, endpoint=True).astype(DTYPES[name])
    matrix = RNG.standard_normal(shape).astype(np.float32)
    if name == "tf32":
        matrix = (matrix.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return matrix.astype(DTYPES[name])


def multiply(
    a: Array,
    b: Array,
    start: Array,
    types: str,
    swizzle: int,
    *,
    a_in_registers: bool = False,
    a_transposed: bool = False,
    b_transposed: bool = False,
    keep: bool = True,
    signs: tuple[int, int] = (1, 1),
) -> Array:
    """What one wgmma makes of a [64][depth], b [columns][depth] and, to ``keep``, start [64][columns]."""
    d, a_name, _, *_ = types.split(".")
    columns, depth = b.shape
    a_image, a_descriptor = mn_major(a, swizzle) if a_transposed else k_major(a, swizzle)
    b_image, b_descriptor = mn_major(b, swizzle) if b_transposed else k_major(b, swizzle)
    if a_in_registers:
        per = 4 // a.itemsize
        thread, register, element = np.ogrid[:128, :4, :per]
        row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register & 1)
        a_image = np.ascontiguousarray(a[row, thread % 4 * per + element + (register >> 1) * 4 * per]).view(np.uint8)
    row, column = places(columns)
    half = d == "f16"
    tail = "" if d == "s32" else f", {signs[0]}, {signs[1]}"
    if a_name in ("f16", "bf16"):
        tail += f", {int(b_transposed)}" if a_in_registers else f", {int(a_transposed)}, {int(b_transposed)}"
    entry = kernel(
        f"m64n{columns}k{256 if a_name == 'b1' else depth}",
        types,
        columns // 4 if half else columns // 2,
        0 if a_in_registers else a_image.nbytes,
        b_image.nbytes,
        tail,
        half,
    )
    memory = Memory()
    out = memory.upload(np.ascontiguousarray(start[row, column]).view(np.uint32), "d")
    execute(
        entry,
        1,
        128,
        [memory.upload(a_image, "a"), memory.upload(b_image, "b"), out, a_descriptor, b_descriptor, int(keep)],
        memory=memory,
    )
    found = np.zeros((64, columns), start.dtype)
    found[row, column] = memory.read(out, start.dtype, (128, columns // 2))
    return found


def check(
    columns: int, types: str, swizzle: int, *, keep: bool = True, signs: tuple[int, int] = (1, 1), **layout: bool
) -> None:
    d, a_name, b_name, *end = types.split(".")
    depth = 32 // np.dtype(DTYPES[a_name]).itemsize
    a, b = random_matrix(a_name, (64, depth)), random_matrix(b_name, (columns, depth))
    half = d == "f16"
    if d == "s32":
        start = near_the_ends(RNG, (64, columns), 1 << 16)
    else:
        start = RNG.standard_normal((64, columns)).astype(np.float16 if half else np.float32)
    found = multiply(a, b, start, types, swizzle, keep=keep, signs=signs, **layout)
    if a_name == "b1":
        a, b = np.unpackbits(a, axis=1), np.unpackbits(b, axis=1)
    left, right = a.astype(np.float64) * signs[0], b.astype(np.float64).T * signs[1]
    expected = left @ right + keep * start.astype(np.float64)
    if d == "s32":
        exact = expected.astype(np.int64)
        wanted = np.clip(exact, -(2**31), 2**31 - 1) if end == ["satfinite"] else exact.astype(np.int32)
        assert np.array_equal(found, wanted)
        return
    scale = np.abs(left) @ np.abs(right) + np.abs(start)
    # eight-bit products are accumulated with fewer bits on the hardware; here they need not be
    assert np.all(np.abs(found - expected) <= scale * (2**-10 if half else 2**-20))


@pytest.mark.parametrize(
    "types", ["f32.bf16.bf16", "f32.f16.f16", "f16.f16.f16", "f32.tf32.tf32", "f32.e4m3.e4m3", "f32.e5m2.e4m3"]
)
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_types_and_layouts(types: str, swizzle: int) -> None:
    check(64, types, swizzle)


INTEGERS = [
    *(f"s32.{a}.{b}{end}" for a in ("s8", "u8") for b in ("s8", "u8") for end in ("", ".satfinite")),
    "s32.b1.b1.and.popc",
]


@pytest.mark.parametrize("types", INTEGERS)
def test_integers(types: str) -> None:
    check(24, types, 0)
    check(32, types, 128, keep=False)
    check(8, types, 64, a_in_registers=True)


def test_shapes_of_integers() -> None:
    check(256, "s32.s8.u8", 32)
    with pytest.raises(NotImplementedError, match=r"wgmma\.mma_async\.sync\.aligned\.m64n40k32\.s32\.s8\.s8"):
        check(40, "s32.s8.s8", 0)


@pytest.mark.parametrize("columns", [8, 16, 24, 40, 128, 256])
def test_shapes(columns: int) -> None:
    check(columns, "f32.bf16.bf16", 128)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_transposed_tiles(swizzle: int) -> None:
    check(64, "f32.bf16.bf16", swizzle, b_transposed=True)
    check(128, "f32.f16.f16", swizzle, b_transposed=True)
    check(64, "f32.bf16.bf16", swizzle, a_transposed=True)
    check(64, "f32.bf16.bf16", swizzle, a_transposed=True, b_transposed=True)


@pytest.mark.parametrize("types", ["f32.bf16.bf16", "f32.f16.f16", "f32.tf32.tf32", "f32.e4m3.e4m3"])
def test_left_operand_in_registers(types: str) -> None:
    check(32, types, 128, a_in_registers=True)


def test_scales() -> None:
    check(16, "f32.bf16.bf16", 128, keep=False)
    check(16, "f32.bf16.bf16", 128, signs=(-1, 1))
    check(16, "f32.f16.f16", 128, signs=(-1, -1))


@pytest.mark.parametrize(
    ("types", "layout"),
    [
        *((types, "rows") for types in ("f32.bf16.bf16", "f16.f16.f16", "f32.tf32.tf32", "f32.e5m2.e5m2")),
        ("f32.bf16.bf16", "transposed"),
        ("f32.f16.f16", "registers"),
    ],
)
@pytest.mark.parametrize("special", [0.0, np.inf, np.nan])
@pytest.mark.parametrize("keep", [True, False])
def test_zeros_beyond_the_edge_of_a_matrix(types: str, layout: str, special: float, keep: bool) -> None:
    """Rows of A and columns of B of zeros, of either sign: what is special meets them, and so do sums of -0."""
    d, name, _ = types.split(".")
    depth = 32 // np.dtype(DTYPES[name]).itemsize
    a, b = RNG.integers(-2, 3, (64, depth)), RNG.integers(-2, 3, (64, depth))
    a, b = a.astype(DTYPES[name]), b.astype(DTYPES[name])
    a[20:] = b[16:] = 0
    a[40:] = b[:, 0] = -0.0
    a[2, 1] = a[50, 3] = b[5, 2] = b[37, 0] = special
    start = RNG.choice([-0.0, 0.0, 1.0, -3.0], (64, 64)).astype(np.float16 if d == "f16" else np.float32)
    form = {"a_in_registers": layout == "registers", "b_transposed": layout == "transposed"}
    found = multiply(a, b, start, types, 128, keep=keep, **form)
    with np.errstate(invalid="ignore"):
        product = (a.astype(np.float32)[:, None] * b.astype(np.float32)).sum(-1) + np.float32(0)
    expected = (start if keep else np.zeros_like(start)) + product.astype(start.dtype)
    assert np.array_equal(found, expected, equal_nan=True)
    assert not np.any((np.signbit(found) != np.signbit(expected)) & ~np.isnan(expected))


def pending(body: str, *, kind: FindingKind | None) -> None:
    """Two wgmma, then ``body``: what the launch ends with."""
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{0}}}, %da, %da, 1, 1, 1, 0, 0;"
    text = module(
        f"""
        ld.param.u64 %x, [x]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %x, %x, %o;
        mul.lo.u32 %s, %i, 16; mov.u32 %base, tile; add.u32 %s, %s, %base;
        st.shared.v4.b32 [%s], {{0, 0, 0, 0}};
        st.shared.v4.b32 [%s+2048], {{0, 0, 0, 0}};
        st.shared.v4.b32 [%s+4096], {{0, 0, 0, 0}};
        st.shared.v4.b32 [%s+6144], {{0, 0, 0, 0}};
        fence.proxy.async.shared::cta; bar.sync 0;
        shr.u32 %t, %base, 4; cvt.u64.u32 %da, %t; or.b64 %da, %da, {descriptor(16, 1024, 128)};
        {" ".join(f"mov.f32 %{n}{m}, 0f3F800000;" for n in "ab" for m in range(4))}
        wgmma.fence.sync.aligned;
        {wgmma.format("%a0, %a1, %a2, %a3")}
        wgmma.commit_group.sync.aligned;
        {wgmma.format("%b0, %b1, %b2, %b3")}
        wgmma.commit_group.sync.aligned;
        {body}
        ret;
        """,
        ".param .u64 x",
        ".reg .b64 %x; .reg .b64 %o; .reg .b64 %da; .reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %base;"
        ".reg .f32 %a<4>; .reg .f32 %b<4>; .reg .b16 %h<2>; .shared .align 1024 .b8 tile[8192];",
    )
    memory = Memory()
    x = memory.allocate(512, "x")
    entry = Program.from_ptx(text).entries["k"]
    if kind is not None:
        finding = fault_of(kind, entry, 1, 128, [x], memory=memory)
        assert "wgmma" in finding.other_instruction or "wgmma" in finding.instruction
        return
    execute(entry, 1, 128, [x], memory=memory)
    assert set(memory.read(x, np.float32).tolist()) == {1.0}


WAIT = "wgmma.wait_group.sync.aligned {};"


def test_accumulators_are_promises_until_their_group_was_waited_for() -> None:
    flight = FindingKind.ACCUMULATOR_IN_FLIGHT
    pending(f"{WAIT.format(0)} st.global.f32 [%x], %b0;", kind=None)
    pending(f"{WAIT.format(1)} st.global.f32 [%x], %a0; {WAIT.format(0)}", kind=None)
    pending(f"{WAIT.format(1)} st.global.f32 [%x], %b0; {WAIT.format(0)}", kind=flight)
    pending(f"st.global.f32 [%x], %a3; {WAIT.format(0)}", kind=flight)
    pending(f"mov.f32 %b1, 0f00000000; {WAIT.format(0)} st.global.f32 [%x], %a0;", kind=flight)


def test_accumulators_that_are_split_before_the_wait_are_read_behind_it() -> None:
    """ptxas puts such a mov behind the wait; anything that computes with what it writes has to stand there."""
    split, joined = "mov.b32 {%h0, %h1}, %b0;", "mov.b32 %t, {%h0, %h1};"
    pending(f"{split} {WAIT.format(0)} {joined} st.global.b32 [%x], %t;", kind=None)
    pending(f"{split} {joined} {WAIT.format(0)} st.global.b32 [%x], %t;", kind=None)
    pending(f"{split} cvt.u32.u16 %t, %h0; {WAIT.format(0)}", kind=FindingKind.ACCUMULATOR_IN_FLIGHT)
    pending(f"{split} {joined} st.global.b32 [%x], %t; {WAIT.format(0)}", kind=FindingKind.ACCUMULATOR_IN_FLIGHT)
    pending(f"{split} {WAIT.format(1)} cvt.u32.u16 %t, %h1;", kind=FindingKind.ACCUMULATOR_IN_FLIGHT)


def test_a_warp_that_exits_must_have_waited() -> None:
    pending("", kind=FindingKind.EXITED_WITH_WORK)


def test_tiles_are_in_flight_until_their_group_was_waited_for() -> None:
    pending(f"{WAIT.format(0)} bar.sync 0; st.shared.b32 [%s], %t; st.global.f32 [%x], %b0;", kind=None)
    pending(f"bar.sync 0; st.shared.b32 [%s], %t; {WAIT.format(0)}", kind=FindingKind.IN_FLIGHT)
