"""Which tiles a stage takes that has several: the ones that should take the least time, by counting cycles.

Only the order of the choices has to be right. How long a stage takes is told by the cost model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from ...model.dtypes import dtype_of
from ...model.launch import H200, ceil_div, kept_by_machine, machine
from .problem import GemmProblem

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

SPLIT: tuple[Shape, ...] = ((64, 64, 8, 4), (32, 64, 4, 8), (64, 32, 8, 4), (32, 32, 4, 4))
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

SHARING = ((2, 0), (2, 1), (4, 0), (4, 1))
"""Blocks of a cluster of `flexible_multicast`, and whether they share A."""

FITTED: tuple[Shape, ...] = (
    *((128, 128, 8, 16), (128, 64, 8, 8), (64, 128, 8, 8)),
    *((64, 64, 4, 8), (128, 32, 4, 8), (32, 128, 4, 8)),
)
"""Tiles of `fitted_pipeline`, and those of a thread."""

ADDED_UP = {1: 0, 2: 2500, 4: 3000, 8: 6500}
"""Cycles in which blocks of a cluster of so many add up a tile of `fitted_tiles`, beside those of the bytes."""

HALF_BYTES = 113 * 1024
"""Shared memory of a block of which a multiprocessor has two: each takes 1 KB more."""

FITTED_K = SPLIT_K = 32
"""k of a k-tile of `fitted_pipeline`, and of one of `split_warp_tiles`."""

PAIRS, LEAST_PARTED, MOST_PARTED = range(2, 17), 6, 4 * 2
"""How many pairs of blocks may share a tile of `fitted_pipeline`, k-tiles of each of their blocks at least, and so many
blocks for each multiprocessor at most: four rounds of those that run at once."""

SHIFTED = 6
"""Elements in whose copies as much time goes as in 8 that have to be shifted."""

LINE = 128
"""Bytes of a line of the L2."""

LINES_A_CYCLE = 60
"""Lines that the L2 delivers in a cycle of the multiprocessors. Of three products whose rows begin within lines, by
five kernels of ours and of cuBLAS, it answered 88 to 105 requests a nanosecond (counters of an H100)."""

CLUSTERS = {1: H200.multiprocessors, 2: 66, 3: 38, 4: 30, 5: 22, 6: 16, 7: 15, 8: 14}
"""Clusters of so many blocks that run at once on an H200, one block a multiprocessor. A cluster has to lie in one of
some eight groups of 14 to 18 multiprocessors; chips differ, and this is the least of three. Of 32 clusters of four, two
run after the others: 204 us for 4024x24x12272 with four blocks a tile, 138 with three (`fitted_pipeline`, H100)."""


def clusters_at_once(blocks: int) -> int:
    """Clusters of so many blocks that run at once, on a machine whose groups are like those of an H200."""
    return CLUSTERS[blocks] * machine().multiprocessors // H200.multiprocessors


def pieces(p: GemmProblem) -> tuple[int, int, int]:
    """Elements of A, B and C that move together: as many as the distances of their rows and matrices are multiples of,
    of A and B 16 bytes at most of 16-bit types, of C four."""
    of_a, of_b = (p.steps[name] if p.batch > 1 else 0 for name in "AB")
    return math.gcd(p.lda, of_a, 8), math.gcd(p.ldb, of_b, 8), math.gcd(p.ldc, 4)


def shifted_pieces(p: GemmProblem) -> tuple[int, int, int]:
    """The same where 16 bytes are copied wherever they begin, and then shifted."""
    of_a, of_b, of_c = pieces(p)
    return (8 if of_a == 8 else SHIFTED, 8 if of_b == 8 else SHIFTED, of_c)


@kept_by_machine(MOST_KEPT)
def small(p: GemmProblem) -> tuple[Shape, int, int]:
    """A tile of `small_tiles`, its k-tile, and blocks that share it."""
    return _small(p, pieces(p))


@kept_by_machine(MOST_KEPT)
def shared_again(p: GemmProblem) -> tuple[Shape, int, int, int]:
    """A tile of `last_block`, its k-tile, the blocks of a cluster that shares it, and how many clusters do."""
    moved = pieces(p)
    best = (*min(small_choices(p.m, p.n, p.k, moved)), 1)
    for tile, shares in _small_tiles(p.m, p.n, p.k, moved):
        for parts in shares:
            for clusters in range(2, min(MOST_CLUSTERS, tile.k_tiles // (parts * LEAST_SHARED)) + 1):
                if _through_memory(clusters) + tile.stored > best[0]:  # and more of them take longer
                    break
                best = min(best, (small_cycles(tile, parts, clusters), tile.shape, parts, clusters))
    return best[1], _small_k(p.k, moved), best[2], best[3]


@kept_by_machine(MOST_KEPT)
def shifted(p: GemmProblem) -> tuple[Shape, int, int]:
    """The same of `shifted_tiles`."""
    return _small(p, shifted_pieces(p))


@kept_by_machine(MOST_KEPT)
def wide(p: GemmProblem, most: int) -> tuple[int, int, int]:
    """Rows and columns of a tile of `fitted_tiles`, and blocks that share it: where they do, at most so many."""
    _, shape, parts = min(wide_choices(p.m, p.n, p.k, most), key=itemgetter(0))  # the first of equals
    return *shape, parts


@kept_by_machine(MOST_KEPT)
def flexible(p: GemmProblem, most: int) -> tuple[int, int, int]:
    """The same of `flexible_tiles`."""
    best: tuple[float, tuple[int, int], int] = math.inf, (0, 0), 0
    for tile in _flexible_tiles(p.m, p.n, p.k, p.out == p.dtype, HIGH, most, 8):
        if tile.least < best[0]:
            best = min(best, *_by_flexible(p.n, p.k, tile, most), key=itemgetter(0))  # the first of equals
    return *best[1], best[2]


@kept_by_machine(MOST_KEPT)
def multicast(p: GemmProblem) -> tuple[int, int, int, int, int]:
    """Rows and columns of a tile of `flexible_multicast`, blocks of a cluster, whether they share A, and how many
    clusters share tiles."""
    best: tuple[float, tuple[int, int], int, int, int] = math.inf, (0, 0), 0, 0, 0
    for tile in _multicast_tiles(p):
        if tile.least < best[0]:
            best = min(best, *_by_multicast(p, tile), key=itemgetter(0))
    return *best[1], *best[2:]


def lines(p: GemmProblem, stride: int) -> float:
    """Lines of memory in which 128 bytes of a row of a k-tile lie, on average: two of a row that begins within a line.
    One where rows are copied before, since no tensor map takes them."""
    between = stride * dtype_of(p.dtype).itemsize
    return 2 - math.gcd(between, LINE) / LINE if between % 16 == 0 else 1.0


def is_swapped(rows: int, sides: tuple[tuple[int, int], ...] = HIGH) -> bool:
    """Whether a tile of `flexible_tiles`, or of one with other `sides`, that has so many rows of C is multiplied as its
    transpose."""
    return rows not in dict(sides)


@kept_by_machine(MOST_KEPT)
def split(p: GemmProblem) -> tuple[Shape, int]:
    """A tile of `split_warp_tiles`, and blocks that share it."""
    return min(split_choices(p.m, p.n, p.k))[1:]


@kept_by_machine(MOST_KEPT)
def fitted(p: GemmProblem) -> tuple[Shape, int, int]:
    """A tile of `fitted_pipeline`, the blocks of a cluster that shares it, and how many clusters do."""
    return min(fitted_choices(p.m, p.n, p.k, FITTED))[1:]


@kept_by_machine(MOST_KEPT)
def shifted_single(p: GemmProblem) -> tuple[Shape, int, int]:
    """The same of `shifted_pipeline`: there is no room for the largest tile."""
    return min(fitted_choices(p.m, p.n, p.k, FITTED[1:]))[1:]


def _small_k(k: int, moved: tuple[int, int, int]) -> int:
    """k of a k-tile of `small_tiles`."""
    most = 32 if 1 in moved[:2] else 64  # single elements of a k-tile are in registers, all at once
    return min(most, max(16, 1 << (k - 1).bit_length()))


def _small(p: GemmProblem, moved: tuple[int, int, int]) -> tuple[Shape, int, int]:
    _, shape, parts = min(small_choices(p.m, p.n, p.k, moved, p.count))
    return shape, _small_k(p.k, moved), parts


def small_choices(
    m: int, n: int, k: int, moved: tuple[int, int, int], count: int = 1
) -> Iterator[tuple[float, Shape, int]]:
    """The tiles of `small_tiles`, or of `shifted_tiles`: cycles, the shape, and blocks that share one, of so many
    products."""
    for tile, shares in _small_tiles(m, n, k, moved, count):
        for parts in shares:
            yield small_cycles(tile, parts), tile.shape, parts


class _SmallTile(NamedTuple):
    """A tile of `small_tiles`: its shape, how many C has, k-tiles of each, and the cycles of an iteration, of waiting
    in one, and of storing."""

    shape: Shape
    tiles: int
    k_tiles: int
    iteration: float
    waiting: int
    stored: float


def _small_tiles(
    m: int, n: int, k: int, moved: tuple[int, int, int], count: int = 1
) -> Iterator[tuple[_SmallTile, list[int]]]:
    """Tiles, and how many blocks may share each."""
    k_tile = _small_k(k, moved)
    k_tiles = ceil_div(k, k_tile)
    waiting = 1300 if 1 in moved[:2] else 100  # for memory, where nothing else is to be done
    for shape, tiles, shares in choices(m, n, k_tiles, SMALL, (1, 2, 4, 8), count=count):
        rows, columns = shape[:2]
        multiplied, loaded = rows * columns * k_tile / 450, (rows + columns) * k_tile * 2 / 15
        copied = (rows * k_tile / moved[0] + columns * k_tile / moved[1]) / 32 * 2.5
        # rows that begin anywhere have elements at both ends that are stored alone
        stored = rows * columns / 7.2 if moved[2] == 4 else rows * (5 + 0.3 * columns)
        yield _SmallTile(shape, tiles, k_tiles, max(multiplied, loaded, copied), waiting, stored), shares


def split_choices(m: int, n: int, k: int) -> Iterator[tuple[float, Shape, int]]:
    """The same of `split_warp_tiles`."""
    for shape, tiles, shares in choices(m, n, ceil_div(k, SPLIT_K), SPLIT, (1, 2, 4, 8)):
        for parts in shares:
            yield split_cycles(tiles, k, shape, parts), shape, parts


def fitted_choices(m: int, n: int, k: int, shapes: tuple[Shape, ...]) -> Iterator[tuple[float, Shape, int, int]]:
    """The same of `fitted_pipeline`, or, with other shapes, of `shifted_pipeline`, and how many clusters share a tile:
    pairs of blocks, since of these the most run at once."""
    k_tiles, most = ceil_div(k, FITTED_K), MOST_PARTED * machine().multiprocessors
    for shape, tiles, shares in choices(m, n, k_tiles, shapes, range(1, 8), least=64):
        for parts in shares:
            yield fitted_cycles(tiles, k_tiles, shape, parts), shape, parts, 1
            for clusters in PAIRS if parts == 2 else ():
                if 2 * clusters * LEAST_PARTED <= k_tiles and tiles * 2 * clusters <= most:
                    yield fitted_cycles(tiles, k_tiles, shape, parts, clusters), shape, parts, clusters


def wide_choices(m: int, n: int, k: int, most: int) -> Iterator[tuple[float, tuple[int, int], int]]:
    """The same of `fitted_tiles`: where blocks share a tile, they are at most so many."""
    k_tiles = ceil_div(k, 64)
    for shape in WIDE:
        tiles = ceil_div(m, shape[0]) * ceil_div(n, shape[1])
        for parts in _shares(tiles, k_tiles, most):
            if shape[1] // parts >= 16:  # columns that a block stores
                yield wide_cycles(tiles, k_tiles, shape, parts), shape, parts


def flexible_choices(m: int, n: int, k: int, swaps: bool, most: int) -> Iterator[tuple[float, tuple[int, int], int]]:
    """The same of `flexible_tiles`, whose tiles may have any number of columns or, where it `swaps`, of rows.

    Tiles that end within lines of memory take longer to store: 224 us for 888x12088x6336 with 128 x 224, 184 with
    224 x 128 (H200). With what is chosen 61 random products took 1.02 times as long as with the best of three tiles."""
    for tile in _flexible_tiles(m, n, k, swaps, HIGH, most, 8):
        yield from _by_flexible(n, k, tile, most)


def multicast_choices(p: GemmProblem) -> Iterator[tuple[float, tuple[int, int], int, int, int]]:
    """The same of `flexible_multicast`: cycles, the tile, blocks of a cluster, whether they share A, and how many
    clusters share tiles."""
    for tile in _multicast_tiles(p):
        yield from _by_multicast(p, tile)


def _multicast_tiles(p: GemmProblem) -> Iterator[_Tile]:
    most = machine().multiprocessors
    return _flexible_tiles(p.m, p.n, p.k, p.out == p.dtype, HIGHER, most, MOST_CLUSTERS, p.count)


class _Tile(NamedTuple):
    """Rows and columns of a tile, how many C has, and cycles without which no choice can do."""

    rows: int
    columns: int
    tiles: int
    least: float


def _flexible_tiles(
    m: int, n: int, k: int, swaps: bool, sides: tuple[tuple[int, int], ...], most: int, parts: int, count: int = 1
) -> Iterator[_Tile]:
    """Tiles of any number of columns or, where C may be computed as its transpose, of rows, of so many products. At
    most `most` blocks may share tiles, and so many `parts` one."""
    k_tiles, at_once = ceil_div(k, 64), machine().multiprocessors
    each, highs = ceil_div(k_tiles, parts), dict(sides)
    for swapped in (False, True)[: 1 + swaps]:
        along, across = (n, m) if swapped else (m, n)  # the sides of C that the sides of a tile divide
        for high, widest in sides:
            high_tiles, widest = ceil_div(along, high), min(widest, ceil_div(across, FLEXIBLE) * FLEXIBLE)
            for wide in range(min(NARROWEST, widest), widest + 1, FLEXIBLE):
                if swapped and wide in highs:
                    continue
                tiles, (one, stored) = count * high_tiles * ceil_div(across, wide), _least_cycles(high, wide)
                least = ceil_div(tiles, at_once) * (k_tiles * one + stored)
                if 2 * tiles <= most:
                    least = min(least, each * one + stored + ADDED_UP[2])
                yield _Tile(wide, high, tiles, least) if swapped else _Tile(high, wide, tiles, least)


@cache
def _least_cycles(rows: int, columns: int) -> tuple[float, float]:
    """Cycles in which a block multiplies a k-tile by wgmma, or loads it, and in which it stores its tile."""
    return max(rows * columns * 64 / 2048 / 0.97, (rows + columns) * LINE / 55), rows * columns / 8


def _ends_within_lines(n: int, columns: int) -> bool:
    """Whether tiles of so many columns of C end within lines of memory: none that is multiplied as its transpose."""
    return columns < n and 2 * columns % LINE != 0


def _by_flexible(n: int, k: int, tile: _Tile, most: int) -> Iterator[tuple[float, tuple[int, int], int]]:
    """What `flexible_choices` has of a tile."""
    rows, columns, tiles, _ = tile
    k_tiles, within = ceil_div(k, 64), _ends_within_lines(n, columns)
    for parts in _shares(tiles, k_tiles, most):
        if (rows if is_swapped(rows) else columns) % (parts * FLEXIBLE) == 0:
            cycles = wide_cycles(tiles, k_tiles, (rows, columns), parts)
            if within:
                cycles += ceil_div(tiles * parts, _run_at_once(parts, 1)) * rows * columns / 16
            yield cycles, (rows, columns), parts


def _by_multicast(p: GemmProblem, tile: _Tile) -> Iterator[tuple[float, tuple[int, int], int, int, int]]:
    """What `multicast_choices` has of a tile."""
    rows, columns, k_tiles = tile.rows, tile.columns, ceil_div(p.k, 64)
    # k-tiles of A and B are so many rows of 128 bytes
    boxes = rows * lines(p, p.lda), (columns if p.trans_b else 64 * ceil_div(columns, 64)) * lines(p, p.ldb)
    one, within = _least_cycles(rows, columns)[0], _ends_within_lines(p.n, columns)
    for sharing, share_a in SHARING:
        if (rows if share_a else columns) % (8 * sharing):
            continue
        by_a, by_b = shared_by(sharing, share_a)
        asked = boxes[0] / by_a + boxes[1] / by_b
        groups = p.count * clusters_of(p.m, p.n, rows, columns, sharing, share_a)
        at_the_same_time = clusters_at_once(sharing)
        most = min(MOST_CLUSTERS, at_the_same_time // groups, k_tiles // LEAST_PARTED)
        for clusters in range(1, max(1, most) + 1):
            cycles = multicast_cycles(rows * columns, one, k_tiles, groups, sharing, clusters, asked)
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


def _shares(tiles: int, k_tiles: int, most: int) -> list[int]:
    """Blocks that may share each of so many tiles of TMA's k-tiles, where `most` blocks may in all."""
    return [parts for parts in (1, 2, 4, 8) if parts == 1 or (tiles * parts <= most and parts <= k_tiles)]


