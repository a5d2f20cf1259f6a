"""Stages of attention_backward on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, Plan, ceil_div
from ..attention.operation import counts, strides
from ..attention.problem import Kind, Layout
from . import passes
from .operation import ATTENTION_BACKWARD, EDGE_CASES
from .problem import AttentionBackwardProblem, padded_dim, tensor_maps

BLOCK = 64
"""Rows, and keys, of a tile."""

_EDGE_CASES = (
    *EDGE_CASES,
    AttentionBackwardProblem(rows=130, keys=70, dim=200, heads=2, group=2, causal=True, layout=Layout.BSHD),
)

_ALL_KEYS_EDGE_CASES = (
    *(case for case in EDGE_CASES if case.keys <= BLOCK),
    AttentionBackwardProblem(batch=2, rows=20, keys=20, dim=64, causal=True, heads=3),
    AttentionBackwardProblem(rows=90, keys=30, dim=128, heads=4, group=2, causal=True, layout=Layout.BSHD),
    AttentionBackwardProblem(rows=33, keys=32, dim=40, dtype="fp16"),
    AttentionBackwardProblem(rows=64, keys=64, dim=64, heads=2, causal=True),
    AttentionBackwardProblem(rows=150, keys=50, dim=128, heads=2, group=2, values=Kind.LARGE, layout=Layout.BSHD),
    AttentionBackwardProblem(rows=140, keys=47, dim=72, causal=True, pad_q=3),
)
"""Blocks of 32 and 64 keys, of one tile and of several, whose heads share keys or not."""


@ATTENTION_BACKWARD.stage(
    "tensor_core",
    track="mma",
    idea="tensor cores (mma.sync): a block owns keys, loops over rows, recomputes weights, adds to dq atomically",
    sizes=lambda p, size: {"DIM": padded_dim(p)},
    edge_cases=_EDGE_CASES,
    architecture=80,
    deterministic=False,
)
def tensor_core(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    padded = np.int32(passes.padded_rows(p, BLOCK))
    scalars = (np.int32(p.causal), np.float32(p.factor), np.int32(aligned))
    main = Launch(
        "attention_backward_tensor_core",
        (ceil_div(p.keys, BLOCK), p.batch * p.key_heads, 1),
        (256, 1, 1),
        (
            *("q", "k", "v", "do", "lse2", "delta", "sums", "dk", "dv"),
            *strides(p, "q", "k", "o", "dk"),
            *counts(p),
            padded,
            *scalars,
        ),
        shared_bytes=2 * BLOCK * (6 * padded_dim(p) + 2 * BLOCK),
    )
    return Plan((passes.before(p, BLOCK), main, passes.after(p, BLOCK)), scratch=passes.scratch(p, BLOCK))


def _all_keys_sizes(p: AttentionBackwardProblem) -> dict[str, int]:
    """Keys of a block, and rows of a tile: small ones for few."""
    keys = 32 if p.keys <= 32 else BLOCK
    return {"DIM": padded_dim(p), "BLOCK_N": keys, "BLOCK_M": 32 if keys == 32 and p.rows <= 32 else BLOCK}


def _few_keys(p: AttentionBackwardProblem) -> str | None:
    if p.keys > BLOCK:
        return f"a block owns at most {BLOCK} keys"
    return "its tiles hold vectors of at most 128 elements" if p.dim > 128 else None


@ATTENTION_BACKWARD.stage(
    "all_keys",
    after=tensor_core,
    idea="a block owns all keys of a head: dq stays in registers; one launch, no scratch memory, no atomics",
    supports=_few_keys,
    sizes=lambda p, size: _all_keys_sizes(p),
    edge_cases=_ALL_KEYS_EDGE_CASES,
    deterministic=True,
)
def all_keys(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    of = _all_keys_sizes(p)
    dim, keys, rows = of["DIM"], of["BLOCK_N"], of["BLOCK_M"]
    tiles = 1 if p.rows <= rows and p.group == 1 else 2  # in shared memory
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    elements = 2 * keys * (dim + rows) + tiles * 3 * rows * dim
    launch = Launch(
        "attention_backward_all_keys",
        (p.batch * p.key_heads, 1, 1),
        (4 * keys, 1, 1),
        (
            *("q", "k", "v", "o", "do", "lse", "dq", "dk", "dv"),
            *strides(p, "q", "k", "o", "dk"),
            *counts(p),
            *(np.int32(p.causal), np.float32(p.factor), np.int32(aligned)),
        ),
        shared_bytes=2 * elements + 2 * 4 * rows,
    )
    return Plan((launch,))
