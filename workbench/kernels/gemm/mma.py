"""Stages of GEMM on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...model.dtypes import dtype_of
from ...model.launch import Launch, Plan, ceil_div, machine
from . import tiling
from .operation import DEEP, GEMM, GENERAL, ODD_C, extras, left_for_the_last, scalars, tiles
from .problem import GemmProblem, half_only, half_types, tensor_maps

_ODD_ROWS = GemmProblem(m=8, n=256, k=8, pad_c=5)
"""Whole tiles of C, in rows that are an odd number of elements apart, 261: no pair of them may be stored at once."""

_INNER = GemmProblem(m=256, n=256, k=64 * 3 + 8, seed=3)
"""A tile of which most k-tiles reach no edge of A or B."""

_NARROW = GemmProblem(m=260, n=34, k=8)
"""More rows than a tile is wide, and fewer columns."""

_EDGE_CASES = (ODD_C, _ODD_ROWS, _INNER, _NARROW, *DEEP)

_REGISTERS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "WARPS_M": 2, "WARPS_N": 4}
_REGISTERS_SPACE = {"BLOCK_M": (128, 256), "BLOCK_N": (128, 256), "WARPS_M": (2, 4), "WARPS_N": (2, 4)}
_BLOCKS = {"BLOCK_M": (64, 128, 256), "BLOCK_N": (64, 128, 256), "WARPS_M": (1, 2, 4), "WARPS_N": (1, 2, 4)}


def _k_tile_bytes(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Of A and B in shared memory."""
    return (size["BLOCK_M"] + size["BLOCK_N"]) * size["BLOCK_K"] * dtype_of(p.dtype).itemsize


def _launch(p: GemmProblem, size: Mapping[str, int], kernel: str, k_tiles: int) -> Launch:
    return Launch(
        kernel,
        tiles(p, size["BLOCK_M"], size["BLOCK_N"]),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        ("A", "B", "C", *scalars(p)),
        shared_bytes=k_tiles * _k_tile_bytes(p, size),
    )


def _constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    m, n, warps = size["BLOCK_M"], size["BLOCK_N"], size["WARPS_M"] * size["WARPS_N"]
    if not 2 <= warps <= 8:
        return "a block has 2 to 8 warps: one copies too few rows at once, 16 have too few registers"
    if m * n > 128 * 32 * warps:
        return "a thread has registers for 128 sums"
    if not p.trans_b and 32 * warps < n:
        return "a thread's rows of a tile share one permutation: a tile as wide needs more threads"
    return None


def _registers_constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    m, n, warps = size["BLOCK_M"], size["BLOCK_N"], size["WARPS_M"] * size["WARPS_N"]
    if warps != 8:
        return "a block has eight warps: with fewer a thread copies more than it has registers for"
    if m * n > 128 * 256:
        return "a thread has registers for 128 sums, and for what it copies"
    if n > 64 * size["WARPS_N"]:
        return "a warp's tile of more than 64 columns takes more registers for pieces of B than are left"
    return _constraint(p, size)


