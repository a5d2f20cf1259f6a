"""Kernels for every wrapper of the device headers, and what NumPy says that they store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from trials import HALVES, TYPES, Trial, distinct, launch, nothing, whole

from workbench.model.dtypes import BF16, E4M3, E5M2, FP16, FP32, UINT32
from workbench.model.tensor_map import Im2col, TensorMap


def shared() -> Iterator[Trial]:
    yield Trial(
        "shared.cu",
        launch("addresses", 96, "y"),
        {},
        {"y": 3 * np.arange(96, dtype=np.uint32) + 1},
        {"THREADS": 96},
    )


def warp() -> Iterator[Trial]:
    x = whole((3, 32))
    sums = np.repeat(x.sum(axis=1), 32)
    yield Trial("warp.cu", launch("sum", 96, "x", "y"), {"x": x}, {"y": sums})
    x = whole((2, 32, 32))
    yield Trial("warp.cu", launch("sums", 64, "x", "y"), {"x": x}, {"y": x.sum(axis=1)})


def convert() -> Iterator[Trial]:
    for dtype in TYPES:
        narrow = distinct((64,), dtype)
        # between two neighbours, and half way between them: to nearest, ties to even
        wide = narrow.astype(np.float32)
        x = wide * np.resize(np.array([1, -1, 1 + 2.0**-12, 1 - 2.0**-11, 1 + 2.0**-8], np.float32), 64)
        x[:6] = [0.0, -0.0, np.inf, -np.inf, 3e38, 1e-7]
        with np.errstate(over="ignore"):
            narrowed = x.astype(dtype.numpy)
        given = {"narrow": narrow, "x": x}
        threads = launch("convert", 64, "narrow", "wide", "x", "narrowed")
        yield Trial("convert.cu", threads, given, {"wide": wide, "narrowed": narrowed}, {"TYPE": dtype.cuda})
        words = launch("convert_words", 16 * dtype.itemsize, "words", "x", "again")
        held = narrow.view(np.uint32)
        yield Trial("convert.cu", words, {"words": held}, {"x": wide, "again": held}, {"TYPE": dtype.cuda})
        if dtype in HALVES:
            pairs = launch("convert_pairs", 32, "x", "pairs")
            held = {"pairs": narrowed.view(np.uint32)}
            yield Trial("convert.cu", pairs, {"x": x}, held, {"TYPE": dtype.cuda, "PAIRS": 1})


def ex2() -> Iterator[Trial]:
    x = np.arange(-160, 160, dtype=np.float32)
    x[:2] = -np.inf, -150.5
    with np.errstate(over="ignore"):
        powers = np.where(x < -126, np.float32(0), np.exp2(x.astype(np.float64)).astype(np.float32))
    yield Trial("ex2.cu", launch("powers", 320, "x", "y"), {"x": x}, {"y": powers})


def vector() -> Iterator[Trial]:
    for dtype, count in ((FP32, 4), (FP32, 2), (FP16, 8), (BF16, 8), (BF16, 4)):
        defines = {"TYPE": dtype.cuda, "N": count}
        x = distinct((32, count), dtype)
        yield Trial("vector.cu", launch("whole", 32, "x", "y"), {"x": x}, {"y": x}, defines)
        if x[0].nbytes == 16:
            given = launch("whole_once", 32, "x", "y")
            yield Trial("vector.cu", given, {"x": x}, {"y": x}, defines | {"WHOLE_ONCE": 1})
            for offset in range(count):
                x = distinct((count * (count + 1),), dtype)  # two vectors are read for each
                y = x[offset : offset + count * count].reshape(count, count)
                kept = np.where(np.tri(count, dtype=bool), y, np.zeros_like(y))
                given = launch("anywhere", count, "x", "y", "kept", np.int32(offset))
                yield Trial("vector.cu", given, {"x": x}, {"y": y, "kept": kept}, defines | {"ANYWHERE": 1})
        for offset in (0, 1):
            for valid in (-1, 0, 1, count - 1, count, count + 1):
                held = max(0, min(valid, count))
                x = distinct((max(offset + held, 1),), dtype)  # ends where nothing more may be read
                loaded = np.zeros(count, dtype.numpy)
                loaded[:held] = x[offset : offset + held]
                y = nothing((offset + count + 1,), dtype)
                y[offset : offset + held] = x[offset : offset + held]
                given = launch("tail", 1, "x", "loaded", "y", np.int32(valid), np.int32(offset))
                yield Trial("vector.cu", given, {"x": x}, {"loaded": loaded, "y": y}, defines)


def dot() -> Iterator[Trial]:
    for dtype in TYPES:
        count = 16 // dtype.itemsize
        a, b = (whole((32, count), dtype, seed) for seed in (4, 5))
        sums = np.arange(32, dtype=np.float32) + (a.astype(np.float32) * b.astype(np.float32)).sum(axis=1)
        defines = {"TYPE": dtype.cuda, "IN_FLIGHT": 1, "TURNS": 1, "READ_ONCE": 0}
        yield Trial("dot.cu", launch("chunks", 32, "a", "b", "y"), {"a": a, "b": b}, {"y": sums}, defines)
        for loads, offset in ((1, 0), (4, 0), (4, 1)):
            for length in (0, 1, 31, 33, 1024, 4 * 32 * 8 * 2 + 32 * 8 + 9):
                a, b = (whole((max(length, 1) + offset,), dtype, seed) for seed in (2, 3))
                products = a.astype(np.float32) * b.astype(np.float32)
                for turns, once in ((1, 0), (3, 1)):
                    y = np.full(32 * turns, products[offset : offset + length].sum(), np.float32)
                    given = launch("dot", 32 * turns, "a", "b", "y", np.int32(length), np.int32(offset))
                    defines = {"TYPE": dtype.cuda, "IN_FLIGHT": loads, "TURNS": turns, "READ_ONCE": once}
                    yield Trial("dot.cu", given, {"a": a, "b": b}, {"y": y}, defines)


def cp_async() -> Iterator[Trial]:
    x = distinct((2, 64, 4), FP32)
    y = np.stack([x[0], x[1][::-1]])
    yield Trial("cp_async.cu", launch("copies", 64, "x", "y"), {"x": x}, {"y": y}, {"THREADS": 64})
    x = distinct((5, 64, 4), FP32)
    y = np.full_like(x, -1)
    for row, (copied, wanted) in enumerate(((1, 2), (2, 3), (4, 5), (1, 2), (4, 5))):
        for thread in range(64):
            y[row, thread, :copied] = 0
            y[row, thread, : thread % wanted] = x[row, thread, : thread % wanted]
    yield Trial("cp_async.cu", launch("parts", 64, "x", "y"), {"x": x}, {"y": y}, {"THREADS": 64})


def mma() -> Iterator[Trial]:
    for dtype in HALVES:
        defines = {"TYPE": dtype.cuda}
        x = distinct((4, 8, 8), dtype)
        plain = x.view(np.uint32).reshape(4, 32)
        transposed = np.ascontiguousarray(x.transpose(0, 2, 1)).view(np.uint32).reshape(4, 32)
        registers = {"plain": plain, "transposed": transposed}
        yield Trial("mma.cu", launch("matrices", 32, "x", "plain", "transposed"), {"x": x}, registers, defines)
        yield Trial("mma.cu", launch("stored", 32, "x", "stored"), {"x": x}, {"stored": x}, defines)
        a, b, c = whole((16, 16), dtype, 4), whole((8, 16), dtype, 5), whole((16, 8), FP32, 6)
        d = c + a.astype(np.float32) @ b.astype(np.float32).T
        given = {"a": a, "b": b, "c": c}
        yield Trial("mma.cu", launch("product", 32, "a", "b", "c", "d"), given, {"d": d}, defines)


def mbarrier() -> Iterator[Trial]:
    defines = {"PHASES": 5, "BLOCKS": 3}
    y = (100 * np.arange(5)[:, None] + np.arange(32)).astype(np.uint32)
    yield Trial("mbarrier.cu", launch("handoff", 64, "y"), {}, {"y": y}, defines)
    everywhere = launch("arrive_everywhere", 32, "y", blocks=3, cluster=3)
    yield Trial("mbarrier.cu", everywhere, {}, {"y": np.arange(1, 4, dtype=np.uint32)}, defines)


def named_barrier() -> Iterator[Trial]:
    x = whole((32,))
    yield Trial("named_barrier.cu", launch("turns", 64, "x", "y"), {"x": x}, {"y": np.stack([x + 1, x + 2])})


def flag() -> Iterator[Trial]:
    x = whole((8, 32))
    y = x.copy()
    for block in range(1, 8):
        y[block] += y[block - 1, ::-1]
    expected = {"y": y, "flags": np.full(8, 32, np.uint32)}
    lower = launch("lower", 8, "flags")
    yield Trial("flag.cu", launch("sums", 32, "x", "y", "flags", blocks=8), {"x": x}, expected, before=(lower,))
    expected = {"rows": x, "total": x.sum(axis=0), "flags": np.zeros(8, np.uint32)}
    last = launch("last", 32, "x", "rows", "total", "flags", blocks=8)
    yield Trial("flag.cu", last, {"x": x}, expected, before=(lower,))
    ticket, lane = np.arange(40)[:, None], np.arange(32)[None]
    y = 1000 * (np.maximum(ticket - 1, 0) + np.maximum(ticket - 2 - lane, 0)).astype(np.float32)
    lower = launch("lower", 82, "flags")  # 40 numbers of 8 bytes, and two counters
    given = launch("posted", 32, "y", "flags", blocks=40)
    yield Trial("flag.cu", given, {}, {"y": y, "flags": np.zeros(82, np.uint32)}, before=(lower,))


def cluster() -> Iterator[Trial]:
    x = distinct((4, 32, 4), FP32)
    theirs = np.roll(x, -1, axis=0)
    read = np.concatenate([theirs[..., :1], theirs[..., :1], theirs[..., 2:], theirs], axis=-1)
    expected = {"y": np.roll(x, 1, axis=0), "ranks": np.arange(4, dtype=np.uint32), "read": read}
    given = launch("push", 32, "x", "y", "ranks", "read", blocks=4, cluster=4)
    yield Trial("cluster.cu", given, {"x": x}, expected, {"THREADS": 32, "BLOCKS": 4})


def cluster_sums() -> Iterator[Trial]:
    threads = 64
    for ranks, columns in ((2, 8 * 2), (2, 8 * 6), (3, 8 * 3), (4, 8 * 8)):
        x = whole((ranks, threads, columns // 2), FP32, 12)
        y = x.sum(axis=0).reshape(threads, ranks, -1).swapaxes(0, 1).copy()
        given = launch("sums", 32 + threads, "x", "y", blocks=ranks, cluster=ranks)
        defines = {"BLOCKS": ranks, "COLUMNS": columns, "HOLDERS": threads}
        yield Trial("cluster_sums.cu", given, {"x": x}, {"y": y}, defines)


ROWS, COLUMNS = 16, 64


def _box(x: np.ndarray[Any, Any], row: int, column: int, swizzle: int) -> np.ndarray[Any, Any]:
    """A box of 16-bit elements as it lies in shared memory, (ROWS, 32) words: 0 outside, 16-byte chunks permuted."""
    padded = np.zeros((x.shape[0] + 2 * ROWS, x.shape[1] + 2 * COLUMNS), x.dtype)
    padded[ROWS:-ROWS, COLUMNS:-COLUMNS] = x
    box = padded[ROWS + row :, COLUMNS + column :][:ROWS, :COLUMNS]
    chunks = box.reshape(ROWS, 8, 8)
    r, c = np.arange(ROWS)[:, None], np.arange(8)
    chunks = chunks[r, c ^ r % (swizzle // 16)] if swizzle else chunks
    return np.ascontiguousarray(chunks).view(np.uint32).reshape(ROWS, 32)


def copied(
    kernel: str,
    swizzle: int,
    place: tuple[int, int],
    to_place: tuple[int, int],
    x: np.ndarray[Any, Any],
    expected: Mapping[str, np.ndarray[Any, Any]],
) -> Trial:
    """A box of `x` at `place`, stored at `to_place`."""
    maps = TensorMap("from", (ROWS, COLUMNS), swizzle), TensorMap("to", (ROWS, COLUMNS), swizzle)
    given = launch(kernel, 128, *maps, "image", *(np.int32(n) for n in (*place, *to_place)))
    return Trial("tma.cu", given, {"from": x}, expected, {"ROWS": ROWS})


def tma() -> Iterator[Trial]:
    x = whole((40, 136), BF16, 7)
    for swizzle, kernel, place, to_place in (
        (128, "boxes", (8, 64), (8, 64)),
        (128, "boxes", (-3, -8), (24, 72)),
        (128, "boxes", (30, 96), (30, 96)),
        (128, "boxes", (8, 64), (40, 136)),
        (0, "boxes", (30, 96), (30, 96)),
        (128, "boxes_once", (8, 64), (8, 64)),
        (128, "boxes_announced", (8, 64), (8, 64)),
    ):
        to = nothing(x.shape, BF16)
        image = _box(x, *place, swizzle)
        part = to[to_place[0] :, to_place[1] :][:ROWS, :COLUMNS]
        part[...] = -_box(x, *place, 0).view(BF16.numpy)[: part.shape[0], : part.shape[1]]
        yield copied(kernel, swizzle, place, to_place, x, {"to": to, "image": image})
    image = nothing((3, ROWS, 32), UINT32)
    image[0] = image[2] = _box(x, 8, 64, 128)
    source = TensorMap("from", (ROWS, COLUMNS), 128)
    given = launch("multicast", 128, source, "image", np.int32(8), np.int32(64), blocks=3, cluster=3)
    yield Trial("tma.cu", given, {"from": x}, {"image": image}, {"ROWS": ROWS})


def _products(slice_at_once: int) -> Iterator[Trial]:
    for dtype in HALVES:
        for columns in (64, 128, 256):
            for transposed in (0, 1):
                a, c = whole((64, 64), dtype, 8), whole((64, columns), FP32, 9)
                b = whole((64, columns) if transposed else (columns, 64), dtype, 10)
                wide = b.astype(np.float32)
                d = a.astype(np.float32) @ (wide if transposed else wide.T)
                defines = {"TYPE": dtype.cuda, "COLUMNS": columns, "TRANSPOSED": transposed, "WHOLE": slice_at_once}
                given = {"a": a, "b": b, "c": c}
                for add in (0, 1):
                    product = launch("product", 128, "a", "b", "c", "d", np.int32(add))
                    yield Trial("wgmma.cu", product, given, {"d": d + add * c}, defines)


def k_tile() -> Iterator[Trial]:
    yield from _products(1)


def wgmma() -> Iterator[Trial]:
    yield from _products(0)
    defines = {"TYPE": BF16.cuda, "COLUMNS": 128, "TRANSPOSED": 0, "WHOLE": 0}
    yield Trial("wgmma.cu", launch("registers", 384, "y"), {}, {"y": np.arange(384, dtype=np.uint32)}, defines)
    x = np.arange(64, dtype=np.uint32)
    yield Trial("wgmma.cu", launch("first_lane", 64, "x", "y"), {"x": x}, {"y": x // 32 * 32}, defines)


WGMMA_TYPES = {
    "wgmma_bf16": (BF16, BF16, BF16.cuda),
    "wgmma_f16": (FP16, FP16, FP16.cuda),
    "wgmma_tf32": (FP32, FP32, FP32.cuda),
    "wgmma_e4m3": (E4M3, E4M3, "unsigned char"),
    "wgmma_e5m2": (E5M2, E5M2, "unsigned char"),
    "wgmma_e4m3_e5m2": (E4M3, E5M2, "unsigned char"),
    "wgmma_e5m2_e4m3": (E5M2, E4M3, "unsigned char"),
}


def wgmma_shapes() -> Iterator[Trial]:
    """Every N with one type after the other, and every type at two of them; a in registers and in shared memory."""
    names = list(WGMMA_TYPES)
    shapes = {(8 * i, names[i % len(names)]) for i in range(1, 33)} | set(product((16, 64), names))
    for name, (left, right, cuda) in WGMMA_TYPES.items():
        depth, every = 128 // left.itemsize, sorted(columns for columns, other in shapes if other == name)
        defines: dict[str, str | int] = {"NAME": name, "TYPE": cuda, "SIXTEEN_BITS": int(left.itemsize == 2)}
        defines["PRODUCTS"] = " ".join(f"PRODUCT({columns})" for columns in every)
        for columns in every:
            a, b = whole((64, depth), left, 8), whole((columns, depth), right, 9)
            d = a.astype(np.float32) @ b.astype(np.float32).T
            for kernel in ("shared", "held"):
                given = launch(f"{kernel}_{columns}", 128, "a", "b", "d")
                yield Trial("wgmma_shapes.cu", given, {"a": a, "b": b}, {"d": d}, defines)


def tma_ranks() -> Iterator[Trial]:
    """A box that reaches beyond the end of every dimension, and one that does not."""
    for rank in range(1, 6):
        shape, box = (2, 3, 2, 5, 16)[-rank:], (1, 2, 2, 2, 8)[-rank:]
        x = distinct(shape, FP32)
        for at in ((0, 1, 0, 1, 4)[-rank:], (1, 2, 1, 4, 12)[-rank:]):
            inside = tuple(slice(first, first + count) for first, count in zip(at, box, strict=True))
            loaded = np.zeros(box, np.float32)
            loaded[tuple(slice(0, n) for n in x[inside].shape)] = x[inside]
            to, total = nothing(shape, FP32), np.ones(shape, np.float32)
            to[inside] = x[inside]
            total[inside] += x[inside]
            image = loaded.view(np.uint32).reshape(-1)
            defines = {"RANK": rank, "WORDS": image.size}
            maps = tuple(TensorMap(name, box, 0) for name in ("from", "to", "sum"))
            inputs = {"from": x, "at": np.array(at, np.uint32)}
            boxes = launch("boxes", 32, *maps, "image", "at")
            before = (launch("ones", x.size, "sum"),)
            yield Trial("tma_ranks.cu", boxes, inputs, {"to": to, "sum": total, "image": image}, defines, before)
            if rank != 2:  # tma.cu has that one
                images = nothing((3, image.size), UINT32)
                images[0] = images[2] = image
                cast = launch("multicast", 32, maps[0], "image", "at", blocks=3, cluster=3)
                yield Trial("tma_ranks.cu", cast, inputs, {"image": images}, defines)


def _pixels(
    x: np.ndarray[Any, Any], lower: int, upper: int, count: int, offsets: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Places of so many pixels from the one at 0 on: they run through the bounding box of one image after the other."""
    walked = [range(lower, size + upper) for size in x.shape[1:-1]]
    places = list(product(range(x.shape[0]), *walked))
    first = places.index((0,) * (x.ndim - 1))
    for image, *place in places[first : first + count]:
        yield (image, *(i + offset for i, offset in zip(place, offsets, strict=True)))


