"""Kernels for Gluon, with what they store; the last two have a fault, at lines that end with ``# here``."""

import numpy as np
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

X = np.linspace(-2, 2, 256, dtype=np.float32)


@gluon.jit
def scale(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, 2 * gl.load(x + at))


@gluon.jit
def vectors(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.load(x + at) + 1)


@gluon.jit
def total(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.atomic_add(out, gl.sum(gl.load(x + at), 0))


@gluon.jit
def through_shared(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    other: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    kept = gl.allocate_shared_memory(gl.float32, [N], shared, gl.load(x + at))
    gl.store(out + gl.program_id(0) * N + gl.arange(0, N, layout=other), kept.load(other))


@gluon.jit
def beyond(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.load(x + at + 1))  # here


@gluon.jit
def overwritten(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.load(x + at) + gl.program_id(0))  # here


KERNELS = {
    scale: lambda x: 2 * x,
    vectors: lambda x: x + 1,
    total: lambda x: np.float32([x.sum()]),
    through_shared: lambda x: x,
}
FAULTS = {beyond: "out_of_bounds", overwritten: "race"}
