"""The float64 NumPy definition of elementwise."""

from __future__ import annotations

import numpy as np


def elementwise(x: np.ndarray) -> np.ndarray:
    """The squares. x: (n,); returns (n,) float64."""
    return x.astype(np.float64) ** 2
