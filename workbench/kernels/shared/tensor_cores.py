"""What models of kernels on tensor cores share: how those add up."""

from __future__ import annotations

from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]


def tensor_core_product(a: Values, b: Values, depth: int, backwards: bool = False) -> Values:
    """a @ b in fp32 as tensor cores add up: `depth` terms at once, and what is added to them truncated, not rounded.

    Of the 24 bits of a sum the last is dropped for what is lost where terms are aligned to the largest. a: (..., m, k),
    b: (..., k, n) fp32; returns (..., m, n). Source: Fasi et al., Numerical behavior of NVIDIA tensor cores, 2021.
    """
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*leading, a.shape[-2], b.shape[-1]), np.float32)
    starts = range(0, b.shape[-2], depth)
    for first in reversed(starts) if backwards else starts:
        total += a[..., first : first + depth] @ b[..., first : first + depth, :]
        truncate(total)
    return total


def truncate(total: Values) -> None:
    """Drop the last bit of fp32 numbers, in place."""
    total.view(np.uint32)[...] &= np.uint32(0xFFFFFFFE)
