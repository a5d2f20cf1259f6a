"""Bulk tensor copies of boxes and of pixels, and reductions of boxes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from batches import Kernel, Tensor
from case import Case, case_module
from form import Array
from tile_cases import vector_text
from warp_cases import REDUCTIONS
from warpgroup_cases import swizzled

from workbench.emulator import PixelBox

BOXES = [
    ("float32", (40,), (16,), 0),
    ("uint8", (64, 20), (32, 8), 0),
    ("uint16", (64, 20), (64, 9), 128),
    ("uint16", (64, 20), (32, 9), 64),
    ("uint16", (64, 20), (16, 9), 32),
    ("float32", (36, 20), (8, 24), 32),
    ("float32", (32, 20), (16, 3), 64),
    ("uint64", (16, 6, 5), (4, 3, 2), 0),
    ("uint8", (128, 6, 5), (128, 3, 3), 128),
    ("uint16", (16, 6, 5, 3), (8, 4, 3, 2), 0),
    ("float32", (16, 6, 5, 3), (16, 4, 3, 2), 64),
    ("uint8", (32, 4, 3, 2, 3), (16, 3, 2, 2, 2), 0),
    ("uint8", (32, 4, 3, 2, 3), (32, 3, 2, 2, 2), 32),
]
_NUMPY = {"bfloat16": ml_dtypes.bfloat16}


def _dtype(name: str) -> Any:
    return np.dtype(_NUMPY.get(name, name))


def _inside(box: tuple[int, ...], corner: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Places in a box and in the tensor, both outermost first, of the elements that are in the tensor."""
    for place in itertools.product(*(range(n) for n in box)):
        position = tuple(c + p for c, p in zip(corner, place, strict=True))
        if all(0 <= p < n for p, n in zip(position, shape, strict=True)):
            yield place[::-1], position[::-1]


def tensor_text(rank: int, nbytes: int, opcode: str, load: bool, offsets: tuple[int, ...] = ()) -> str:
    """One block moves one box between the tensor and ``x``, whose bytes are those of shared memory.

    ``offsets`` are those of the pixels in a load of the mode ``im2col``.
    """
    coordinates = ", ".join(f"%c{n}" for n in range(rank))
    coordinate_parameters = "".join(f", .param .s32 c{n}" for n in range(rank))
    head = f"""
    mov.u32 %i, %tid.x; ld.param.u64 %x, [x]; mov.b64 %m, map; cvta.param.u64 %m, %m; setp.eq.u32 %first, %i, 0;
    {" ".join(f"ld.param.s32 %c{n}, [c{n}];" for n in range(rank))}
    """
    if load:
        multicast = ", %rank" if "multicast" in opcode else ""
        shifts = f", {vector_text('h', len(offsets))}" if offsets else ""
        prefetch = " ".join(
            f"{name} [%m, {{{coordinates}}}]{shifts};" for name in _prefetches(rank, "im2col" if offsets else "tile")
        )
        body = f"""
        @%first mbarrier.init.shared::cta.b64 [bar], 1;
        @%first fence.mbarrier_init.release.cluster;
        bar.sync 0;
        @!%first bra GO;
        prefetch.param.tensormap [map]; prefetch.tensormap [%m];
        {" ".join(f"mov.b16 %h{n}, {offset};" for n, offset in enumerate(offsets))} {prefetch}
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
        mov.b16 %rank, 1;
        {opcode} [tile], [%m, {{{coordinates}}}], [bar]{shifts}{multicast};
        GO: mbarrier.try_wait.parity.shared::cta.b64 %done, [bar], 0; @!%done bra GO;
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra END;
        mov.u32 %t, tile; add.u32 %t, %t, %s; ld.shared.u8 %v, [%t];
        cvt.u64.u32 %o, %s; add.u64 %a, %x, %o; st.global.u8 [%a], %v;
        add.u32 %s, %s, 64; bra LOOP;
        END: ret;
        """
    else:
        body = f"""
        mov.u32 %s, %i;
        LOOP: setp.ge.u32 %p, %s, {nbytes}; @%p bra STORE;
        mov.u32 %t, tile; add.u32 %t, %t, %s; cvt.u64.u32 %o, %s; add.u64 %a, %x, %o;
        ld.global.u8 %v, [%a]; st.shared.u8 [%t], %v;
        add.u32 %s, %s, 64; bra LOOP;
        STORE: fence.proxy.async.shared::cta;
        bar.sync 0;
        @!%first bra END;
        {opcode} [%m, {{{coordinates}}}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        cp.async.bulk.wait_group 0;
        END: ret;
        """
    return case_module(
        head + body,
        # the tensor's own array is a parameter too, but only reached through the map
        f".param .align 64 .b8 map[128], .param .u64 x{coordinate_parameters}, .param .u64 whole",
        ".reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %v; .reg .b64 %a; .reg .b64 %x; .reg .b64 %o;"
        ".reg .b64 %m; .reg .pred %done; .reg .pred %first; .reg .pred %p; .reg .b16 %rank;"
        f".reg .b32 %c<5>; .reg .b16 %h<3>; .shared .align 1024 .b8 tile[{nbytes}]; .shared .align 8 .b64 bar;",
    )


