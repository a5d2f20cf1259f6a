"""Matrix product of 8- or 4-bit numbers whose blocks have scales: C = A B^T of numbers times the scale of their block.

Scales lie as cuBLAS and `torch._scaled_mm` take them: in tiles of 128 rows and 4 blocks of a row, the tiles of the same
rows side by side. A tile has 16 bytes for each of 32 rows: the 4 blocks of the row itself, and of the rows 32, 64 and
96 further down. Beyond the rows and blocks of the matrix, a tile holds bytes of zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Array, Arrays
from ..model.calls import Call
from ..model.distributions import WITHOUT_NUMBERS, Distribution, drawn, drawn_pad, largest, st
from ..model.dtypes import BF16, E2M1, E4M3, E8M0, FP32, DType, dtype_of
from ..model.launch import Launch, ceil_div
from ..model.operation import Operation
from ..model.problem import Size, Tier
from ..model.tensor_map import TensorMap
from .gemm import GROUPS, ScaledProduct, drawn_extents, scaled_output, tcgen05
from .shared import check_arrays, row_stride

Values = np.ndarray[Any, Any]

SCALE_ROWS, SCALE_BLOCKS = 128, 4
"""Rows, and blocks of a row, whose scales are a tile."""


class Format(NamedTuple):
    """What numbers and scales are, and how many numbers of a row have a scale."""

    number: DType
    scale: DType
    block: int


FORMATS = {"mxfp8": Format(E4M3, E8M0, 32), "mxfp4": Format(E2M1, E8M0, 32), "nvfp4": Format(E2M1, E4M3, 16)}
"""MX of the Open Compute Project (OCP Microscaling Formats, 1.0), and NVFP4, whose scales have no sign."""


@dataclass(frozen=True)
class BlockScaledProblem(ScaledProduct):
    """A: (m, k) and B: (n, k) of the numbers of a `format`, a_scale and b_scale: tiles of their scales, C: (m, n) of
    type `out`: bf16 or fp32. Rows of A, B and C are at least `pad_*` elements longer than they have to be."""

    m: int = 1
    n: int = 1
    k: int = 1
    format: str = "mxfp8"
    out: str = "bf16"
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"format": tuple(FORMATS), "out": (BF16.name, FP32.name)}

    @property
    def label(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.format}->{self.out}"

    @property
    def types(self) -> Format:
        """Those of its format."""
        return FORMATS[self.format]

    @property
    def dtype(self) -> str:
        """The type of the numbers."""
        return self.types.number.name

    def _row(self, pad: int) -> int:
        packing = self.types.number.packing
        return ceil_div(self.k + pad, packing) * packing

    @property
    def lda(self) -> int:
        """Elements from one row of A to the next: whole bytes."""
        return self._row(self.pad_a)

    @property
    def ldb(self) -> int:
        """Elements from one row of B to the next: whole bytes."""
        return self._row(self.pad_b)

    @property
    def blocks(self) -> int:
        """Of a row."""
        return ceil_div(self.k, self.types.block)

    def arrays(self) -> dict[str, Array]:
        number, scale, _ = self.types

        def tiles(rows: int) -> Array:
            return Array((ceil_div(rows, SCALE_ROWS), ceil_div(self.blocks, SCALE_BLOCKS), 32, 4, SCALE_BLOCKS), scale)

        return {
            "A": Array((self.m, self.k), number, self.lda),
            "B": Array((self.n, self.k), number, self.ldb),
            "a_scale": tiles(self.m),
            "b_scale": tiles(self.n),
            "C": Array((self.m, self.n), dtype_of(self.out), self.ldc, output=True),
        }

    def inputs(self) -> Arrays:
        """Scales are powers of two, those of e4m3 any numbers in the bounded tier. They are the farther from 1 where
        numbers are, and some are NaN, or the smallest, where numbers are."""
        rng, drawn = self.rng(), super().inputs()
        far = self.distribution in (Distribution.SCALED, Distribution.WIDE, Distribution.LARGE, Distribution.OUTLIER)
        for name, rows in (("a_scale", self.m), ("b_scale", self.n)):
            shape = rows, self.blocks
            most = 1 if self.tier is Tier.EXACT else 3 if not far else 24 if self.types.scale is E8M0 else 7
            scales = np.exp2(rng.integers(-most, most + 1, shape))
            if self.types.scale is E4M3 and self.tier is not Tier.EXACT:
                scales *= np.abs(rng.standard_normal(shape))
            if self.distribution in WITHOUT_NUMBERS:
                scales[tuple(rng.integers(0, shape, (2, 2)).T)] = np.nan
            if self.distribution is Distribution.SUBNORMAL and self.tier is not Tier.EXACT:
                scales[tuple(rng.integers(0, shape, (2, 2)).T)] = self.types.scale.smallest
            drawn[name] = tiled(
                np.minimum(scales, largest(self.types.scale)).astype(self.types.scale.numpy), drawn[name].shape
            )
        return drawn

    def reference(self, inputs: Arrays) -> Arrays:
        return {"C": self._product(inputs)}

    def _product(self, inputs: Arrays, **changed: Values) -> Values:
        """`changed` are matrices, and scales row by row."""
        scales = {
            name: untiled(inputs[name], rows, self.blocks) for name, rows in (("a_scale", self.m), ("b_scale", self.n))
        }
        given = {"a": inputs["A"], "b": inputs["B"], **scales, **changed}
        return reference.block_scaled_gemm(**given, block=self.types.block)

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # the products of a block are added up before they are scaled: an error of their sum is scaled as they are
        sizes = {name.lower(): bounds.aligned_magnitudes(inputs[name], self.types.number) for name in "AB"}
        magnitude = self._product(inputs, **sizes)
        return {"C": bounds.dot_products(expected["C"], magnitude, self.k, dtype_of(self.out))}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        c = expected["C"]
        without_last = {name.lower(): inputs[name].copy() for name in "AB"}
        without_last["a"][:, -1] = 0
        shifted = untiled(inputs["a_scale"], self.m, self.blocks)
        wrong = self.wrong_products(c, self._product(inputs, **without_last)) | {
            "blocks of A not scaled": self._product(inputs, a_scale=np.ones((self.m, self.blocks))),
            "blocks of B not scaled": self._product(inputs, b_scale=np.ones((self.n, self.blocks))),
            "scales of the next block": self._product(inputs, a_scale=np.roll(shifted, 1, axis=1)),
        }
        return {name: {"C": value} for name, value in wrong.items()}


def tiled(scales: Values, shape: tuple[int, ...]) -> Values:
    """Scales, (rows, blocks), in the tiles of an array of this shape; bytes of zero beyond them."""
    whole = np.zeros((shape[0] * SCALE_ROWS, shape[1] * SCALE_BLOCKS), np.uint8)
    whole[: scales.shape[0], : scales.shape[1]] = scales.view(np.uint8)
    rows = whole.reshape(shape[0], 4, 32, shape[1], SCALE_BLOCKS)
    return np.ascontiguousarray(rows.transpose(0, 3, 2, 1, 4)).view(scales.dtype)


def untiled(tiles: Values, rows: int, blocks: int) -> Values:
    """The scales of the tiles, (rows, blocks)."""
    return tiles.transpose(0, 3, 2, 1, 4).reshape(tiles.shape[0] * SCALE_ROWS, -1)[:rows, :blocks]


@drawn
def problems(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> BlockScaledProblem:
    """Problems within `size`; half of them with rows of a multiple of 16 bytes, as TMA needs."""
    m, n, k = drawn_extents(d, size, edges)
    kind = d(st.sampled_from(sorted(FORMATS)))
    aligned, step = d(st.booleans()), 16 * FORMATS[kind].number.packing
    if aligned:
        k += k % FORMATS[kind].number.packing
    pads = [drawn_pad(d, row, by, aligned) for row, by in ((k, step), (k, step), (n, 8))]
    return BlockScaledProblem(
        m=m,
        n=n,
        k=k,
        format=kind,
        out=d(st.sampled_from([BF16.name, FP32.name])),
        pad_a=pads[0],
        pad_b=pads[1],
        pad_c=pads[2],
        seed=d(st.integers(0, 2**16)),
    )


# ----------------------------------------------------------------------------------------------------------- the stages


def _defines(p: BlockScaledProblem) -> dict[str, str | int]:
    number, scale, block = p.types
    return {
        **dict.fromkeys(("IN", "SCALE"), "unsigned char"),
        "OUT": dtype_of(p.out).cuda,
        "PACKING": number.packing,
        "BLOCK": block,
        "FINE": int(scale is E4M3),
    }


GEMM_BLOCK_SCALED = Operation(
    name="gemm_block_scaled",
    summary="matrix product C = A B^T of MXFP8, MXFP4 or NVFP4: 8- or 4-bit numbers, with a scale for each block",
    problem=BlockScaledProblem,
    problems=problems,
    suite=tuple(BlockScaledProblem(m=s, n=s, k=s, format=kind) for kind in ("mxfp8", "nvfp4") for s in (4096, 8192)),
    defines=_defines,
    emulator_size=Size(extent=300, work=96**3),
    cuda_size=Size(extent=1100, work=512**3),
)


def _launch(p: BlockScaledProblem, kernel: str, tile: tuple[int, int], block: tuple[int, int, int]) -> Launch:
    """A grid of tiles of so many rows and columns of C."""
    numbers = (np.int32(v) for v in (p.m, p.n, p.k, p.lda, p.ldb, p.ldc))
    grid = (ceil_div(p.n, tile[1]), ceil_div(p.m, tile[0]), 1)
    return Launch(f"gemm_block_scaled_{kernel}", grid, block, ("A", "B", "a_scale", "b_scale", "C", *numbers))


@GEMM_BLOCK_SCALED.stage(
    "naive",
    track="simt",
    idea="one thread computes one element of C, and decodes all numbers by hand",
    parameters={"BLOCK_X": 32, "BLOCK_Y": 8},
    alignment=1,
)
def naive(p: BlockScaledProblem, size: Mapping[str, int]) -> Launch:
    x, y = size["BLOCK_X"], size["BLOCK_Y"]
    return _launch(p, "naive", (y, x), (x, y, 1))


@GEMM_BLOCK_SCALED.stage(
    "decoded_halves",
    track="mma",
    idea="numbers are decoded to fp16 once for a tile; tensor cores multiply a block, which then is scaled",
    alignment=1,
    architecture=80,
)
def decoded_halves(p: BlockScaledProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, "decoded_halves", (64, 64), (128, 1, 1))


def _tma(p: BlockScaledProblem) -> str | None:
    number = p.types.number
    if p.k % number.packing:
        return f"a tensor map has whole bytes of {number}; {p.k} elements are not"
    odd = [name for name, stride in (("A", p.lda), ("B", p.ldb)) if number.nbytes(stride) % 16]
    return f"TMA needs rows that are multiples of 16 bytes apart; those of {' and '.join(odd)} are not" if odd else None


def _scale_bytes(p: BlockScaledProblem, size: Mapping[str, int]) -> int:
    """Bytes of the scales of one row of a k-tile in a tile of scales."""
    return size["BLOCK_K"] * p.types.number.packing // p.types.block


def _tile_launch(p: BlockScaledProblem, size: Mapping[str, int], stage: str, warps: int, buffers: int) -> Launch:
    """A block for each tile of C. It has STAGES k-tiles, and `buffers` of 128 bytes of rows of C on their way out."""
    k_tile = (SCALE_ROWS + size["BLOCK_N"]) * (size["BLOCK_K"] + _scale_bytes(p, size))
    k_tile = ceil_div(k_tile, tcgen05.ATOM_BYTES) * tcgen05.ATOM_BYTES
    shared = size.get("STAGES", 1) * k_tile + buffers * SCALE_ROWS * tcgen05.ROW_BYTES + tcgen05.ATOM_BYTES
    halves = 2 * _scale_bytes(p, size) // SCALE_BLOCKS  # of tiles: a box has 256 elements at most

    def scales(name: str, rows: int) -> TensorMap:
        tiles = p.arrays()[name].shape[:2]
        return TensorMap(name, (rows // SCALE_ROWS, halves, 256), swizzle=0, shape=(tiles[0], 2 * tiles[1], 256))

    more = scales("a_scale", SCALE_ROWS), scales("b_scale", size["BLOCK_N"])
    elements = {**size, "BLOCK_K": size["BLOCK_K"] * p.types.number.packing}
    return tcgen05.tile_launch(p, elements, f"gemm_block_scaled_{stage}", warps, shared, 1, more)


@GEMM_BLOCK_SCALED.stage(
    "tensor_memory",
    track="tcgen05",
    idea="tcgen05 scales the blocks: scales are copied to tensor memory, and products read numbers as they are",
    supports=_tma,
    parameters={"BLOCK_M": SCALE_ROWS, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 16},
    space={"BLOCK_N": (128, 256), "GROUP_M": GROUPS},
    architecture=100,
    specific=True,
    edge_cases=(
        *(BlockScaledProblem(m=130, n=257, k=80, format=kind, pad_a=48, pad_b=48, pad_c=7) for kind in FORMATS),
        BlockScaledProblem(m=70, n=136, k=256 * 5 + 32, format="nvfp4", out="fp32"),
        BlockScaledProblem(m=128 * 17 + 1, n=264, k=32, format="mxfp4", out="fp32"),
    ),
)
def tensor_memory(p: BlockScaledProblem, size: Mapping[str, int]) -> Launch:
    return _tile_launch(p, size, "tensor_memory", 4, 1)


@GEMM_BLOCK_SCALED.stage(
    "tensor_pipeline",
    after=tensor_memory,
    idea="one warp loads k-tiles and scales ahead by TMA, another multiplies them, four store",
    parameters={"BLOCK_M": SCALE_ROWS, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 16, "STAGES": 3},
    space={"BLOCK_N": (128, 256), "GROUP_M": GROUPS, "STAGES": (2, 3)},
)
def tensor_pipeline(p: BlockScaledProblem, size: Mapping[str, int]) -> Launch:
    return _tile_launch(p, size, "tensor_pipeline", 6, 2)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@GEMM_BLOCK_SCALED.function
def gemm_block_scaled(
    a: Any, b: Any, a_scale: Any, b_scale: Any, *, format: str = "mxfp8", out_dtype: Any = None
) -> Call:
    """Matrix product of numbers whose blocks have scales, on the GPU: a times b transposed, each number times the scale
    of its block.

    a: (m, k), b: (n, k), arrays of uint8 that hold the bits of `ml_dtypes.float8_e4m3fn`; or (m, k / 2) and (n, k / 2)
    bytes of two `float4_e2m1fn` each, the first in the lower half. Rows are contiguous, at any distance. a_scale,
    b_scale: uint8, contiguous, of any shape: tiles of 128 rows and 4 blocks, as `torch._scaled_mm` takes them; beyond
    the last row and block they hold 0. `format`: `mxfp8` or `mxfp4`, with a scale `float8_e8m0fnu` for 32 numbers of a
    row, or `nvfp4`, with a `float8_e4m3fn` for 16. Returns (m, n) of `out_dtype`: bfloat16 (default) or float32. Raises
    TypeError and ValueError like `gemm`."""
    check_arrays("gemm_block_scaled", [np.dtype(np.uint8)], a=a, b=b, a_scale=a_scale, b_scale=b_scale)
    if format not in FORMATS:
        raise ValueError(f"gemm_block_scaled: format is {format!r}; it has to be one of {', '.join(FORMATS)}")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or 0 in a.shape or 0 in b.shape:
        raise ValueError(
            f"gemm_block_scaled: a has shape {a.shape} and b {b.shape}; they have to be (m, k) and (n, k), or of 4-bit "
            "numbers (m, k / 2) and (n, k / 2), none of them 0"
        )
    out = scaled_output("gemm_block_scaled", out_dtype)
    packing = FORMATS[format].number.packing
    pads = ((row_stride("gemm_block_scaled", name, x) - x.shape[1]) * packing for name, x in (("a", a), ("b", b)))
    fields = dict(zip(("pad_a", "pad_b"), pads, strict=True))
    problem = BlockScaledProblem(
        m=a.shape[0], n=b.shape[0], k=a.shape[1] * packing, format=format, out=out.name, **fields
    )
    arrays = problem.arrays()
    for name, scales in (("a_scale", a_scale), ("b_scale", b_scale)):
        if not scales.contiguous or scales.span != arrays[name].nbytes:
            raise ValueError(
                f"gemm_block_scaled: {name} has shape {scales.shape} and strides {scales.strides}; it has to have "
                f"{arrays[name].nbytes} bytes without gaps: 512 for every 128 rows and 4 blocks of a row"
            )
    return Call(problem, {"A": a, "B": b, "a_scale": a_scale, "b_scale": b_scale})


# --------------------------------------------------------------------------------- what the stages are measured against


@GEMM_BLOCK_SCALED.baseline("NumPy", requires="numpy")
def numpy(p: BlockScaledProblem, A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    def scaled(x: Any, scale: Any) -> Any:
        return x * np.repeat(untiled(scale, len(x), p.blocks), p.types.block, axis=1)[:, : p.k]

    return scaled(A, a_scale) @ scaled(B, b_scale).T
