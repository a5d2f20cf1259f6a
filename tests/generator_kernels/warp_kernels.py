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


@wp.func
def silu(value: float):
    return value / (1.0 + wp.exp(-value))


@wp.kernel
def smallest(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    wp.atomic_min(out, 0, x[wp.tid()])


@wp.kernel
def counted(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    if x[wp.tid()] > 0.0:
        wp.atomic_add(out, 0, 1.0)


@wp.kernel
def stepped(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.step(x[i]) + wp.sign(x[i]) * wp.abs(x[i])


@wp.kernel
def integral(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = float(int(x[i] * 4.0) / 3) + wp.floor(x[i])


@wp.kernel
def squashed(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = silu(x[i])


@wp.kernel
def crossed(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    v = wp.cross(wp.vec3(x[i], 1.0, 0.0), wp.vec3(0.0, x[i], 2.0))
    out[i] = v[0] + v[1] + v[2]


@wp.kernel
def inverted(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    m = wp.inverse(wp.mat22(2.0, x[i], 0.0, 4.0))
    out[i] = m[0, 1] + wp.determinant(m)


@wp.kernel
def turned(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    q = wp.quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), x[i])
    out[i] = wp.quat_rotate(q, wp.vec3(1.0, 0.0, 0.0))[0]


@wp.kernel
def mixed(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = wp.lerp(x[i], 1.0, 0.25) + wp.pow(wp.abs(x[i]), 1.5)


@wp.kernel
def until(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    value = x[i]
    while value < 2.0:
        value = value + 1.0
    out[i] = value


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
    smallest: lambda x: np.float32([x.min()]),
    counted: lambda x: np.float32([(x > 0).sum()]),
    stepped: lambda x: (x < 0) + np.sign(x) * np.abs(x),
    integral: lambda x: np.trunc(np.trunc(x * 4) / 3) + np.floor(x),
    squashed: lambda x: x / (1 + np.exp(-x)),
    crossed: lambda x: 2 - 2 * x + x * x,
    inverted: lambda x: 0.125 - x / 8,
    turned: np.cos,
    mixed: lambda x: 0.75 * x + 0.25 + np.abs(x) ** 1.5,
    until: lambda x: np.where(x < 2, x + np.ceil(2 - x), x),
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
