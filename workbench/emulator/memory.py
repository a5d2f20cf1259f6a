"""Global memory of the emulated device: arrays, and tensor maps of them."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

# ------------------------------------------------------------------------------------------------------- an array in it


@dataclass(eq=False, slots=True)
class Allocation:
    """A piece of global memory, which may have been freed since.

    ``data``: its bytes; ``written``: for each byte, 1 where something has been stored, or None when that is everywhere.
    ``element_size`` and ``shape`` serve to name elements in findings. ``identity`` is a number that the same memory of
    the host has in another ``Memory``, where launches of a ``Series`` are on several. ``is_heap``: `malloc` of kernels
    takes its blocks here. ``is_constant``: it is a variable in ``.const``."""

    address: int
    nbytes: int
    name: str
    element_size: int
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8] = field(repr=False)
    written: npt.NDArray[np.uint8] | None = field(repr=False)
    writable: bool = True
    freed: bool = False
    identity: int = 0
    is_heap: bool = False
    is_constant: bool = False
    handed: Any = field(default=None, init=False, repr=False)  # as the engine was given it last; see execution

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + self.nbytes

    def __int__(self) -> int:
        return self.address

    def element(self, address: int) -> str:
        """``B[3][7]`` for the element at an address; an index without bounds where the address is outside."""
        index, byte = divmod(address - self.address, self.element_size)
        inside = 0 <= address - self.address < self.nbytes
        if inside and len(self.shape) > 1 and prod(self.shape) * self.element_size == self.nbytes:
            position = "".join(f"[{int(i)}]" for i in np.unravel_index(index, self.shape))
        else:
            position = f"[{index}]"
        return f"{self.name}{position}" + (f" (byte {byte} of the element)" if byte else "")


# ---------------------------------------------------------------------------------------------------------- tensor maps
# The rules are those of ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col``, and each complaint says what would
# be right.

# name: (value of CUtensorMapDataType, bytes of an element, or of a unit of packed ones)
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
    "16u4_align8b": (13, 1),
    "16u4_align16b": (14, 8),
    "16u6_align16b": (15, 12),
}
UNITS = {"16u4_align8b": (2, 0), "16u4_align16b": (16, 8), "16u6_align16b": (16, 4)}
"""Of packed types: elements of a unit, whose bytes are those of the type, and bytes behind it in shared memory."""

_BY_BYTES = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
SWIZZLES = (0, 32, 64, 128, "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
_WITH_GAPS = (0, 128, "128B_ATOM_32B")


@dataclass(frozen=True, slots=True)
class PixelBox:
    """The box of an im2col map: ``channels`` elements of each of ``pixels`` pixels.

    The first pixel of a tile, and after it the others, run through a bounding box in all dimensions but the innermost
    (channels) and the outermost (images): from ``lower`` (counted from the first element) to ``upper`` (counted from
    the last), both included. Negative numbers reach over the lower edge, or stay away from the upper one.

    ``wide``: a box for the modes ``im2col::w`` and ``im2col::w::128``, as ``cuTensorMapEncodeIm2colWide`` makes it. It
    has one corner each, in the dimension next to the channels: pixels run along that one alone."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    wide: bool = False


