"""How long a convolution takes in tiles of one size: an estimate, by which sizes and stages are chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ...model.arrays import Array
from ...model.launch import Launch, ceil_div, kept_by_machine, machine
from .problem import Conv2dProblem

BLOCK_K = 64
"""Products of a k-tile: of 128 bytes, as wide as a swizzle."""

TILES = ((128, 256), (256, 128), (128, 192), (256, 160), (128, 160), (128, 128), (256, 64), (128, 64))
"""Pixels and filters of a tile of two consumers, of those that they have registers and shared memory for."""

TILES_OF_ONE = ((128, 128), (64, 256), (128, 160), (64, 192), (64, 128), (256, 64), (128, 64), (64, 64))
"""The same of a consumer that has a tile to itself."""

FLEXIBLE, NARROWEST = 16, 64
"""What all sides of a tile of `flexible_tiles` are multiples of; and its least filters where there are more, since a
wgmma of fewer takes as long."""

PRODUCTS, BYTES = 2048, 128
"""What a multiprocessor multiplies with tensor cores, and moves from or to shared memory, in a cycle (Hopper)."""

EPILOGUE = 500
"""Cycles after which an epilogue that has begun to store is through, whatever the size of the tile: an estimate."""


def k_tile_cycles(height: int, width: int) -> int:
    """Estimated cycles of a k-tile: as many as its products take, or as shared memory takes to receive it once and to
    deliver the windows once and the filters once for every 64 windows."""
    moved = 2 * BLOCK_K * (2 * height + width + width * height // 64)
    return max(height * width * BLOCK_K // PRODUCTS, moved // BYTES)


def cycles(p: Conv2dProblem, height: int, width: int, *, overlapped: bool = False) -> int:
    """A multiprocessor's estimated cycles for its share of the tiles of a size.

    An epilogue goes two ways through shared memory. Where it is `overlapped`, a tile takes as long as the longer of
    mainloop and epilogue, and the last epilogue is waited for."""
    mainloop = k_tiles_of_taps(p) * k_tile_cycles(height, width)
    epilogue = 2 * 2 * height * width // BYTES + EPILOGUE
    rounds = ceil_div(p.tiles(height, width), machine().multiprocessors)
    return rounds * max(mainloop, epilogue) + epilogue if overlapped else rounds * (mainloop + epilogue)


LOADED, LOADED_ASTRIDE, LOADED_IN_PART, LOADED_IN_SECTORS = (100, 1.6), (100, 3.9), (100, 8.5), (100, 4.8)
"""Cycles of a k-tile that TMA loads while all multiprocessors do, and more of each of its rows: of 64 channels that lie
in one line of 128 bytes, or in two; and where channels end within a box, or there with a sector of 32 bytes. Fitted to
random layers on an H200."""

ALONE = 0.45
"""What a k-tile takes of that where one multiprocessor loads."""


def loading_cycles(p: Conv2dProblem, height: int, width: int, *, ending: bool = False) -> float:
    """A multiprocessor's estimated cycles for what TMA loads for its share of the tiles of a size. The last box of a
    tap may be `ending` with its channels."""
    each, row = LOADED_ASTRIDE if p.groups * p.channels % BLOCK_K else LOADED
    in_part = 1 if p.channels % (FLEXIBLE if ending and p.channels > BLOCK_K else BLOCK_K) else 0
    whole = ceil_div(p.channels, BLOCK_K) - in_part
    boxes = whole * (each + row * (height + width))
    each, row = LOADED_IN_PART if p.channels % 16 else LOADED_IN_SECTORS
    boxes += in_part * (each + row * (height + width))
    count = p.tiles(height, width)
    return ceil_div(count, machine().multiprocessors) * p.taps_y * p.taps_x * boxes * _busy(count)


def _busy(blocks: int) -> float:
    """What of its loads' cycles a block takes while so many run."""
    most = machine().multiprocessors
    return ALONE + (1 - ALONE) * min(blocks, most) / most


