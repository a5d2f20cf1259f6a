"""What every stage is measured against, in turns with it: cuBLAS as PyTorch calls it (so this is PyTorch eager, too),
PyTorch's elementwise kernels, and the driver's copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..launch import Array
from ..operation import Problem
from .base import Baseline, Prepared
from .pytorch import Eager, Tensors


class _Copy:
    """A device-to-device copy that moves as many bytes (read plus written) as the problem has to."""

    name = "copy"
    solves = False

    def version(self) -> str | None:
        return "cudaMemcpyAsync"

    def refuses(self, problem: Problem) -> str | None:
        return None

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        import cupy

        half = problem.cost.bytes // 2
        source, target = cupy.empty(half, cupy.uint8), cupy.empty(half, cupy.uint8)
        return Prepared(lambda: target.data.copy_from_device_async(source.data, half))


def matrix_b(problem: Problem, held: Tensors) -> Any:
    """B of a matrix product as (k, n), however it is stored."""
    return held["B"] if getattr(problem, "layout", "") == "nn" else held["B"].T


VENDOR: dict[str, list[Baseline]] = {
    "gemm": [Eager("cuBLAS", lambda torch, p, t: torch.mm(t["A"], matrix_b(p, t), out=t["C"]))],
    "matvec": [Eager("cuBLAS", lambda torch, p, t: torch.mv(t["B"], t["a"], out=t["c"]))],
    "vector_add": [Eager("PyTorch", lambda torch, p, t: torch.add(t["a"], t["b"], out=t["c"])), _Copy()],
}
