"""The stage of conv2d that keeps the pixels of overlapping windows in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div
from ...model.machine import machine
from .estimate import BLOCK_K
from .mma import eights, half_only
from .operation import CONV2D, EDGE_CASES, channels_last, first_refusal, pointers, sizes
from .problem import Activation, Conv2dProblem

_STAGES = 3
"""Of the circular buffer of filters."""


def halo_pixels(p: Conv2dProblem, tile_y: int, tile_x: int) -> int:
    """How many pixels the windows of a tile of outputs lie on."""
    height = (tile_y - 1) * p.stride_y + p.dilation_y * (p.taps_y - 1) + 1
    return height * ((tile_x - 1) * p.stride_x + p.dilation_x * (p.taps_x - 1) + 1)


def _shared_bytes(p: Conv2dProblem, size: Mapping[str, int]) -> int:
    buffers = min(2, ceil_div(p.channels, BLOCK_K))
    pixels = halo_pixels(p, size["BLOCK_M"] // size["TILE_X"], size["TILE_X"])
    return 2 * BLOCK_K * (_STAGES * size["BLOCK_N"] * size["TOGETHER"] + buffers * pixels)


def _overlapping(p: Conv2dProblem) -> str | None:
    if p.taps_y * p.taps_x == 1:
        return "windows of one tap do not overlap"
    if _shared_bytes(p, {"BLOCK_M": 64, "TILE_X": 8, "BLOCK_N": 64, "TOGETHER": 1}) > machine().shared_bytes:
        return "the pixels of overlapping windows do not fit into shared memory"
    return None


def _sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    """What is given, or, where it is 0, what fits: small tiles where large ones would be fewer than multiprocessors."""
    n = size["TILE_N"] or next((n for n in (16, 32) if p.filters <= n), 64)
    x = size["TILE_X"] or (8 if ceil_div(p.columns, 8) % 2 else 16)
    # the first filters of a k-tile come with the last pixels of the one before: not with the last filters, too
    together = min(64 // n, ceil_div(p.taps_y * p.taps_x, 2))
    found = {"BLOCK_N": n, "TILE_X": x, "WARPS_N": 1, "STAGES": _STAGES, "TOGETHER": together}
    large, small = ({**found, "BLOCK_M": m, "WARPS_M": m // 16} for m in (size["TILE_M"] or 128, 64))
    blocks = _tiles(p, large) * _splits(p, large, size["SPLITS"])
    if (size["TILE_M"] or blocks >= machine().multiprocessors) and _shared_bytes(p, large) <= machine().shared_bytes:
        # where several blocks are resident, fewer warps read the same filters
        wide = size["WIDE"] or (n > 16 and blocks >= 4 * machine().multiprocessors)
        return large | {"WARPS_M": large["BLOCK_M"] // 32} if wide else large
    return small if _shared_bytes(p, small) <= machine().shared_bytes else small | {"TILE_X": 8}


def _splits(p: Conv2dProblem, size: Mapping[str, int], wanted: int) -> int:
    """Blocks that share the channels of a tile: so many that a multiprocessor has two, but at most four."""
    k_tiles = ceil_div(p.channels, BLOCK_K)
    fit = max(1, min(4, 2 * machine().multiprocessors // _tiles(p, size)))
    return ceil_div(k_tiles, ceil_div(k_tiles, min(k_tiles, wanted or fit)))


def _tiles(p: Conv2dProblem, size: Mapping[str, int]) -> int:
    down, across = ceil_div(p.rows, size["BLOCK_M"] // size["TILE_X"]), ceil_div(p.columns, size["TILE_X"])
    return p.images * down * across * p.groups * ceil_div(p.filters, size["BLOCK_N"])


@CONV2D.stage(
    "halo",
    track="halo",
    idea="a block copies the pixels for a rectangle of outputs to shared memory once for all taps",
    supports=first_refusal(channels_last, half_only, eights, _overlapping),
    parameters={"TILE_M": 0, "TILE_N": 0, "TILE_X": 0, "SPLITS": 0, "WIDE": 0},
    space={"TILE_M": (0, 64, 128), "TILE_N": (0, 16, 32, 64), "TILE_X": (0, 8, 16), "SPLITS": (0, 1, 2, 4, 8)},
    sizes=_sizes,
    edge_cases=(
        *EDGE_CASES,
        Conv2dProblem(images=2, height=9, width=19, channels=136, filters=9, groups=2, bias=True, dtype="fp16"),
        Conv2dProblem(height=9, width=9, channels=328, filters=8, taps_y=2, taps_x=2, dilation_x=3),
        Conv2dProblem(height=17, width=9, channels=200, filters=33, taps_y=5, activation=Activation.RELU),
        # several tiles of pixels, and no filter that is left over
        Conv2dProblem(images=2, height=17, width=19, channels=8, filters=16),
    ),
    architecture=80,
)
def halo(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    tiles, splits = _tiles(p, size), _splits(p, size, size["SPLITS"])
    outputs = size["BLOCK_M"] * size["BLOCK_N"]
    scratch = {
        "partial": Array((tiles * splits, outputs) if splits > 1 else (1, 1), FP32, output=True),
        "counters": Array((tiles,), FP32, output=True, zero=True),  # 4 bytes each
    }
    launch = Launch(
        "conv2d_halo",
        (tiles, splits, 1),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        (*pointers(p), sizes(p), *scratch, np.int32(ceil_div(ceil_div(p.channels, BLOCK_K), splits))),
        shared_bytes=_shared_bytes(p, size),
    )
    return Plan((launch,), scratch)
