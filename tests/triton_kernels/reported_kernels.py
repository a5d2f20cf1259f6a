"""Faults of kernels that people have reported in public, reduced in our own words, each with its remedy.

A launch gets an emulation and whether the fault is mended; what is wrong ends with ``# here``.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl


@triton.jit
def padded_rows(x, out, first, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """A product of 32 bits becomes negative, which the mask lets through.

    https://github.com/databricks/megablocks/pull/185
    """
    tile = first + tl.program_id(0)
    if FIXED:
        tile = tile.to(tl.int64)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + at, mask=at < n, other=0.0))  # here


@triton.jit
def summed_by_tuner(x, out, BLOCK: tl.constexpr):
    """The first call of an autotuned reduction adds up all configurations; `reset_to_zero` is missing.

    https://github.com/triton-lang/triton/issues/4217
    """
    tl.atomic_add(out, tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))))  # here


@triton.jit
def scaled_by_tuner(x, BLOCK: tl.constexpr):
    """An update in place is repeated while configurations are timed; `restore_value` is missing.

    https://github.com/triton-lang/triton/issues/6547
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 3)  # here


@triton.jit
def picked_behind_a_store(x, label, out, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """Probabilities are stored, and one of them is read back by all threads.

    https://github.com/triton-lang/triton/issues/1097
    """
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 0.5)
    if FIXED:
        tl.debug_barrier()
    tl.store(out + at, tl.load(x + at) + tl.load(x + tl.load(label)))  # here


