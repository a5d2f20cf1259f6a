"""What the stages of `vector_add` are measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..shared.libraries import copy_as_long
from .problem import VectorAddProblem
from .stages import VECTOR_ADD


@VECTOR_ADD.baseline("PyTorch", requires="torch", vendor=True)
def pytorch(p: VectorAddProblem, a: Any, b: Any, c: Any) -> None:
    import torch

    torch.add(a, b, out=c)


@VECTOR_ADD.baseline(
    "copy", requires="cupy", vendor=True, solves=False, prepares=True, version=lambda: "cudaMemcpyAsync"
)
def copy(p: VectorAddProblem) -> Callable[[], None]:
    return copy_as_long(p)


@VECTOR_ADD.baseline("torch.compile", requires="torch", compiled=True)
def compiled(p: VectorAddProblem, a: Any, b: Any) -> Any:
    return a + b


@VECTOR_ADD.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(p: VectorAddProblem, a: Any, b: Any, c: Any) -> Callable[[], object]:
    from ._triton import work

    return work(a, b, c)


@VECTOR_ADD.baseline("NumPy", requires="numpy")
def numpy(p: VectorAddProblem, a: Any, b: Any) -> Any:
    return a + b
