"""Which stage of GEMM is preferred for a problem, and which skinny one of few rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...model.dtypes import FP32, dtype_of
from ...model.launch import ceil_div, machine
from ..rows import groups
from .problem import GemmProblem, plain, tensor_maps
from .tiling import clusters_at_once

MOST_IN_CLUSTER = 8
"""Blocks that a cluster may have on every device."""

MOST_ROWS = 8
"""Rows of A that a thread of `thread_columns` has sums of."""


@dataclass(frozen=True)
class Few:
    """The large operand of a product and the vectors that the other one is made of; distances in elements."""

    large: str
    other: str
    along_k: bool
    lines: int
    vectors: int
    stride: int
    x_vector: int
    x_k: int
    c_line: int
    c_vector: int

    @classmethod
    def of(cls, p: GemmProblem) -> Few:
        of_a, of_b = (1, p.lda) if p.trans_a else (p.lda, 1), (p.ldb, 1) if p.trans_b else (1, p.ldb)
        if p.m < p.n:
            return cls("B", "A", p.trans_b, p.n, p.m, p.ldb, *of_a, 1, p.ldc)
        return cls("A", "B", not p.trans_a, p.m, p.n, p.lda, *of_b, p.ldc, 1)


def at_once(p: GemmProblem, few: Few) -> tuple[int, int, int]:
    """Lines, elements of k and vectors that a warp has at once."""
    width = 16 // dtype_of(p.dtype).itemsize
    fewer, most = (4, 8) if p.dtype == FP32.name else (8, 16)  # as there are registers for sums
    return 8 * width, 4 * width, fewer if few.vectors <= fewer else most


def resident(p: GemmProblem, few: Few) -> int:
    """Blocks of 256 threads that a multiprocessor has registers for: two for fp32 whose rows begin anywhere."""
    return 2 if p.dtype == FP32.name and few.stride % 4 else 1


def sharing(p: GemmProblem, size: Mapping[str, int], few: Few) -> tuple[int, int]:
    """Warps of a block, then blocks that share lines: so many that the last block ends first, which has steps of k, and
    START more for loading and adding up. 429 us for 11168x4x12519 of fp32, whose rows begin anywhere, with 8 warps, 340
    with 16; for 4x4376x2080 of fp16, whose rows do not, 20 and 15 the other way round (H200)."""
    lines, k, vectors = at_once(p, few)
    tiles, steps = ceil_div(few.lines, lines) * ceil_div(few.vectors, vectors), ceil_div(p.k, k)

    def ends(parts: int) -> int:
        blocks, split = ceil_div(tiles * parts, size["WARPS"]), max(1, parts // size["WARPS"])
        rounds = ceil_div(blocks, resident(p, few) * clusters_at_once(split) * split)
        return rounds * (ceil_div(steps, parts) + size["START"])

    most = min(steps, size["WARPS"] * MOST_IN_CLUSTER)
    parts = min((1 << power for power in range(most.bit_length())), key=ends)
    share = min(parts, size["WARPS"])
    return share, parts // share


def vectors_of(p: GemmProblem, few: Few) -> tuple[int, bool]:
    """Vectors of 16 bytes that a line has at least, one at least, and whether every line consists of whole ones and
    begins at a multiple of them."""
    width = 16 // dtype_of(p.dtype).itemsize
    return max(1, p.k // width), groups.even(width, p.k, *((few.stride,) if few.lines > 1 else ())) == 1


def line_groups(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    """How threads share the lines of `one_vector`: GROUP of them in blocks of THREADS, or BLOCKS blocks."""
    few = Few.of(p)
    count, even = vectors_of(p, few)
    in_flight = size["UNROLL"] if even else min(3, size["UNROLL"])  # of two vectors of x for each there are registers
    chosen = groups.spread(few.lines, count, in_flight, size["THREADS"], size["RESIDENT"])
    return {**chosen, "IN_FLIGHT": in_flight, "EVEN": int(even)}


STREAMED_N = 64
"""Columns of the tiles of `streamed`."""

NARROW = 16
"""Rows or columns of C up to which a tile of `split_tiles` has no more, and for which `few_vectors` reads the large
operand once."""

PAIRED = 80
"""Tiles of 128 x 256 from which two blocks share what they load: 62 us at 456x8328x4704, with 132 of them, where
`fitted_tiles` took 76; 18 of either at 784x2520x968, with 70 (H100)."""


def mostly_outside(p: GemmProblem, rows: int, columns: int) -> bool:
    """Whether C has at most half of the rows of such a tile, or of its columns."""
    return 2 * p.m <= rows or 2 * p.n <= columns


def _tiles_each(p: GemmProblem, block_m: int, block_n: int) -> int:
    """Tiles of C that the busiest multiprocessor computes."""
    return ceil_div(ceil_div(p.m, block_m) * ceil_div(p.n, block_n), machine().multiprocessors)


def _fastest_general(p: GemmProblem) -> str:
    """The fastest stage for what few stages take: an A that is stored transposed, batches and epilogues. Where nothing
    was timed, it is what the others have."""
    single, alone = p.dtype == FP32.name, not p.batch and not p.has_epilogue
    if alone and min(p.m, p.n) <= NARROW:
        return "few_vectors"
    if single:
        return "fitted_pipeline" if alone and p.m * p.n * p.k >= 2**24 else "split_tiles"
    if p.count * p.m * p.n * p.k <= 2**28:
        return "small_tiles"
    return "realigned" if alone and tensor_maps(p) else "small_tiles" if tensor_maps(p) else "flexible_multicast"


def _fastest_single(p: GemmProblem) -> str:
    """The fastest stage for fp32, of cold medians in microseconds (`reports/nvidia-h200/gemm.md`, `gemm-types.md`, and
    of random products on an H100, `reports/cost-model.json.gz`).

    At 4096^3 a multiprocessor has 4 tiles of `fp32_pipeline`, in 2,600, or 8 of `warp_tiles`, in 3,096. Those of
    `fitted_pipeline` are half as large, or less: 341 at 9305x432x1872, where `fp32_pipeline` took 608 and cuBLAS 355.

    At 808x13480x1 `vectorized` took 18 where `warp_tiles` took 29. What has few products goes to `warp_parallel`. Rows
    that no tensor map takes are not copied where copies would take a good part of the time, nor those of few vectors:
    82 at 4224x3x13559, where no other stage took less than 180, and 67 at 16x5001x4097, where `shifted_pipeline` took
    77. A B whose rows lie along n goes to `thread_columns`: 27 at 1x6395x853 in `shifted_pipeline`, cuBLAS 14 (H200).
    """
    if p.m * p.n * p.k <= 2**17:
        return "warp_parallel"
    if min(p.m, p.n) <= NARROW and (Few.of(p).along_k or not tensor_maps(p)):
        return "few_vectors"
    if p.m <= MOST_ROWS and not p.trans_b:
        return "thread_columns"
    if p.k <= 12 and p.ldc % 4:
        return "short_k"
    if p.k <= 32:
        return "vectorized"
    if tensor_maps(p):
        return "fitted_pipeline" if p.m * p.n * p.k >= 2**30 else "split_warp_tiles"
    if 5 * _tiles_each(p, 128, 256) < 3 * _tiles_each(p, 128, 128):
        return "fp32_pipeline"
    return "fitted_pipeline"


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

    `few_vectors` for few rows or columns, but for 9 to 16 columns `streamed`, whose tiles are as narrow: 71 against 89
    at 7016x16x14792, 64 against 76 at 14816x16x6672; with 13 rows, 44 against 40 at 13x10968x3896.

    What is small goes to stages whose blocks start at once. Of random products (`reports/cost-model.json.gz`),
    `small_tiles` took 1.01 times as long as the fastest stage below 2^26 multiplications and 1.12 times below 2^28,
    `deferred_epilogue` 1.04 times from 2^32 on."""
    if p.m * p.n * p.k <= 2**15:
        return "warp_parallel" if p.trans_b or p.k <= 32 else "small_tiles"
    if min(p.m, p.n) <= NARROW and max(p.m, p.n) * p.k >= 2**20:
        return "streamed" if 8 < p.n <= NARROW and not tensor_maps(p) else "few_vectors"
    if p.m * p.n * p.k <= 2**28 or (tensor_maps(p) and p.k <= 64):
        return "small_tiles"
    if tensor_maps(p):
        return "realigned"
    narrow = ceil_div(p.m, 64 if p.m <= 64 else 128) * ceil_div(p.n, STREAMED_N)
    if p.out == p.dtype and 64 < narrow <= 128 and p.k >= 1024:
        return "streamed"
    if mostly_outside(p, 128, 256):
        return "fitted_tiles"
    if p.out == p.dtype and _tiles_each(p, 128, 256) >= 9 and p.k >= 4096:
        return "stream_k"
    return "deferred_epilogue" if ceil_div(p.m, 128) * ceil_div(p.n, 256) > PAIRED else "fitted_tiles"


def fastest(p: GemmProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    if plain(p):
        # the last for arrays that begin anywhere
        return _fastest_general(p), "flexible_multicast", "small_tiles", "split_tiles", "any_strides"
    found = _fastest_single(p) if p.dtype == FP32.name else _fastest_half(p)
    simt = ("split_tiles", "warp_tiles") if min(p.m, p.n) <= NARROW else ("warp_tiles", "split_tiles")
    # the third is for devices without clusters
    others = "fitted_tiles", "small_tiles", "register_prefetch" if tensor_maps(p) else "cp_async", *simt
    return ("one_vector", found, *others) if min(p.m, p.n) == 1 and p.k >= 32 else (found, *others)