def _buffer_constraint(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    if size["STAGES"] * _k_tile_bytes(p, size) > machine().shared_bytes:
        return "the circular buffer does not fit into shared memory"
    return _constraint(p, size)


@GEMM.stage(
    "tensor_core",
    track="mma",
    idea="tensor cores (mma.sync) multiply what ldmatrix reads from swizzled tiles in shared memory",
    supports=half_only,
    parameters=_REGISTERS,
    space=_REGISTERS_SPACE,
    constraint=_registers_constraint,
    edge_cases=_EDGE_CASES,
    architecture=80,
)
def tensor_core(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "gemm_tensor_core", 1)


@GEMM.stage(
    "register_prefetch",
    after=tensor_core,
    idea="the next k-tile is loaded into registers while the present one is multiplied",
)
def register_prefetch(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "gemm_register_prefetch", 1)


@GEMM.stage(
    "cp_async",
    after=register_prefetch,
    idea="cp.async fills a circular buffer of k-tiles in shared memory, without using registers",
    parameters={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 3},
    space={**_BLOCKS, "STAGES": (2, 3, 4, 5)},
    constraint=_buffer_constraint,
)
def cp_async(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "gemm_cp_async", size["STAGES"])


def _deep(p: GemmProblem, k_tile: int, shares: int, most: int) -> int:
    """Pipeline stages for as many k-tiles as a block has, where so many share a tile: with more, fewer blocks share a
    multiprocessor. One of 128 x 128 with four stages is alone there, and 1888x10386x36 took 51 us, cuBLAS 32 (H100)."""
    return min(most, ceil_div(ceil_div(p.k, k_tile), shares) + 1)


def _small_deep(p: GemmProblem, k_tile: int, shares: int, most: int) -> int:
    """The same where single elements of both operands pass through registers: two."""
    piece_a, piece_b, _ = tiling.pieces(p)
    return 2 if piece_a == piece_b == 1 else _deep(p, k_tile, shares, most)


def _small_tiles(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    (m, n, warps_m, warps_n), k, split = tiling.small(p)
    pieces = dict(zip(("PIECE_A", "PIECE_B", "PIECE_C"), tiling.pieces(p), strict=True))
    return {
        "BLOCK_M": m,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "WARPS_M": warps_m,
        "WARPS_N": warps_n,
        "SPLIT": split,
        "STAGES": _small_deep(p, k, split, size["DEEP"]),
        **pieces,
    }


@GEMM.stage(
    "small_tiles",
    after=cp_async,
    idea="tile sizes fit the problem, and rows may begin at any address; the blocks of a cluster split k",
    supports=half_types,
    parameters={"DEEP": 4},
    sizes=_small_tiles,
    edge_cases=(*_EDGE_CASES, *GENERAL, GemmProblem(m=130, n=129, k=2504, dtype="bf16", layout="tn", pad_a=5)),
    architecture=90,
)
def small_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    launch = _small_launch(p, size, "gemm_small_tiles", size["SPLIT"], ("A", "B", "C"))
    return replace(launch, grid=(launch.grid[0], p.count, 1), args=(*launch.args, *extras(p)))


def _small_launch(p: GemmProblem, size: Mapping[str, int], kernel: str, each: int, arrays: tuple[str, ...]) -> Launch:
    """So many blocks for each tile, in clusters of SPLIT."""
    m, n, k, split, pad = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"], size["SPLIT"], 8
    a_bytes, b_bytes = (
        2 * (lines * (k + pad) if along_k else k * (lines + pad))
        for lines, along_k in ((m, not p.trans_a), (n, p.trans_b))
    )
    shared = max(size["STAGES"] * (a_bytes + b_bytes), 4 * m * (n + pad))  # sums lie where k-tiles were
    blocks = ceil_div(p.m, m) * ceil_div(p.n, n) * each
    return Launch(
        kernel,
        (blocks, 1, 1),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        (*arrays, *scalars(p)),
        shared_bytes=tiling.spread(blocks, split, shared),
        cluster=(split, 1, 1),
    )


def _shifted_tiles(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    (m, n, warps_m, warps_n), k, split = tiling.shifted(p)
    of_a, of_b, of_c = tiling.pieces(p)
    found = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "WARPS_M": warps_m, "WARPS_N": warps_n, "SPLIT": split}
    found |= {"ALIGNED_A": int(of_a == 8), "ALIGNED_B": int(of_b == 8), "PIECE_C": of_c}
    deep = next(
        (
            d
            for d in range(_deep(p, k, split, size["DEEP"]), 2, -1)
            if tiling.shifted_bytes(p, {**found, "STAGES": d}) <= machine().shared_bytes // 2
        ),
        2,
    )
    return {**found, "STAGES": deep}


def _unaligned_half(p: GemmProblem) -> str | None:
    if tensor_maps(p) is None:
        return "all rows begin at multiples of 16 bytes: nothing has to be shifted"
    return half_only(p)


@GEMM.stage(
    "shifted_tiles",
    after=small_tiles,
    idea="rows at any address are copied 16 bytes at a time, and shifted in shared memory",
    supports=_unaligned_half,
    sizes=_shifted_tiles,
    edge_cases=(
        GemmProblem(m=70, n=257, k=129, dtype="bf16", layout="nn"),
        GemmProblem(m=3, n=2, k=1001, dtype="fp16", out="fp16", pad_a=3, pad_b=2, pad_c=1),
        GemmProblem(m=40, n=130, k=64 * 9 + 1, dtype="bf16", out="bf16", pad_a=7),
    ),
)
def shifted_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    m, n, split, pad = size["BLOCK_M"], size["BLOCK_N"], size["SPLIT"], 8
    shared = max(tiling.shifted_bytes(p, size), 4 * m * (n + pad))  # sums lie where k-tiles were
    blocks = ceil_div(p.m, m) * ceil_div(p.n, n) * split
    return Launch(
        "gemm_shifted_tiles",
        (blocks, 1, 1),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        ("A", "B", "C", *scalars(p)),
        shared_bytes=tiling.spread(blocks, split, shared),
        cluster=(split, 1, 1),
    )


def _last_block(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    (m, n, warps_m, warps_n), k, split, clusters = tiling.shared_again(p)
    shape = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "WARPS_M": warps_m, "WARPS_N": warps_n}
    shared = {"SPLIT": split, "CLUSTERS": clusters, "STAGES": _small_deep(p, k, split * clusters, size["DEEP"])}
    return {**_small_tiles(p, size), **shape, **shared}


@GEMM.stage(
    "last_block",
    after=small_tiles,
    idea="for few tiles and a long k: several clusters split k, and the last block adds up what they left in memory",
    supports=half_only,
    sizes=_last_block,
    edge_cases=(
        *_EDGE_CASES,
        GemmProblem(m=40, n=20, k=64 * 8 * 8 + 1, dtype="bf16"),
        GemmProblem(m=3, n=70, k=64 * 8 * 12, dtype="fp16", out="fp16", layout="nn", pad_c=1),
        GemmProblem(m=20, n=20, k=1500, dtype="bf16", out="bf16", pad_a=1),  # blocks alone, of 16 parts
        GemmProblem(m=130, n=129, k=2504, dtype="bf16", pad_a=1),  # pairs
        GemmProblem(m=70, n=129, k=4097, dtype="fp16", pad_c=1),  # tall tiles
        GemmProblem(m=50, n=35, k=96, dtype="bf16", layout="nn"),  # threads that copy nothing of A
    ),
)
def last_block(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    clusters, elements = size["CLUSTERS"], size["BLOCK_M"] * size["BLOCK_N"]
    arrays = ("A", "B", "C", "partial", "counters")
    launch = _small_launch(p, size, "gemm_last_block", size["SPLIT"] * clusters, arrays)
    blocks = launch.grid[0]
    scratch, _ = left_for_the_last(True, (blocks // size["SPLIT"], elements), (blocks // clusters,))
    return Plan((launch,), scratch)
