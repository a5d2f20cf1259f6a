"""Tensor maps: TMA descriptors over the arrays of a launch, as a stage declares them. Knows neither arrays nor devices.

A stage writes a `TensorMap`; `TensorMap.over` lays it over the shape and strides of its array, and what comes out is
what both the driver and the emulator are given. Dimensions stand outermost first in a `TensorMap`, as in NumPy, and
innermost first in a `TensorLayout`, as in the driver's functions."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from .dtypes import FP32, TF32, DType

MOST_DIMENSIONS = 5

SWIZZLES = (0, 32, 64, 128)
PROMOTIONS = (0, 64, 128, 256)


@dataclass(frozen=True)
class Im2col:
    """The box of an im2col map (`cuTensorMapEncodeIm2col`): `channels` elements of each of `pixels` pixels.

    The map has 3 to 5 dimensions: images, one to three of space, channels. In the dimensions of space, pixels run
    through a bounding box, and then through that of the next image. The box goes from `lower`, counted from the first
    element, to `upper`, counted from the last element, both included. For a convolution, `lower` is minus the padding,
    and `upper` is padding - dilation (taps - 1). The offsets of a copy then select a tap of the filter.
    `TensorMap.element_strides` are the strides of the convolution."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True)
class TensorMap:
    """A TMA descriptor of 1 to 5 dimensions over an array argument, passed by value as a `CUtensorMap`.

    `box` has the elements of a tile in each dimension, outermost first, or is an `Im2col`. `swizzle` is the bytes of
    the swizzle pattern (0, 32, 64 or 128). `promotion` is the bytes that a GPU's L2 fetches from memory at least (0,
    64, 128 or 256; of 256, 128 where not all rows begin at multiples of 256): results do not depend on it.
    `element_strides` are steps between the elements of a box, 1 to 8 in each dimension; that of the innermost is
    ignored. Elements outside the tensor read as `fill`. `element_type` is that of the array unless it says `tf32`,
    which rounds fp32 as it is loaded.

    The map covers the array. Where the box has fewer dimensions, the outermost ones of the array are flattened into
    one (they have to lie evenly); where it has more, dimensions of one element come first. Another view of the array
    has a `shape`, which is a reshape of the array without copies or, with `strides` (elements, outermost first), any
    view that begins `offset` elements behind the first."""

    array: str
    box: tuple[int, ...] | Im2col
    swizzle: int = 128
    promotion: int = 256
    element_strides: tuple[int, ...] | None = None
    fill: Literal["zero", "nan"] = "zero"
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    offset: int = 0
    element_type: Literal["tf32"] | None = None

    @property
    def rank(self) -> int:
        """Dimensions of the map, as its box says."""
        return len(self.box.lower) + 2 if isinstance(self.box, Im2col) else len(self.box)

    def over(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, elements: int) -> TensorLayout:
        """The map over an array of this shape and these strides (in elements), whose storage has so many elements.

        Raises ValueError for a view that the array does not have; what TMA cannot do with one is not asked here."""
        size, box = dtype.nbytes, self.box
        self._check_fields()
        sizes, steps = self._view(shape, strides, elements)
        if steps[-1] != 1 and sizes[-1] != 1:
            raise ValueError(
                f"the innermost dimension has a stride of {steps[-1]} elements, and TMA reads it contiguously: name "
                "the dimension whose stride is 1 last in shape and strides"
            )
        if isinstance(box, Im2col):
            box = Im2col(box.lower[::-1], box.upper[::-1], box.channels, box.pixels)
        return TensorLayout(
            offset=size(self.offset),
            element_type=self._element_type(dtype),
            element_bytes=dtype.itemsize,
            sizes=sizes[::-1],
            strides=tuple(
                # the stride of a single element is never used: any that the driver takes will do
                size(step) if extent > 1 else -(-max(size(step), 1) // 16) * 16
                for extent, step in zip(sizes[-2::-1], steps[-2::-1], strict=True)
            ),
            box=box if isinstance(box, Im2col) else box[::-1],
            element_strides=(self.element_strides or (1,) * len(sizes))[::-1],
            swizzle=self.swizzle,
            promotion=self._promotion(
                [size(step) for extent, step in zip(sizes[:-1], steps[:-1], strict=True) if extent > 1]
            ),
            nan_fill=self.fill == "nan",
        )

    def _check_fields(self) -> None:
        if not 1 <= self.rank <= MOST_DIMENSIONS:
            raise ValueError(f"a tensor map has 1 to {MOST_DIMENSIONS} dimensions, not {self.rank}")
        if isinstance(self.box, Im2col) and len(self.box.upper) != len(self.box.lower):
            raise ValueError(f"lower {self.box.lower} and upper {self.box.upper} have different dimensions")
        if self.element_strides is not None and len(self.element_strides) != self.rank:
            raise ValueError(f"the box has {self.rank} dimensions and {len(self.element_strides)} element strides")
        if self.fill not in ("zero", "nan"):
            raise ValueError(f"elements outside read as zero or as nan, not as {self.fill!r}")
        if self.swizzle not in SWIZZLES:
            raise ValueError(f"a swizzle has 0, 32, 64 or 128 bytes, not {self.swizzle}")
        if self.promotion not in PROMOTIONS:
            raise ValueError(f"the L2 is promoted to fetch 0, 64, 128 or 256 bytes, not {self.promotion}")

    def _promotion(self, strides: list[int]) -> int:
        """Of rows that begin anywhere, 256 bytes would mostly be fetched twice, for one copy and for the next: 20.9 GB
        instead of 4.2 for a product of 9868x15064x14232 (counters of an H100)."""
        return min(self.promotion, 256 if all(stride % 256 == 0 for stride in strides) else 128)

    def _element_type(self, dtype: DType) -> str:
        if not dtype.tensor_map:
            raise ValueError(f"elements of type {dtype} have {dtype.itemsize} bytes; TMA moves 1, 2, 4 or 8")
        if self.element_type is None:
            return dtype.tensor_map
        if self.element_type != TF32.name or dtype is not FP32:
            raise ValueError(f"elements of type {dtype} cannot be loaded as {self.element_type}: only fp32 as tf32")
        return TF32.tensor_map

    def _view(
        self, shape: tuple[int, ...], strides: tuple[int, ...], elements: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides in elements of what the map covers, outermost first."""
        if self.shape is None:
            if self.strides is not None or self.offset:
                raise ValueError("strides and an offset describe a view: give its shape, too")
            return _of_rank(self.rank, shape, strides)
        if len(self.shape) != self.rank:
            raise ValueError(f"the view has {len(self.shape)} dimensions and the box {self.rank}; give both the same")
        if self.strides is None:
            if self.offset:
                raise ValueError("an offset leaves no reshape of the whole array: give the strides of the view, too")
            return self.shape, _reshaped(self.shape, shape, strides)
        if len(self.strides) != self.rank:
            raise ValueError(f"the view has {self.rank} dimensions and {len(self.strides)} strides; give one for each")
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if self.offset < 0 or min(self.strides) < 0 or last >= elements:
            raise ValueError(
                f"the view runs from element {self.offset} to {last}, and the storage of the array has {elements} "
                "elements: compare shape, strides and offset with it"
            )
        return self.shape, self.strides


@dataclass(frozen=True)
class TensorLayout:
    """A tensor map as the driver's functions take it: sizes in elements, strides and offset in bytes, innermost first.

    `strides` has none for the innermost dimension. `offset` is where the tensor begins in the array. The element types
    are named as the emulator names them."""

    offset: int
    element_type: str
    element_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] | Im2col
    element_strides: tuple[int, ...]
    swizzle: int
    promotion: int
    nan_fill: bool

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)


def _of_rank(rank: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides with so many dimensions: outer ones flattened, or ones added before them."""
    missing = rank - len(shape)
    if missing >= 0:
        outer = shape[0] * strides[0] if shape else 1
        return (1,) * missing + shape, (outer,) * missing + strides
    flat = (prod(shape[: 1 - missing]), *shape[1 - missing :])
    try:
        return flat, _reshaped(flat, shape, strides)
    except ValueError:
        raise ValueError(
            f"the box has {rank} dimensions and the array {len(shape)}, whose outer ones do not lie evenly (strides "
            f"{strides}): give the box {len(shape)} dimensions, or a shape and strides of the view"
        ) from None


def _reshaped(new: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a reshape to `new` that copies nothing. Raises ValueError where there is none."""
    if prod(new) != prod(shape) or min(new, default=1) < 1:
        raise ValueError(f"the view's shape {new} has {prod(new)} elements, the array's {shape} has {prod(shape)}")
    old = [(n, step) for n, step in zip(shape, strides, strict=True) if n > 1]
    runs: list[list[int]] = []  # innermost first: elements that lie evenly, and their stride
    for extent, step in reversed(old):
        if runs and step == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= extent
        else:
            runs.append([extent, step])
    found: list[int] = []
    run, taken = 0, 1  # of the run so many elements are covered
    for extent in reversed(new):
        if run < len(runs) and taken == runs[run][0] and extent > 1:
            run, taken = run + 1, 1
        found.append(runs[run][1] * taken if run < len(runs) else 1)
        taken *= extent
        if run < len(runs) and runs[run][0] % taken:
            raise ValueError(
                f"an array of shape {shape} and strides {strides} cannot be seen as {new} without a copy: give the "
                "strides of the view"
            )
    return tuple(found[::-1])
