"""Our own Triton kernel for `conv2d`: any size, layout and type of a problem.

It is as plain as Triton allows: masked loads, one tile of pixels and filters a program, a k-tile of channels a tap, no
search for the best tile. Sums are fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from ...model.launch import ceil_div
from .problem import Activation, Conv2dProblem


@triton.jit
def conv2d(
    x,  # (images, height, width, channels of all groups), and elements from one to the next in each dimension
    by_x,
    f,  # (filters of all groups, taps_y, taps_x, channels)
    by_f,
    bias,  # (filters of all groups), where HAS_BIAS
    y,  # (images, rows, columns, filters of all groups)
    by_y,
    sizes,  # output pixels, height, width, rows, columns, channels and filters of a group
    taps,  # along y and x, as what follows
    stride,
    pad,
    dilation,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pixels, height, width, rows, columns, channels, filters = sizes
    across, group = tl.cdiv(filters, BLOCK_N), tl.program_id(1)
    pixel = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    filter = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    image, row, column = pixel // columns // rows, pixel // columns % rows, pixel % columns
    top, left = row * stride[0] - pad[0], column * stride[1] - pad[1]
    there, own, step = pixel < pixels, filter < filters, tl.arange(0, BLOCK_K)
    every = group.to(tl.int64) * filters + filter  # among all groups
    windows = x + image.to(tl.int64) * by_x[0] + group.to(tl.int64) * channels * by_x[3]
    weights = f + every * by_f[0]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for r in range(taps[0]):
        i = top + r * dilation[0]
        for s in range(taps[1]):
            j = left + s * dilation[1]
            inside = there & (i >= 0) & (i < height) & (j >= 0) & (j < width)
            seen = windows + i.to(tl.int64) * by_x[1] + j.to(tl.int64) * by_x[2]
            for start in range(0, channels, BLOCK_K):
                channel = start + step
                known = channel < channels
                a = seen[:, None] + channel[None, :].to(tl.int64) * by_x[3]
                b = weights[None, :] + r * by_f[1] + s * by_f[2] + channel[:, None].to(tl.int64) * by_f[3]
                u = tl.load(a, mask=inside[:, None] & known[None, :], other=0.0)
                w = tl.load(b, mask=known[:, None] & own[None, :], other=0.0)
                sums = tl.dot(u, w, sums, input_precision="ieee")  # fp32 is multiplied as fp32, not as tf32
    if HAS_BIAS:
        sums += tl.load(bias + every, mask=own, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "relu":
        sums = tl.where(sums < 0.0, 0.0, sums)
    if ACTIVATION == "gelu":
        sums = 0.5 * sums * (1.0 + tl.erf(sums * 0.7071067811865476))
    to = y + image.to(tl.int64) * by_y[0] + row.to(tl.int64) * by_y[1] + column.to(tl.int64) * by_y[2]
    stored = to[:, None] + every[None, :] * by_y[3]
    tl.store(stored, sums.to(y.dtype.element_ty), mask=there[:, None] & own[None, :])


def work(p: Conv2dProblem, x: Any, f: Any, y: Any, bias: Any = None) -> Callable[[], object]:
    """A function that launches the kernel on PyTorch's current stream."""
    half = p.dtype != "fp32"
    block_m, block_n = (128 if half else 64), (128 if half and p.filters > 64 else 64)
    block_k = max(16, min(64 if half else 16, triton.next_power_of_2(p.channels)))
    grid = (ceil_div(p.pixels, block_m) * ceil_div(p.filters, block_n), p.groups)
    named = ("pixels", "height", "width", "rows", "columns", "channels", "filters")
    sizes = tuple(getattr(p, name) for name in named)
    pairs = tuple((getattr(p, f"{name}_y"), getattr(p, f"{name}_x")) for name in ("taps", "stride", "pad", "dilation"))
    given = (x, x.stride(), f, f.stride(), x if bias is None else bias, y, y.stride())
    how: dict[str, Any] = {"HAS_BIAS": bias is not None, "ACTIVATION": Activation(p.activation).value}
    how |= {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return lambda: conv2d[grid](*given, sizes, *pairs, **how, num_warps=8 if half else 4, num_stages=3)
