"""NVIDIA's libraries: cuBLAS as PyTorch calls it, PyTorch's elementwise kernels, and the driver's copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ..launch import Array
from ..operation import Problem
from .base import Baseline


@cache
def _torch() -> Any | None:
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def _tensor(array: Array, buffer: Any) -> Any:
    """A PyTorch tensor over the device memory of an array, with its leading dimension."""
    torch = _torch()
    assert torch is not None
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[array.dtype.name]
    flat = torch.as_tensor(buffer, device="cuda").view(kind)
    return flat.as_strided(array.shape, (*[array.row_stride] * (len(array.shape) - 1), 1))


class _TorchBaseline:
    """A PyTorch call over the arrays of a problem; `call(torch, problem, tensors)` writes the output tensor."""

    solves = True

    def __init__(self, name: str, call: Callable[[Any, Any, Mapping[str, Any]], object]) -> None:
        self.name, self._call = name, call

    def version(self) -> str | None:
        torch = _torch()
        return None if torch is None else f"torch {torch.__version__}, CUDA {torch.version.cuda}"

    def prepare(
        self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]
    ) -> Callable[[], None] | None:
        if len({array.dtype for array in arrays.values()}) > 1:
            return None  # the library's call has one type for inputs and output
        torch = _torch()
        tensors = {name: _tensor(array, buffers[name]) for name, array in arrays.items()}

        def enqueue() -> None:
            self._call(torch, problem, tensors)

        return enqueue


class _Copy:
    """A device-to-device copy that moves as many bytes (read plus written) as the problem has to."""

    name = "copy"
    solves = False

    def version(self) -> str | None:
        return "cudaMemcpyAsync"

    def prepare(
        self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]
    ) -> Callable[[], None] | None:
        import cupy

        half = problem.cost.bytes // 2
        source, target = cupy.empty(half, cupy.uint8), cupy.empty(half, cupy.uint8)
        return lambda: target.data.copy_from_device_async(source.data, half)


VENDOR: dict[str, list[Baseline]] = {
    "gemm": [
        _TorchBaseline(
            "cuBLAS", lambda torch, p, t: torch.mm(t["A"], t["B"] if p.layout == "nn" else t["B"].T, out=t["C"])
        )
    ],
    "matvec": [_TorchBaseline("cuBLAS", lambda torch, p, t: torch.mv(t["B"], t["a"], out=t["c"]))],
    "vector_add": [_TorchBaseline("PyTorch", lambda torch, p, t: torch.add(t["a"], t["b"], out=t["c"])), _Copy()],
}
