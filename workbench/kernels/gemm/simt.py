"""Stages of GEMM on CUDA cores, which sum up in fp32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.dtypes import dtype_of
from ...model.launch import Launch, TensorMap, ceil_div
from .operation import GEMM, GROUPS, ODD_C, scalars, tiles
from .problem import SHARED_BYTES, GemmProblem, tensor_maps


@GEMM.stage(
    "naive",
    source="gemm/1_naive.cu",
    idea="one thread computes one element of C",
    parameters={"BLOCK_X": 16, "BLOCK_Y": 16},
    alignment=1,
)
def naive(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.m, size["BLOCK_X"]), ceil_div(p.n, size["BLOCK_Y"]), 1)
    return Launch("gemm_naive", grid, (size["BLOCK_X"], size["BLOCK_Y"], 1), ("A", "B", "C", *scalars(p)))


@GEMM.stage(
    "warp_parallel",
    source="gemm/2_warp_parallel.cu",
    idea="a warp shares the dot products of a small patch of C, its lanes split k",
    parameters={"PATCH_M": 4, "PATCH_N": 8, "WARPS_M": 4, "WARPS_N": 2},
    alignment=1,
)
def warp_parallel(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = tiles(p, size["WARPS_M"] * size["PATCH_M"], size["WARPS_N"] * size["PATCH_N"])
    threads = 32 * size["WARPS_M"] * size["WARPS_N"]
    return Launch("gemm_warp_parallel", grid, (threads, 1, 1), ("A", "B", "C", *scalars(p)))


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
    edge_cases=(ODD_C,),
)
def smem_tiling(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    threads = (size["BLOCK_M"] // size["THREAD_M"]) * (size["BLOCK_N"] // size["THREAD_N"])
    grid = tiles(p, size["BLOCK_M"], size["BLOCK_N"])
    return Launch("gemm_smem_tiling", grid, (threads, 1, 1), ("A", "B", "C", *scalars(p)))


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
    edge_cases=(
        GemmProblem(m=5, n=9, k=16, dtype="fp32"),
        GemmProblem(m=70, n=136, k=32 * 5 + 1, dtype="fp32"),
        GemmProblem(m=5, n=3, k=9, dtype="fp32", layout="nn"),  # rows of B of less than 16 bytes
    ),
    architecture=80,
)
def warp_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "gemm_warp_tiles",
        tiles(p, size["BLOCK_M"], size["BLOCK_N"]),
        (_warp_tiles_threads(size), 1, 1),
        ("A", "B", "C", *scalars(p)),
        shared_bytes=_warp_tiles_shared(p, size),
    )


@GEMM.stage(
    "fp32_pipeline",
    source="gemm/15_fp32_pipeline.cu",
    idea="fp32 on the template: three warps turn what TMA brings, eight multiply out of banks that do not collide",
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
