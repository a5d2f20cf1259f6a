"""Kernels of ``tcgen05`` in PTX, and what they do to tensor memory in NumPy.

A kernel copies bytes to shared memory, fills tensor memory, lets one thread execute some steps, waits for their commit
and stores what tensor memory then holds. Matrices lie in shared memory as the manual's canonical layouts have them
(PTX ISA 9.1, section 9.7.16), written here from the element's side: where each element goes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.emulator import Report, launch, load

Array = npt.NDArray[Any]

COLUMNS = 128
SWIZZLES = {"none": 0, "128B/32": 1, "128B": 2, "64B": 4, "32B": 6}
KINDS = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}  # K

# bits of an element, and its code in an instruction descriptor
TYPES = {
    "f16": (16, 0), "bf16": (16, 1), "tf32": (32, 2), "u8": (8, 0), "s8": (8, 1), "e4m3": (8, 0), "e5m2": (8, 1),
    "e2m3": (6, 3), "e3m2": (6, 4), "e2m1": (4, 5), "packed": (4, 1),
}  # fmt: skip


def small_float(code: Array, exponent: int, mantissa: int) -> Array:
    """Values of a float of few bits without infinities; e5m2 and e4m3 are only given codes that are numbers."""
    bias = 2 ** (exponent - 1) - 1
    fraction = (code & (2**mantissa - 1)) / 2**mantissa
    power = (code >> mantissa) & (2**exponent - 1)
    value = np.where(power == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (power - float(bias)))
    return np.where(code >> (exponent + mantissa) & 1, -value, value)


def draw(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Codes of elements, and their values: small, so that all sums of products are exact."""
    if dtype in ("f16", "bf16", "tf32"):
        values = rng.integers(-4, 5, shape).astype(np.float32)
        if dtype == "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint32), values
        return (values.view(np.uint32) >> 16 if dtype == "bf16" else values.view(np.uint32)), values
    if dtype in ("u8", "s8"):
        codes = rng.integers(0, 256, shape).astype(np.uint32)
        return codes, codes.astype(np.uint8).astype(np.int64) if dtype == "u8" else codes.astype(np.int8).astype(int)
    exponent, mantissa = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2)}.get(dtype, (2, 1))
    codes = rng.integers(0, 1 << (1 + exponent + mantissa), shape).astype(np.uint32)
    if dtype == "e4m3":
        codes &= 0x97 | 0x20  # of small exponents
    if dtype == "e5m2":
        codes = codes & 0x83 | (codes >> 2 & 3) + 13 << 2
    return codes, small_float(codes, exponent, mantissa)


def rows_of_bytes(codes: Array, dtype: str) -> Array:
    """Bytes of each row: 16 elements of 6 or 4 bits in 16 bytes, those of mxf4 two a byte."""
    bits, _ = TYPES[dtype]
    rows = codes.shape[0]
    if bits in (8, 16, 32):
        return np.ascontiguousarray(codes.astype(f"<u{bits // 8}")).view(np.uint8).reshape(rows, -1)
    stream = (codes[..., None] >> np.arange(bits)) & 1  # lowest bit first
    if dtype == "packed":
        return np.packbits(stream.reshape(rows, -1), axis=1, bitorder="little")
    packed = np.packbits(stream.reshape(rows, -1, 16 * bits), axis=2, bitorder="little")
    return np.pad(packed, ((0, 0), (0, 0), (0, 16 - packed.shape[2]))).reshape(rows, -1)


@dataclass
class Image:
    """A matrix in shared memory: bytes, and its descriptor without the address."""

    data: Array
    descriptor: int


