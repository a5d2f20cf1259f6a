"""The float64 NumPy definition of every operation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import threadpoolctl

Array = np.ndarray[Any, Any]


def gemm(a: Array, b: Array, *, trans_b: bool = False) -> Array:
    """Matrix product. a: (m, k); b: (k, n), or (n, k) with `trans_b`; returns (m, n) float64."""
    b64 = b.astype(np.float64)
    return a.astype(np.float64) @ (b64.T if trans_b else b64)


def matvec(a: Array, b: Array) -> Array:
    """Matrix-vector product. a: (k,); b: (n, k); returns (n,) float64."""
    return b.astype(np.float64) @ a.astype(np.float64)


def vector_add(a: Array, b: Array) -> Array:
    """Elementwise sum. a, b: (n,); returns (n,) float64."""
    return a.astype(np.float64) + b.astype(np.float64)


def scale(x: Array, factor: float) -> Array:
    """Elementwise product with a number. Any shape; returns the same, float64."""
    return factor * x.astype(np.float64)


def transpose(x: Array) -> Array:
    """Rows become columns. x: (m, n); returns (n, m) float64."""
    return x.astype(np.float64).T


FEW_THREADS = 4
"""Threads of BLAS that are enough for random problems: more of them mostly wait for each other, and with them all else
that has work to do meanwhile, the process that has the GPU among them."""


@contextlib.contextmanager
def few_threads() -> Iterator[None]:
    """Let NumPy's BLAS use `FEW_THREADS` at most."""
    blas = threadpoolctl.ThreadpoolController().select(user_api="blas")
    with blas.limit(limits=min([FEW_THREADS, *(library.num_threads for library in blas.lib_controllers)])):
        yield