def choices(
    m: int,
    n: int,
    k_tiles: int,
    shapes: tuple[Shape, ...],
    clusters: tuple[int, ...] | range,
    least: int = 32,
    count: int = 1,
) -> Iterator[tuple[Shape, int, list[int]]]:
    """Tiles that are not mostly outside of C, how many `count` of them have, and how many blocks may share one, as long
    as the device is not full. A stage has no tiles of less than `least` rows and columns."""
    for shape in shapes:
        if shape[0] > max(least, 2 * m) or shape[1] > max(least, 2 * n):
            continue
        tiles = count * ceil_div(m, shape[0]) * ceil_div(n, shape[1])
        most = min(k_tiles, 16 * machine().multiprocessors // tiles)
        yield shape, tiles, [parts for parts in clusters if parts == 1 or parts <= most]


def small_cycles(tile: _SmallTile, parts: int, clusters: int = 1) -> float:
    """About how many cycles `small_tiles` takes, by times of 54 products with eight tiles each on an H200. With what
    is chosen these take 1.02 times as long as with the best tile; 24 more, most with a short k and rows of C that
    begin anywhere, with 11 tiles each, 1.03 times. Where several `clusters` share a tile, their sums go through memory;
    no time of that was known."""
    _, tiles, k_tiles, iteration, waiting, stored = tile
    shares = parts * clusters
    rounds = ceil_div(tiles * shares, _run_at_once(parts, 1))
    mainloop = ceil_div(k_tiles, shares) * max(waiting, rounds * iteration)
    if clusters > 1:
        mainloop += _through_memory(clusters)
    return mainloop + rounds * stored + (2100 + 14 * parts if parts > 1 else 0)


def _through_memory(clusters: int) -> int:
    """About how many cycles it takes to add up the sums of several clusters."""
    return 2500 + 150 * clusters


def split_cycles(tiles: int, k: int, shape: Shape, parts: int) -> float:
    """About how many cycles `split_warp_tiles` takes, by times of 95 products with these tiles on an H200. With what is
    chosen these take 1.02 times as long as with the best tile."""
    rows, columns, threads = shape[0], shape[1], shape[0] * shape[1] // (shape[2] * shape[3])
    resident, blocks = 512 // threads, tiles * parts
    if parts > 1:
        resident = min(resident, at_once(blocks, parts))
    waves, rest = divmod(blocks, _run_at_once(parts, resident))
    one = ceil_div(ceil_div(k, SPLIT_K), parts) * SPLIT_K * (rows * columns / 200 + (rows + columns) * 0.152)
    cycles = 0.0
    for times, together in ((waves, resident), (min(rest, 1), ceil_div(rest, _run_at_once(parts, 1)))):
        # a few warps do not keep the units busy
        cycles += times * (one * (together + 119 / threads) + together * rows * columns / 4.8)
    return cycles + (2200 if parts > 1 else 0)


def wide_cycles(tiles: int, k_tiles: int, shape: tuple[int, int], parts: int) -> float:
    """About how many cycles `fitted_tiles` takes, by times of 25 products with several tiles each on an H100. What is
    chosen of them was the fastest each time."""
    rows, columns = shape
    blocks, at_the_same_time = tiles * parts, _run_at_once(parts, 1)
    of_the_l2 = min(blocks, at_the_same_time) * (rows + columns) * LINE / 5200
    one = max(_least_cycles(rows, columns)[0], of_the_l2)
    handed_over = rows * columns * 4 * (parts - 1) / parts  # bytes, from block to block
    added_up = ADDED_UP[parts] + handed_over / 18
    return ceil_div(blocks, at_the_same_time) * (ceil_div(k_tiles, parts) * one + rows * columns / 8) + added_up


def multicast_cycles(
    elements: int, one: float, k_tiles: int, groups: int, sharing: int, clusters: int, lines: float
) -> float:
    """About how many cycles `flexible_multicast` takes for so many groups of tiles of so many elements, whose blocks
    ask for so many lines an iteration, which takes them `one` at least. Of 28 products with about twelve tiles each,
    and one cluster, what is chosen took 1.003 times as long as the best (H100)."""
    at_the_same_time = clusters_at_once(sharing)
    of_the_l2 = min(groups * clusters, at_the_same_time) * sharing * lines / LINES_A_CYCLE
    added_up = 2500 + (clusters + 1) * elements * 4 / 55 if clusters > 1 else 0
    rounds = ceil_div(groups * clusters, at_the_same_time)
    return rounds * (ceil_div(k_tiles, clusters) * max(one, of_the_l2) + elements / 8 + added_up)


def fitted_cycles(tiles: int, k_tiles: int, shape: Shape, parts: int, clusters: int = 1) -> float:
    """About how many cycles `fitted_pipeline` takes, by times of random products with several tiles each on an H100. Of
    30 products whose tiles several clusters may share, what is chosen took 1.01 times as long as the best of seven
    (H200)."""
    rows, columns, thread = shape[0], shape[1], shape[2] * shape[3]
    shares = parts * clusters
    blocks, iterations = tiles * shares, ceil_div(k_tiles, shares)
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


def split_bytes(rows: int, columns: int) -> int:
    """Shared memory of a block of `split_warp_tiles` with such tiles: two k-tiles with four floats behind their rows,
    then sums there."""
    return max(2 * SPLIT_K * (rows + columns + 8), rows * (columns + 4)) * 4


def at_once(blocks: int, parts: int) -> int:
    """Blocks of clusters of `parts` that a multiprocessor has to have at once for all to run at the same time."""
    each = 1
    while blocks > _run_at_once(parts, each):
        each += 1
    return each


def _run_at_once(parts: int, each: int) -> int:
    """Blocks of clusters of `parts` that run at the same time, with so many for each multiprocessor."""
    return each * clusters_at_once(parts) * parts


def spread(blocks: int, parts: int, shared: int) -> int:
    """Bytes of shared memory with which no more blocks of a cluster fit on a multiprocessor than have to be there, at
    least `shared`. With less, two blocks share one while another has none: four of 128 x 128 of `split_warp_tiles`
    then took 77 us for 107x3960x1263 on an H200, of 128 x 64 48."""
    return shared if parts == 1 else max(shared, machine().shared_bytes // (at_once(blocks, parts) + 1) + 1024)


def shifted_bytes(p: GemmProblem, size: Mapping[str, int]) -> int:
    """Shared memory of a block of `shifted_tiles`: k-tiles as they come, and two of those that are shifted."""
    m, n, k, pad = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"], 8
    of_a, of_b = 2 * m * (k + pad), 2 * (n * (k + pad) if p.trans_b else k * (n + pad))
    each = ((of_a, size["ALIGNED_A"]), (of_b, size["ALIGNED_B"]))
    return sum(size["STAGES"] * nbytes + (16 if aligned else 2 * nbytes) for nbytes, aligned in each)
