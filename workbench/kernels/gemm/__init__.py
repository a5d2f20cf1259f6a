"""Matrix product C[m, n] = sum_k A[m, k] B[k, n] (layout `nn`) or B[n, k] (layout `nt`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from hypothesis import strategies as st

from ... import reference
from ...judge import bounds
from ...model.dtypes import BF16, FP16, FP32, dtype_of
from ...model.launch import Array, Launch, Plan, TensorMap, ceil_div
from ...model.operation import Arrays, Cost, Operation, Problem, Size, Tier, element_bytes, extents

SHARED_BYTES = 227 * 1024
"""The most shared memory that a block may have."""


@dataclass(frozen=True)
class GemmProblem(Problem):
    """A: (m, k), B: (k, n) for `nn` or (n, k) for `nt`, C: (m, n); `pad_*` elements lie between the rows of each.

    A and B are of type `dtype`; C is of type `out`: `dtype` or fp32, which is also what accumulates.
    """

    m: int = 1
    n: int = 1
    k: int = 1
    dtype: str = "bf16"
    out: str = "fp32"
    layout: str = "nt"
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0

    extents: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": (BF16.name, FP16.name, FP32.name),
        "out": (BF16.name, FP16.name, FP32.name),
        "layout": ("nn", "nt"),
    }

    @property
    def label(self) -> str:
        out = "" if self.out == self.dtype else f"->{self.out}"
        return f"{self.m}x{self.n}x{self.k} {self.dtype}{out} {self.layout}"

    @property
    def lda(self) -> int:
        """Elements from one row of A to the next."""
        return self.k + self.pad_a

    @property
    def ldb(self) -> int:
        """Elements from one row of B, as stored, to the next."""
        return (self.n if self.layout == "nn" else self.k) + self.pad_b

    @property
    def ldc(self) -> int:
        """Elements from one row of C to the next."""
        return self.n + self.pad_c

    def arrays(self) -> dict[str, Array]:
        dtype = dtype_of(self.dtype)
        b_shape = (self.k, self.n) if self.layout == "nn" else (self.n, self.k)
        return {
            "A": Array((self.m, self.k), dtype, self.lda),
            "B": Array(b_shape, dtype, self.ldb),
            "C": Array((self.m, self.n), dtype_of(self.out), self.ldc, output=True),
        }

    def reference(self, inputs: Arrays) -> Arrays:
        return {"C": reference.gemm(inputs["A"], inputs["B"], trans_b=self.layout == "nt")}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        magnitude = reference.gemm(np.abs(inputs["A"]), np.abs(inputs["B"]), trans_b=self.layout == "nt")
        return {"C": bounds.dot_products(expected["C"], magnitude, self.k, dtype_of(self.out))}

    def wrong_answers(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        a, b, c = inputs["A"].astype(np.float64), inputs["B"].astype(np.float64), expected["C"]
        b = b if self.layout == "nn" else b.T
        wrong = {
            "all zeros": np.zeros_like(c),
            "last k-term dropped": a[:, :-1] @ b[:-1],
            "shifted by one column": np.roll(c, 1, axis=1),
            "last row missing": np.concatenate([c[:-1], np.zeros_like(c[-1:])]),
        }
        if self.m == self.n:
            wrong["transposed"] = c.T
        if self.tier is Tier.BOUNDED and self.k >= 256:
            wrong["fp16 accumulator"] = _fp16_accumulated(a, b)
        return {name: {"C": value} for name, value in wrong.items()}

    @property
    def terms(self) -> int:
        return self.k

    def probe(self, order: np.ndarray) -> Arrays:
        element = np.flatnonzero(order >= 0)
        a, b = np.zeros((self.m, self.k)), np.zeros((self.k, self.n))
        a[element // self.n, order[element]] = 1
        b[order[element], element % self.n] = 1
        dtype = dtype_of(self.dtype).numpy
        return {"A": a.astype(dtype), "B": (b if self.layout == "nn" else b.T).astype(dtype)}

    @property
    def cost(self) -> Cost:
        return Cost(2 * self.m * self.n * self.k, element_bytes(self.arrays().values()))


def _fp16_accumulated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[k]).astype(np.float16)
    return total.astype(np.float64)


def drawn_extents(d: st.DrawFn, size: Size, edges: tuple[int, ...]) -> tuple[int, int, int]:
    """m, n and k of a random product within `size`."""
    m, n, k = (d(extents(size, edges)) for _ in range(3))
    while m * n * k > size.work:  # halve the largest extent: keeps small problems small and shrinks well
        m, n, k = (max(1, x // 2) if x == max(m, n, k) else x for x in (m, n, k))
    return m, n, k


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[GemmProblem]:
    """GEMM problems within `size`; half of them with all leading dimensions a multiple of 8 elements, as TMA needs."""

    @st.composite
    def draw(d: st.DrawFn) -> GemmProblem:
        m, n, k = drawn_extents(d, size, edges)
        dtype = d(st.sampled_from([BF16.name, FP16.name, FP32.name]))
        layout = d(st.sampled_from(["nn", "nt"]))
        aligned = d(st.booleans())
        pads = [0, 0, 0]
        for i, row in enumerate((k, n if layout == "nn" else k, n)):
            pads[i] = (-row % 8 + 8 * d(st.integers(0, 2))) if aligned else d(st.integers(0, 5))
        return GemmProblem(
            m=m,
            n=n,
            k=k,
            dtype=dtype,
            out=d(st.sampled_from(sorted({dtype, FP32.name}))),
            layout=layout,
            pad_a=pads[0],
            pad_b=pads[1],
            pad_c=pads[2],
            seed=d(st.integers(0, 2**16)),
        )

    return draw()


def _suite() -> tuple[GemmProblem, ...]:
    shapes = [(1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3]
    half = [
        GemmProblem(m=m, n=n, k=k, dtype="bf16", out="bf16", layout=layout)
        for m, n, k in shapes
        for layout in ("nt", "nn")
    ]
    half += [
        GemmProblem(m=m, n=n, k=k, dtype="bf16", out="bf16", layout="nt")
        for m, n, k in ((128, 8192, 8192), (4096, 4096, 512))
    ]
    single = [GemmProblem(m=s, n=s, k=s, dtype="fp32", out="fp32", layout="nn") for s in (1024, 4096)]
    return (*half, *single)


MULTIPROCESSORS = 132
"""Of the H200 whose times say which stage is preferred."""


def _tiles_each(p: GemmProblem, block_m: int, block_n: int) -> int:
    """Tiles of C that the busiest multiprocessor computes."""
    return ceil_div(ceil_div(p.m, block_m) * ceil_div(p.n, block_n), MULTIPROCESSORS)


def _fastest_single(p: GemmProblem) -> str:
    """The fastest stage for fp32, of cold medians in microseconds (`reports/nvidia-h200/gemm.md`, `gemm-types.md`).

    At 4096^3 a multiprocessor has 4 tiles of `fp32_pipeline`, in 2,600, or 8 of `warp_tiles`, in 3,096: 5/3 as long a
    tile. So 16 of them should take 20,800 at 8192^3, where 20,689 were measured. At 1024^3 it has one of either: 170
    against 110, and 96 of `smem_tiling`, whose tiles are half as large and still no more than one for each.

    All of these had rows that are multiples of 16 bytes apart, and k from 1024.
    """
    if 5 * _tiles_each(p, 128, 256) < 3 * _tiles_each(p, 128, 128):
        return "fp32_pipeline"
    small = _tiles_each(p, 64, 128) == 1 and p.k >= 1024 and not _tensor_maps(p)
    return "smem_tiling" if small else "warp_tiles"


def _fastest_half(p: GemmProblem) -> str:
    """The fastest stage for bf16, and for fp16 as in the table that ships, of cold medians in microseconds, nt and nn
    (`reports/nvidia-h200/gemm.md`, `gemm-suite.md`). Only C of the same type was timed.

    `streamed`, where more than 64 multiprocessors have one of its tiles and none has two: 10.2 and 10.0 against 12.1
    and 12.2 of `fitted_tiles` at 1024^3, 45.6 against 48.6 at 128x8192x8192; with fewer rows than these 128 there are
    as many tiles, of either stage. At 2048^3, with four tiles for each, 45.0 and 45.3 against 28.9 and 28.7.

    `stream_k`, where some have nine tiles or more, and k from 4096: 1,367 and 1,359 against 1,394 and 1,402 at 8192^3;
    1.00 to 1.04 times as fast as cuBLAS at 6144^3, 4608x14336x4096 and 16384^3, where `multicast`, which the suite had
    before (bc544d2), was 0.98 to 1.02 times as fast. With four tiles it gains nothing: 181.2 and 181.4 against 180.7
    and 181.0 at 4096^3.

    `ping_pong`, which computes one tile while it stores another, for a k that is short: 30.7 against 34.1 at
    4096x4096x512.
    """
    if p.out != p.dtype:
        return "fitted_tiles"
    narrow = ceil_div(p.m, 64 if p.m <= 64 else 128) * ceil_div(p.n, STREAMED_N)
    if 64 < narrow <= 128 and p.k >= 1024:
        return "streamed"
    if _tiles_each(p, 128, 256) >= 9 and p.k >= 4096:
        return "stream_k"
    if ceil_div(p.m, 128) * ceil_div(p.n, 128) >= 1024 and 256 < p.k <= 512:
        return "ping_pong"
    return "fitted_tiles"


def fastest(p: GemmProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    found = _fastest_single(p) if p.dtype == FP32.name else _fastest_half(p)
    return found, "fitted_tiles", "tensor_core", "warp_tiles"


GEMM = Operation(
    name="gemm",
    summary="matrix product C = A B, or A B^T",
    problem=GemmProblem,
    problems=problems,
    suite=_suite(),
    defines=lambda p: {
        "IN": dtype_of(p.dtype).cuda,
        "OUT": dtype_of(p.out).cuda,
        "TRANS_B": int(p.layout == "nt"),
    },
    emulator_size=Size(extent=300, work=96**3),
    cuda_size=Size(extent=1100, work=512**3),
    fastest=fastest,
)


_ODD_C = GemmProblem(m=5, n=9, k=16, dtype="bf16", out="bf16")
"""Rows of A and B start at multiples of 16 bytes, those of C do not."""

_DEEP = (
    GemmProblem(m=70, n=136, k=64 * 13 + 1, dtype="bf16", pad_a=7, pad_b=7),
    GemmProblem(m=130, n=40, k=64 * 13, dtype="fp16", layout="nn"),
)
"""So many slices that a ring of them goes round three times: parities of its barriers come back. The last slice of the
first holds one element of a row."""

_DEEPER = (
    GemmProblem(m=70, n=136, k=64 * 56 + 1, dtype="bf16", pad_a=7, pad_b=7),
    GemmProblem(m=40, n=40, k=64 * 76, dtype="fp16", layout="nn"),
)
"""The same for a ring of smaller slices, of which a step takes two, and which two blocks share."""

_TALL = GemmProblem(m=128 * 17 + 1, n=264, k=8)
"""More rows of tiles than are walked together, and two columns of them."""

_WHOLE = GemmProblem(m=128 * 17, n=512, k=8)
"""The same of whole tiles: nothing is left over at the edges."""

_TALLER = GemmProblem(m=256 * 12 + 1, n=264, k=8)
"""13 rows of pairs of tiles, which are walked as 7 and 6, and two columns of them."""

_LEFT_OVER = tuple(GemmProblem(m=136, n=256 * tiles, k=64 * 6 + 8, seed=48) for tiles in (6, 8, 9))
"""For the five pairs of blocks that the emulator has with this seed, few tiles are left over when each had as many,
then more, then nearly a tile for each."""

_ODD_ROWS = GemmProblem(m=8, n=256, k=8, pad_c=5)
"""Whole tiles of C, in rows that are an odd number of elements apart, 261: no pair of them may be stored at once."""

_INNER = GemmProblem(m=256, n=256, k=64 * 3 + 8, seed=3)
"""A tile of which most slices reach no edge of A or B."""

_NARROW = GemmProblem(m=260, n=34, k=8)
"""More rows than a tile is wide, and fewer columns."""


def _scalars(p: GemmProblem) -> tuple[np.generic, ...]:
    return tuple(np.int32(x) for x in (p.m, p.n, p.k, p.lda, p.ldb, p.ldc))


def _tiles(p: GemmProblem, block_m: int, block_n: int) -> tuple[int, int, int]:
    """A grid with columns of C along x and rows along y."""
    return (ceil_div(p.n, block_n), ceil_div(p.m, block_m), 1)


def _half_only(p: GemmProblem) -> str | None:
    return None if p.dtype != "fp32" else "tensor cores multiply bf16 and fp16 here, not fp32"


def _tensor_maps(p: GemmProblem) -> str | None:
    for name in ("A", "B"):
        if p.arrays()[name].row_stride * dtype_of(p.dtype).itemsize % 16:
            return f"a tensor map needs the rows of {name} a multiple of 16 bytes apart"
    return None


def _tma_and_wgmma(p: GemmProblem) -> str | None:
    return _half_only(p) or _tensor_maps(p)


@GEMM.stage(
    "naive",
    source="gemm/1_naive.cu",
    idea="one thread computes one element of C",
    parameters={"BLOCK_X": 16, "BLOCK_Y": 16},
    alignment=1,
)
def naive(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.m, size["BLOCK_X"]), ceil_div(p.n, size["BLOCK_Y"]), 1)
    return Launch("gemm_naive", grid, (size["BLOCK_X"], size["BLOCK_Y"], 1), ("A", "B", "C", *_scalars(p)))


@GEMM.stage(
    "warp_parallel",
    source="gemm/2_warp_parallel.cu",
    idea="a warp shares the dot products of a small patch of C, its lanes split k",
    parameters={"PATCH_M": 4, "PATCH_N": 8, "WARPS_M": 4, "WARPS_N": 2},
    alignment=1,
)
def warp_parallel(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = _tiles(p, size["WARPS_M"] * size["PATCH_M"], size["WARPS_N"] * size["PATCH_N"])
    threads = 32 * size["WARPS_M"] * size["WARPS_N"]
    return Launch("gemm_warp_parallel", grid, (threads, 1, 1), ("A", "B", "C", *_scalars(p)))


def _smem_tiling_constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    m, n, k = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"]
    threads = (m // size["THREAD_M"]) * (n // size["THREAD_N"])
    if not 64 <= threads <= 512:
        return "a block has 64 to 512 threads"
    if m * k % (threads * 4) or n * k % (threads * 4):
        return "every thread copies the same number of quads of A, and of B"
    return None


@GEMM.stage(
    "smem_tiling",
    source="gemm/3_smem_tiling.cu",
    idea="a block shares tiles of A and B in shared memory, a thread keeps a tile of C in registers",
    parameters={"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 16, "THREAD_M": 8, "THREAD_N": 4},
    space={
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (8, 16, 32),
        "THREAD_M": (4, 8),
        "THREAD_N": (4, 8),
    },
    constraint=_smem_tiling_constraint,
    corners=(_ODD_C,),
)
def smem_tiling(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    threads = (size["BLOCK_M"] // size["THREAD_M"]) * (size["BLOCK_N"] // size["THREAD_N"])
    grid = _tiles(p, size["BLOCK_M"], size["BLOCK_N"])
    return Launch("gemm_smem_tiling", grid, (threads, 1, 1), ("A", "B", "C", *_scalars(p)))


def _tensor_core_shared(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Bytes of the ring."""
    slices = (size["BLOCK_M"] + size["BLOCK_N"]) * size["BLOCK_K"] * dtype_of(p.dtype).itemsize
    return size["STAGES"] * slices