def _prefetches(rank: int, mode: str) -> list[str]:
    """Of tiles the mode need not be said."""
    name = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global"
    return [f"{name}.im2col"] if mode == "im2col" else [f"{name}.tile", name]


def box_corners(
    shape: tuple[int, ...], itemsize: int, size: int, rng: np.random.Generator, *, store: bool
) -> list[tuple[int, ...]]:
    """Where boxes begin: at multiples of 16 bytes within a row, and nowhere negative in a store."""
    fixed = [(0,) * len(shape), tuple(n - 2 for n in shape), (-3,) * len(shape), tuple(n // 2 for n in shape)]
    drawn = [tuple(int(rng.integers(-6, n + 4)) for n in shape) for _ in range(2 * (size - 1))]
    step = max(16 // itemsize, 1)
    aligned = [(corner[0] // step * step, *corner[1:]) for corner in [*fixed, *drawn]]
    return [tuple(max(place, 0) for place in corner) for corner in aligned] if store else aligned


def _random_tensor(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.integers(0, 256, int(np.prod(shape)) * dtype.itemsize).astype(np.uint8).view(dtype).reshape(shape[::-1])


def boxes(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Tensor copies of boxes partly outside, in all ranks and swizzles, to shared memory and back."""
    spelled = [
        f"cp.async.bulk.tensor.{{}}d.shared::{space}.global{tile}.mbarrier::complete_tx::bytes{multicast}"
        for tile in (".tile", "")
        for space, multicast in (("cluster", ""), ("cluster", ".multicast::cluster"), ("cta", ""))
    ]
    for kind, shape, box, swizzle in BOXES:
        rank, dtype = len(shape), _dtype(kind)
        corners = box_corners(shape, dtype.itemsize, size, rng, store=False)
        for opcode, corner in itertools.islice(
            zip(itertools.cycle(spelled), itertools.cycle(corners), strict=False), max(len(spelled), len(corners))
        ):
            opcode = opcode.format(rank)
            array, tile = _random_tensor(dtype, shape, rng), np.zeros(box[::-1], dtype)
            for place, position in _inside(box, corner, shape):
                tile[place] = array[position]
            image = swizzled(tile.view(np.uint8).ravel(), swizzle)
            text = tensor_text(rank, tile.nbytes, opcode, load=True)
            tensor = (kind, shape, array.strides[:-1][::-1], box, swizzle)
            name = f"load {opcode} {kind} {shape} {box} at {corner}, swizzle {swizzle}"
            yield _box_case(name, opcode, text, tensor, corner, (np.zeros_like(image), image), (array, array))
        for number, corner in enumerate(box_corners(shape, dtype.itemsize, size, rng, store=True)):
            opcode = f"cp.async.bulk.tensor.{rank}d.global.shared::cta{'.tile' if number % 2 else ''}.bulk_group"
            array, tile = _random_tensor(dtype, shape, rng), _random_tensor(dtype, box, rng)
            after = array.copy()
            for place, position in _inside(box, corner, shape):
                after[position] = tile[place]
            image = swizzled(tile.view(np.uint8).ravel(), swizzle)
            text = tensor_text(rank, tile.nbytes, opcode, load=False)
            tensor = (kind, shape, array.strides[:-1][::-1], box, swizzle)
            name = f"store {opcode} {kind} {shape} {box} at {corner}, swizzle {swizzle}"
            yield _box_case(name, opcode, text, tensor, corner, (image, image), (array, after))


def _box_case(
    name: str,
    opcode: str,
    text: str,
    tensor: tuple[Any, ...],
    corner: tuple[int, ...],
    images: tuple[Array, Array],
    arrays: tuple[Array, Array],
) -> Case:
    """``tensor``: what follows the array in a ``Tensor``; images of the box and arrays are before and after."""
    arguments: list[Any] = [None, images[0], *(np.int32(c) for c in corner), arrays[0]]
    arguments[0] = Tensor(len(arguments) - 1, *tensor)
    operations = [opcode.replace("shared::cta", "shared")]
    rank = len(corner)
    if name.startswith("load"):
        mode = "im2col" if ".im2col" in opcode else "tile"
        operations += [*_prefetches(rank, mode), "prefetch.param.tensormap", "prefetch.tensormap"]
    else:
        operations += ["cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read"]
    return Case(name, operations, Kernel(text, 1, 64, arguments), [images[1], arrays[1]])


TENSOR_REDUCTIONS = {
    "add": ("uint32", "int32", "uint64", "float16", "bfloat16", "float32", "float64"),
    "min": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "max": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": ("uint32", "uint64", "int32"),
    "or": ("uint32", "uint64", "int64"),
    "xor": ("uint32", "uint64"),
}


def _reduced_tensor(name: str, dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random elements, such that sums of floats are exact and limits are met."""
    if dtype.kind in "fV":
        return np.asarray(rng.integers(-8, 9, shape[::-1]).astype(np.float32).astype(dtype))
    if name in ("inc", "dec"):
        return rng.integers(0, 4, shape[::-1]).astype(dtype)
    return _random_tensor(dtype, shape, rng)


def _reduced(name: str, old: Array, new: Array) -> Array:
    with np.errstate(over="ignore"):
        if name == "inc":
            return np.where(old >= new, 0, old + 1).astype(old.dtype)
        if name == "dec":
            return np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype)
        return np.asarray(REDUCTIONS[name](old, new))


def box_reductions(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """cp.reduce on boxes partly outside, for the types of elements that each reduction knows."""
    for rank, (name, types) in itertools.product((1, 2, 3, 4, 5), TENSOR_REDUCTIONS.items()):
        turn = [types[(2 * rank + n) % len(types)] for n in range(2)]  # each in some rank
        elements = turn if size == 1 or len(types) < 3 else types
        for number, element in enumerate(elements):
            dtype = _dtype(element)
            across = 64 // dtype.itemsize
            shape, box = (across, 3, 4, 3, 3)[:rank], (across // 2, 2, 3, 2, 2)[:rank]
            corner = (across * 3 // 4, 2, 2, 1, 2)[:rank]
            array, tile = (_reduced_tensor(name, dtype, s, rng) for s in (shape, box))
            after = array.copy()
            for place, position in _inside(box, corner, shape):
                after[position] = _reduced(name, array[position], tile[place])
            tiled = ".tile" if number % 2 else ""
            opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{name}{tiled}.bulk_group"
            map_ = (element, shape, array.strides[:-1][::-1], box)
            text = tensor_text(rank, tile.nbytes, opcode, load=False)
            title = f"reduce {opcode} {element} {shape} {box} at {corner}"
            image = tile.view(np.uint8).ravel()
            yield _box_case(title, opcode, text, map_, corner, (image, image), (array, after))


# element; shape and steps of the walk innermost first; lower and upper corner of the pixels' box; channels, pixels,
# swizzle; offsets
PIXELS = [
    ("float32", (8, 9, 3), (1, 1, 1), (-1,), (-1,), 8, 20, 0, (2,)),
    ("uint16", (64, 11, 4), (1, 2, 1), (-3,), (2,), 32, 12, 64, (5,)),
    ("uint16", (16, 7, 5, 3), (1, 1, 1, 1), (-1, -1), (-1, -1), 16, 30, 32, (1, 2)),
    ("uint16", (64, 6, 5, 2), (1, 2, 3, 1), (0, -2), (1, 0), 64, 9, 128, (0, 1)),
    ("uint8", (32, 4, 3, 3, 2), (1, 1, 2, 1, 1), (-1, 0, -1), (0, 0, 1), 16, 40, 0, (1, 0, 2)),
]


def walk(
    shape: tuple[int, ...], steps: tuple[int, ...], box: PixelBox, corner: tuple[int, ...], offsets: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Positions of the pixels of a tile, without channels: an odometer whose digits run from corner to corner."""
    digits = list(corner[1:])
    pixels = []
    for _ in range(box.pixels):
        pixels.append(tuple(d + o for d, o in zip(digits, (*offsets, 0), strict=True)))
        for place in range(len(digits)):
            digits[place] += steps[place + 1]
            if place == len(digits) - 1 or digits[place] <= shape[place + 1] - 1 + box.upper[place]:
                break
            digits[place] = box.lower[place]
    return pixels


def _pixels_inside(
    shape: tuple[int, ...], steps: tuple[int, ...], box: PixelBox, corner: tuple[int, ...], offsets: tuple[int, ...]
) -> Iterator[tuple[Any, Any]]:
    """Places in a tile [pixel][channel] and in the tensor of the channels that are in the tensor."""
    first = corner[0]
    channels = slice(first, min(first + box.channels, shape[0]))
    for row, place in enumerate(walk(shape, steps, box, corner, offsets)):
        if all(0 <= p < n for p, n in zip(place, shape[1:], strict=True)):
            yield (row, slice(0, channels.stop - first)), (*place[::-1], channels)


def pixels(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Tensor copies and reductions in the mode im2col: tiles of pixels partly outside."""
    spelled = [
        f"cp.async.bulk.tensor.{{}}d.shared::{space}.global.im2col.mbarrier::complete_tx::bytes{multicast}"
        for space, multicast in (("cluster", ""), ("cluster", ".multicast::cluster"), ("cta", ""))
    ]
    for kind, shape, steps, lower, upper, channels, count, swizzle, offsets in PIXELS:
        rank, dtype = len(shape), _dtype(kind)
        box = PixelBox(lower, upper, channels, count)
        across = 16 // dtype.itemsize
        starts = [(0, *lower, 0), (shape[0] - across, *lower, 1), (0, *(low + 1 for low in lower), 0)]
        for _ in range(2 * size - 2):
            inner = [int(rng.integers(low, n + up)) for low, up, n in zip(lower, upper, shape[1:-1], strict=True)]
            starts.append((int(rng.integers(0, shape[0] // across)) * across, *inner, int(rng.integers(0, shape[-1]))))
        for number, corner in enumerate(starts):
            shifts = tuple(int(rng.integers(0, 4)) for _ in offsets) if number > 2 else offsets
            opcode = spelled[number % 3].format(rank)
            array, tile = _random_tensor(dtype, shape, rng), np.zeros((count, channels), dtype)
            for place, position in _pixels_inside(shape, steps, box, corner, shifts):
                tile[place] = array[position]
            image = swizzled(tile.view(np.uint8).ravel(), swizzle)
            text = tensor_text(rank, tile.nbytes, opcode, load=True, offsets=shifts)
            tensor = (kind, shape, array.strides[:-1][::-1], box, swizzle, steps)
            name = f"load {opcode} {kind} {shape} {box} at {corner}, steps {steps}, offsets {shifts}, swizzle {swizzle}"
            yield _box_case(name, opcode, text, tensor, corner, (np.zeros_like(image), image), (array, array))
    # of int64 the device refuses "or", whatever the mode
    reductions = [
        (name, [t for t in types if (name, t) != ("or", "int64")][: None if size > 1 else 1])
        for name, types in TENSOR_REDUCTIONS.items()
    ]
    for (kind, shape, steps, _, upper, channels, count, swizzle, _), (name, types) in itertools.product(
        PIXELS, [("", [""]), *reductions]
    ):
        for element in types:
            dtype, rank = _dtype(element or kind), len(shape)
            # a device ends stores whose bounding box begins at a negative place or reaches beyond the tensor
            within = tuple(min(up, 0) for up in upper)
            box = PixelBox((0,) * (rank - 2), within, 16 // dtype.itemsize if name else channels, count)
            sizes = (32 // dtype.itemsize if name else shape[0], *shape[1:])
            for corner in ((0,) * rank, (16 // dtype.itemsize, *(1,) * (rank - 2), 1)):
                array, tile = (_reduced_tensor(name, dtype, s, rng) for s in (sizes, (box.channels, count)))
                after = array.copy()
                for place, position in _pixels_inside(sizes, steps, box, corner, (0,) * (rank - 2)):
                    after[position] = _reduced(name, after[position], tile[place]) if name else tile[place]
                tiled = 0 if name else swizzle
                image = swizzled(tile.view(np.uint8).ravel(), tiled)
                base = f"cp.reduce.async.bulk.tensor.{rank}d" if name else f"cp.async.bulk.tensor.{rank}d"
                opcode = f"{base}.global.shared::cta{name and '.' + name}.im2col_no_offs.bulk_group"
                text = tensor_text(rank, tile.nbytes, opcode, load=False)
                tensor = (element or kind, sizes, array.strides[:-1][::-1], box, tiled, steps)
                title = f"{'reduce' if name else 'store'} {opcode} {element or kind} {sizes} {box} at {corner}"
                yield _box_case(title, opcode, text, tensor, corner, (image, image), (array, after))


def box_options(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """Padded rows, steps between elements, and NaN outside."""
    padded = rng.integers(-9, 9, (10, 24)).astype(np.float32)
    opcode = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    for nan_fill, steps in itertools.product((False, True), ((1, 1), (1, 2), (2, 3))):
        given = steps
        box, corner = (16, 8), (8, 4)
        steps = (1, steps[1])  # the driver ignores steps within rows
        counts = tuple(-(-b // s) for b, s in zip(box, steps, strict=True))
        tile = np.full(counts[::-1], np.nan if nan_fill else 0, np.float32)
        for row, column in itertools.product(range(counts[1]), range(counts[0])):
            y, x = corner[1] + row * steps[1], corner[0] + column * steps[0]
            if x < 20 and y < 10:
                tile[row, column] = padded[y, x]
        tensor = ("float32", (20, 10), (96,), box, 0, given, nan_fill)
        image = tile.ravel()
        text = tensor_text(2, tile.nbytes, opcode, load=True)
        name = f"load {opcode} padded rows, steps {given}, {'NaN' if nan_fill else 'zero'} outside"
        yield _box_case(name, opcode, text, tensor, corner, (np.zeros_like(image), image), (padded, padded))
    values = rng.standard_normal((4, 64)).astype(np.float32)
    values[0, ::2] *= np.float32(2.0**-127)  # subnormal, most of them
    values[1, :9] = np.inf, -np.inf, 0, -0.0, np.nan, *(1 + np.array([1, 3, 5, 1 + 2**-9]) * 2.0**-11)  # and ties
    for element in ("float32_ftz", "tfloat32", "tfloat32_ftz"):
        image = values.view(np.uint32).copy()
        if element.endswith("ftz"):
            image = np.where(image & 0x7F800000, image, image & 0x80000000)
        if element.startswith("tf"):
            finite = (image & 0x7F800000) != 0x7F800000
            image = np.where(finite, (image + 0xFFF + (image >> 13 & 1)) & 0xFFFFE000, image)
        image = image.astype(np.uint32).ravel()
        text = tensor_text(2, image.nbytes, opcode, load=True)
        tensor = (element, (64, 4), (256,), (64, 4), 0, (1, 1), False)
        yield _box_case(
            f"load {opcode} as {element}", opcode, text, tensor, (0, 0), (np.zeros_like(image), image), (values, values)
        )
