"""How threads share a row: as few as can hold it in their registers, blocks of a cluster, or all blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...model.launch import ceil_div, machine, scaled
from .problem import RowProblem

LANES = (4, 32)
"""Lanes of a warp that share a short row."""

LEAST_SPLIT = 128
"""Vectors of the shortest row that blocks share."""

SHAPES = ((4, 4), (8, 2), (16, 2), (32, 4), (64, 4), (128, 4), (256, 4), (512, 8))
FEW_SHAPES = ((4, 2), (8, 2), (16, 2), (32, 2), (128, 2), (256, 2), (512, 8))
"""Threads that hold a row of many, or of few, and vectors up to which a thread holds it: the first that hold it are
taken. Measured on an H100, and on an H200: two vectors are enough to keep memory busy, and four in a warp; where rows
are few it takes the shortest time to have more threads. Layer norm of 30000x2560 takes 80 us with 128 threads that hold
three vectors, and 104 with 256 that hold two (bf16, H200)."""

ODD_SHAPES = ((4, 4), (8, 2), (16, 2), (32, 4), (64, 4), (128, 8), (512, 8))
"""The same, of many rows that are not whole vectors: their ends come later, so more rows have to be in flight."""

WIDEST = (1024, 4)
"""The same, of many rows of two bytes an element that are whole vectors, where a thread would hold more vectors than a
stage says."""

MOST_THREADS, MOST_VECTORS, MOST_BLOCKS = 512, 8, 8
"""Of a block, each of which may then have 128 registers; that a thread holds in them; of a cluster on every device."""

NARROW = 8
"""Bytes of the vectors of rows that are whole numbers of these, and not of 16 bytes."""


def row_bytes(p: RowProblem) -> int:
    """Bytes of the vectors that both x and y are moved by, of the larger type: 16, or 8 where rows are whole numbers of
    those alone, and stages hold them. Else the ends of rows are moved one by one."""
    size, extents = p.widest, (p.columns, p.ldx, p.ldy)
    fits = p.columns * size <= p.most_narrow * NARROW
    narrow = fits and not even(16 // size, *extents) and even(NARROW // size, *extents)
    return NARROW if narrow else 16


def width(p: RowProblem) -> int:
    """Elements of those vectors."""
    return row_bytes(p) // p.widest


def vectors(p: RowProblem) -> int:
    """The most vectors that a row touches: one that does not start at a multiple of their size touches one more."""
    step = width(p)
    aligned = p.rows == 1 or even(step, *p.walked)
    return ceil_div(p.columns + (0 if aligned else step - 1), step)


MANY = 1024
"""Rows from which on every multiprocessor has several, however many threads share one."""

VERY_MANY, LARGEST_OF_LANES = 8 * MANY, 2**12
"""Rows from which on a warp is enough for each, if it has no more vectors than this; of more than 1,024 vectors so many
times more, since the last rows of them end late."""


def even(step: int, *extents: int) -> int:
    """EVEN of a kernel whose vectors are `step` elements: whether rows consist of whole ones and start at multiples of
    their size. `extents` are lengths of rows and distances between them, in elements; the arrays themselves start at
    multiples of 16 bytes."""
    return int(all(extent % step == 0 for extent in extents))


def defines(p: RowProblem) -> dict[str, str | int]:
    """What every kernel that moves rows from x to y is compiled with."""
    narrow = {"ROW_VECTOR_BYTES": NARROW} if row_bytes(p) == NARROW else {}
    even_rows = even(width(p), p.columns, p.ldx, p.ldy)
    return {"IN": p.in_type.cuda, "OUT": p.out_type.cuda, "EVEN": even_rows, **narrow}


def power_of_two(least: int) -> int:
    """The smallest power of two that is not less than `least`."""
    return 1 << (least - 1).bit_length()


def block(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
    """GROUP threads that share a row, each with VECTORS vectors of it, in blocks of THREADS: as few threads as `SHAPES`
    says, with at most as many vectors as the stage wants while there are threads."""
    count, wanted, many = vectors(p), size["VECTORS"], p.rows >= MANY
    shapes = (SHAPES if defines(p)["EVEN"] else ODD_SHAPES) if many else FEW_SHAPES
    limit = wanted if wanted < SHAPES[0][1] else MOST_VECTORS  # of stages that hold several arrays
    group = next((g for g, most in shapes if g * min(most, limit) >= count), MOST_THREADS)
    if group == MOST_THREADS and size.get("WIDEST") and many and p.in_type.itemsize == 2 and defines(p)["EVEN"]:
        group = WIDEST[0] if WIDEST[0] * WIDEST[1] >= count > group * size["WIDEST"] else group
    threads = group if group > LANES[-1] else size["THREADS"]
    return {"GROUP": group, "VECTORS": ceil_div(count, group), "THREADS": threads, "BLOCKS": 1}


def shared(count: int, threads: int, wanted: int, most: int) -> dict[str, int]:
    """At most `wanted` vectors a thread while there are threads: `threads` a block, `most` where a row needs them."""
    groups = [*LANES, *(threads << i for i in range((most // threads).bit_length()))]
    group = next((g for g in groups if g * wanted >= count), groups[-1])
    return {"GROUP": group, "VECTORS": power_of_two(ceil_div(count, group)), "THREADS": max(group, threads)}


def looping(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
    """GROUP threads that walk along a row together, VECTORS vectors each at a time: lanes where rows are short or very
    many, else at most LARGEST threads, or half of them where rows are many and not very long: 8192x32768 takes 133 us
    with 256 threads a row, and 150 with 512 (cross entropy, bf16, H200)."""
    count, wanted = vectors(p), size["VECTORS"]
    group = power_of_two(ceil_div(count, wanted))
    if group > LANES[-1] and p.rows >= VERY_MANY * ceil_div(count, 1024) and count <= LARGEST_OF_LANES:
        group = LANES[-1]
    if group <= LANES[-1]:
        group = max(group, 2 * LANES[0])
        held = min(power_of_two(ceil_div(count, group)), wanted if group == LANES[-1] else 2)
        return {"GROUP": group, "VECTORS": held, "THREADS": size["THREADS"], "BLOCKS": 1}
    largest = size["LARGEST"] // (2 if p.rows >= MANY and count <= 2 * LARGEST_OF_LANES else 1)
    group = min(max(group, size["THREADS"]), largest)
    return {"GROUP": group, "VECTORS": min(power_of_two(ceil_div(count, group)), wanted), "THREADS": group, "BLOCKS": 1}


def by_block(p: RowProblem) -> bool:
    """Whether a block is enough for a row that one can hold: rows are enough for all multiprocessors, or a cluster
    would have no more threads."""
    return p.rows >= scaled(ENOUGH) or vectors(p) <= ONE_BLOCK


ENOUGH, ONE_BLOCK = 128, 256 * 4
"""Rows that keep nearly all multiprocessors busy; vectors that a cluster's first block holds."""