def _tensor_core_constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    m, n, warps = size["BLOCK_M"], size["BLOCK_N"], size["WARPS_M"] * size["WARPS_N"]
    if not 2 <= warps <= 8:
        return "a block has 2 to 8 warps: one copies too few rows at once, 16 have too few registers"
    if m * n > 128 * 32 * warps:
        return "a thread has registers for 128 sums"
    if p.layout == "nn" and 32 * warps < n:
        return "a thread's rows of a slice share one permutation: a slice as wide needs more threads"
    if _tensor_core_shared(p, size) > SHARED_BYTES:
        return "the ring does not fit into shared memory"
    return None


@GEMM.stage(
    "tensor_core",
    source="gemm/4_tensor_core.cu",
    idea="tensor cores (mma.sync) fed by ldmatrix, from slices that cp.async brings ahead of time",
    supports=_half_only,
    parameters={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 3},
    space={
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (64, 128, 256),
        "WARPS_M": (1, 2, 4),
        "WARPS_N": (1, 2, 4),
        "STAGES": (2, 3, 4, 5),
    },
    constraint=_tensor_core_constraint,
    corners=(_ODD_C, _ODD_ROWS, _INNER, _NARROW, *_DEEP),
    architecture=80,
)
def tensor_core(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "gemm_tensor_core",
        _tiles(p, size["BLOCK_M"], size["BLOCK_N"]),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        ("A", "B", "C", *_scalars(p)),
        shared_bytes=_tensor_core_shared(p, size),
    )


