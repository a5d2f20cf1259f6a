"""Scalars and small blocks, which every thread loads and one stores: kernels that are right, and kernels that race."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl


@triton.jit
def counted(x, out):
    tl.store(out, tl.load(out) + tl.load(x))


@triton.jit
def counted_where_positive(x, out):
    value = tl.load(out)
    tl.store(out, value + tl.load(x), mask=value >= 0)


@triton.jit
def largest_of_rounds(x, out):
    for _ in range(3):
        tl.store(out, tl.maximum(tl.load(out), tl.load(x)) * 2)


@triton.jit
def handed_to_atomics(x, out):
    value = tl.load(x)
    tl.atomic_add(out, value)
    tl.atomic_cas(out + 1, value - 1, value)
    tl.store(x, value + 1)


@triton.jit
def under_a_lock(x, out):
    while tl.atomic_cas(out + 1, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + tl.load(x))
    tl.debug_barrier()
    tl.atomic_xchg(out + 1, 0)


@triton.jit
def rows_under_a_lock(x, out, BLOCK: tl.constexpr = 64):
    """The first program stores its part, the others add theirs, as gradients of weights are gathered."""
    at = tl.arange(0, BLOCK)
    part = tl.load(x) + at
    while tl.atomic_xchg(out, 1) == 1:
        pass
    if tl.load(out + 1) == 0:
        tl.atomic_xchg(out + 1, 1)
    else:
        part += tl.load(out + 2 + at)
    tl.store(out + 2 + at, part)
    tl.debug_barrier()
    tl.atomic_xchg(out, 0)


@triton.jit
def reaches_other_stores(x, out, BLOCK: tl.constexpr = 64):
    value = tl.load(out)
    tl.store(out, value + 1)  # here
    tl.store(x + tl.arange(0, BLOCK), value + tl.arange(0, BLOCK))


@triton.jit
def reaches_addresses(x, out, BLOCK: tl.constexpr = 64):
    value = tl.load(out)
    tl.store(out, value + 1)  # here
    tl.store(x + value + tl.arange(0, BLOCK), tl.arange(0, BLOCK))


@triton.jit
def reaches_masks(x, out, BLOCK: tl.constexpr = 64):
    value = tl.load(out)
    tl.store(out, value + 1)  # here
    tl.store(x + tl.arange(0, BLOCK), 1, mask=tl.arange(0, BLOCK) < value)


@triton.jit
def reaches_a_branch(x, out, BLOCK: tl.constexpr = 64):
    value = tl.load(out)
    tl.store(out, value + 1)  # here
    if value > 3:
        tl.store(x + tl.arange(0, BLOCK), tl.arange(0, BLOCK))


@triton.jit
def read_again(x, out, BLOCK: tl.constexpr = 64):
    tl.store(out, 5)  # here
    tl.store(x + tl.arange(0, BLOCK), tl.load(out) + tl.arange(0, BLOCK))  # here


@triton.jit
def stored_by_all(out, BLOCK: tl.constexpr = 64):
    tl.store(out + tl.arange(0, BLOCK), tl.arange(0, BLOCK))


@triton.jit
def stored_by_each(out, BLOCK: tl.constexpr = 64):
    tl.store(out + tl.arange(0, BLOCK), tl.arange(0, BLOCK) + tl.program_id(0))


def _rows(programs: int) -> list[int]:
    return [0, 1, *(programs * (5 + at) for at in range(64))]


CLEAN = {
    counted: lambda programs: [8],
    counted_where_positive: lambda programs: [8],
    largest_of_rounds: lambda programs: [40],
    handed_to_atomics: lambda programs: [8, 0],
    under_a_lock: lambda programs: [3 + 5 * programs, 0],
    rows_under_a_lock: _rows,
}
"""What ``out`` begins with after a launch of so many programs on ``initial``; those without a lock have one."""

RACES = (reaches_other_stores, reaches_addresses, reaches_masks, reaches_a_branch, read_again)


def initial(kernel: object) -> tuple[np.ndarray, np.ndarray]:
    """``x``, whose first element is 5, and ``out``, whose first is 3 where the kernel takes it for no lock."""
    x, out = np.full(128, 5, np.int32), np.zeros(128, np.int32)
    out[0] = 0 if kernel is rows_under_a_lock else 3
    return x, out
