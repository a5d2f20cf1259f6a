"""Kernels for Numba-CUDA, with what they store; the last two have a fault, at the line that ends with ``# here``."""

import math

import numpy as np
from numba import cuda, float32

X = np.linspace(-2, 2, 256, dtype=np.float32)


def scale(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]


def sines(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.sin(x[i]) + math.exp(x[i])


def reversed_by_block(x, out):
    part = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    part[t] = x[cuda.blockIdx.x * 128 + t]
    cuda.syncthreads()
    out[cuda.blockIdx.x * 128 + t] = part[127 - t]


def strided(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = abs(x[i])


def counted(x, out):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        cuda.atomic.add(out, 0, 1)


def largest(x, out):
    cuda.atomic.max(out, 0, x[cuda.grid(1)])


def neighbours(x, out):
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        out[i] = x[i - 1] + x[i + 1]


def chosen(x, out):
    i = cuda.grid(1)
    out[i] = x[i] if x[i] > 0 else -3


def reduced(x, out):
    part = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    part[t] = x[cuda.grid(1)]
    half = 64
    while half:
        cuda.syncthreads()
        if t < half:
            part[t] += part[t + half]
        half //= 2
    if t == 0:
        cuda.atomic.add(out, 0, part[0])


def polynomial(x, out):
    i = cuda.grid(1)
    y = float32(0)
    for power in range(4):
        y = y * x[i] + power
    out[i] = y


def beyond(x, out):
    i = cuda.grid(1)
    out[i] = x[i + 1]  # here


def unordered(x, out):
    part = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    part[t] = x[t]  # here
    out[t] = part[127 - t]  # here


_POSITIVE = int((X > 0).sum())
KERNELS = {
    scale: lambda x: 2 * x,
    sines: lambda x: np.sin(x) + np.exp(x),
    reversed_by_block: lambda x: x.reshape(2, 128)[:, ::-1].ravel(),
    strided: np.abs,
    counted: lambda x: np.float32([_POSITIVE]),
    largest: lambda x: np.float32([x.max()]),
    neighbours: lambda x: np.r_[0, x[:-2] + x[2:], 0].astype(np.float32),
    chosen: lambda x: np.where(x > 0, x, -3).astype(np.float32),
    reduced: lambda x: np.float32([x.sum()]),
    polynomial: lambda x: ((0 * x + 1) * x + 2) * x + 3,
}
FAULTS = {beyond: "out_of_bounds", unordered: "race"}


def ptx(kernel):
    """For two arrays of floats."""
    text, _ = cuda.compile_ptx(kernel, (float32[:], float32[:]), cc=(9, 0), lineinfo=True)
    return text


def arguments(*arrays):
    """An array is seven parameters."""
    return [part for a in arrays for part in (0, 0, a.size, a.itemsize, a, *a.shape, *a.strides)]


__all__ = ["FAULTS", "KERNELS", "arguments", "ptx"]
