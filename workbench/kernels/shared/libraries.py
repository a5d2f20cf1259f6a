"""What baselines of several operations share: what libraries take, and how PyTorch is told which of them to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...model.problem import Problem


def one_type(problem: Problem) -> str | None:
    """The refusal of a library whose call has one type for inputs and output."""
    types = dict.fromkeys(str(array.dtype) for array in problem.arrays().values() if array.dtype.is_float)
    return None if len(types) == 1 else f"its call has one type for inputs and output, not {' and '.join(types)}"


@contextmanager
def preferred_blas(library: str) -> Iterator[None]:
    """PyTorch calls this library for matrix products, `cublaslt`; by default it takes cuBLAS."""
    import torch

    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(library)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)


def multiprocessors() -> int:
    """Of the current GPU, by PyTorch."""
    import torch

    return int(torch.cuda.get_device_properties(0).multi_processor_count)


def copy_as_long(problem: Problem) -> Callable[[], None]:
    """What copies as many bytes (read plus written) as the problem has to move, device to device."""
    import cupy

    half = problem.cost.bytes // 2
    source, target = cupy.empty(half, cupy.uint8), cupy.empty(half, cupy.uint8)
    run: Any = lambda: target.data.copy_from_device_async(source.data, half)  # noqa: E731
    made: Callable[[], None] = run
    return made
