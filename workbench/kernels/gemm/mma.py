"""Stages of GEMM on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.dtypes import dtype_of
from ...model.launch import Launch
from .operation import DEEP, GEMM, ODD_C, scalars, tiles
from .problem import SHARED_BYTES, GemmProblem, half_only

_ODD_ROWS = GemmProblem(m=8, n=256, k=8, pad_c=5)
"""Whole tiles of C, in rows that are an odd number of elements apart, 261: no pair of them may be stored at once."""


_INNER = GemmProblem(m=256, n=256, k=64 * 3 + 8, seed=3)
"""A tile of which most slices reach no edge of A or B."""


_NARROW = GemmProblem(m=260, n=34, k=8)
"""More rows than a tile is wide, and fewer columns."""


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
    supports=half_only,
    parameters={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 3},
    space={
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (64, 128, 256),
        "WARPS_M": (1, 2, 4),
        "WARPS_N": (1, 2, 4),
        "STAGES": (2, 3, 4, 5),
    },
    constraint=_tensor_core_constraint,
    edge_cases=(ODD_C, _ODD_ROWS, _INNER, _NARROW, *DEEP),
    architecture=80,
)
def tensor_core(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "gemm_tensor_core",
        tiles(p, size["BLOCK_M"], size["BLOCK_N"]),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        ("A", "B", "C", *scalars(p)),
        shared_bytes=_tensor_core_shared(p, size),
    )


def _nt_halves(p: GemmProblem) -> str | None:
    return half_only(p) or (None if p.layout == "nt" else "B is read along k: layout nt")


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
    edge_cases=(ODD_C, _ODD_ROWS, _INNER, _NARROW, *DEEP[:1]),
    architecture=80,
)
def register_prefetch(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    slices = (size["BLOCK_M"] + size["BLOCK_N"]) * size["BLOCK_K"] * dtype_of(p.dtype).itemsize
    return Launch(
        "gemm_register_prefetch",
        tiles(p, size["BLOCK_M"], size["BLOCK_N"]),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        ("A", "B", "C", *scalars(p)),
        shared_bytes=2 * slices,
    )
