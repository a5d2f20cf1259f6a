"""Products of a warpgroup: wgmma on operands in shared memory and in registers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from batches import Kernel
from case import Case, case_module
from form import Array
from product_cases import DTYPES, NARROW, SUM_ERROR, as_integers, element_bits, matrix_of, packed
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
    padded = np.zeros((rows, swizzle), np.uint8)
    padded[:, :width] = raw
    return swizzled(padded.ravel(), swizzle), _descriptor(16, 8 * swizzle, swizzle)


WGMMA = [
    ("f32", "bf16", "bf16"),
    ("f32", "f16", "f16"),
    ("f16", "f16", "f16"),
    ("f32", "tf32", "tf32"),
    *((d, a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f32", "f16")),
]


def warpgroup_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """wgmma: all widths in a few kernels for each type, layouts, transpositions and signs by turns."""
    widths = list(range(8, 257, 8))
    turn = 0
    for (d, a, b), registers in itertools.product(WGMMA, (False, True)):
        for part in (widths[::4], widths[1::4], widths[2::4], widths[3::4]):
            swizzle = (128, 64, 32, 0)[(turn + turn // 4) % 4]
            whole = turn % 8 >= 4
            yield _warpgroup_case(d, a, b, part, swizzle, registers, False, False, (1, 1), True, whole, rng)
            turn += 1
    some = [n for n in widths if n % 16 == 0 or n < 32]  # of integers
    integers = [(a, b, d) for a in ("s8", "u8") for b in ("s8", "u8") for d in ("s32", "s32.satfinite")]
    integers += [("b1", "b1", "s32.and.popc")] * 2
    for number, ((a, b, d), registers) in enumerate(itertools.product(integers, (False, True))):
        for part in (some[::2], some[1::2]):
            swizzle = (128, 64, 32, 0)[(number + len(part)) % 4]
            yield _warpgroup_case(d, a, b, part, swizzle, registers, False, False, (1, 1), True, True, rng)
    for (d, a, b), swizzle in itertools.product(WGMMA[:3], (32, 64, 128)):
        for left, right in ((False, True), (True, False), (True, True)):
            yield _warpgroup_case(d, a, b, [64, 256], swizzle, False, left, right, (1, 1), True, swizzle == 64, rng)
        yield _warpgroup_case(d, a, b, [64], swizzle, True, False, True, (-1, 1), True, True, rng)
    for (d, a, b), signs in itertools.product(WGMMA[:3], ((-1, 1), (1, -1), (-1, -1))):
        yield _warpgroup_case(d, a, b, [16, 128], 128, False, False, False, signs, False, False, rng)


def _warpgroup_case(
    d: str,
    a: str,
    b: str,
    widths: list[int],
    swizzle: int,
    registers: bool,
    left_transposed: bool,
    right_transposed: bool,
    signs: tuple[int, int],
    keep: bool,
    whole: bool,
    rng: np.random.Generator,
) -> Case:
    """One warpgroup: the first columns of one B by the same A, once for every width.

    ``d`` may say what follows the types. Elements of A and B here are at least bytes: those are eight of single bits.
    """
    d, dot, end = d.partition(".")
    end = dot + end
    whole |= d == "s32"
    depth, columns = 256 // element_bits(a), max(widths)
    if right_transposed:
        columns = max(columns, swizzle // 2)
    factors = matrix_of(a, (64, depth), rng, whole), matrix_of(b, (columns, depth), rng, whole)
    left, right = (packed(x, a) if a in NARROW else x for x in factors)
    a_image, a_descriptor = _image(left, swizzle, left_transposed)
    b_image, b_descriptor = _image(right, swizzle, right_transposed)
    thread, register, element = np.ogrid[:128, :4, : 4 // left.itemsize]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register & 1) + 0 * element
    per = 4 // left.itemsize
    fragments = np.ascontiguousarray(left[row, thread % 4 * per + element + (register >> 1) * 4 * per]).view(np.uint32)
    start = matrix_of(d, (64, columns), rng, whole)
    if d == "s32":
        start[::4] = rng.choice([2**31 - 1, -(2**31), 2**31 - 1000], start[::4].shape)
    wide = [x.astype(np.float64) for x in factors]
    product = (wide[0] * signs[0]) @ (wide[1].T * signs[1])
    scale = np.abs(wide[0]) @ np.abs(wide[1].T) + np.abs(start.astype(np.float64))
    exact = product + keep * start.astype(np.float64)
    half = d == "f16"
    thread, number = np.ogrid[:128, : columns // 2]
    rows = thread // 32 * 16 + thread % 32 // 4 + number // 2 % 2 * 8
    places = rows, number // 4 * 8 + thread % 4 * 2 + number % 2
    given = np.ascontiguousarray(start[places]).view(np.uint32).reshape(128, -1)
    kept = columns // (4 if half else 2)
    tail = "" if d == "s32" else f", {signs[0]}, {signs[1]}"
    if a in ("f16", "bf16"):
        tail += f", {int(right_transposed)}" if registers else f", {int(left_transposed)}, {int(right_transposed)}"
    at_once = 2 if half else 4  # registers loaded and stored
    step = f"v{at_once}"
    pieces, operations, wanted, sizes = [], [], [], []
    offset = 0
    for width in widths:
        count = width // (4 if half else 2)
        name = f"wgmma.mma_async.sync.aligned.m64n{width}k{depth}.{d}.{a}.{b}{end}"
        operations.append(name + (".rs" if registers else ""))
        vector = vector_text("d", count)
        pieces.append(
            " ".join(
                f"ld.global.{step}.b32 {vector_text('d', at_once, n)}, [%pd+{4 * n}];" for n in range(0, count, at_once)
            )
            + "wgmma.fence.sync.aligned;"
            + f"{name} {vector}, {vector_text('a', 4) if registers else '%da'}, %db, {'%keep'}{tail};"
            + "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
            + " ".join(
                f"st.global.{step}.b32 [%px+{offset + 4 * n}], {vector_text('d', at_once, n)};"
                for n in range(0, count, at_once)
            )
        )
        wanted.append(exact[places][:, : width // 2])
        sizes.append(scale[places][:, : width // 2])
        offset += 4 * count
    up = -(-a_image.nbytes // 1024) * 1024

    def fill(name: str, pointer: str, at: int, nbytes: int) -> str:
        return f"""
        mov.u32 %s, %i;
        {name}: setp.ge.u32 %p, %s, {nbytes // 4}; @%p bra {name}_DONE;
        mul.wide.u32 %o, %s, 4; add.u64 %q, {pointer}, %o; ld.global.b32 %v, [%q];
        shl.b32 %t, %s, 2; add.u32 %t, %t, %base;
        st.shared.b32 [%t+{at}], %v; add.u32 %s, %s, 128; bra {name};
        {name}_DONE:
        """

    text = case_module(
        f"""
        mov.u32 %i, %tid.x; ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pd, [d]; ld.param.u64 %px, [x];
        mov.u32 %base, tile;
        {fill("FILL_A", "%pa", 0, a_image.nbytes)} {fill("FILL_B", "%pb", up, b_image.nbytes)}
        fence.proxy.async.shared::cta; bar.sync 0;
        mov.b64 %da, {a_descriptor}; mov.b64 %db, {b_descriptor};
        and.b32 %t, %base, 0x3ffff; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %da, %da, %o;
        add.u32 %t, %base, {up}; shr.u32 %t, %t, 4; cvt.u64.u32 %o, %t; or.b64 %db, %db, %o;
        mul.wide.u32 %o, %i, {4 * kept}; add.u64 %pd, %pd, %o;
        mul.wide.u32 %o, %i, {offset}; add.u64 %px, %px, %o;
        ld.param.u64 %q, [fragments]; mul.wide.u32 %o, %i, 16; add.u64 %q, %q, %o;
        {" ".join(f"ld.global.b32 %a{n}, [%q+{4 * n}];" for n in range(4))}
        setp.ne.u32 %keep, %base, {"-1" if keep else "%base"};
        {" ".join(pieces)}
        ret;
        """,
        ".param .u64 a, .param .u64 b, .param .u64 fragments, .param .u64 d, .param .u64 x",
        ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b32 %base; .reg .pred %p; .reg .pred %keep;"
        ".reg .b64 %pa; .reg .b64 %pb; .reg .b64 %pd; .reg .b64 %px; .reg .b64 %o; .reg .b64 %q; .reg .b64 %da;"
        f".reg .b64 %db; .reg .b32 %a<4>; .reg .b32 %d<{kept}>; .shared .align 1024 .b8 tile[{up + b_image.nbytes}];",
        directives=".maxntid 128",
    )
    every = np.ascontiguousarray(np.concatenate(wanted, axis=1))
    if d == "s32":
        every = as_integers(every, end == ".satfinite")
    result = every.astype(DTYPES[d])
    near = {}
    if not whole:
        bound = max(SUM_ERROR[d], SUM_ERROR.get(a, 0.0))
        near = {4: (np.concatenate(sizes, axis=1), bound)}
    arguments = [a_image, b_image, fragments.reshape(128, 4), given, np.zeros_like(result)]
    how = f"{'registers' if registers else 'A^T' if left_transposed else 'A'}{', B^T' if right_transposed else ''}"
    types = f"{d}.{a}.{b}{end}"
    name = f"wgmma k{depth} {types}, n {min(widths)} to {max(widths)}, swizzle {swizzle}, {how}, signs {signs}"
    name += (", keep" if keep else "") + (", whole numbers" if whole else "")
    operations += ["wgmma.fence.sync.aligned", "wgmma.commit_group.sync.aligned", "wgmma.wait_group.sync.aligned"]
    return Case(name, operations, Kernel(text, 1, 128, arguments), [None] * 4 + [result], near)
