"""Kernels of Triton on rows and elements, as people write them, with what NumPy says of them."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def add_reference(x, y):
    return {"out": x + y}


@triton.jit
def softmax(x, out, x_row, out_row, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_row + at, mask=at < columns, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * out_row + at, powers / tl.sum(powers, 0), mask=at < columns)


def softmax_reference(x):
    powers = np.exp(x - x.max(1, keepdims=True))
    return {"out": powers / powers.sum(1, keepdims=True)}


@triton.jit
def _moments(x, columns, BLOCK: tl.constexpr):
    """Mean and variance of a row, in two passes."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        apart = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32) - mean
        squares += tl.where(at < columns, apart * apart, 0.0)
    return mean, tl.sum(squares, 0) / columns


@triton.jit
def layer_norm(x, weight, bias, out, mean, rstd, row_step, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * row_step
    out += row * row_step
    centre, variance = _moments(x, columns, BLOCK)
    scale = 1 / tl.sqrt(variance + eps)
    tl.store(mean + row, centre)
    tl.store(rstd + row, scale)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        values = (tl.load(x + at, mask=inside).to(tl.float32) - centre) * scale
        values = values * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
        tl.store(out + at, values, mask=inside)


def layer_norm_reference(x, weight, bias, eps):
    x = x.astype(np.float64)
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + eps)
    return {"out": (x - mean[:, None]) * rstd[:, None] * weight + bias, "mean": mean, "rstd": rstd}


@triton.jit
def layer_norm_backward(
    x, weight, grad, mean, rstd, grad_x, grad_weight, grad_bias, locks, row_step, columns, GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias are summed by group of rows, under a lock: the first to come stores."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * row_step + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(grad + row * row_step + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(rstd + row)
    normal = tl.where(inside, (values - tl.load(mean + row)) * scale, 0.0)
    weighted = tl.where(inside, g * tl.load(weight + at, mask=inside, other=0.0), 0.0)
    c1, c2 = tl.sum(normal * weighted, 0) / columns, tl.sum(weighted, 0) / columns
    tl.store(grad_x + row * row_step + at, (weighted - (normal * c1 + c2)) * scale, mask=inside)
    group = row % GROUPS
    lock, count = locks + group, locks + GROUPS + group
    to_weight, to_bias = grad_weight + group * columns + at, grad_bias + group * columns + at
    sum_weight, sum_bias = g * normal, g
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    first = tl.load(count) == 0
    tl.debug_barrier()  # some of Triton's releases put none between the load of all threads and the exchange of one
    if first:
        tl.atomic_xchg(count, 1)
    else:
        sum_weight += tl.load(to_weight, mask=inside)
        sum_bias += tl.load(to_bias, mask=inside)
    tl.store(to_weight, sum_weight, mask=inside)
    tl.store(to_bias, sum_bias, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def layer_norm_backward_reference(x, weight, grad, mean, rstd, GROUPS):
    normal = (x.astype(np.float64) - mean[:, None]) * rstd[:, None]
    weighted = grad * weight
    c1, c2 = (normal * weighted).mean(1, keepdims=True), weighted.mean(1, keepdims=True)
    sums = [
        np.stack([terms[group::GROUPS].sum(0) for group in range(GROUPS)])
        for terms in (grad * normal, grad.astype(np.float64))
    ]
    return {
        "grad_x": (weighted - (normal * c1 + c2)) * rstd[:, None],
        "grad_weight": sums[0],
        "grad_bias": sums[1],
    }


@triton.jit
def dropout(x, out, kept, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > p
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, tl.where(keep, values / (1 - p), 0.0), mask=at < n)
    tl.store(kept + at, keep.to(tl.float32), mask=at < n)


def _uniform(seed: int, counter: np.ndarray) -> np.ndarray:
    """What `tl.rand` draws: the first word of Philox-4x32 with ten rounds, by its signless upper 31 bits."""
    words = [counter.astype(np.uint64), *(np.zeros(len(counter), np.uint64) for _ in range(3))]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0]),
            second & low,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1]),
            first & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    signed = words[0].astype(np.uint32).view(np.int32).astype(np.int64)
    return np.where(signed < 0, -signed - 1, signed) * 4.6566127342e-10


def dropout_reference(x, p, seed):
    kept = _uniform(seed, np.arange(len(x))) > p
    return {"out": np.where(kept, x / (1 - p), 0.0), "kept": kept}


@triton.jit
def _decayed(left_factor, left, right_factor, right):
    return left_factor * right_factor, left * right_factor + right


@triton.jit
def scan(factors, x, out, columns, BLOCK: tl.constexpr):
    """h[i] = factors[i] h[i - 1] + x[i] along each row."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    a = tl.load(factors + row * columns + at, mask=inside, other=1.0)
    b = tl.load(x + row * columns + at, mask=inside, other=0.0)
    _, found = tl.associative_scan((a, b), 0, _decayed)
    tl.store(out + row * columns + at, found, mask=inside)


def scan_reference(factors, x):
    found, state = np.empty(x.shape), np.zeros(len(x))
    for i in range(x.shape[1]):
        state = state * factors[:, i] + x[:, i]
        found[:, i] = state
    return {"out": found}