def image_of(codes: Array, dtype: str, swizzle: str = "none", transposed: bool = False) -> Image:
    """Where each element of a matrix [rows][K] goes."""
    bits, _ = TYPES[dtype]
    mode = SWIZZLES[swizzle]
    atom = {0: 16, 1: 128, 2: 128, 4: 64, 6: 32}[mode]
    lines = 4 if mode == 1 else 8
    if transposed:
        fast = np.ascontiguousarray(codes.T.astype(f"<u{bits // 8}")).view(np.uint8)  # [K][bytes along the rows]
    else:
        fast = rows_of_bytes(codes, dtype)
    slow_count, width = fast.shape
    slow, byte = np.meshgrid(np.arange(slow_count), np.arange(width), indexing="ij")
    pieces = -(-width // atom)
    if mode == 0:  # core matrices of 8 x 16 bytes; those along the fast dimension follow one another
        along, across = 128, 128 * pieces
        at = slow % 8 * 16 + slow // 8 * across + byte // 16 * along + byte % 16
        leading, stride = (across, along) if transposed else (along, across)
    else:
        across = atom * lines
        along = across * -(-slow_count // lines)
        at = slow % lines * atom + slow // lines * across + byte // atom * along + byte % atom
        at = at ^ ((at >> 7 & 3) << 5 if mode == 1 else (at >> 7 & atom // 16 - 1) << 4)
        leading, stride = along, across
    data = np.zeros(-(-(int(at.max()) + 1) // 1024) * 1024, np.uint8)
    data[at] = fast
    return Image(data, (leading & 0x3FFFF) >> 4 << 16 | (stride & 0x3FFFF) >> 4 << 32 | 1 << 46 | mode << 61)


TEXT = """
.version 9.0
.target @ARCH@
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 data, .param .u64 start, .param .u64 out)
.maxntid 128 @CLUSTER@
{
.shared .align 8 .b64 bar;
.shared .align 4 .b32 place;
.reg .b32 %w<8>;
.reg .b32 %t, %i, %v, %tm, %lane, %base, %bar, %place, %rank, %c, %slab;
.reg .b16 %both;
.reg .b64 %data, %start, %out, %p, %d<8>;
.reg .pred %q, %first, %zero, %one;
    mov.u32 %t, %tid.x;
    mov.u16 %both, 3;
    mov.u32 %rank, %cluster_ctarank;
    mov.u32 %base, smem;
    mov.u32 %bar, bar;
    mov.u32 %place, place;
    setp.ne.u32 %zero, %t, %t;
    not.pred %one, %zero;
    ld.param.u64 %data, [data];
    ld.param.u64 %start, [start];
    ld.param.u64 %out, [out];
    mad.wide.u32 %data, %rank, @SHARED@, %data;
    mad.wide.u32 %start, %rank, @BYTES@, %start;
    mad.wide.u32 %out, %rank, @BYTES@, %out;
    shl.b32 %i, %t, 2;
$copy:
    setp.ge.u32 %q, %i, @SHARED@;
    @%q bra $copied;
    cvt.u64.u32 %p, %i;
    add.u64 %p, %data, %p;
    ld.global.u32 %v, [%p];
    add.u32 %c, %base, %i;
    st.shared.b32 [%c], %v;
    add.u32 %i, %i, 512;
    bra $copy;
$copied:
    bar.sync 0;
    setp.ge.u32 %q, %t, 32;
    @%q bra $allocated;
    tcgen05.alloc.@GROUP@.sync.aligned.shared::cta.b32 [%place], @ALLOCATED@;
    tcgen05.relinquish_alloc_permit.@GROUP@.sync.aligned;
$allocated:
    setp.eq.u32 %first, %t, 0;
    @%first mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async.shared::cta;
    @SYNC@
    ld.shared.b32 %tm, [%place];
    and.b32 %slab, %t, 96;
    shl.b32 %slab, %slab, 16;
    add.u32 %slab, %slab, %tm;
    mul.wide.u32 %p, %t, @ROW@;
    add.u64 %start, %start, %p;
    add.u64 %out, %out, %p;
    mov.u32 %c, 0;
$fill:
    ld.global.u32 %v, [%start];
    add.u64 %start, %start, 4;
    add.u32 %i, %slab, %c;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%i], {%v};
    add.u32 %c, %c, 1;
    setp.lt.u32 %q, %c, @COLUMNS@;
    @%q bra $fill;
    tcgen05.wait::st.sync.aligned;
@MOVES@
    @SYNC@
    mad.lo.u32 %i, %rank, 1024, %t;
    setp.eq.u32 %first, %i, 0;
    @!%first bra $issued;
@STEPS@
    @TOLD@
$issued:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], 0;
    @!%q bra $issued;
    tcgen05.fence::after_thread_sync;
    mov.u32 %c, 0;
$store:
    add.u32 %i, %slab, %c;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v}, [%i];
    tcgen05.wait::ld.sync.aligned;
    st.global.u32 [%out], %v;
    add.u64 %out, %out, 4;
    add.u32 %c, %c, 1;
    setp.lt.u32 %q, %c, @COLUMNS@;
    @%q bra $store;
    @SYNC@
    setp.ge.u32 %q, %t, 32;
    @%q bra $freed;
    tcgen05.dealloc.@GROUP@.sync.aligned.b32 %tm, @ALLOCATED@;
$freed:
    @LAST@
    ret;
}
"""


def kernel(
    steps: str, *, shared: int, columns: int = COLUMNS, pair: bool = False, arch: str = "sm_100a", moves: str = ""
) -> str:
    """PTX of a kernel (data, start, out) whose first thread executes ``steps`` with %tm, %base and %d0 to %d7.

    Of a pair only the first block's thread does. ``columns`` of tensor memory are filled from ``start`` [128][columns]
    and stored to ``out`` afterwards, those of the second block of a pair behind those of the first. All warps execute
    ``moves``, with the address of their lanes in %slab.
    """
    group = f"cta_group::{2 if pair else 1}"
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if pair else "bar.sync 0;"
    commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    told = f"{commit}.multicast::cluster.b64 [%bar], %both;" if pair else f"{commit}.b64 [%bar];"
    values = {
        "ARCH": arch,
        "CLUSTER": ".reqnctapercluster 2" if pair else "",
        "SHARED": shared,
        "BYTES": 128 * columns * 4,
        "ROW": columns * 4,
        "COLUMNS": columns,
        "ALLOCATED": max(32, columns),
        "GROUP": group,
        "SYNC": f"tcgen05.fence::before_thread_sync; {meet} tcgen05.fence::after_thread_sync;",
        "MOVES": moves,
        "STEPS": steps,
        "TOLD": told,
        "LAST": meet if pair else "",
    }
    return re.sub(r"@([A-Z]+)@", lambda match: str(values[match[1]]), TEXT)


def run(steps: str, data: Array, start: Array | None = None, **options: Any) -> tuple[Report, Array]:
    """The launch, and tensor memory afterwards: [blocks][128][columns] of uint32. ``data``: [blocks][bytes]."""
    blocks = data.shape[0]
    columns = options.get("columns", COLUMNS)
    if start is None:
        start = np.zeros((blocks, 128, columns), np.uint32)
    out = np.zeros((blocks, 128, columns), np.uint32)
    text = kernel(steps, shared=data.shape[1], **options)
    program = load(text, arch=options.get("arch", "sm_100a"))
    result = launch(
        program, "k", blocks, 128, [data.reshape(-1), start.reshape(-1), out.reshape(-1)], shared=data.shape[1],
        cluster=blocks, strict=True, seed=1,
    )  # fmt: skip
    return result, out


def findings(result: Report) -> list[str]:
    """Causes, for a message of an assertion."""
    return [str(finding) for finding in result.findings]


@dataclass
class Product:
    """A product of ``tcgen05.mma``: its matrices, its text and what D is afterwards."""

    kind: str
    a: str
    b: str
    m: int
    n: int
    result: str = "f32"
    swizzle: tuple[str, str] = ("128B", "128B")
    transposed: tuple[bool, bool] = (False, False)
    pair: bool = False
    weights: bool = False
    sparse: bool = False
    in_tensor: bool = False
    accumulate: bool = True
    negated: tuple[bool, bool] = (False, False)
    saturate: bool = False
    shift: int = 0  # scale of D
    disabled: int = 0  # lanes, a bit each
    factors: int = 0  # of a row of K
    fine: bool = False  # ue4m3
    ids: tuple[int, int] = (0, 0)
    arch: str = "sm_100a"

    A_COLUMN, SCALE_COLUMNS, META_COLUMN = 96, (104, 112), 124

    @property
    def descriptor(self) -> int:
        """The instruction descriptor."""
        bits = self.sparse << 2 | TYPES[self.a][1] << 7 | TYPES[self.b][1] << 10
        bits |= self.negated[0] << 13 | self.negated[1] << 14 | self.transposed[0] << 15 | self.transposed[1] << 16
        bits |= self.n // 8 << 17 | self.m // 16 << 24
        if self.factors:
            return bits | self.ids[1] << 4 | self.ids[0] << 29 | (not self.fine) << 23
        return bits | self.saturate << 3 | {"f16": 0, "f32": 1, "s32": 2}[self.result] << 4

    def lanes(self) -> tuple[Array, Array]:
        """Row and column of D [rows of a block][N] as [128][columns]; -1 where there is none."""
        rows, columns = self.m // (2 if self.pair else 1), self.n
        lane, column = np.meshgrid(np.arange(128), np.arange(columns), indexing="ij")
        if rows == 128:
            return lane, column
        if rows == 64 and not self.weights and (self.sparse or not self.pair):
            return np.where(lane % 32 < 16, lane // 32 * 16 + lane % 16, -1), column
        parts = 128 // rows
        row = np.where(column < columns // parts, lane % rows, -1)
        return row, column + lane // rows * (columns // parts)

    def run(self, seed: int = 0) -> tuple[Report, Array, Array]:
        """The launch, tensor memory afterwards, and what it should be."""
        rng = np.random.default_rng(seed)
        blocks, depth = 2 if self.pair else 1, KINDS[self.kind]
        whole = 2 * depth if self.sparse else depth
        a_codes, a = draw(rng, self.a, (self.m, depth))
        b_codes, b = draw(rng, self.b, (self.n, whole))
        rows, columns = self.m // blocks, self.n // blocks
        first = image_of(a_codes[:rows], self.a, self.swizzle[0], self.transposed[0])
        second = image_of(b_codes[:columns], self.b, self.swizzle[1], self.transposed[1])
        data = np.zeros((blocks, first.data.size + second.data.size), np.uint8)
        for block in range(blocks):
            part = a_codes[block * rows : (block + 1) * rows]
            data[block, : first.data.size] = image_of(part, self.a, self.swizzle[0], self.transposed[0]).data
            part = b_codes[block * columns : (block + 1) * columns]
            data[block, first.data.size :] = image_of(part, self.b, self.swizzle[1], self.transposed[1]).data
        start = self.draw_start(rng, blocks)
        row, column = self.lanes()
        if self.in_tensor:
            words = rows_of_bytes(a_codes, self.a).view("<u4").reshape(blocks, rows, -1)
            at = np.where(row[:, 0] >= 0, row[:, 0], 0)
            start[:, :, self.A_COLUMN : self.A_COLUMN + words.shape[2]] = words[:, at]
        if self.sparse:
            a = self.spread(rng, a, start, row, blocks, whole)
        scale = self.draw_scales(rng, start, blocks, whole) if self.factors else np.ones((self.m, self.n, 1))
        groups = scale.shape[2]
        product = np.zeros((self.m, self.n))
        for group in range(groups):
            k = slice(group * whole // groups, (group + 1) * whole // groups)
            product += a[:, k].astype(float) @ b[:, k].astype(float).T * scale[:, :, group]
        product *= -1 if self.negated[0] != self.negated[1] else 1
        result, found = run(self.steps(first, second), data, start, pair=self.pair, arch=self.arch)
        return result, found, self.expected(product, start, row, column, blocks)

    def draw_start(self, rng: np.random.Generator, blocks: int) -> Array:
        values = rng.integers(-8, 9, (blocks, 128, COLUMNS))
        if self.result == "s32":
            return values.astype(np.int32).view(np.uint32)
        if self.result == "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint32)
        return values.astype(np.float32).view(np.uint32)

    def steps(self, first: Image, second: Image) -> str:
        """What the first thread executes."""
        group = 2 if self.pair else 1
        name = f"tcgen05.mma{'.ws' if self.weights else ''}{'.sp' if self.sparse else ''}.cta_group::{group}"
        name += f".kind::{self.kind}"
        if self.factors:
            name += ".block_scale" + (f".scale_vec::{self.factors}X" if self.kind != "mxf8f6f4" else "")
        a = f"[%tm + {self.A_COLUMN}]" if self.in_tensor else "%d0"
        more = ""
        if self.factors:
            more = "".join(f" [%tm + {column}]," for column in self.SCALE_COLUMNS)
        elif self.disabled:
            more = " {" + ", ".join(f"%w{k}" for k in range(4 * group)) + "},"
        meta = f" [%tm + {self.META_COLUMN}]," if self.sparse else ""
        scale = f", {self.shift}" if self.shift else ""
        words = [f"mov.u32 %w{k}, {self.disabled >> 32 * k & 0xFFFFFFFF:#x};" for k in range(8)]
        return f"""
    {" ".join(words)}
    shr.u32 %i, %base, 4;
    cvt.u64.u32 %d0, %i;
    add.u64 %d0, %d0, {first.descriptor:#x};
    add.u32 %i, %base, {first.data.size};
    shr.u32 %i, %i, 4;
    cvt.u64.u32 %d1, %i;
    add.u64 %d1, %d1, {second.descriptor:#x};
    mov.u32 %v, {self.descriptor:#x};
    {name} [%tm], {a}, %d1,{meta} %v,{more} {"%one" if self.accumulate else "%zero"}{scale};
"""

    def spread(self, rng: np.random.Generator, a: Array, start: Array, row: Array, blocks: int, whole: int) -> Array:
        """The elements of a sparse A in their places, which metadata in tensor memory names."""
        bits = TYPES[self.a][0] if self.a != "packed" else 4
        chunk = 2 if bits == 32 else 8 if self.a == "packed" else 4  # elements about which four bits are
        chunks = whole // chunk
        if bits == 32:
            codes = rng.choice([0b0100, 0b1110], (self.m, chunks))
        else:
            codes = rng.choice([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110], (self.m, chunks))
        out = np.zeros((self.m, whole))
        each = max(chunk // 4, 1)
        for r in range(self.m):
            for c in range(chunks):
                places = [codes[r, c] >> 1 & 1] if bits == 32 else [codes[r, c] & 3, codes[r, c] >> 2]
                for number, place in enumerate(places):
                    stored = (c * len(places) + number) * each
                    out[r, c * chunk + place * each : c * chunk + (place + 1) * each] = a[r, stored : stored + each]
        lane_of = {int(r): lane for lane, r in reversed(list(enumerate(row[:, 0]))) if r >= 0}
        start[:, :, self.META_COLUMN : self.META_COLUMN + 4] = 0
        rows = self.m // blocks
        for r in range(self.m):
            lane = lane_of[r % rows]
            for c in range(chunks):
                if bits >= 16:  # lanes 0 to 7 of 16 hold the first half of K of two rows, lanes 8 to 15 the second
                    second = c >= chunks // 2
                    at = lane // 16 * 16 + lane % 8 + 8 * second
                    word, bit = 0, c % (chunks // 2) * 4 + lane // 8 % 2 * 16
                else:
                    at, word, bit = lane, c // 8, c % 8 * 4
                start[r // rows, at, self.META_COLUMN + word] |= np.uint32(int(codes[r, c]) << bit)
        return out

    def draw_scales(self, rng: np.random.Generator, start: Array, blocks: int, whole: int) -> Array:
        """Factors in tensor memory: a byte each, of row r in lane r % 32 of each 32 and column r // 32."""
        groups = self.factors
        scales = []
        for which, (count, column) in enumerate(zip((self.m, self.n), self.SCALE_COLUMNS, strict=True)):
            codes = rng.integers(0x30, 0x40, (count, groups)) if self.fine else rng.integers(125, 130, (count, groups))
            value = small_float(codes, 4, 3) if self.fine else 2.0 ** (codes - 127.0)
            scales.append(value)
            start[:, :, column : column + 8] = rng.integers(0, 2**32, (blocks, 128, 8), dtype=np.uint32)
            for r in range(count):
                owners, local = range(blocks), r
                if which == 0:
                    owners, local = [r // (count // blocks)], r % (count // blocks)
                lanes = range(local % 32, 128, 32)
                if which == 1 and self.pair and self.m == 128:  # each half of the lanes has its half of N
                    local = r % (count // 2)
                    lanes = range(local % 32 + 64 * (r // (count // 2)), 64 + 64 * (r // (count // 2)), 32)
                word = 0
                for group in range(groups):
                    word |= int(codes[r, group]) << 8 * (self.ids[which] + group)
                keep = sum(255 << 8 * (self.ids[which] + group) for group in range(groups)) ^ 0xFFFFFFFF
                for owner in owners:
                    for lane in lanes:
                        cell = start[owner, lane, column + local // 32]
                        start[owner, lane, column + local // 32] = np.uint32(int(cell) & keep | word)
        a, b = scales
        return a[:, None, :] * b[None, :, :]

    def expected(self, product: Array, start: Array, row: Array, column: Array, blocks: int) -> Array:
        """Tensor memory afterwards."""
        out = start.copy()
        rows = self.m // blocks
        for block in range(blocks):
            for lane, c in zip(*np.nonzero(row >= 0), strict=True):
                if self.disabled >> (128 * block + int(lane)) & 1:
                    continue
                cell = start[block, lane, c]
                value = product[block * rows + row[lane, c], column[lane, c]]
                if self.result == "s32":
                    total = int(value) + (int(cell.view(np.int32)) if self.accumulate else 0)
                    if self.saturate:
                        total = max(-(2**31), min(2**31 - 1, total))
                    out[block, lane, c] = np.uint32(total & 0xFFFFFFFF)
                elif self.result == "f16":
                    before = np.uint16(cell & 0xFFFF).view(np.float16) if self.accumulate else 0
                    out[block, lane, c] = np.float16(float(before) * 2.0**-self.shift + value).view(np.uint16)
                else:
                    before = cell.view(np.float32) if self.accumulate else 0
                    out[block, lane, c] = np.float32(float(before) * 2.0**-self.shift + value).view(np.uint32)
        return out