@dataclass(frozen=True, slots=True, init=False)
class TensorMap:
    """A tiled tensor map, or with a ``PixelBox`` an im2col one. The innermost dimension is first, as in the driver's.

    ``address``: of the tensor in global memory, an ``int`` or an ``Allocation``; ``shape``: elements in each of 1 to
    5 dimensions; ``strides``: bytes from one element to the next in every dimension but the innermost; ``box``:
    elements moved at once; ``element_strides``: steps between elements taken; ``swizzle``: 0, 32, 64 or 128 bytes, or
    the driver's name of one of 128 bytes with another atomicity, such as ``128B_ATOM_32B``; ``element_type`` matters to
    reductions and to ``nan_fill`` and follows from ``element_bytes`` when it is not given. Of packed types, such as
    ``16u4_align8b``, ``shape`` and ``box`` count single elements, and ``element_bytes`` are those of a unit: ``UNITS``.
    Elements out of bounds read as zero, or as NaN with ``nan_fill``. Raises ``ValueError`` for a map that the
    driver would refuse."""

    address: int
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int | str
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
        swizzle: int | str = 0,
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
            "swizzle": swizzle,
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
    def unit(self) -> tuple[int, int]:
        """Elements that ``element_bytes`` hold, and bytes behind them in shared memory."""
        return UNITS.get(self.element_type, (1, 0))

    @property
    def swizzle_bytes(self) -> int:
        """Bytes in which the swizzle exchanges pieces."""
        return self.swizzle if isinstance(self.swizzle, int) else 128

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy of a whole box writes, and that a barrier must expect."""
        if self.pixel_box is not None:
            return self.element_bytes * self.pixel_box.channels * self.pixel_box.pixels // self.unit[0]
        steps = (1, *self.element_strides[1:])  # the driver ignores the first
        return self.element_bytes * prod(-(-b // s) for b, s in zip(self.box, steps, strict=True)) // self.unit[0]

    @property
    def extent(self) -> int:
        """Bytes from the address to the end of the last element."""
        units = (self.shape[0] // self.unit[0], *self.shape[1:])
        steps = zip(units, (self.element_bytes, *self.strides), strict=True)
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
        (per, gap), grain = self.unit, 32 if self.unit[1] else 16
        if self.address % grain:
            raise ValueError(
                f"the tensor's address {self.address:#x} must be a multiple of {grain} bytes: begin it at an element "
                "that is"
            )
        if self.shape[0] % (128 if gap else per) or (gap and self.box[0] != 128):
            raise ValueError(
                f"rows of {self.element_type} have a multiple of {128 if gap else per} elements"
                f"{', and a box has 128 of them' if gap else ''}; these have {self.shape[0]}, the box {self.box[0]}"
            )
        for dimension, size in enumerate(self.shape):
            if not 1 <= size <= 2**32:
                raise ValueError(f"dimension {dimension} has {size} elements; 1 to 2^32 are allowed")
        for dimension, stride in enumerate(self.strides, start=1):
            least = 0 if self.shape[dimension] == 1 else 1  # where there is nowhere to step
            if stride % grain or not least <= stride < 2**40:
                raise ValueError(
                    f"the stride of dimension {dimension} is {stride} bytes; it must be a positive multiple of {grain} "
                    f"below 2^40: pad rows to {-(-max(stride, 1) // grain) * grain} bytes"
                )
        for dimension, (size, step) in enumerate(zip(self.box, self.element_strides, strict=True)):
            if not 1 <= size <= 256:
                what = f"{size} channels" if self.pixel_box else f"{size} elements in dimension {dimension}"
                raise ValueError(f"the box has {what}; 1 to 256 are allowed: copy more in several boxes")
            if not 1 <= step <= 8:
                raise ValueError(f"the element stride of dimension {dimension} is {step}; 1 to 8 are allowed")
        self._validate_swizzle()
        if self.nan_fill and not self.element_type.startswith(("float", "bfloat", "tfloat")):
            raise ValueError(f"out of bounds elements can be NaN only for a float type, not for {self.element_type}")

    def _validate_swizzle(self) -> None:
        per, gap = self.unit
        unit = self.element_bytes + gap
        inner = self.box[0] * unit // per
        if inner % 16:
            raise ValueError(
                f"the box's inner dimension has {inner} bytes; it must be a multiple of 16 bytes: make the box "
                f"{-(-inner // 16) * 16 * per // unit} elements wide, or a multiple of {16 * per // unit} elements"
            )
        if self.swizzle not in SWIZZLES:
            raise ValueError(f"a swizzle has 0, 32, 64 or 128 bytes, not {self.swizzle}")
        if gap and self.swizzle not in _WITH_GAPS:
            raise ValueError(f"{self.element_type} is loaded with no swizzle, 128 or 128B_ATOM_32B, not {self.swizzle}")
        if self.swizzle and inner > self.swizzle_bytes:
            raise ValueError(
                f"the box's inner dimension has {inner} bytes, more than the swizzle of {self.swizzle_bytes} bytes: "
                f"make the box at most {self.swizzle_bytes * per // unit} elements wide"
            )

    def _validate_pixels(self, box: PixelBox) -> None:
        rank = self.rank
        if rank < 3:
            raise ValueError(f"an im2col map has 3 to 5 dimensions, not {rank}")
        corners = 1 if box.wide else rank - 2
        limit = 1 << (16 // corners - 1)
        for name, corner in (("lower", box.lower), ("upper", box.upper)):
            if len(corner) != corners:
                raise ValueError(
                    f"{name} must list {corners} {'numbers' if corners > 1 else 'number'} for {rank} dimensions, "
                    f"not {len(corner)}"
                )
            for number in corner:
                if not -limit <= number < limit:
                    raise ValueError(f"{name} has {number}; {-limit} to {limit - 1} are allowed in {rank} dimensions")
        sizes = self.shape[1 : 1 + corners]
        for dimension, (size, low, up) in enumerate(zip(sizes, box.lower, box.upper, strict=True), start=1):
            if size + up <= low:
                raise ValueError(
                    f"the box leaves no pixel in dimension {dimension}: it runs from {low} to {size - 1 + up}: "
                    "lower the lower corner, or raise the upper one, which counts from the last element"
                )
        if not 1 <= box.pixels <= 1024:
            raise ValueError(f"the box has {box.pixels} pixels; 1 to 1024 are allowed: copy more in several tiles")


# -------------------------------------------------------------------------------------------- the bytes of a tensor map
# What a driver writes there is not documented; a kernel may only copy it and edit it by ``tensormap.replace``. Here the
# fields lie, little endian, where ``FIELDS`` says: values are those of ``tensormap.replace``, but for the rank (how
# many dimensions there are) and sizes (less one). ``engine/tensor_bytes.hpp`` reads them.

BYTES = 128

FIELDS = {
    "elemtype": (4, 0, "b8"),
    "rank": (5, 0, "b8"),
    "swizzle_mode": (6, 0, "b8"),
    "fill_mode": (7, 0, "b8"),
    "global_address": (8, 0, "b64"),
    "global_dim": (16, 4, "b32"),
    "interleave_layout": (36, 0, "b8"),
    "global_stride": (40, 8, "b64"),
    "box_dim": (72, 2, "b16"),
    "element_stride": (82, 1, "b8"),
    "swizzle_atomicity": (87, 0, "b8"),
}
"""By field: where it begins, bytes from one dimension to the next, and the type that is stored."""

_ELEMENT_TYPES = (
    *("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz", "float64"),
    *("bfloat16", "tfloat32", "tfloat32_ftz", *UNITS),
)


def tensor_bytes(tensor: TensorMap) -> bytes:
    """A tensor map as a kernel finds it in its parameters or in memory."""
    data = bytearray(BYTES)
    swizzle = SWIZZLES.index(tensor.swizzle)
    data[4:8] = bytes([_ELEMENT_TYPES.index(tensor.element_type), tensor.rank, min(swizzle, 3), tensor.nan_fill])
    data[87] = max(swizzle - 3, 0)
    struct.pack_into("<Q", data, 8, tensor.address)
    for d in range(tensor.rank):
        struct.pack_into("<I", data, 16 + 4 * d, tensor.shape[d] - 1)
        struct.pack_into("<H", data, 72 + 2 * d, tensor.box[d])
        data[82 + d] = tensor.element_strides[d]
    for d, stride in enumerate(tensor.strides):
        struct.pack_into("<Q", data, 40 + 8 * d, stride)
    if tensor.pixel_box is not None:
        data[37] = tensor.pixel_box.wide
        struct.pack_into("<H", data, 38, tensor.pixel_box.pixels)
        for d, (low, up) in enumerate(zip(tensor.pixel_box.lower, tensor.pixel_box.upper, strict=True)):
            struct.pack_into("<h", data, 88 + 2 * d, low)
            struct.pack_into("<h", data, 94 + 2 * d, up)
    return bytes(data)


# ----------------------------------------------------------------------------------------------- the memory of a device
# Every allocation has storage of its own and an address far from its neighbours, so that an index past its end, even by
# a row, falls between allocations and is found. Storage is shared with the engine: a launch writes into it directly.

FIRST_ADDRESS = 0x7A00_0000_0000
"""Of all memory."""

LARGE = 1 << 26
"""Bytes from which on memory is not touched where no kernel touches it."""

_RED_ZONE = 1 << 20

HEAP, HEAP_BYTES = "%heap", 1 << 26
"""Of `malloc` in kernels: the variable, and bytes of it. No address is given out twice."""

_HEAP_HEAD = 32


class Memory:
    """Emulated global memory. Allocations live until they are freed; launches read and write them in place.

    Memories with different ``place`` give different addresses to the same allocations."""

    def __init__(self, place: int = 0) -> None:
        self._addresses: list[int] = []
        self._allocations: list[Allocation] = []
        self._freed: list[Allocation] = []
        self._next = FIRST_ADDRESS + place * _RED_ZONE
        self.tensor_maps: dict[int, TensorMap] = {}
        self.modules: dict[Any, dict[str, Allocation]] = {}  # variables of the programs that have been loaded

    def allocate(
        self,
        nbytes: int,
        name: str = "",
        *,
        align: int = 256,
        element_size: int = 4,
        shape: Sequence[int] | None = None,
        writable: bool = True,
        room: tuple[int, int] = (0, 0),
        data: npt.NDArray[np.uint8] | None = None,
    ) -> Allocation:
        """Uninitialised memory of ``nbytes`` bytes at an address that is a multiple of ``align``.

        ``data`` is where its bytes lie; None stands for storage of its own.
        Nothing else is given addresses that lie less than ``room`` bytes before it or behind it."""
        if nbytes < 0 or align < 1 or align & (align - 1):
            raise ValueError(
                f"an allocation has a size and an alignment that is a power of two, not {nbytes} and {align}"
            )
        address = -(-(self._next + room[0]) // max(align, 256)) * max(align, 256)
        if align < 256:  # no better aligned than asked for, so that a kernel that hopes for more is found
            address += align
        self._next = address + nbytes + max(_RED_ZONE, nbytes, room[1])
        allocation = Allocation(
            address,
            nbytes,
            name or f"allocation {len(self._addresses)}",
            element_size,
            tuple(shape) if shape is not None else (nbytes // element_size,),
            self.storage(address, nbytes) if data is None else data,
            np.zeros(nbytes, np.uint8),
            writable,
        )
        self._addresses.append(address)
        self._allocations.append(allocation)
        return allocation

    def heap(self) -> Allocation:
        """The heap of `malloc` in kernels, which the first program that has one places; see `engine/heap.cpp`."""
        found = next((allocation for allocation in self._allocations if allocation.is_heap), None)
        if found is None:
            found = self.allocate(HEAP_BYTES, "the heap", element_size=1)
            found.is_heap = True
            found.data[:_HEAP_HEAD] = 0
        return found

    def skip(self, nbytes: int) -> None:
        """Leaves so many bytes more between the last allocation and the next one."""
        self._next += nbytes

    def across(self, border: int, nbytes: int) -> None:
        """Leaves so much more that about ``nbytes`` of the next allocation lie before a multiple of ``border``."""
        self._next += -(self._next + nbytes) % border

    def storage(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Where the bytes of a new allocation lie."""
        return _aligned_bytes(nbytes)

    def upload(self, array: npt.NDArray[Any] | TensorMap, name: str = "", *, writable: bool = True) -> Allocation:
        """A copy of an array's bytes in C order. A ``TensorMap`` is placed so that a kernel can take it by pointer."""
        if isinstance(array, TensorMap):
            allocation = self.allocate(128, name, align=256, element_size=128, writable=False)
            self.tensor_maps[allocation.address] = array
            allocation.data[:128] = list(tensor_bytes(array))
            allocation.written = None
            return allocation
        array = np.asarray(array, order="C")
        allocation = self.allocate(
            array.nbytes, name, element_size=array.itemsize, shape=array.shape, writable=writable
        )
        self.write(allocation, array)
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Frees memory: a later access by a kernel is out of bounds."""
        index = self._addresses.index(allocation.address)
        del self._addresses[index], self._allocations[index]
        allocation.freed, allocation.handed = True, None
        self.tensor_maps.pop(allocation.address, None)
        self._freed.append(allocation)

    def write(self, where: int | Allocation, array: npt.NDArray[Any]) -> None:
        """Stores an array's bytes, in C order, at an allocation's start or at an address inside one."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        allocation, offset = self._at(where, raw.nbytes)
        allocation.data[offset : offset + raw.nbytes] = raw
        if allocation.written is not None:
            allocation.written[offset : offset + raw.nbytes] = 1
            if raw.nbytes == allocation.nbytes:
                allocation.written = None

    def read(
        self, where: int | Allocation, dtype: npt.DTypeLike, shape: int | Sequence[int] | None = None
    ) -> npt.NDArray[Any]:
        """A copy of memory as an array; of the whole allocation when no shape is given."""
        dtype = np.dtype(dtype)
        if shape is None:
            allocation, offset = self._at(where, 0)
            shape = ((allocation.nbytes - offset) // dtype.itemsize,)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = prod(shape) * dtype.itemsize
        allocation, offset = self._at(where, nbytes)
        return allocation.data[offset : offset + nbytes].copy().view(dtype).reshape(shape)

    def initialised(self, allocation: Allocation) -> npt.NDArray[np.bool_]:
        """For each byte, whether something has been stored there."""
        if allocation.written is None:
            return np.ones(allocation.nbytes, np.bool_)
        return allocation.written.astype(np.bool_)

    def copy(self) -> Memory:
        """The same allocations at the same addresses, with copies of their bytes."""
        other = Memory()
        other._next, other._addresses, other._freed = self._next, [*self._addresses], [*self._freed]
        copies = {id(a): replace(a, data=_aligned_bytes(a.nbytes)) for a in self._allocations}
        other._allocations = [*copies.values()]
        for old, new in zip(self._allocations, other._allocations, strict=True):
            new.data[:] = old.data
            new.written = None if old.written is None else old.written.copy()
        other.tensor_maps = dict(self.tensor_maps)
        for program, variables in self.modules.items():
            other.modules[program] = {name: copies[id(a)] for name, a in variables.items() if id(a) in copies}
        return other

    def forget(self, allocation: Allocation) -> None:
        """Makes memory uninitialised again."""
        allocation.data[:] = 0xFF
        allocation.written = np.zeros(allocation.nbytes, np.uint8)

    def settle(self) -> None:
        """Forgets which bytes have been stored where all of them have: checking nothing is faster."""
        for allocation in self._allocations:
            if allocation.written is not None and allocation.written.all():
                allocation.written = None

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """What is allocated now, by address."""
        return tuple(self._allocations)

    def find(self, address: int) -> Allocation | None:
        """The allocation that the address lies in."""
        index = bisect_right(self._addresses, address) - 1
        if index >= 0 and address < self._allocations[index].end:
            return self._allocations[index]
        return None

    def nearest(self, address: int) -> Allocation | None:
        """The allocation, freed ones included, that the address lies in or is nearest to."""

        def distance(allocation: Allocation) -> tuple[int, bool]:
            return max(allocation.address - address, address - (allocation.end - 1), 0), allocation.freed

        return min((*self._allocations, *self._freed), key=distance, default=None)

    def _at(self, where: int | Allocation, nbytes: int) -> tuple[Allocation, int]:
        address = int(where)
        allocation = where if isinstance(where, Allocation) else self.find(address)
        if allocation is None or allocation.freed:
            raise ValueError(f"nothing is allocated at {address:#x}")
        if address + nbytes > allocation.end:
            raise ValueError(
                f"{nbytes} bytes do not fit into {allocation.name}, which has {allocation.end - address} from there on"
            )
        return allocation, address - allocation.address


def _aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Storage that starts at a multiple of 128 bytes, filled so that floats are NaN and integers -1.

    Much of it is zeros instead, whose pages cost nothing until they are touched."""
    raw = np.zeros(nbytes + 128, np.uint8) if nbytes >= LARGE else np.full(nbytes + 128, 0xFF, np.uint8)
    start = -raw.ctypes.data % 128
    return raw[start : start + nbytes]
