"""Arrays of the host, NumPy's and PyTorch's on the CPU: their memory, and what Triton asks of them."""

from __future__ import annotations

import contextlib
import copy
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..emulator import ArgumentError, Output

Array = np.ndarray[Any, Any]

_OWN_TYPES = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
_OF_TRITON = {
    **{"fp16": "float16", "fp32": "float32", "fp64": "float64", "int1": "bool"},
    **{"bf16": "bfloat16", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"},
}
"""Dtypes by Triton's names, where those differ."""


@dataclass(frozen=True, slots=True)
class _Dtype:
    """A dtype under the name by which Triton knows it, with what Triton asks of PyTorch's."""

    name: str
    itemsize: int
    is_floating_point: bool

    def __str__(self) -> str:
        return self.name


def is_tensor(value: Any) -> bool:
    """Whether this is a PyTorch tensor; PyTorch is not imported for that."""
    return any(t.__module__ == "torch" and t.__name__ == "Tensor" for t in type(value).__mro__)


def is_dense(value: Any) -> bool:
    """Whether this is a PyTorch tensor whose elements lie in the CPU's memory."""
    return is_tensor(value) and str(value.layout) == "torch.strided" and value.untyped_storage().device.type == "cpu"


def is_reinterpreted(value: Any) -> bool:
    """Whether ``triton.reinterpret`` has given it another element type."""
    return type(value).__name__ == "TensorWrapper" and type(value).__module__.startswith("triton.")


def is_array(value: Any) -> bool:
    """Whether a kernel gets a pointer for it."""
    known = isinstance(value, np.ndarray | Output | HostArray) or is_tensor(value) or is_reinterpreted(value)
    return known or _is_pointer(value)


def _is_pointer(value: Any) -> bool:
    """Whether Triton takes it for a pointer because it has a ``dtype`` and a ``data_ptr()``, which is not null, unless
    what it stands for lies in emulated memory already."""
    known = hasattr(value, "dtype") and callable(getattr(value, "data_ptr", None))
    return known and not getattr(value, "is_placed", False) and bool(value.data_ptr())


def is_descriptor(value: Any) -> bool:
    """Whether it is Triton's ``TensorDescriptor`` or one made of it."""
    return any(t.__name__ == "TensorDescriptor" and t.__module__.startswith("triton.") for t in type(value).__mro__)


def mapped(value: Any, change: Callable[[Any, str], Any], name: str) -> Any:
    """An argument with every array in it, in tuples and descriptors too, replaced; ``change`` gets it and its name."""
    if is_array(value):
        return change(value, name)
    if is_descriptor(value):
        changed = copy.copy(value)  # which does not check again
        changed.base = change(value.base, name)
        return changed
    if isinstance(value, tuple | list):
        parts = [mapped(part, change, f"{name}[{number}]") for number, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.item() if isinstance(value, np.generic) else value


def as_numpy(value: Any) -> Array:
    """The memory of an array as NumPy has it. Raises ``ArgumentError`` for memory that is not on the CPU."""
    if isinstance(value, Output | HostArray):
        return as_numpy(value.array)
    if isinstance(value, np.ndarray):
        return value
    if is_reinterpreted(value):
        base = as_numpy(value.base)
        dtype = _named_dtype(_OF_TRITON.get(str(value.dtype), str(value.dtype)))
        return base.view(dtype) if dtype.itemsize == base.itemsize else base
    if not is_tensor(value):
        return _pointed_to(value)
    if str(value.layout) != "torch.strided":
        raise ArgumentError(f"a tensor has the layout {value.layout}; a kernel takes dense ones")
    storage = value.untyped_storage()  # whose device is what it is, also where one of CUDA is emulated
    if storage.device.type != "cpu":
        raise ArgumentError(f"a tensor is on {storage.device}; kernels that are emulated take tensors on the CPU")
    dtype = _named_dtype(str(value.dtype))
    strides = tuple(step * dtype.itemsize for step in value.stride())
    if not value.numel() or not storage.nbytes():
        return np.empty(tuple(value.shape), dtype)
    memory = bytes_at(storage.data_ptr(), storage.nbytes())
    return np.ndarray(tuple(value.shape), dtype, memory, value.data_ptr() - storage.data_ptr(), strides)


def _pointed_to(value: Any) -> Array:
    """What a library's own view points to: the elements of its ``shape`` and ``stride()``, in an array that it holds.

    Where it has no shape, or one that the array does not hold, these are all elements to the end of the array."""
    address, dtype = value.data_ptr(), _named_dtype(str(value.dtype))
    names = (*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ()))
    for held in filter(is_array, (getattr(value, name, None) for name in names)):
        low, high = bounds_of(owner_of(as_numpy(held)))
        if not low <= address < high:
            continue
        memory = bytes_at(low, high - low)
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            strides = tuple(int(step) * dtype.itemsize for step in value.stride())
            return np.ndarray(tuple(value.shape), dtype, memory, address - low, strides)
        return np.ndarray((high - address) // dtype.itemsize, dtype, memory, address - low)
    raise ArgumentError(f"a {type(value).__name__} points into no array that it holds; pass the array itself")


def _named_dtype(name: str) -> np.dtype[Any]:
    name = name.removeprefix("torch.")
    try:
        return _OWN_TYPES.get(name) or np.dtype(name)
    except TypeError:
        raise ArgumentError(f"a tensor has the dtype {name}, which the emulator does not know") from None


def bytes_at(address: int, nbytes: int) -> Array:
    """Memory of the host."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


@dataclass(eq=False, slots=True)
class HostArray:
    """A NumPy array that looks to Triton like a tensor, so that a ``TensorDescriptor`` takes it."""

    array: Array

    @property
    def dtype(self) -> _Dtype:
        """Its dtype, as Triton names it."""
        return dtype_of(self.array)

    def data_ptr(self) -> int:
        """Where its first element lies on the host."""
        return int(self.array.ctypes.data)


def dtype_of(array: Array) -> _Dtype:
    """Its dtype, as Triton names it."""
    floating = array.dtype.kind == "f" or array.dtype.name in _OWN_TYPES
    return _Dtype(array.dtype.name, array.itemsize, floating)


def bounds_of(array: Array) -> tuple[int, int]:
    """Where an array's memory begins and ends."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high) if array.size else int(low)


def owner_of(array: Array) -> Array:
    """The array whose memory it is that an array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def copies(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments with a copy of every array, as NumPy arrays."""
    return {name: mapped(value, lambda array, _: as_numpy(array).copy(), name) for name, value in given.items()}


def snapshot(values: list[Any]) -> list[tuple[Array, Array]]:
    """Every array among the values, and a copy of it."""
    found: list[tuple[Array, Array]] = []

    def note(value: Any, _: str) -> Any:
        array = as_numpy(value)
        if array.flags.writeable:
            found.append((array, array.copy()))
        return value

    for value in values:
        mapped(value, note, "")
    return found
