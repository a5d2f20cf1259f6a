"""Textures and surfaces of arrays: the header whose address is the object that a kernel is given.

``engine/texture.hpp`` lays it out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .memory import Allocation
from .values import Array

__all__ = ["SurfaceOf", "TextureOf", "texture_header"]

_LAYOUT = "<4Q4I10B2x4f52x"
_MAGIC = 0x7463656A626F7874
_MODES = ("wrap", "clamp", "mirror", "border")
_KINDS = {"u": 0, "i": 1, "f": 2}
_MOST_DIMENSIONS = 3


@dataclass(frozen=True, slots=True)
class SurfaceOf:
    """A surface over an array: an argument of type ``cudaSurfaceObject_t``.

    ``array`` is one of NumPy (or ``Output``, or ``Strided``), of shape (width), (height, width) or (depth, height,
    width). With ``layered`` the first dimension counts layers. ``channels``, 1, 2 or 4: the last dimension holds so
    many of each texel. Elements are integers of 1, 2 or 4 bytes, or float16 or float32.
    """

    array: Any
    layered: bool = False
    channels: int = 1


@dataclass(frozen=True, slots=True)
class TextureOf(SurfaceOf):
    """A texture over an array: an argument of type ``cudaTextureObject_t``. The array is as that of ``SurfaceOf``.

    ``linear``: reads are filtered; the fractions have 8 bits, as the CUDA programming guide says, here rounded to
    nearest. ``address``: what a coordinate outside means, ``"clamp"``, ``"border"`` (zeros), or with normalised
    coordinates ``"wrap"`` or ``"mirror"``. ``normalized``: coordinates run from 0 to 1. ``fraction``: integers of 1
    or 2 bytes are read as floats from 0 or -1 to 1 (``cudaReadModeNormalizedFloat``).
    """

    linear: bool = False
    address: str = "clamp"
    normalized: bool = False
    fraction: bool = False


def texture_header(allocation: Allocation, array: Array, strides: Sequence[int], spec: SurfaceOf) -> bytes:
    """The header of an object over an array with these strides in bytes. Raises ``ValueError`` for one that CUDA
    would refuse."""
    kind, bits = array.dtype.kind, 8 * array.itemsize
    if kind not in _KINDS or bits > 32 or (kind == "f" and bits == 8):
        raise ValueError(f"texels are integers of 1, 2 or 4 bytes, float16 or float32, not {array.dtype}")
    shape, steps = [*array.shape], [*strides]
    if spec.channels != 1:
        if spec.channels not in (2, 4) or shape[-1] != spec.channels:
            raise ValueError(f"the last dimension holds 2 or 4 channels: {spec.channels} are asked for, of {shape}")
        shape, steps = shape[:-1], steps[:-1]
    layers = shape[0] if spec.layered else 0
    slice_bytes = steps[0] if spec.layered or len(shape) == _MOST_DIMENSIONS else 0
    extent = shape[1:] if spec.layered else shape
    most = _MOST_DIMENSIONS - spec.layered
    if not 1 <= len(extent) <= most:
        raise ValueError(f"it has 1 to {most} dimensions beside layers and channels, not {len(extent)}")
    texel = array.itemsize * spec.channels
    if steps[-1] != texel:
        raise ValueError(f"texels of a row lie {steps[-1]} bytes apart; they are packed, {texel} bytes each")
    pitch = steps[-2] if len(extent) > 1 else 0
    texture = spec if isinstance(spec, TextureOf) else TextureOf(spec.array)
    if texture.address not in _MODES:
        raise ValueError(f"there is no address mode {texture.address!r}; the modes are {', '.join(_MODES)}")
    if texture.address in ("wrap", "mirror") and not texture.normalized:
        raise ValueError(f"the address mode {texture.address} needs normalised coordinates")
    if texture.fraction and (kind == "f" or bits > 16):
        raise ValueError(f"integers of 1 or 2 bytes are read as fractions, not {array.dtype}")
    if texture.linear and kind != "f" and not texture.fraction:
        raise ValueError("floats are filtered; integers of 1 or 2 bytes only as fractions")
    widths = [*extent[::-1], 1, 1][:3]
    numbers = (_MAGIC, allocation.address, pitch, slice_bytes, *widths, layers, _KINDS[kind], spec.channels, bits)
    mode = _MODES.index(texture.address)
    flags = (not isinstance(spec, TextureOf), mode, mode, mode, texture.linear, texture.normalized, texture.fraction)
    return struct.pack(_LAYOUT, *numbers, *flags, 0.0, 0.0, 0.0, 0.0)
