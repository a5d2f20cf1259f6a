"""The float64 NumPy definition of matmul."""

from __future__ import annotations

import numpy as np


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product. a: (m, k); b: (k, n); returns (m, n) float64."""
    return a.astype(np.float64) @ b.astype(np.float64)
