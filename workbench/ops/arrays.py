"""Kinds of arrays that operations take: how they are read, how those for results are made, and which stream is theirs.

What is here for the hot path asks an array for its shape, strides, dtype and address, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..model.calls import ArraySpec, Key
from . import launched
from .launched import Recipe

MOST_ALIGNED = 256
"""Bytes beyond which nobody asks how well an address is aligned."""


class Arrays(Protocol):
    """A kind of arrays."""

    name: str
    graph_owns_memory: bool
    """Whether what is allocated while a graph is captured belongs to the graph."""

    call: Callable[..., Any] | None
    """What makes calls of classes that are ready quickly, as `calls.HOT` has it."""

    hot: partial[Any] | None
    """The same without what only PyTorch's compiler has to see, as `launched.kind` returns it."""

    def deferred(self, arrays: Sequence[Any]) -> bool:
        """Whether arrays are not solved at once, but by an operator of their library that records what is done."""

    def read(self, arrays: Sequence[Any]) -> tuple[Key, list[int]]:
        """What decides how these arrays are solved, and their addresses. Raises AttributeError for another kind."""

    def spec(self, array: Any, source: int) -> ArraySpec:
        """What an operation is told of an array."""

    def option(self, value: Any) -> Any:
        """The value of an option as an operation knows it: a dtype as NumPy's."""

    def stream(self, device: int) -> int | None:
        """The current stream of a device, or None where it is not the current device."""

    def on(self, device: int) -> AbstractContextManager[Any]:
        """Makes a device the current one."""

    def recipe(self, spec: ArraySpec) -> Recipe:
        """What makes an array on the current device."""

    def bytes_recipe(self, nbytes: int, device: int) -> Recipe:
        """What allocates memory on that device, which is current: an array, or what has its address as `ptr`."""

    def maker(self, spec: ArraySpec) -> Callable[[list[int]], Any]:
        """A function that makes an array on the current device, and appends its address to a list."""

    def addresses(self, arrays: Sequence[Any]) -> list[int]:
        """The addresses of arrays of this kind."""

    def view(self, array: Any, spec: ArraySpec) -> Any:
        """The memory of an array as one of another shape and strides."""

    def copy(self, source: Any, target: Any) -> None:
        """Copy values on the current stream."""

    def memory(self, nbytes: int, zero: bool) -> Any:
        """Bytes on the current device, cleared on the current stream or not."""

    def capturing(self) -> bool:
        """Whether the current stream is being captured into a graph."""

    def current_stream(self) -> Any:
        """The current stream as an object; memory that belongs to it is kept together with it."""

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy on the host."""

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        """The bytes of values in memory of the current device."""

    def floats(self, values: np.ndarray[Any, Any]) -> Any:
        """Values of float32 as an array of this kind on the current device."""


class CupyArrays:
    """Arrays of CuPy, on its current stream of their device."""

    name = "cupy"
    graph_owns_memory = False

    def __init__(self) -> None:
        import cupy

        self._cupy, self._new = cupy, cupy.ndarray
        self.current_device: Callable[[], int] = cupy.cuda.runtime.getDevice
        self.stream_of: Callable[..., Any] = cupy.cuda.get_current_stream
        self.call: Callable[..., Any] | None
        self.hot = self.call = launched.kind(stream=stream_in_c() or (lambda: cupy.cuda.get_current_stream().ptr))

    def deferred(self, arrays: Sequence[Any]) -> bool:
        return False

    def read(self, arrays: Sequence[Any]) -> tuple[Key, list[int]]:
        key: list[Any] = []
        addresses = []
        low = MOST_ALIGNED
        for array in arrays:
            data = array.data
            address = data.ptr
            key += array.shape, array.strides, array.dtype, data.device_id
            addresses.append(address)
            low |= address
        key.append(low & -low)  # what all of the addresses are a multiple of
        return tuple(key), addresses

    def spec(self, array: Any, source: int) -> ArraySpec:
        return ArraySpec(array.shape, array.strides, array.dtype, array.data.device_id, source)

    def option(self, value: Any) -> Any:
        return value

    def stream(self, device: int) -> int | None:
        if self.current_device() != device:
            return None
        return self.stream_of(device).ptr  # type: ignore[no-any-return]

    def on(self, device: int) -> AbstractContextManager[Any]:
        return self._cupy.cuda.Device(device)  # type: ignore[no-any-return]

    def recipe(self, spec: ArraySpec) -> Recipe:
        new, shape, dtype = self._new, spec.shape, bits(spec.dtype)
        flat = (spec.span // spec.itemsize,)
        if spec.contiguous:
            return new.__new__, (new, shape, dtype)  # without an initialiser that does nothing: 0.3 us
        return lambda: new(shape, dtype, new(flat, dtype).data, spec.strides), ()

    def bytes_recipe(self, nbytes: int, device: int) -> Recipe:
        return self._cupy.cuda.alloc, (nbytes,)

    def maker(self, spec: ArraySpec) -> Callable[[list[int]], Any]:
        new, arguments = self.recipe(spec)

        def make(addresses: list[int]) -> Any:
            made = new(*arguments)
            addresses.append(made.data.ptr)
            return made

        return make

    def addresses(self, arrays: Sequence[Any]) -> list[int]:
        return [array.data.ptr for array in arrays]

    def view(self, array: Any, spec: ArraySpec) -> Any:
        return self._new(spec.shape, array.dtype, array.data, spec.strides)

    def copy(self, source: Any, target: Any) -> None:
        target[...] = source

    def memory(self, nbytes: int, zero: bool) -> Any:
        make = self._cupy.zeros if zero else self._cupy.empty
        return make(nbytes, np.uint8)

    def capturing(self) -> bool:
        return bool(self.current_stream().is_capturing())

    def current_stream(self) -> Any:
        return self._cupy.cuda.get_current_stream()

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        return self._cupy.asnumpy(array)  # type: ignore[no-any-return]

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        return self._cupy.asarray(values.view(np.uint8))

    def floats(self, values: np.ndarray[Any, Any]) -> Any:
        return self.upload(np.ascontiguousarray(values)).view(np.float32)


def stream_in_c() -> Any:
    """Cython's capsule of CuPy's function from a device to its current stream, or None."""
    from cupy_backends.cuda import stream

    return getattr(stream, "__pyx_capi__", {}).get("get_stream_ptr")


def bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a result: 8-bit floats, which CuPy does not know, are their bits."""
    return np.dtype(np.uint8) if dtype.kind == "V" and dtype.itemsize == 1 else dtype


def is_cupy(kind: type) -> bool:
    """Whether this is CuPy's type of arrays; CuPy is not imported for that."""
    return any(t.__name__ == "ndarray" and t.__module__.partition(".")[0] == "cupy" for t in kind.__mro__)
