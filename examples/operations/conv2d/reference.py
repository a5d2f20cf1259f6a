"""The float64 NumPy definition of a two-dimensional convolution, as neural networks have it (no flipped filter)."""

from __future__ import annotations

import numpy as np


def conv2d(x: np.ndarray, f: np.ndarray, stride: int = 1, pad: int = 0, dilation: int = 1) -> np.ndarray:
    """x: (images, height, width, channels), f: (filters, taps_y, taps_x, channels); pixels outside are zero.

    Returns (images, rows, columns, filters) float64.
    """
    x, f = x.astype(np.float64), f.astype(np.float64)
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    taps_y, taps_x = f.shape[1:3]
    rows = (x.shape[1] - dilation * (taps_y - 1) - 1) // stride + 1
    columns = (x.shape[2] - dilation * (taps_x - 1) - 1) // stride + 1
    y = np.zeros((x.shape[0], rows, columns, f.shape[0]), x.dtype)
    for r in range(taps_y):
        for s in range(taps_x):
            down, right = r * dilation, s * dilation
            seen = x[:, down : down + rows * stride : stride, right : right + columns * stride : stride]
            y += seen[:, :rows, :columns] @ f[:, r, s].T
    return y
