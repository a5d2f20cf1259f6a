"""Stages of conv2d on CUDA cores."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.dtypes import dtype_of
from ...model.launch import Launch, ceil_div
from ...model.machine import machine
from .operation import CONV2D, EDGE_CASES, channels_last, pointers, sizes, strides
from .problem import Activation, Conv2dProblem, Layout

_LAYOUTS = (
    *EDGE_CASES,
    Conv2dProblem(images=2, height=6, width=5, channels=3, filters=17, groups=2, layout=Layout.NCHW, dtype="fp32"),
)


@CONV2D.stage(
    "naive",
    track="simt",
    idea="one thread computes one output, tap by tap",
    parameters={"THREADS": 256},
    edge_cases=_LAYOUTS,
    alignment=2,
)
def naive(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    outputs = p.pixels * p.groups * p.filters
    grid = (ceil_div(outputs, size["THREADS"]), 1, 1)
    return Launch("conv2d_naive", grid, (size["THREADS"], 1, 1), (*pointers(p), sizes(p), strides(p)))


@CONV2D.stage(
    "smem_tiling",
    after=naive,
    idea="an implicit product of matrices: a block gathers windows into shared memory, a thread has 8 x 8 outputs",
    parameters={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16},
)
def smem_tiling(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    m, n = size["BLOCK_M"], size["BLOCK_N"]
    return Launch(
        "conv2d_smem_tiling",
        (p.tiles(m, n), 1, 1),
        (m // 8 * (n // 8), 1, 1),
        (*pointers(p), sizes(p), strides(p)),
    )


_KNOWN_TAPS = (3, 5, 7)
"""Along x, for which the kernel is compiled; with stride 1 or 2, and taps side by side."""


def depthwise_alone(p: Conv2dProblem) -> str | None:
    if p.channels != 1 or p.filters != 1:
        return f"a group has one channel and one filter, not {p.channels} and {p.filters}"
    if p.taps_y * p.taps_x * 4 * _FEWEST_CHANNELS > machine().shared_bytes:
        return f"filters of {p.taps_y} x {p.taps_x} taps do not fit into shared memory"
    return channels_last(p)


_FEWEST_CHANNELS = 8
"""Of a block: one vector."""


def _vectors(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Channels that move at once, 16 bytes where pixels lie so; channels of a block, as many as their filters allow;
    and what is known of a row of taps, 0 where it is not compiled for them."""
    vector = next(n for n in (16 // dtype_of(p.dtype).itemsize, 1) if p.groups % n == 0)
    channels = min(size["THREADS"] // 4, max(1, 64 // vector)) * vector
    while channels > vector and (
        channels // 2 >= p.groups or p.taps_y * p.taps_x * 4 * channels > machine().shared_bytes // 4
    ):
        channels //= 2
    known = p.taps_x in _KNOWN_TAPS and p.stride_x <= 2 and p.dilation_x == 1
    return {
        "VECTOR": vector,
        "CHANNELS": channels,
        "TAPS_X": p.taps_x if known else 0,
        "STRIDE_X": p.stride_x if known else 0,
    }


@CONV2D.stage(
    "depthwise",
    after=naive,
    idea="depthwise: a thread computes a strip of outputs, 16 bytes of channels wide; filters lie in shared memory",
    supports=depthwise_alone,
    parameters={"THREADS": 128, "STRIP": 4},
    space={"THREADS": (128, 256), "STRIP": (1, 2, 4, 7, 8)},
    sizes=_vectors,
    edge_cases=(
        Conv2dProblem(images=2, height=5, width=9, groups=72, taps_x=7, pad_x=3, bias=True, activation=Activation.GELU),
        Conv2dProblem(images=2, height=9, width=9, groups=520, stride_x=2, stride_y=3, dtype="fp16"),
        Conv2dProblem(height=30, width=8, groups=8, taps_y=30, taps_x=7, pad_y=4, pad_x=3, dtype="fp32"),
        Conv2dProblem(height=8, width=9, groups=3, taps_x=5, dilation_x=2, pad_x=4),
    ),
    alignment=16,
)
def depthwise(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    strips = p.images * p.rows * ceil_div(p.columns, size["STRIP"])
    across = size["CHANNELS"] // size["VECTOR"]
    blocks = ceil_div(strips, size["THREADS"] // across) * ceil_div(p.groups, size["CHANNELS"])
    return Launch(
        "conv2d_depthwise",
        (blocks, 1, 1),
        (size["THREADS"], 1, 1),
        (*pointers(p), sizes(p)),
        shared_bytes=p.taps_y * p.taps_x * size["CHANNELS"] * 4,
    )
