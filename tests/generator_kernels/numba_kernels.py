"""Kernels for Numba-CUDA, with what they store; the last two have a fault, at the line that ends with ``# here``."""

import math

import numpy as np
from numba import cuda, float32, float64

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


def integral(x, out):
    i = cuda.grid(1)
    out[i] = int(x[i] * 4) // 3 + math.floor(x[i])


def summed_by_warp(x, out):
    i = cuda.grid(1)
    value = x[i]
    for step in range(5):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << step)
    out[i] = value


def voted(x, out):
    i = cuda.grid(1)
    out[i] = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, x[i] > 0))


def local_window(x, out):
    i = cuda.grid(1)
    window = cuda.local.array(4, float32)
    for k in range(4):
        window[k] = x[(i + k) % x.size]
    out[i] = window[0] + window[1] * window[2] - window[3]


def as_matrix(x, out):
    i = cuda.grid(1)
    row, column = divmod(i, 16)
    out[column * 16 + row] = x[i]


def doubled_precision(x, out):
    i = cuda.grid(1)
    out[i] = math.sqrt(float64(x[i]) * x[i] + 1) - 1


def squashed(x, out):
    i = cuda.grid(1)
    out[i] = x[i] / (1 + math.exp(-x[i])) + math.hypot(x[i], 1)


def smallest(x, out):
    i = cuda.grid(1)
    cuda.atomic.min(out, int(x[i] > 0), x[i])


def staged(x, out):
    part = cuda.shared.array((2, 128), float32)
    t = cuda.threadIdx.x
    for stage in range(2):
        part[stage, t] = x[stage * 128 + t]
        cuda.syncthreads()
        if cuda.blockIdx.x == stage:
            out[stage * 128 + t] = part[stage, (t + 1) % 128]


def until(x, out):
    i = cuda.grid(1)
    value = x[i]
    while value < 2:
        value += 1
    out[i] = value


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
    integral: lambda x: np.trunc(x * 4).astype(int) // 3 + np.floor(x),
    summed_by_warp: lambda x: np.repeat(x.reshape(-1, 32).sum(1), 32),
    voted: lambda x: np.repeat((x.reshape(-1, 32) > 0).sum(1), 32),
    local_window: lambda x: x + np.roll(x, -1) * np.roll(x, -2) - np.roll(x, -3),
    as_matrix: lambda x: x.reshape(16, 16).T.ravel(),
    doubled_precision: lambda x: np.sqrt(x.astype(np.float64) ** 2 + 1) - 1,
    squashed: lambda x: x / (1 + np.exp(-x)) + np.hypot(x, 1),
    smallest: lambda x: np.float32([x.min(), 0]),
    staged: lambda x: np.roll(x.reshape(2, 128), -1, axis=1).ravel(),
    until: lambda x: np.where(x < 2, x + np.ceil(2 - x), x),
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
