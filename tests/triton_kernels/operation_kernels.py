"""Kernels of Triton for the operations whose baselines have none of our own: a row, or a tile, for each program."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


@triton.jit
def _row(x, stride, columns, other, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    return tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=other).to(tl.float32)


@triton.jit
def _put(y, stride, columns, values, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * stride + column, values, mask=column < columns)


@triton.jit
def softmax(x, y, sx, sy, columns, BLOCK: tl.constexpr):
    values = _row(x, sx, columns, float("-inf"), BLOCK)
    weights = tl.exp(values - tl.max(values, 0))
    _put(y, sy, columns, weights / tl.sum(weights, 0), BLOCK)


@triton.jit
def softmax_backward(y, dy, dx, sy, sg, sx, columns, BLOCK: tl.constexpr):
    weights, grad = _row(y, sy, columns, 0.0, BLOCK), _row(dy, sg, columns, 0.0, BLOCK)
    _put(dx, sx, columns, weights * (grad - tl.sum(weights * grad, 0)), BLOCK)


@triton.jit
def scan(x, y, sx, sy, columns, BLOCK: tl.constexpr):
    _put(y, sy, columns, tl.cumsum(_row(x, sx, columns, 0.0, BLOCK), 0), BLOCK)


@triton.jit
def cross_entropy(x, labels, loss, lse, sx, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    values, label = _row(x, sx, columns, float("-inf"), BLOCK), tl.load(labels + row)
    largest = tl.max(values, 0)
    total = largest + tl.log(tl.sum(tl.exp(values - largest), 0))
    logit = tl.sum(tl.where(tl.arange(0, BLOCK) == label, values, 0.0), 0)
    tl.store(lse + row, total)
    tl.store(loss + row, tl.where(label < 0, 0.0, total - logit))


@triton.jit
def norm(x, added, w, b, s, y, sx, sr, ss, sy, columns, eps, CENTRED: tl.constexpr, BLOCK: tl.constexpr):
    """RMS norm, with a residual where one is given, or layer norm, which is ``CENTRED``."""
    column = tl.arange(0, BLOCK)
    values = _row(x, sx, columns, 0.0, BLOCK)
    if added is not None:
        values = (values + _row(added, sr, columns, 0.0, BLOCK)).to(s.dtype.element_ty)
        _put(s, ss, columns, values, BLOCK)
        values = values.to(tl.float32)
    if CENTRED:
        values = tl.where(column < columns, values - tl.sum(values, 0) / columns, 0.0)
    values *= 1 / tl.sqrt(tl.sum(values * values, 0) / columns + eps)
    values *= tl.load(w + column, mask=column < columns, other=0.0).to(tl.float32)
    if b is not None:
        values += tl.load(b + column, mask=column < columns, other=0.0).to(tl.float32)
    _put(y, sy, columns, values, BLOCK)


@triton.jit
def norm_backward(x, w, dy, dx, dw, db, sx, sg, sd, rows, columns, eps, CENTRED: tl.constexpr, BLOCK: tl.constexpr):
    """One program for all rows, which adds up the gradients of the weights in their order."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weights = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
    of_w, of_b = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        values = tl.load(x + row * sx + column, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(dy + row * sg + column, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            values = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
        scale = 1 / tl.sqrt(tl.sum(values * values, 0) / columns + eps)
        values *= scale
        of_w += grad * values
        of_b += grad
        grad *= weights
        result = grad - values * tl.sum(grad * values, 0) / columns
        if CENTRED:
            result -= tl.sum(grad, 0) / columns
        tl.store(dx + row * sd + column, scale * result, mask=inside)
    tl.store(dw + column, of_w, mask=inside)
    if db is not None:
        tl.store(db + column, of_b, mask=inside)


@triton.jit
def reduce(x, y, sx, rows, columns, TALL: tl.constexpr, BLOCK: tl.constexpr, OVER: tl.constexpr, LARGEST: tl.constexpr):
    """A row, a few columns, or all: whichever ``OVER`` says."""
    program = tl.program_id(0)
    row, column = tl.arange(0, TALL)[:, None], tl.arange(0, BLOCK)[None, :]
    if OVER == "columns":
        row += program * TALL
    if OVER == "rows":
        column += program * BLOCK
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * sx + column, mask=inside, other=float("-inf") if LARGEST else 0.0).to(tl.float32)
    if OVER == "columns":
        row = program * TALL + tl.arange(0, TALL)
        tl.store(y + row, tl.max(values, 1) if LARGEST else tl.sum(values, 1), mask=row < rows)
    elif OVER == "rows":
        column = program * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + column, tl.max(values, 0) if LARGEST else tl.sum(values, 0), mask=column < columns)
    else:
        tl.store(y, tl.max(values) if LARGEST else tl.sum(values))


