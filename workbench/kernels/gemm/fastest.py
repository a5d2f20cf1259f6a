"""Which stage of GEMM is preferred for a problem."""

from __future__ import annotations

from ...model.dtypes import FP32
from ...model.launch import ceil_div
from .problem import GemmProblem, tensor_maps

MULTIPROCESSORS = 132
"""Of the H200 whose times say which stage is preferred."""

STREAMED_N = 64
"""Columns of the tiles of `streamed`."""

NARROW = 16
"""Rows or columns of C up to which a tile of `split_tiles` has no more, and for which `few_vectors` reads the large
operand once."""

FEW_TILES = 96
"""Of 128 rows and columns: fewer leave more of the device idle than larger tiles gain."""


def _tiles_each(p: GemmProblem, block_m: int, block_n: int) -> int:
    """Tiles of C that the busiest multiprocessor computes."""
    return ceil_div(ceil_div(p.m, block_m) * ceil_div(p.n, block_n), MULTIPROCESSORS)


def _over_at_once(p: GemmProblem) -> bool:
    """Whether `warp_parallel` has read all of k with one load or two of each lane."""
    return p.dtype == FP32.name and p.k <= 64 and p.m * p.n * p.k <= 2**19


def _fastest_single(p: GemmProblem) -> str:
    """The fastest stage for fp32, of cold medians in microseconds (`reports/nvidia-h200/gemm.md`, `gemm-types.md`).

    At 4096^3 a multiprocessor has 4 tiles of `fp32_pipeline`, in 2,600, or 8 of `warp_tiles`, in 3,096: 5/3 as long a
    tile. So 16 of them should take 20,800 at 8192^3, where 20,689 were measured. At 1024^3 it has one of either: 170
    against 110, and 96 of `vectorized`, whose tiles are half as large and still no more than one for each.

    All of these had rows that are multiples of 16 bytes apart, and k from 1024. Where tiles of 128 rows and columns
    leave a part of the device idle, or C is narrow, `split_tiles` is faster, on an H100 (commit b97bfe4): 90 against
    94 of `vectorized` at 1000^3, 559 against 1,247 at 325x944x13417, 19 against 63 of `warp_parallel` at 480x18x3896.
    What is over at once, `warp_parallel` takes: 6 against 11 at 64x48x80.
    """
    if p.m * p.n * p.k <= 2**19:
        return "warp_parallel"
    tiles = ceil_div(p.m, 64) * ceil_div(p.n, 128)
    if MULTIPROCESSORS // 2 < tiles <= MULTIPROCESSORS and p.k >= 1024 and not tensor_maps(p):
        return "vectorized"
    if min(p.m, p.n) <= NARROW or ceil_div(p.m, 128) * ceil_div(p.n, 128) < FEW_TILES:
        return "split_tiles"
    return "fp32_pipeline" if 5 * _tiles_each(p, 128, 256) < 3 * _tiles_each(p, 128, 128) else "warp_tiles"


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
    if tensor_maps(p):
        return _fastest_unaligned(p)
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


def _fastest_unaligned(p: GemmProblem) -> str:
    """The fastest stage for bf16 where rows of A or B are no multiples of 16 bytes, of cold medians in us on an
    H100 (commit b97bfe4), with cuBLAS's.

    `realigned`: 437 (1,178) at 4097^3, 56 (141) at 2000x2000x2001, 33 (57) at 6769x608x718. `split_tiles` for a C of a
    few rows or columns: 16 against 24 (9) at 168x22x1860, 13 against 19 (12) at 8x102x670; 20 and 17 at 68x208x2868.
    `register_prefetch` for a short k, where copying takes longer than the product: 133 against 283 (82) at
    14098x2770x82, 26 against 34 (14) at 744x3169x99, 13 against 14 (8) at 88x1690x144.
    """
    if min(p.m, p.n) <= 2 * NARROW:
        return "split_tiles"
    return "register_prefetch" if p.k <= 160 else "realigned"


def fastest(p: GemmProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first.

    `few_vectors` for few rows or columns, whatever else: it reads the large operand at the speed of memory.
    """
    if min(p.m, p.n) <= NARROW and not _over_at_once(p):
        found = "few_vectors"
    else:
        found = _fastest_single(p) if p.dtype == FP32.name else _fastest_half(p)
    return found, "fitted_tiles", "cp_async", "warp_tiles", "split_tiles"
