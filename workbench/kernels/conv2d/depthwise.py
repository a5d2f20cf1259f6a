"""The stage of conv2d that walks down the images of groups of one channel, and how its blocks are cut."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.dtypes import dtype_of
from ...model.launch import Launch, ceil_div
from ...model.tensor_map import TensorMap
from .operation import CONV2D, pointers, sizes
from .problem import Activation, Conv2dProblem
from .simt import SHARED_BYTES, depthwise_alone

_MOST_TAPS, _MOST_WEIGHTS = 7, 100
"""Along an axis, and weights of all channels of a thread, for which it has registers."""

_WORD = 4
"""Bytes of the channels of a thread."""


def _rows_by_tma(p: Conv2dProblem) -> str | None:
    item = dtype_of(p.dtype).itemsize
    if why := depthwise_alone(p):
        return why
    if p.groups * item % 16:
        return f"TMA needs pixels of a multiple of 16 bytes, not {p.groups} channels"
    weights = p.taps_y * p.taps_x * _WORD // item
    if max(p.taps_y, p.taps_x) > _MOST_TAPS or weights > _MOST_WEIGHTS:
        return f"a thread has no registers for {p.taps_y} x {p.taps_x} taps"
    if max(p.dilation_y, p.dilation_x) > 1 or max(p.stride_y, p.stride_x) > 2:
        return "taps lie side by side, and strides are at most 2"
    return None


def _slice(p: Conv2dProblem) -> int:
    """Channels of a block: the most, up to 64 of 2 bytes, of those that leave the fewest without work."""
    item = dtype_of(p.dtype).itemsize
    choices = range(16 // item, min(p.groups, 128 // item) + 1, 16 // item)
    return min(choices, key=lambda n: (ceil_div(p.groups, n) * max(n, 64 // item), -n))


def _rows_sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    item = dtype_of(p.dtype).itemsize
    channels = size["SLICE"] or _slice(p)
    words = channels * item // _WORD
    columns = size["COLUMNS"] or (2 if p.taps_y * p.taps_x > 9 else 4)
    strips = size["STRIPS"] or max(1, 128 // words)
    strips = min(strips, ceil_div(p.columns, columns))
    threads = ceil_div(strips * words, 32) * 32
    open_rows = ceil_div(p.taps_y, p.stride_y)
    seen = (columns - 1) * p.stride_x + p.taps_x
    registers = (p.taps_y * p.taps_x + open_rows * columns) * _WORD // item + 2 * seen + 28
    blocks = size["BLOCKS"] or max(1, min(2048, 65536 // (ceil_div(registers, 8) * 8)) // threads)
    pixels = (strips * columns - 1) * p.stride_x + p.taps_x
    period = open_rows * p.stride_y
    stage = ceil_div(period * pixels * channels * item, 128) * 128
    filters = channels * p.taps_y * p.taps_x * item
    fits = (SHARED_BYTES // blocks - 1024 - filters - 256) // (stage + 16)
    rows = ((size["BAND"] or p.rows) - 1) * p.stride_y + p.taps_y
    return {
        "COLUMNS": columns,
        "STRIPS": strips,
        "CHANNELS": channels,
        "TAPS_Y": p.taps_y,
        "TAPS_X": p.taps_x,
        "STRIDE_Y": p.stride_y,
        "STRIDE_X": p.stride_x,
        "BLOCKS": blocks,
        "STAGES": max(3, min(fits, ceil_div(rows, period))),
    }


@CONV2D.stage(
    "depthwise_tma",
    source="conv2d/simt/04_depthwise_tma.cu",
    idea="a thread walks down columns with all taps in registers; TMA brings rows into a circular buffer",
    supports=_rows_by_tma,
    parameters={"COLUMNS": 0, "STRIPS": 0, "BAND": 0, "SLICE": 0, "BLOCKS": 0},
    space={"COLUMNS": (0, 1, 2, 4), "STRIPS": (0, 2, 4, 7, 8), "BAND": (0, 7, 14, 28)},
    sizes=_rows_sizes,
    edge_cases=(
        Conv2dProblem(images=2, height=5, width=9, groups=72, taps_x=7, pad_x=3, bias=True, activation=Activation.GELU),
    ),
    architecture=90,
)
def depthwise_tma(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    item = dtype_of(p.dtype).itemsize
    strips, columns, channels = size["STRIPS"], size["COLUMNS"], size["CHANNELS"]
    band = size["BAND"] or p.rows
    pixels = (strips * columns - 1) * p.stride_x + p.taps_x
    words = channels * item // _WORD
    blocks = p.images * ceil_div(p.rows, band) * ceil_div(p.columns, strips * columns) * ceil_div(p.groups, channels)
    period = ceil_div(p.taps_y, p.stride_y) * p.stride_y
    rows = ceil_div(period * pixels * channels * item, 128) * 128
    filters = ceil_div(channels * p.taps_y * p.taps_x * item, 16) * 16
    x, f, bias, y = pointers(p)
    return Launch(
        "conv2d_depthwise_tma",
        (blocks, 1, 1),
        (ceil_div(strips * words, 32) * 32, 1, 1),
        (TensorMap(str(x), (1, period, pixels, channels), swizzle=0), f, bias, y, sizes(p), np.int32(band)),
        shared_bytes=ceil_div(size["STAGES"] * (rows + 16) + filters + 8, 128) * 128,
    )
