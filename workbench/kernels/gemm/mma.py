"""Stages of GEMM on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...model.dtypes import dtype_of
from ...model.launch import Launch, ceil_div
from .fastest import MULTIPROCESSORS
from .operation import DEEP, GEMM, ODD_C, scalars, tiles
from .problem import SHARED_BYTES, GemmProblem, half_only

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
    if p.layout == "nn" and 32 * warps < n:
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
    if size["STAGES"] * _k_tile_bytes(p, size) > SHARED_BYTES:
        return "the circular buffer does not fit into shared memory"
    return _constraint(p, size)


@GEMM.stage(
    "tensor_core",
    track="mma",
    source="gemm/mma/01_tensor_core.cu",
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
    source="gemm/mma/02_register_prefetch.cu",
    idea="the next k-tile is on its way to registers while the present one is multiplied",
    supports=half_only,
    parameters=_REGISTERS,
    space=_REGISTERS_SPACE,
    constraint=_registers_constraint,
    edge_cases=_EDGE_CASES,
    architecture=80,
)
def register_prefetch(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "gemm_register_prefetch", 1)


@GEMM.stage(
    "cp_async",
    source="gemm/mma/03_cp_async.cu",
    idea="cp.async fills a circular buffer of k-tiles, past the registers",
    supports=half_only,
    parameters={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 3},
    space={**_BLOCKS, "STAGES": (2, 3, 4, 5)},
    constraint=_buffer_constraint,
    edge_cases=_EDGE_CASES,
    architecture=80,
)
def cp_async(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "gemm_cp_async", size["STAGES"])


Shape = tuple[int, int, int, int]
"""Rows and columns of a tile, and how they are shared out along each."""

_SHAPES: tuple[Shape, ...] = (
    *((16, 64, 1, 4), (64, 16, 4, 1), (32, 32, 2, 2), (32, 64, 2, 2), (64, 32, 2, 2), (64, 64, 2, 2)),
    *((32, 128, 1, 4), (128, 32, 4, 1), (64, 128, 2, 4), (128, 64, 4, 2), (128, 128, 2, 4)),
)
"""Rows and columns of the tiles of `small_tiles`, and warps along each."""


def _pieces(p: GemmProblem) -> tuple[int, int, int]:
    """Elements of A, B and C that move together: as many as the distance of their rows divides, in C four at most."""
    return math.gcd(p.lda, 8), math.gcd(p.ldb, 8), math.gcd(p.ldc, 4)


def _small_cycles(p: GemmProblem, shape: Shape, k: int, split: int) -> float:
    """About how many cycles `small_tiles` takes with such tiles, for the choice among them: of 54 products on an H200,
    where eight tiles each were timed, what it chooses takes 1.02 times as long as the best."""
    (m, n, _, _), (pieces_a, pieces_b, pieces_c) = shape, _pieces(p)
    rounds = ceil_div(ceil_div(p.m, m) * ceil_div(p.n, n) * split, MULTIPROCESSORS)
    multiplied, loaded = m * n * k / 450, (m + n) * k * 2 / 15
    copied = (m * k / pieces_a + n * k / pieces_b) / 32 * 2.5
    waiting = 1300 if 1 in (pieces_a, pieces_b) else 100  # for memory, where nothing else is to be done
    iterations = ceil_div(ceil_div(p.k, k), split)
    mainloop = iterations * max(waiting, rounds * max(multiplied, loaded, copied))
    return mainloop + rounds * m * n / pieces_c / 1.8 + (2100 + 14 * split if split > 1 else 0)


def _small_tiles(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    most = 32 if 1 in _pieces(p)[:2] else 64  # single elements of a k-tile are in registers, all at once
    k = min(most, max(16, 1 << (p.k - 1).bit_length()))
    splits = [split for split in (1, 2, 4, 8) if split <= ceil_div(p.k, k)]
    choices = [(shape, split) for split in splits for shape in _SHAPES]
    (m, n, warps_m, warps_n), split = min(choices, key=lambda c: _small_cycles(p, c[0], k, c[1]))
    names = ("PIECE_A", "PIECE_B", "PIECE_C")
    pieces = dict(zip(names, _pieces(p), strict=True))
    return {
        "BLOCK_M": m,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "WARPS_M": warps_m,
        "WARPS_N": warps_n,
        "SPLIT": split,
        "STAGES": 2 if pieces["PIECE_A"] == pieces["PIECE_B"] == 1 else size["DEEP"],
        **pieces,
    }


@GEMM.stage(
    "small_tiles",
    source="gemm/mma/04_small_tiles.cu",
    idea="tiles as small as the problem wants, rows at any address, blocks of a cluster split k",
    supports=half_only,
    parameters={"DEEP": 4},
    sizes=_small_tiles,
    architecture=90,
    edge_cases=_EDGE_CASES,
)
def small_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    m, n, k, split, pad = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"], size["SPLIT"], 8
    b_bytes = 2 * (n * (k + pad) if p.layout == "nt" else k * (n + pad))
    buffer = size["STAGES"] * (2 * m * (k + pad) + b_bytes)
    return Launch(
        "gemm_small_tiles",
        (ceil_div(p.m, m) * ceil_div(p.n, n) * split, 1, 1),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        ("A", "B", "C", *scalars(p)),
        shared_bytes=max(buffer, 4 * m * (n + pad)),  # sums lie where k-tiles were
        cluster=(split, 1, 1),
    )