def tma_im2col() -> Iterator[Trial]:
    """Taps of a convolution of three with a padding of one; pixels of two images, and stores without a padding."""
    channels, pixels = 4, 24
    for space in (1, 2, 3):
        x = distinct((3, *((10,), (4, 5), (4, 3, 4))[space - 1], 8), FP32)
        for offsets in ((0,) * space, tuple(range(space)), (2,) * space):
            loaded = np.zeros((pixels, channels), np.float32)
            for i, (image, *place) in enumerate(_pixels(x, -1, -1, pixels, offsets)):
                if all(0 <= at < size for at, size in zip(place, x.shape[1:-1], strict=True)):
                    loaded[i] = x[(image, *place)][:channels]
            to = nothing(x.shape, FP32)
            for i, place in enumerate(_pixels(x, 0, 0, pixels, (0,) * space)):
                to[place][:channels] = loaded[i]
            image = loaded.view(np.uint32).reshape(-1)
            maps = (
                TensorMap("from", Im2col((-1,) * space, (-1,) * space, channels, pixels), 0),
                TensorMap("to", Im2col((0,) * space, (0,) * space, channels, pixels), 0),
            )
            inputs = {"from": x, "at": np.array((0,) * (space + 2) + offsets, np.uint32)}
            defines = {"RANK": space + 2, "WORDS": image.size}
            given = launch("pixels", 32, *maps, "image", "at")
            yield Trial("tma_im2col.cu", given, inputs, {"to": to, "image": image}, defines)
            cast = launch("multicast", 32, maps[0], "image", "at", blocks=2, cluster=2)
            yield Trial("tma_im2col.cu", cast, inputs, {"image": image}, defines)


