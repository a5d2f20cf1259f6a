"""Stages of attention_varlen: on CUDA cores, by mma.sync, and by TMA and wgmma."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32, INT32
from ...model.launch import Argument, Launch, Plan, ceil_div, machine
from ...model.tensor_map import TensorMap
from ..attention.problem import padded_dim, whole_chunks
from ..attention.stages import constraint, shared_bytes
from ..attention.wgmma import FITTED, in_rounds
from .operation import ATTENTION_VARLEN, EDGE_CASES, counts, row_tiles, strides
from .problem import SUITE, AttentionVarlenProblem, Lengths, tensor_maps


@ATTENTION_VARLEN.stage(
    "naive",
    track="simt",
    idea="one warp per row: it finds its sequence in the offsets, and then works as in attention",
    parameters={"WARPS": 4},
    space={"WARPS": (1, 2, 4, 8)},
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Launch:
    scalars = (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.causal), np.float32(p.factor))
    return Launch(
        "attention_varlen_naive",
        (ceil_div(p.heads * p.rows, size["WARPS"]), 1, 1),
        (32 * size["WARPS"], 1, 1),
        ("q", "k", "v", "offsets_q", "offsets_k", "o", "lse", *scalars),
    )


# ------------------------------------------------------------------- by mma.sync, whose operands pass through registers


@ATTENTION_VARLEN.stage(
    "tensor_core",
    track="mma",
    idea="tensor cores (mma.sync): a block finds its tile in the offsets; what lies behind an end is zero",
    parameters={"WARPS": 4, "BLOCK_N": 64},
    space={"WARPS": (4, 8), "BLOCK_N": (32, 64, 128)},
    constraint=constraint,
    sizes=lambda p, size: {"DIM": padded_dim(p)},
    edge_cases=EDGE_CASES,
    architecture=80,
)
def tensor_core(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Launch:
    aligned = tensor_maps(p) is None  # of the same 16 bytes
    scalars = (*strides(p, "q", "k", "o"), *counts(p), np.int32(p.causal), np.float32(p.factor), np.int32(aligned))
    return Launch(
        "attention_varlen_tensor_core",
        (row_tiles(p, 16 * size["WARPS"]) * p.heads, 1, 1),
        (32 * size["WARPS"], 1, 1),
        ("q", "k", "v", "offsets_q", "offsets_k", "o", "lse", *scalars),
        shared_bytes=shared_bytes(padded_dim(p), size),
    )


# -------------------------------------------- by TMA and wgmma, which reads queries, keys and values from shared memory


_P = AttentionVarlenProblem

_EDGE_CASES = (
    *EDGE_CASES,
    # so many tiles of keys that every buffer is filled several times
    _P(batch=3, rows=30, keys=1900, dim=64, lengths=Lengths.ONE_LONG),
    _P(batch=4, heads=2, group=2, rows=150, keys=1500, dim=128, causal=True, lengths=Lengths.UNIFORM, dtype="fp16"),
    _P(batch=2, rows=40, keys=800, dim=256, causal=True, lengths=Lengths.EVEN),
    _P(batch=3, rows=30, keys=900, dim=192, lengths=Lengths.ONE_LONG),
)


def _sizes(p: AttentionVarlenProblem, size: Mapping[str, int]) -> dict[str, int]:
    """What fits the dim, where no other sizes are asked for."""
    warpgroups, full, causal = FITTED[padded_dim(p)]
    keys = size["TILE_KEYS"] or (causal if p.causal else full)
    found = {"DIM": padded_dim(p), "BLOCK_N": keys, "CAUSAL": int(p.causal), "QUERY_BUFFERS": 1}
    return found | ({} if size["WARPGROUPS"] else {"WARPGROUPS": warpgroups})


def _mapped(p: AttentionVarlenProblem, name: str, places: int) -> TensorMap:
    """Of (1, heads, places, dim), as attention has it."""
    array = p.arrays()[name]
    (length, heads, dim), (place, head, _) = array.shape, array.element_strides
    shape, steps = (1, heads, length, dim), (length * place, head, place, 1)
    return TensorMap(name, box=(1, 1, places, 64), shape=shape, strides=steps)


def _launch(
    p: AttentionVarlenProblem, size: Mapping[str, int], kernel: str, *where: Argument, by_tma: bool = False
) -> Launch:
    """A block for every tile of rows that there can be; `where` is how it finds its own. TMA may store o, too."""
    rows, keys = 64 * size["WARPGROUPS"], size["BLOCK_N"]
    maps = _mapped(p, "q", rows), _mapped(p, "k", keys), _mapped(p, "v", keys)
    output: tuple[Argument, ...] = (_mapped(p, "o", 16), "o") if by_tma else ("o",)
    arguments = (*maps, "offsets_q", "offsets_k", *where, *output, "lse", *strides(p, "o"), *counts(p))
    return Launch(
        kernel,
        (row_tiles(p, rows) * p.heads, 1, 1),
        (128 * (size["WARPGROUPS"] + 1), 1, 1),
        (*arguments, np.float32(p.factor)),
        shared_bytes=machine().shared_bytes,
    )


@ATTENTION_VARLEN.stage(
    "tma",
    track="wgmma",
    idea="TMA and wgmma as in attention; rows and keys of the next sequence in a tile are masked and not stored",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 0, "TILE_KEYS": 0},
    sizes=_sizes,
    edge_cases=_EDGE_CASES,
    architecture=90,
    specific=True,
)
def tma(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_varlen_tma")


RANKED = 8
"""Sequences that a block ranks."""


def _ranked(
    p: AttentionVarlenProblem, size: Mapping[str, int], kernel: str, by_tma: bool = False, **more: Array
) -> Plan:
    """With a kernel before that ranks sequences by their keys, and sets what `more` there is."""
    table = {"order": Array((p.batch,), INT32, output=True), "starts": Array((p.batch + 1,), INT32, output=True)}
    scratch = {**table, **more}
    arguments: tuple[Argument, ...] = ("offsets_q", "offsets_k", *scratch, np.int32(p.batch))
    blocks = (ceil_div(p.batch, RANKED), 1, 1)
    rank = Launch("attention_varlen_rank", blocks, (32 * RANKED, 1, 1), arguments)
    return Plan((rank, _launch(p, size, kernel, *scratch, by_tma=by_tma)), scratch=scratch)


@ATTENTION_VARLEN.stage(
    "longest_first",
    after=tma,
    idea="a first kernel ranks sequences by their number of keys; blocks start with the longest",
)
def longest_first(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Plan:
    return _ranked(p, size, "attention_varlen_longest_first")


@ATTENTION_VARLEN.stage(
    "persistent",
    after=longest_first,
    idea="persistent blocks: a producer draws the next of the ranked tiles from a counter, and loads it ahead",
)
def persistent(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Plan:
    return _drawn(p, size, "attention_varlen_persistent")


def _drawn(p: AttentionVarlenProblem, size: Mapping[str, int], kernel: str, by_tma: bool = False) -> Plan:
    """Blocks that draw ranked tiles."""
    plan = _ranked(p, size, kernel, by_tma, ticket=Array((1,), INT32, output=True))
    rank, main = plan.launches
    return replace(plan, launches=(rank, replace(main, grid=in_rounds(main.grid[0]), persistent=True)))


STORED_KEYS = {64: 112, 128: 128}
"""Of a tile, by dim: beside two tiles of queries in shared memory, and what is known of a sequence in registers."""


def _stored_sizes(p: AttentionVarlenProblem, size: Mapping[str, int]) -> dict[str, int]:
    """As many keys as fit, beyond a dim of 128 with one tile of queries."""
    found = _sizes(p, size)
    if found["DIM"] > 128:
        return found
    return found | {"BLOCK_N": size["TILE_KEYS"] or STORED_KEYS[found["DIM"]], "QUERY_BUFFERS": 2}


@ATTENTION_VARLEN.stage(
    "row_by_row",
    after=persistent,
    idea="as in attention: one row's weights hide behind products, the other's hide rescaling; TMA stores",
    supports=whole_chunks,
    sizes=_stored_sizes,
)
def row_by_row(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Plan:
    return _drawn(p, size, "attention_varlen_row_by_row", by_tma=True)


SLOT_BYTES = 2**25
"""Of memory for what parts of the keys give, at most."""


def _packed(p: AttentionVarlenProblem, size: Mapping[str, int]) -> tuple[int, int, int]:
    """Heads that a work tile packs, rows of queries of it, and such tiles of one row, as in `packed_rows.cuh`."""
    rows = 64 * size["WARPGROUPS"]
    chunks = ceil_div(p.group, rows)
    heads = ceil_div(p.group, chunks)
    return heads, rows // heads, p.key_heads * chunks


def _slots(p: AttentionVarlenProblem, size: Mapping[str, int]) -> int:
    """Of 16 rows and a part of the keys, as many as are of use or fit: parts are rounded, up to 4/3 of the shares."""
    heads, places, units = _packed(p, size)
    parts = 4 * ceil_div(p.keys, size["BLOCK_N"]) // (3 * ceil_div(size["LEAST_KEYS"], size["BLOCK_N"]))
    if parts < 2:
        return 1
    tiles = (p.rows // places + min(p.batch, p.rows)) * units * parts
    useful = min(tiles, 4 * size["SHARES"] * machine().multiprocessors // 3 + 1)
    warps = ceil_div(min(places, p.rows) * heads, 16)
    return min(useful * warps, SLOT_BYTES // _slot(size))


def _slot(size: Mapping[str, int]) -> int:
    """Bytes: for each lane of a warp sums of all columns, two maxima and two sums of weights."""
    return 32 * 16 * (size["DIM"] // 8 + 1)


_PACKED_CASES = (
    *_EDGE_CASES,
    _P(batch=5, heads=4, group=4, rows=9, keys=2500, dim=128, causal=True, lengths=Lengths.DECODE),  # split
    _P(batch=3, heads=10, group=5, rows=90, keys=1200, dim=64, causal=True, lengths=Lengths.ONE_LONG, dtype="fp16"),
    _P(batch=2, heads=71, group=71, rows=4, keys=700, dim=64, lengths=Lengths.UNIFORM),
    _P(batch=2, heads=260, group=130, rows=3, keys=20, dim=256, causal=True),  # heads of a group in two chunks
    _P(batch=1, heads=32, group=32, rows=70, keys=900, dim=72, causal=True),
    _P(batch=3, heads=2, rows=200, keys=90, dim=128, causal=True, lengths=Lengths.UNIFORM),  # more rows than keys
)


@ATTENTION_VARLEN.stage(
    "packed_heads",
    after=row_by_row,
    idea="rows of heads that share keys fill one tile; long keys are split, and the last block merges their parts",
    problem=SUITE[4],
    parameters={"WARPGROUPS": 0, "TILE_KEYS": 0, "SHARES": 2, "LEAST_KEYS": 256},
    space={"SHARES": (2, 4, 8), "LEAST_KEYS": (256, 512, 1024)},
    edge_cases=_PACKED_CASES,
)
def packed_heads(p: AttentionVarlenProblem, size: Mapping[str, int]) -> Plan:
    (heads, places, units), slots = _packed(p, size), _slots(p, size)
    arrays = p.arrays()

    def mapped(name: str, box_rows: int, box_heads: int) -> TensorMap:
        """Of (rows, key heads, group, dim)."""
        (length, _, dim), (place, head, _) = arrays[name].shape, arrays[name].element_strides
        shape, steps = (length, p.key_heads, p.group, dim), (place, p.group * head, head, 1)
        return TensorMap(name, box=(box_rows, 1, box_heads, 64), shape=shape, strides=steps)

    queries, stored = mapped("q", places, heads), mapped("o", max(1, 16 // heads), min(16, heads))
    ranks = Array((p.batch + 1, 4), INT32, output=True)
    ticket = Array((1,), INT32, output=True)
    found = Array((slots, _slot(size) // 4), FP32, output=True)
    counters = Array((slots,), FP32, output=True, zero=True)  # 4 bytes each
    packing = tuple(np.int32(n) for n in (p.group, ceil_div(p.group, heads), heads, p.batch, units))
    shares = np.int32(size["SHARES"] * machine().multiprocessors), np.int32(slots)
    rank = Launch(
        "attention_varlen_rank_parts",
        (ceil_div(p.batch, RANKED), 1, 1),
        (32 * RANKED, 1, 1),
        ("offsets_q", "offsets_k", "ranks", "ticket", *packing, *shares),
    )
    scratch = {"ranks": ranks, "ticket": ticket, "found": found, "counters": counters}
    keys, values = (_mapped(p, name, size["BLOCK_N"]) for name in "kv")
    maps: tuple[Argument, ...] = (queries, keys, values)
    arguments = (*maps, "offsets_q", "offsets_k", *scratch, stored, "o", "lse", *strides(p, "o"))
    main = Launch(
        "attention_varlen_packed_heads",
        in_rounds((p.rows // places + p.batch) * units),
        (128 * (size["WARPGROUPS"] + 1), 1, 1),
        (*arguments, *packing, np.int32(p.rows), np.int32(p.dim), np.float32(p.factor)),
        shared_bytes=machine().shared_bytes,
        persistent=True,
        programmatic=True,
    )
    return Plan((rank, main), scratch=scratch)
