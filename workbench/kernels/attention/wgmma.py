"""Stages of attention by TMA and wgmma, which reads queries, keys and values from shared memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, ceil_div
from ...model.tensor_map import TensorMap
from .operation import ATTENTION, EDGE_CASES, SHARED_BYTES, counts, strides
from .problem import AttentionProblem, Layout, padded_dim, tensor_maps

_LONG = (
    AttentionProblem(rows=70, keys=1100, dim=64, layout=Layout.BSHD),
    AttentionProblem(heads=2, rows=300, keys=1000, dim=128, group=2, causal=True, dtype="fp16"),
    AttentionProblem(rows=140, keys=700, dim=256, causal=True),
)
"""So many tiles of keys that every buffer is filled several times: parities of its barriers come back."""

_EDGE_CASES = (*EDGE_CASES, *_LONG)

KEYS = {64: 128, 128: 128, 192: 96, 256: 64}
"""Of a tile, by dim."""


def _tile_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    return {"DIM": dim, "BLOCK_N": KEYS[dim], "CAUSAL": int(p.causal)}


def _launch(p: AttentionProblem, size: Mapping[str, int], kernel: str, producers: int, persistent: bool) -> Launch:
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
            *((np.int32(p.batch),) if persistent else ()),
            np.float32(p.factor),
        ),
        shared_bytes=SHARED_BYTES,
        persistent=persistent,
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
)
def tma(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_tma", 0, False)


@ATTENTION.stage(
    "specialised",
    source="attention/wgmma/02_specialised.cu",
    idea="a producer loads through circular buffers of keys and of values; consumers of 64 rows do not wait for others",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
)
def specialised(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_specialised", 1, False)


@ATTENTION.stage(
    "ping_pong",
    source="attention/wgmma/03_ping_pong.cu",
    idea="consumers take turns: while the products of one are computed, another computes weights",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
)
def ping_pong(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_ping_pong", 1, False)


@ATTENTION.stage(
    "overlap",
    source="attention/wgmma/04_overlap.cu",
    idea="the products of the next keys are issued before those of the values: a consumer weighs meanwhile",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
)
def overlap(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_overlap", 1, False)