def bulk() -> Iterator[Trial]:
    x, numbers = np.arange(64, dtype=np.uint32) % 7, whole((64,), FP32, 3)
    expected = {"y": x, "sum": x + 3, "least": np.minimum(x, 3), "most": np.maximum(x, 3), "sum_float": 2 * numbers + 3}
    defines = {"COUNT": 64, "BLOCKS": 3}
    copies = launch("copies", 32, "x", "x_float", *expected)
    before = (launch("set", 64, "sum", "least", "most", "sum_float"),)
    yield Trial("bulk.cu", copies, {"x": x, "x_float": numbers}, expected, defines, before)
    x = np.arange(3 * 64, dtype=np.uint32).reshape(3, 64) * 5
    y = np.roll(x, 1, axis=0) + np.roll(x, -1, axis=0)
    yield Trial("bulk.cu", launch("neighbours", 32, "x", "y", blocks=3, cluster=3), {"x": x}, {"y": y}, defines)


def st_async() -> Iterator[Trial]:
    x = distinct((3, 32, 4), FP32)
    words = np.roll(100 * np.arange(3)[:, None] + np.arange(32), 1, axis=0).astype(np.uint32)
    expected = {"y": np.roll(x, 1, axis=0), "words": words, "counts": np.full(3, 5 + 31 * 16, np.uint32)}
    given = launch("neighbours", 32, "x", *expected, blocks=3, cluster=3)
    yield Trial("st_async.cu", given, {"x": x}, expected, {"BLOCKS": 3})


