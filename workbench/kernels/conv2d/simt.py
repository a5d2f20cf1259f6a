"""Stages of conv2d on CUDA cores, depthwise ones among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...model.dtypes import dtype_of
from ...model.launch import Launch, ceil_div, kept_by_machine, machine
from ...model.tensor_map import TensorMap
from .estimate import LOADED, LOADED_ASTRIDE, MEMORY_BYTES
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
        "conv2d_smem_tiling", (p.tiles(m, n), 1, 1), (m // 8 * (n // 8), 1, 1), (*pointers(p), sizes(p), strides(p))
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


# ------------------------------------------------------------------------------------------------------------ depthwise


MOST_TAPS, MOST_WEIGHTS, MOST_STRIDE = 7, 100, 2
"""Along an axis, and weights of all channels of a thread, for which it has registers; pixels between windows."""

WORD, SLICE, LANES = 4, 128, 32
"""Bytes of the channels of a thread, and the most of a block."""

MOST_REGISTERS = 224
"""Of a thread, as they are counted here: more are spilled."""

FEWEST_STAGES, MOST_STAGES = 3, 4
"""Of the circular buffer: rows that are read, rows that warps may still read, and rows that come."""


def _walks(p: Conv2dProblem) -> str | None:
    """Why a thread cannot walk down the images, or None where it can."""
    item = dtype_of(p.dtype).itemsize
    if why := depthwise_alone(p):
        return why
    if p.groups * item % 16:
        return f"TMA needs pixels of a multiple of 16 bytes, not of {p.groups} channels"
    if max(p.taps_y, p.taps_x) > MOST_TAPS or p.taps_y * p.taps_x * (WORD // item) > MOST_WEIGHTS:
        return f"a thread has no registers for {p.taps_y} x {p.taps_x} taps"
    if max(p.dilation_y, p.dilation_x) > 1 or max(p.stride_y, p.stride_x) > MOST_STRIDE:
        return f"taps have to lie side by side, and strides to be at most {MOST_STRIDE}"
    return None


@kept_by_machine(1024)
def _channels(groups: int, item: int) -> int:
    """Of a block: of the numbers that TMA copies, the largest of those that leave the fewest threads without work."""
    choices = range(16 // item, min(groups, SLICE // item) + 1, 16 // item)
    return min(choices, key=lambda n: (ceil_div(groups, n) * max(n, SLICE // 2 // item), -n))


@dataclass(frozen=True)
class Cut:
    """What a thread and a block have of the outputs: columns of a thread, threads along a row, rows of a block."""

    p: Conv2dProblem
    columns: int
    strips: int
    band: int

    @property
    def channels(self) -> int:
        """Of a block."""
        return _channels(self.p.groups, dtype_of(self.p.dtype).itemsize)

    @property
    def threads(self) -> int:
        return ceil_div(self.strips * self.channels * dtype_of(self.p.dtype).itemsize // WORD, LANES) * LANES

    @property
    def seen(self) -> int:
        """Pixels of a row of the input that a thread sees."""
        return (self.columns - 1) * self.p.stride_x + self.p.taps_x

    @property
    def box(self) -> int:
        """Pixels of a row of the input that a block sees."""
        return (self.strips * self.columns - 1) * self.p.stride_x + self.p.taps_x

    @property
    def open(self) -> int:
        """Rows of the output that see one row of the input."""
        return ceil_div(self.p.taps_y, self.p.stride_y)

    @property
    def period(self) -> int:
        """Rows of the input after which all repeats: a stage of the circular buffer."""
        return self.open * self.p.stride_y

    @property
    def rows(self) -> int:
        """Of the input, that a block walks through."""
        return (self.band - 1) * self.p.stride_y + self.p.taps_y

    @property
    def blocks(self) -> int:
        p = self.p
        across = ceil_div(p.columns, self.strips * self.columns)
        return p.images * ceil_div(p.rows, self.band) * across * ceil_div(p.groups, self.channels)

    def shared_bytes(self, stages: int) -> int:
        item = dtype_of(self.p.dtype).itemsize
        rows = ceil_div(self.period * self.box * self.channels * item, 128) * 128
        filters = ceil_div(self.channels * self.p.taps_y * self.p.taps_x * item, 16) * 16
        return ceil_div(stages * (rows + 16) + filters + 8, 128) * 128

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has room for: by the registers of warps, which its four parts share evenly, and
        by shared memory."""
        p, words = self.p, WORD // dtype_of(self.p.dtype).itemsize
        registers = (p.taps_y * p.taps_x + self.open * self.columns) * words + 2 * self.seen + 18
        if registers > MOST_REGISTERS:
            return 0
        by_registers = 4 * min(16, 512 // registers) // (self.threads // LANES)
        return min(32, by_registers, machine().shared_bytes // (self.shared_bytes(FEWEST_STAGES) + 1024))

    @property
    def stages(self) -> int:
        """As many as fit where so many blocks are resident."""
        room = machine().shared_bytes // max(1, self.resident) - 1024
        return MOST_STAGES if self.shared_bytes(MOST_STAGES) <= room else FEWEST_STAGES

    @property
    def cycles(self) -> float:
        """A multiprocessor's estimated cycles for its share of the blocks: instructions of its warps, memory, or copies
        of TMA, whichever take longest, and some of the rest. Fitted to 240 cuts of 15 problems on an H100: what it
        chooses of them takes 1.05 of the time of the best, in the geometric mean."""
        p, words = self.p, WORD // dtype_of(self.p.dtype).itemsize
        products = p.taps_y * p.taps_x * self.columns * words / p.stride_y
        row = products + self.seen * (1 + words) + 5 * self.columns / p.stride_y + 60
        inside = min(self.rows, p.height)
        alone = inside * row + (self.rows - inside) * 20

        def together(blocks: int) -> float:
            warps = ceil_div(blocks * self.threads // LANES, 4)
            return max((warps + 1.3) * alone, alone + 150 * inside) if blocks else 0

        rounds, rest = divmod(ceil_div(self.blocks, machine().multiprocessors), self.resident)
        walked = rounds * together(self.resident) + together(rest) + 2000 + 500 * (rounds + (rest > 0) - 1)
        memory = p.cost.bytes / machine().multiprocessors / MEMORY_BYTES + 2000
        pixel = LOADED_ASTRIDE[1] if p.groups * dtype_of(p.dtype).itemsize % SLICE else LOADED[1]
        copied = ceil_div(self.blocks, machine().multiprocessors) * self.rows * self.box * pixel
        return max(walked, memory, copied) + 0.3 * min(walked, memory)


COLUMNS, STRIPS, BANDS = (1, 2, 4, 7), (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16), (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""What is tried; in how many bands the rows of an image are cut."""


def _cuts(p: Conv2dProblem, size: Mapping[str, int]) -> Iterator[Cut]:
    """Those that can be launched; of what `size` gives only that."""
    bands = {ceil_div(p.rows, n) for n in BANDS if n <= p.rows}
    given = ((size[name],) if size[name] else other for name, other in (("COLUMNS", COLUMNS), ("STRIPS", STRIPS)))
    for columns, strips, band in product(*given, [size["BAND"]] if size["BAND"] else sorted(bands, reverse=True)):
        cut = Cut(p, columns, strips, min(band, p.rows))
        if cut.box <= 256 and cut.threads <= 512 and cut.resident:
            yield cut


@kept_by_machine(1024)
def _fitted(p: Conv2dProblem, columns: int, strips: int, band: int) -> Cut | None:
    size = {"COLUMNS": columns, "STRIPS": strips, "BAND": band}
    return min(_cuts(p, size), key=lambda cut: cut.cycles, default=None)


def _cut(p: Conv2dProblem, size: Mapping[str, int]) -> Cut | None:
    return _fitted(p, size["COLUMNS"], size["STRIPS"], size["BAND"])


def _sizes(p: Conv2dProblem, size: Mapping[str, int]) -> dict[str, int]:
    cut = _cut(p, size)
    assert cut is not None
    return {
        "COLUMNS": cut.columns,
        "STRIPS": cut.strips,
        "BAND": cut.band,
        "CHANNELS": cut.channels,
        "TAPS_Y": p.taps_y,
        "TAPS_X": p.taps_x,
        "STRIDE_Y": p.stride_y,
        "STRIDE_X": p.stride_x,
        "BLOCKS": cut.resident,
        "STAGES": cut.stages,
    }


@CONV2D.stage(
    "depthwise_tma",
    track="depthwise",
    idea="a thread walks down columns with all taps in registers; TMA brings rows into a circular buffer",
    supports=_walks,
    parameters={"COLUMNS": 0, "STRIPS": 0, "BAND": 0},
    space={"COLUMNS": (0, *COLUMNS), "STRIPS": (0, *STRIPS), "BAND": (0, 7, 14, 28, 56)},
    constraint=lambda p, size: None if _cut(p, size) else "no block has registers for so many sums, or no such box",
    sizes=_sizes,
    edge_cases=(
        Conv2dProblem(images=2, height=5, width=9, groups=72, taps_x=7, pad_x=3, bias=True, activation=Activation.GELU),
        Conv2dProblem(images=2, height=9, width=9, groups=520, stride_x=2, stride_y=2, dtype="fp16"),
        # bands of so many rows that every buffer is filled several times
        Conv2dProblem(height=420, width=3, groups=8, bias=True),
        Conv2dProblem(height=900, width=7, groups=4, stride_y=2, taps_x=7, pad_y=3, pad_x=0, dtype="fp32"),
        Conv2dProblem(images=2, height=2, width=33, groups=24, taps_y=5, pad_y=5, activation=Activation.RELU),
    ),
    architecture=90,
)
def depthwise_tma(p: Conv2dProblem, size: Mapping[str, int]) -> Launch:
    cut = Cut(p, size["COLUMNS"], size["STRIPS"], size["BAND"])
    x, f, bias, y = pointers(p)
    box = (1, cut.period, cut.box, cut.channels)
    return Launch(
        "conv2d_depthwise_tma",
        (cut.blocks, 1, 1),
        (cut.threads, 1, 1),
        (TensorMap(str(x), box, swizzle=0), f, bias, y, sizes(p), np.int32(cut.band)),
        shared_bytes=cut.shared_bytes(size["STAGES"]),
    )
