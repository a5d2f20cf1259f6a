"""Short kernels that show how launches are taken over."""

from __future__ import annotations

from collections import namedtuple

import triton
import triton.language as tl

Pair = namedtuple("Pair", ["x", "y"])


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


CONFIGURATIONS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 1), (128, 2), (256, 4))]


@triton.autotune(CONFIGURATIONS, key=["n"], reset_to_zero=["sums"])
@triton.heuristics({"EVEN": lambda meta: meta["n"] % meta["BLOCK"] == 0})
@triton.jit
def summed(x, sums, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """Adds to sums. With 256 elements a program it reads past the end where the rest is taken for whole."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at) if EVEN or BLOCK == 256 else tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(sums, tl.sum(values, 0))


@triton.autotune(
    [triton.Config({"BLOCK_M": m, "BLOCK_K": k}, num_stages=stages) for m, k, stages in ((128, 128, 5), (64, 32, 2))],
    key=[],
)
@triton.jit
def square(a, out, steps, N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """a a, of (N, N); the first configuration needs more shared memory than a block may have."""
    m, n, k = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, N), tl.float32)
    for start in range(0, steps, BLOCK_K):
        x = tl.load(a + m[:, None] * N + start + k[None, :])
        y = tl.load(a + (start + k[:, None]) * N + n[None, :])
        sums = tl.dot(x, y, sums)
    tl.store(out + m[:, None] * N + n[None, :], sums)


@triton.jit
def add_pair(pair, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(pair.x + at, mask=at < n) + tl.load(pair.y + at, mask=at < n), mask=at < n)


@triton.jit
def checked(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.device_print("value", values)
    tl.device_assert(values < n, "too large")


@triton.jit
def normalised(x, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """Rows by their sums, in place; with a step of less than a row, programs race for what they share."""
    at = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(x + at, values / tl.sum(values, 0))


@triton.jit
def rounded(x, out, BLOCK: tl.constexpr):
    """To the type of the output, one element a thread: Triton leaves halves of registers unset."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@triton.jit
def sum_of_products(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at) * tl.load(y + at), 0))


@triton.jit
def product_and_extremes(a, b, out, sums, largest, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product of one tile, whose sums and maxima go along both of its dimensions."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    product = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(out + m[:, None] * N + n[None, :], product)
    tl.store(sums + m, tl.sum(product, 1))
    tl.store(largest + n, tl.max(product, 0))


@triton.jit
def added(x, out, BLOCK: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))
    tl.atomic_add(out, part)  # reads out


@triton.jit
def largest(x, out, BLOCK: tl.constexpr):
    part = tl.max(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))
    tl.atomic_max(out, part)


def _increased(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = (at < n) | EVEN
    tl.store(x + at, tl.load(x + at, mask=inside) + 1, mask=inside)


increased = triton.jit(_increased)
increased_even = triton.heuristics({"EVEN": lambda given: given["n"] % 64 == 0})(
    triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 64}, num_warps=2)], [], restore_value=["x"])(
        increased
    )
)
increased_tuned = triton.autotune([triton.Config({"B": size}) for size in (64, 128)], [], restore_value=["x"])(
    triton.heuristics({"EVEN": lambda given: given["n"] % given["B"] == 0})(increased)
)