def _nt_halves(p: GemmProblem) -> str | None:
    return _half_only(p) or (None if p.layout == "nt" else "B is read along k: layout nt")


def _register_prefetch_constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    if size["WARPS_M"] * size["WARPS_N"] != 8:
        return "a block has eight warps"
    if size["BLOCK_M"] * size["BLOCK_N"] > 128 * 256:
        return "a thread has registers for 128 sums, and for what it loads ahead"
    return None


@GEMM.stage(
    "register_prefetch",
    source="gemm/5_register_prefetch.cu",
    idea="eight warps, and the next slice on its way through registers while the present one is multiplied",
    supports=_nt_halves,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "WARPS_M": 2, "WARPS_N": 4},
    space={"BLOCK_M": (128, 256), "BLOCK_N": (128, 256), "WARPS_M": (2, 4), "WARPS_N": (2, 4)},
    constraint=_register_prefetch_constraint,
    corners=(_ODD_C, _ODD_ROWS, _INNER, _NARROW, *_DEEP[:1]),
    architecture=80,
)
def register_prefetch(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    slices = (size["BLOCK_M"] + size["BLOCK_N"]) * size["BLOCK_K"] * dtype_of(p.dtype).itemsize
    return Launch(
        "gemm_register_prefetch",
        _tiles(p, size["BLOCK_M"], size["BLOCK_N"]),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        ("A", "B", "C", *_scalars(p)),
        shared_bytes=2 * slices,
    )


def _tma_pipeline_shared(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Bytes of the ring, of C on its way out (256 of every row), and of two barriers a slice."""
    slices = (size["BLOCK_M"] + size["BLOCK_N"]) * size["BLOCK_K"] * dtype_of(p.dtype).itemsize
    return size["STAGES"] * (slices + 2 * 8) + size["BLOCK_M"] * 256


GROUPS = (1, 2, 4, 8, 16, 32)
"""Rows of tiles that may be walked together."""


@GEMM.stage(
    "tma_pipeline",
    source="gemm/6_tma_pipeline.cu",
    idea="a producer has TMA fill a ring of slices, two consumer warpgroups have wgmma multiply them in place",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "STAGES": 4, "GROUP_M": 16},
    space={"BLOCK_N": (128, 256), "STAGES": (2, 3, 4, 5, 6), "GROUP_M": GROUPS},
    constraint=lambda p, size: (
        None if _tma_pipeline_shared(p, size) <= SHARED_BYTES else "the ring does not fit into shared memory"
    ),
    corners=(_ODD_C, _TALL, _WHOLE, *_DEEP),
    architecture=90,
)
def tma_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    m, n, k = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"]
    consumers, panel = 2, 128 // dtype_of(p.dtype).itemsize  # warpgroups; columns in the width of the swizzle
    return Launch(
        "gemm_tma_pipeline",
        (ceil_div(p.m, m) * ceil_div(p.n, n), 1, 1),
        (128 * (1 + consumers), 1, 1),
        (
            TensorMap("A", box=(m, k)),
            TensorMap("B", box=(n, k) if p.layout == "nt" else (k, panel)),
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=_tma_pipeline_shared(p, size),
    )


PADDED_C = (
    GemmProblem(m=130, n=257, k=72, dtype="bf16", out="bf16", pad_c=7),
    GemmProblem(m=70, n=200, k=72, dtype="bf16", out="bf16", pad_c=1),
)
"""A TMA store would write beyond the columns of the first C, up to the next 16 bytes; of the second no tensor map can
be made, though its columns end at such a multiple."""


class Product(Protocol):
    """What `lcsf_launch` asks of a problem: C = A B of this layout."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def ldc(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def out(self) -> str: ...
    @property
    def layout(self) -> str: ...


def lcsf_launch(
    p: Product,
    size: Mapping[str, int],
    kernel: str,
    split: int = 1,
    sharing: int = 1,
    consumers: int = 0,
    more: tuple[str, ...] = (),
    promotion: int = 256,
) -> Launch:
    """A cluster of `split` blocks for every tile of C, or of `sharing` blocks for as many tiles one above the other.

    Where C can have no tensor map, one of A stands in, unused. A consumer has 64 rows where their number is not given.
    `more` are arrays that the kernel is given before C. `promotion` is that of the tensor maps of A and B: a row of a
    box is 128 bytes, and what the L2 fetches beyond them is of the next slice, early for it and in the way of this one.
    """
    m, n, k = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"]
    out, warp_rows = dtype_of(p.out).itemsize, 16
    b_box = (n // sharing, k) if p.layout == "nt" else (k, 128 // dtype_of(p.dtype).itemsize)
    return Launch(
        kernel,
        (ceil_div(p.m, m * sharing) * sharing * ceil_div(p.n, n) * split, 1, 1),
        (128 * (1 + (consumers or m // 64)), 1, 1),
        (
            TensorMap("A", box=(m, k), promotion=promotion),
            TensorMap("B", box=b_box, promotion=promotion),
            TensorMap("C", box=(warp_rows, 128 // out)) if p.ldc * out % 16 == 0 else TensorMap("A", box=(m, k)),
            *more,
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=SHARED_BYTES,  # the kernels make of it a ring as deep as it goes
        cluster=(split * sharing, 1, 1),
        persistent=split == 1,
    )


def _lcsf_constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    if size["BLOCK_M"] == 192 and size["BLOCK_N"] == 256:
        return "three consumers have registers for tiles of 128 columns, not for 256"
    return None


@GEMM.stage(
    "persistent",
    source="gemm/7_persistent.cu",
    idea="blocks that stay take one tile after the other; loads and stores of neighbouring tiles overlap",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16},
    space={"BLOCK_M": (128, 192), "BLOCK_N": (128, 256), "GROUP_M": GROUPS},
    constraint=_lcsf_constraint,
    architecture=90,
    corners=(*PADDED_C, _TALL, *_DEEP),
)
def persistent(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return lcsf_launch(p, size, "gemm_persistent")


_MANY_TILES = (GemmProblem(m=8, n=128 * 129, k=72), GemmProblem(m=8, n=128 * 65 + 1, k=136, out="bf16"))
"""So many narrow tiles that `fitted_tiles` takes wide ones, for the first with k in one piece, for the second split."""


def _blocks(p: GemmProblem, size: Mapping[str, int], width: int, split: int) -> int:
    """Blocks at work on tiles of C `width` wide, `split` sharing one; 0 where they are too many or k is too short."""
    blocks = ceil_div(p.m, size["BLOCK_M"]) * ceil_div(p.n, width) * split
    return blocks if blocks <= size["BLOCKS"] and split <= ceil_div(p.k, size["BLOCK_K"]) else 0


@GEMM.stage(
    "split_k",
    source="gemm/8_split_k.cu",
    idea="where tiles are few, clusters of two blocks split k and add up through distributed shared memory",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16, "BLOCKS": 128},
    space={"BLOCK_M": (128, 192), "BLOCK_N": (128, 256), "GROUP_M": GROUPS, "BLOCKS": (64, 128, 256)},
    constraint=_lcsf_constraint,
    architecture=90,
    corners=(*PADDED_C, _TALL, *_DEEP),
    sizes=lambda p, size: {"SPLIT": 2 if _blocks(p, size, size["BLOCK_N"], 2) else 1},
)
def split_k(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return lcsf_launch(p, size, "gemm_split_k", size["SPLIT"])


def _fitted(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    choices = ((256, 1), (256, 2), (128, 1), (128, 2))
    width, split = max(choices, key=lambda c: _blocks(p, size, *c))  # the first of equals
    return {"BLOCK_N": width, "SPLIT": split}


@GEMM.stage(
    "fitted_tiles",
    source="gemm/9_fitted_tiles.cu",
    idea="tiles are as wide as leaves enough of them for the device, k split or not",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_K": 64, "GROUP_M": 16, "BLOCKS": 128, "B_ONCE": 0},
    space={"GROUP_M": GROUPS, "BLOCKS": (64, 128, 256, 512), "B_ONCE": (0, 1)},
    architecture=90,
    corners=(*PADDED_C, _TALL, *_DEEP, *_MANY_TILES),
    sizes=_fitted,
)
def fitted_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return lcsf_launch(p, size, "gemm_fitted_tiles", size["SPLIT"], promotion=128)


@GEMM.stage(
    "multicast",
    source="gemm/10_multicast.cu",
    idea="two blocks of a cluster, one above the other, load half of their slices of B each, for both",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8},
    space={"GROUP_M": GROUPS[:-1]},
    architecture=90,
    corners=(*PADDED_C, _TALLER, *_DEEP),
)
def multicast(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return lcsf_launch(p, size, "gemm_multicast", sharing=2)


def _worth_sharing(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    """To hand over parts of tiles takes as long as some 16 steps. Fewer tiles than any device has multiprocessors are
    never shared out there, and always by the few blocks of the emulator."""
    tiles = ceil_div(p.m, size["BLOCK_M"]) * ceil_div(p.n, size["BLOCK_N"])
    return {"LEAST_GAIN": 0 if tiles <= 64 else 16}


@GEMM.stage(
    "stream_k",
    source="gemm/11_stream_k.cu",
    idea="tiles that do not come out even are computed in parts: blocks share their slices of k evenly",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "BLOCKS": 132},
    space={"GROUP_M": GROUPS[:-1], "BLOCKS": (128, 130, 132)},
    architecture=90,
    corners=(*PADDED_C, _TALLER, *_DEEP, *_LEFT_OVER),
    sizes=_worth_sharing,
)
def stream_k(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    threads, most = 2 * size["BLOCK_M"], size["BLOCKS"]
    whole = lcsf_launch(p, size, "gemm_stream_k", sharing=2, more=("partial", "flags"))
    blocks = min(whole.grid[0], most)
    flags = Array((blocks, threads // 32), FP32, output=True, zero=True)  # 4 bytes each
    partial = Array((blocks, size["BLOCK_M"] * size["BLOCK_N"]), FP32, output=True)
    return Plan((replace(whole, grid=(blocks, 1, 1)),), scratch={"partial": partial, "flags": flags})


@GEMM.stage(
    "ping_pong",
    source="gemm/12_ping_pong.cu",
    idea="consumers take turns on tiles of their own: while one stores, the other multiplies",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 16},
    space={"GROUP_M": GROUPS},
    architecture=90,
    corners=(*PADDED_C, _TALL, *_DEEP),
)
def ping_pong(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return lcsf_launch(p, size, "gemm_ping_pong", consumers=2, promotion=128)


STREAMED_N = 64
"""Columns of the tiles of `streamed`."""


def _streamed(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    heights = (64,) if p.m <= 64 else (128,) if p.m <= 128 else (128, 64)  # one row of tiles reads B once
    choices = [(height, split) for split in (1, 2) for height in heights]

    def blocks(choice: tuple[int, int]) -> int:
        slices = 128 // choice[0]  # of a step
        return _blocks(p, {**size, "BLOCK_M": choice[0], "BLOCK_K": slices * size["BLOCK_K"]}, STREAMED_N, choice[1])

    height, split = max(choices, key=blocks)  # the first of equals
    once, along_k = p.m <= height, p.layout == "nt"
    return {
        "BLOCK_M": height,
        "SPLIT": split,
        "B_ONCE": int(once),
        "A_SLOTS": (5 if height == 64 else 6 if along_k else 8) if once else 0,  # 0: A and B share a ring
        "B_AT_ONCE": 2 if once and along_k and height == 128 else 1,  # 256 bytes of a row of B
        # where B is read row by row, blocks that wait for A together read what lies side by side
        "A_AHEAD": int(once and along_k),
    }


@GEMM.stage(
    "streamed",
    source="gemm/13_streamed.cu",
    idea="for few rows: tiles of 64 or 128 of them, 64 columns wide, B read past the L2, through a ring of its own",
    supports=_tma_and_wgmma,
    parameters={"BLOCK_K": 64, "BLOCKS": 128},
    space={"BLOCKS": (64, 128, 256)},
    architecture=90,
    corners=(
        *PADDED_C,
        *_DEEPER,
        GemmProblem(m=70, n=40, k=64),
        GemmProblem(m=8, n=STREAMED_N * 65 + 1, k=136, out="bf16"),
        GemmProblem(m=70, n=STREAMED_N * 130 + 1, k=136, out="bf16"),
    ),
    sizes=_streamed,
)
def streamed(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    m, n, k, split = size["BLOCK_M"], STREAMED_N, size["BLOCK_K"], size["SPLIT"]
    return Launch(
        "gemm_streamed",
        (ceil_div(p.m, m) * split, ceil_div(p.n, n), 1),
        (128 * 3, 1, 1),
        (
            TensorMap("A", box=(m, k), promotion=128),
            TensorMap("B", box=(n, k), promotion=128),  # BLOCK_K is 64, too
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=SHARED_BYTES,
        cluster=(split, 1, 1),
    )


def _fp32_only(p: GemmProblem) -> str | None:
    return None if p.dtype == "fp32" else f"{p.dtype} is multiplied by tensor cores, in the stages before"


def _warp_tiles_threads(size: Mapping[str, int]) -> int:
    """8 x 4 threads make a warp's tile."""
    return size["BLOCK_M"] // (8 * size["THREAD_M"]) * (size["BLOCK_N"] // (4 * size["THREAD_N"])) * 32


def _warp_tiles_shared(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Bytes of the ring, whose rows are 4 elements apart."""
    return size["STAGES"] * size["BLOCK_K"] * (size["BLOCK_M"] + size["BLOCK_N"] + 2 * 4) * dtype_of(p.dtype).itemsize


def _warp_tiles_constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    m, n, threads = size["BLOCK_M"], size["BLOCK_N"], _warp_tiles_threads(size)
    if m * n > 128 * 256 or size["THREAD_M"] * size["THREAD_N"] > 128 or threads > 512:
        return "the registers of a multiprocessor hold 128 x 256 sums, those of a thread 128"
    if threads < 64:
        return "a block has 64 threads or more: fewer do not hide how long anything takes"
    if threads // size["BLOCK_K"] > min(m, n):
        return "a thread copies at least one element of each slice"
    if _warp_tiles_shared(p, size) > SHARED_BYTES:
        return "the ring does not fit into shared memory"
    return None


@GEMM.stage(
    "warp_tiles",
    source="gemm/14_warp_tiles.cu",
    idea="fp32 on CUDA cores: a warp has a tile of its own, from slices that cp.async brings ahead of time",
    supports=_fp32_only,
    parameters={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "THREAD_M": 8, "THREAD_N": 8, "STAGES": 3},
    space={
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (8, 16, 32),
        "THREAD_M": (4, 8, 16),
        "THREAD_N": (8, 16),
        "STAGES": (2, 3, 4),
    },
    constraint=_warp_tiles_constraint,
    corners=(
        GemmProblem(m=5, n=9, k=16, dtype="fp32"),
        GemmProblem(m=70, n=136, k=32 * 5 + 1, dtype="fp32"),
        GemmProblem(m=5, n=3, k=9, dtype="fp32", layout="nn"),  # rows of B of less than 16 bytes
    ),
    architecture=80,
)
def warp_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "gemm_warp_tiles",
        _tiles(p, size["BLOCK_M"], size["BLOCK_N"]),
        (_warp_tiles_threads(size), 1, 1),
        ("A", "B", "C", *_scalars(p)),
        shared_bytes=_warp_tiles_shared(p, size),
    )


@GEMM.stage(
    "fp32_pipeline",
    source="gemm/15_fp32_pipeline.cu",
    idea="fp32 on the template: three warps turn what TMA brings, eight multiply out of banks that do not collide",
    supports=lambda p: _fp32_only(p) or _tensor_maps(p),
    parameters={"UNROLL": 4, "GROUP_M": 8},
    space={"UNROLL": (4, 8, 16), "GROUP_M": GROUPS},
    corners=(
        GemmProblem(m=5, n=9, k=16, dtype="fp32"),
        GemmProblem(m=130, n=264, k=32 * 9 + 1, dtype="fp32", pad_a=3, pad_b=3),
        GemmProblem(m=5, n=3, k=12, dtype="fp32", layout="nn", pad_b=1),  # rows of B of less than 16 bytes
        GemmProblem(m=128 * 9 + 1, n=257, k=8, dtype="fp32", layout="nn", pad_b=7),  # more rows than walked together
    ),
    architecture=90,
)
def fp32_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "gemm_fp32_pipeline",
        (ceil_div(p.m, 128) * ceil_div(p.n, 256), 1, 1),
        (128 * 3, 1, 1),
        (
            TensorMap("A", box=(128, 32)),
            TensorMap("B", box=(256, 32)) if p.layout == "nt" else TensorMap("B", box=(32, 256), swizzle=0),
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=SHARED_BYTES,
        persistent=True,
    )