def grid_dependency() -> Iterator[Trial]:
    x = whole((32,))
    first = launch("next", 32, "x", "between")
    expected = {"between": x + 1, "y": x + 2}
    yield Trial("grid_dependency.cu", launch("next", 32, "between", "y"), {"x": x}, expected, before=(first,))


def swizzle() -> Iterator[Trial]:
    for dtype, row_bytes in product((BF16, FP32), (32, 64, 128)):
        x = distinct((16, row_bytes // dtype.itemsize), dtype)
        given = launch("read", 32, TensorMap("x", x.shape, row_bytes), "plain", "by_chunks")
        defines = {"TYPE": dtype.cuda, "WIDTH_BYTES": row_bytes}
        yield Trial("swizzle.cu", given, {"x": x}, {"plain": x, "by_chunks": x}, defines)


def load_compute_epilogue() -> Iterator[Trial]:
    """What no stage uses: two blocks on a multiprocessor, work tiles of different lengths, a consumer that has an item
    to itself without wgmma, results of every iteration."""
    items, steps = 7, 5
    x = whole((items, steps, 16, 64), FP32, 11)
    y = np.stack([x[item, : item % steps + 1].sum(axis=0) for item in range(items)]).reshape(-1, 64)
    running = x.cumsum(axis=1)
    for item in range(items):
        running[item, item % steps + 1 :] = np.nan
    maps = TensorMap("x", (16, 64), 0), TensorMap("running", (16, 64), 0)
    for frame, blocks in product((0, 1, 2), (1, 2)):
        given = replace(launch("sum_of_boxes", 384, *maps, "y", blocks=blocks), shared_bytes=113 * 1024)
        stored = running if frame == 2 else np.full_like(running, np.nan)
        expected = {"y": y, "running": stored.reshape(-1, 64)}
        defines = {"FRAME": frame, "ITEMS": items, "STEPS": steps}
        yield Trial("frames.cu", given, {"x": x.reshape(-1, 64)}, expected, defines)


def fragment() -> Iterator[Trial]:
    """Attention made of the pieces, without its softmax: exact."""
    heads, keys = 2, 64 * 5
    rng = np.random.default_rng(5)
    q, k, v = (rng.integers(-1, 2, (heads, rows, 64)).astype(BF16.numpy) for rows in (128, keys, keys))
    scores = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1)
    o = scores @ v.astype(np.float32)
    maps = TensorMap("q", (128, 64)), TensorMap("k", (64, 64)), TensorMap("v", (64, 64))
    given = replace(launch("attention", 384, *maps, "o", blocks=heads), shared_bytes=227 * 1024)
    inputs = {"q": q.reshape(-1, 64), "k": k.reshape(-1, 64), "v": v.reshape(-1, 64)}
    yield Trial("attention.cu", given, inputs, {"o": o.reshape(-1, 64)}, {"KEYS": keys})


def _order(rows: int, columns: int, group: int, serpentine: bool) -> Iterator[tuple[int, int]]:
    """Tiles as they are walked: bands of `group` rows from the first on, in each of them one column after the other.
    `serpentine` ones are walked to and fro, and nearly as high as one another."""
    if serpentine:
        group = math.ceil(rows / max(1, math.floor(rows / group + 0.5)))
    for number, first in enumerate(range(0, rows, group)):
        for column in range(columns)[:: -1 if serpentine and number % 2 else 1]:
            for row in range(first, min(first + group, rows)):
                yield row, column


def tile_order() -> Iterator[Trial]:
    shapes = ((1, 1), (3, 5), (7, 4), (16, 2), (19, 3), (25, 2))
    for serpentine, group, (rows, columns) in product((False, True), (1, 3, 16), shapes):
        places = np.array(list(_order(rows, columns, group, serpentine)), np.uint32)
        expected = {"row": places[:, 0].copy(), "column": places[:, 1].copy()}
        given = launch("order", rows * columns, "row", "column", np.int32(rows), np.int32(columns))
        yield Trial("tile_order.cu", given, {}, expected, {"GROUP_M": group, "SERPENTINE": int(serpentine)})
    for number, count in product((0, 1, 4, 7), (1, 6)):
        walked = np.arange(count, dtype=np.uint32)[:: -1 if number % 2 else 1].copy()
        given = launch("iterations", count, "k_tile", np.int32(number), np.int32(count))
        yield Trial("tile_order.cu", given, {}, {"k_tile": walked}, {"GROUP_M": 1, "SERPENTINE": 0})


def stream_k() -> Iterator[Trial]:
    """Every k-iteration of every tile once, one worker completes a tile, and knows how many others have a part."""
    for workers, tiles, iterations in product((1, 3, 5, 32), (1, 6, 8, 9, 35), (1, 7)):
        if tiles < workers:
            continue  # who has fewer tiles launches fewer workers
        left = tiles % workers
        shared_out = 0 if left == 0 else left + workers * (left * 2 < workers)
        shares = np.arange(workers + 1) * (shared_out * iterations) // workers
        whose = np.searchsorted(shares, np.arange(shared_out * iterations), "right").reshape(shared_out, iterations)
        parts = [np.unique(workers_of_it).size for workers_of_it in whose]
        others = np.zeros(tiles, np.uint32)
        others[:shared_out] = np.array(parts, np.uint32) - 1
        expected = {
            "counts": np.ones((tiles, iterations), np.uint32),
            "finished": np.ones(tiles, np.uint32),
            "others": others,
        }
        zero = tuple(launch("clear", values.size, name) for name, values in expected.items())
        numbers = (np.int32(n) for n in (tiles, iterations, 0))
        yield Trial("stream_k.cu", launch("share_out", workers, *expected, *numbers), {}, expected, before=zero)


def rows() -> Iterator[Trial]:
    for dtype in (FP32, BF16):
        chunk = 16 // dtype.itemsize
        x = distinct((4, 3 * chunk), dtype)
        for m, n, leading in ((3, 2 * chunk, 3 * chunk), (4, 3 * chunk - 1, 3 * chunk), (2, chunk + 1, 3 * chunk + 1)):
            mapped = leading % chunk == 0 and n % chunk == 0
            part = np.ascontiguousarray(x[:m, :n])
            expected = {"whole": part if mapped else nothing((m, n), dtype), "part": part}
            numbers = (np.int32(v) for v in (m, n, leading, 3))
            given = launch("chunks", 32, "x", TensorMap("x", (4, chunk), 0), "whole", "part", *numbers)
            yield Trial("rows.cu", given, {"x": x}, expected, {"OUT": dtype.cuda}, leading=leading)


def staging() -> Iterator[Trial]:
    for dtype, columns in ((FP32, 8), (FP32, 32), (BF16, 16), (BF16, 32), (BF16, 64)):
        x = np.random.default_rng(12).standard_normal((16, columns), np.float32)
        defines, chunk = {"OUT": dtype.cuda, "WIDE": columns, "IN_CHUNKS": 0}, 16 // dtype.itemsize
        y = x.astype(dtype.numpy)
        yield Trial("staging.cu", launch("put_and_read", 32, "x", "y"), {"x": x}, {"y": y}, defines)
        stores = (
            (1, 16, columns),
            (1, 13, columns - chunk),
            (0, 13, columns - 3),
            (0, 15, columns - 2),
            (0, 16, columns - chunk),
        )
        for in_chunks, m, n in stores:
            boxes = TensorMap("x", (16, columns), 0)  # of no use: nothing is stored by TMA
            given = launch("put_and_store", 32, "x", "y", boxes, np.int32(m), np.int32(n))
            stored = np.ascontiguousarray(y[:m, :n])
            yield Trial("staging.cu", given, {"x": x}, {"y": stored}, defines | {"IN_CHUNKS": in_chunks})


def deferred() -> Iterator[Trial]:
    panels, warps = 3, 3
    for dtype, slots in product((FP32, BF16), (1, 2)):
        panel, chunk = 128 // dtype.itemsize, 16 // dtype.itemsize
        sums = np.random.default_rng(11).standard_normal((16 * warps, panel * panels), np.float32)
        for m, n, ldc in (
            (16 * warps, panel * panels, panel * panels),
            (37, panel * panels, panel * panels + chunk),
            (37, panel + chunk, panel + 3 * chunk),
            (21, panel + 3, panel + 2 * chunk),  # no whole 16 bytes at the end of a row
            (37, panel + chunk, panel + chunk + 1),  # rows that do not start at such a multiple
            (45, 2 * panel - 1, 2 * panel - 1),
            (1, 1, 1),
        ):
            values, untouched = sums[:m, :n].astype(dtype.numpy), nothing((m, n), dtype)
            mapped = ldc % chunk == 0
            by_engine = mapped and n % chunk == 0
            # the map and the pointer are of two arrays, to see which way it goes
            expected = {"C": untouched if by_engine else values}
            expected |= {"boxes": values if by_engine else untouched} if mapped else {}
            boxes = TensorMap("boxes", (16, panel)) if mapped else TensorMap("sums", (16, 32))
            defines = {"OUT": dtype.cuda, "BUFFERS": slots, "PANELS": panels, "WARPS": warps}
            numbers = tuple(np.int32(x) for x in (m, n, ldc))
            given = launch("stored", 32 * warps, "sums", boxes, "C", *numbers)
            yield Trial("deferred.cu", given, {"sums": sums}, expected, defines, leading=ldc)
            for iterations in (1, 2, 13) if dtype.itemsize == 2 else ():
                given = launch("kept", 32 * warps, "sums", boxes, "C", *numbers, np.int32(iterations))
                yield Trial("deferred.cu", given, {"sums": sums}, expected, defines, leading=ldc)


def tcgen05() -> Iterator[Trial]:
    for dtype, along_n, columns in product(HALVES, (0, 1), (64, 256)):
        a, b = whole((128, 64), dtype), whole((64, columns) if along_n else (columns, 64), dtype, 1)
        y = a.astype(np.float32) @ (b if along_n else b.T).astype(np.float32)
        maps = TensorMap("a", box=(128, 64)), TensorMap("b", box=(64, 64) if along_n else (columns, 64))
        defines = {"TYPE": dtype.cuda, "Y_COLUMNS": columns, "ALONG_N": along_n}
        twice = replace(launch("twice", 128, *maps, "y"), shared_bytes=2**16)
        yield Trial("tcgen05.cu", twice, {"a": a, "b": b}, {"y": 2 * y}, defines, architecture=100)
    a, b = whole((256, 64), BF16), whole((128, 64), BF16, 1)
    maps = TensorMap("a", box=(128, 64)), TensorMap("b", box=(64, 64))
    pair = replace(launch("pair", 128, *maps, "y", blocks=2, cluster=2), shared_bytes=2**15)
    y = a.astype(np.float32) @ b.T.astype(np.float32)
    yield Trial("tcgen05.cu", pair, {"a": a, "b": b}, {"y": y}, defines, architecture=100)
    rows, b = whole((128, 64), BF16).view(np.uint32), whole((64, 64), BF16, 1)
    y = rows.view(BF16.numpy).astype(np.float32) @ b.astype(np.float32)
    stored = launch("from_rows", 128, "rows", TensorMap("b", box=(64, 64)), "y")
    yield Trial("tcgen05.cu", stored, {"rows": rows, "b": b}, {"y": y}, defines, architecture=100)


def launch_control() -> Iterator[Trial]:
    y = np.arange(1, 5001, dtype=np.uint32)
    yield Trial("launch_control.cu", launch("takes", 32, "y", blocks=len(y)), {}, {"y": y}, architecture=100)


HEADERS: tuple[Callable[[], Iterator[Trial]], ...] = (
    shared,
    warp,
    convert,
    ex2,
    vector,
    dot,
    cp_async,
    mma,
    mbarrier,
    named_barrier,
    flag,
    cluster,
    cluster_sums,
    tma,
    wgmma,
    tcgen05,
    launch_control,
    wgmma_shapes,
    tma_ranks,
    tma_im2col,
    bulk,
    st_async,
    grid_dependency,
    k_tile,
    fragment,
    swizzle,
    tile_order,
    stream_k,
    rows,
    staging,
    deferred,
    load_compute_epilogue,
)
