"""Stages of GEMM on CUDA cores, which sum up in fp32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32, dtype_of
from ...model.launch import Launch, Plan, ceil_div, machine, scaled
from ...model.stage import every_problem
from ...model.tensor_map import TensorMap
from . import tiling
from .fastest import NARROW
from .operation import GEMM, GENERAL, GROUPS, ODD_C, extras, left_for_the_last, realigned_plan, scalars, tiles
from .problem import Added, GemmProblem, alone, plain, tensor_maps


@GEMM.stage(
    "naive",
    track="simt",
    idea="one thread computes one element of C; neighbouring threads take neighbouring rows",
    supports=plain,
    parameters={"BLOCK_X": 16, "BLOCK_Y": 16},
    alignment=1,
)
def naive(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.m, size["BLOCK_X"]), ceil_div(p.n, size["BLOCK_Y"]), 1)
    return Launch("gemm_naive", grid, (size["BLOCK_X"], size["BLOCK_Y"], 1), ("A", "B", "C", *scalars(p)))


@GEMM.stage(
    "coalesced",
    after=naive,
    idea="neighbouring threads take neighbouring columns, so a warp reads and writes parts of rows of B and C",
)
def coalesced(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = tiles(p, size["BLOCK_Y"], size["BLOCK_X"])
    return Launch("gemm_coalesced", grid, (size["BLOCK_X"], size["BLOCK_Y"], 1), ("A", "B", "C", *scalars(p)))


@GEMM.stage(
    "smem_tiling",
    after=coalesced,
    idea="the threads of a block share k-tiles of A and B in shared memory",
    parameters={"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32},
)
def smem_tiling(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = tiles(p, size["BLOCK_M"], size["BLOCK_N"])
    threads = size["BLOCK_M"] * size["BLOCK_N"]
    return Launch("gemm_smem_tiling", grid, (threads, 1, 1), ("A", "B", "C", *scalars(p)))


def _thread_tiles(size: Mapping[str, int]) -> int:
    """Threads of a block, each of which has a tile of C."""
    return (size["BLOCK_M"] // size["THREAD_M"]) * (size["BLOCK_N"] // size["THREAD_N"])


def _thread_tile_constraint(elements: int) -> Callable[[GemmProblem, Mapping[str, int]], str | None]:
    """Of a stage whose threads copy this many elements at once."""

    def constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
        m, n, k, threads = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"], _thread_tiles(size)
        if not 64 <= threads <= 512:
            return "a block has 64 to 512 threads"
        if m * k % (threads * elements) or n * k % (threads * elements):
            return "every thread copies as much of A as every other, and of B"
        return None

    return constraint


_THREAD_TILE = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 16, "THREAD_M": 8, "THREAD_N": 4}
_THREAD_TILES = {
    "BLOCK_M": (32, 64, 128),
    "BLOCK_N": (32, 64, 128),
    "BLOCK_K": (8, 16, 32),
    "THREAD_M": (4, 8),
    "THREAD_N": (4, 8),
}


@GEMM.stage(
    "thread_tile",
    after=smem_tiling,
    idea="a thread computes a tile of C in registers",
    parameters=_THREAD_TILE,
    constraint=_thread_tile_constraint(1),
)
def thread_tile(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = tiles(p, size["BLOCK_M"], size["BLOCK_N"])
    return Launch("gemm_thread_tile", grid, (_thread_tiles(size), 1, 1), ("A", "B", "C", *scalars(p)))


@GEMM.stage(
    "vectorized",
    after=thread_tile,
    idea="each load and store moves four neighbouring elements, 16 bytes of fp32",
    space=_THREAD_TILES,
    constraint=_thread_tile_constraint(4),
    edge_cases=(ODD_C,),
    alignment=16,
)
def vectorized(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = tiles(p, size["BLOCK_M"], size["BLOCK_N"])
    return Launch("gemm_vectorized", grid, (_thread_tiles(size), 1, 1), ("A", "B", "C", *scalars(p)))


_NOT_FP32 = "16-bit types are multiplied by tensor cores, in tracks mma and wgmma"


def _fp32_only(p: GemmProblem) -> str | None:
    return plain(p) if p.dtype == FP32.name else _NOT_FP32


def _buffer_bytes(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Of the circular buffer, whose rows have a padding of 4 elements."""
    return size["STAGES"] * size["BLOCK_K"] * (size["BLOCK_M"] + size["BLOCK_N"] + 2 * 4) * dtype_of(p.dtype).itemsize


