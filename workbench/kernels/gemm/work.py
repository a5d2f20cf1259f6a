"""What the stages of GEMM do for a problem, for the cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...model.cost_model import Work
from ...model.dtypes import FP32, dtype_of
from ...model.launch import ceil_div, machine, scaled
from . import tiling
from .fastest import NARROW, STREAMED_N, Few, at_once, line_groups, mostly_outside, resident, sharing, vectors_of
from .problem import GemmProblem, tensor_maps

MOST_RESIDENT = 8
"""Blocks that share a multiprocessor: more of them hide nothing."""

MOST_VECTORS = 128
"""Vectors for which `few_vectors` may be the fastest."""

LARGE = 1 << 22
"""Elements of an operand that is read at the speed of memory, if it is read once."""

LONG = 4096
"""k from which wide tiles are faster than narrow ones: 62 us with 128 x 256, 100 with 128 x 128 at 456x8328x4704
(H100)."""

COPIED = 256
"""Elements of a row that a warp copies: of a shorter row it takes as long."""

BEYOND_L2 = 25 * 10**6
"""Bytes of C from which lines leave the L2 before all blocks that write to them have."""

MANY = 7
"""Clusters that share a tile from which on the last of them adds up for about as long as all multiply."""

ACROSS = "rows across lines"
"""The kind of work whose rows are no multiples of 128 bytes."""

Sizes = Mapping[str, int]


def _item(p: GemmProblem) -> int:
    return dtype_of(p.dtype).itemsize


def _tiled(p: GemmProblem, m: int, n: int, k: int, split: int = 1, resident: int = 1, kind: str = "") -> Work:
    """Of tiles of C, in as many parts as k is split."""
    return Work(
        tiles=p.count * ceil_div(p.m, m) * ceil_div(p.n, n) * split,
        iterations=ceil_div(ceil_div(p.k, k), split),
        flops=2 * m * n * k,
        loaded=(m + n) * k * _item(p),
        bytes=p.cost.bytes,
        resident=resident,
        kind=kind,
    )


def _kind(p: GemmProblem, *said: str) -> str:
    """What constants are fitted to apart: where a stage takes fp32 and 16-bit types, the two are."""
    return " ".join(filter(None, ("fp32" if p.dtype == FP32.name else "", *said)))


def _few_vectors(p: GemmProblem, size: Sizes) -> Work | None:
    """None of many vectors, for which the large operand is read as many times: 17 us at 4272x705x24, where 10 were
    predicted (H100)."""
    few = Few.of(p)
    if few.vectors > MOST_VECTORS:
        return None
    (lines, k, vectors), (share, split) = at_once(p, few), sharing(p, size, few)
    aligned = few.stride * _item(p) % 16 == 0
    moved = p.dtype == FP32.name and few.along_k and not aligned  # the vectors, element by element
    return Work(
        tiles=ceil_div(few.lines, lines * size["WARPS"] // share) * ceil_div(few.vectors, vectors) * split,
        iterations=ceil_div(ceil_div(p.k, k), share * split),
        flops=2 * lines * k * vectors * size["WARPS"],
        loaded=(lines + vectors) * k * _item(p) * size["WARPS"],
        bytes=p.cost.bytes,
        resident=resident(p, few),
        kind=_kind(
            p,
            "" if aligned else "any rows",
            "" if few.along_k else "along n",
            "" if few.x_k == 1 or moved else "columns of B",
        ),
    )


def _thread_columns(p: GemmProblem, size: Sizes) -> Work:
    columns, rows, share = 32 * size["COLUMNS"], size["VECTORS"], size["SHARE"]
    threads = 32 * size["WARPS"]
    return Work(
        tiles=ceil_div(p.n, columns * size["WARPS"] // share) * size["SPLIT"],
        iterations=ceil_div(p.k, size["UNROLL"] * share * size["SPLIT"]),
        flops=2 * threads * size["COLUMNS"] * rows * size["UNROLL"],
        loaded=size["WARPS"] * size["UNROLL"] * (columns + rows) * _item(p),
        bytes=p.cost.bytes,
        resident=size["RESIDENT"] // threads,
        kind=_kind(p, "pairs" if size["COLUMNS"] > 1 else ""),
    )


def _one_vector(p: GemmProblem, size: Sizes) -> Work:
    few, chosen = Few.of(p), line_groups(p, size)
    group, threads, blocks, loads = (chosen[name] for name in ("GROUP", "THREADS", "BLOCKS", "IN_FLIGHT"))
    return Work(
        tiles=ceil_div(few.lines, threads // group) * blocks,
        iterations=ceil_div(vectors_of(p, few)[0], group * loads * blocks),
        flops=2 * threads * loads * 16 // _item(p),
        loaded=threads * loads * 16,
        bytes=p.cost.bytes,
        resident=size["RESIDENT"] // threads,
        kind=_kind(
            p,
            "" if chosen["EVEN"] else "any rows",
            "shared" if blocks > 1 else "",
            "" if few.x_k == 1 else "columns of B",
        ),
    )


def _warp_parallel(p: GemmProblem, size: Sizes) -> Work:
    m, n = size["WARPS_M"] * size["PATCH_M"], size["WARPS_N"] * size["PATCH_N"]
    made = _tiled(p, m, n, 32, resident=4, kind=_kind(p, p.layout))
    # warps without a row or a column of C end at once
    rows, columns = (
        ceil_div(min(x, most), each) * each for x, most, each in ((p.m, m, size["PATCH_M"]), (p.n, n, size["PATCH_N"]))
    )
    return replace(made, flops=2 * rows * columns * 32, loaded=(rows + columns) * 32 * _item(p))


def _split_tiles(p: GemmProblem, size: Sizes) -> Work:
    m, n = size["BLOCK_M"], size["BLOCK_N"]
    tiles = p.count * ceil_div(p.m, m) * ceil_div(p.n, n)
    parts = max(1, min(scaled(size["BLOCKS"]) // tiles, ceil_div(p.k, 2 * 32), size["MOST"]))
    return _tiled(p, m, n, 32, parts, resident=2, kind=_kind(p, "two launches" if parts > 1 else ""))


def _small_tiles(p: GemmProblem, size: Sizes) -> Work | None:
    """None of `last_block` where one cluster has a tile, and it does what `small_tiles` does."""
    if size.get("CLUSTERS") == 1:
        return None
    m, n, k = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"]
    shared = size["STAGES"] * 2 * ((m + n) * k + 8 * (m + n))
    resident = min(MOST_RESIDENT, machine().shared_bytes // shared, 1024 // (32 * size["WARPS_M"] * size["WARPS_N"]))
    least = min(size["PIECE_A"], size["PIECE_B"])
    kind = _kind(p, "elements" if least == 1 else "", _stored(p, size))
    copies = m * k // size["PIECE_A"] + n * k // size["PIECE_B"]
    return replace(_tiled(p, m, n, k, _shares(size), resident=max(1, resident), kind=kind), loaded=16 * copies)


def _shifted_tiles(p: GemmProblem, size: Sizes) -> Work:
    m, n, k = size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"]
    shared = max(tiling.shifted_bytes(p, size), 4 * m * (n + 8))
    resident = min(MOST_RESIDENT, machine().shared_bytes // shared, 1024 // (32 * size["WARPS_M"] * size["WARPS_N"]))
    return _tiled(p, m, n, k, size["SPLIT"], resident=max(1, resident), kind=_kind(p, _stored(p, size)))


def _stored(p: GemmProblem, size: Sizes) -> str:
    """What the epilogue of `small_tiles` has to do beside storing whole vectors."""
    if size["SPLIT"] > 1:
        return "clusters"
    return "rows of C anywhere" if size["PIECE_C"] * dtype_of(p.out).itemsize < 8 else ""


def _fitted_pipeline(p: GemmProblem, size: Sizes) -> Work | None:
    return _realigned_tiles(p, size["BLOCK_M"], size["BLOCK_N"], _shares(size), resident=2, shared_by=_shared_by(size))


def _shares(size: Sizes) -> int:
    """Blocks that share a tile."""
    return size["SPLIT"] * size.get("CLUSTERS", 1)


def _shared_by(size: Sizes) -> str:
    """What these are."""
    return "several clusters" if size["CLUSTERS"] > 1 else "clusters" if size["SPLIT"] > 1 else ""


def _odd_rows(p: GemmProblem) -> str:
    """What threads do that store a tile alone, where rows of C are an odd number of elements apart."""
    return "elements of C" if p.ldc % 2 else ""


def _shifted_pipeline(p: GemmProblem, size: Sizes) -> Work:
    m, n = size["BLOCK_M"], size["BLOCK_N"]
    kind = _shared_by(size) or _odd_rows(p)
    return _tiled(p, m, n, tiling.FITTED_K, _shares(size), resident=2, kind=kind)


def _on_cuda_cores(p: GemmProblem, size: Sizes) -> Work | None:
    """None of 16-bit types: of 1,000 random products `vectorized` was the fastest for 7, and `thread_tile` for 12. None
    of what does not split k, unless storing C takes a good part of the time: `vectorized` took 15.7 us at 118x4669x101
    and 19.4 at 1633x766x81, `split_warp_tiles` 12.3 and 14.8 (H200)."""
    if p.dtype != FP32.name:
        return None
    if "SPLIT" not in size and p.k > 64:
        return None
    m, n, split = size["BLOCK_M"], size["BLOCK_N"], size.get("SPLIT", 1)
    threads = m * n // (size["THREAD_M"] * size["THREAD_N"])
    stored = "clusters" if split > 1 else _odd_rows(p)
    kind = _kind(p, "any rows" if tensor_maps(p) else "", stored)
    resident = max(1, (512 if "SPLIT" in size else 256) // threads)
    return _tiled(p, m, n, size.get("BLOCK_K", tiling.SPLIT_K), split, resident=resident, kind=kind)


def _realigned_tiles(
    p: GemmProblem, m: int, n: int, split: int = 1, resident: int = 1, shared_by: str = ""
) -> Work | None:
    """Of tiles of fp32 after copies."""
    realigned = _realigned(p)
    if realigned is None:
        return None
    copied, kind = realigned
    made = _tiled(p, m, n, tiling.FITTED_K, split, resident=resident, kind=f"{kind} {shared_by}".strip())
    return replace(made, copied=copied)


def _on_tensor_cores(p: GemmProblem, size: Sizes) -> Work | None:
    m, n, k, split = size["BLOCK_M"], size.get("BLOCK_N", STREAMED_N), size["BLOCK_K"], size.get("SPLIT", 1)
    if _replaced(p, size, m, n) or (realigned := _realigned(p, "SHARE_A" in size)) is None:
        return None
    sharing, share_a, clusters = size.get("SHARING", 1), size.get("SHARE_A", 0), size.get("CLUSTERS", 1)
    of_a, of_b = tiling.shared_by(sharing, share_a)
    parts = split * clusters
    tiles = p.count * tiling.clusters_of(p.m, p.n, m, n, sharing, share_a) * sharing * parts
    iterations = ceil_div(ceil_div(p.k, k), parts)
    asked = m * tiling.lines(p, p.lda) / of_a + n * tiling.lines(p, p.ldb) / of_b
    copied, kind = realigned
    return Work(
        # clusters of four leave some multiprocessors idle, as if there were more tiles
        tiles=tiles * machine().multiprocessors // (tiling.clusters_at_once(sharing) * sharing),
        iterations=iterations,
        flops=2 * m * n * k,
        loaded=(m + n) * k * _item(p),
        bytes=p.cost.bytes,
        shared="LEAST_GAIN" in size,  # stream-k shares tiles from this gain on
        kind=_in_clusters(kind, split, clusters),
        copied=copied,
        requested=int(tiles * iterations * asked * tiling.LINE),
    )


def _replaced(p: GemmProblem, size: Sizes, m: int, n: int) -> bool:
    """Whether another stage would be taken anyway instead of one with such tiles."""
    if not {"GROUP_M", "BLOCKS"} & size.keys():  # threads load, as in `tensor_core`: `small_tiles` has more tiles
        return True
    if {"SWAPPED", "B_ONCE"} & size.keys():  # tiles fit the problem
        return False
    if "SHARING" not in size and n > 128:  # `fitted_tiles` has the tiles of `persistent` and of `split_k`, and others
        return True
    if "SHARING" not in size and p.k >= LONG:  # ping_pong: the L2 cannot deliver its k-tiles
        return True
    return mostly_outside(p, m, n)


def _in_clusters(kind: str, split: int, clusters: int) -> str:
    """The kind where blocks of a cluster, or several clusters, share tiles. Of rarer kinds there are too few times to
    tell those apart."""
    if clusters > 1 and kind in ("", ACROSS):
        return "many clusters" if clusters >= MANY else "several clusters"
    return f"{kind} clusters" if split > 1 and kind == ACROSS else kind


def _realigned(p: GemmProblem, any_layout: bool = False) -> tuple[int, str] | None:
    """Of a stage with tensor maps: the bytes of copies of what none takes, each of which is a launch, and the kind of
    the work; C leaves otherwise where it has none. With `any_layout` A may lie along m. None where both are for a k of
    one k-tile: another stage was as fast or up to twice as fast wherever both were timed, 22 us against 39 for
    5552x1579x5, 31 against 38 for 2080x7482x22."""
    single, out = p.dtype == FP32.name, dtype_of(p.out).itemsize
    copied = [p.arrays()[name] for name in (p.unmapped if any_layout else p.copied)]
    kinds = [f"{len(copied)} copies"] if copied else []
    if not single and p.ldc * out % 16:
        kinds.append("elements of C" if p.ldc % 2 else "pairs of C")
    if copied and kinds[1:] and p.k <= 64:
        return None
    if not kinds and not single and any(row % tiling.LINE for row in (p.lda * _item(p), p.ldb * _item(p), p.ldc * out)):
        kinds += [ACROSS, *(["large C"] if p.arrays()["C"].nbytes > BEYOND_L2 else [])]
    moved = sum(2 * a.shape[0] * ceil_div(a.shape[1], COPIED) * COPIED * _item(p) for a in copied)
    return moved, " ".join(kinds)


_BY_SIZE: tuple[tuple[str, Callable[[GemmProblem, Sizes], Work | None]], ...] = (
    ("COLUMNS", _thread_columns),
    ("VECTORS", _few_vectors),
    ("IN_FLIGHT", _one_vector),
    ("PATCH_M", _warp_parallel),
    ("BLOCK_MN", _split_tiles),
    ("DEPTH", lambda p, size: _tiled(p, size["BLOCK_M"], 128, size["DEPTH"], resident=4, kind=_kind(p))),
    ("PIECE_A", lambda p, size: (_on_cuda_cores if "THREAD_M" in size else _small_tiles)(p, size)),
    ("ALIGNED_A", _shifted_tiles),
    ("MOST_COMING", _shifted_pipeline),
    ("PIECE_C", _fitted_pipeline),
    ("THREAD_M", _on_cuda_cores),
    ("UNROLL", lambda p, size: _realigned_tiles(p, 128, 256)),
    ("BLOCK_K", _on_tensor_cores),
)
"""A size that only such stages have, and what these do."""


def _reads_once(p: GemmProblem, size: Sizes) -> bool:
    """Whether only stages that read a large operand once come into question, and this is none of them: `few_vectors`,
    and for more than 8 vectors `streamed`. At 6520x8x11144 they took 61 and 68 us on an H200, at 14816x16x6672 76 and
    64. fp32 with the other operand in columns is left out: 224 us at 5304x8x8449, `split_tiles` 162. So is fp32 with
    more than 8 vectors, for which `few_vectors` reads the operand twice: 54 us at 4456x16x2296, cuBLAS 38."""
    lines, vectors = max(p.m, p.n), min(p.m, p.n)
    if vectors > NARROW or lines * p.k <= LARGE:
        return False
    if p.dtype == FP32.name and (Few.of(p).x_k != 1 or vectors > 8):
        return False
    streams = "BLOCK_N" not in size and "BLOCK_K" in size and vectors > 8
    return "VECTORS" not in size and "IN_FLIGHT" not in size and not streams


def work(p: GemmProblem, size: Sizes) -> Work | None:
    """Of a stage with these sizes. None of a stage that has one thread an element of C, and of one that another would
    replace anyway, as one that copies rows where none have to be."""
    if _reads_once(p, size) or size.get("COPIED") == 0:
        return None
    return next((of(p, size) for name, of in _BY_SIZE if name in size), None)
