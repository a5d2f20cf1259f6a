"""Stages of attention by TMA and wgmma, which reads queries, keys and values from shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...model.launch import Launch, ceil_div
from ...model.tensor_map import TensorMap
from .operation import ATTENTION, EDGE_CASES, SHARED_BYTES, counts, strides
from .problem import AttentionProblem, Layout, padded_dim, tensor_maps

_LONG = (
    AttentionProblem(rows=70, keys=1100, dim=64, layout=Layout.BSHD),
    AttentionProblem(heads=2, rows=300, keys=1000, dim=128, group=2, causal=True, dtype="fp16"),
    AttentionProblem(rows=140, keys=700, dim=256, causal=True),
    AttentionProblem(rows=130, keys=1000, dim=128, layout=Layout.BSHD),
    AttentionProblem(rows=70, keys=500, dim=192, dtype="fp16"),
)
"""So many tiles of keys that every buffer is filled several times: parities of its barriers come back."""

_EDGE_CASES = (*EDGE_CASES, *_LONG)

KEYS = {64: 128, 128: 128, 192: 96, 256: 64}
"""Of a tile, by dim."""

FITTED = {64: (3, 128, 128), 128: (2, 176, 128), 192: (2, 112, 112), 256: (2, 80, 80)}
"""By dim: consumer warpgroups, and keys of a tile, without and with a causal mask: as many as registers and shared
memory hold. Under a mask small tiles waste less."""


def _tile_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    return {"DIM": dim, "BLOCK_N": KEYS[dim], "CAUSAL": int(p.causal)}


def _fitted_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    warpgroups, full, causal = FITTED[dim]
    found = {"DIM": dim, "BLOCK_N": size["TILE_KEYS"] or (causal if p.causal else full), "CAUSAL": int(p.causal)}
    return found | ({} if size["WARPGROUPS"] else {"WARPGROUPS": warpgroups})


def _fits(p: AttentionProblem, size: Mapping[str, int]) -> str | None:
    """Of parameters that are tuned, 0 is what fits the dim."""
    sizes = {**size, **_fitted_sizes(p, size)}
    dim, keys, warpgroups = sizes["DIM"], sizes["BLOCK_N"], sizes["WARPGROUPS"]
    if dim * 2 * (64 * warpgroups + 4 * keys) + 2048 > SHARED_BYTES:
        return "two tiles of keys and of values do not fit into shared memory"
    if dim // 2 + keys // 2 + keys // 4 > (200 if warpgroups == 2 else 128):  # sums, logits, weights
        return "a thread has too few registers for this many keys"
    return None


def _launch(
    p: AttentionProblem, size: Mapping[str, int], kernel: str, producers: int = 1, more: tuple[np.generic, ...] = ()
) -> Launch:
    """A block for every tile of rows, or, with `more` arguments, blocks that stay."""
    rows = 64 * size["WARPGROUPS"]
    return Launch(
        kernel,
        (ceil_div(p.rows, rows) * p.heads * p.batch, 1, 1),
        (128 * (size["WARPGROUPS"] + producers), 1, 1),
        (
            TensorMap("q", box=(1, 1, rows, 64)),
            TensorMap("k", box=(1, 1, size["BLOCK_N"], 64)),
            TensorMap("v", box=(1, 1, size["BLOCK_N"], 64)),
            "o",
            "lse",
            *strides(p, "o"),
            *counts(p),
            np.float32(p.factor),
            *more,
        ),
        shared_bytes=SHARED_BYTES,
        persistent=bool(more),
    )


@ATTENTION.stage(
    "tma",
    track="wgmma",
    source="attention/wgmma/01_tma.cu",
    idea="TMA loads tiles of keys and values, wgmma multiplies them in place; weights stay in registers",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
    specific=True,
)
def tma(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_tma", 0)


@ATTENTION.stage(
    "specialised",
    source="attention/wgmma/02_specialised.cu",
    idea="a producer loads through circular buffers of keys and of values; consumers do not wait for each other",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
    specific=True,
)
def specialised(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_specialised")


@ATTENTION.stage(
    "ping_pong",
    source="attention/wgmma/03_ping_pong.cu",
    idea="consumers alternate: while the products of one are computed, the other computes weights",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
    specific=True,
)
def ping_pong(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_ping_pong")


@ATTENTION.stage(
    "overlap",
    source="attention/wgmma/04_overlap.cu",
    idea="the product of the next keys is issued before that of the values; weights are computed meanwhile",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
    specific=True,
)
def overlap(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_overlap")


TOGETHER = 16 * 2**20
"""Bytes of keys and values that stay in the L2 while all rows of their heads are worked on."""


def _together(p: AttentionProblem) -> int:
    """Heads that are worked on in turn: those that share keys, and under a mask, where the longest tiles of all come
    first, as many as the L2 holds."""
    if not p.causal:
        return p.group
    of_head = 4 * p.keys * p.dim
    return max(1, min(p.batch * p.heads, p.group * (TOGETHER // of_head)))


_MANY_TILES = (
    AttentionProblem(batch=2, heads=3, rows=300, keys=300, dim=64, causal=True),
    AttentionProblem(batch=2, heads=6, rows=200, keys=70, dim=16, causal=True, group=3, layout=Layout.BSHD),
)
"""So many tiles that a block has several, some of which see no key."""


MULTIPROCESSORS = 132


def in_rounds(tiles: int) -> tuple[int, int, int]:
    """A grid for tiles of different lengths: of whole rounds, so that no multiprocessor is left out to make even ones.
    Blocks find no tile behind the last."""
    return (ceil_div(tiles, MULTIPROCESSORS) * MULTIPROCESSORS, 1, 1)


@ATTENTION.stage(
    "persistent",
    source="attention/wgmma/05_persistent.cu",
    idea="persistent blocks take one tile of rows after the other, the longest first",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 0, "TILE_KEYS": 0},
    space={"WARPGROUPS": (0, 2, 3), "TILE_KEYS": (0, 64, 80, 96, 112, 128, 144, 160, 176)},
    constraint=_fits,
    sizes=_fitted_sizes,
    edge_cases=(*_EDGE_CASES, *_MANY_TILES),
    architecture=90,
    specific=True,
)
def persistent(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    launch = _launch(p, size, "attention_persistent", more=(np.int32(p.batch * p.heads), np.int32(_together(p))))
    return replace(launch, grid=in_rounds(launch.grid[0]) if p.causal else launch.grid)