def _warp_tiles_threads(size: Mapping[str, int]) -> int:
    """8 x 4 threads make a warp's tile."""
    return size["BLOCK_M"] // (8 * size["THREAD_M"]) * (size["BLOCK_N"] // (4 * size["THREAD_N"])) * 32


def _async_constraint(
    threads_of: Callable[[Mapping[str, int]], int],
) -> Callable[[GemmProblem, Mapping[str, int]], str | None]:
    """Of a stage that has so many threads for a configuration, and a circular buffer of k-tiles."""

    def constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
        m, n, threads = size["BLOCK_M"], size["BLOCK_N"], threads_of(size)
        if m * n > 128 * 256 or size["THREAD_M"] * size["THREAD_N"] > 128 or threads > 512:
            return "the registers of a multiprocessor hold 128 x 256 sums, those of a thread 128"
        if threads < 64:
            return "a block has 64 threads or more: fewer do not hide how long anything takes"
        if threads // size["BLOCK_K"] > min(m, n):
            return "a thread copies at least one element of each k-tile"
        if _buffer_bytes(p, size) > machine().shared_bytes:
            return "the circular buffer does not fit into shared memory"
        return None

    return constraint


_ASYNC = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "THREAD_M": 8, "THREAD_N": 8, "STAGES": 3}
_ASYNC_SPACE = {
    "BLOCK_M": (64, 128, 256),
    "BLOCK_N": (64, 128, 256),
    "BLOCK_K": (8, 16, 32),
    "THREAD_M": (4, 8, 16),
    "THREAD_N": (8, 16),
    "STAGES": (2, 3, 4),
}
_ASYNC_EDGE_CASES = (
    GemmProblem(m=5, n=9, k=16, dtype="fp32"),
    GemmProblem(m=70, n=136, k=32 * 5 + 1, dtype="fp32"),
    GemmProblem(m=5, n=3, k=9, dtype="fp32", layout="nn"),  # rows of B of less than 16 bytes
)


def _async_launch(p: GemmProblem, size: Mapping[str, int], kernel: str, threads: int) -> Launch:
    grid, shared = tiles(p, size["BLOCK_M"], size["BLOCK_N"]), _buffer_bytes(p, size)
    return Launch(kernel, grid, (threads, 1, 1), ("A", "B", "C", *scalars(p)), shared_bytes=shared)


