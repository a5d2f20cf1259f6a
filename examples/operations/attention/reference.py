"""Attention in NumPy, in the type of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def visible(rows: int, keys: int, causal: bool) -> Array:
    """Which keys each row sees, (rows, keys): all, or those up to its own place counted from the end."""
    return np.tril(np.ones((rows, keys), bool), keys - rows) if causal else np.ones((rows, keys), bool)


def attention(q: Array, k: Array, v: Array, *, scale: float, mask: Array, product: Any = np.matmul) -> Array:
    """softmax(scale q k^T) v over the keys that the mask lets a row see, (rows, keys); 0 for a row that sees none.

    q: (batch, heads, rows, dim); k, v: (batch, heads, keys, dim); returns the shape of q.
    `product` multiplies matrices.
    """
    logits = product(q, k.swapaxes(-1, -2)) * q.dtype.type(scale)
    weights = np.where(mask, logits, -np.inf)
    top = weights.max(axis=-1, keepdims=True)
    weights = np.exp(weights - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return product(weights, v) / np.where(total > 0, total, 1)
