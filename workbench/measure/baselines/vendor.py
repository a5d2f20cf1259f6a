"""What every stage is measured against, interleaved with it: cuBLAS, cuBLASLt, PyTorch's elementwise sum,
the driver's copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.arrays import Array
from ...model.problem import Problem
from .base import Baseline, Prepared
from .cublas import Cublas
from .pytorch import Eager, ScaledProduct
from .rows import returned


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


VENDOR: dict[str, list[Baseline]] = {
    "gemm": [Cublas()],
    "gemm_fp8": [ScaledProduct(fast=False)],
    "matvec": [Cublas()],
    **{name: [call, _Copy()] for name, call in returned(compiled=False).items()},
    "vector_add": [Eager("PyTorch", lambda torch, p, t: torch.add(t["a"], t["b"], out=t["c"])), _Copy()],
}