@GEMM.stage(
    "async_copies",
    after=vectorized,
    idea="fp32 only: cp.async fills a circular buffer of k-tiles ahead of time",
    supports=_fp32_only,
    parameters=_ASYNC,
    space=_ASYNC_SPACE,
    constraint=_async_constraint(_thread_tiles),
    edge_cases=_ASYNC_EDGE_CASES,
    architecture=80,
)
def async_copies(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _async_launch(p, size, "gemm_async_copies", _thread_tiles(size))


@GEMM.stage(
    "operand_reuse",
    after=async_copies,
    idea="each multiplication reuses a factor of the one before: down one column of the tile, up the next",
)
def operand_reuse(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _async_launch(p, size, "gemm_operand_reuse", _thread_tiles(size))


@GEMM.stage(
    "warp_tiles",
    after=operand_reuse,
    idea="the threads of a warp cover a tile of their own, so they share more of what they read",
    constraint=_async_constraint(_warp_tiles_threads),
)
def warp_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _async_launch(p, size, "gemm_warp_tiles", _warp_tiles_threads(size))


@GEMM.stage(
    "fp32_pipeline",
    after=warp_tiles,
    idea="warps specialise: three transpose what TMA loads, eight multiply without register bank conflicts",
    supports=lambda p: _fp32_only(p) or tensor_maps(p),
    parameters={"UNROLL": 4, "GROUP_M": 8},
    space={"UNROLL": (4, 8, 16), "GROUP_M": GROUPS},
    edge_cases=(
        GemmProblem(m=5, n=9, k=16, dtype="fp32"),
        GemmProblem(m=130, n=264, k=32 * 9 + 1, dtype="fp32", pad_a=3, pad_b=3),
        GemmProblem(m=5, n=3, k=12, dtype="fp32", layout="nn", pad_b=1),  # rows of B of less than 16 bytes
        GemmProblem(m=128 * 9 + 1, n=257, k=8, dtype="fp32", layout="nn", pad_b=7),  # more rows than walked together
    ),
    architecture=90,
    specific=True,
)
def fp32_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _pipeline_launch(p, "A", "B")


def _pipeline_launch(p: GemmProblem, a: str, b: str) -> Launch:
    """Of the kernel that takes tensor maps of the arrays `a` and `b`."""
    return Launch(
        "gemm_fp32_pipeline",
        (ceil_div(p.m, 128) * ceil_div(p.n, 256), 1, 1),
        (128 * 3, 1, 1),
        (
            TensorMap(a, box=(128, 32)),
            TensorMap(b, box=(256, 32)) if p.trans_b else TensorMap(b, box=(32, 256), swizzle=0),
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=machine().shared_bytes,
        persistent=True,
    )


@GEMM.stage(
    "warp_parallel",
    after=coalesced,
    idea="a warp computes a small patch of C, and its lanes split k",
    parameters={"PATCH_M": 4, "PATCH_N": 8, "WARPS_M": 4, "WARPS_N": 2},
)
def warp_parallel(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = tiles(p, size["WARPS_M"] * size["PATCH_M"], size["WARPS_N"] * size["PATCH_N"])
    threads = 32 * size["WARPS_M"] * size["WARPS_N"]
    return Launch("gemm_warp_parallel", grid, (threads, 1, 1), ("A", "B", "C", *scalars(p)))


@GEMM.stage(
    "any_strides",
    after=coalesced,
    idea="operands of any strides, in batches, and an epilogue: the sums scaled, added to, and activated",
    supports=every_problem,
    edge_cases=GENERAL,
)
def any_strides(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    a, b = (1, p.lda) if p.trans_a else (p.lda, 1), (1, p.ldb) if p.trans_b else (p.ldb, 1)
    x, y = size["BLOCK_X"], size["BLOCK_Y"]
    extents, strides = (np.int32(e) for e in (p.m, p.n, p.k)), (np.int64(step) for step in (*a, *b))
    numbers: tuple[np.generic, ...] = (*extents, *strides, np.int32(p.ldc))
    grid = (*tiles(p, y, x)[:2], p.count)
    return Launch("gemm_any_strides", grid, (x, y, 1), ("A", "B", "C", *numbers, *extras(p)))


def _small_tile(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    m, n = (NARROW if extent <= NARROW else size["BLOCK_MN"] for extent in (p.m, p.n))
    # 256 threads: 4 x 4, 4 x 1, 1 x 4 or 1 x 1 elements each
    return {"BLOCK_M": m, "BLOCK_N": n, "THREAD_M": 1 if m == NARROW else 4, "THREAD_N": 1 if n == NARROW else 4}


def _parts(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Blocks that share a tile: as many as fill the device, of at least two k-tiles each."""
    tiles_of_c = ceil_div(p.m, size["BLOCK_M"]) * ceil_div(p.n, size["BLOCK_N"]) * p.count
    return max(1, min(scaled(size["BLOCKS"]) // tiles_of_c, ceil_div(p.k, 2 * 32), size["MOST"]))


@GEMM.stage(
    "split_tiles",
    after=thread_tile,
    idea="small tiles; where C is small, blocks share the k of a tile, and a second kernel adds up the parts",
    supports=every_problem,
    parameters={"BLOCK_MN": 64, "BLOCKS": 264, "MOST": 128},
    edge_cases=(
        GemmProblem(m=3, n=70, k=500, dtype="fp32"),
        GemmProblem(m=70, n=3, k=300, dtype="bf16", layout="nn", pad_b=2),
        GemmProblem(m=65, n=66, k=200, dtype="fp32", layout="nn", pad_c=3),
        GemmProblem(m=2, n=2, k=1500, dtype="fp16", out="fp16"),
        GemmProblem(m=40, n=33, k=300, dtype="fp32", layout="tn", batch=2, added=Added.MATRIX, alpha=2.0, pad_added=1),
        *GENERAL,
    ),
    sizes=_small_tile,
    alignment=16,
)
def split_tiles(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    parts = _parts(p, size)
    grid = (*tiles(p, size["BLOCK_M"], size["BLOCK_N"])[:2], parts * p.count)
    arguments = ("A", "B", "C", "partial", *scalars(p), np.int32(parts), *extras(p))
    first = Launch("gemm_split_tiles", grid, (256, 1, 1), arguments)
    scratch = {"partial": Array((p.count * parts, p.m * p.n) if parts > 1 else (1, 1), FP32, output=True)}
    if parts == 1:
        return Plan((first,), scratch=scratch)
    numbers = tuple(np.int32(x) for x in (p.m, p.n, p.ldc, parts))
    grid, arguments = (ceil_div(p.m * p.n, 32), p.count, 1), ("partial", "C", *numbers, *extras(p, "C", "added"))
    added = Launch("gemm_add_parts", grid, (256, 1, 1), arguments)
    return Plan((first, added), scratch=scratch)


def _split_warp_tiles(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    (m, n, thread_m, thread_n), split = tiling.split(p)
    pieces = {f"PIECE_{name}": math.gcd(row, 4) for name, row in (("A", p.lda), ("B", p.ldb), ("C", p.ldc))}
    return {"BLOCK_M": m, "BLOCK_N": n, "THREAD_M": thread_m, "THREAD_N": thread_n, "SPLIT": split, **pieces}


@GEMM.stage(
    "split_warp_tiles",
    after=warp_tiles,
    idea="fp32 only: tile sizes leave enough tiles for the device; the blocks of a cluster split k",
    parameters={},
    sizes=_split_warp_tiles,
    architecture=90,
)
def split_warp_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    m, n, split = size["BLOCK_M"], size["BLOCK_N"], size["SPLIT"]
    blocks = ceil_div(p.m, m) * ceil_div(p.n, n) * split
    return Launch(
        "gemm_split_warp_tiles",
        (blocks, 1, 1),
        (_thread_tiles(size), 1, 1),
        ("A", "B", "C", *scalars(p)),
        shared_bytes=tiling.spread(blocks, split, tiling.split_bytes(m, n)),
        cluster=(split, 1, 1),
    )


@GEMM.stage(
    "realigned_pipeline",
    after=fp32_pipeline,
    idea="fp32 only: TMA for every matrix; rows that are no multiples of 16 bytes are first copied to rows that are",
    supports=lambda p: alone(p) if p.dtype == FP32.name else _NOT_FP32,
    sizes=lambda p, size: {"COPIED": len(p.copied)},
    edge_cases=(
        GemmProblem(m=70, n=257, k=129, dtype="fp32", layout="tn", pad_a=3),
        GemmProblem(m=64, n=5, k=64, dtype="fp32", layout="tt"),
        GemmProblem(m=70, n=257, k=129, dtype="fp32", layout="nn"),
        GemmProblem(m=3, n=2, k=1001, dtype="fp32", pad_a=3, pad_b=2, pad_c=1),
    ),
    space={},
)
def realigned_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    return realigned_plan(p, lambda a, b: _pipeline_launch(p, a, b))


def _fitted_pipeline(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    (m, n, thread_m, thread_n), split, clusters = tiling.fitted(p)
    tile = {"BLOCK_M": m, "BLOCK_N": n, "THREAD_M": thread_m, "THREAD_N": thread_n}
    piece = math.gcd(p.ldc, 4) if split > 1 and clusters == 1 else 1
    return {**tile, "SPLIT": split, "CLUSTERS": clusters, "PIECE_C": piece}


def _parted(p: GemmProblem, size: Mapping[str, int]) -> tuple[int, dict[str, Array], tuple[str, str]]:
    """Blocks of `fitted_pipeline`, and what clusters that share tiles leave for each other."""
    m, n, split, clusters = (size[name] for name in ("BLOCK_M", "BLOCK_N", "SPLIT", "CLUSTERS"))
    tiles = ceil_div(p.m, m) * ceil_div(p.n, n)
    return tiles * split * clusters, *left_for_the_last(clusters > 1, (tiles * clusters, m * n), (tiles, split))


@GEMM.stage(
    "fitted_pipeline",
    after=realigned_pipeline,
    idea="fp32 only: smaller tiles fit the problem, two per multiprocessor; the blocks of a cluster split k",
    sizes=_fitted_pipeline,
    edge_cases=(
        GemmProblem(m=70, n=257, k=129, dtype="fp32", layout="nn"),
        GemmProblem(m=3, n=2, k=1001, dtype="fp32", pad_a=3, pad_b=2, pad_c=1),
        GemmProblem(m=70, n=257, k=129, dtype="fp32", layout="tn", pad_a=3),
        GemmProblem(m=70, n=130, k=2601, dtype="fp32", pad_c=1),  # clusters that leave sums in memory
        GemmProblem(m=20, n=70, k=2400, dtype="fp32", layout="nn"),
    ),
)
def fitted_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    m, n, k, split = size["BLOCK_M"], size["BLOCK_N"], tiling.FITTED_K, size["SPLIT"]
    blocks, scratch, handed = _parted(p, size)

    def product(a: str, b: str) -> Launch:
        return Launch(
            "gemm_fitted_pipeline",
            (blocks, 1, 1),
            (256, 1, 1),
            (
                TensorMap(a, box=(m, k)),
                TensorMap(b, box=(n, k)) if p.trans_b else TensorMap(b, box=(k, n), swizzle=0),
                "C",
                *handed,
                *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
            ),
            shared_bytes=tiling.spread(blocks, split, tiling.HALF_BYTES),
            cluster=(split, 1, 1),
            persistent=split == 1,
        )

    made = realigned_plan(p, product)
    return Plan(made.launches, {**made.scratch, **scratch})


def _shifted_pipeline(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    (m, n, thread_m, thread_n), split, clusters = tiling.shifted_single(p)
    tile = {"BLOCK_M": m, "BLOCK_N": n, "THREAD_M": thread_m, "THREAD_N": thread_n}
    return {**tile, "SPLIT": split, "CLUSTERS": clusters, "PIECE_C": math.gcd(p.ldc, 4) if clusters == 1 else 1}


@GEMM.stage(
    "shifted_pipeline",
    after=fitted_pipeline,
    idea="fp32 only: the warps that transpose k-tiles also load and shift them, so no row is copied first",
    supports=_fp32_only,
    parameters={"UNROLL": 4, "GROUP_M": 8, "MOST_COMING": 4},
    sizes=_shifted_pipeline,
)
def shifted_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    split = size["SPLIT"]
    blocks, scratch, handed = _parted(p, size)
    launch = Launch(
        "gemm_shifted_pipeline",
        (blocks, 1, 1),
        (256, 1, 1),
        ("A", "B", "C", *handed, *scalars(p)),
        shared_bytes=tiling.spread(blocks, split, tiling.HALF_BYTES),
        cluster=(split, 1, 1),
    )
    return Plan((launch,), scratch)


SHORT = 12
"""The longest k of `short_k`. With 16, 1752x9336x16 took 85 us on an H100, `vectorized` 28."""


@GEMM.stage(
    "short_k",
    after=coalesced,
    idea="for a short k: a thread keeps columns of B in registers, and a warp stores neighbouring elements of C",
    supports=lambda p: plain(p) if p.k <= SHORT else f"k is more than {SHORT}",
    parameters={"BLOCK_M": 64},
    sizes=lambda p, size: {"DEPTH": next(depth for depth in (1, 2, 4, 8, SHORT) if depth >= p.k)},
    edge_cases=(
        GemmProblem(m=70, n=257, k=1, dtype="fp32", layout="nn"),
        GemmProblem(m=131, n=31, k=11, dtype="fp16", out="fp16", pad_a=3, pad_b=2, pad_c=1),
        GemmProblem(m=3, n=300, k=5, dtype="bf16", out="bf16"),
    ),
)
def short_k(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.m, size["BLOCK_M"]) * ceil_div(p.n, 128), 1, 1)
    return Launch("gemm_short_k", grid, (256, 1, 1), ("A", "B", "C", *scalars(p)))