@triton.jit
def transpose(x, y, sx, sy, rows, columns, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    values = tl.load(x + row[:, None] * sx + column[None, :], mask=inside)
    tl.store(y + column[:, None] * sy + row[None, :], values.trans(), mask=inside.trans())


@triton.jit
def rotary(x, cos, sin, y, sx, sy, seq, half, APART: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """A head's position for each program; a pair's second number is ``APART`` behind the first."""
    pair = tl.arange(0, BLOCK)
    inside, place = pair < half, tl.program_id(0) % seq * half + pair
    c = tl.load(cos + place, mask=inside).to(tl.float32)
    s = tl.load(sin + place, mask=inside).to(tl.float32)
    at = tl.program_id(0) * sx + pair * STEP
    u = tl.load(x + at, mask=inside).to(tl.float32)
    v = tl.load(x + at + APART, mask=inside).to(tl.float32)
    at = tl.program_id(0) * sy + pair * STEP
    tl.store(y + at, u * c - v * s, mask=inside)
    tl.store(y + at + APART, u * s + v * c, mask=inside)


@triton.jit
def scaled_gemm(a, b, a_scale, b_scale, c, sa, sb, sc, m, n, k, TILE: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, k, STEP):
        at = first + tl.arange(0, STEP)
        left = tl.load(a + row[:, None] * sa + at[None, :], mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
        right = tl.load(
            b + column[None, :] * sb + at[:, None], mask=(column < n)[None, :] & (at < k)[:, None], other=0.0
        )
        total = tl.dot(left, right, total)
    total *= tl.load(a_scale + row, mask=row < m)[:, None] * tl.load(b_scale + column, mask=column < n)[None, :]
    tl.store(c + row[:, None] * sc + column[None, :], total, mask=(row < m)[:, None] & (column < n)[None, :])


@triton.jit
def convolution(u, k, y, length, channels, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    """By its definition, which short sequences need no transform for."""
    row, t = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for j in range(length):
        before = t - j
        if not CAUSAL:
            before = tl.where(before < 0, before + length, before)
        values = tl.load(u + row * length + before, mask=(before >= 0) & (t < length), other=0.0)
        total += tl.load(k + row % channels * length + j).to(tl.float32) * values.to(tl.float32)
    tl.store(y + row * length + t, total, mask=t < length)


def step(array: Array) -> int:
    return array.strides[-2] // array.itemsize


def block(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


def launch(name: str, problem: Any, held: Arrays) -> None:
    """Solves a problem of the operation."""
    if name in ROWS:
        kernel, matrices, vectors = ROWS[name]
        shape = held[matrices[0]].shape
        order = kernel.arg_names[: len(matrices) + len(vectors)]
        strides = [step(held[matrix]) for matrix in matrices]
        kernel[(shape[0],)](*(held[argument] for argument in order), *strides, shape[1], BLOCK=block(shape[1]))
    else:
        OTHERS[name](problem, held)


ROWS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "softmax": (softmax, ("x", "y"), ()),
    "softmax_backward": (softmax_backward, ("y", "dy", "dx"), ()),
    "scan": (scan, ("x", "y"), ()),
    "cross_entropy": (cross_entropy, ("x",), ("labels", "loss", "lse")),
}


def launch_norm(problem: Any, held: Arrays) -> None:
    x, y, added, s = held["x"], held["y"], held.get("residual"), held.get("s")
    strides = step(x), 0 if added is None else step(added), 0 if s is None else step(s), step(y)
    given = x, added, held["w"], held.get("b"), s, y, *strides, x.shape[1], problem.eps
    norm[(x.shape[0],)](*given, CENTRED="b" in held, BLOCK=block(x.shape[1]))


def launch_norm_backward(problem: Any, held: Arrays) -> None:
    x, dy, dx = held["x"], held["dy"], held["dx"]
    given = x, held["w"], dy, dx, held["dw"], held.get("db"), step(x), step(dy), step(dx), *x.shape, problem.eps
    norm_backward[(1,)](*given, CENTRED="db" in held, BLOCK=block(x.shape[1]))


def launch_reduce(problem: Any, held: Arrays) -> None:
    x, y = held["x"], held["y"]
    rows, columns = x.shape
    tall = 4 if problem.over == "columns" else block(rows)
    wide = 32 if problem.over == "rows" else block(columns)
    programs = {"columns": -(-rows // tall), "rows": -(-columns // wide), "all": 1}[problem.over]
    shape = {"TALL": tall, "BLOCK": wide, "OVER": problem.over, "LARGEST": problem.op == "max"}
    reduce[(programs,)](x, y, step(x), rows, columns, **shape)


def launch_transpose(_: Any, held: Arrays) -> None:
    x, y = held["x"], held["y"]
    transpose[tuple(-(-size // 32) for size in x.shape)](x, y, step(x), step(y), *x.shape, TILE=32)


def launch_rotary(problem: Any, held: Arrays) -> None:
    x, y, seq, half = held["x"], held["y"], problem.seq, problem.half
    apart, every = (1, 2) if problem.pairs == "interleaved" else (half, 1)
    programs = x.size // (2 * half)
    given = x, held["cos"], held["sin"], y, step(x), step(y), seq, half
    rotary[(programs,)](*given, APART=apart, STEP=every, BLOCK=block(half))


def launch_scaled_gemm(problem: Any, held: Arrays) -> None:
    a, b, c = held["A"], held["B"], held["C"]
    grid = -(-problem.m // 64), -(-problem.n // 64)
    given = a, b, held["a_scale"], held["b_scale"], c, step(a), step(b), step(c), problem.m, problem.n, problem.k
    scaled_gemm[grid](*given, TILE=64, STEP=64)


def launch_convolution(problem: Any, held: Arrays) -> None:
    batch, channels, length = held["u"].shape
    given = held["u"], held["k"], held["y"], length, channels
    convolution[(batch * channels,)](*given, CAUSAL=problem.causal, BLOCK=block(length))


OTHERS = {
    "rms_norm": launch_norm,
    "residual_rms_norm": launch_norm,
    "layer_norm": launch_norm,
    "rms_norm_backward": launch_norm_backward,
    "layer_norm_backward": launch_norm_backward,
    "reduce": launch_reduce,
    "transpose": launch_transpose,
    "rotary": launch_rotary,
    "gemm_fp8": launch_scaled_gemm,
    "fft_conv": launch_convolution,
}
