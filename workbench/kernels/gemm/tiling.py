"""Which tiles a stage takes that has several: the ones that should take the least time, by counting cycles.

Only the order of the choices has to be right. How long a stage takes is told by the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product

from ...model.dtypes import dtype_of
from ...model.launch import MULTIPROCESSORS, ceil_div
from .problem import SHARED_BYTES, GemmProblem

Shape = tuple[int, int, int, int]
"""Rows and columns of a tile, then how they are shared out: warps along each, or elements of a thread along each."""

MOST_CLUSTERS, LEAST_SHARED = 16, 2
"""Clusters that share a tile of `last_block`, and k-tiles of each of their blocks."""

MOST_KEPT = 4096
"""Choices that are remembered: a first call asks for the same one several times."""

SMALL: tuple[Shape, ...] = (
    *((16, 64, 1, 4), (64, 16, 4, 1), (32, 32, 2, 2), (32, 64, 2, 2), (64, 32, 2, 2), (64, 64, 2, 2)),
    *((32, 128, 1, 4), (128, 32, 4, 1), (64, 128, 2, 4), (128, 64, 4, 2), (128, 128, 2, 4)),
)
"""Tiles of `small_tiles`, and warps along each of their sides."""

SPLIT: tuple[Shape, ...] = (
    *((128, 128, 8, 8), (64, 128, 8, 8), (128, 64, 8, 8), (64, 64, 8, 8), (32, 128, 4, 8), (128, 32, 8, 8)),
    *((32, 64, 4, 8), (64, 32, 4, 8), (32, 32, 4, 4)),
)
"""Tiles of `split_warp_tiles`, and those of a thread."""


WIDE: tuple[tuple[int, int], ...] = ((128, 256), (192, 128), (128, 128), (192, 64), (128, 64))
"""Rows and columns of the tiles of `fitted_tiles`."""

HIGH: tuple[tuple[int, int], ...] = ((128, 256), (192, 176))
"""Of the tiles of `flexible_tiles`: the side that consumers share, 64 for each, and the most of the other side. A
thread has half as many sums as that."""

HIGHER: tuple[tuple[int, int], ...] = (*HIGH, (256, 160))
"""The same of `flexible_multicast`, of whose highest tiles a consumer multiplies 128."""

FLEXIBLE, NARROWEST = 16, 64
"""What the other side is a multiple of, and each part of it where blocks share a tile; and the least of it where C has
more: a wgmma of fewer columns takes as long, since it reads as much of the operand of 64 rows."""

SHARING = (2, 4)
"""Blocks of a cluster of `flexible_multicast`."""

FITTED: tuple[Shape, ...] = (
    *((128, 128, 8, 16), (128, 64, 8, 8), (64, 128, 8, 8)),
    *((64, 64, 4, 8), (128, 32, 4, 8), (32, 128, 4, 8)),
)
"""Tiles of `fitted_pipeline`, and those of a thread."""

HALF_BYTES = 113 * 1024
"""Shared memory of a block of which a multiprocessor has two: each takes 1 KB more."""

FITTED_K = 32
"""k of a k-tile of `fitted_pipeline`."""

PAIRS, LEAST_PARTED, MOST_PARTED = range(2, 17), 6, 4 * 2 * MULTIPROCESSORS
"""How many pairs of blocks may share a tile of `fitted_pipeline`, k-tiles of each of their blocks at least, and so many
blocks at most: four rounds of those that run at once."""

SHIFTED = 6
"""Elements in whose copies as much time goes as in 8 that have to be shifted."""

SPLIT_K, SPLIT_DEEP = 16, 4
"""k of a k-tile of `split_warp_tiles`, and how many of them it has in shared memory."""

LINE = 128
"""Bytes of a line of the L2."""

LINES_A_CYCLE = 60
"""Lines that the L2 delivers in a cycle of the multiprocessors. Of three products whose rows begin within lines, by
five kernels of ours and of cuBLAS, it answered 88 to 105 requests a nanosecond (counters of an H100)."""

CLUSTERS = {1: MULTIPROCESSORS, 2: 66, 3: 38, 4: 30, 5: 22, 6: 16, 7: 15, 8: 14}
"""Clusters of so many blocks that run at once, one block a multiprocessor. A cluster has to lie in one of some eight
groups of 14 to 18 multiprocessors; chips differ, and this is the least of three. Of 32 clusters of four, two run after
the others: 204 us for 4024x24x12272 with four blocks a tile, 138 with three (`fitted_pipeline`, H100)."""


def pieces(p: GemmProblem) -> tuple[int, int, int]:
    """Elements of A, B and C that move together: as many as the distance of their rows divides, of A and B 16 bytes at
    most of 16-bit types, of C four."""
    return math.gcd(p.lda, 8), math.gcd(p.ldb, 8), math.gcd(p.ldc, 4)


def shifted_pieces(p: GemmProblem) -> tuple[int, int, int]:
    """The same where 16 bytes are copied wherever they begin, and then shifted."""
    of_a, of_b, of_c = pieces(p)
    return (8 if of_a == 8 else SHIFTED, 8 if of_b == 8 else SHIFTED, of_c)


def small(p: GemmProblem) -> tuple[Shape, int, int]:
    """A tile of `small_tiles`, its k-tile, and blocks that share it."""
    return _small(p.m, p.n, p.k, pieces(p))


def shared_again(p: GemmProblem) -> tuple[Shape, int, int, int]:
    """A tile of `last_block`, its k-tile, the blocks of a cluster that shares it, and how many clusters do."""
    return _shared_again(p.m, p.n, p.k, pieces(p))


def shifted(p: GemmProblem) -> tuple[Shape, int, int]:
    """The same of `shifted_tiles`."""
    return _small(p.m, p.n, p.k, shifted_pieces(p))


def wide(p: GemmProblem, most: int) -> tuple[int, int, int]:
    """Rows and columns of a tile of `fitted_tiles`, and blocks that share it: where they do, at most so many."""
    return _wide(p.m, p.n, p.k, most)


def flexible(p: GemmProblem, most: int) -> tuple[int, int, int]:
    """The same of `flexible_tiles`."""
    return _flexible(p.m, p.n, p.k, p.out == p.dtype, most)


def multicast(p: GemmProblem) -> tuple[int, int, int, int, int]:
    """Rows and columns of a tile of `flexible_multicast`, blocks of a cluster, whether they share A, and how many
    clusters share tiles."""
    return _multicast(p.m, p.n, p.k, *_of_rows(p))


def lines(p: GemmProblem, stride: int) -> float:
    """Lines of memory in which 128 bytes of a row of a k-tile lie, on average: two of a row that begins within a line.
    One where rows are copied before, since no tensor map takes them."""
    between = stride * dtype_of(p.dtype).itemsize
    return 2 - math.gcd(between, LINE) / LINE if between % 16 == 0 else 1.0


def _of_rows(p: GemmProblem) -> tuple[bool, bool, float, float]:
    """Whether C may be computed as its transpose, whether B lies along k, and in how many lines rows of k-tiles lie."""
    return p.out == p.dtype, p.layout == "nt", lines(p, p.lda), lines(p, p.ldb)


def is_swapped(rows: int, sides: tuple[tuple[int, int], ...] = HIGH) -> bool:
    """Whether a tile of `flexible_tiles`, or of one with other `sides`, that has so many rows of C is multiplied as its
    transpose."""
    return rows not in dict(sides)


def split(p: GemmProblem) -> tuple[Shape, int]:
    """A tile of `split_warp_tiles`, and blocks that share it."""
    return _split(p.m, p.n, p.k)


def fitted(p: GemmProblem) -> tuple[Shape, int, int]:
    """A tile of `fitted_pipeline`, the blocks of a cluster that shares it, and how many clusters do."""
    return _fitted(p.m, p.n, p.k, FITTED)


def shifted_single(p: GemmProblem) -> tuple[Shape, int, int]:
    """The same of `shifted_pipeline`: there is no room for the largest tile."""
    return _fitted(p.m, p.n, p.k, FITTED[1:])


def _small_k(k: int, moved: tuple[int, int, int]) -> int:
    """k of a k-tile of `small_tiles`."""
    most = 32 if 1 in moved[:2] else 64  # single elements of a k-tile are in registers, all at once
    return min(most, max(16, 1 << (k - 1).bit_length()))


@lru_cache(MOST_KEPT)
def _shared_again(m: int, n: int, k: int, moved: tuple[int, int, int]) -> tuple[Shape, int, int, int]:
    k_tile = _small_k(k, moved)
    found = min(
        (small_cycles(m, n, k, moved, shape, k_tile, parts, clusters), shape, parts, clusters)
        for shape, parts in choices(m, n, ceil_div(k, k_tile), SMALL, (1, 2, 4, 8))
        for clusters in range(1, MOST_CLUSTERS + 1)
        if clusters == 1 or parts * clusters * LEAST_SHARED <= ceil_div(k, k_tile)
    )
    return found[1], k_tile, found[2], found[3]


@lru_cache(MOST_KEPT)
def _small(m: int, n: int, k: int, moved: tuple[int, int, int]) -> tuple[Shape, int, int]:
    _, shape, parts = min(small_choices(m, n, k, moved))
    return shape, _small_k(k, moved), parts


@lru_cache(MOST_KEPT)
def _split(m: int, n: int, k: int) -> tuple[Shape, int]:
    return min(split_choices(m, n, k))[1:]


@lru_cache(MOST_KEPT)
def _fitted(m: int, n: int, k: int, shapes: tuple[Shape, ...]) -> tuple[Shape, int, int]:
    return min(fitted_choices(m, n, k, shapes))[1:]


@lru_cache(MOST_KEPT)
def _wide(m: int, n: int, k: int, most: int) -> tuple[int, int, int]:
    _, shape, parts = min(wide_choices(m, n, k, most), key=lambda choice: choice[0])  # the first of equals
    return *shape, parts


@lru_cache(MOST_KEPT)
def _flexible(m: int, n: int, k: int, swaps: bool, most: int) -> tuple[int, int, int]:
    _, shape, parts = min(flexible_choices(m, n, k, swaps, most), key=lambda choice: choice[0])
    return *shape, parts


@lru_cache(MOST_KEPT)
def _multicast(
    m: int, n: int, k: int, swaps: bool, along_k: bool, of_a: float, of_b: float
) -> tuple[int, int, int, int, int]:
    found = min(_by_multicast(m, n, k, swaps, along_k, of_a, of_b), key=lambda choice: choice[0])
    return *found[1], *found[2:]


def small_choices(m: int, n: int, k: int, moved: tuple[int, int, int]) -> Iterator[tuple[float, Shape, int]]:
    """The tiles of `small_tiles`, or of `shifted_tiles`: cycles, the shape, and blocks that share one."""
    k_tile = _small_k(k, moved)
    for shape, parts in choices(m, n, ceil_div(k, k_tile), SMALL, (1, 2, 4, 8)):
        yield small_cycles(m, n, k, moved, shape, k_tile, parts), shape, parts


def split_choices(m: int, n: int, k: int) -> Iterator[tuple[float, Shape, int]]:
    """The same of `split_warp_tiles`."""
    for shape, parts in choices(m, n, ceil_div(k, SPLIT_K), SPLIT, range(1, 9)):
        yield split_cycles(m, n, k, shape, parts), shape, parts


def fitted_choices(m: int, n: int, k: int, shapes: tuple[Shape, ...]) -> Iterator[tuple[float, Shape, int, int]]:
    """The same of `fitted_pipeline`, or, with other shapes, of `shifted_pipeline`, and how many clusters share a tile:
    pairs of blocks, since of these the most run at once."""
    k_tiles = ceil_div(k, FITTED_K)
    for shape, parts in choices(m, n, k_tiles, shapes, range(1, 8), least=64):
        yield fitted_cycles(m, n, k, shape, parts), shape, parts, 1
        tiles = ceil_div(m, shape[0]) * ceil_div(n, shape[1])
        for clusters in PAIRS if parts == 2 else ():
            if 2 * clusters * LEAST_PARTED <= k_tiles and tiles * 2 * clusters <= MOST_PARTED:
                yield fitted_cycles(m, n, k, shape, parts, clusters), shape, parts, clusters


def wide_choices(m: int, n: int, k: int, most: int) -> Iterator[tuple[float, tuple[int, int], int]]:
    """The same of `fitted_tiles`: where blocks share a tile, they are at most so many."""
    for shape in WIDE:
        for parts in _shares(ceil_div(m, shape[0]) * ceil_div(n, shape[1]), k, most):
            if shape[1] // parts >= 16:  # columns that a block stores
                yield wide_cycles(m, n, k, shape, parts), shape, parts


def flexible_choices(m: int, n: int, k: int, swaps: bool, most: int) -> Iterator[tuple[float, tuple[int, int], int]]:
    """The same of `flexible_tiles`, whose tiles may have any number of columns or, where it `swaps`, of rows."""
    for swapped in (False, True)[: 1 + swaps]:
        along, across = (n, m) if swapped else (m, n)  # the sides of C that the sides of a tile divide
        for high, wide in _flexible_sides(across):
            shape = (wide, high) if swapped else (high, wide)
            if is_swapped(shape[0]) != swapped:
                continue
            for parts in _shares(ceil_div(along, high) * ceil_div(across, wide), k, most):
                if wide % (parts * FLEXIBLE) == 0:
                    yield flexible_cycles(along, across, k, (high, wide), parts, swapped), shape, parts


def multicast_choices(p: GemmProblem) -> Iterator[tuple[float, tuple[int, int], int, int, int]]:
    """The same of `flexible_multicast`: cycles, the tile, blocks of a cluster, whether they share A, and how many
    clusters share tiles."""
    return _by_multicast(p.m, p.n, p.k, *_of_rows(p))


def _by_multicast(
    m: int, n: int, k: int, swaps: bool, along_k: bool, of_a: float, of_b: float
) -> Iterator[tuple[float, tuple[int, int], int, int, int]]:
    k_tiles = ceil_div(k, 64)
    for swapped in (False, True)[: 1 + swaps]:
        for high, wide in _flexible_sides(m if swapped else n, HIGHER):
            rows, columns = (wide, high) if swapped else (high, wide)
            if is_swapped(rows, HIGHER) != swapped:
                continue
            # k-tiles of A and B are so many rows of 128 bytes
            boxes = rows * of_a, (columns if along_k else 64 * ceil_div(columns, 64)) * of_b
            within = not swapped and 2 * columns % LINE and columns < n  # tiles end within lines
            for sharing, share_a in product(SHARING, (0, 1)):
                if (rows if share_a else columns) % (8 * sharing):
                    continue
                by_a, by_b = shared_by(sharing, share_a)
                asked = boxes[0] / by_a + boxes[1] / by_b
                groups, at_the_same_time = clusters_of(m, n, rows, columns, sharing, share_a), CLUSTERS[sharing]
                for clusters in range(1, MOST_CLUSTERS + 1):
                    if clusters > 1 and (groups * clusters > at_the_same_time or clusters * LEAST_PARTED > k_tiles):
                        break
                    cycles = multicast_cycles(rows, columns, k_tiles, groups, sharing, clusters, asked)
                    if within:
                        cycles += ceil_div(groups, at_the_same_time) * rows * columns / 16
                    yield cycles, (rows, columns), sharing, share_a, clusters


def shared_by(sharing: int, share_a: bool | int) -> tuple[int, int]:
    """Blocks of a cluster of so many that share a k-tile of A, and those that share one of B."""
    return (sharing, 1) if share_a else (1, sharing)


def clusters_of(m: int, n: int, rows: int, columns: int, sharing: int, share_a: bool | int) -> int:
    """Clusters of blocks whose tiles are neighbours: side by side if they share A, else one above the other."""
    of_a, of_b = shared_by(sharing, share_a)
    return ceil_div(m, rows * of_b) * ceil_div(n, columns * of_a)


def _flexible_sides(across: int, sides: tuple[tuple[int, int], ...] = HIGH) -> Iterator[tuple[int, int]]:
    """Both sides of a tile of `flexible_tiles`, the second of which divides so much of C."""
    for high, widest in sides:
        most = min(widest, ceil_div(across, FLEXIBLE) * FLEXIBLE)
        yield from ((high, wide) for wide in range(min(NARROWEST, most), most + 1, FLEXIBLE))


def _shares(tiles: int, k: int, most: int) -> Iterator[int]:
    """Blocks that may share each of so many tiles of TMA's k-tiles, where `most` blocks may in all."""
    return (parts for parts in (1, 2, 4, 8) if parts == 1 or (tiles * parts <= most and parts <= ceil_div(k, 64)))


