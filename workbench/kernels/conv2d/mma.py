"""Stages of conv2d on tensor cores by mma.sync, and its branch for convolutions that have no use for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div, machine
from . import estimate
from .estimate import BLOCK_K
from .operation import CONV2D, EDGE_CASES, ODD_CHANNELS, channels_last, first_refusal, pointers, sizes
from .problem import Activation, Conv2dProblem, timed

ORIGIN_BYTES = 16
"""Of what is kept of each window, or, for few channels, of each product of a k-tile."""

_DEEP = (
    Conv2dProblem(images=2, height=9, width=9, channels=136, filters=72, bias=True),
    Conv2dProblem(images=2, height=9, width=10, channels=64, filters=24, groups=2, stride_x=2, dtype="fp16"),
)
"""So many k-tiles that a circular buffer is filled several times; a group whose filters are no whole tile."""


def half_only(p: Conv2dProblem) -> str | None:
    """Why tensor cores cannot take the type, or None where they can."""
    return "tensor cores take bf16 and fp16 here, not fp32" if p.dtype == FP32.name else None


def eights(p: Conv2dProblem) -> str | None:
    """Why 16 bytes cannot be copied at once, or None where they can."""
    return f"16 bytes of a pixel are 8 channels of a group, which has {p.channels}" if p.channels % 8 else None


def _fitted(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    return {"BLOCK_N": 64 if p.filters <= 64 else 128}


def _shared_bytes(size: Mapping[str, int], k_tiles: int) -> int:
    return k_tiles * (size["BLOCK_M"] + size["BLOCK_N"]) * BLOCK_K * 2 + size["BLOCK_M"] * ORIGIN_BYTES


def _launch(p: Conv2dProblem, size: Mapping[str, int], kernel: str, k_tiles: int) -> Launch:
    return Launch(
        kernel,
        (p.tiles(size["BLOCK_M"], size["BLOCK_N"]), 1, 1),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        (*pointers(p), sizes(p)),
        shared_bytes=_shared_bytes(size, k_tiles),
    )


def _constraint(p: Conv2dProblem, size: Mapping[str, int]) -> str | None:
    sizes = {**size, **_fitted(p, size)}
    warps = size["WARPS_M"] * size["WARPS_N"]
    if sizes["BLOCK_M"] * sizes["BLOCK_N"] > 128 * 32 * warps:
        return "a thread has registers for 128 sums"
    if _shared_bytes(sizes, size["STAGES"]) > machine().shared_bytes:
        return "the circular buffer does not fit into shared memory"
    return None


@CONV2D.stage(
    "tensor_core",
    track="mma",
    idea="an implicit product on tensor cores (mma.sync): cp.async gathers a tap a k-tile, or writes zeros at edges",
    supports=first_refusal(channels_last, half_only, eights),
    parameters={"BLOCK_M": 128, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 3},
    space={"BLOCK_M": (64, 128, 256), "WARPS_M": (1, 2, 4), "WARPS_N": (1, 2), "STAGES": (2, 3, 4)},
    constraint=_constraint,
    sizes=_fitted,
    edge_cases=(*EDGE_CASES, *_DEEP),
    architecture=80,
)
def tensor_core(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "conv2d_tensor_core", size["STAGES"])


@CONV2D.stage(
    "few_channels",
    after=tensor_core,
    idea="for any number of channels: k runs through taps and channels together; a thread gathers a window",
    problem=timed(64, 3, 224, 64, taps=7, stride=2, dilation=1, groups=1),
    supports=first_refusal(channels_last, half_only),
    parameters={"BLOCK_M": 128, "WARPS_M": 2, "WARPS_N": 2},
    alignment=4,
)
def few_channels(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    return _launch(p, size, "conv2d_few_channels", 1)


def _copied_sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Of a tile, those that are given, or, where they are 0, those that fit the problem. A warp has up to 32 x 64
    outputs; where a k-tile comes through registers there are more warps, which have enough of them."""
    m, n, _ = estimate.fitted_to_copies(p)
    m, n = size["TILE_M"] or m, size["TILE_N"] or n
    vector = estimate.copied_elements(p)
    down, across = (4, 4 if (m, n) == (128, 64) else 2) if vector == 1 else (m // 32, min(2, n // 32))
    return {"BLOCK_M": m, "BLOCK_N": n, "WARPS_M": down, "WARPS_N": across, "VECTOR": vector}


def _copied_constraint(p: Conv2dProblem, size: Mapping[str, int]) -> str | None:
    given = size["TILE_M"], size["TILE_N"]
    return None if given in ((0, 0), *estimate.TILES_OF_COPIES) else "a tile has sizes for which its warps are known"


_SHARED_K = Conv2dProblem(height=6, width=6, channels=136, filters=8, groups=3, taps_x=2, activation=Activation.RELU)
"""Few tiles of many k-tiles."""

_SHARED_BY_TWO = Conv2dProblem(images=3, height=11, width=16, channels=80, filters=264)
"""More tiles, each of which two blocks share."""


@CONV2D.stage(
    "narrow_copies",
    after=tensor_core,
    idea="k as in few_channels, copied ahead in pieces as wide as channels allow; if tiles are few, blocks share them",
    supports=first_refusal(channels_last, half_only),
    parameters={"TILE_M": 0, "TILE_N": 0, "STAGES": 3, "SPLITS": 0},
    space={"TILE_M": (0, 64, 128), "TILE_N": (0, 32, 64, 128), "STAGES": (2, 3, 4), "SPLITS": (0, 1, 2, 4, 8, 16)},
    constraint=_copied_constraint,
    sizes=_copied_sizes,
    edge_cases=(*EDGE_CASES, *_DEEP, *ODD_CHANNELS, _SHARED_K, _SHARED_BY_TWO),
)
def narrow_copies(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    return _copied(p, size)


def _copied(p: Conv2dProblem, size: Mapping[str, int], prefix: str = "") -> Plan:
    """Of x and f, or of arrays of these names behind a prefix."""
    m, n = size["BLOCK_M"], size["BLOCK_N"]
    tiles, k_tiles = p.tiles(m, n), estimate.k_tiles_of_copies(p)
    part = ceil_div(k_tiles, size["SPLITS"] or estimate.fitted_to_copies(p)[2])
    splits = ceil_div(k_tiles, part)
    scratch = {
        "partial": Array((tiles * splits, m * n) if splits > 1 else (1, 1), FP32, output=True),
        "counters": Array((tiles,), FP32, output=True, zero=True),  # 4 bytes each
    }
    launch = Launch(
        "conv2d_narrow_copies",
        (tiles, splits, 1),
        (32 * size["WARPS_M"] * size["WARPS_N"], 1, 1),
        (*pointers(p, prefix), sizes(p), *scratch, np.int32(part)),
        shared_bytes=_shared_bytes(size, size["STAGES"] if size["VECTOR"] > 1 else 2),
    )
    return Plan((launch,), scratch)


@CONV2D.stage(
    "padded_channels",
    after=narrow_copies,
    idea="a first kernel pads channels to a multiple of 8 with zeros, so that copies of 16 bytes are possible",
    supports=first_refusal(channels_last, half_only, estimate.no_eights),
    sizes=lambda p, size: _copied_sizes(estimate.padded(p), size) | estimate.padding_sizes(p),
    edge_cases=(*EDGE_CASES, *ODD_CHANNELS),
)
def padded_channels(p: Conv2dProblem, size: Mapping[str, int]) -> Plan:
    first, arrays = estimate.pad_channels(p, estimate.padded(p))
    then = _copied(estimate.padded(p), size, "padded_")
    return Plan((first, *then.launches), {**arrays, **then.scratch})


_ONE_TAP: dict[str, Any] = {"taps_y": 1, "taps_x": 1, "pad_y": 0, "pad_x": 0}

_CHUNK, _MOST_CHUNKS, _MOST_FRAGMENTS = 32, 6, 24
"""Channels that four threads load at once; how many times that a pixel may have, and times 8 filters all filters: what
a thread has registers for."""


def _few_of_both(p: Conv2dProblem) -> str | None:
    if p.taps_y * p.taps_x > 1 or p.pad_y or p.pad_x or p.groups > 1:
        return "filters have one tap here, without padding, and there is one group"
    chunks = ceil_div(p.channels, _CHUNK)
    if chunks > _MOST_CHUNKS or chunks * ceil_div(p.filters, 8) > _MOST_FRAGMENTS:
        return f"a thread has no registers for its part of {p.filters} filters of {p.channels} channels"
    return None


def _pointwise_sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    fits = next(n for n in (4, 2, 1) if n == 1 or n * ceil_div(p.channels, _CHUNK) <= _MOST_CHUNKS)
    return {"CHANNELS": p.channels, "FILTERS": p.filters, "PIXELS": size["PIXELS"] or 16 * fits}


@CONV2D.stage(
    "pointwise",
    track="pointwise",
    idea="for one tap and few channels: filters stay in registers, and pixels are loaded directly into fragments",
    supports=first_refusal(channels_last, half_only, eights, _few_of_both),
    parameters={"THREADS": 128, "PIXELS": 0},
    space={"THREADS": (64, 128, 256), "PIXELS": (0, 16, 32, 64)},
    sizes=_pointwise_sizes,
    edge_cases=(
        Conv2dProblem(images=2, height=9, width=9, channels=24, filters=56, bias=True, **_ONE_TAP),
        Conv2dProblem(images=3, height=9, width=14, channels=72, filters=29, stride_y=2, dtype="fp16", **_ONE_TAP),
        Conv2dProblem(images=2, height=9, width=70, channels=40, filters=10, bias=True, stride_x=3, **_ONE_TAP),
        Conv2dProblem(height=9, width=14, channels=16, filters=30, **_ONE_TAP),
        Conv2dProblem(height=150, width=130, channels=8, filters=8, activation=Activation.GELU, **_ONE_TAP),
    ),
    architecture=80,
)
def pointwise(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    blocks = ceil_div(p.pixels, size["PIXELS"] * size["THREADS"] // 32)
    return Launch(
        "conv2d_pointwise", (blocks, 1, 1), (size["THREADS"], 1, 1), (*pointers(p), sizes(p)), persistent=True
    )


# ----------------------------------------------------------------------------------------------------------------- halo


_STAGES = 3
"""Of the circular buffer of filters."""


def halo_pixels(p: Conv2dProblem, tile_y: int, tile_x: int) -> int:
    """How many pixels the windows of a tile of outputs lie on."""
    height = (tile_y - 1) * p.stride_y + p.dilation_y * (p.taps_y - 1) + 1
    return height * ((tile_x - 1) * p.stride_x + p.dilation_x * (p.taps_x - 1) + 1)


def _shared_bytes_of_halo(p: Conv2dProblem, size: Mapping[str, int]) -> int:
    buffers = min(2, ceil_div(p.channels, BLOCK_K))
    pixels = halo_pixels(p, size["BLOCK_M"] // size["TILE_X"], size["TILE_X"])
    return 2 * BLOCK_K * (_STAGES * size["BLOCK_N"] * size["TOGETHER"] + buffers * pixels)


def _overlapping(p: Conv2dProblem) -> str | None:
    if p.taps_y * p.taps_x == 1:
        return "windows of one tap do not overlap"
    if _shared_bytes_of_halo(p, {"BLOCK_M": 64, "TILE_X": 8, "BLOCK_N": 64, "TOGETHER": 1}) > machine().shared_bytes:
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
    if (size["TILE_M"] or blocks >= machine().multiprocessors) and _shared_bytes_of_halo(
        p, large
    ) <= machine().shared_bytes:
        # where several blocks are resident, fewer warps read the same filters
        wide = size["WIDE"] or (n > 16 and blocks >= 4 * machine().multiprocessors)
        return large | {"WARPS_M": large["BLOCK_M"] // 32} if wide else large
    return small if _shared_bytes_of_halo(p, small) <= machine().shared_bytes else small | {"TILE_X": 8}


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
        shared_bytes=_shared_bytes_of_halo(p, size),
    )
    return Plan((launch,), scratch)