def tile_cycles(p: Conv2dProblem, height: int, width: int, *, overlapped: bool = False) -> float:
    """The same for all of it: products and epilogues, or loads, where these take longer."""
    return max(cycles(p, height, width, overlapped=overlapped), loading_cycles(p, height, width))


@kept_by_machine(1024)
def fitted(p: Conv2dProblem) -> tuple[int, int]:
    """The tile of two consumers that takes the least cycles."""
    return min(TILES, key=lambda tile: tile_cycles(p, *tile))  # the first of equals


@kept_by_machine(1024)
def fitted_to_one(p: Conv2dProblem) -> tuple[int, int]:
    """The tile of one consumer that takes the least cycles, where another multiplies during its epilogue."""
    return min(TILES_OF_ONE, key=lambda tile: tile_cycles(p, *tile, overlapped=True))


TILES_OF_COPIES = ((128, 128), (128, 64), (64, 64), (128, 32))
"""Pixels and filters of a tile whose k-tiles threads copy."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Among how many blocks the k-tiles of such a tile may be shared."""

COPY, COPY_BY_REGISTERS = 3, 9
"""Cycles that a multiprocessor needs to issue a warp's copy of 4 to 16 bytes, and of two elements: estimates, as are
those that follow."""

MMA_PRODUCTS, L2_BYTES = 800, 40
"""What a multiprocessor multiplies by mma.sync, and gets from the L2, in a cycle."""

WAIT, WAIT_FOR_REGISTERS = 500, 1200
"""Cycles of a k-tile of a block that is alone on its multiprocessor."""

FIRST_K_TILE = 1500
"""Cycles until a block has its first k-tile."""

SPLIT = 2000
"""Cycles until the last of several blocks knows that it is."""


def copied_elements(p: Conv2dProblem) -> int:
    """How many elements a copy has that keeps to one pixel, up to 16 bytes."""
    return next(n for n in (8, 4, 2, 1) if p.channels % n == 0)


def k_tiles_of_taps(p: Conv2dProblem) -> int:
    """Of a sum, where a k-tile has channels of one tap."""
    return p.taps_y * p.taps_x * ceil_div(p.channels, BLOCK_K)


def k_tiles_of_copies(p: Conv2dProblem) -> int:
    """Of a sum, where k runs through taps and channels together."""
    return ceil_div(p.products, BLOCK_K)