def choices(
    m: int, n: int, k_tiles: int, shapes: tuple[Shape, ...], clusters: tuple[int, ...] | range, least: int = 32
) -> Iterator[tuple[Shape, int]]:
    """Tiles that are not mostly outside of C, and how many blocks may share one, as long as the device is not full. A
    stage has no tiles of less than `least` rows and columns."""
    for shape in shapes:
        if shape[0] > max(least, 2 * m) or shape[1] > max(least, 2 * n):
            continue
        tiles = ceil_div(m, shape[0]) * ceil_div(n, shape[1])
        for parts in clusters:
            if parts == 1 or (parts <= k_tiles and tiles * parts <= 16 * MULTIPROCESSORS):
                yield shape, parts


def small_cycles(
    m: int, n: int, k: int, moved: tuple[int, int, int], shape: Shape, k_tile: int, parts: int, clusters: int = 1
) -> float:
    """About how many cycles `small_tiles` takes, by times of 54 products with eight tiles each on an H200. With what
    is chosen these take 1.02 times as long as with the best tile; 24 more, most with a short k and rows of C that
    begin anywhere, with 11 tiles each, 1.03 times. Where several `clusters` share a tile, their sums go through memory;
    no time of that was known."""
    rows, columns = shape[:2]
    rounds = ceil_div(ceil_div(m, rows) * ceil_div(n, columns) * parts * clusters, _run_at_once(parts, 1))
    multiplied, loaded = rows * columns * k_tile / 450, (rows + columns) * k_tile * 2 / 15
    copied = (rows * k_tile / moved[0] + columns * k_tile / moved[1]) / 32 * 2.5
    waiting = 1300 if 1 in moved[:2] else 100  # for memory, where nothing else is to be done
    iterations = ceil_div(ceil_div(k, k_tile), parts * clusters)
    mainloop = iterations * max(waiting, rounds * max(multiplied, loaded, copied))
    if clusters > 1:
        mainloop += 2500 + 150 * clusters
    # rows that begin anywhere have elements at both ends that are stored alone
    stored = rows * columns / 7.2 if moved[2] == 4 else rows * (5 + 0.3 * columns)
    return mainloop + rounds * stored + (2100 + 14 * parts if parts > 1 else 0)


