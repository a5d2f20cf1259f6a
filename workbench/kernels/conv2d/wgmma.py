"""Stages of conv2d by im2col maps and wgmma, which reads windows and filters from shared memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, machine
from ...model.tensor_map import Im2col, TensorMap
from . import estimate
from .estimate import BLOCK_K
from .mma import eights, half_only
from .operation import CONV2D, EDGE_CASES, ODD_CHANNELS, channels_last, first_refusal, pointers, sizes
from .problem import Activation, Conv2dProblem

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


_supports = first_refusal(channels_last, half_only, eights, im2col, whole_groups)


def _sizes(
    fit: Callable[[Conv2dProblem], tuple[int, int]],
) -> Callable[[Conv2dProblem, Mapping[str, int]], dict[str, int]]:
    """Of a tile: those that are given, or, where they are 0, those that fit the problem."""

    def sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
        height, width = fit(p)
        return {"BLOCK_M": size["TILE_M"] or height, "BLOCK_N": size["TILE_N"] or width}

    return sizes


def _one_of(choices: tuple[tuple[int, int], ...]) -> Callable[[Conv2dProblem, Mapping[str, int]], str | None]:
    def constraint(p: Conv2dProblem, size: Mapping[str, int]) -> str | None:
        if (size["TILE_M"] == 0) != (size["TILE_N"] == 0):
            return "a tile has both sizes, or those that fit the problem"
        if size["TILE_M"] and (size["TILE_M"], size["TILE_N"]) not in choices:
            return "a thread has no registers for so many sums"
        return None

    return constraint


_MANY = Conv2dProblem(images=3, height=29, width=17, channels=136, filters=72, bias=True)
"""Several tiles of several images, and so many k-tiles that every buffer is filled several times."""

_ROUNDS = Conv2dProblem(
    images=2, height=150, width=130, channels=8, filters=8, taps_y=1, taps_x=1, pad_y=0, pad_x=0, bias=True
)
"""So many tiles that a block has several on a GPU, too."""

_GROUPS = Conv2dProblem(images=2, height=9, width=9, channels=64, filters=64, groups=3, bias=True, dtype="fp16")

_FILLED = Conv2dProblem(images=2, height=8, width=8, channels=72, filters=64)
"""Pixels fill their tiles, which blocks share."""


@CONV2D.stage(
    "im2col_tma",
    track="wgmma",
    idea="TMA gathers windows by an im2col map, wgmma reads them in shared memory; warp-specialised and persistent",
    supports=_supports,
    parameters={"TILE_M": 0, "TILE_N": 0},
    space={"TILE_M": (0, 128, 256), "TILE_N": (0, 64, 128, 160, 192, 256)},
    constraint=_one_of(estimate.TILES),
    sizes=_sizes(estimate.fitted),
    edge_cases=(*EDGE_CASES, _MANY, _ROUNDS, _GROUPS),
    architecture=90,
    specific=True,
)
def im2col_tma(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "conv2d_im2col_tma")


@CONV2D.stage(
    "ping_pong",
    after=im2col_tma,
    idea="each consumer has tiles of its own: while one finishes and stores a tile, the other multiplies",
    space={"TILE_M": (0, 64, 128, 256), "TILE_N": (0, 64, 128, 160, 192, 256)},
    constraint=_one_of(estimate.TILES_OF_ONE),
    sizes=_sizes(estimate.fitted_to_one),
)
def ping_pong(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "conv2d_ping_pong")


@CONV2D.stage(
    "padded_im2col",
    after=ping_pong,
    idea="a first kernel pads channels to whole k-tiles with zeros, so that im2col maps are possible",
    supports=lambda p: estimate.no_k_tiles(p) or _supports(estimate.padded(p, BLOCK_K)),
    constraint=_one_of(estimate.TILES_OF_ONE),
    sizes=lambda p, size: _sizes(estimate.fitted_to_one)(estimate.padded(p, BLOCK_K), size) | estimate.padding_sizes(p),
    edge_cases=(*EDGE_CASES, *ODD_CHANNELS),
)
def padded_im2col(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    first, arrays = estimate.pad_channels(p, estimate.padded(p, BLOCK_K))
    return Plan((first, _launch(estimate.padded(p, BLOCK_K), size, "conv2d_ping_pong", "padded_")), arrays)


@CONV2D.stage(
    "split_k",
    after=im2col_tma,
    idea="if tiles are few, several blocks share the k-tiles of a tile; the last of them adds up all sums",
    problem=Conv2dProblem(images=1, height=28, width=28, channels=512, filters=512),
    parameters={"TILE_M": 0, "TILE_N": 0, "SPLITS": 0},
    space={"TILE_M": (0, 128, 256), "TILE_N": (0, 64, 128, 160, 192, 256), "SPLITS": (0, *estimate.SHARES)},
    constraint=_one_of(estimate.TILES),
    sizes=lambda p, size: _sizes(lambda p: estimate.fitted_to_shares(p)[:2])(p, size),
    edge_cases=(*EDGE_CASES, _MANY, _GROUPS, _FILLED),
)
def split_k(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    launch = _launch(p, size, "conv2d_split_k")
    splits = min(size["SPLITS"] or estimate.fitted_to_shares(p)[2], estimate.k_tiles_of_taps(p))
    return _shared(launch, splits, size["BLOCK_M"] * size["BLOCK_N"])


def _flexible_sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    found = _sizes(lambda p: estimate.fitted_flexibly(p)[:2])(p, size)
    empty = -p.channels % BLOCK_K if p.channels > BLOCK_K else 0  # of the last k-tile of a tap, if it has one before it
    return found | {"SKIPPED": empty // estimate.FLEXIBLE}


def _flexible_constraint(p: Conv2dProblem, size: Mapping[str, int]) -> str | None:
    m, n = size["TILE_M"], size["TILE_N"]
    if (m == 0) != (n == 0):
        return "a tile has both sizes, or those that fit the problem"
    if not m:
        return None
    if m % estimate.FLEXIBLE or n % estimate.FLEXIBLE or m > max(estimate.HIGH):
        return f"a tile has multiples of {estimate.FLEXIBLE} pixels, up to {max(estimate.HIGH)}, and filters"
    if n > estimate.HIGH[estimate.multiplied(m)][1]:
        return "a thread has no registers for so many sums"
    if m + n < estimate.multiplied(m):
        return "rows behind the last window would lie in another k-tile"
    return None


@CONV2D.stage(
    "flexible_tiles",
    after=split_k,
    idea="all sides of a tile are multiples of 16: few pixels, filters and channels are loaded that there are not",
    space={
        "TILE_M": (0, *range(64, max(estimate.HIGH) + 1, estimate.FLEXIBLE)),
        "TILE_N": (0, *range(estimate.FLEXIBLE, 257, estimate.FLEXIBLE)),
        "SPLITS": (0, *estimate.SHARES),
    },
    constraint=_flexible_constraint,
    sizes=_flexible_sizes,
    edge_cases=(
        *EDGE_CASES,
        _MANY,
        _ROUNDS,
        _GROUPS,
        # tiles of 144 x 48, 240 x 16, 64 x 80 and, shared, of 96 x 32
        dataclasses.replace(_ROUNDS, images=4, height=47, width=91, filters=48, bias=False),
        dataclasses.replace(_ROUNDS, images=3, height=108, width=79, filters=12, activation=Activation.RELU),
        dataclasses.replace(_ROUNDS, height=61, width=22, filters=76, dtype="fp16"),
        *(Conv2dProblem(images=2, height=9, width=11, channels=c, filters=20, bias=True) for c in (456, 112, 88)),
        _FILLED,
        # of 112 x 80: the last of a group ends with it
        dataclasses.replace(_ROUNDS, images=1, height=33, width=35, channels=64, filters=448, groups=2),
    ),
)
def flexible_tiles(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    rows = estimate.multiplied(size["BLOCK_M"])
    launch = _launch(p, size, "conv2d_flexible_tiles")
    launch = dataclasses.replace(launch, block=(128 * (1 + estimate.HIGH[rows][0]), 1, 1))
    splits = min(size["SPLITS"] or estimate.fitted_flexibly(p)[2], estimate.k_tiles_of_taps(p))
    return _shared(launch, splits, rows * size["BLOCK_N"])


def _one_group(p: Conv2dProblem) -> str | None:
    return None if p.groups == 1 else "the filters of several groups do not lie side by side"


def _several_sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    return _sizes(lambda p: estimate.fitted_to_taps(p)[:2])(p, size) | {"CHANNELS": estimate.channels_of_box(p)}


@CONV2D.stage(
    "several_taps",
    after=split_k,
    idea="k runs through taps and channels together: boxes of 8, 16 or 32 channels make up a k-tile",
    problem=Conv2dProblem(
        images=24, height=120, width=120, channels=32, filters=72, taps_y=5, taps_x=5, pad_y=2, pad_x=2
    ),
    supports=first_refusal(_one_group, _supports),
    space={
        "TILE_M": (0, *estimate.HIGH),
        "TILE_N": (0, *range(estimate.FLEXIBLE, 257, estimate.FLEXIBLE)),
        "SPLITS": (0, *estimate.SHARES),
    },
    constraint=_flexible_constraint,
    sizes=_several_sizes,
    edge_cases=(
        Conv2dProblem(images=2, height=9, width=11, channels=24, filters=20, taps_y=5, taps_x=2, bias=True),
        Conv2dProblem(images=3, height=29, width=17, channels=32, filters=200, stride_y=2, activation=Activation.GELU),
        Conv2dProblem(
            images=2, height=40, width=30, channels=16, filters=72, taps_y=7, taps_x=3, pad_x=0, dtype="fp16"
        ),
        Conv2dProblem(images=1, height=20, width=9, channels=8, filters=33, dilation_x=2, bias=True),
        Conv2dProblem(images=2, height=9, width=13, channels=48, filters=40, stride_x=2, pad_y=0),
        # several tiles of a block, of 144 x 48 and of 240 x 16
        dataclasses.replace(_ROUNDS, images=4, height=47, width=91, channels=32, filters=48, taps_x=3, pad_x=1),
        dataclasses.replace(_ROUNDS, images=3, height=108, width=79, filters=12, activation=Activation.RELU),
    ),
)
def several_taps(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    return _several(p, size)


def _several(p: Conv2dProblem, size: Mapping[str, int], prefix: str = "") -> Plan:
    rows, n = estimate.multiplied(size["BLOCK_M"]), size["BLOCK_N"]
    filters = TensorMap(f"{prefix}f", (n, BLOCK_K), shape=(p.filters, p.products))
    launch = _launch(p, size, "conv2d_several_taps", prefix, channels=size["CHANNELS"], filters=filters)
    launch = dataclasses.replace(launch, block=(128 * (1 + estimate.HIGH[rows][0]), 1, 1))
    splits = min(size["SPLITS"] or estimate.fitted_to_taps(p)[2], estimate.k_tiles_of_copies(p))
    return _shared(launch, splits, rows * n)


@CONV2D.stage(
    "padded_taps",
    after=several_taps,
    idea="a first kernel pads channels with zeros to a multiple of 8, 16 or 32: boxes for any number of channels",
    problem=Conv2dProblem(images=8, height=48, width=48, channels=30, filters=96, taps_y=5, taps_x=5, pad_y=2, pad_x=2),
    supports=lambda p: estimate.no_box(p) or _one_group(p) or _supports(estimate.padded_to_boxes(p)),
    sizes=lambda p, size: _several_sizes(estimate.padded_to_boxes(p), size) | estimate.padding_sizes(p),
    edge_cases=(*EDGE_CASES, *ODD_CHANNELS),
)
def padded_taps(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    wide = estimate.padded_to_boxes(p)
    first, arrays = estimate.pad_channels(p, wide)
    then = _several(wide, size, "padded_")
    return Plan((first, *then.launches), {**arrays, **then.scratch})


def _shared(launch: Launch, splits: int, sums: int) -> Plan:
    """The launch with so many blocks for a tile, each with a k-tile, and what they leave of its sums."""
    (tiles, *_) = launch.grid
    scratch = {
        "partial": Array((tiles * splits, sums) if splits > 1 else (1, 1), FP32, output=True),
        "counters": Array((tiles,), FP32, output=True, zero=True),  # 4 bytes each
    }
    args = (*launch.args, *scratch, np.int32(splits))
    return Plan((dataclasses.replace(launch, grid=(tiles * splits, 1, 1), args=args),), scratch)


def _launch(
    p: Conv2dProblem,
    size: Mapping[str, int],
    kernel: str,
    prefix: str = "",
    *,
    channels: int = BLOCK_K,
    filters: TensorMap | None = None,
) -> Launch:
    """The launch whose boxes of windows have so many channels, and whose filters are those of one tap unless they are
    given."""
    m, n = size["BLOCK_M"], size["BLOCK_N"]
    lower = (-p.pad_y, -p.pad_x)
    upper = (p.pad_y - p.dilation_y * (p.taps_y - 1), p.pad_x - p.dilation_x * (p.taps_x - 1))
    count, stored = p.groups * p.filters, 64 if n % 64 == 0 else 32
    x = TensorMap(
        f"{prefix}x",
        Im2col(lower, upper, channels, m),
        swizzle=2 * channels if channels > estimate.EIGHT else 0,
        element_strides=(1, p.stride_y, p.stride_x, 1),
    )
    y = TensorMap("y", (16, stored), swizzle=2 * stored, shape=(p.pixels, count))
    _, _, bias, out = pointers(p)
    return Launch(
        kernel,
        (p.tiles(m, n), 1, 1),
        (128 * 3, 1, 1),
        (
            x,
            filters or TensorMap(f"{prefix}f", (n, 1, BLOCK_K), shape=(count, p.taps_y * p.taps_x, p.channels)),
            y if count % 8 == 0 else x,
            bias,
            out,
            sizes(p),
        ),
        shared_bytes=machine().shared_bytes,  # as many pipeline stages as fit
        persistent=True,
    )
