"""The operation conv2d, and what the declarations of its stages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...model.dtypes import dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from .fastest import fastest
from .problem import SUITE, Activation, Conv2dProblem, Layout, problems

CONV2D = Operation(
    name="conv2d",
    summary="two-dimensional convolution with bias and activation",
    problem=Conv2dProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda, "ACTIVATION": tuple(Activation).index(p.activation)},
    emulator_size=Size(extent=300, work=100_000),
    cuda_size=Size(extent=1000, work=200_000_000),
    fastest=fastest,
)


EDGE_CASES = (
    Conv2dProblem(taps_y=1, taps_x=1, pad_y=0, pad_x=0),
    Conv2dProblem(height=3, width=3, channels=8, filters=9, pad_y=3, pad_x=3, stride_y=3, stride_x=3),  # taps outside
    Conv2dProblem(height=9, width=4, channels=16, filters=8, taps_y=5, taps_x=2, dilation_y=2, pad_y=0, groups=3),
    Conv2dProblem(images=3, height=5, width=7, channels=72, filters=130, bias=True, activation=Activation.GELU),
    Conv2dProblem(height=4, width=300, channels=8, filters=5, taps_x=7, pad_x=0, bias=True, activation=Activation.RELU),
)
"""What random problems would hardly hit."""


CONVOLUTION = np.dtype(
    [
        (name, np.int32)
        for name in (
            *("pixels", "height", "width", "channels", "rows", "columns", "filters"),
            *("taps_y", "taps_x", "stride_y", "stride_x", "pad_y", "pad_x", "dilation_y", "dilation_x"),
            *("group_channels", "group_filters"),
        )
    ]
)
"""The struct of the sizes, as the kernels take it by value."""


def sizes(p: Conv2dProblem) -> np.generic:
    """The sizes of a problem. Raises OverflowError for those that 32 bits do not hold, and for more pixels and products
    of an output than they count up to the end of a tile."""
    for counted in (p.pixels, p.products):
        np.int32(counted + LARGEST_TILE)
    own = {"channels": p.groups * p.channels, "filters": p.groups * p.filters}
    own |= {"group_channels": p.channels, "group_filters": p.filters}
    values = [own[name] if name in own else getattr(p, name) for name in CONVOLUTION.names or ()]
    return _struct(CONVOLUTION, [np.int32(value) for value in values])


LARGEST_TILE = 256
"""Pixels, or products of a sum, of the largest tile of a stage."""

STRIDES = np.dtype([(f"{name}_{i}", np.int64) for name in ("x", "f", "y") for i in range(4)])
"""The struct of the strides of arrays in either layout."""


def strides(p: Conv2dProblem) -> np.generic:
    """Elements of x, f and y from one to the next in each dimension."""
    arrays = p.arrays()
    return _struct(STRIDES, [step for name in ("x", "f", "y") for step in arrays[name].element_strides])


def _struct(kind: np.dtype[Any], values: list[Any]) -> np.generic:
    """The bytes of a struct, which a kernel takes by value."""
    return np.void(np.array(tuple(values), kind).tobytes())


def pointers(p: Conv2dProblem, prefix: str = "") -> tuple[str | np.generic, ...]:
    """x and f, or arrays of these names behind a `prefix`, the bias, which is null where there is none, and y."""
    return (f"{prefix}x", f"{prefix}f", "bias" if p.bias else np.uint64(0), "y")


ODD_CHANNELS = (
    Conv2dProblem(images=2, height=7, width=7, channels=75, filters=17, bias=True, activation=Activation.GELU),
    Conv2dProblem(images=3, height=9, width=6, channels=70, filters=34, groups=2, taps_y=5, stride_x=2, dtype="fp16"),
    Conv2dProblem(images=2, height=8, width=9, channels=44, filters=72, taps_x=5, pad_x=0, dilation_y=2, bias=True),
    Conv2dProblem(images=2, height=13, width=12, channels=3, filters=131, taps_y=7, taps_x=7, dtype="fp16"),
)
"""Channels that are a multiple of 1, 2 and 4, so many k-tiles that blocks may share them, and filters whose pixels are
a multiple of 2, 4 and 16 bytes."""


def channels_last(p: Conv2dProblem) -> str | None:
    """Why a stage that reads several channels at once cannot take a problem, or None where it can."""
    return None if p.layout is Layout.NHWC else "channels have to lie side by side: layout nhwc"


def first_refusal(*asked: Callable[[Conv2dProblem], str | None]) -> Callable[[Conv2dProblem], str | None]:
    """What the first of several reasons is that is none of None."""
    return lambda p: next(filter(None, (why(p) for why in asked)), None)
