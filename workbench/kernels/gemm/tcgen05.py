"""Stages of GEMM by tcgen05, whose sums lie in tensor memory: for sm_100a, verified in the emulator alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...model.dtypes import dtype_of
from ...model.launch import Argument, Launch, ceil_div, machine
from ...model.tensor_map import TensorMap
from .operation import DEEP, GEMM, GROUPS, ODD_C
from .problem import GemmProblem, tma_and_wgmma
from .wgmma import PADDED_C, Product

ROWS = 128
"""Of a tile of C that one block computes: the lanes of tensor memory."""

_TALL = GemmProblem(m=ROWS * 17 + 1, n=264, k=8)
"""More rows of tiles than are walked together, and two columns of them."""

_TALLER = GemmProblem(m=2 * ROWS * 12 + 1, n=264, k=8)
"""The same of tiles of two blocks: 13 rows of them."""


def tile_launch(
    p: Product,
    size: Mapping[str, int],
    kernel: str,
    warps: int,
    shared: int,
    blocks: int,
    more: tuple[Argument, ...] = (),
) -> Launch:
    """A block of so many `warps`, or `blocks` of a cluster, for each tile of C, with so many bytes of shared memory.

    A tile of a cluster has as many times the rows; each block loads its rows of A and its part of the columns of B.
    Where C can have no tensor map, one of A stands in for it, which the kernel does not use. `more` are arguments that
    the kernel is given before C. BLOCK_K counts elements."""
    n, k, out = size["BLOCK_N"], size["BLOCK_K"], dtype_of(p.out).itemsize
    of_c = TensorMap("C", box=(16, 128 // out), swizzle=128)
    return Launch(
        kernel,
        (ceil_div(p.m, ROWS * blocks) * ceil_div(p.n, n) * blocks, 1, 1),
        (32 * warps, 1, 1),
        (
            TensorMap("A", box=(ROWS, k)),
            TensorMap("B", box=(n // blocks, k) if p.layout[1] == "t" else (k, k)),
            of_c if p.ldc * out % 16 == 0 else TensorMap("A", box=(ROWS, k)),
            *more,
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=shared,
        cluster=(blocks, 1, 1),
    )


ROW_BYTES, BARRIER_BYTES, ATOM_BYTES = 128, 8, 1024


def _k_tile_bytes(size: Mapping[str, int], blocks: int = 1) -> int:
    """Bytes of what a block loads of a k-tile."""
    return (ROWS + size["BLOCK_N"] // blocks) * ROW_BYTES


@GEMM.stage(
    "tensor_memory",
    track="tcgen05",
    idea="one thread starts products of k-tiles by tcgen05, whose sums lie in tensor memory, not in registers",
    supports=tma_and_wgmma,
    parameters={"BLOCK_M": ROWS, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16},
    space={"BLOCK_N": (64, 128, 256), "GROUP_M": GROUPS},
    edge_cases=(ODD_C, *PADDED_C, _TALL, *DEEP),
    architecture=100,
    specific=True,
)
def tensor_memory(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    shared = _k_tile_bytes(size) + ROWS * ROW_BYTES + ATOM_BYTES  # C on its way out, barriers
    return tile_launch(p, size, "gemm_tensor_memory", 4, shared, 1)


def pipeline_bytes(p: Product, size: Mapping[str, int], blocks: int = 1) -> int:
    """Bytes of the k-tiles, of C on its way out, two buffers of 128 bytes of a row, and of barriers."""
    return size["STAGES"] * _k_tile_bytes(size, blocks) + 2 * ROWS * ROW_BYTES + ATOM_BYTES


def _fits(p: GemmProblem, size: Mapping[str, int], blocks: int = 1) -> str | None:
    fits = pipeline_bytes(p, size, blocks) <= machine().shared_bytes
    return None if fits else "the k-tiles do not fit into shared memory"


@GEMM.stage(
    "tensor_pipeline",
    after=tensor_memory,
    idea="one warp loads k-tiles ahead by TMA, another multiplies them, four store; products release k-tiles",
    parameters={"BLOCK_M": ROWS, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16, "STAGES": 4},
    space={"BLOCK_N": (64, 128, 256), "GROUP_M": GROUPS, "STAGES": (2, 3, 4, 6, 8)},
    constraint=_fits,
)
def tensor_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_tensor_pipeline", 6, pipeline_bytes(p, size), 1)


@GEMM.stage(
    "two_accumulators",
    after=tensor_pipeline,
    idea="persistent blocks with two accumulators: one tile is stored while the next one is multiplied",
)
def two_accumulators(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    launch = tile_launch(p, size, "gemm_two_accumulators", 6, pipeline_bytes(p, size), 1)
    return replace(launch, persistent=True)


@GEMM.stage(
    "two_blocks",
    after=two_accumulators,
    idea="two blocks compute tiles of 256 rows by products of both: each loads half of the columns of B",
    parameters={"BLOCK_M": ROWS, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "STAGES": 6},
    space={"BLOCK_N": (128, 256), "GROUP_M": GROUPS[:-1], "STAGES": (3, 4, 6)},
    constraint=lambda p, size: _fits(p, size, blocks=2),
    edge_cases=(ODD_C, *PADDED_C, _TALLER, *DEEP),
)
def two_blocks(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    launch = tile_launch(p, size, "gemm_two_blocks", 6, pipeline_bytes(p, size, 2), 2)
    return replace(launch, persistent=True)


@GEMM.stage(
    "tries_to_cancel",
    after=two_accumulators,
    idea="a block that is done takes over the tile of one that has not started, by clusterlaunchcontrol",
)
def tries_to_cancel(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_tries_to_cancel", 7, pipeline_bytes(p, size), 1)
