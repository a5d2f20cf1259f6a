"""Liger's Triton kernels as baselines of operations on rows: what they take, and how their gradients are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model.operation import Operation
from ...model.problem import Problem
from ..shared.libraries import one_type

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
    """Declare what autograd calls of PyTorch for a gradient, made by `gradients`."""
    return operation.baseline("PyTorch autograd", requires="torch", prepares=True, refuses=refuses)


def gradients(call: Callable[..., Any], dy: Any, *inputs: Any) -> Callable[[], Any]:
    """What computes the gradients of `call(*inputs)` for each of the inputs, given dy, that of its result.

    The forward pass comes before: neither it nor the statistics of rows that it keeps are in the time.
    """
    import torch

    with torch.enable_grad():
        given = [x.detach().requires_grad_() for x in inputs]
        y = call(*given)
    return lambda: torch.autograd.grad(y, given, dy, retain_graph=True)