def copied_cycles(p: Conv2dProblem, height: int, width: int, splits: int) -> int:
    """A multiprocessor's estimated cycles for its share of tiles of a size whose k-tiles threads copy, shared among
    `splits` blocks."""
    each = copied_elements(p)
    moved = (height + width) * BLOCK_K
    copies = moved // 32 // max(2, each) * (COPY if each > 1 else COPY_BY_REGISTERS)
    k_tile = max(height * width * BLOCK_K // MMA_PRODUCTS, copies, 2 * moved // L2_BYTES)
    iterations = ceil_div(k_tiles_of_copies(p), splits)
    blocks = ceil_div(p.tiles(height, width) * splits, machine().multiprocessors)
    resident = max(1, 4 * 64 * 64 // (height * width))
    rounds = ceil_div(blocks, resident)
    mainloop = max(blocks * k_tile, rounds * (WAIT if each > 1 else WAIT_FOR_REGISTERS)) * iterations
    added = SPLIT + splits * height * width * 4 // L2_BYTES if splits > 1 else 0
    return FIRST_K_TILE + mainloop + rounds * EPILOGUE + blocks * 2 * height * width // L2_BYTES + added


@kept_by_machine(1024)
def fitted_to_copies(p: Conv2dProblem) -> tuple[int, int, int]:
    """The tile whose k-tiles threads copy, and among how many blocks it is shared, that take the least cycles. Of a
    block each has at least two k-tiles."""
    most = max(1, k_tiles_of_copies(p) // 2)
    choices = [(*tile, splits) for tile in TILES_OF_COPIES for splits in SPLITS if splits <= most]
    return min(choices, key=lambda choice: copied_cycles(p, *choice))


def im2col_cycles(p: Conv2dProblem) -> float:
    """A multiprocessor's estimated cycles for its share of tiles that TMA loads, of the size that fits."""
    alone = tile_cycles(p, *fitted_to_one(p), overlapped=True)
    return min(tile_cycles(p, *fitted(p)), alone) + FIRST_K_TILE


SHARES = (1, 2, 3, 4, 6, 8)
"""Among how many blocks the k-tiles that TMA loads may be shared."""


def shared_cycles(p: Conv2dProblem, height: int, width: int, shares: int, *, ending: bool = False) -> float:
    """A multiprocessor's estimated cycles for its share of tiles that TMA loads, of which each is that of so many
    blocks. The last one adds up what all of them leave."""
    k_tiles, tiles = k_tiles_of_taps(p), p.tiles(height, width)
    per_tile = ceil_div(tiles, machine().multiprocessors)
    loads = loading_cycles(p, height, width, ending=ending) / per_tile / k_tiles / _busy(tiles) * _busy(tiles * shares)
    return _of_shares(p, height, width, shares, k_tiles, loads)


def _of_shares(p: Conv2dProblem, height: int, width: int, shares: int, k_tiles: int, loads: float) -> float:
    """The same, where a k-tile's loads take so many cycles."""
    tiles = p.tiles(height, width)
    epilogue = 2 * 2 * height * width // BYTES + EPILOGUE
    products = k_tile_cycles(multiplied(height), width)
    added = SPLIT + (shares + 1) * height * width * 4 / L2_BYTES if shares > 1 else 0
    mainloop = ceil_div(k_tiles, shares) * max(products, loads)
    return ceil_div(tiles * shares, machine().multiprocessors) * (mainloop + epilogue + added) + FIRST_K_TILE


@kept_by_machine(1024)
def fitted_to_shares(p: Conv2dProblem) -> tuple[int, int, int]:
    """The tile of two consumers, and among how many blocks its k-tiles are shared, that take the least cycles. Of a
    block each has at least four k-tiles."""
    most = max(1, k_tiles_of_taps(p) // 4)
    choices = [(*tile, shares) for tile in TILES for shares in SHARES if shares <= most]
    return min(choices, key=lambda choice: shared_cycles(p, *choice))


HIGH = {128: (2, 256), 192: (3, 176), 256: (2, 176)}
"""The windows that such a tile multiplies, of which it may have up to 48 less: consumers, and the most filters for
whose sums their threads have registers."""


def multiplied(height: int) -> int:
    """The windows that consumers multiply for a tile of so many: the next of HIGH."""
    return next(rows for rows in HIGH if rows >= height)


@kept_by_machine(1024)
def fitted_flexibly(p: Conv2dProblem) -> tuple[int, int, int]:
    """The tile of `flexible_tiles`, and among how many blocks its k-tiles are shared, that take the least cycles."""
    heights = range(64, max(HIGH) + 1, FLEXIBLE)
    return _flexible_choice(p, heights, k_tiles_of_taps(p), flexible_cycles)


def _flexible_choice(
    p: Conv2dProblem, heights: Sequence[int], k_tiles: int, cycles: Callable[[Conv2dProblem, int, int, int], float]
) -> tuple[int, int, int]:
    """Tiles are as narrow as their number allows: what is loaded beyond the last filter has no use."""
    most = max(1, k_tiles // 4)
    choices = [
        (height, width, shares)
        for height in heights
        for width in flexible_widths(p.filters, HIGH[multiplied(height)][1])
        if height + width >= multiplied(height)
        for shares in SHARES
        if shares <= most
    ]
    return min(choices, key=lambda choice: cycles(p, *choice))


def flexible_cycles(p: Conv2dProblem, height: int, width: int, shares: int) -> float:
    """The same as `shared_cycles` of `flexible_tiles`."""
    return shared_cycles(p, height, width, shares, ending=True)


def flexible_widths(filters: int, widest: int) -> list[int]:
    """The filters of a tile, of up to `widest`, for each number of tiles that divide all of them."""
    counts = range(ceil_div(filters, widest), ceil_div(filters, NARROWEST) + 1)
    return [ceil_div(ceil_div(filters, count), FLEXIBLE) * FLEXIBLE for count in counts]


BOXES = (32, 16, 8)
"""The channels of a box of `several_taps`, of which a k-tile has several."""


def channels_of_box(p: Conv2dProblem) -> int:
    """Of `several_taps`: the most that divide those of the problem."""
    return next(n for n in BOXES if p.channels % n == 0)


def several_cycles(p: Conv2dProblem, height: int, width: int, shares: int) -> float:
    """The same as `shared_cycles` of `several_taps`."""
    each, row = LOADED
    loads = BLOCK_K // channels_of_box(p) * (each + row * height) + each + row * width
    if channels_of_box(p) == BOXES[0]:  # for shorter rows a multiprocessor alone takes as long
        loads *= _busy(p.tiles(height, width) * shares)
    return _of_shares(p, height, width, shares, k_tiles_of_copies(p), loads)


OF_HALO, OF_HALO_STRIDED = 9.0, 3.9
"""Elements of windows that a multiprocessor multiplies in a cycle by `halo`, and with strides."""

RECTANGLE = (8, 16)
"""Rows and columns of outputs that are copied for at once."""


def halo_cycles(p: Conv2dProblem) -> float:
    """The same of `halo`, whose rectangles of outputs do not all lie in the image."""
    rows, columns = (ceil_div(n, side) for n, side in zip((p.rows, p.columns), RECTANGLE, strict=True))
    rounds = max(1, p.images * p.groups * rows * columns / machine().multiprocessors)
    windows = RECTANGLE[0] * RECTANGLE[1] * p.products
    return FIRST_K_TILE + rounds * windows / (OF_HALO if p.stride_y * p.stride_x == 1 else OF_HALO_STRIDED)


@kept_by_machine(1024)
def fitted_to_taps(p: Conv2dProblem) -> tuple[int, int, int]:
    """The tile of `several_taps`, and among how many blocks its k-tiles are shared, that take the least cycles."""
    return _flexible_choice(p, tuple(HIGH), k_tiles_of_copies(p), several_cycles)


LAUNCH, MEMORY_BYTES = 5000, 11
"""Cycles of one launch more, and what a multiprocessor gets from memory in a cycle while all do."""


def padding_cycles(p: Conv2dProblem, to: Conv2dProblem) -> float:
    """Estimated cycles of the launch that copies images and filters to arrays with more channels."""
    pixels = p.images * p.height * p.width * p.groups + p.groups * p.filters * p.taps_y * p.taps_x
    return LAUNCH + 2 * pixels * (p.channels + to.channels) / MEMORY_BYTES / machine().multiprocessors


# -------------------------------------------------------------------------------------------------------------- padding


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


def no_box(p: Conv2dProblem) -> str | None:
    """Why there is nothing to pad to the widest box of `several_taps`, or None where there is."""
    return None if p.channels % BOXES[0] else f"{p.channels} channels are whole boxes: nothing is to be padded"


@kept_by_machine(1024)
def padded_to_boxes(p: Conv2dProblem) -> Conv2dProblem:
    """The problem with the channels for which `several_taps` takes the least cycles."""
    wider = (padded(p, channels) for channels in BOXES if p.channels % channels)
    return min(wider, key=lambda p: several_cycles(p, *fitted_to_taps(p)), default=p)


def pad_channels(p: Conv2dProblem, wider: Conv2dProblem) -> tuple[Launch, dict[str, Array]]:
    """The launch, and the arrays that it fills, `padded_x` and `padded_f`."""
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
