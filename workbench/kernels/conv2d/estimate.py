"""How long a convolution takes in tiles of one size: an estimate, by which sizes and stages are chosen."""

from __future__ import annotations

from ...model.launch import ceil_div
from .problem import Conv2dProblem

BLOCK_K = 64
"""Products of a k-tile: of 128 bytes, as wide as a swizzle."""

MULTIPROCESSORS = 132

TILES = ((128, 256), (256, 128), (128, 192), (256, 160), (128, 160), (128, 128), (256, 64), (128, 64))
"""Pixels and filters of a tile of two consumers, of those that they have registers and shared memory for."""

TILES_OF_ONE = ((128, 128), (64, 256), (128, 160), (64, 192), (64, 128), (256, 64), (128, 64), (64, 64))
"""The same of a consumer that has a tile to itself."""

PRODUCTS, BYTES = 2048, 128
"""What a multiprocessor multiplies with tensor cores, and moves from or to shared memory, in a cycle (Hopper)."""

EPILOGUE = 500
"""Cycles after which an epilogue that has begun to store is through, whatever the size of the tile: an estimate."""


def cycles(p: Conv2dProblem, height: int, width: int, *, overlapped: bool = False) -> int:
    """A multiprocessor's estimated cycles for its share of the tiles of a size.

    A k-tile takes as long as its products, or as shared memory takes to receive it once and to deliver the windows
    once and the filters once for every 64 windows; an epilogue two ways through shared memory. Where it is
    `overlapped`, a tile takes as long as the longer of mainloop and epilogue, and the last epilogue is waited for.
    """
    moved = 2 * BLOCK_K * (2 * height + width + width * height // 64)
    k_tile = max(height * width * BLOCK_K // PRODUCTS, moved // BYTES)
    mainloop = p.taps_y * p.taps_x * ceil_div(p.channels, BLOCK_K) * k_tile
    epilogue = 2 * 2 * height * width // BYTES + EPILOGUE
    rounds = ceil_div(p.tiles(height, width), MULTIPROCESSORS)
    return rounds * max(mainloop, epilogue) + epilogue if overlapped else rounds * (mainloop + epilogue)


def fitted(p: Conv2dProblem) -> tuple[int, int]:
    """The tile of two consumers that takes the least cycles."""
    return min(TILES, key=lambda tile: cycles(p, *tile))  # the first of equals


def fitted_to_one(p: Conv2dProblem) -> tuple[int, int]:
    """The tile of one consumer that takes the least cycles, where another multiplies during its epilogue."""
    return min(TILES_OF_ONE, key=lambda tile: cycles(p, *tile, overlapped=True))
