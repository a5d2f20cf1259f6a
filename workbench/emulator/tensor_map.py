"""Tensor maps: what a bulk tensor copy knows of the array that it moves boxes of.

The rules are those of ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col``, and each complaint says what would be
right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from .allocation import Allocation

__all__ = ["ELEMENT_TYPES", "PixelBox", "TensorMap"]

# name: (value of CUtensorMapDataType, bytes)
ELEMENT_TYPES = {
    "uint8": (0, 1),
    "uint16": (1, 2),
    "uint32": (2, 4),
    "int32": (3, 4),
    "uint64": (4, 8),
    "int64": (5, 8),
    "float16": (6, 2),
    "float32": (7, 4),
    "float64": (8, 8),
    "bfloat16": (9, 2),
    "float32_ftz": (10, 4),
    "tfloat32": (11, 4),
    "tfloat32_ftz": (12, 4),
}
_BY_BYTES = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class PixelBox:
    """The box of an im2col map: ``channels`` elements of each of ``pixels`` pixels.

    The first pixel of a tile, and after it the others, run through a bounding box in all dimensions but the innermost
    (channels) and the outermost (images): from ``lower`` (counted from the first element) to ``upper`` (counted from
    the last), both included. Negative numbers reach over the lower edge, or stay away from the upper one.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True, slots=True, init=False)
