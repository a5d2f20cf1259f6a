"""cuBLAS through its C interface: it needs no PyTorch, which takes seconds to load, and C may be wider than A and B."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

from ...model.arrays import Array
from ...model.problem import Problem
from .base import Prepared

# cublasOperation_t, cudaDataType_t, cublasComputeType_t and cublasGemmAlgo_t
_AS_IT_IS, _TRANSPOSED = 0, 1
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
        """C = op(A) op(B), column-major, with m, n, k; matrices are pointer, type, leading dimension."""
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


class Cublas:
    """What cuBLAS has for an operation: GEMM with A, B, C, or matrix-vector products of B and a into c."""

    name = "cuBLAS"
    solves = True

    def version(self) -> str | None:
        if (library := load()) is None:
            return None
        number, numbers = _int(), []
        for part in range(3):
            library.cublasGetProperty(part, ctypes.byref(number))
            numbers.append(str(number.value))
        return f"cuBLAS {'.'.join(numbers)}"

    def refuses(self, problem: Problem) -> str | None:
        return None  # the types that an operation may combine are those that cuBLAS combines

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        from cupy.cuda import get_current_stream

        handle, _ = _handle()
        held = {name: buffers[name].data.ptr for name in arrays}

        def enqueue() -> None:
            handle.on(get_current_stream().ptr)
            multiply(handle, problem, arrays, held)

        return Prepared(enqueue)


def multiply(handle: Handle, problem: Problem, arrays: Mapping[str, Array], held: Mapping[str, int]) -> None:
    """Call cuBLAS for a problem whose arrays are at these addresses.

    It takes columns for what lie here as rows: of the product it computes the transpose, C^T = B^T A^T.
    """

    def matrix(name: str) -> tuple[int, int, int]:
        array = arrays[name]
        return held[name], _TYPES[array.dtype.name], array.row_stride

    if "A" in arrays:
        (m, n), k = arrays["C"].shape, arrays["A"].shape[1]
        stored = _AS_IT_IS if getattr(problem, "layout", "") == "nn" else _TRANSPOSED
        handle.gemm((stored, _AS_IT_IS), (n, m, k), matrix("B"), matrix("A"), matrix("C"))
        return
    n, k = arrays["B"].shape
    address, kind, stride = matrix("B")
    if kind == _TYPES["fp32"]:
        handle.gemv(_TRANSPOSED, (k, n), (address, stride), held["a"], held["c"])
    else:  # for half types it has no product with a vector: the vector is a matrix with one column
        vectors = ((held[v], _TYPES[arrays[v].dtype.name], size) for v, size in (("a", k), ("c", n)))
        handle.gemm((_TRANSPOSED, _AS_IT_IS), (n, 1, k), matrix("B"), *vectors)