def split_cycles(m: int, n: int, k: int, shape: Shape, parts: int) -> float:
    """About how many cycles `split_warp_tiles` takes, by times of 26 products with nine tiles each on an H200. With
    what is chosen these take 1.02 times as long as with the best tile."""
    rows, columns, thread = shape[0], shape[1], shape[2] * shape[3]
    threads, blocks = rows * columns // thread, ceil_div(m, rows) * ceil_div(n, columns) * parts
    registers = 128 if threads == 256 else {64: 150, 32: 100, 16: 60}[thread]
    resident = min(SHARED_BYTES // split_bytes(shape), 65536 // (threads * registers), 16)
    if parts > 1:
        resident = min(resident, at_once(blocks, parts))
    waves, rest = divmod(blocks, _run_at_once(parts, resident))
    one = ceil_div(ceil_div(k, SPLIT_K), parts) * SPLIT_K * (rows * columns / 128 * 1.08 + (rows + columns) * 0.16)
    cycles = 0.0
    last = min(resident, at_once(rest, parts)) if parts > 1 else ceil_div(rest, MULTIPROCESSORS)
    for times, together in ((waves, resident), (min(rest, 1), last)):
        # a few warps do not keep the units busy
        cycles += times * (one * max(together, 6.4 * 32 / threads) + together * rows * columns / 5.5)
    return cycles + (3500 if parts > 1 else 0)


def wide_cycles(m: int, n: int, k: int, shape: tuple[int, int], parts: int) -> float:
    """About how many cycles `fitted_tiles` takes, by times of 25 products with several tiles each on an H100. What is
    chosen of them was the fastest each time."""
    rows, columns = shape
    blocks, iterations = ceil_div(m, rows) * ceil_div(n, columns) * parts, ceil_div(ceil_div(k, 64), parts)
    at_the_same_time, loaded = _run_at_once(parts, 1), (rows + columns) * 64 * 2
    of_the_l2 = min(blocks, at_the_same_time) * loaded / 5200
    one = max(rows * columns * 64 / 2048 / 0.97, loaded / 55, of_the_l2)
    handed_over = rows * columns * 4 * (parts - 1) / parts  # bytes, from block to block
    added_up = {1: 0, 2: 2500, 4: 3000, 8: 6500}[parts] + handed_over / 18
    return ceil_div(blocks, at_the_same_time) * (iterations * one + rows * columns / 8) + added_up


def flexible_cycles(m: int, n: int, k: int, shape: tuple[int, int], parts: int, swapped: bool) -> float:
    """About how many cycles `flexible_tiles` takes, with both sides of C and of the tile exchanged if it is `swapped`.

    Tiles that end within lines of memory take longer to store: 224 us for 888x12088x6336 with 128 x 224, 184 with
    224 x 128 (H200). With what is chosen 61 random products took 1.02 times as long as with the best of three tiles.
    """
    rows, columns = shape
    cycles = wide_cycles(m, n, k, shape, parts)
    if swapped or 2 * columns % LINE == 0 or columns >= n:
        return cycles
    blocks = ceil_div(m, rows) * ceil_div(n, columns) * parts
    return cycles + ceil_div(blocks, _run_at_once(parts, 1)) * rows * columns / 16


def multicast_cycles(
    rows: int, columns: int, k_tiles: int, groups: int, sharing: int, clusters: int, lines: float
) -> float:
    """About how many cycles `flexible_multicast` takes for so many groups of tiles, whose blocks ask for so many lines
    an iteration. Of 28 products with about twelve tiles each, and one cluster, what is chosen took 1.003 times as long
    as the best (H100)."""
    at_the_same_time = CLUSTERS[sharing]
    of_the_l2 = min(groups * clusters, at_the_same_time) * sharing * lines / LINES_A_CYCLE
    one = max(rows * columns * 64 / 2048 / 0.97, (rows + columns) * LINE / 55, of_the_l2)
    added_up = 2500 + (clusters + 1) * rows * columns * 4 / 55 if clusters > 1 else 0
    rounds = ceil_div(groups * clusters, at_the_same_time)
    return rounds * (ceil_div(k_tiles, clusters) * one + rows * columns / 8 + added_up)


def fitted_cycles(m: int, n: int, k: int, shape: Shape, parts: int, clusters: int = 1) -> float:
    """About how many cycles `fitted_pipeline` takes, by times of random products with several tiles each on an H100. Of
    30 products whose tiles several clusters may share, what is chosen took 1.01 times as long as the best of seven
    (H200).
    """
    rows, columns, thread = shape[0], shape[1], shape[2] * shape[3]
    shares = parts * clusters
    blocks, iterations = ceil_div(m, rows) * ceil_div(n, columns) * shares, ceil_div(ceil_div(k, FITTED_K), shares)
    one = rows * columns * FITTED_K / 128 * {128: 1.08, 64: 1.05, 32: 1.2}[thread]
    waves, rest = divmod(blocks, _run_at_once(parts, 2))
    handed_over = rows * columns * 4 * (parts - 1) / parts  # bytes, from block to block
    cycles = 0.0
    for times, together in ((waves, 2), (min(rest, 1), min(2, at_once(rest, parts)))):
        # four warps alone do not keep the units busy, and k-tiles take a while to come
        mainloop = iterations * max(650, one * max(together, 1.45))
        added_up = 3100 + together * handed_over / 50 if parts > 1 else 0
        if clusters > 1:
            added_up += 2500 + together * (clusters + 1) * rows * columns * 4 / parts / 32
        cycles += times * (mainloop + together * rows * columns / 4.5 + added_up)
    return cycles


def split_bytes(shape: Shape) -> int:
    """Shared memory of a block of `split_warp_tiles`: k-tiles with four floats behind their rows, then sums there."""
    rows, columns = shape[:2]
    return max(SPLIT_DEEP * SPLIT_K * (rows + columns + 8), rows * (columns + 4)) * 4


def at_once(blocks: int, parts: int) -> int:
    """Blocks of clusters of `parts` that a multiprocessor has to have at once for all to run at the same time."""
    each = 1
    while blocks > _run_at_once(parts, each):
        each += 1
    return each


def _run_at_once(parts: int, each: int) -> int:
    """Blocks of clusters of `parts` that run at the same time, with so many for each multiprocessor."""
    return each * CLUSTERS[parts] * parts


def spread(blocks: int, parts: int, shared: int) -> int:
    """Bytes of shared memory with which no more blocks of a cluster fit on a multiprocessor than have to be there, at
    least `shared`. With less, two blocks share one while another has none: four of 128 x 128 of `split_warp_tiles`
    then took 77 us for 107x3960x1263 on an H200, of 128 x 64 48."""
    return shared if parts == 1 else max(shared, SHARED_BYTES // (at_once(blocks, parts) + 1) + 1024)


def shifted_bytes(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Shared memory of a block of `shifted_tiles`: k-tiles as they come, and two of those that are shifted."""
    m, n, k, pad = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"], 8
    of_a, of_b = 2 * m * (k + pad), 2 * (n * (k + pad) if p.layout == "nt" else k * (n + pad))
    each = ((of_a, size["ALIGNED_A"]), (of_b, size["ALIGNED_B"]))
    return sum(size["STAGES"] * nbytes + (16 if aligned else 2 * nbytes) for nbytes, aligned in each)
