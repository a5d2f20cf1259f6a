"""Kernels of Triton with tensor cores, as people write them, with what NumPy says of them."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, M, N, K, a_row, b_row, c_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Pointers and masks; `GROUP` rows of tiles are walked together."""
    tile, across, down = tl.program_id(0), tl.cdiv(N, BLOCK_N), tl.cdiv(M, BLOCK_M)
    first = tile // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    m = (first + tile % (GROUP * across) % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile % (GROUP * across) // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, tl.cdiv(K, BLOCK_K)):
        inside = k < K - start * BLOCK_K
        at_k = start * BLOCK_K + k
        x = tl.load(a + m[:, None] * a_row + at_k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
        y = tl.load(b + at_k[:, None] * b_row + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0.0)
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * c_row + n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < N))


def matmul_reference(a, b):
    return {"c": a.astype(np.float64) @ b.astype(np.float64)}


@triton.jit
def matmul_host_descriptors(a, b, c, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A and C by row, B transposed: (N, K)."""
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        sums = tl.dot(a.load([m, k]), b.load([n, k]).T, sums)
    c.store([m, n], sums.to(tl.float16))


@triton.jit
def matmul_device_descriptors(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """As above, with descriptors that the kernel makes."""
    of_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    of_b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    of_c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        sums = tl.dot(of_a.load([m, k]), of_b.load([n, k]).T, sums)
    of_c.store([m, n], sums.to(tl.float16))


def transposed_reference(a, b):
    a, b = (x if isinstance(x, np.ndarray) else x.base for x in (a, b))
    return {"c": a.astype(np.float64) @ b.astype(np.float64).T}


@triton.jit
def matmul_persistent(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
):  # fmt: skip
    """Every program takes tile after tile; B is (N, K)."""
    across = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * across
    k = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
        m = tile // across * BLOCK_M + tl.arange(0, BLOCK_M)
        n = tile % across * BLOCK_N + tl.arange(0, BLOCK_N)
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            inside = start + k < K
            x = tl.load(a + m[:, None] * K + start + k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
            y = tl.load(b + n[None, :] * K + start + k[:, None], mask=inside[:, None] & (n[None, :] < N), other=0.0)
            sums = tl.dot(x, y, sums)
        tl.store(c + m[:, None] * N + n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def matmul_fp8(a, b, c, scale, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """e4m3, B (N, K), with one scale."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a + m[:, None] * K + start + k[None, :], mask=m[:, None] < M, other=0.0)
        y = tl.load(b + n[None, :] * K + start + k[:, None], mask=n[None, :] < N, other=0.0)
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums * tl.load(scale), mask=(m[:, None] < M) & (n[None, :] < N))


def fp8_reference(a, b, scale):
    return {"c": a.astype(np.float64) @ b.astype(np.float64).T * scale[0]}


@triton.jit
def matmul_split_k(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr
):
    """Programs along y take every SPLITth k-tile, and add what they find to C, which is 0 before."""
    across = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K * SPLIT):
        inside = start + k < K
        x = tl.load(a + m[:, None] * K + start + k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
        y = tl.load(b + (start + k[:, None]) * N + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0.0)
        sums = tl.dot(x, y, sums)
    tl.atomic_add(c + m[:, None] * N + n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def matmul_grouped(
    pointers, sizes, count, PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Products of several shapes: addresses of a, b and c, (3, count), and m, n and k of each, (count, 3)."""
    tile, before = tl.program_id(0), 0
    for product in range(count):
        M = tl.load(sizes + 3 * product)
        N = tl.load(sizes + 3 * product + 1)
        K = tl.load(sizes + 3 * product + 2)
        across = tl.cdiv(N, BLOCK_N)
        after = before + tl.cdiv(M, BLOCK_M) * across
        a = tl.load(pointers + product).to(tl.pointer_type(tl.float16))
        b = tl.load(pointers + count + product).to(tl.pointer_type(tl.float16))
        c = tl.load(pointers + 2 * count + product).to(tl.pointer_type(tl.float16))
        while tile < after:
            m = (tile - before) // across * BLOCK_M + tl.arange(0, BLOCK_M)
            n = (tile - before) % across * BLOCK_N + tl.arange(0, BLOCK_N)
            k = tl.arange(0, BLOCK_K)
            sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for start in range(0, K, BLOCK_K):
                inside = start + k < K
                x = tl.load(a + m[:, None] * K + start + k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
                y = tl.load(
                    b + (start + k[:, None]) * N + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0.0
                )
                sums = tl.dot(x, y, sums)
            tl.store(c + m[:, None] * N + n[None, :], sums.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))
            tile += PROGRAMS
        before = after


@triton.jit
def attention(
    q, k, v, out, scale, rows, keys, CAUSAL: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One head a program along y, of (heads, rows, DIM)."""
    head = tl.program_id(1)
    row, element = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, DIM)
    at_q = head * rows * DIM + row[:, None] * DIM + element[None, :]
    x = tl.load(q + at_q, mask=row[:, None] < rows, other=0.0)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, DIM), tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BLOCK_M, keys) if CAUSAL else keys
    for start in range(0, end, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        at_k = head * keys * DIM + key[:, None] * DIM + element[None, :]
        y = tl.load(k + at_k, mask=key[:, None] < keys, other=0.0)
        logits = tl.dot(x, y.T) * (scale * 1.4426950408889634)
        seen = key[None, :] < keys
        if CAUSAL:
            seen = seen & (key[None, :] <= row[:, None])
        logits = tl.where(seen, logits, float("-inf"))
        largest = tl.maximum(top, tl.max(logits, 1))
        weights, rescale = tl.exp2(logits - largest[:, None]), tl.exp2(top - largest)
        total = total * rescale + tl.sum(weights, 1)
        z = tl.load(v + at_k, mask=key[:, None] < keys, other=0.0)
        sums = tl.dot(weights.to(z.dtype), z, sums * rescale[:, None])
        top = largest
    tl.store(out + at_q, (sums / total[:, None]).to(out.dtype.element_ty), mask=row[:, None] < rows)


def attention_reference(q, k, v, scale, CAUSAL):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    logits = q @ k.swapaxes(1, 2) * scale
    if CAUSAL:
        logits = np.where(np.tri(*logits.shape[1:], dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(2, keepdims=True))
    return {"out": weights / weights.sum(2, keepdims=True) @ v}


@triton.jit
def product_in_halves(a, b, sums, out, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    """Accumulators in fp16: of each step, which are added in fp32, and of all of them."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total, halves = tl.zeros([M, N], tl.float32), tl.zeros([M, N], tl.float16)
    for start in range(0, K, BLOCK):
        x = tl.load(a + i[:, None] * K + start + k[None, :])
        y = tl.load(b + (start + k)[:, None] * N + j[None, :])
        total += tl.dot(x, y, out_dtype=tl.float16)
        halves = tl.dot(x, y, halves, out_dtype=tl.float16)
    tl.store(sums + i[:, None] * N + j[None, :], total)
    tl.store(out + i[:, None] * N + j[None, :], halves)
