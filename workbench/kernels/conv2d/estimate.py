"""How long a convolution takes in tiles of one size: an estimate, by which sizes and stages are chosen."""

from __future__ import annotations

import dataclasses

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


LOADED, LOADED_ASTRIDE, LOADED_IN_PART = (100, 1.6), (100, 3.9), (100, 8.5)
"""Cycles of a k-tile that TMA loads while all multiprocessors do, and more of each of its rows: of 64 channels that lie
in one line of 128 bytes, or in two; and where channels end within a box. Fitted to random layers on an H200."""

ALONE = 0.45
"""What a k-tile takes of that where one multiprocessor loads."""


def loading_cycles(p: Conv2dProblem, height: int, width: int, *, ending: bool = False) -> float:
    """A multiprocessor's estimated cycles for what TMA loads for its share of the tiles of a size. The last box of a
    tap may be `ending` with its channels."""
    each, row = LOADED_ASTRIDE if p.groups * p.channels % BLOCK_K else LOADED
    in_part = 1 if p.channels % (FLEXIBLE if ending and p.channels > BLOCK_K else BLOCK_K) else 0
    whole = ceil_div(p.channels, BLOCK_K) - in_part
    boxes = whole * (each + row * (height + width))
    boxes += in_part * (LOADED_IN_PART[0] + LOADED_IN_PART[1] * (height + width))
    count = p.tiles(height, width)
    most = machine().multiprocessors
    busy = ALONE + (1 - ALONE) * min(count, most) / most
    return ceil_div(count, most) * p.taps_y * p.taps_x * boxes * busy


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
    most = machine().multiprocessors
    per_tile = ceil_div(tiles, most)
    epilogue = 2 * 2 * height * width // BYTES + EPILOGUE
    busy = [ALONE + (1 - ALONE) * min(n, most) / most for n in (tiles, tiles * shares)]
    products = k_tile_cycles(multiplied(height), width)
    loads = loading_cycles(p, height, width, ending=ending) / per_tile / k_tiles / busy[0] * busy[1]
    added = SPLIT + (shares + 1) * height * width * 4 / L2_BYTES if shares > 1 else 0
    mainloop = ceil_div(k_tiles, shares) * max(products, loads)
    return ceil_div(tiles * shares, most) * (mainloop + epilogue + added) + FIRST_K_TILE


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
    """The tile of `flexible_tiles`, and among how many blocks its k-tiles are shared, that take the least cycles.

    Tiles are as narrow as their number allows: what is loaded beyond the last filter has no use."""
    most = max(1, k_tiles_of_taps(p) // 4)
    choices = [
        (height, width, shares)
        for height in range(64, max(HIGH) + 1, FLEXIBLE)
        for width in flexible_widths(p.filters, HIGH[multiplied(height)][1])
        if height + width >= multiplied(height)
        for shares in SHARES
        if shares <= most
    ]
    return min(choices, key=lambda choice: flexible_cycles(p, *choice))


def flexible_cycles(p: Conv2dProblem, height: int, width: int, shares: int) -> float:
    """The same as `shared_cycles` of `flexible_tiles`."""
    return shared_cycles(p, height, width, shares, ending=True)


def flexible_widths(filters: int, widest: int) -> list[int]:
    """The filters of a tile, of up to `widest`, for each number of tiles that divide all of them."""
    counts = range(ceil_div(filters, widest), ceil_div(filters, NARROWEST) + 1)
    return [ceil_div(ceil_div(filters, count), FLEXIBLE) * FLEXIBLE for count in counts]


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
