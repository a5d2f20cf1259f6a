"""The float64 NumPy definition of derived."""

from __future__ import annotations

import numpy as np


def derived(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What becomes of the outputs of gemm, by name, float64: nothing, so far."""
    return outputs
