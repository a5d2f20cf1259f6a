"""Stages of attention for few rows and many keys: the rows of the heads that share keys are one tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div, machine
from .operation import ATTENTION, EDGE_CASES, counts, strides
from .problem import AttentionProblem, Kind, Layout, padded_dim, tensor_maps

ROWS = 16
"""Rows of a tile: of one row of queries, or some, of all heads that share keys."""

_EDGE_CASES = (
    *EDGE_CASES,
    AttentionProblem(batch=2, heads=8, group=4, rows=1, keys=390, dim=128, layout=Layout.BSHD),
    AttentionProblem(heads=6, group=3, rows=7, keys=150, dim=64, causal=True, dtype="fp16", values=Kind.LARGE),
    AttentionProblem(heads=2, group=2, rows=5, keys=3, dim=72, causal=True),  # some rows see nothing
    AttentionProblem(heads=20, group=20, rows=1, keys=70, dim=200),  # more heads than a tile has rows
)


def _sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Where none are asked for, as many warps as have room for their tiles, which fill a multiprocessor."""
    dim = padded_dim(p)
    return {"DIM": dim, "WARPS": size["WARPS"] or (8 if dim <= 128 else 4)}


def _threads(p: AttentionProblem, size: Mapping[str, int]) -> tuple[int, int, int]:
    return (32 * _sizes(p, size)["WARPS"], 1, 1)


def shared_bytes(p: AttentionProblem, size: Mapping[str, int]) -> int:
    """Of the queries, of the tiles of all warps, and of a maximum and a sum of every row of each."""
    tiles, warps = 2 * size["STAGES"] * size["KEYS"], _sizes(p, size)["WARPS"]
    return (ROWS + warps * tiles) * padded_dim(p) * 2 + warps * ROWS * 8


def row_tiles(p: AttentionProblem) -> int:
    """Tiles of 16 rows of all heads of keys of all batches."""
    return ceil_div(p.group * p.rows, ROWS) * p.key_heads * p.batch


def _tile_rows(p: AttentionProblem) -> int:
    """Rows of the largest tile."""
    return min(ROWS, p.group * p.rows)


def _scalars(p: AttentionProblem) -> tuple[np.generic, ...]:
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    return (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.causal), np.float32(p.factor), np.int32(aligned))


_SPACE = {"WARPS": (0, 2, 4, 8), "KEYS": (16, 32), "STAGES": (2, 3, 4, 6)}


def _constraint(p: AttentionProblem, size: Mapping[str, int]) -> str | None:
    return None if shared_bytes(p, size) <= machine().shared_bytes else "the tiles do not fit into shared memory"


@ATTENTION.stage(
    "packed_heads",
    track="decode",
    idea="few rows: the rows of heads that share keys form one tile; each warp loads its own keys, some tiles ahead",
    problem=AttentionProblem(batch=64, heads=32, rows=1, keys=4096, dim=128, group=4),
    parameters={"WARPS": 0, "KEYS": 16, "STAGES": 3},
    space=_SPACE,
    constraint=_constraint,
    sizes=_sizes,
    edge_cases=_EDGE_CASES,
    architecture=80,
)
def packed_heads(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "attention_packed_heads",
        (row_tiles(p), 1, 1),
        _threads(p, size),
        ("q", "k", "v", "o", "lse", *_scalars(p)),
        shared_bytes=shared_bytes(p, size),
    )


OVERHEAD = 2
"""Tiles of keys of a block that could be loaded in the time in which it starts and ends."""

MERGED = 4
"""How many times as fast as its share of the memory a block reads what it merges from the L2."""


def splits_of(p: AttentionProblem, size: Mapping[str, int]) -> tuple[int, int]:
    """Into how many parts keys are split, and the keys of one: the least time for rounds of blocks, and to merge."""
    tile = _sizes(p, size)["WARPS"] * size["KEYS"]
    tiles, items = ceil_div(p.keys, tile), row_tiles(p)
    if size["SPLITS"]:
        part = ceil_div(tiles, min(size["SPLITS"], tiles))
    else:
        merged = _tile_rows(p) / (MERGED * tile)  # fp32, as the bytes of keys and values of 16 bits

        def cost(part: int) -> float:
            splits = ceil_div(tiles, part)
            rounds = ceil_div(items * splits, machine().multiprocessors)
            return rounds * (part + OVERHEAD) + (splits > 1) * splits * merged

        part = min(
            {ceil_div(tiles, splits) for splits in range(1, min(tiles, 2 * machine().multiprocessors) + 1)}, key=cost
        )
    return ceil_div(tiles, part), part * tile