class TensorMap:
    """A tiled tensor map, or with a ``PixelBox`` an im2col one. The innermost dimension is first, as in the driver's.

    ``address``: of the tensor in global memory, an ``int`` or an ``Allocation``; ``shape``: elements in each of 1 to
    5 dimensions; ``strides``: bytes from one element to the next in every dimension but the innermost; ``box``:
    elements moved at once; ``element_strides``: steps between elements taken; ``swizzle``: 0, 32, 64 or 128 bytes;
    ``element_type`` matters to reductions and to ``nan_fill`` and follows from ``element_bytes`` when it is not
    given. Elements out of bounds read as zero, or as NaN with ``nan_fill``. Raises ``ValueError`` for a map that the
    driver would refuse.
    """

    address: int
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int
    nan_fill: bool
    element_type: str
    pixel_box: PixelBox | None

    def __init__(
        self,
        address: int | Allocation,
        element_bytes: int,
        shape: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int] | PixelBox,
        element_strides: Sequence[int] | None = None,
        swizzle: int = 0,
        *,
        nan_fill: bool = False,
        element_type: str | None = None,
    ) -> None:
        pixel_box = box if isinstance(box, PixelBox) else None
        values = {
            "address": address if isinstance(address, int) else address.address,
            "element_bytes": int(element_bytes),
            "shape": tuple(int(n) for n in shape),
            "strides": tuple(int(n) for n in strides),
            "box": (
                (box.channels,) + (1,) * (len(shape) - 1) if isinstance(box, PixelBox) else tuple(int(n) for n in box)
            ),
            "element_strides": tuple(int(n) for n in element_strides or (1,) * len(shape)),
            "swizzle": int(swizzle),
            "nan_fill": bool(nan_fill),
            "element_type": element_type or _BY_BYTES.get(element_bytes, ""),
            "pixel_box": pixel_box,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._validate()
        if pixel_box is not None:
            self._validate_pixels(pixel_box)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy of a whole box writes, and that a barrier must expect."""
        if self.pixel_box is not None:
            return self.element_bytes * self.pixel_box.channels * self.pixel_box.pixels
        steps = (1, *self.element_strides[1:])  # the driver ignores the first
        return self.element_bytes * prod(-(-b // s) for b, s in zip(self.box, steps, strict=True))

    @property
    def extent(self) -> int:
        """Bytes from the address to the end of the last element."""
        steps = zip(self.shape, (self.element_bytes, *self.strides), strict=True)
        return self.element_bytes + sum((n - 1) * stride for n, stride in steps)

    def _validate(self) -> None:
        rank = self.rank
        if not 1 <= rank <= 5:
            raise ValueError(f"a tensor map has 1 to 5 dimensions, not {rank}")
        if self.element_type not in ELEMENT_TYPES:
            known = ", ".join(ELEMENT_TYPES)
            raise ValueError(f"elements have 1, 2, 4 or 8 bytes and one of the types {known}")
        if ELEMENT_TYPES[self.element_type][1] != self.element_bytes:
            raise ValueError(
                f"{self.element_type} has {ELEMENT_TYPES[self.element_type][1]} bytes, not {self.element_bytes}"
            )
        for name, values, count in (
            ("strides", self.strides, rank - 1),
            ("box", self.box, rank),
            ("element_strides", self.element_strides, rank),
        ):
            if len(values) != count:
                raise ValueError(f"{name} must list {count} numbers for {rank} dimensions, not {len(values)}")
        if self.address % 16:
            raise ValueError(
                f"the tensor's address {self.address:#x} must be a multiple of 16 bytes: begin it at an element that is"
            )
        for dimension, size in enumerate(self.shape):
            if not 1 <= size <= 2**32:
                raise ValueError(f"dimension {dimension} has {size} elements; 1 to 2^32 are allowed")
        for dimension, stride in enumerate(self.strides, start=1):
            if stride % 16 or not 0 < stride < 2**40:
                raise ValueError(
                    f"the stride of dimension {dimension} is {stride} bytes; it must be a positive multiple of 16 "
                    f"below 2^40: pad rows to {-(-max(stride, 1) // 16) * 16} bytes"
                )
        for dimension, (size, step) in enumerate(zip(self.box, self.element_strides, strict=True)):
            if not 1 <= size <= 256:
                what = f"{size} channels" if self.pixel_box else f"{size} elements in dimension {dimension}"
                raise ValueError(f"the box has {what}; 1 to 256 are allowed: copy more in several boxes")
            if not 1 <= step <= 8:
                raise ValueError(f"the element stride of dimension {dimension} is {step}; 1 to 8 are allowed")
        inner = self.box[0] * self.element_bytes
        if inner % 16:
            raise ValueError(
                f"the box's inner dimension has {inner} bytes; it must be a multiple of 16 bytes: make the box "
                f"{-(-inner // 16) * 16 // self.element_bytes} elements wide, or a multiple of "
                f"{16 // self.element_bytes} elements"
            )
        if self.swizzle not in _SWIZZLES:
            raise ValueError(f"a swizzle has 0, 32, 64 or 128 bytes, not {self.swizzle}")
        if self.swizzle and inner > self.swizzle:
            raise ValueError(
                f"the box's inner dimension has {inner} bytes, more than the swizzle of {self.swizzle} bytes: make the "
                f"box at most {self.swizzle // self.element_bytes} elements wide"
            )
        if self.nan_fill and not self.element_type.startswith(("float", "bfloat", "tfloat")):
            raise ValueError(f"out of bounds elements can be NaN only for a float type, not for {self.element_type}")

    def _validate_pixels(self, box: PixelBox) -> None:
        rank = self.rank
        if rank < 3:
            raise ValueError(f"an im2col map has 3 to 5 dimensions, not {rank}")
        limit = 1 << (16 // (rank - 2) - 1)
        for name, corner in (("lower", box.lower), ("upper", box.upper)):
            if len(corner) != rank - 2:
                raise ValueError(f"{name} must list {rank - 2} numbers for {rank} dimensions, not {len(corner)}")
            for number in corner:
                if not -limit <= number < limit:
                    raise ValueError(f"{name} has {number}; {-limit} to {limit - 1} are allowed in {rank} dimensions")
        for dimension, (size, low, up) in enumerate(zip(self.shape[1:-1], box.lower, box.upper, strict=True), start=1):
            if size + up <= low:
                raise ValueError(
                    f"the box leaves no pixel in dimension {dimension}: it runs from {low} to {size - 1 + up}: "
                    "lower the lower corner, or raise the upper one, which counts from the last element"
                )
        if not 1 <= box.pixels <= 1024:
            raise ValueError(f"the box has {box.pixels} pixels; 1 to 1024 are allowed: copy more in several tiles")
