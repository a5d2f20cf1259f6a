"""How a product of few rows or columns is shared out, by `few_vectors` and in what the cost model counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...model.dtypes import FP32, dtype_of
from ...model.launch import ceil_div
from ..rows import groups
from .problem import GemmProblem
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
        nt = p.layout == "nt"
        if p.m < p.n:
            return cls("B", "A", nt, p.n, p.m, p.ldb, p.lda, 1, 1, p.ldc)
        x_vector, x_k = (p.ldb, 1) if nt else (1, p.ldb)
        return cls("A", "B", True, p.m, p.n, p.lda, x_vector, x_k, p.ldc, 1)


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
