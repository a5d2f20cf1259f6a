"""Kernels for Gluon, with what they store; the last two have a fault, at lines that end with ``# here``."""

import numpy as np
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

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
def powers(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.exp(gl.load(x + at)) * 3)


@gluon.jit
def sines(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.sin(gl.load(x + at)) + gl.cos(gl.load(x + at)))


@gluon.jit
def chosen(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    value = gl.load(x + at)
    gl.store(out + at, gl.where(value > 0, value, -3))


@gluon.jit
def masked(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.load(x + at, mask=at < 200, other=7), mask=at < 220)


@gluon.jit
def softmax(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    value = gl.load(x + at)
    power = gl.exp(value - gl.max(value, 0))
    gl.store(out + at, power / gl.sum(power, 0))


@gluon.jit
def looped(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    value = gl.load(x + at)
    sums = value * 0
    for power in range(4):
        sums = sums * value + power
    gl.store(out + at, sums)


@gluon.jit
def halves(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.load(x + at).to(gl.float16).to(gl.float32), mask=at < 250)


@gluon.jit
def integral(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, (gl.load(x + at) * 4).to(gl.int32) // 2)


@gluon.jit
def roots(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.rsqrt(gl.load(x + at) * gl.load(x + at) + 1))


@gluon.jit
def largest(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.atomic_max(out, gl.max(gl.load(x + at), 0) + 3)


@gluon.jit
def added(a, b):
    return a + b


@gluon.jit
def summed_so_far(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    gl.store(out + at, gl.associative_scan(gl.load(x + at), 0, added))


@gluon.jit
def converted(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    other: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    moved = gl.convert_layout(gl.load(x + at), other)
    gl.store(out + gl.program_id(0) * N + gl.arange(0, N, layout=other), moved)


@gluon.jit
def transposed(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [2, 16], [4, 1], [1, 0])
    rows = gl.program_id(0) * 8 + gl.arange(0, 8, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 16, layout=gl.SliceLayout(0, layout))
    value = gl.load(x + rows[:, None] * 16 + columns[None, :])
    gl.store(out + columns[None, :] * 16 + rows[:, None], value)


@gluon.jit
def row_sums(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [2, 16], [4, 1], [1, 0])
    rows = gl.program_id(0) * 8 + gl.arange(0, 8, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 16, layout=gl.SliceLayout(0, layout))
    gl.store(out + rows, gl.sum(gl.load(x + rows[:, None] * 16 + columns[None, :]), 1))


@gluon.jit
def copied_asynchronously(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    at = gl.program_id(0) * N + gl.arange(0, N, layout=layout)
    kept = gl.allocate_shared_memory(gl.float32, [N], shared)
    async_copy.async_load(kept, x + at)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + at, kept.load(layout))


@gluon.jit
def multiplied(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 2)
    sums: gl.constexpr = gl.SliceLayout(1, layout)
    rows = gl.arange(0, 16, layout=gl.SliceLayout(1, left))[:, None]
    inner = gl.arange(0, 16, layout=gl.SliceLayout(0, left))[None, :]
    a = gl.load(x + rows * 16 + inner).to(gl.float16)
    rows = gl.arange(0, 16, layout=gl.SliceLayout(1, right))[:, None]
    inner = gl.arange(0, 16, layout=gl.SliceLayout(0, right))[None, :]
    b = gl.load(x + rows * 16 + inner).to(gl.float16)
    product = mma_v2(a, b, gl.zeros([16, 16], gl.float32, layout))
    rows = gl.arange(0, 16, layout=sums)[:, None]
    columns = gl.arange(0, 16, layout=gl.SliceLayout(0, layout))[None, :]
    gl.store(out + rows * 16 + columns, product, mask=rows + gl.program_id(0) * 16 < 16)


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
    powers: lambda x: np.exp(x) * 3,
    sines: lambda x: np.sin(x) + np.cos(x),
    chosen: lambda x: np.where(x > 0, x, -3),
    masked: lambda x: np.r_[x[:200], np.full(20, 7), np.zeros(36)],
    softmax: lambda x: np.concatenate([np.exp(r - r.max()) / np.exp(r - r.max()).sum() for r in x.reshape(2, 128)]),
    looped: lambda x: ((0 * x + 1) * x + 2) * x + 3,
    halves: lambda x: np.r_[x[:250].astype(np.float16), np.zeros(6)],
    integral: lambda x: np.trunc(np.trunc(x * 4) / 2),
    roots: lambda x: 1 / np.sqrt(x * x + 1),
    largest: lambda x: np.float32([x.max() + 3]),
    summed_so_far: lambda x: np.cumsum(x.reshape(2, 128), axis=1).ravel(),
    converted: lambda x: x,
    transposed: lambda x: x.reshape(16, 16).T.ravel(),
    row_sums: lambda x: x.reshape(16, 16).sum(1),
    copied_asynchronously: lambda x: x,
    multiplied: lambda x: (np.float16(x.reshape(16, 16)).astype(np.float32) @ np.float16(x.reshape(16, 16))).ravel(),
}
FAULTS = {beyond: "out_of_bounds", overwritten: "race"}
