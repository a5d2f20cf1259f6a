"""Kernels for CuTe DSL, with what they store; the last two have a fault, at the line that ends with ``# here``."""

import os
import tempfile

os.environ.update(CUTE_DSL_ARCH="sm_90a", CUTE_DSL_KEEP_PTX="1", CUTE_DSL_LINEINFO="1")
os.environ.setdefault("CUTE_DSL_DUMP_DIR", tempfile.mkdtemp())

import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass.cute.runtime import make_fake_tensor
from cutlass.utils import SmemAllocator

from workbench.emulator import Struct, launch, load

X, Y = np.random.default_rng(1).standard_normal((2, 256)).astype(np.float32)


@cute.jit
def at():
    return cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]


@cute.kernel
def scale(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = x[at()] * 2.0


@cute.kernel
def add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = x[at()] + y[at()]


@cute.kernel
def powers(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = cute.math.exp(x[at()]) * y[at()]


@cute.kernel
def sines(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = cute.math.sin(x[at()]) + cute.math.tanh(y[at()])


@cute.kernel
def roots(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = cute.math.rsqrt(x[at()] * x[at()] + 1.0)


@cute.kernel
def chosen(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    if x[at()] > 0.0:
        out[at()] = x[at()]
    else:
        out[at()] = y[at()]


@cute.kernel
def looped(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    sums = y[at()]
    for _ in cutlass.range(5):
        sums = sums * 0.5 + x[at()]
    out[at()] = sums


@cute.kernel
def unrolled(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    sums = x[at()] * 0.0
    for power in cutlass.range_constexpr(4):
        sums = sums * x[at()] + float(power)
    out[at()] = sums


@cute.kernel
def neighbours(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    if at() > 0 and at() < 255:
        out[at()] = x[at() - 1] + x[at() + 1]


@cute.kernel
def halves(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = x[at()].to(cutlass.BFloat16).to(cutlass.Float32)


@cute.kernel
def integral(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = (x[at()].to(cutlass.Int32) * 3).to(cutlass.Float32)


@cute.kernel
def reversed_by_block(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    t = cute.arch.thread_idx()[0]
    part = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    part[t] = x[at()]
    cute.arch.sync_threads()
    out[at()] = part[127 - t]


@cute.kernel
def summed_by_warp(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    sums = x[at()]
    for step in cutlass.range_constexpr(5):
        sums = sums + cute.arch.shuffle_sync_bfly(sums, 1 << step)
    out[at()] = sums


@cute.kernel
def reduced(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    t = cute.arch.thread_idx()[0]
    part = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    part[t] = x[at()]
    cute.arch.sync_threads()
    for step in cutlass.range_constexpr(7):
        half = 64 >> step
        if t < half:
            part[t] = part[t] + part[t + half]
        cute.arch.sync_threads()
    out[at()] = part[0]


@cute.kernel
def transposed(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    rows = cute.make_tensor(x.iterator, cute.make_layout((16, 16), stride=(16, 1)))
    columns = cute.make_tensor(out.iterator, cute.make_layout((16, 16), stride=(1, 16)))
    columns[at() // 16, at() % 16] = rows[at() // 16, at() % 16]


@cute.kernel
def tiled(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    b, t = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    cute.local_tile(out, (128,), (b,))[t] = cute.local_tile(x, (128,), (1 - b,))[t]


@cute.kernel
def by_fours(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    if at() < 64:
        fours, to = cute.zipped_divide(x, (4,)), cute.zipped_divide(out, (4,))
        to[(None, at())].store(fours[(None, at())].load() * 3.0)


@cute.kernel
def maxima(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = cutlass.max(x[at()], y[at()])


@cute.kernel
def whiled(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    value = x[at()]
    while value < 2.0:
        value = value + 1.0
    out[at()] = value


@cute.kernel
def shifted(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    below = cute.arch.shuffle_sync_up(x[at()], 1, mask_and_clamp=0)
    out[at()] = below


@cute.kernel
def beyond(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    out[at()] = x[at() + 1]  # here


@cute.kernel
def unordered(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    t = cute.arch.thread_idx()[0]
    part = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    part[t] = x[at()]  # here
    out[at()] = part[127 - t]  # here


def _by_warp(x):
    return x.reshape(-1, 32)


KERNELS = {
    scale: lambda x, y: 2 * x,
    add: lambda x, y: x + y,
    powers: lambda x, y: np.exp(x) * y,
    sines: lambda x, y: np.sin(x) + np.tanh(y),
    roots: lambda x, y: 1 / np.sqrt(x * x + 1),
    chosen: lambda x, y: np.where(x > 0, x, y),
    looped: lambda x, y: y / 32 + x * 1.9375,
    unrolled: lambda x, y: ((0 * x + 1) * x + 2) * x + 3,
    neighbours: lambda x, y: np.r_[0, x[:-2] + x[2:], 0],
    halves: lambda x, y: ((x.view(np.uint32) + 0x7FFF + (x.view(np.uint32) >> 16 & 1)) & 0xFFFF0000).view(np.float32),
    integral: lambda x, y: 3 * np.trunc(x),
    reversed_by_block: lambda x, y: x.reshape(2, 128)[:, ::-1].ravel(),
    summed_by_warp: lambda x, y: np.repeat(_by_warp(x).sum(1), 32),
    reduced: lambda x, y: np.repeat(x.reshape(2, 128).sum(1), 128),
    transposed: lambda x, y: x.reshape(16, 16).T.ravel(),
    tiled: lambda x, y: np.roll(x, 128),
    by_fours: lambda x, y: 3 * x,
    maxima: lambda x, y: np.maximum(x, y),
    whiled: lambda x, y: np.where(x < 2, x + np.ceil(2 - x), x),
    shifted: lambda x, y: np.c_[_by_warp(x)[:, :1], _by_warp(x)[:, :-1]].ravel(),
}
FAULTS = {beyond: "out_of_bounds", unordered: "race"}


def run(kernel):
    """Its result and the report."""

    @cute.jit
    def host(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
        kernel(x, y, out).launch(grid=[2, 1, 1], block=[128, 1, 1], smem=512)

    fake = make_fake_tensor(cutlass.Float32, (256,), (1,), assumed_align=16)
    program = load(cute.compile(host, fake, fake, fake).artifacts.PTX)
    out = np.zeros_like(X)
    given = [Struct(array=array) for array in (X.copy(), Y.copy(), out)]
    return out, launch(program, None, 2, 128, given, shared=512)
