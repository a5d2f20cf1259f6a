"""Stages of attention by TMA and wgmma, which reads queries, keys and values from shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import INT32
from ...model.launch import Argument, Launch, Plan, ceil_div, machine
from ...model.tensor_map import TensorMap
from .operation import ATTENTION, EDGE_CASES, counts, strides
from .problem import AttentionProblem, Layout, padded_dim, tensor_maps, whole_chunks

_LONG = (
    AttentionProblem(rows=70, keys=1100, dim=64, layout=Layout.BSHD),
    AttentionProblem(heads=2, rows=300, keys=1000, dim=128, group=2, causal=True, dtype="fp16"),
    AttentionProblem(rows=140, keys=700, dim=256, causal=True),
    AttentionProblem(rows=130, keys=1000, dim=128, layout=Layout.BSHD),
    AttentionProblem(rows=70, keys=500, dim=192, dtype="fp16"),
)
"""So many tiles of keys that every buffer is filled several times: parities of its barriers come back."""

TILED = (*EDGE_CASES, *_LONG)

KEYS = {64: 128, 128: 128, 192: 96, 256: 64}
"""Of a tile, by dim."""

FITTED = {64: (3, 128, 128), 128: (2, 176, 128), 192: (2, 112, 112), 256: (2, 80, 80)}
"""By dim: consumer warpgroups, and keys of a tile, without and with a causal mask: as many as registers and shared
memory hold. Under a mask small tiles waste less."""


def _tile_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    return {"DIM": dim, "BLOCK_N": KEYS[dim], "CAUSAL": int(p.causal), "QUERY_BUFFERS": 1}


def _fitted_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    dim = padded_dim(p)
    warpgroups, full, causal = FITTED[dim]
    keys = size["TILE_KEYS"] or (causal if p.causal else full)
    found = {"DIM": dim, "BLOCK_N": keys, "CAUSAL": int(p.causal), "QUERY_BUFFERS": 1}
    return found | ({} if size["WARPGROUPS"] else {"WARPGROUPS": warpgroups})


def _fits(p: AttentionProblem, size: Mapping[str, int]) -> str | None:
    """Of parameters that are tuned, 0 is what fits the dim."""
    return _too_large({**size, **_fitted_sizes(p, size)})


def _too_large(sizes: Mapping[str, int]) -> str | None:
    """Why work tiles of these sizes do not fit a block, or None."""
    dim, keys, warpgroups = sizes["DIM"], sizes["BLOCK_N"], sizes["WARPGROUPS"]
    if dim * 2 * (64 * warpgroups * sizes["QUERY_BUFFERS"] + 4 * keys) + 2048 > machine().shared_bytes:
        return "two tiles of keys and of values do not fit into shared memory beside the queries"
    if dim // 2 + keys // 2 + keys // 4 > (200 if warpgroups == 2 else 128):  # sums, logits, weights
        return "a thread has too few registers for this many keys"
    return None


def _launch(
    p: AttentionProblem,
    size: Mapping[str, int],
    kernel: str,
    producers: int = 1,
    more: tuple[Argument, ...] = (),
    by_tma: bool = False,
) -> Launch:
    """A block for every tile of rows, or, with `more` arguments, blocks that stay. o is stored from registers, or by
    TMA."""
    rows = 64 * size["WARPGROUPS"]
    output: tuple[Argument, ...] = ("o", "lse", *strides(p, "o"))
    if by_tma:
        output = (TensorMap("o", box=(1, 1, 16, 64)), "lse")
    return Launch(
        kernel,
        (ceil_div(p.rows, rows) * p.heads * p.batch, 1, 1),
        (128 * (size["WARPGROUPS"] + producers), 1, 1),
        (
            TensorMap("q", box=(1, 1, rows, 64)),
            TensorMap("k", box=(1, 1, size["BLOCK_N"], 64)),
            TensorMap("v", box=(1, 1, size["BLOCK_N"], 64)),
            *output,
            *counts(p),
            np.float32(p.factor),
            *more,
        ),
        shared_bytes=machine().shared_bytes,
        persistent=bool(more),
    )


@ATTENTION.stage(
    "tma",
    track="wgmma",
    idea="TMA loads tiles of keys and values, wgmma multiplies them in place; weights stay in registers",
    supports=tensor_maps,
    parameters={"WARPGROUPS": 2},
    sizes=_tile_sizes,
    edge_cases=TILED,
    architecture=90,
    specific=True,
)
def tma(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_tma", 0)


@ATTENTION.stage(
    "specialised",
    after=tma,
    idea="a producer loads through circular buffers of keys and of values; consumers do not wait for each other",
)
def specialised(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_specialised")


@ATTENTION.stage(
    "ping_pong",
    after=specialised,
    idea="consumers alternate: while the products of one are computed, the other computes weights",
)
def ping_pong(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "attention_ping_pong")


@ATTENTION.stage(
    "overlap",
    after=ping_pong,
    idea="a consumer computes weights of the next tile while the product of this tile's values is computed",
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


BALANCED, MOST_BALANCED = 4, 16
"""Work tiles for each multiprocessor from which on those of a group of heads are shared evenly, and heads of such a
group at most: of long sequences blocks read about the same keys at the same time, and not all of them have to stay in
the L2."""


def _balanced(p: AttentionProblem, rows: int) -> int:
    """Heads that are worked on in turn where blocks draw tiles of so many rows."""
    if not p.causal:
        return p.group
    balanced = min(MOST_BALANCED, BALANCED * machine().multiprocessors // ceil_div(p.rows, rows))
    return min(p.batch * p.heads, max(_together(p), balanced))


_MANY_TILES = (
    AttentionProblem(batch=2, heads=3, rows=300, keys=300, dim=64, causal=True),
    AttentionProblem(batch=2, heads=6, rows=200, keys=70, dim=16, causal=True, group=3, layout=Layout.BSHD),
)
"""So many tiles that a block has several, some of which see no key."""


def in_rounds(tiles: int) -> tuple[int, int, int]:
    """A grid for tiles of different lengths: of whole rounds, so that no multiprocessor is left out to make even ones.
    Blocks find no tile behind the last."""
    each = machine().multiprocessors
    return (ceil_div(tiles, each) * each, 1, 1)


@ATTENTION.stage(
    "persistent",
    after=overlap,
    idea="persistent blocks take one tile of rows after the other, the longest first",
    parameters={"WARPGROUPS": 0, "TILE_KEYS": 0},
    space={"WARPGROUPS": (0, 2, 3), "TILE_KEYS": (0, 64, 80, 96, 112, 128, 144, 160, 176)},
    constraint=_fits,
    sizes=_fitted_sizes,
    edge_cases=(*TILED, *_MANY_TILES),
)
def persistent(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    launch = _launch(p, size, "attention_persistent", more=(np.int32(p.batch * p.heads), np.int32(_together(p))))
    return replace(launch, grid=in_rounds(launch.grid[0]) if p.causal else launch.grid)


def _dynamic_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    """As in `persistent`, but with keys that leave room for two tiles of queries up to a dim of 128."""
    found = _fitted_sizes(p, size)
    if found["DIM"] > 128:
        return found | {"QUERY_BUFFERS": size["QUERY_BUFFERS"] or 1}
    keys = size["TILE_KEYS"] or min(128, found["BLOCK_N"])
    return found | {"BLOCK_N": keys, "QUERY_BUFFERS": size["QUERY_BUFFERS"] or 2}


TALL_TIME = 9 / 7
"""The time of a work tile of 192 rows, of that of 128 rows, at a dim of 64 (H200)."""


def _stored_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    """As in `dynamic`. At a dim of 64 work tiles have two warpgroups where those of three take more rounds of all
    multiprocessors than they are faster."""
    found = _dynamic_sizes(p, size)
    if found["DIM"] > 64 or size["WARPGROUPS"]:
        return found
    low, tall = (ceil_div(p.batch * p.heads * ceil_div(p.rows, rows), machine().multiprocessors) for rows in (128, 192))
    return found | {"WARPGROUPS": 2 if low <= TALL_TIME * tall else 3}


_DRAWN_SPACE = {"WARPGROUPS": (0, 2, 3), "TILE_KEYS": (0, 64, 96, 128, 160, 176), "QUERY_BUFFERS": (0, 1, 2)}


@ATTENTION.stage(
    "dynamic",
    after=overlap,
    idea="a dynamic tile scheduler: producers draw tiles from a counter, so no block gets too many long ones",
    parameters={"WARPGROUPS": 0, "TILE_KEYS": 0, "QUERY_BUFFERS": 0},
    space=_DRAWN_SPACE,
    constraint=lambda p, size: _too_large({**size, **_dynamic_sizes(p, size)}),
    sizes=_dynamic_sizes,
    edge_cases=(*TILED, *_MANY_TILES),
)
def dynamic(p: AttentionProblem, size: Mapping[str, int]) -> Plan:
    return _drawn(p, size, "attention_dynamic")


def _drawn(p: AttentionProblem, size: Mapping[str, int], kernel: str, by_tma: bool = False) -> Plan:
    """Blocks that draw their work tiles. Of tiles that differ in length, every multiprocessor gets some."""
    together = np.int32(p.batch * p.heads), np.int32(_balanced(p, 64 * size["WARPGROUPS"]))
    launch = _launch(p, size, kernel, more=(*together, "ticket"), by_tma=by_tma)
    launch = replace(launch, grid=in_rounds(launch.grid[0]))
    return Plan((launch,), scratch={"ticket": Array((1,), INT32, output=True, zero=True)})


_STORED_CASES = (
    *TILED,
    *_MANY_TILES,
    AttentionProblem(batch=7, heads=19, rows=130, keys=130, dim=16, layout=Layout.BSHD),
)
"""The last has so many tiles that those of three warpgroups are the faster ones."""


@ATTENTION.stage(
    "tma_store",
    after=dynamic,
    idea="averages go through shared memory, where the queries were, and TMA stores them",
    supports=whole_chunks,
    constraint=lambda p, size: _too_large({**size, **_stored_sizes(p, size)}),
    sizes=_stored_sizes,
    edge_cases=_STORED_CASES,
)
def tma_store(p: AttentionProblem, size: Mapping[str, int]) -> Plan:
    return _drawn(p, size, "attention_tma_store", by_tma=True)


@ATTENTION.stage(
    "row_by_row",
    after=tma_store,
    idea="weights of one row hide behind products, those of the other hide the rescaling and rounding",
)
def row_by_row(p: AttentionProblem, size: Mapping[str, int]) -> Plan:
    return _drawn(p, size, "attention_row_by_row", by_tma=True)


FEW_BLOCKS = {64: 3, 128: 2}
"""Blocks of 64 rows for each multiprocessor, by dim, of which each may have more shared memory, as there are few to
share it with."""

MANY_KEYS = 400
"""From which on rows of two warpgroups share what is read of them from the L2, at a dim of 64."""


def small_tile(p: AttentionProblem) -> tuple[int, int, int]:
    """Warpgroups, keys of a tile, and blocks that have to share a multiprocessor: what was fastest of those tried on
    some 30 problems (H200). Beyond a dim of 128 none was tried."""
    dim, blocks = padded_dim(p), p.batch * p.heads * ceil_div(p.rows, 64)
    if dim > 128:
        return 1, 32, 1
    if dim == 128:
        return (1, 64, 1) if blocks <= FEW_BLOCKS[dim] * machine().multiprocessors else (2, 64, 1)
    if p.keys <= 64:
        return 1, 64, 1
    if blocks <= FEW_BLOCKS[dim] * machine().multiprocessors:
        return 1, 128, 1
    return (2, 128, 2) if p.keys > MANY_KEYS else (1, 64, 1)


def _small_sizes(p: AttentionProblem, size: Mapping[str, int]) -> dict[str, int]:
    """What fits the problem, where no other sizes are asked for."""
    asked = size["WARPGROUPS"], size["TILE_KEYS"], size["BLOCKS"]
    names = ("WARPGROUPS", "BLOCK_N", "BLOCKS")
    fitting = {name: given or fit for name, given, fit in zip(names, asked, small_tile(p), strict=True)}
    return {"DIM": padded_dim(p), "CAUSAL": int(p.causal), **fitting}


def _small_bytes(size: Mapping[str, int]) -> int:
    """Shared memory of a block: its queries, circular buffers of keys and values, and barriers."""
    vectors = 64 * size["WARPGROUPS"] + 2 * size["STAGES"] * size["BLOCK_N"]
    return size["DIM"] * 2 * vectors + 256


def _small_fits(p: AttentionProblem, size: Mapping[str, int]) -> str | None:
    sizes = {**size, **_small_sizes(p, size)}
    if sizes["BLOCKS"] * (_small_bytes(sizes) + 1024) > machine().shared_bytes + 1024:
        return "so many blocks do not fit into the shared memory of a multiprocessor"
    registers = 65536 // (128 * sizes["WARPGROUPS"] * sizes["BLOCKS"])
    if sizes["DIM"] // 2 + sizes["BLOCK_N"] * 3 // 4 > min(registers, 255):  # sums, logits, weights
        return "a thread has too few registers for this many keys"
    return None


@ATTENTION.stage(
    "small_blocks",
    after=specialised,
    idea="blocks of one or two warpgroups without a producer: several share a multiprocessor",
    problem=AttentionProblem(batch=32, heads=16, rows=512, keys=512, dim=128),
    parameters={"WARPGROUPS": 0, "TILE_KEYS": 0, "STAGES": 2, "BLOCKS": 0},
    space={"WARPGROUPS": (0, 1, 2), "TILE_KEYS": (0, 32, 64, 96, 128), "STAGES": (2, 3, 4), "BLOCKS": (0, 1, 2, 3)},
    constraint=_small_fits,
    sizes=_small_sizes,
)
def small_blocks(p: AttentionProblem, size: Mapping[str, int]) -> Launch:
    return replace(_launch(p, size, "attention_small_blocks", producers=0), shared_bytes=_small_bytes(size))
