"""The ladder of `gemm_fp8`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.dtypes import E4M3, dtype_of
from ...model.launch import Launch, ceil_div
from ...model.operation import Operation
from ...model.problem import Size
from ..gemm import GROUPS, tile_launch
from .problem import RUN, ScaledGemmProblem, problems

GEMM_FP8 = Operation(
    name="gemm_fp8",
    summary="matrix product C = A B^T of 8-bit numbers, with a scale for each row of A and of B",
    problem=ScaledGemmProblem,
    problems=problems,
    suite=tuple(ScaledGemmProblem(m=s, n=s, k=s) for s in (1024, 2048, 4096, 8192)),
    defines=lambda p: {"IN": E4M3.cuda, "OUT": dtype_of(p.out).cuda},
    emulator_size=Size(extent=300, work=96**3),
    cuda_size=Size(extent=1100, work=512**3),
)


@GEMM_FP8.stage(
    "naive",
    track="simt",
    idea="one thread computes one element of C",
    parameters={"BLOCK_X": 32, "BLOCK_Y": 8},
    alignment=1,
    architecture=89,
)
def naive(p: ScaledGemmProblem, size: Mapping[str, int]) -> Launch:
    x, y = size["BLOCK_X"], size["BLOCK_Y"]
    numbers = (np.int32(v) for v in (p.m, p.n, p.k, p.lda, p.ldb, p.ldc))
    grid = (ceil_div(p.n, x), ceil_div(p.m, y), 1)
    return Launch("gemm_fp8_naive", grid, (x, y, 1), ("A", "B", "a_scale", "b_scale", "C", *numbers))


def _tma(p: ScaledGemmProblem) -> str | None:
    odd = [name for name, stride in (("A", p.lda), ("B", p.ldb)) if stride % 16]
    return f"TMA needs rows that are multiples of 16 bytes apart; those of {' and '.join(odd)} are not" if odd else None


_DEEP = ScaledGemmProblem(m=70, n=136, k=128 * 13 + 1, out="fp32", pad_a=15, pad_b=15)
"""So many slices that a ring of them goes round, and sums too long for fewer bits than fp32 has."""


_WIDE = (
    ScaledGemmProblem(m=136, n=128 * 67, k=RUN * 5 + 16, out="fp32", pad_a=15, pad_b=15),
    ScaledGemmProblem(m=129, n=128 * 67 - 3, k=16, pad_c=3),
    ScaledGemmProblem(m=128 * 17 + 1, n=1000, k=16),
)
"""So many narrow tiles that wide ones are taken. Slices of the first go round the ring and begin again; the last has
more rows of pairs of tiles than are walked together."""


def _fitted(p: ScaledGemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Columns of a tile, and blocks of a cluster one above the other: so that BLOCKS blocks at once have the fewest
    columns to compute, one after the other."""

    def columns(choice: tuple[int, int]) -> int:
        width, cluster = choice
        tiles = ceil_div(p.m, size["BLOCK_M"] * cluster) * cluster * ceil_div(p.n, width)
        return ceil_div(tiles, size["BLOCKS"]) * width

    width, cluster = min(((192, 2), (128, 1)), key=columns)  # the first of equals
    return {"BLOCK_N": width, "CLUSTER": cluster}


@GEMM_FP8.stage(
    "promoted_sums",
    track="wgmma",
    idea="wgmma of e4m3 adds up a k-tile, fp32 adds up the k-tiles; scales wait in shared memory",
    supports=_tma,
    parameters={"BLOCK_M": 128, "BLOCK_K": RUN, "GROUP_M": 8, "BUFFERS": 1, "BLOCKS": 132},
    space={"GROUP_M": GROUPS[:-1], "BUFFERS": (1, 2), "BLOCKS": (1, 132, 264)},
    architecture=90,
    specific=True,
    sizes=_fitted,
    edge_cases=(
        ScaledGemmProblem(m=130, n=257, k=80, pad_c=7),  # a TMA store would write beyond the columns of this C
        ScaledGemmProblem(m=70, n=200, k=80, pad_c=1),  # of this C no tensor map can be made
        _DEEP,
        ScaledGemmProblem(m=128 * 17 + 1, n=264, k=16, out="fp32"),  # more rows of tiles than are walked together
        *_WIDE,
    ),
)
def promoted_sums(p: ScaledGemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_fp8_promoted_sums", sharing=size["CLUSTER"], more=("a_scale", "b_scale"))