@triton.jit
def two_passes(x, between, out, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """What one loop stores another reads in the other order, without a barrier.

    https://github.com/triton-lang/triton/issues/9887
    """
    for start in range(0, 4 * BLOCK, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(between + at, tl.load(x + at) + 1)  # here
    if FIXED:
        tl.debug_barrier()
    for start in range(0, 4 * BLOCK, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(between + 4 * BLOCK - 1 - at))  # here


@triton.jit
def transposed(x, out, M, N, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """A transposition without bounds, of shapes that blocks do not divide.

    https://github.com/NVlabs/COAT/issues/19
    """
    m, n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    inside = (m[:, None] < M) & (n[None, :] < N) if FIXED else m[:, None] < 1 << 20
    values = tl.load(x + m[:, None] * N + n[None, :], mask=inside)  # here
    tl.store(out + n[None, :] * M + m[:, None], values, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def product_with_tail(a, b, out, K, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """The last block of K of a product is not whole.

    https://github.com/triton-lang/triton/issues/630
    """
    i, sums = tl.arange(0, BLOCK), tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + i
        inside = k < K if FIXED else k < K + BLOCK
        x = tl.load(a + i[:, None] * K + k[None, :], mask=inside[None, :], other=0.0)  # here
        y = tl.load(b + k[:, None] * BLOCK + i[None, :], mask=inside[:, None], other=0.0)  # here
        sums = tl.dot(x, y, sums)
    tl.store(out + i[:, None] * BLOCK + i[None, :], sums)


@triton.jit
def copied_up_to(x, out, n, BLOCK: tl.constexpr):
    """The padding of packed sequences is left as it was, and the next kernel adds it up.

    https://github.com/fla-org/flash-linear-attention/pull/892
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def summed(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK))))  # here


@triton.jit
def added_to_new(x, out, BLOCK: tl.constexpr):
    """Sums are added to memory that nobody has set to zero.

    https://github.com/ByteDance-Seed/Triton-distributed/pull/184
    """
    tl.atomic_add(out, tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))))  # here


@triton.jit
def gathered_under_a_lock(x, lock, out, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """A lock is given back before all threads have stored.

    https://github.com/triton-lang/triton/pull/6307
    """
    at = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at) + tl.load(x + at))  # here
    if FIXED:
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)
    else:
        tl.atomic_xchg(lock, 0, sem="relaxed")


@triton.jit
def split_sums(x, out, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """Split-K as first written: parts are stored over one another."""
    at = tl.arange(0, BLOCK)
    part = tl.load(x + tl.program_id(0) * BLOCK + at)
    if FIXED:
        tl.atomic_add(out + at, part)
    else:
        tl.store(out + at, tl.load(out + at) + part)  # here


@triton.jit
def shifted_in_place(x, out, BLOCK: tl.constexpr):
    """A shift in place: a program reads what its neighbour overwrites."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at + 1, mask=at + 1 < 4 * BLOCK, other=0.0)  # here
    tl.store(out + at, values)  # here


@triton.jit
def loss_of_labels(x, label, out, N, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    """Cross entropy with ignored labels: -100 is an index before it is compared."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    target = tl.load(label + row)
    inside = target >= 0 if FIXED else target > -1000
    largest = tl.max(tl.load(x + row * N + at, mask=at < N, other=float("-inf")))
    tl.store(out + row, largest - tl.load(x + row * N + target, mask=inside, other=0.0))  # here


@triton.jit
def rows_of_a_slice(x, out, row, N, BLOCK: tl.constexpr):
    """Rows of a slice that is not contiguous: the output is written with the stride of the input."""
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * row + at, mask=at < N)
    tl.store(out + tl.program_id(0) * row + at, values, mask=at < N)  # here


def _tuned(kernel: object, **more: list[str]) -> object:
    return triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], [], **more)(kernel)


X = np.arange(1, 513, dtype=np.float32)
TILES = {"BLOCK": 128}


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _tail(fixed: bool) -> None:
    padded = np.empty(256, np.float32)
    copied_up_to[(2,)](X, padded, 256 if fixed else 200, **TILES)
    padded.sum()  # here


def _segments(fixed: bool) -> None:
    padded = np.empty(256, np.float32)
    copied_up_to[(2,)](X, padded, 256 if fixed else 200, **TILES)
    summed[(1,)](padded, _zeros(1), BLOCK=256)


def _strided(fixed: bool) -> None:
    x, out = np.ascontiguousarray(X.reshape(8, 64)), _zeros(8, 40)
    rows_of_a_slice[(8,)](x, np.ascontiguousarray(_zeros(8, 64)) if fixed else out, 64, 40, BLOCK=64)


def _by_blocks(meta: dict) -> tuple[int]:
    return (256 // meta["BLOCK"],)


LABELS = np.array([3, -100, 7, -100], np.int32)
A, B = np.ones((32, 40), np.float16), np.ones((40, 32), np.float16)
REPORTS = {
    "overflow": lambda fixed: padded_rows[(1,)](X, _zeros(128), 1 << 24, 512, **TILES, FIXED=fixed),
    "tuned sum": lambda fixed: _tuned(summed_by_tuner, reset_to_zero=["out"] * fixed)[_by_blocks](X, _zeros(1)),
    "tuned update": lambda fixed: _tuned(scaled_by_tuner, restore_value=["x"] * fixed)[_by_blocks](X.copy()),
    "read back": lambda fixed: picked_behind_a_store[(1,)](
        X.copy(), np.array([100]), _zeros(128), **TILES, FIXED=fixed
    ),
    "two passes": lambda fixed: two_passes[(1,)](X, _zeros(512), _zeros(512), **TILES, FIXED=fixed),
    "transposition": lambda fixed: transposed[(2,)](_zeros(60, 50), _zeros(50, 60), 60, 50, BLOCK=64, FIXED=fixed),
    "tail of a product": lambda fixed: product_with_tail[(1,)](A, B, _zeros(32, 32), 40, BLOCK=32, FIXED=fixed),
    "tail of a result": _tail,
    "tail between kernels": _segments,
    "sum into new memory": lambda fixed: added_to_new[(4,)](
        X, _zeros(1) if fixed else np.empty(1, np.float32), **TILES
    ),
    "lock": lambda fixed: gathered_under_a_lock[(3,)](X, np.zeros(1, np.int32), _zeros(256), BLOCK=256, FIXED=fixed),
    "split sums": lambda fixed: split_sums[(4,)](X, _zeros(128), **TILES, FIXED=fixed),
    "shift in place": lambda fixed: shifted_in_place[(4,)](x := X.copy(), _zeros(512) if fixed else x, **TILES),
    "ignored labels": lambda fixed: loss_of_labels[(4,)](_zeros(4, 50), LABELS, _zeros(4), 50, BLOCK=64, FIXED=fixed),
    "stride of a slice": _strided,
}
"""By what it is, a launch with the fault or with its remedy."""
