"""Products of a warpgroup: wgmma on operands in shared memory and in registers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from batches import Kernel
from case import Case, case_module
from form import Array
from product_cases import DTYPES, NARROW, SUM_ERROR, as_integers, element_bits, matrix_of, packed
from sparse_cases import chunk_of, draw_taken, expanded, metadata, places_of, selectors
from tile_cases import vector_text

LAYOUT = {0: 0, 128: 1, 64: 2, 32: 3}  # of a descriptor, by bytes of the swizzle


def swizzled(tile: Array, swizzle: int) -> Array:
    """Bytes as they lie in shared memory from an address that is a multiple of 1024."""
    position = np.arange(tile.size)
    pattern = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    out = np.empty_like(tile)
    out[position ^ ((position >> 7) & pattern) << 4] = tile
    return out


def _descriptor(leading: int, stride: int, swizzle: int) -> int:
    return leading >> 4 << 16 | stride >> 4 << 32 | LAYOUT[swizzle] << 62


def _image(matrix: Array, swizzle: int, transposed: bool) -> tuple[Array, int]:
    """Bytes in shared memory of a matrix [rows][depth] and its descriptor without the address."""
    rows, depth = matrix.shape
    if transposed:  # rows are contiguous: slabs as wide as the swizzle
        across = swizzle // matrix.itemsize
        slabs = np.ascontiguousarray(matrix.T).reshape(depth, rows // across, across).transpose(1, 0, 2)
        raw = np.ascontiguousarray(slabs).view(np.uint8).ravel()
        return swizzled(raw, swizzle), _descriptor(depth * swizzle, 8 * swizzle, swizzle)
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, -1)
    width = raw.shape[1]
    if swizzle == 0:  # core matrices of 8 rows of 16 bytes: those of one depth follow one another
        return raw.reshape(rows, width // 16, 16).transpose(1, 0, 2).ravel(), _descriptor(rows * 16, 128, 0)
    slabs = -(-width // swizzle)  # one behind another where the depth has more bytes than the swizzle
    padded = np.zeros((rows, slabs, swizzle), np.uint8)
    padded.reshape(rows, -1)[:, :width] = raw
    leading = 16 if slabs == 1 else rows * swizzle
    return swizzled(padded.transpose(1, 0, 2).ravel(), swizzle), _descriptor(leading, 8 * swizzle, swizzle)


WGMMA = [
    ("f32", "bf16", "bf16"),
    ("f32", "f16", "f16"),
    ("f16", "f16", "f16"),
    ("f32", "tf32", "tf32"),
    *((d, a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f32", "f16")),
]


INTEGERS = [(a, b, d) for a in ("s8", "u8") for b in ("s8", "u8") for d in ("s32", "s32.satfinite")]


def warpgroup_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """wgmma: all widths in a few kernels for each type, layouts, transpositions and signs alternately."""
    widths = list(range(8, 257, 8))
    turn = 0
    for (d, a, b), registers in itertools.product(WGMMA, (False, True)):
        for part in (widths[::4], widths[1::4], widths[2::4], widths[3::4]):
            swizzle = (128, 64, 32, 0)[(turn + turn // 4) % 4]
            whole = turn % 8 >= 4
            yield _Products(d, a, b, part, swizzle, registers, whole=whole).case(rng)
            turn += 1
    some = [n for n in widths if n % 16 == 0 or n < 32]  # of integers
    integers = [*INTEGERS, *[("b1", "b1", "s32.and.popc")] * 2]
    for number, ((a, b, d), registers) in enumerate(itertools.product(integers, (False, True))):
        for part in (some[::2], some[1::2]):
            swizzle = (128, 64, 32, 0)[(number + len(part)) % 4]
            yield _Products(d, a, b, part, swizzle, registers, whole=True).case(rng)
    for (d, a, b), swizzle in itertools.product(WGMMA[:3], (32, 64, 128)):
        for left, right in ((False, True), (True, False), (True, True)):
            yield _Products(d, a, b, [64, 256], swizzle, False, left, right, whole=swizzle == 64).case(rng)
        yield _Products(d, a, b, [64], swizzle, True, False, True, (-1, 1), whole=True).case(rng)
    for (d, a, b), signs in itertools.product(WGMMA[:3], ((-1, 1), (1, -1), (-1, -1))):
        yield _Products(d, a, b, [16, 128], 128, False, False, False, signs, keep=False).case(rng)
    yield from _zeros_beyond_an_edge(rng)


def _zeros_beyond_an_edge(rng: np.random.Generator) -> Iterator[Case]:
    """Rows of A and columns of B of zeros, of either sign: what is special meets them, and so do sums of -0."""
    types = [*(WGMMA[n] for n in (0, 2, 3)), ("f32", "e5m2", "e5m2")]
    forms = [*((t, False, False) for t in types), (WGMMA[0], False, True), (WGMMA[1], True, False)]
    for ((d, kind, _), registers, transposed), special, keep in itertools.product(
        forms, (0.0, np.inf, np.nan), (False, True)
    ):
        products = _Products(d, kind, kind, [64], 128, registers, False, transposed, keep=keep, whole=True)
        a, b = rng.integers(-2, 3, (2, 64, products.depth)).astype(DTYPES[kind])
        a[20:] = b[16:] = 0
        a[40:] = b[:40, 0] = -0.0
        a[2, 1] = a[50, 3] = b[5, 2] = b[37, 0] = special
        yield products.case(rng, (a, b, rng.choice([-0.0, 0.0, 1.0, -3.0], (64, 64)).astype(DTYPES[d])))


def sparse_warpgroup_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """wgmma of a sparse A: all widths, layouts that hold 64 bytes of a row of B, transpositions and selectors."""
    widths = list(range(8, 257, 8))
    some = [n for n in widths if n % 16 == 0 or n < 32]
    kinds = [(d, a, b, widths) for d, a, b in WGMMA] + [(d, a, b, some) for a, b, d in INTEGERS]
    for turn, ((d, a, b, all_widths), registers) in enumerate(itertools.product(kinds, (False, True))):
        for part in range(2):
            swizzle = (128, 64, 0)[(turn + part) % 3]
            whole = (turn // 2 + part) % 2 == 0
            selector = (turn + part) % 2
            yield _Products(
                d, a, b, all_widths[part::2], swizzle, registers, whole=whole, sparse=True, selector=selector
            ).case(rng)
    for (d, a, b), swizzle in itertools.product(WGMMA[:3], (32, 128)):
        for left in (False, True):
            yield _Products(d, a, b, [64, 256], swizzle, False, left, True, (1, -1), sparse=True).case(rng)


@dataclass
class _Products:
    """One warpgroup: the first columns of one B by the same A, once for every width.

    ``d`` may say what follows the types. Elements of A and B in memory are at least bytes: those are eight of single
    bits. Of a ``sparse`` A half of the elements are stored.
    """

    d: str
    a: str
    b: str
    widths: list[int]
    swizzle: int
    registers: bool
    left_transposed: bool = False
    right_transposed: bool = False
    signs: tuple[int, int] = (1, 1)
    keep: bool = True
    whole: bool = False
    sparse: bool = False
    selector: int = 0
    end: str = ""

    def __post_init__(self) -> None:
        self.d, dot, end = self.d.partition(".")
        self.end = dot + end
        self.whole |= self.d == "s32"
        self.selector %= selectors(self.a, self.depth) if self.sparse else 1

    @property
    def stored(self) -> int:
        """Elements of a row of A that are stored."""
        return 256 // element_bits(self.a)

    @property
    def depth(self) -> int:
        return self.stored * (2 if self.sparse else 1)

    @property
    def columns(self) -> int:
        return max(*self.widths, self.swizzle // 2 if self.right_transposed else 0)

    @property
    def of_a_register(self) -> int:
        """Elements of D that a register holds."""
        return 2 if self.d == "f16" else 1

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """A as it is stored, B transposed, and what D begins with."""
        stored = matrix_of(self.a, (64, self.stored), rng, self.whole)
        right = matrix_of(self.b, (self.columns, self.depth), rng, self.whole)
        start = matrix_of(self.d, (64, self.columns), rng, self.whole)
        if self.d == "s32":
            start[::4] = rng.choice([2**31 - 1, -(2**31), 2**31 - 1000], start[::4].shape)
        return stored, right, start

    def case(self, rng: np.random.Generator, given: tuple[Array, Array, Array] | None = None) -> Case:
        """Operands given or drawn, what is to come of them, and the kernel."""
        stored, right, start = given or self.draw(rng)
        taken = draw_taken(self.a, (64, self.depth // chunk_of(self.a)), rng, ordered=False)
        factors = (expanded(stored, places_of(self.a, taken)) if self.sparse else stored, right)
        left, right = (packed(x, self.a) if self.a in NARROW else x for x in (stored, right))
        images = _image(left, self.swizzle, self.left_transposed), _image(right, self.swizzle, self.right_transposed)
        thread, number = np.ogrid[:128, : self.columns // 2]
        rows = thread // 32 * 16 + thread % 32 // 4 + number // 2 % 2 * 8
        places = rows, number // 4 * 8 + thread % 4 * 2 + number % 2
        begin = np.ascontiguousarray(start[places]).view(np.uint32).reshape(128, -1)
        exact, scale = (self.by_width(x[places]) for x in self.product(factors, start))
        if self.d == "s32":
            exact = as_integers(exact, self.end == ".satfinite")
        result = exact.astype(DTYPES[self.d])
        near = {} if self.whole else {4: (scale, max(SUM_ERROR[self.d], SUM_ERROR.get(self.a, 0.0)))}
        registers = _fragments(left)
        if self.sparse:
            said = metadata(self.a, taken.reshape(4, 16, *taken.shape[1:]), self.selector, rng)
            registers = np.concatenate([registers, said], axis=1)
        arguments = [images[0][0], images[1][0], registers, begin, np.zeros_like(result)]
        pieces, operations, offset = self.pieces()
        text = self.text(pieces, images, offset)
        operations += ["wgmma.fence.sync.aligned", "wgmma.commit_group.sync.aligned", "wgmma.wait_group.sync.aligned"]
        return Case(self.name(), operations, Kernel(text, 1, 128, arguments), [None] * 4 + [result], near)

    def name(self) -> str:
        transposed = ", B^T" if self.right_transposed else ""
        how = f"{'registers' if self.registers else 'A^T' if self.left_transposed else 'A'}{transposed}"
        sparse = f".sp selector {self.selector}" if self.sparse else ""
        name = (
            f"wgmma{sparse} k{self.depth} {self.d}.{self.a}.{self.b}{self.end}, "
            f"n {min(self.widths)} to {max(self.widths)}, swizzle {self.swizzle}, {how}, signs {self.signs}"
        )
        return name + (", keep" if self.keep else "") + (", whole numbers" if self.whole else "")

    def product(self, factors: tuple[Array, Array], start: Array) -> tuple[Array, Array]:
        """What D is, and the magnitude of what is added up to it."""
        left, right = (x.astype(np.float64) for x in factors)
        begin = start.astype(np.float64)
        with np.errstate(invalid="ignore"):
            exact = (left * self.signs[0]) @ (right.T * self.signs[1]) + self.keep * begin
            return exact, np.abs(left) @ np.abs(right.T) + np.abs(begin)

    def by_width(self, whole: Array) -> Array:
        """The elements that are stored of D in the order of threads: the first columns, for one width after another."""
        return np.ascontiguousarray(np.concatenate([whole[:, : width // 2] for width in self.widths], axis=1))

    def pieces(self) -> tuple[list[str], list[str], int]:
        """Text of the products, the operations that they are, and bytes that a thread stores."""
        d, at_once = self.d, 4 // self.of_a_register  # registers loaded and stored
        tail = "" if d == "s32" else f", {self.signs[0]}, {self.signs[1]}"
        if self.a in ("f16", "bf16"):
            right = f", {int(self.right_transposed)}"
            tail += right if self.registers else f", {int(self.left_transposed)}{right}"
        left = vector_text("a", 4) if self.registers else "%da"
        said = f", %a4, {self.selector}" if self.sparse else ""
        pieces, operations, offset = [], [], 0
        for width in self.widths:
            count = width // 2 // self.of_a_register
            kind = "wgmma.mma_async.sp" if self.sparse else "wgmma.mma_async"
            name = f"{kind}.sync.aligned.m64n{width}k{self.depth}.{d}.{self.a}.{self.b}{self.end}"
            operations.append(name + (".rs" if self.registers else ""))
            moved = [(n, vector_text("d", at_once, n)) for n in range(0, count, at_once)]
            pieces.append(
                " ".join(f"ld.global.v{at_once}.b32 {vector}, [%pd+{4 * n}];" for n, vector in moved)
                + "wgmma.fence.sync.aligned;"
                + f"{name} {vector_text('d', count)}, {left}, %db{said}, %keep{tail};"
                + "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
                + " ".join(f"st.global.v{at_once}.b32 [%px+{offset + 4 * n}], {vector};" for n, vector in moved)
            )
            offset += 4 * count
        return pieces, operations, offset

    def text(self, pieces: list[str], images: tuple[tuple[Array, int], ...], offset: int) -> str:
        """The kernel: A and B filled into shared memory, their descriptors, and the products."""
        (a_image, a_descriptor), (b_image, b_descriptor) = images
        up = -(-a_image.nbytes // 1024) * 1024
        kept = self.columns // 2 // self.of_a_register
        return case_module(
            f"""
            mov.u32 %i, %tid.x; ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pd, [d];
            ld.param.u64 %px, [x]; mov.u32 %base, tile;
            {_fill("FILL_A", "%pa", 0, a_image.nbytes)} {_fill("FILL_B", "%pb", up, b_image.nbytes)}
            fence.proxy.async.shared::cta; bar.sync 0;
            mov.b64 %da, {a_descriptor}; mov.b64 %db, {b_descriptor};
            and.b32 %t, %base, 0x3ffff; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %da, %da, %o;
            add.u32 %t, %base, {up}; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %db, %db, %o;
            mul.wide.u32 %o, %i, {4 * kept}; add.u64 %pd, %pd, %o;
            mul.wide.u32 %o, %i, {offset}; add.u64 %px, %px, %o;
            ld.param.u64 %q, [fragments]; mul.wide.u32 %o, %i, {16 + 4 * self.sparse}; add.u64 %q, %q, %o;
            {" ".join(f"ld.global.b32 %a{n}, [%q+{4 * n}];" for n in range(4 + self.sparse))}
            setp.ne.u32 %keep, %base, {"-1" if self.keep else "%base"};
            {" ".join(pieces)}
            ret;
            """,
            ".param .u64 a, .param .u64 b, .param .u64 fragments, .param .u64 d, .param .u64 x",
            ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b32 %base; .reg .pred %p; .reg .pred %keep;"
            ".reg .b64 %pa; .reg .b64 %pb; .reg .b64 %pd; .reg .b64 %px; .reg .b64 %o; .reg .b64 %q; .reg .b64 %da;"
            f".reg .b64 %db; .reg .b32 %a<5>; .reg .b32 %d<{kept}>; "
            f".shared .align 1024 .b8 tile[{up + b_image.nbytes}];",
            directives=".maxntid 128",
        )


def _fragments(left: Array) -> Array:
    """A in the registers of each thread."""
    per = 4 // left.itemsize
    thread, register, element = np.ogrid[:128, :4, :per]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register & 1) + 0 * element
    found = np.ascontiguousarray(left[row, thread % 4 * per + element + (register >> 1) * 4 * per]).view(np.uint32)
    return found.reshape(128, 4)


def _fill(label: str, pointer: str, at: int, nbytes: int) -> str:
    """Copies bytes from global memory to a place in the tile."""
    return f"""
    mov.u32 %s, %i;
    {label}: setp.ge.u32 %p, %s, {nbytes // 4}; @%p bra {label}_DONE;
    mul.wide.u32 %o, %s, 4; add.u64 %q, {pointer}, %o; ld.global.b32 %v, [%q];
    shl.b32 %t, %s, 2; add.u32 %t, %t, %base;
    st.shared.b32 [%t+{at}], %v; add.u32 %s, %s, 128; bra {label};
    {label}_DONE:
    """
