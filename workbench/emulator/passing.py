"""Arguments on their way to emulated memory and back."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import ptx
from .launch_checks import ArgumentError, StructBytes
from .memory import ELEMENT_TYPES, LARGE, Allocation, Memory, PixelBox, TensorMap
from .program import Entry
from .values import (
    Array,
    Output,
    Strided,
    SurfaceOf,
    TensorMapOf,
    element_type_of,
    members,
    numpy_array,
    texture_header,
)

_MAP_BYTES, _MAP_ALIGN = 128, 64


@dataclass(slots=True)
class _Placed:
    """An array in emulated memory. ``before``: what it held when they were last the same; None where they share bytes,
    as large ones do."""

    given: Any  # kept, so that its identity stays
    array: Array
    allocation: Allocation
    strided: bool
    before: Array | None

    @property
    def places(self) -> Array:
        """The bytes of every element among those of the allocation, of shape (elements, bytes of one)."""
        array = self.array
        offsets = np.zeros(array.shape, np.int64)
        for dimension, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
            shape = [1] * array.ndim
            shape[dimension] = extent
            offsets += (np.arange(extent) * stride).reshape(shape)
        return offsets.reshape(-1, 1) + np.arange(array.itemsize)


@dataclass(slots=True)
class Arguments:
    """Arrays and other values, and where they lie in a memory; several launches may share them."""

    memory: Memory
    placed: dict[int, _Placed] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    _of_launch: dict[int, bool] = field(default_factory=dict)  # arrays of this launch, and which are an Output

    def converted(self, kernel: Entry, given: Mapping[str, Any]) -> list[Any]:
        """The arguments of a kernel as ``execute`` takes them. Raises ``ArgumentError``."""
        self.names.update(given)
        self._of_launch.clear()
        for name, value in given.items():
            if _array_in(value) is not None:
                self.place(name, value)
        parameters: list[ptx.Parameter | None] = [*kernel.parameters]
        parameters += [None] * (len(given) - len(parameters))  # execute says that they are too many
        return [
            self.argument(kernel, name, parameter, value)
            for (name, value), parameter in zip(given.items(), parameters, strict=False)
        ]

    def argument(self, kernel: Entry, name: str, parameter: ptx.Parameter | None, value: Any) -> Any:
        if _array_in(value) is not None:
            return self.place(name, value)
        if isinstance(value, TensorMapOf):
            return self.tensor_map(name, value)
        if isinstance(value, SurfaceOf):
            return self.texture(name, value)
        if isinstance(value, Mapping):
            return self.laid_out(name, value).finished()
        if isinstance(value, list):
            return self.in_memory(name, value)
        return value if parameter is None else _value(kernel, name, parameter, value)

    def in_memory(self, name: str, items: list[Any]) -> Allocation:
        """Puts what a list holds where a kernel can read it by pointer."""
        if not items:
            raise ArgumentError(f"{name} is an empty list: a kernel is given a pointer to something, or None")
        laid = self.laid_out(name, items)
        raw = laid.finished()
        allocation = self.memory.allocate(
            len(raw.raw), name, align=256, element_size=len(raw.raw) // len(items), writable=False
        )
        self.memory.write(allocation, np.frombuffer(raw.raw, np.uint8))
        for offset, tensor in raw.tensor_maps:
            self.memory.tensor_maps[allocation.address + offset] = tensor
        return allocation

    def set_variable(self, allocation: Allocation, variable: ptx.Variable, value: Any) -> None:
        """Gives a variable of a program a value. Raises ``ArgumentError``."""
        name = variable.readable_name
        given = _array_in(value)
        if given is not None:
            array = numpy_array(given)
            assert array is not None
            _require_numbers(name, array)
            raw = np.asarray(array, order="C").tobytes()
            placed = _Placed(given, array, allocation, False, array.copy())
        elif isinstance(value, int | float) and not isinstance(value, np.generic) and variable.type != "b8":
            raw, placed = _scalar(name, variable, value), None
        else:
            raw, placed = (
                self.laid_out(name, (value,) if not isinstance(value, Mapping) else value).finished().raw,
                None,
            )
        if len(raw) != allocation.nbytes:
            raise ArgumentError(f"the variable {name} has {allocation.nbytes} bytes, and {len(raw)} are given for it")
        allocation.data[:] = np.frombuffer(raw, np.uint8)
        if placed is not None and placed.array.flags.writeable and allocation.writable:
            self.placed[id(given)] = placed

    def laid_out(self, name: str, value: Mapping[str, Any] | Sequence[Any]) -> _Layout:
        layout = _Layout(bytearray())
        for behind, member in members(value):
            self.add(layout, name + behind, member)
        return layout

    def add(self, layout: _Layout, name: str, value: Any) -> None:
        """Lays one member of a struct out."""
        if _array_in(value) is not None:
            layout.put(self.place(name, value).address.to_bytes(8, "little"), 8)
        elif isinstance(value, TensorMapOf):
            layout.put(bytes(_MAP_BYTES), _MAP_ALIGN, [(0, self.tensor_map(name, value))])
        elif isinstance(value, SurfaceOf):
            layout.put(self.texture(name, value).to_bytes(8, "little"), 8)
        elif isinstance(value, Mapping | tuple):
            inner = self.laid_out(name, value)
            raw = inner.finished()
            layout.put(raw.raw, inner.align, raw.tensor_maps)
        elif isinstance(value, list):
            layout.put(self.in_memory(name, value).address.to_bytes(8, "little"), 8)
        elif value is None:
            layout.put(bytes(8), 8)
        elif isinstance(value, bytes | bytearray | np.void):
            layout.put(value.tobytes() if isinstance(value, np.void) else bytes(value), 1)
        elif isinstance(value, np.generic):
            layout.put(value.tobytes(), value.dtype.itemsize)
        elif isinstance(value, bool):
            layout.put(bytes([value]), 1)
        elif isinstance(value, int):
            if not -(2**31) <= value < 2**32:
                raise ArgumentError(f"{name}: {value} does not fit into an int; write np.int64({value}) for 8 bytes")
            layout.put((value % 2**32).to_bytes(4, "little"), 4)
        elif isinstance(value, float):
            layout.put(struct.pack("<f", value), 4)
        else:
            raise ArgumentError(f"{name}: {type(value).__name__} is not a member that a struct takes")

    def place(self, name: str, value: Any) -> Allocation:
        """Where an array lies; it is put there where it was not yet."""
        given, output, strided = _array_in(value), isinstance(value, Output), isinstance(value, Strided)
        assert given is not None
        known = self.placed.get(id(given))
        if known is not None:
            if known.strided != strided or self._of_launch.setdefault(id(given), output) != output:
                kind = "an Output" if known.strided == strided else "Strided"
                raise ArgumentError(f"{name} is the array {known.allocation.name}, and only one of them is {kind}")
            self.arrays.setdefault(name, known.array)
            return known.allocation
        self._of_launch[id(given)] = output
        array = numpy_array(given)
        assert array is not None
        for other in self.placed.values():
            if (other.array.flags.writeable or array.flags.writeable) and np.may_share_memory(other.array, array):
                raise ArgumentError(
                    f"{name} and {other.allocation.name} are views of the same memory: pass one array, or a copy of one"
                )
        _require_numbers(name, array)
        shares = not strided and _may_be_shared(array)
        allocation = self.memory.allocate(
            _extent(array) if strided else array.nbytes,
            name,
            element_size=array.itemsize,
            shape=None if strided else array.shape,
            writable=array.flags.writeable,
            data=array.reshape(-1).view(np.uint8) if shares else None,
        )
        placed = self.placed[id(given)] = _Placed(given, array, allocation, strided, None if shares else array.copy())
        self.arrays[name] = array
        if shares and not output:
            allocation.written = None
        elif not output:
            self._store(placed, np.ones(array.shape, np.bool_))
        return allocation

    def tensor_map(self, name: str, spec: TensorMapOf) -> TensorMap:
        target = spec.array
        if isinstance(target, str):
            target = self.names.get(target)
            if _array_in(target) is None:
                listed = ", ".join(self.arrays) or "none"
                raise ArgumentError(
                    f"the tensor map {name} is of {spec.array!r}, and the array arguments are: {listed}"
                )
        elif (known := self.placed.get(id(_array_in(target)))) is not None:
            # the argument is meant, an Output or Strided, when its bare array is named
            target = _as(known, self._of_launch.get(id(known.given), False))
        given = _array_in(target)
        if given is None:
            raise ArgumentError(f"the tensor map {name} is of an array or of an argument's name, not of {target!r}")
        allocation = self.place(f"{name}'s array", target)
        array = self.placed[id(given)].array
        try:
            return _tensor_map(allocation, array, spec, isinstance(target, Strided), element_type_of(given, array))
        except (ValueError, TypeError, OverflowError) as error:
            raise ArgumentError(f"the tensor map {name}: {error}") from None

    def texture(self, name: str, spec: SurfaceOf) -> int:
        """The value of a texture or surface object. Raises ``ArgumentError``."""
        given = _array_in(spec.array)
        if given is None:
            raise ArgumentError(f"the texture {name} is of an array, not of {spec.array!r}")
        known = self.placed.get(id(given))
        allocation = known.allocation if known is not None else self.place(f"{name}'s array", spec.array)
        placed = self.placed[id(given)]
        array = placed.array
        strides = array.strides if placed.strided else np.empty_like(array, order="C").strides
        try:
            header = texture_header(allocation, array, strides, spec)
        except ValueError as error:
            raise ArgumentError(f"{name}: {error}") from None
        return self.memory.upload(np.frombuffer(header, np.uint8), f"the object {name}", writable=False).address

    def refresh(self) -> None:
        """Stores what has changed in arrays since the last launch."""
        for placed in self.placed.values():
            if placed.before is None:
                continue
            changed = _bytes_of(placed.array) != _bytes_of(placed.before)
            if changed.any():
                self._store(placed, changed.any(axis=-1).reshape(placed.array.shape))
                placed.before = placed.array.copy()

    def copy_back(self) -> None:
        """Puts what was stored into the arrays."""
        for placed in self.placed.values():
            array, allocation = placed.array, placed.allocation
            if not array.flags.writeable or not array.size or placed.before is None:
                continue
            places = placed.places if placed.strided else slice(array.nbytes)
            after = allocation.data[places].reshape(-1).view(array.dtype).reshape(array.shape)
            written = None if allocation.written is None else allocation.written[places]
            if written is None or written.all():
                array[...] = after
            else:
                stored = written.reshape(-1, array.itemsize).all(axis=-1).reshape(array.shape)
                array[stored] = after[stored]
            placed.before = array.copy()

    def _store(self, placed: _Placed, chosen: Array) -> None:
        """Stores the chosen elements of an array."""
        array, allocation = placed.array, placed.allocation
        if not placed.strided and chosen.all():
            self.memory.write(allocation, array)
            return
        places = placed.places if placed.strided else np.arange(array.nbytes).reshape(-1, array.itemsize)
        rows = places[chosen.reshape(-1)]
        allocation.data[rows] = _bytes_of(array)[chosen.reshape(-1)]
        if allocation.written is not None:
            allocation.written[rows] = 1


@dataclass(slots=True)
class _Layout:
    """A struct that grows by members, each at its alignment."""

    raw: bytearray
    align: int = 1
    tensor_maps: list[tuple[int, TensorMap]] = field(default_factory=list)

    def put(self, raw: bytes, align: int, tensor_maps: Sequence[tuple[int, TensorMap]] = ()) -> None:
        self.align = max(self.align, align)
        self.raw += bytes(-len(self.raw) % align)
        self.tensor_maps += [(len(self.raw) + offset, tensor) for offset, tensor in tensor_maps]
        self.raw += raw

    def finished(self) -> StructBytes:
        """With the padding behind the last member."""
        return StructBytes(bytes(self.raw) + bytes(-len(self.raw) % self.align), tuple(self.tensor_maps))


def _array_in(value: Any) -> Any:
    """The array or tensor that a value is or holds; None for other values."""
    held = value.array if isinstance(value, Output | Strided) else value
    is_tensor = type(held).__module__.partition(".")[0] == "torch" and hasattr(held, "data_ptr")
    return held if isinstance(held, np.ndarray) or is_tensor else None


def _may_be_shared(array: Array) -> bool:
    """Whether a kernel may use the bytes of an array themselves: it is large, and they lie as on a device."""
    flags = array.flags
    return array.nbytes >= LARGE and flags.c_contiguous and flags.writeable and array.ctypes.data % 16 == 0


def _as(placed: _Placed, output: bool) -> Any:
    if output:
        return Output(placed.given)
    return Strided(placed.given) if placed.strided else placed.given


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.itemsize)


def _extent(array: Array) -> int:
    """Bytes from the first element of an array to the end of its last."""
    if not array.size:
        return 0
    return int(array.itemsize + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)))


def _tensor_map(allocation: Allocation, array: Array, spec: TensorMapOf, strided: bool, type_name: str) -> TensorMap:
    shape = tuple(array.shape if spec.shape is None else spec.shape)
    box = spec.box if isinstance(spec.box, PixelBox) else tuple(spec.box)
    if len(shape) != array.ndim or any(n > m for n, m in zip(shape, array.shape, strict=True)):
        raise ValueError(f"the shape {shape} is not part of the array's {array.shape}")
    if isinstance(box, PixelBox):
        box = replace(box, lower=tuple(box.lower)[::-1], upper=tuple(box.upper)[::-1])
    elif len(box) != len(shape):
        raise ValueError(f"the box {box} must have {len(shape)} numbers, outermost first")
    strides = [array.itemsize]
    for extent in array.shape[:0:-1]:
        strides.append(strides[-1] * extent)
    if strided:
        strides = list(array.strides[::-1])
        if strides[0] != array.itemsize:
            raise ValueError(f"elements of a row lie {strides[0]} bytes apart; in the last dimension they are packed")
    return TensorMap(
        allocation,
        array.itemsize,
        shape[::-1],
        strides[1:],
        box if isinstance(box, PixelBox) else box[::-1],
        None if spec.element_strides is None else tuple(spec.element_strides)[::-1],
        spec.swizzle,
        nan_fill=spec.nan_fill,
        element_type=type_name if type_name in ELEMENT_TYPES else None,
    )


def _require_numbers(name: str, array: Array) -> None:
    """Raises ``ArgumentError`` unless a kernel can read the elements."""
    if array.dtype.hasobject:
        raise ArgumentError(f"{name} holds Python objects; a kernel takes numbers")
    if not array.dtype.isnative:
        raise ArgumentError(f"{name} has its bytes in the other order: astype(dtype.newbyteorder('=')) turns them")
    if array.dtype.itemsize == 0:
        raise ArgumentError(f"the elements of {name} have no bytes")


def _value(kernel: Entry, name: str, parameter: ptx.Parameter, value: Any) -> Any:
    """A number as the parameter's bytes; anything else as it is. Raises ``ArgumentError``."""
    if isinstance(value, np.void | bytes | bytearray | memoryview):
        return value
    kind, size = parameter.type[0], parameter.size
    if value is None:
        if size != 8 or kind == "f":
            raise ArgumentError(f"{name} of {kernel.name}: None is a null pointer, and {_described(parameter)}")
        return 0
    if isinstance(value, np.generic):
        if value.dtype.kind == "V" or (parameter.type == "b8" and value.dtype.itemsize == size):
            return value.tobytes()  # such as a bfloat16, which PTX passes as two bytes
        value = value.item()
    if not isinstance(value, int | float) or isinstance(value, np.generic):
        raise ArgumentError(f"{name} of {kernel.name}: {type(value).__name__} is not an argument that a kernel takes")
    if parameter.type == "b8" and size > 1:
        raise ArgumentError(f"{name} of {kernel.name}: {_described(parameter)}, and a struct is passed as its bytes")
    if kind == "f":
        try:
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], value)
        except (OverflowError, struct.error):
            raise ArgumentError(f"{name} of {kernel.name}: {value} does not fit; {_described(parameter)}") from None
    if isinstance(value, float):
        raise ArgumentError(f"{name} of {kernel.name}: the float {value} is given, and {_described(parameter)}")
    return int(value)


def _described(parameter: ptx.Parameter) -> str:
    names = {"f": "a float", "s": "a signed integer", "u": "an integer or pointer", "b": "a struct or untyped value"}
    return f"the parameter is {names.get(parameter.type[0], parameter.type)} of {parameter.size} bytes"


def _scalar(name: str, variable: ptx.Variable, value: float) -> bytes:
    """A Python number as the bytes of a variable of one number. Raises ``ArgumentError``."""
    is_float = variable.type[0] == "f"
    try:
        if is_float:
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[variable.size], value)
        if isinstance(value, int):
            return int(value % 2 ** (8 * variable.size)).to_bytes(variable.size, "little")
    except (KeyError, OverflowError, struct.error):
        pass
    kind = "a float" if is_float else "an integer"
    raise ArgumentError(f"the variable {name} is {kind} of {variable.size} bytes, and {value} is given for it")