_SPLIT_CASES = (
    *_EDGE_CASES,
    AttentionProblem(heads=4, group=4, rows=3, keys=1100, dim=64, causal=True, values=Kind.LARGE),  # many parts
    AttentionProblem(heads=2, rows=40, keys=333, dim=16, causal=True, layout=Layout.BSHD),  # some see no key of a part
)


@ATTENTION.stage(
    "split_keys",
    after=packed_heads,
    idea="enough blocks to fill the GPU share the keys of a tile; a second kernel merges their results",
    problem=AttentionProblem(heads=32, rows=1, keys=131_072, dim=128, group=4),
    parameters={"WARPS": 0, "KEYS": 16, "STAGES": 3, "SPLITS": 0},
    space=_SPACE,
    constraint=_constraint,
    edge_cases=_SPLIT_CASES,
)
def split_keys(p: AttentionProblem, size: Mapping[str, int]) -> Plan:
    return _merged("attention_split_keys", "attention_merge_splits", p, size)


def _merged(kernel: str, merge: str, p: AttentionProblem, size: Mapping[str, int], programmatic: bool = False) -> Plan:
    """Blocks that share the keys of tiles, and where there is more than one part a kernel that merges the parts."""
    splits, _ = splits_of(p, size)
    shared = _shared_keys(kernel, p, size)
    if splits == 1:
        return shared
    sizes = tuple(np.int32(n) for n in (p.heads, p.group, p.rows, p.dim))
    merged = Launch(
        merge,
        (row_tiles(p) * _tile_rows(p), 1, 1),
        _threads(p, size),
        ("o", "lse", *shared.scratch, *strides(p, "o"), *sizes, np.float32(p.factor), np.int32(splits)),
        programmatic=programmatic,
    )
    return replace(shared, launches=(*shared.launches, merged))


@ATTENTION.stage(
    "last_block",
    after=split_keys,
    idea="the last block of a tile merges the results; a counter tells which block is the last",
    problem=AttentionProblem(heads=32, rows=1, keys=8192, dim=128, group=4),
)
def last_block(p: AttentionProblem, size: Mapping[str, int]) -> Plan:
    counters = Array((row_tiles(p),), FP32, output=True, zero=True)  # 4 bytes each
    return _shared_keys("attention_last_block", p, size, counters=counters)


@ATTENTION.stage(
    "overlapped_merge",
    after=split_keys,
    idea="a programmatic launch: the kernel that merges starts while the first one runs, and waits for its end",
    problem=AttentionProblem(heads=32, rows=1, keys=8192, dim=128, group=4),
    architecture=90,
)
def overlapped_merge(p: AttentionProblem, size: Mapping[str, int]) -> Plan:
    return _merged("attention_overlapped_merge", "attention_merge_overlapped", p, size, programmatic=True)


def _shared_keys(kernel: str, p: AttentionProblem, size: Mapping[str, int], **more: Array) -> Plan:
    """Blocks that share the keys of tiles, and where they leave what they found: of every part of the keys averages,
    and of each row a maximum and a sum; nothing where there is one part."""
    splits, part = splits_of(p, size)
    rows = (row_tiles(p), splits, _tile_rows(p)) if splits > 1 else (1, 1, 1)
    scratch = {
        "partial": Array((*rows, padded_dim(p)), FP32, output=True),
        "stats": Array((*rows, 2), FP32, output=True),
    }
    launch = Launch(
        kernel,
        (row_tiles(p) * splits, 1, 1),
        _threads(p, size),
        ("q", "k", "v", "o", "lse", *scratch, *_scalars(p), np.int32(splits), np.int32(part), *more),
        shared_bytes(p, size),
    )
    return Plan((launch,), scratch={**scratch, **more})
