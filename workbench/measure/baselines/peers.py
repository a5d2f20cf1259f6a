"""Other implementations, each timed once a problem, interleaved with the vendor's library: other libraries, PyTorch and
its compiler, our own Triton kernels. cuDNN multiplies matrices; it has nothing for a product with a vector or a sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.arrays import Array
from ...model.problem import Problem
from . import pytorch
from .base import Baseline, Prepared
from .pytorch import Compiled, CublasLt, Cudnn, Eager, ScaledProduct, Tensors
from .rows import returned


class _Triton:
    """The operation's kernel in `triton_kernels`, through PyTorch's tensors and stream."""

    name = "Triton"
    solves = True

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def version(self) -> str | None:
        try:
            import triton
        except ImportError:
            return None
        return f"triton {triton.__version__}" if pytorch.load() else None

    def refuses(self, problem: Problem) -> str | None:
        return None

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        from . import triton_kernels

        torch: Any = pytorch.load()
        multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        return Prepared(
            triton_kernels.work(self._operation, problem, pytorch.tensors(arrays, buffers), multiprocessors)
        )


def _b(problem: Problem, held: Tensors) -> Any:
    """B of a matrix product as (k, n), however it is stored."""
    return held["B"] if getattr(problem, "layout", "") == "nn" else held["B"].T


PEERS: dict[str, list[Baseline]] = {
    "gemm": [
        Eager("PyTorch", lambda torch, p, t: torch.mm(t["A"], _b(p, t), out=t["C"])),
        CublasLt(lambda torch, p, t: torch.mm(t["A"], _b(p, t), out=t["C"])),
        Cudnn(),
        Compiled(lambda torch, p, t: torch.mm(t["A"], _b(p, t))),
        _Triton("gemm"),
    ],
    "gemm_fp8": [ScaledProduct(fast=True)],  # fewer bits of a sum than a stage keeps
    "matvec": [
        Eager("PyTorch", lambda torch, p, t: torch.mv(t["B"], t["a"], out=t["c"])),
        # cuBLASLt has matrix products only: the vector is a matrix with one column
        CublasLt(lambda torch, p, t: torch.mm(t["B"], t["a"].unsqueeze(1), out=t["c"].unsqueeze(1))),
        Compiled(lambda torch, p, t: torch.mv(t["B"], t["a"])),
        _Triton("matvec"),
    ],
    **{name: [call] for name, call in returned(compiled=True).items()},
    "vector_add": [Compiled(lambda torch, p, t: torch.add(t["a"], t["b"])), _Triton("vector_add")],
}
