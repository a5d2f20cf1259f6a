"""The float64 NumPy definition of probabilities."""

from __future__ import annotations

import numpy as np


def probabilities(x: np.ndarray) -> np.ndarray:
    """exp(x) divided by the sum of its row. x: (rows, columns); returns (rows, columns) float64."""
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
