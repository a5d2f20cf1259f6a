"""Kernels for NVIDIA Warp, with what they store; the last two have a fault."""

import numpy as np
import warp as wp

from workbench.emulator import Struct

X = np.linspace(-2, 2, 256, dtype=np.float32)


@wp.kernel
def scale(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = 2.0 * x[i]


@wp.kernel
def sines(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.sin(x[i]) + wp.exp(x[i])


@wp.kernel
def summed(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    wp.atomic_add(out, 0, x[wp.tid()])


@wp.kernel
def largest(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    wp.atomic_max(out, 0, x[wp.tid()])


@wp.kernel
def neighbours(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    if i > 0 and i < x.shape[0] - 1:
        out[i] = x[i - 1] + x[i + 1]


@wp.kernel
def lengths(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    v = wp.vec3(x[i], 2.0, 1.0)
    out[i] = wp.length(v) + wp.dot(v, wp.vec3(1.0, 0.0, 1.0))


@wp.kernel
def rotated(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    m = wp.mat22(0.0, -1.0, 1.0, 0.0)
    v = m @ wp.vec2(x[i], 3.0)
    out[i] = v[1] - v[0]


@wp.kernel
def clamped(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.clamp(x[i], -1.0, 1.0)


@wp.kernel
def iterated(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    y = 0.0
    for power in range(4):
        y = y * x[i] + float(power)
    out[i] = y


@wp.kernel
def chosen(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    if x[i] > 0.0:
        out[i] = x[i]
    else:
        out[i] = -3.0


@wp.kernel
def beyond(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = x[i + 1]


@wp.kernel
def overwritten(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    out[0] = x[wp.tid()]


KERNELS = {
    scale: lambda x: 2 * x,
    sines: lambda x: np.sin(x) + np.exp(x),
    summed: lambda x: np.float32([x.sum()]),
    largest: lambda x: np.float32([x.max()]),
    neighbours: lambda x: np.r_[0, x[:-2] + x[2:], 0].astype(np.float32),
    lengths: lambda x: np.sqrt(x * x + 5) + x + 1,
    rotated: lambda x: x + 3,
    clamped: lambda x: np.clip(x, -1, 1),
    iterated: lambda x: ((0 * x + 1) * x + 2) * x + 3,
    chosen: lambda x: np.where(x > 0, x, -3).astype(np.float32),
}
FAULTS = {beyond: "out_of_bounds", overwritten: "race"}


def ptx(folder):
    """The file with all kernels of this module."""
    wp.compile_aot_module(
        wp.get_module(__name__), device=None, arch=90, module_dir=folder, use_ptx=True, strip_hash=True
    )
    (file,) = folder.glob("*.ptx")
    return file


def arguments(*arrays):
    """The launch's bounds, and a struct for each array: pointers to it and to gradients, extents and strides."""
    bounds = Struct(shape=np.uint32(X.size), size=np.uint64(X.size), threads=np.uint64(1))

    def array(a):
        shape, strides = (np.int32(a.size), *(np.int32(0),) * 3), (np.int32(a.itemsize), *(np.int32(0),) * 3)
        return Struct(data=a, grad=None, shape=shape, strides=strides, ndim=np.int32(1), flags=np.int32(0))

    return [bounds, *map(array, arrays)]
