"""Stages of conv2d by im2col maps and wgmma, which reads windows and filters from shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.launch import Launch, ceil_div
from ...model.tensor_map import Im2col, TensorMap
from .mma import BLOCK_K, SHARED_BYTES, eights, half_only
from .operation import CONV2D, EDGE_CASES, channels_last, first_refusal, pointers, sizes, tiles
from .problem import Conv2dProblem

CORNER, OFFSET, STEP = 128, 255, 8
"""What an im2col map of 4 dimensions reaches: how far corners of its box lie from those of the image, to either side;
the largest distance of a tap; the largest stride."""


def im2col(p: Conv2dProblem) -> str | None:
    """Why x can have no im2col map for the windows of a problem, or None where it can."""
    reach = [p.dilation_y * (p.taps_y - 1), p.dilation_x * (p.taps_x - 1)]
    pads = [p.pad_y, p.pad_x]
    if max(p.stride_y, p.stride_x) > STEP:
        return f"a tensor map steps over at most {STEP} pixels"
    corners = [-pad for pad in pads] + [pad - r for pad, r in zip(pads, reach, strict=True)]
    if min(corners) < -CORNER or max(corners) >= CORNER or max(reach) > OFFSET:
        return f"an im2col map has corners of 8 bits and offsets up to {OFFSET}: padding or filters are too large"
    return None


def whole_groups(p: Conv2dProblem) -> str | None:
    """Why boxes would reach into another group, or None where they do not."""
    if p.groups > 1 and (p.channels % BLOCK_K or p.filters % BLOCK_K):
        return f"boxes of {BLOCK_K} channels and filters would reach into the next group"
    return None


MULTIPROCESSORS = 132

TILES = ((128, 256), (256, 128), (128, 192), (256, 160), (128, 160), (128, 128), (256, 64), (128, 64))
"""Pixels and filters of a tile, of those that a block has registers and shared memory for."""

PRODUCTS, BYTES = 2048, 128
"""What a multiprocessor multiplies with tensor cores, and moves from or to shared memory, in a cycle (Hopper)."""

EPILOGUE = 500
"""Cycles after which an epilogue that has begun to store is through, whatever the size of the tile: an estimate."""


def cycles(p: Conv2dProblem, height: int, width: int) -> int:
    """A multiprocessor's estimated cycles for its share of the tiles of a size.

    A k-tile takes as long as its products, or as shared memory takes to receive it once and to deliver the windows
    once and the filters once for every 64 windows; an epilogue two ways through shared memory.
    """
    moved = 2 * BLOCK_K * (2 * height + width + width * height // 64)
    k_tile = max(height * width * BLOCK_K // PRODUCTS, moved // BYTES)
    k_tiles = p.taps_y * p.taps_x * ceil_div(p.channels, BLOCK_K)
    tile = k_tiles * k_tile + 2 * 2 * height * width // BYTES + EPILOGUE
    return ceil_div(tiles(p, height, width), MULTIPROCESSORS) * tile


def _fitted(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    height, width = min(TILES, key=lambda tile: cycles(p, *tile))  # the first of equals
    return {"BLOCK_M": size["TILE_M"] or height, "BLOCK_N": size["TILE_N"] or width}


def _constraint(p: Conv2dProblem, size: Mapping[str, int]) -> str | None:
    if (size["TILE_M"] == 0) != (size["TILE_N"] == 0):
        return "a tile has both sizes, or those that fit the problem"
    if size["TILE_M"] and (size["TILE_M"], size["TILE_N"]) not in TILES:
        return "a thread has no registers for so many sums"
    return None


_MANY = Conv2dProblem(images=3, height=29, width=17, channels=136, filters=72, bias=True)
"""Several tiles of several images, and so many k-tiles that every buffer is filled several times."""

_GROUPS = Conv2dProblem(images=2, height=9, width=9, channels=64, filters=64, groups=3, bias=True, dtype="fp16")


@CONV2D.stage(
    "im2col_tma",
    track="wgmma",
    source="conv2d/wgmma/01_im2col_tma.cu",
    idea="TMA gathers windows through an im2col map, wgmma multiplies them in place; specialised, persistent",
    supports=first_refusal(channels_last, half_only, eights, im2col, whole_groups),
    parameters={"TILE_M": 0, "TILE_N": 0},
    space={"TILE_M": (0, 128, 256), "TILE_N": (0, 64, 128, 160, 192, 256)},
    constraint=_constraint,
    sizes=_fitted,
    edge_cases=(*EDGE_CASES, _MANY, _GROUPS),
    architecture=90,
)
def im2col_tma(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "conv2d_im2col_tma")


def _launch(p: Conv2dProblem, size: Mapping[str, int], kernel: str) -> Launch:
    m, n = size["BLOCK_M"], size["BLOCK_N"]
    lower = (-p.pad_y, -p.pad_x)
    upper = (p.pad_y - p.dilation_y * (p.taps_y - 1), p.pad_x - p.dilation_x * (p.taps_x - 1))
    filters, stored = p.groups * p.filters, 64 if n % 64 == 0 else 32
    x = TensorMap("x", Im2col(lower, upper, BLOCK_K, m), element_strides=(1, p.stride_y, p.stride_x, 1))
    y = TensorMap("y", (16, stored), swizzle=2 * stored, shape=(p.pixels, filters))
    _, _, bias, out = pointers(p)
    return Launch(
        kernel,
        (tiles(p, m, n), 1, 1),
        (128 * 3, 1, 1),
        (
            x,
            TensorMap("f", (n, 1, BLOCK_K), shape=(filters, p.taps_y * p.taps_x, p.channels)),
            y if filters % 8 == 0 else x,
            bias,
            out,
            sizes(p),
        ),
        shared_bytes=SHARED_BYTES,  # as many pipeline stages as fit
        persistent=True,
    )
