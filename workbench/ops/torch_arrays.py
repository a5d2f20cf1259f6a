"""Tensors of PyTorch, on its current stream of their device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ..model.calls import ArraySpec, Key
from ..model.dtypes import DTYPES, UINT8
from . import launched
from .arrays import MOST_ALIGNED
from .launched import Recipe

EXCHANGE = "__dlpack_c_exchange_api__"
"""The attribute of a type of arrays that has DLPack's exchange in C."""


class Elsewhere(LookupError):
    """These tensors are not solved at once: they are traced, differentiated, or have no memory."""


@cache
def torch() -> Any:
    """PyTorch, which has been imported where there are tensors."""
    import torch

    return torch


@cache
def dtypes() -> dict[Any, np.dtype[Any]]:
    """NumPy's dtypes by PyTorch's. Floats of 8 bits are their bits."""
    t = torch()
    known = (d for d in DTYPES.values() if d.torch and hasattr(t, d.torch))
    narrow = {d: d.is_float and d.itemsize == 1 for d in DTYPES.values()}
    return {getattr(t, d.torch): UINT8.numpy if narrow[d] else d.numpy for d in sorted(known, key=narrow.__getitem__)}


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """PyTorch's dtype of one of NumPy's."""
    return next(key for key, value in dtypes().items() if value == dtype)


