"""What operations on rows are measured against: PyTorch's call, the same compiled, a copy, and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model.operation import Operation
from ..shared.libraries import copy_as_long, one_type


def beside(
    operation: Operation[Any],
    torch_call: Callable[..., Any],
    numpy_call: Callable[..., Any],
    refuses: Callable[[Any], str | None] = one_type,
) -> None:
    """Declare the baselines of an operation: a call that returns the outputs as tensors, and one for NumPy.

    Where PyTorch has no call for the whole, it is written out in float, which `torch.compile` fuses.
    """
    operation.baseline("PyTorch", requires="torch", vendor=True, refuses=refuses)(torch_call)
    operation.baseline("torch.compile", requires="torch", compiled=True, refuses=refuses)(torch_call)
    operation.baseline(
        "copy", requires="cupy", vendor=True, solves=False, prepares=True, version=lambda: "cudaMemcpyAsync"
    )(copy_as_long)
    operation.baseline("NumPy", requires="numpy")(numpy_call)
