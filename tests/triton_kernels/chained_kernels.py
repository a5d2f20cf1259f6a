"""Kernels whose programs or iterations depend on one another; ``FAULT`` plants what people get wrong there."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from workbench.triton import Output

Array = np.ndarray[Any, Any]


@triton.jit
def top_k(x, top, at, columns, K: tl.constexpr, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """The largest elements of a row and their columns: a bitonic sort of value and column in one key."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns, other=float("-inf"))
    bits = value.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, ~bits, bits ^ -2147483648).to(tl.uint32).to(tl.uint64)
    key = tl.sort((key << 32) | (BLOCK - 1 - column).to(tl.uint64), descending=True)
    upper = (key >> 32).to(tl.uint32)
    value = tl.where(upper >= 0x80000000, upper ^ 0x80000000, ~upper).to(tl.float32, bitcast=True)
    tl.store(top + row * K + column, value, mask=column <= K if FAULT else column < K)  # top_k
    tl.store(at + row * K + column, BLOCK - 1 - (key & 0xFFFFFFFF).to(tl.int32), mask=column < K)


@triton.jit
def grouped(
    a,
    b,
    c,
    sizes,
    groups,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    COUNT: tl.constexpr,
    FAULT: tl.constexpr,
):
    """Products of several sizes through descriptors that the programs make; tiles are given out in turn."""
    tile, first = tl.program_id(0), 0
    for group in range(groups):
        m = tl.load(sizes + group * 3)
        n = tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        across = tl.cdiv(n, BN)
        behind = first + tl.cdiv(m, BM) * across
        if tile >= first and tile < behind:
            of_a = tl.load(a + group).to(tl.pointer_type(tl.float16))
            of_b = tl.load(b + group).to(tl.pointer_type(tl.float16))
            of_c = tl.load(c + group).to(tl.pointer_type(tl.float16))
            left = tl.make_tensor_descriptor(of_a, [m + BM if FAULT else m, k], [k, 1], [BM, BK])
            right = tl.make_tensor_descriptor(of_b, [n, k], [k, 1], [BN, BK])
            out = tl.make_tensor_descriptor(of_c, [m, n], [n, 1], [BM, BN])
            while tile < behind:
                row, column = (tile - first) // across * BM, (tile - first) % across * BN
                total = tl.zeros((BM, BN), tl.float32)
                for step in range(0, k, BK):
                    total += tl.dot(left.load([row, step]), right.load([column, step]).T)  # grouped
                out.store([row, column], total.to(tl.float16))
                tile += COUNT
        first = behind


@triton.jit
def _decayed(factor, value, next_factor, next_value):
    return factor * next_factor, value * next_factor + next_value


@triton.jit
def chunks(x, factor, y, n, CHUNKS: tl.constexpr, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """A recurrence over rows that are longer than a block: the last value of a chunk goes into the next."""
    row, t = tl.program_id(0), tl.arange(0, BLOCK)
    carried = 0.0
    for chunk in range(CHUNKS):
        at = row * n + chunk * BLOCK + t
        inside = chunk * BLOCK + t < n
        factors = tl.load(factor + at, mask=inside, other=1.0)
        product, value = tl.associative_scan((factors, tl.load(x + at, mask=inside, other=0.0)), 0, _decayed)
        value += product * carried
        tl.store(y + at, value, mask=inside)
        if FAULT:
            carried = tl.load(y + row * n + chunk * BLOCK + BLOCK - 1)  # chunks
        else:
            carried = tl.sum(tl.where(t == BLOCK - 1, value, 0.0))


@triton.jit
def chained(x, y, total, flags, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """A sum over programs, each of which waits for the flag of the one before."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0)
    before = tl.zeros((), tl.int32)
    if program > 0:
        while tl.atomic_add(flags + program - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(total + program - 1)  # chained
    tl.store(total + program, before + tl.sum(values))
    if FAULT:
        tl.atomic_xchg(flags + program, 1, sem="relaxed")
    else:
        tl.atomic_xchg(flags + program, 1, sem="release")
    tl.store(y + at, tl.cumsum(values, 0) + before, mask=at < n)


@triton.jit
def last_program(x, part, out, count, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """The program that comes last adds up what all have stored, and resets the counter."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(part + program, tl.sum(tl.load(x + at, mask=at < n, other=0)))
    ticket = tl.atomic_add(count, 1, sem="relaxed" if FAULT else "acq_rel")
    if ticket == tl.num_programs(0) - 1:
        which = tl.arange(0, 8)
        tl.store(out, tl.sum(tl.load(part + which, mask=which < tl.num_programs(0), other=0)))  # last_program
        tl.store(count, 0)


RNG = np.random.default_rng(5)
SIZES = [(128, 64, 64), (64, 72, 32), (32, 64, 96)]
A, B = (
    [RNG.standard_normal((size[0 if a else 1], size[2])).astype(np.float16) for size in SIZES] for a in (True, False)
)
C = [np.zeros(size[:2], np.float16) for size in SIZES]
REACHABLE = [*A, *B, *C]


def launch_top_k(fault: bool) -> bool:
    x, top, at = (
        RNG.standard_normal((3, 100)).astype(np.float32),
        np.zeros((3, 8), np.float32),
        np.zeros((3, 8), np.int32),
    )
    top_k[(3,)](x, Output(top), Output(at), 100, K=8, BLOCK=128, FAULT=fault)
    expected = np.argsort(-x, 1)[:, :8]
    return np.array_equal(at, expected) and np.array_equal(top, np.take_along_axis(x, expected, 1))


def launch_grouped(fault: bool) -> bool:
    given = [np.array([array.ctypes.data for array in arrays]) for arrays in (A, B, C)]
    tile = {"BM": 64, "BN": 64, "BK": 32}
    grouped[(2,)](*given, np.array(SIZES, np.int32), len(SIZES), **tile, COUNT=2, FAULT=fault)
    expected = [a.astype(np.float32) @ b.T.astype(np.float32) for a, b in zip(A, B, strict=True)]
    return all(np.allclose(c, right, rtol=2e-3, atol=1e-2) for c, right in zip(C, expected, strict=True))


def launch_chunks(fault: bool) -> bool:
    x, factor = RNG.random((2, 100), np.float32), RNG.random((2, 100), np.float32)
    y, expected, carried = np.zeros((2, 100), np.float32), np.zeros((2, 100)), np.zeros(2)
    chunks[(2,)](x, factor, Output(y), 100, CHUNKS=4, BLOCK=32, FAULT=fault)
    for t in range(100):
        carried = expected[:, t] = factor[:, t] * carried + x[:, t]
    return np.allclose(y, expected, rtol=1e-4)


def launch_chained(fault: bool) -> bool:
    x, y, total = RNG.integers(0, 9, 500, np.int32), np.zeros(500, np.int32), np.zeros(4, np.int32)
    chained[(4,)](x, Output(y), Output(total), np.zeros(4, np.int32), 500, BLOCK=128, FAULT=fault)
    return np.array_equal(y, np.cumsum(x))


def launch_last_program(fault: bool) -> bool:
    x, out, count = RNG.integers(0, 9, 500, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    last_program[(4,)](x, Output(np.zeros(4, np.int32)), Output(out), count, 500, BLOCK=128, FAULT=fault)
    return bool(out[0] == x.sum() and count[0] == 0)


LAUNCHES = {
    "top_k": launch_top_k,
    "grouped": launch_grouped,
    "chunks": launch_chunks,
    "chained": launch_chained,
    "last_program": launch_last_program,
}
