"""Stages of attention_backward by TMA and wgmma, which reads tiles from shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import INT32
from ...model.launch import Argument, Launch, Plan, ceil_div
from ...model.machine import machine
from ...model.tensor_map import TensorMap
from ..attention.operation import counts, strides
from ..attention.problem import Kind, Layout
from . import passes
from .operation import ATTENTION_BACKWARD, EDGE_CASES
from .problem import AttentionBackwardProblem, padded_dim, tensor_maps

KEYS = {64: 128, 128: 128, 256: 64}
"""Of a block, by dim."""

ROWS = {64: 128, 128: 64, 256: 64}
"""Of a tile, by dim."""

_EDGE_CASES = (
    *EDGE_CASES,
    AttentionBackwardProblem(rows=700, keys=70, dim=64, layout=Layout.BSHD),
    AttentionBackwardProblem(heads=2, rows=280, keys=130, dim=128, group=2, causal=True, dtype="fp16"),
    AttentionBackwardProblem(batch=2, rows=200, keys=300, dim=64, causal=True),
)
"""So many tiles of rows that every buffer is filled several times: parities of its barriers come back."""

_WIDE_EDGE_CASES = (
    AttentionBackwardProblem(rows=70, keys=150, dim=256, causal=True, values=Kind.LARGE, layout=Layout.BSHD),
    AttentionBackwardProblem(batch=2, rows=200, keys=70, dim=136, causal=True, heads=2, group=2),
    AttentionBackwardProblem(rows=400, keys=100, dim=192, dtype="fp16", layout=Layout.BSHD),
    AttentionBackwardProblem(heads=2, rows=130, keys=70, dim=256, group=2),
)


def _sizes(p: AttentionBackwardProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    return {"DIM": dim, "BLOCK_M": ROWS[dim], "CAUSAL": int(p.causal)}


def _supports(p: AttentionBackwardProblem) -> str | None:
    return "its tiles hold vectors of at most 128 elements" if p.dim > 128 else tensor_maps(p)


def _after(p: AttentionBackwardProblem, tile: int) -> Launch:
    rows = passes.padded_rows(p, tile)
    sizes = (*(np.int32(n) for n in (p.heads, p.rows, p.dim, rows)), np.float32(p.factor))
    grid, threads = (p.batch * p.heads * rows // tile, 1, 1), tile * padded_dim(p) // 32
    return Launch("attention_backward_queries", grid, (threads, 1, 1), ("sums", "dq", *strides(p, "dq"), *sizes))


def _plan(p: AttentionBackwardProblem, kernel: str, producers: int = 1, more: tuple[Argument, ...] = ()) -> Plan:
    tile, keys = ROWS[padded_dim(p)], KEYS[padded_dim(p)]
    main = Launch(
        kernel,
        (ceil_div(p.keys, keys) * p.key_heads * p.batch, 1, 1),
        (128 * (2 + producers), 1, 1),
        (
            TensorMap("q", box=(1, 1, tile, 64)),
            TensorMap("k", box=(1, 1, keys, 64)),
            TensorMap("v", box=(1, 1, keys, 64)),
            TensorMap("do", box=(1, 1, tile, 64)),
            *("lse2", "delta", "sums", "dk", "dv"),
            *strides(p, "dk"),
            *counts(p),
            np.int32(passes.padded_rows(p, tile)),
            np.float32(p.factor),
            *more,
        ),
        shared_bytes=machine().shared_bytes,
    )
    return Plan((passes.before(p, tile), main, _after(p, tile)), scratch=passes.scratch(p, tile))


@ATTENTION_BACKWARD.stage(
    "tma",
    track="wgmma",
    idea="TMA and wgmma: transposed logits stay in registers, and dq is added to memory in bulk",
    supports=_supports,
    sizes=_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
    specific=True,
    deterministic=False,
)
def tma(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    return _plan(p, "attention_backward_tma", 0)


@ATTENTION_BACKWARD.stage(
    "specialised",
    after=tma,
    idea="a producer loads rows through circular buffers of q and of do; two consumers synchronise once a tile",
)
def specialised(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    return _plan(p, "attention_backward_specialised")


@ATTENTION_BACKWARD.stage(
    "wide",
    after=specialised,
    idea="for dim 256: each consumer has half of the columns; one computes weights, one gradients of the logits",
    supports=lambda p: tensor_maps(p) if p.dim > 128 else "vectors of at most 128 elements need no halves",
    edge_cases=_WIDE_EDGE_CASES,
)
def wide(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    return _plan(p, "attention_backward_wide")


@ATTENTION_BACKWARD.stage(
    "deterministic",
    after=specialised,
    idea="flags make blocks add their parts of dq in the order of their keys, so two runs give the same bits",
    deterministic=True,
)
def deterministic(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    tile = ROWS[padded_dim(p)]
    parts = 2 * p.batch * p.heads * passes.padded_rows(p, tile) // tile
    plan = _plan(p, "attention_backward_deterministic", more=("flags", np.int32(parts)))
    flags = Array((parts + 1,), INT32, output=True)  # the last is the ticket
    clear = Launch("attention_backward_clear", (parts // 256 + 1, 1, 1), (256, 1, 1), ("flags", np.int32(parts + 1)))
    return replace(plan, launches=(clear, *plan.launches), scratch={**plan.scratch, "flags": flags})
