"""What a parameter of a kernel is given: arrays, and what is made of them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .launch_checks import ArgumentError
from .memory import Allocation, PixelBox

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Output:
    """An array that the kernel should fill: reading an element before one was stored is a hazard.

    ``array`` is one of NumPy, or a tensor of PyTorch in the CPU's memory. After the launch it holds what was stored;
    elements where nothing was stored keep their value."""

    array: Any

    def __post_init__(self) -> None:
        array = numpy_array(self.array)
        if array is None:
            raise ArgumentError(f"an Output holds a NumPy array, not {type(self.array).__name__}")
        if not array.flags.writeable:
            raise ArgumentError("an Output's array must be writeable")


@dataclass(frozen=True, slots=True)
class Strided:
    """An array that is passed with its strides as they are, such as a part of a wider matrix.

    The kernel gets a pointer to the first element, and the others lie as far behind it as in ``array``; what lies
    between them holds no value. A bare array is passed packed, in C order. Strides must not be negative."""

    array: Any

    def __post_init__(self) -> None:
        array = numpy_array(self.array)
        if array is None:
            raise ArgumentError(f"Strided holds a NumPy array, not {type(self.array).__name__}")
        if any(stride < 0 for stride in array.strides):
            raise ArgumentError(f"the strides {array.strides} of a Strided array must not be negative")


@dataclass(frozen=True, slots=True)
class TensorMapOf:
    """A tensor map over an array: an argument of type ``const __grid_constant__ CUtensorMap``.

    ``array`` is an array (or ``Output``, or ``Strided``, whose strides the map takes), or the name of one among the
    arguments. ``box`` has the elements of a tile in each dimension, and ``shape`` those that the map covers (all of
    the array's when None), both in the array's order: outermost first. A ``PixelBox`` as the box, outermost first
    too, makes it an im2col map. ``swizzle`` is 0, 32, 64 or 128 bytes. The element type follows from the array's;
    ``nan_fill`` and ``element_strides`` are those of ``TensorMap``."""

    array: Any
    box: Sequence[int] | PixelBox
    swizzle: int = 0
    shape: Sequence[int] | None = None
    element_strides: Sequence[int] | None = None
    nan_fill: bool = False


class Struct(dict[str, Any]):
    """A struct of C++: its members by name, in their order; each is aligned as in C++.

    A member is an ``Argument``: an array (a pointer to it), a NumPy number (of its type), a Python number (``int`` or
    ``float`` of C++, of 4 bytes, and ``bool``), a ``TensorMapOf``, bytes, None, or another ``Struct``; a tuple is an
    array among the members."""


Argument = Any
"""What a parameter of a kernel is given:

- an array of any dtype and shape: its elements are copied to emulated memory in C order, and back into the array after
  the launch. An array that is not writeable is one that the kernel must not write. The same array twice is the same
  memory twice. A tensor of PyTorch in the CPU's memory works, too;
- ``Output(array)``: the same, and nothing has been stored there yet; ``Strided(array)``: with its strides kept;
- ``TensorMapOf(array, box)``: a tensor map by value;
- ``TextureOf(array)`` and ``SurfaceOf(array)``: objects of textures and surfaces;
- a number, Python's or NumPy's, which is converted to the parameter's type where that keeps its value (floats are
  rounded); bytes or a ``np.void`` for a struct; None for a null pointer;
- a ``Struct`` (or a dict) by value;
- a list: a pointer to memory where its members lie one after the other, such as pointers to arrays, tensor maps, or
  one ``Struct``.
"""


def numpy_array(value: Any) -> Array | None:
    """The NumPy array, or one that shares the memory of a tensor of PyTorch; None for anything else.

    Types that NumPy does not have are unsigned integers of as many bytes. Raises ``ArgumentError`` for a tensor that
    does not lie in the CPU's memory."""
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.partition(".")[0] != "torch" or not hasattr(value, "data_ptr"):
        return None
    device = value.untyped_storage().device  # what it is, also where tensors seem to lie on a GPU that is emulated
    if str(device) != "cpu":
        raise ArgumentError(f"a tensor lies on {device}; the emulator takes those of the CPU: tensor.cpu()")
    tensor = value.detach()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:  # a type that NumPy does not have
        torch = sys.modules["torch"]
        same = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        array: Array = tensor.view(same).numpy()
        return array.view(f"u{array.itemsize}")


def element_type_of(value: Any, array: Array) -> str:
    """The name of an array's type: PyTorch's where it is a tensor."""
    if isinstance(value, np.ndarray):
        return str(array.dtype.name)
    return str(value.dtype).rpartition(".")[2]


def members(value: Mapping[str, Any] | Sequence[Any]) -> list[tuple[str, Any]]:
    """The members of a struct or of a list, with what is put behind its name to name them."""
    if isinstance(value, Mapping):
        return [(f".{name}", member) for name, member in value.items()]
    return [(f"[{number}]", member) for number, member in enumerate(value)]


# ---------------------- textures and surfaces of arrays: the header whose address is the object that a kernel is given

# ``engine/texture.hpp`` lays it out.


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
    many of each texel. Elements are integers of 1, 2 or 4 bytes, or float16 or float32."""

    array: Any
    layered: bool = False
    channels: int = 1


@dataclass(frozen=True, slots=True)
class TextureOf(SurfaceOf):
    """A texture over an array: an argument of type ``cudaTextureObject_t``. The array is as that of ``SurfaceOf``.

    ``linear``: reads are filtered; the fractions have 8 bits, as the CUDA programming guide says, here rounded to
    nearest. ``address``: what a coordinate outside means, ``"clamp"``, ``"border"`` (zeros), or with normalised
    coordinates ``"wrap"`` or ``"mirror"``. ``normalized``: coordinates run from 0 to 1. ``fraction``: integers of 1
    or 2 bytes are read as floats from 0 or -1 to 1 (``cudaReadModeNormalizedFloat``)."""

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
