"""Stages of GEMM by TMA and wgmma, which reads its operands from shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32, dtype_of
from ...model.launch import Launch, Plan, ceil_div, machine, scaled
from ...model.tensor_map import TensorMap
from . import tiling
from .fastest import STREAMED_N
from .operation import DEEP, GEMM, GENERAL, GROUPS, ODD_C, extras, left_for_the_last, realigned_plan
from .problem import Activation, Added, GemmProblem, alone, half_types, tensor_maps, tma_and_wgmma

_DEEPER = (
    GemmProblem(m=70, n=136, k=64 * 56 + 1, dtype="bf16", pad_a=7, pad_b=7),
    GemmProblem(m=40, n=40, k=64 * 76, dtype="fp16", layout="nn"),
)
"""The same for a buffer of smaller k-tiles, of which an iteration takes two, and which two blocks share."""

_TALL = GemmProblem(m=128 * 17 + 1, n=264, k=8)
"""More rows of tiles than are walked together, and two columns of them."""

_WHOLE = GemmProblem(m=128 * 17, n=512, k=8)
"""The same of whole tiles: nothing is left over at the edges."""

_TALLER = GemmProblem(m=256 * 12 + 1, n=264, k=8)
"""13 rows of pairs of tiles, which are walked as 7 and 6, and two columns of them."""

_LEFT_OVER = tuple(GemmProblem(m=136, n=256 * tiles, k=64 * 6 + 8, seed=48) for tiles in (6, 8, 9))
"""For the five pairs of blocks that the emulator has with this seed, few tiles are left over when each had as many,
then more, then nearly a tile for each."""

PADDED_C = (
    GemmProblem(m=130, n=257, k=72, dtype="bf16", out="bf16", pad_c=7),
    GemmProblem(m=70, n=200, k=72, dtype="bf16", out="bf16", pad_c=1),
)
"""A TMA store would write beyond the columns of the first C, up to the next 16 bytes; of the second no tensor map can
be made, though its columns end at such a multiple."""


class Product(Protocol):
    """What `tile_launch` asks of a problem: C = A B of this layout."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def ldc(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def out(self) -> str: ...
    @property
    def layout(self) -> str: ...


