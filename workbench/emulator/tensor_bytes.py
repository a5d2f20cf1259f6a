"""The 128 bytes of a tensor map in the emulator, and how instructions edit them.

What a driver writes there is not documented; a kernel may only copy it and edit it by ``tensormap.replace``. Here the
fields lie, little endian, where ``FIELDS`` says: values are those of ``tensormap.replace``, but for the rank (how many
dimensions there are) and sizes (less one). ``engine/tensor_bytes.hpp`` reads them.
"""

from __future__ import annotations

import struct

from .tensor_map import TensorMap

__all__ = ["BYTES", "FIELDS", "tensor_bytes"]

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
}
"""By field: where it begins, bytes from one dimension to the next, and the type that is stored."""

_ELEMENT_TYPES = (
    *("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz", "float64"),
    *("bfloat16", "tfloat32", "tfloat32_ftz"),
)


def tensor_bytes(tensor: TensorMap) -> bytes:
    """A tensor map as a kernel finds it in its parameters or in memory."""
    data = bytearray(BYTES)
    swizzle = (0, 32, 64, 128).index(tensor.swizzle)
    data[4:8] = bytes([_ELEMENT_TYPES.index(tensor.element_type), tensor.rank, swizzle, tensor.nan_fill])
    struct.pack_into("<Q", data, 8, tensor.address)
    for d in range(tensor.rank):
        struct.pack_into("<I", data, 16 + 4 * d, tensor.shape[d] - 1)
        struct.pack_into("<H", data, 72 + 2 * d, tensor.box[d])
        data[82 + d] = tensor.element_strides[d]
    for d, stride in enumerate(tensor.strides):
        struct.pack_into("<Q", data, 40 + 8 * d, stride)
    if tensor.pixel_box is not None:
        struct.pack_into("<H", data, 38, tensor.pixel_box.pixels)
        for d, (low, up) in enumerate(zip(tensor.pixel_box.lower, tensor.pixel_box.upper, strict=True)):
            struct.pack_into("<h", data, 88 + 2 * d, low)
            struct.pack_into("<h", data, 94 + 2 * d, up)
    return bytes(data)