class TorchArrays:
    """Tensors. Those of which PyTorch records what is done to them are not solved at once, but by its operators."""

    name = "torch"
    graph_owns_memory = True

    def __init__(self, recorded: Callable[..., Any] | None = None) -> None:
        t = torch()
        self._torch = t
        self._grad_enabled, self._compiling = t.is_grad_enabled, t.compiler.is_compiling
        self.current_device: Callable[[], int] = getattr(t._C, "_cuda_getDevice", t.cuda.current_device)
        self.stream_of: Callable[[int], int] = getattr(t._C, "_cuda_getCurrentRawStream", self._stream_of)

        guards = getattr(getattr(t._C, "_dynamo", None), "guards", None)
        self._empty = getattr(guards, "_empty_strided_cuda", None)  # what compiled code calls: 2 us less
        self.hot = self._called(recorded) if hasattr(t.Tensor, EXCHANGE) else None
        self.call = None if self.hot is None else self._call

    def _called(self, recorded: Callable[..., Any] | None) -> partial[Any] | None:
        """What calls operations, where this PyTorch has the exchange of tensors in C (2.10)."""
        t = self._torch
        try:
            types = t.Tensor, t.nn.Parameter
            return launched.kind(getattr(t.Tensor, EXCHANGE), types, t.is_grad_enabled, recorded=recorded)
        except (TypeError, ValueError):  # of another version of DLPack
            return None

    def _call(self, function: Any, arrays: tuple[Any, ...], out: Any, options: dict[str, Any]) -> Any:
        if self._compiling() or self.hot is None:
            return None
        return self.hot(function, arrays, out, options)

    def _stream_of(self, device: int) -> int:
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def deferred(self, arrays: Sequence[Any]) -> bool:
        if self._compiling():
            return True
        tensors = [array for array in arrays if is_tensor(type(array))]
        if not all(has_memory(type(array)) for array in tensors):
            return True
        try:
            self.addresses(tensors)
        except RuntimeError:  # of a tensor that stands for others, as under vmap
            return True
        return bool(self._grad_enabled() and any(array.requires_grad for array in tensors))

    def read(self, arrays: Sequence[Any]) -> tuple[Key, list[int]]:
        if self._compiling():
            raise Elsewhere
        key: list[Any] = []
        addresses = []
        low = MOST_ALIGNED
        try:
            for array in arrays:
                if array.requires_grad and self._grad_enabled():
                    raise Elsewhere
                address = array.data_ptr()
                key += array.shape, array.stride(), array.dtype, array.get_device()
                addresses.append(address)
                low |= address
        except RuntimeError:  # there is no memory
            raise Elsewhere from None
        key.append(low & -low)
        return tuple(key), addresses

    def spec(self, array: Any, source: int) -> ArraySpec:
        """Raises TypeError for a tensor that is not on a GPU, and for a dtype that NumPy has not."""
        if array.device.type != "cuda":
            raise TypeError(f"argument {source + 1} is a tensor on {array.device}; it has to be on a GPU")
        return spec_of(array, source)

    def option(self, value: Any) -> Any:
        return dtypes()[value] if isinstance(value, self._torch.dtype) else value

    def stream(self, device: int) -> int | None:
        if self.current_device() != device:
            return None
        return self.stream_of(device)

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        from cupy_backends.cuda.api import runtime  # which need not be that of PyTorch; CuPy itself takes 0.1 s

        with self._torch.cuda.device(device):
            before = runtime.getDevice()
            runtime.setDevice(device)
            try:
                yield
            finally:
                runtime.setDevice(before)

    def recipe(self, spec: ArraySpec) -> Recipe:
        shape, strides = tuple(map(int, spec.shape)), tuple(int(step) // spec.itemsize for step in spec.strides)
        dtype = torch_dtype(spec.dtype)
        if self._empty is not None:
            return self._empty, (shape, strides, dtype)
        device = self._torch.device("cuda", spec.device)
        return partial(self._torch.empty_strided, dtype=dtype, device=device), (shape, strides)

    def bytes_recipe(self, nbytes: int, device: int) -> Recipe:
        return self.recipe(ArraySpec((nbytes,), (1,), np.dtype(np.uint8), device))

    def maker(self, spec: ArraySpec) -> Callable[[list[int]], Any]:
        empty, arguments = self.recipe(spec)

        def make(addresses: list[int]) -> Any:
            made = empty(*arguments)
            addresses.append(made.data_ptr())
            return made

        return make

    def addresses(self, arrays: Sequence[Any]) -> list[int]:
        return [array.data_ptr() for array in arrays]

    def view(self, array: Any, spec: ArraySpec) -> Any:
        return array.as_strided(spec.shape, tuple(step // spec.itemsize for step in spec.strides))

    def copy(self, source: Any, target: Any) -> None:
        target.copy_(source)

    def memory(self, nbytes: int, zero: bool) -> Any:
        make = self._torch.zeros if zero else self._torch.empty
        return make(nbytes, dtype=self._torch.uint8, device="cuda")

    def capturing(self) -> bool:
        return bool(self._torch.cuda.is_current_stream_capturing())

    def current_stream(self) -> Any:
        return self._torch.cuda.current_stream()

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        raw = array.contiguous().view(self._torch.uint8).cpu().numpy()
        found: np.ndarray[Any, Any] = raw.view(dtypes()[array.dtype])
        return found

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values).view(np.uint8)).to("cuda")

    def floats(self, values: np.ndarray[Any, Any]) -> Any:
        return self.upload(values).view(self._torch.float32)


def spec_of(array: Any, source: int) -> ArraySpec:
    """What an operation is told of a tensor, also of one that stands for others. Raises TypeError for its dtype."""
    if array.dtype not in dtypes():
        raise TypeError(f"argument {source + 1} has dtype {array.dtype}, which is not supported here")
    dtype = dtypes()[array.dtype]
    strides = tuple(int(step) * dtype.itemsize for step in array.stride())
    return ArraySpec(tuple(int(n) for n in array.shape), strides, dtype, array.get_device(), source)


def is_tensor(kind: type) -> bool:
    """Whether this is PyTorch's type of tensors, or one made of it; PyTorch is not imported for that."""
    return any(t.__module__ == "torch" and t.__name__ == "Tensor" for t in kind.__mro__)


def has_memory(kind: type) -> bool:
    """Whether tensors of this type are memory and nothing else. Others stand for something, or are wrapped."""
    return kind.__name__ in ("Tensor", "Parameter") and kind.__module__.partition(".")[0] == "torch"