LOADS = 4
"""Times that the threads of a block load before it pays to have several blocks share a row."""


def spread(
    rows: int, count: int, held: int, threads: int, resident: int = 1024, blocks: int | None = None
) -> dict[str, int]:
    """GROUP threads that walk along a row of `count` vectors together, `held` of them each at a time, in blocks of
    THREADS, of the smallest at most `threads`: so many that the last row ends first, when `resident` threads of a
    multiprocessor work at once, and a row takes as long as one time more. 78 us for a vector by 2144 rows of 17,307
    numbers of fp32 with 32 threads a row, 53 with 256 (H200). The longest rows are shared by BLOCKS blocks each,
    `blocks` in all, or two for each multiprocessor."""
    most = machine().multiprocessors
    blocks = 2 * most if blocks is None else blocks

    def ends(group: int) -> tuple[int, int]:
        rounds = ceil_div(rows, most * (resident // group))
        return rounds * (ceil_div(count, held * group) + 1), -group

    if count < LANES[-1]:
        group = 1 << (count.bit_length() - 1)
    else:
        widest = min(resident, 1024, max(LANES[-1], power_of_two(ceil_div(count, held))))
        group = min((1 << power for power in range(LANES[-1].bit_length() - 1, widest.bit_length())), key=ends)
    if group > LANES[-1] and count > LOADS * held * group and rows < blocks:
        group = min(group, 512)  # several of them a multiprocessor: one loads while another one adds up
        shared = min(ceil_div(blocks, rows), count // (held * group))
        return {"GROUP": group, "THREADS": group, "BLOCKS": max(1, shared)}
    each = 1 << max(0, (rows * group // most).bit_length() - 1)
    return {"GROUP": group, "THREADS": group if group > LANES[-1] else min(threads, max(64, each)), "BLOCKS": 1}


def cluster(p: RowProblem, size: Mapping[str, int]) -> dict[str, int]:
    """The same, of BLOCKS blocks: a block of more threads than `LARGEST` only where a cluster of small ones is full."""
    count, largest, wanted = vectors(p), size["LARGEST"], size["VECTORS"]
    blocks = 1
    while blocks < MOST_BLOCKS and largest * wanted * blocks < count:
        blocks *= 2
    each = ceil_div(count, blocks)
    if blocks == 1:
        return block(p, size)
    held = ceil_div(each, largest)
    while held > size.get("MOST", MOST_VECTORS):
        largest, held = 2 * largest, ceil_div(held, 2)
    return {"GROUP": largest, "VECTORS": held, "THREADS": largest, "BLOCKS": blocks}


def fits(
    sizes: Callable[[RowProblem, Mapping[str, int]], dict[str, int]], size: Mapping[str, int], what: str
) -> Callable[[RowProblem], str | None]:
    """Why a row does not fit in the registers that a stage of these parameters has for it, as `supports` says it."""

    def refuse(p: RowProblem) -> str | None:
        chosen = sizes(p, size)
        if chosen["VECTORS"] <= size.get("MOST", MOST_VECTORS) and chosen["THREADS"] <= WIDEST[0]:
            return None
        return f"{p.columns} columns are more than the registers of {what} hold"

    return refuse


def parts(p: RowProblem, size: Mapping[str, int]) -> tuple[int, int]:
    """Into how many parts a row is split, of how many vectors each, so that there are at least TARGET blocks: a part is
    at least what a block loads at once."""
    count, least = vectors(p), size["THREADS"] * size["VECTORS"]
    wanted = max(1, min(ceil_div(scaled(size["TARGET"]), p.rows), count // least))
    each = ceil_div(ceil_div(count, wanted), size["THREADS"]) * size["THREADS"]
    return ceil_div(count, each), each


def worth_splitting(p: RowProblem) -> str | None:
    """Why a stage that has whole blocks work on parts of rows does not take rows that are too short for one."""
    return None if vectors(p) >= LEAST_SPLIT else f"{p.columns} columns are too few to share them among blocks"


MOST_SERIAL = 2**13
"""Most elements that one thread reduces."""


def few_enough(p: RowProblem) -> str | None:
    """Why a stage whose threads have a row each does not take rows that would keep one thread at work for long."""
    if p.columns <= MOST_SERIAL:
        return None
    return f"{p.columns} columns are too many for one thread"
