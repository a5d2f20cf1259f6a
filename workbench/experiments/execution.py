"""Experiments with execution: divergence, occupancy, arithmetic intensity, quantisation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..emulator.architectures import BY_CAPABILITY, SHARED_UNIT
from ..model.launch import Launch, ceil_div
from .base import Counts, Experiment, Quantity, ratio
from .problems import Scale, scaling

WARP = 32


def _flat(kernel: str, p: Scale, threads: int, per_block: int, *scalars: np.generic, shared_bytes: int = 0) -> Launch:
    """A launch over all elements as one row."""
    blocks = ceil_div(p.m * p.n, per_block)
    return Launch(kernel, (blocks, 1, 1), (threads, 1, 1), ("x", "y", np.int64(p.m * p.n), *scalars), shared_bytes)


# ----------------------------------------------------------------------------------------------------------- divergence

DIVERGENCE = scaling(
    "divergence", "divergence: the paths that the lanes of a warp take", Scale(n=2**24, factor=512), 2000
)


@DIVERGENCE.stage(
    "branches",
    source="experiments/divergence.cu",
    idea="lane i takes path i modulo PATHS",
    parameters={"PATHS": 1, "THREADS": 256},
)
def branches(p: Scale, size: Mapping[str, int]) -> Launch:
    return _flat("divergence", p, size["THREADS"], size["THREADS"], np.int32(p.factor))


divergence = Experiment(
    DIVERGENCE,
    swept="PATHS",
    axis="paths that the lanes of a warp take",
    values=lambda multiprocessors: (1, 2, 4, 8, 16, 32),
    counted=Scale(n=2**12, factor=64),
    quantities=(
        ratio("lanes an instruction", "active_lanes", "warp_instructions"),
        Quantity("warp instructions for 32 additions", lambda c: c["warp_instructions"] * WARP / (c["flops"] / 2)),
        ratio("share of branches that diverge", "divergent_branches", "branches"),
    ),
    idea="Every thread does the same number of additions and takes one path only.",
    see="A warp executes every path that one of its lanes takes. So instructions grow with the number of paths, and "
    "fewer lanes work in each path. The share of diverging branches says little: most branches are those of "
    "loops, where the lanes of one path agree.",
)

# ------------------------------------------------------------------------------------------------------------ occupancy
OCCUPANCY = scaling(
    "occupancy", "occupancy: warps, or bytes in flight", Scale(n=2**25, factor=2), 10_000, metric="GB/s"
)


def _limited(p: Scale, size: Mapping[str, int]) -> Launch:
    """With so much shared memory that `BLOCKS` blocks are resident, and no more."""
    limits = BY_CAPABILITY[90]
    most = limits.shared_per_sm // size["BLOCKS"] // SHARED_UNIT * SHARED_UNIT - limits.shared_reserved_per_block
    per_block = size["THREADS"] * size["WIDTH"] * size["LOADS"]
    return _flat("occupancy", p, size["THREADS"], per_block, np.float32(p.factor), shared_bytes=most)


for _name, _width, _loads in (("4 bytes a thread", 1, 1), ("16 bytes", 4, 1), ("4 x 16 bytes", 4, 4)):
    OCCUPANCY.stage(
        _name,
        source="experiments/occupancy.cu",
        idea=f"{_loads} loads of {4 * _width} bytes in flight a thread",
        parameters={"BLOCKS": 8, "THREADS": 256, "WIDTH": _width, "LOADS": _loads},
        architecture=90,
    )(_limited)


def _kib_in_flight(c: Counts) -> float:
    """What the resident warps of a multiprocessor can have asked for: all loads of a thread come before a use."""
    return c["resident_blocks"] * c["global_load_bytes"] / c["blocks"] / 1024


occupancy = Experiment(
    OCCUPANCY,
    even=False,
    swept="BLOCKS",
    axis="blocks of 256 threads on a multiprocessor",
    values=lambda multiprocessors: (1, 2, 3, 4, 6, 8),
    counted=Scale(n=2**16, factor=2),
    quantities=(
        Quantity("resident warps a multiprocessor", lambda c: c["resident_blocks"] * c["block_warps"]),
        Quantity("KiB in flight a multiprocessor", _kib_in_flight),
    ),
    idea="Shared memory that nobody uses keeps other blocks away; the series differ in what a thread loads at once.",
    see="Bytes in flight hide latency: at any time a multiprocessor needs bandwidth times latency, divided by the "
    "number of multiprocessors, in flight. More warps provide them, and for threads that load 4 bytes nothing "
    "else does. Wider loads, and several loads a thread, need a fraction of the warps. So low occupancy alone is "
    "no fault.",
)

# ------------------------------------------------------------------------------------------------------------ intensity
INTENSITY = scaling(
    "arithmetic_intensity", "arithmetic intensity: from memory-bound to compute-bound", Scale(n=2**25), 3000
)


@INTENSITY.stage(
    "fma",
    source="experiments/intensity.cu",
    idea="`factor` fused multiply-adds an element",
    parameters={"THREADS": 256},
)
def fma(p: Scale, size: Mapping[str, int]) -> Launch:
    return _flat("intensity", p, size["THREADS"], 4 * size["THREADS"], np.int32(p.factor), np.float32(1))


arithmetic_intensity = Experiment(
    INTENSITY,
    swept="factor",
    axis="multiply-adds an element that is loaded",
    values=lambda multiprocessors: (1, 2, 4, 8, 16, 32, 64, 128, 256),
    counted=Scale(n=2**14),
    quantities=(
        Quantity(
            "FLOP a byte of global memory",
            lambda c: 2 * c["fma_lanes"] / (c["global_load_bytes"] + c["global_store_bytes"]),
            log=True,
        ),
        ratio("share of instructions: multiply-adds", "fma_lanes", "thread_instructions"),
    ),
    idea="The same bytes move; what is computed with each element grows.",
    see="FLOP per byte is the x axis of a roofline. Up to the ridge (peak FLOP/s divided by bandwidth) more "
    "arithmetic is free: the time stays that of the copy, and TFLOP/s grow in proportion. Beyond the ridge "
    "TFLOP/s stay the same and the time grows. The share of multiply-adds among all instructions limits how close "
    "TFLOP/s come to the peak.",
)

# --------------------------------------------------------------------------------------------------------- quantisation


def _row_tiles(p: Scale, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.n, size["TILE"]), p.m, 1)
    arguments = ("x", "y", np.int32(p.n), np.int32(p.factor), np.float32(1))
    return Launch("quantisation", grid, (size["TILE"], 1, 1), arguments, shared_bytes=size.get("SHARED", 0))


TILES = scaling(
    "tile_quantisation", "tile quantisation: the last tile of a row", Scale(m=8192, n=1, factor=256), 2000, most=60_000
)

for _tile in (64, 256):
    TILES.stage(
        f"tiles of {_tile}",
        source="experiments/quantisation.cu",
        idea=f"a block works on {_tile} elements of a row",
        parameters={"TILE": _tile},
        supports=lambda p: None if p.m < 2**16 else "a grid has at most 65,535 blocks along y",
    )(_row_tiles)

tile_quantisation = Experiment(
    TILES,
    even=False,
    swept="n",
    axis="elements of a row",
    values=lambda multiprocessors: tuple(n + more for n in range(256, 769, 64) for more in (0, 1)),
    counted=Scale(factor=32),
    quantities=(
        Quantity("blocks a row", lambda c: c["blocks"]),
        Quantity("share of the multiply-adds that count", lambda c: c["flops"] / 2 / c["fma_lanes"]),
    ),
    idea="Rows grow by a few elements; every block executes the same, whatever there is of its tile.",
    see="One element beyond a multiple of the tile costs a whole tile more. Large tiles waste more of the last one; "
    "the longer the row, the less it matters. In a matrix product this happens in both directions of C, and the "
    "shares multiply.",
)

WAVES = scaling(
    "wave_quantisation", "wave quantisation: the last wave of blocks", Scale(n=256, factor=8192), 2000, most=60_000
)

WAVES.stage(
    "one block a multiprocessor",
    source="experiments/quantisation.cu",
    idea="a block works on 256 elements, and asks for all shared memory",
    parameters={"TILE": 256, "SHARED": BY_CAPABILITY[90].shared_per_block},
    supports=lambda p: None if p.m < 2**16 else "a grid has at most 65,535 blocks along y",
    architecture=90,
)(_row_tiles)

SIXTHS = (3, 5, 6, 7, 9, 11, 12, 13, 15, 18, 19, 24)
"""Sixths of a wave at which blocks are counted; at whole waves one block more, too."""


def _blocks(sms: int) -> tuple[int, ...]:
    """Numbers of blocks for a device of so many multiprocessors."""
    around = [sms * sixths // 6 for sixths in SIXTHS] + [sms * waves + 1 for waves in (1, 2, 3)]
    return tuple(sorted(set(around)))


def _wave(c: Counts) -> int:
    """Blocks that run at once."""
    return c["multiprocessors"] * c["resident_blocks"]


wave_quantisation = Experiment(
    WAVES,
    even=False,
    swept="m",
    axis="blocks of the grid",
    values=_blocks,
    counted=Scale(n=256, factor=16),
    quantities=(
        Quantity("waves", lambda c: ceil_div(c["blocks"], _wave(c))),
        Quantity(
            "share of its places that a wave fills",
            lambda c: c["blocks"] / (ceil_div(c["blocks"], _wave(c)) * _wave(c)),
        ),
    ),
    idea="Blocks that all take the same time, one on each multiprocessor; only their number changes.",
    see="A grid runs in whole waves: one block more than a full wave costs as much as another full wave. This matters "
    "for few large blocks, and hardly for many small ones. Occupancy and the number of multiprocessors say how "
    "large a wave is. Its cost is a time, and needs a GPU.",
)
