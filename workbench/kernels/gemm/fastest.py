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


def copies_pay(p: GemmProblem) -> bool:
    """Whether `realigned_pipeline` should be the fastest: fp32 whose rows no tensor map takes, so large that copies are
    made up for. It has not been timed. `fp32_pipeline` multiplies at 53 TFLOP/s, `warp_tiles` at 39, and copies move
    2.9 TB/s (`reports/cost-model.md`): that makes 11.8 ms at 4559x14189x4714, where `warp_tiles` took 15.8."""
    if p.dtype != FP32.name or not tensor_maps(p) or p.m * p.n * p.k < 2**33:
        return False
    return 5 * _tiles_each(p, 128, 256) < 3 * _tiles_each(p, 128, 128)


def _fastest_single(p: GemmProblem) -> str:
    """The fastest stage for fp32, of cold medians in microseconds (`reports/nvidia-h200/gemm.md`, `gemm-types.md`).

    At 4096^3 a multiprocessor has 4 tiles of `fp32_pipeline`, in 2,600, or 8 of `warp_tiles`, in 3,096: 5/3 as long a
    tile. So 16 of them should take 20,800 at 8192^3, where 20,689 were measured. At 1024^3 it has one of either: 170
    against 110, and 96 of `vectorized`, whose tiles are half as large and still no more than one for each.

    At 808x13480x1 `vectorized` took 18 where `warp_tiles` took 29. What has few products goes to `warp_parallel`, and
    where tiles of 128 rows and columns leave a part of the device idle, `split_warp_tiles` has smaller ones.
    """
    if p.m * p.n * p.k <= 2**17:
        return "warp_parallel"
    if min(p.m, p.n) <= NARROW:
        return "few_vectors"
    if p.k <= 16:
        return "vectorized"
    if copies_pay(p):
        return "realigned_pipeline"
    tiles = ceil_div(p.m, 64) * ceil_div(p.n, 128)
    if MULTIPROCESSORS // 2 < tiles <= MULTIPROCESSORS and p.k >= 1024 and not tensor_maps(p):
        return "vectorized"
    if ceil_div(p.m, 128) * ceil_div(p.n, 128) < FEW_TILES:
        return "split_warp_tiles"
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

    `few_vectors` for few rows or columns, but for 9 to 16 columns `streamed`, whose tiles are as narrow: 71 against 89
    at 7016x16x14792, 64 against 76 at 14816x16x6672; with 13 rows, 44 against 40 at 13x10968x3896.

    What is small goes to stages whose blocks start at once. Of random products (`reports/gemm-random.json`),
    `small_tiles` took 1.01 times as long as the fastest stage below 2^26 multiplications and 1.12 times below 2^28,
    `deferred_epilogue` 1.04 times from 2^32 on.
    """
    if p.m * p.n * p.k <= 2**15:
        return "warp_parallel" if p.layout == "nt" or p.k <= 32 else "small_tiles"
    if min(p.m, p.n) <= NARROW and max(p.m, p.n) * p.k >= 2**20:
        return "streamed" if 8 < p.n <= NARROW and not tensor_maps(p) else "few_vectors"
    if p.m * p.n * p.k <= 2**28 or (tensor_maps(p) and p.k <= 64):
        return "small_tiles"
    if tensor_maps(p):
        return "realigned"
    narrow = ceil_div(p.m, 64 if p.m <= 64 else 128) * ceil_div(p.n, STREAMED_N)
    if p.out == p.dtype and 64 < narrow <= 128 and p.k >= 1024:
        return "streamed"
    if p.out == p.dtype and _tiles_each(p, 128, 256) >= 9 and p.k >= 4096:
        return "stream_k"
    return "deferred_epilogue" if _tiles_each(p, 128, 256) > 1 else "fitted_tiles"


def fastest(p: GemmProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first."""
    found = _fastest_single(p) if p.dtype == FP32.name else _fastest_half(p)
    return found, "fitted_tiles", "small_tiles", "cp_async", "warp_tiles", "split_tiles"
