"""cuBLAS through its C interface: it needs no PyTorch, which takes seconds to load, and C may be wider than A and B."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...model.arrays import Array
from ...model.problem import Problem
from .base import Baseline, Prepared

# cudaDataType_t, cublasComputeType_t and cublasGemmAlgo_t
_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14}
_SUM_IN_FP32, _ITS_CHOICE = 68, -1

WORKSPACE_BYTES = 32 << 20
"""What NVIDIA recommends for Hopper. It is ours, since cuBLAS cannot use its own while a graph is captured."""

_int, _pointer = ctypes.c_int, ctypes.c_void_p
_matrix = (_pointer, _int, _int)
_SIGNATURES = {
    "cublasCreate_v2": (ctypes.POINTER(_pointer),),
    "cublasGetProperty": (_int, ctypes.POINTER(_int)),
    "cublasSetStream_v2": (_pointer, _pointer),
    "cublasSetWorkspace_v2": (_pointer, _pointer, ctypes.c_size_t),
    "cublasGemmEx": (_pointer, *[_int] * 5, _pointer, *_matrix, *_matrix, _pointer, *_matrix, _int, _int),
    "cublasSgemv_v2": (_pointer, *[_int] * 3, _pointer, _pointer, _int, _pointer, _int, _pointer, _pointer, _int),
}
_ONE, _ZERO = ctypes.c_float(1), ctypes.c_float(0)


@cache
def load() -> ctypes.CDLL | None:
    """The library, from a package of NVIDIA's or the system; None where there is none."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return None
    try:
        found = load_nvidia_dynamic_lib("cublas").abs_path
    except (DynamicLibNotFoundError, RuntimeError):
        return None
    return ctypes.CDLL(found) if found else None


class Handle:
    """What calls of the library need: a handle with a workspace, on CuPy's current stream at each call."""

    def __init__(self, library: Any, workspace: int) -> None:
        self._library, self._workspace, self._stream = library, workspace, -1
        for name, signature in _SIGNATURES.items():
            getattr(library, name).argtypes = signature
        self._handle = _pointer()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} of cuBLAS returned status {status}")

    def on(self, stream: int) -> None:
        """Where the calls to come are enqueued; a change of it takes the workspace away from cuBLAS."""
        if stream != self._stream:
            self._call("cublasSetStream_v2", self._handle, stream)
            self._call("cublasSetWorkspace_v2", self._handle, self._workspace, WORKSPACE_BYTES)
            self._stream = stream

    def gemm(self, ops: tuple[int, int], shape: tuple[int, int, int], a: Any, b: Any, c: Any) -> None:
        """C = op(A) op(B), column-major, with m, n, k; matrices are pointer, type, leading dimension, and an op
        is 0 for a matrix as it is and 1 for its transpose."""
        how = (_SUM_IN_FP32, _ITS_CHOICE)
        one, zero = ctypes.byref(_ONE), ctypes.byref(_ZERO)
        self._call("cublasGemmEx", self._handle, *ops, *shape, one, *a, *b, zero, *c, *how)

    def gemv(self, op: int, shape: tuple[int, int], matrix: tuple[int, int], x: int, y: int) -> None:
        """y = op(A) x in fp32, column-major, with m, n; the matrix is pointer, leading dimension."""
        one, zero = ctypes.byref(_ONE), ctypes.byref(_ZERO)
        self._call("cublasSgemv_v2", self._handle, op, *shape, one, *matrix, x, 1, zero, y, 1)


@cache
def _handle() -> tuple[Handle, Any]:
    """The handle of this process, with the memory of its workspace."""
    import cupy

    workspace = cupy.empty(WORKSPACE_BYTES, cupy.uint8)
    return Handle(load(), workspace.data.ptr), workspace


@dataclass(frozen=True)
class Matrix:
    """An array as cuBLAS is told of it: where it begins, its type and its leading dimension.

    cuBLAS takes for columns what lie here as rows: it sees the transpose."""

    address: int
    kind: int
    leading: int
    shape: tuple[int, ...]
    handle: Handle

    @property
    def argument(self) -> tuple[int, int, int]:
        """As the calls of `Handle` take it."""
        return self.address, self.kind, self.leading

    @property
    def vector(self) -> tuple[int, int, int]:
        """A vector as a matrix with one column."""
        return self.address, self.kind, self.shape[0]

    @property
    def is_fp32(self) -> bool:
        """Of the type for which there are products with a vector."""
        return self.kind == _TYPES["fp32"]


def matrices(handle: Handle, arrays: Mapping[str, Array], addresses: Mapping[str, int]) -> dict[str, Matrix]:
    """The arrays at these addresses, for calls of the handle."""
    return {
        name: Matrix(addresses[name], _TYPES[array.dtype.name], array.row_stride, array.shape, handle)
        for name, array in arrays.items()
    }


class Cublas(Baseline):
    """Runs a declared baseline that calls cuBLAS on matrices."""

    def version(self) -> str | None:
        if (library := load()) is None:
            return None
        number, numbers = _int(), []
        for part in range(3):
            library.cublasGetProperty(part, ctypes.byref(number))
            numbers.append(str(number.value))
        return f"cuBLAS {'.'.join(numbers)}"

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        from cupy.cuda import get_current_stream

        handle, _ = _handle()
        held = matrices(handle, arrays, {name: buffers[name].data.ptr for name in arrays})
        arguments = self.declared.arguments(held)

        def enqueue() -> None:
            handle.on(get_current_stream().ptr)
            self.declared.call(problem, **arguments)

        return Prepared(enqueue)
