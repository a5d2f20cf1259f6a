"""What operations on rows are measured against: PyTorch's call, the same compiled, Liger, a copy, and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model.operation import Operation
from ...model.problem import Problem
from ..shared import copy_as_long, one_type


def beside(
    operation: Operation[Any],
    torch_call: Callable[..., Any],
    numpy_call: Callable[..., Any],
    refuses: Callable[[Any], str | None] = one_type,
) -> None:
    """Declare the baselines of an operation: a call that returns the outputs as tensors, and one for NumPy.

    Where PyTorch has no call for the whole, it is written out in float, which `torch.compile` fuses."""
    operation.baseline("PyTorch", requires="torch", vendor=True, refuses=refuses)(torch_call)
    operation.baseline("torch.compile", requires="torch", compiled=True, refuses=refuses)(torch_call)
    operation.baseline(
        "copy", requires="cupy", vendor=True, solves=False, prepares=True, version=lambda: "cudaMemcpyAsync"
    )(copy_as_long)
    operation.baseline("NumPy", requires="numpy")(numpy_call)


COLUMNS = 65_536
"""Of the longest row that softmax and the norms take: one block of Triton holds it."""

Declare = Callable[[Callable[..., Any]], Callable[..., Any]]


def short_rows(problem: Any) -> str | None:
    """The refusal of kernels that hold a row in one block."""
    if problem.columns > COLUMNS:
        return f"it takes rows of at most {COLUMNS:,} elements, not {problem.columns:,}"
    return one_type(problem)


def beside_liger(
    operation: Operation[Any], *, prepares: bool = False, refuses: Callable[[Any], str | None] = short_rows
) -> Declare:
    """Declare Liger's implementation of an operation: `liger_kernel.transformers.functional`, which needs a GPU."""
    return operation.baseline("Liger", requires=("torch", "liger_kernel"), prepares=prepares, refuses=refuses)


def beside_autograd(operation: Operation[Any], refuses: Callable[[Problem], str | None] = one_type) -> Declare:
    """Declare what autograd calls of PyTorch for a gradient, made by `autograd_of`."""
    return operation.baseline("PyTorch autograd", requires="torch", prepares=True, refuses=refuses)


def autograd_of(call: Callable[..., Any], dy: Any, *inputs: Any) -> Callable[[], Any]:
    """What computes the gradients of `call(*inputs)` for each of the inputs, given dy, that of its result.

    The forward pass comes before: neither it nor the statistics of rows that it keeps are in the time."""
    import torch

    with torch.enable_grad():
        given = [x.detach().requires_grad_() for x in inputs]
        y = call(*given)
    return lambda: torch.autograd.grad(y, given, dy, retain_graph=True)