def tile_launch(
    p: Product,
    size: Mapping[str, int],
    kernel: str,
    split: int = 1,
    sharing: int = 1,
    consumers: int = 0,
    more: tuple[str, ...] = (),
    promotion: int = 256,
    boxes_of_c: bool = True,
    operands: tuple[str, str] = ("A", "B"),
    stored_bytes: int = 128,
    share_a: bool = False,
    divided_panels: bool = False,
) -> Launch:
    """A cluster of `split` blocks for every tile of C, or of `sharing` blocks for as many tiles one above the other,
    which share B, or side by side if they `share_a`. Of an operand that does not lie along k each loads its part of the
    columns, or of the rows of `divided_panels`.

    Without `boxes_of_c` the kernel takes no tensor map of C; with it, where C can have none, one of A stands in. A
    consumer has 64 rows where their number is not given. `more` are arrays that the kernel is given before C, and
    `operands` those that hold A and B. `promotion` is that of the tensor maps of A and B: a row of a box is 128 bytes,
    and what the L2 fetches beyond them is of the next k-tile, early for it and in the way of this one."""
    m, n, k = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"]
    out, warp_rows = dtype_of(p.out).itemsize, 16
    of_a, of_b = tiling.shared_by(sharing, share_a)
    a_box, b_box = (
        (lines // sharers, k) if along_k else (k // sharers if divided_panels else k, 128 // dtype_of(p.dtype).itemsize)
        for lines, sharers, along_k in ((m, of_a, p.layout[0] == "n"), (n, of_b, p.layout[1] == "t"))
    )
    a, b = operands
    of_c = TensorMap("C", box=(warp_rows, stored_bytes // out), swizzle=stored_bytes)
    c_boxes = of_c if p.ldc * out % 16 == 0 else TensorMap(a, box=a_box)
    return Launch(
        kernel,
        (tiling.clusters_of(p.m, p.n, m, n, sharing, share_a) * sharing * split, 1, 1),
        (128 * (1 + (consumers or m // 64)), 1, 1),
        (
            TensorMap(a, box=a_box, promotion=promotion),
            TensorMap(b, box=b_box, promotion=promotion),
            *((c_boxes,) if boxes_of_c else ()),
            *more,
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=machine().shared_bytes,  # as many pipeline stages as fit
        cluster=(split * sharing, 1, 1),
        persistent=split == 1,
    )


def _tma_pipeline_shared(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Bytes of the k-tiles, of C on its way out (256 of every row), and of two barriers a pipeline stage."""
    k_tiles = (size["BLOCK_M"] + size["BLOCK_N"]) * size["BLOCK_K"] * dtype_of(p.dtype).itemsize
    return size["STAGES"] * (k_tiles + 2 * 8) + size["BLOCK_M"] * 256


@GEMM.stage(
    "tma_pipeline",
    track="wgmma",
    idea="a producer loads k-tiles ahead by TMA, and two consumer warpgroups multiply them in place by wgmma",
    supports=tma_and_wgmma,
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "STAGES": 4, "GROUP_M": 16},
    space={"BLOCK_N": (128, 256), "STAGES": (2, 3, 4, 5, 6), "GROUP_M": GROUPS},
    constraint=lambda p, size: (
        None if _tma_pipeline_shared(p, size) <= machine().shared_bytes else "the k-tiles do not fit into shared memory"
    ),
    edge_cases=(ODD_C, _TALL, _WHOLE, *DEEP),
    architecture=90,
    specific=True,
)
def tma_pipeline(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    launch = tile_launch(p, size, "gemm_tma_pipeline", boxes_of_c=False)
    return replace(launch, shared_bytes=_tma_pipeline_shared(p, size), persistent=False)


def _registers(p: GemmProblem, size: Mapping[str, int]) -> str | None:
    if size["BLOCK_M"] == 192 and size["BLOCK_N"] == 256:
        return "three consumers have registers for tiles of 128 columns, not for 256"
    return None


@GEMM.stage(
    "persistent",
    after=tma_pipeline,
    idea="persistent blocks take one tile after the other, and load the next one while a tile is stored",
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16},
    space={"BLOCK_M": (128, 192), "BLOCK_N": (128, 256), "GROUP_M": GROUPS},
    constraint=_registers,
    edge_cases=(*PADDED_C, _TALL, *DEEP),
)
def persistent(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_persistent", boxes_of_c=False)


@GEMM.stage("tma_store", after=persistent, idea="TMA also stores the tiles, from two buffers in shared memory")
def tma_store(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_tma_store")


def _pairs(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Two blocks share columns of B, or none do where the row of tiles that pairs have too many costs a round: with
    five rows, `deferred_epilogue` took 152 us at 544x5888x8224 for three pairs of them (H100), and cuBLAS 84."""
    rows, columns = ceil_div(p.m, size["BLOCK_M"]), ceil_div(p.n, size["BLOCK_N"])
    alone, paired = (ceil_div(n * columns, machine().multiprocessors) for n in (rows, rows + rows % 2))
    return {"SHARING": 1 if alone < paired else 2}


def _pairs_of_parts(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    """The same where blocks share what is left over: a row too many costs its share, and pairs gain less than that
    below MOST_ALONE rows."""
    rows = ceil_div(p.m, size["BLOCK_M"])
    return {"SHARING": 1 if rows % 2 and rows < MOST_ALONE else 2}


MOST_ALONE = 16
"""Rows of tiles below which an odd number of them has no pairs in `stream_k`."""

_ALONE = GemmProblem(m=8, n=256 * 66 + 8, k=8)
"""One row of 67 tiles, of which pairs would be too many for one round."""


@GEMM.stage(
    "multicast",
    after=tma_store,
    idea="two blocks of a cluster share k-tiles of B: each block loads one half, and TMA delivers it to both",
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8},
    space={"GROUP_M": GROUPS[:-1]},
    edge_cases=(*PADDED_C, _TALLER, _ALONE, *DEEP),
    sizes=_pairs,
)
def multicast(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_multicast", sharing=size["SHARING"])


@GEMM.stage(
    "serpentine",
    after=multicast,
    idea="tiles and their k-tiles are walked back and forth, so what was read last is read next",
)
def serpentine(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_serpentine", sharing=size["SHARING"])


@GEMM.stage(
    "deferred_epilogue",
    after=serpentine,
    idea="a finished tile stays in registers and is stored in parts while the next one is multiplied",
)
def deferred_epilogue(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_deferred_epilogue", sharing=size["SHARING"])


def _worth_sharing(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    """To hand over parts of tiles takes as long as some 16 iterations. Fewer tiles than any device has multiprocessors
    are never shared out there, and always by the few blocks of the emulator."""
    tiles = ceil_div(p.m, size["BLOCK_M"]) * ceil_div(p.n, size["BLOCK_N"])
    return {"LEAST_GAIN": 0 if tiles <= 64 else 16, **_pairs_of_parts(p, size)}


@GEMM.stage(
    "stream_k",
    after=deferred_epilogue,
    idea="if tiles do not divide evenly among the blocks, the blocks share the k-iterations of the rest",
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "BLOCKS": 132},
    space={"GROUP_M": GROUPS[:-1], "BLOCKS": (128, 130, 132)},
    edge_cases=(*PADDED_C, _TALLER, *DEEP, *_LEFT_OVER),
    sizes=_worth_sharing,
)
def stream_k(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    threads, most = 2 * size["BLOCK_M"], scaled(size["BLOCKS"])
    whole = tile_launch(p, size, "gemm_stream_k", sharing=size["SHARING"], more=("partial", "flags"))
    blocks = min(whole.grid[0], most)
    flags = Array((blocks, threads // 32), FP32, output=True, zero=True)  # 4 bytes each
    partial = Array((blocks, size["BLOCK_M"] * size["BLOCK_N"]), FP32, output=True)
    return Plan((replace(whole, grid=(blocks, 1, 1)),), scratch={"partial": partial, "flags": flags})


_MANY_TILES = (GemmProblem(m=8, n=128 * 129, k=72), GemmProblem(m=8, n=128 * 65 + 1, k=136, out="bf16"))
"""So many narrow tiles that `fitted_tiles` takes wide ones, for the first with k in one piece, for the second split."""


def _blocks(p: GemmProblem, size: Mapping[str, int], width: int, split: int) -> int:
    """Blocks at work on tiles of C `width` wide, `split` sharing one; 0 where they are too many or k is too short."""
    blocks = ceil_div(p.m, size["BLOCK_M"]) * ceil_div(p.n, width) * split
    return blocks if blocks <= scaled(size["BLOCKS"]) and split <= ceil_div(p.k, size["BLOCK_K"]) else 0


@GEMM.stage(
    "split_k",
    after=tma_store,
    idea="where tiles are few, clusters of two blocks split k and add up through distributed shared memory",
    parameters={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16, "BLOCKS": 128},
    space={"BLOCK_M": (128, 192), "BLOCK_N": (128, 256), "GROUP_M": GROUPS, "BLOCKS": (64, 128, 256)},
    constraint=_registers,
    sizes=lambda p, size: {"SPLIT": 2 if _blocks(p, size, size["BLOCK_N"], 2) else 1},
)
def split_k(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_split_k", size["SPLIT"])


def _fitted(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    m, n, split = tiling.wide(p, scaled(size["BLOCKS"]))
    return {"BLOCK_M": m, "BLOCK_N": n, "SPLIT": split}


def _fitted_launch(p: GemmProblem, size: Mapping[str, int], operands: tuple[str, str] = ("A", "B")) -> Launch:
    stored = max(64, min(128, size["BLOCK_N"] // size["SPLIT"] * dtype_of(p.out).itemsize))
    return tile_launch(
        p, size, "gemm_fitted_tiles", size["SPLIT"], promotion=128, operands=operands, stored_bytes=stored
    )


@GEMM.stage(
    "fitted_tiles",
    after=split_k,
    idea="tiles are narrower where wide ones would leave the device idle, even with k split",
    parameters={"BLOCK_K": 64, "GROUP_M": 16, "BLOCKS": 128, "B_ONCE": 0},
    space={"GROUP_M": GROUPS, "BLOCKS": (64, 128, 256, 512), "B_ONCE": (0, 1)},
    edge_cases=(*PADDED_C, _TALL, *DEEP, *_MANY_TILES),
    sizes=_fitted,
)
def fitted_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return _fitted_launch(p, size)


def _streamed(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    heights = (64,) if p.m <= 64 else (128,) if p.m <= 128 else (128, 64)  # one row of tiles reads B once
    choices = [(height, split) for split in (1, 2) for height in heights]

    def blocks(choice: tuple[int, int]) -> int:
        k_tiles = 128 // choice[0]  # of an iteration
        return _blocks(p, {**size, "BLOCK_M": choice[0], "BLOCK_K": k_tiles * size["BLOCK_K"]}, STREAMED_N, choice[1])

    height, split = max(choices, key=blocks)  # the first of equals
    once, along_k = p.m <= height, p.trans_b
    return {
        "BLOCK_M": height,
        "SPLIT": split,
        "B_ONCE": int(once),
        "A_SLOTS": (5 if height == 64 else 6 if along_k else 8) if once else 0,  # 0: A and B share a buffer
        "B_AT_ONCE": 2 if once and along_k and height == 128 else 1,  # 256 bytes of a row of B
        # where B is read row by row, blocks that wait for A together read what lies side by side
        "A_AHEAD": int(once and along_k),
    }


@GEMM.stage(
    "streamed",
    after=fitted_tiles,
    idea="for few rows: tiles are narrow; B has its own circular buffer, and is evicted first from the L2",
    parameters={"BLOCK_K": 64, "BLOCKS": 128},
    space={"BLOCKS": (64, 128, 256)},
    edge_cases=(
        *PADDED_C,
        *_DEEPER,
        GemmProblem(m=70, n=40, k=64),
        GemmProblem(m=8, n=STREAMED_N * 65 + 1, k=136, out="bf16"),
        GemmProblem(m=70, n=STREAMED_N * 130 + 1, k=136, out="bf16"),
    ),
    sizes=_streamed,
)
def streamed(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    m, n, k, split = size["BLOCK_M"], STREAMED_N, size["BLOCK_K"], size["SPLIT"]
    return Launch(
        "gemm_streamed",
        (ceil_div(p.m, m) * split, ceil_div(p.n, n), 1),
        (128 * 3, 1, 1),
        (
            TensorMap("A", box=(m, k), promotion=128),
            TensorMap("B", box=(n, k), promotion=128),  # BLOCK_K is 64, too
            "C",
            *(np.int32(x) for x in (p.m, p.n, p.k, p.ldc)),
        ),
        shared_bytes=machine().shared_bytes,
        cluster=(split, 1, 1),
    )


@GEMM.stage(
    "ping_pong",
    after=tma_store,
    idea="consumers alternate, each with tiles of its own: while one stores, the other multiplies",
    parameters={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 16},
    space={"GROUP_M": GROUPS},
)
def ping_pong(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    return tile_launch(p, size, "gemm_ping_pong", consumers=2, promotion=128)


def _flexible(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    m, n, split = tiling.flexible(p, scaled(size["BLOCKS"]))
    return {"BLOCK_M": m, "BLOCK_N": n, "SPLIT": split, "SWAPPED": int(tiling.is_swapped(m))}


def _stored_bytes(p: GemmProblem, columns: int) -> int:
    """Bytes of a row that a warp stores at once, of so many columns of a tile."""
    row = 128 // dtype_of(p.out).itemsize
    while columns % row:
        row //= 2
    return max(64, row * dtype_of(p.out).itemsize)


@GEMM.stage(
    "flexible_tiles",
    after=fitted_tiles,
    idea="one side of a tile is any multiple of 16: of rows, too, since a product may be computed as its transpose",
    parameters={"BLOCK_K": 64, "GROUP_M": 16, "BLOCKS": 128},
    space={"GROUP_M": GROUPS, "BLOCKS": (64, 128, 256, 512)},
    edge_cases=(
        *PADDED_C,
        _TALL,
        *DEEP,
        # of many tiles, so that they are wide; the first three as their transposes
        GemmProblem(m=80, n=128 * 131, k=40, dtype="bf16", out="bf16"),
        GemmProblem(m=144, n=128 * 70 - 8, k=72, dtype="bf16", out="bf16", layout="nn"),
        GemmProblem(m=112, n=128 * 131 + 4, k=8, dtype="fp16", out="fp16", layout="nn", pad_b=4, pad_c=1),
        GemmProblem(m=128 * 131 + 1, n=80, k=40, dtype="bf16", out="bf16", layout="nn"),
    ),
    sizes=_flexible,
)
def flexible_tiles(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    high, wide = (size["BLOCK_N"], size["BLOCK_M"]) if size["SWAPPED"] else (size["BLOCK_M"], size["BLOCK_N"])
    return tile_launch(
        p,
        size,
        "gemm_flexible_tiles",
        size["SPLIT"],
        consumers=high // 64,
        promotion=128,
        stored_bytes=_stored_bytes(p, 128 if size["SWAPPED"] else wide // size["SPLIT"]),
    )


def _multicast(p: GemmProblem, size: Mapping[str, int]) -> dict[str, int]:
    names = ("BLOCK_M", "BLOCK_N", "SHARING", "SHARE_A", "CLUSTERS")
    size = dict(zip(names, tiling.multicast(p), strict=True))
    return size | {"SWAPPED": int(tiling.is_swapped(size["BLOCK_M"], tiling.HIGHER))}


_NEIGHBOURS = (
    GemmProblem(m=130, n=264, k=64 * 40 + 8, dtype="bf16", out="bf16"),
    GemmProblem(m=256, n=64, k=64 * 25, dtype="bf16"),  # whole tiles: one too many would have no scratch
    GemmProblem(m=8, n=24, k=64 * 25, dtype="bf16", out="bf16"),
    GemmProblem(m=9, n=2061, k=64 * 25, dtype="bf16", out="bf16"),
    # of so many tiles that they are high or wide, or that four blocks share them
    GemmProblem(m=6, n=7128, k=8, dtype="bf16", layout="nn"),
    GemmProblem(m=10767, n=17, k=8, dtype="bf16"),
    GemmProblem(m=17012, n=8, k=72, dtype="bf16", out="bf16", layout="nn"),
    GemmProblem(m=25377, n=8, k=8, dtype="fp16", out="fp16", layout="nn"),
    GemmProblem(m=5791, n=160, k=264, dtype="bf16", out="bf16", layout="nn"),
    # as transposes
    GemmProblem(m=194, n=4296, k=72, dtype="bf16", out="bf16", layout="nn"),
    GemmProblem(m=7259, n=72, k=40, dtype="bf16", out="bf16", layout="nn"),
    GemmProblem(m=4, n=27448, k=8, dtype="bf16", out="bf16", layout="nn"),
)
"""Of the first four clusters share the k-tiles, which they cannot divide evenly. The last two of these are transposes,
too."""

_TURNED = (
    # A in panels that four blocks share, wide tiles of it as transposes, and a part of a panel
    GemmProblem(m=256, n=64, k=64 * 25, dtype="bf16", layout="tn"),
    GemmProblem(m=25376, n=8, k=8, dtype="fp16", out="fp16", layout="tn"),
    GemmProblem(m=5792, n=160, k=264, dtype="bf16", out="bf16", layout="tn"),
    GemmProblem(m=200, n=4296, k=72, dtype="bf16", out="bf16", layout="tn"),
    GemmProblem(m=80, n=128 * 131, k=40, dtype="bf16", out="bf16", layout="tt", added=Added.MATRIX),
    GemmProblem(m=130, n=136, k=64 * 13, pad_a=6, batch=2, layout="tt", activation=Activation.RELU, added=Added.ROW),
)


@GEMM.stage(
    "flexible_multicast",
    after=flexible_tiles,
    idea="two or four blocks share what tiles one above the other, or side by side, have in common",
    supports=lambda p: half_types(p) or tensor_maps(p),
    parameters={"BLOCK_K": 64, "GROUP_M": 8},
    space={"GROUP_M": GROUPS[:-1]},
    edge_cases=(*PADDED_C, _TALLER, *DEEP, *_NEIGHBOURS, *GENERAL, *_TURNED),
    sizes=_multicast,
)
def flexible_multicast(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    m, n, clusters = size["BLOCK_M"], size["BLOCK_N"], size["CLUSTERS"]
    high, wide = (n, m) if size["SWAPPED"] else (m, n)
    launch = tile_launch(
        p,
        size,
        "gemm_flexible_multicast",
        sharing=size["SHARING"],
        share_a=bool(size["SHARE_A"]),
        divided_panels=True,
        consumers=3 if high == 192 else 2,
        promotion=128,
        stored_bytes=_stored_bytes(p, 128 if size["SWAPPED"] else wide),
    )
    tiles = launch.grid[0] * p.count
    scratch, handed = left_for_the_last(clusters > 1, (tiles * clusters, m * n), (tiles,))
    args = (*launch.args, *handed, np.int32(p.count), *extras(p))
    if p.batch:  # whose maps have a dimension more, and C none
        args = tuple(_of_batch(x) if isinstance(x, TensorMap) and x.array != "C" else x for x in args)
    return Plan((replace(launch, grid=(tiles * clusters, 1, 1), args=args),), scratch=scratch)


def _of_batch(of_matrix: TensorMap) -> TensorMap:
    """The tensor map of a batch of such matrices."""
    assert isinstance(of_matrix.box, tuple)
    return replace(of_matrix, box=(1, *of_matrix.box))


@GEMM.stage(
    "realigned",
    after=fitted_tiles,
    idea="TMA for every matrix: rows that are no multiples of 16 bytes are first copied to rows that are",
    supports=lambda p: half_types(p) or alone(p),
    edge_cases=(
        GemmProblem(m=70, n=257, k=129, dtype="bf16", layout="tn", pad_a=3),
        GemmProblem(m=64, n=5, k=200, dtype="fp16", layout="tt"),
        *PADDED_C,
        *DEEP,
        GemmProblem(m=70, n=257, k=129, dtype="bf16", layout="nn"),
        GemmProblem(m=3, n=2, k=1001, dtype="fp16", out="fp16", pad_a=3, pad_b=2, pad_c=1),
    ),
    sizes=lambda p, size: {**_fitted(p, size), "COPIED": len(p.copied)},
    space={},
)
def realigned(p: GemmProblem, size: Mapping[str, int]) -> Plan:
    along_k = replace(p, layout=f"n{p.layout[1]}", pad_a=0)  # as A is when it has been copied
    return realigned_plan(p, lambda a, b: _fitted_launch(along_k if p.trans_a else p, size, (a, b)))
