"""Problems of conv2d whose channels are padded to a multiple of 8 or 64, and the launch that copies images and filters
so."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...model.arrays import Array
from ...model.launch import Launch, ceil_div
from .estimate import BLOCK_K, copied_elements
from .problem import Conv2dProblem

EIGHT, THREADS = 8, 256
"""Channels that are 16 bytes, which a thread writes at once; threads of a block."""


def no_eights(p: Conv2dProblem) -> str | None:
    """Why there is nothing to pad, or None where there is."""
    return None if p.channels % EIGHT else f"{p.channels} channels are a multiple of 8: nothing is to be padded"


def no_k_tiles(p: Conv2dProblem) -> str | None:
    """Why there is nothing to pad to whole k-tiles, or None where there is."""
    return None if p.channels % BLOCK_K else f"{p.channels} channels are whole k-tiles: nothing is to be padded"


def padded(p: Conv2dProblem, to: int = EIGHT) -> Conv2dProblem:
    """The problem with channels that are a multiple of this."""
    return dataclasses.replace(p, channels=ceil_div(p.channels, to) * to)


def padding_sizes(p: Conv2dProblem) -> dict[str, int]:
    """What its kernel is compiled for: elements that are read at once."""
    return {"FROM": copied_elements(p)}


def pad_channels(p: Conv2dProblem, to: int = EIGHT) -> tuple[Launch, dict[str, Array]]:
    """The launch, and the arrays that it fills, `padded_x` and `padded_f`."""
    wider = padded(p, to)
    arrays = {name: dataclasses.replace(wider.arrays()[name], output=True) for name in "xf"}
    across = wider.channels // EIGHT
    rows = p.images * p.height * p.width * p.groups, p.groups * p.filters * p.taps_y * p.taps_x
    blocks = [ceil_div(count * across, THREADS) for count in rows]
    launch = Launch(
        "conv2d_pad_channels",
        (sum(blocks), 1, 1),
        (THREADS, 1, 1),
        (
            *arrays,
            *(f"padded_{name}" for name in arrays),
            *map(np.int64, rows),
            *map(np.int32, (blocks[0], p.channels, wider.channels)),
        ),
    )
    return launch, {f"padded_{name}": array for name, array in arrays.items()}
