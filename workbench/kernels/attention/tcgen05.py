"""Stages of attention by tcgen05, whose logits and sums lie in tensor memory: for sm_100a, verified in the emulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, ceil_div, machine
from ...model.tensor_map import TensorMap
from .operation import ATTENTION, counts, strides
from .problem import AttentionProblem, padded_dim, tensor_maps
from .wgmma import TILED

ROWS = 128
"""Of queries: the lanes of tensor memory."""

KEYS = {64: 128, 128: 128, 192: 64, 256: 64}
"""Of a tile, by dim: beside the queries, keys and values fit into shared memory."""


def _tile_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    return {"DIM": dim, "BLOCK_N": KEYS[dim], "CAUSAL": int(p.causal), "WARPGROUPS": 2}


def _launch(p: AttentionProblem, size: Mapping[str, int], kernel: str, tiles: int, threads: int) -> Launch:
    """A block of so many threads for so many tiles of 128 rows of a head."""
    boxes = {"q": ROWS, "k": size["BLOCK_N"], "v": size["BLOCK_N"]}
    return Launch(
        kernel,
        (ceil_div(p.rows, tiles * ROWS) * p.heads * p.batch, 1, 1),
        (threads, 1, 1),
        (
            *(TensorMap(name, box=(1, 1, rows, 64)) for name, rows in boxes.items()),
            "o",
            "lse",
            *strides(p, "o"),
            *counts(p),
            np.float32(p.factor),
        ),
        shared_bytes=machine().shared_bytes,
    )


@ATTENTION.stage(
    "tensor_memory",
    track="tcgen05",
    idea="products by tcgen05: logits, weights and sums lie in tensor memory, and a thread has a row of them",
    supports=tensor_maps,
    sizes=_tile_sizes,
    edge_cases=TILED,
    architecture=100,
    specific=True,
)
def tensor_memory(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_tensor_memory", 1, 128)


def _two_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Six tiles of keys and of values are in the circular buffer."""
    return _tile_sizes(p, size) | {"BLOCK_N": 128 if padded_dim(p) == 64 else 64, "STAGES": 6}


def _narrow(p: AttentionProblem) -> str | None:
    return tensor_maps(p) or (None if p.dim <= 128 else "two tiles of sums fit into tensor memory up to a dim of 128")


@ATTENTION.stage(
    "two_tiles",
    after=tensor_memory,
    idea="two tiles of rows: the products of one are computed while warps compute the weights of the other",
    supports=_narrow,
    sizes=_two_sizes,
)
def two_tiles(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_two_tiles", 2, 320)
