"""Stages of attention_backward: on CUDA cores, by mma.sync, and by TMA and wgmma."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32, INT32
from ...model.launch import Argument, Launch, Plan, ceil_div, machine
from ...model.tensor_map import TensorMap
from ..attention.operation import counts, strides
from ..attention.problem import Kind, Layout
from ..attention.stages import weights_fit
from .operation import ATTENTION_BACKWARD, EDGE_CASES
from .problem import AttentionBackwardProblem, padded_dim, tensor_maps


@ATTENTION_BACKWARD.stage(
    "naive",
    track="simt",
    idea="the steps of the definition; weights and gradients of all logits are stored in memory",
    parameters={"THREADS": 128},
    supports=weights_fit,
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: AttentionBackwardProblem, size: Mapping[str, int]) -> Plan:
    rows, threads = p.batch * p.heads * p.rows, size["THREADS"]
    factor = np.float32(p.factor)
    sizes = (*counts(p), np.int32(p.batch))

    def launch(kernel: str, count: int, *arguments: str | np.generic) -> Launch:
        return Launch(f"attention_backward_{kernel}", (ceil_div(count, threads), 1, 1), (threads, 1, 1), arguments)

    of_all = strides(p, "q", "k", "o")
    keys = p.batch * p.key_heads * p.keys * p.dim
    scores = Array((rows, p.keys), FP32, output=True)
    return Plan(
        (
            launch("rows", rows, "o", "do", "delta", *strides(p, "o"), *sizes),
            launch(
                "scores",
                rows * p.keys,
                *("q", "k", "v", "lse", "do", "delta", "w", "dw"),
                *of_all,
                *sizes,
                np.int32(p.causal),
                factor,
            ),
            launch("queries", rows * p.dim, "k", "dw", "dq", *strides(p, "k", "dq"), *sizes, factor),
            launch("keys", keys, *("q", "do", "w", "dw", "dk", "dv"), *strides(p, "q", "o", "dk"), *sizes, factor),
        ),
        scratch={"delta": Array((rows,), FP32, output=True), "w": scores, "dw": scores},
    )


# ------------------------------------ kernels before and after those that multiply, and the scratch memory between them


ROWS_THREADS = 256


def padded_rows(p: AttentionBackwardProblem, tile: int) -> int:
    """Rows of a head in whole tiles."""
    return tile * ceil_div(p.rows, tile)


def scratch(p: AttentionBackwardProblem, tile: int) -> dict[str, Array]:
    """For every row, padded to tiles: lse in base 2, rowsum(do o), and the sums that become dq."""
    heads, rows, dim = p.batch * p.heads, padded_rows(p, tile), padded_dim(p)
    of_row = Array((heads, rows), FP32, output=True)
    return {"lse2": of_row, "delta": of_row, "sums": Array((heads, rows, dim), FP32, output=True)}


def _sizes(p: AttentionBackwardProblem, tile: int) -> tuple[np.generic, ...]:
    counts = (p.heads, p.rows, p.dim, p.batch * p.heads, padded_rows(p, tile))
    return tuple(np.int32(n) for n in counts)


def _blocks(p: AttentionBackwardProblem, tile: int) -> int:
    """Of threads that have 8 elements of a row each."""
    return ceil_div(p.batch * p.heads * padded_rows(p, tile) * padded_dim(p) // 8, ROWS_THREADS)


def before(p: AttentionBackwardProblem, tile: int) -> Launch:
    arrays = ("o", "do", "lse", "lse2", "delta", "sums")
    return Launch(
        "attention_backward_rows",
        (_blocks(p, tile), 1, 1),
        (ROWS_THREADS, 1, 1),
        (*arrays, *strides(p, "o"), *_sizes(p, tile)),
    )


def after(p: AttentionBackwardProblem, tile: int) -> Launch:
    return Launch(
        "attention_backward_queries",
        (_blocks(p, tile), 1, 1),
        (ROWS_THREADS, 1, 1),
        ("sums", "dq", *strides(p, "dq"), *_sizes(p, tile), np.float32(p.factor)),
    )


# ------------------------------------------------------------------- by mma.sync, whose operands pass through registers


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
    padded = np.int32(padded_rows(p, BLOCK))
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
    return Plan((before(p, BLOCK), main, after(p, BLOCK)), scratch=scratch(p, BLOCK))


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


# --------------------------------------------------------------- by TMA and wgmma, which reads tiles from shared memory


KEYS = {64: 128, 128: 128, 256: 64}
"""Of a block, by dim."""

ROWS = {64: 128, 128: 64, 256: 64}
"""Of a tile, by dim."""

_EDGE_CASES_BY_TMA = (
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


def _sizes_by_tma(p: AttentionBackwardProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    return {"DIM": dim, "BLOCK_M": ROWS[dim], "CAUSAL": int(p.causal)}


def _supports(p: AttentionBackwardProblem) -> str | None:
    return "its tiles hold vectors of at most 128 elements" if p.dim > 128 else tensor_maps(p)


def _after(p: AttentionBackwardProblem, tile: int) -> Launch:
    rows = padded_rows(p, tile)
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
            np.int32(padded_rows(p, tile)),
            np.float32(p.factor),
            *more,
        ),
        shared_bytes=machine().shared_bytes,
    )
    return Plan((before(p, tile), main, _after(p, tile)), scratch=scratch(p, tile))


@ATTENTION_BACKWARD.stage(
    "tma",
    track="wgmma",
    idea="TMA and wgmma: transposed logits stay in registers, and dq is added to memory in bulk",
    supports=_supports,
    sizes=_sizes_by_tma,
    edge_cases=_EDGE_CASES_BY_TMA,
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
    parts = 2 * p.batch * p.heads * padded_rows(p, tile) // tile
    plan = _plan(p, "attention_backward_deterministic", more=("flags", np.int32(parts)))
    flags = Array((parts + 1,), INT32, output=True)  # the last is the ticket
    clear = Launch("attention_backward_clear", (parts // 256 + 1, 1, 1), (256, 1, 1), ("flags", np.int32(parts + 1)))
    return replace(plan, launches=(clear, *plan.launches), scratch={**plan.scratch, "flags": flags})
