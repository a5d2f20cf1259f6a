"""Products of a sparse A: mma.sp, and what metadata says, laid out here as the PTX manual describes it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from case import Case
from form import Array
from product_cases import (
    element_bits,
    matrix_of,
    mma_case,
    near_the_ends,
    pack,
    places_a,
    places_b,
    places_c,
    sizes_of,
)

ORDERED = np.array([(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)])
"""Places of the two elements of four that are stored, or of pairs of 4-bit integers."""
HALVES = np.array([(0, 1), (2, 3)])
"""Of two tf32 elements, each of which is two places, the one that is stored."""

SPARSE_MMA = [
    *((f"m16n8k{k}", d, "f16", "f16") for k in (16, 32) for d in ("f32", "f16")),
    *((f"m16n8k{k}", "f32", "bf16", "bf16") for k in (16, 32)),
    *((f"m16n8k{k}", "f32", "tf32", "tf32") for k in (8, 16)),
    *(("m16n8k64", "f32", a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *((f"m16n8k{k}", "s32", f"{a}8", f"{b}8") for k in (32, 64) for a in "su" for b in "su"),
    *((f"m16n8k{k}", "s32", f"{a}4", f"{b}4") for k in (64, 128) for a in "su" for b in "su"),
]


def chunk_of(name: str) -> int:
    """Elements of a row that four bits of metadata are about, half of which are stored."""
    return {32: 2, 4: 8}.get(element_bits(name), 4)


def draw_taken(name: str, shape: tuple[int, ...], rng: np.random.Generator, ordered: bool) -> Array:
    """The two places taken in each chunk [..., chunk, 2], as metadata has them; the later may come first."""
    if name == "tf32":
        return HALVES[rng.integers(2, size=shape)]
    taken = ORDERED[rng.integers(6, size=shape)]
    return taken if ordered else rng.permuted(taken, axis=-1)


def places_of(name: str, taken: Array) -> Array:
    """Where in its row each stored element belongs [..., stored]."""
    chunk = chunk_of(name)
    begin = np.arange(taken.shape[-2])[:, None] * chunk
    if name == "tf32":
        places = begin + taken[..., :1] // 2
    elif chunk == 8:  # pairs
        places = begin + (2 * taken[..., None] + np.arange(2)).reshape(*taken.shape[:-1], 4)
    else:
        places = begin + taken
    return np.asarray(places.reshape(*taken.shape[:-2], -1))


def expanded(stored: Array, places: Array) -> Array:
    """The whole A, zero where nothing is stored."""
    whole = np.zeros((*stored.shape[:-1], 2 * stored.shape[-1]), stored.dtype)
    np.put_along_axis(whole, places, stored, -1)
    return whole


def metadata(name: str, taken: Array, selector: int, rng: np.random.Generator) -> Array:
    """The register of each lane [warp * 32], for places taken [warp][16][chunk][2].

    Lanes that hold no metadata hold anything.
    """
    bits = taken[..., 0] | taken[..., 1] << 2
    warps, _, chunks = bits.shape
    lanes = rng.integers(0, 2**32, (warps, 8, 4), dtype=np.uint64)
    upper, lower = bits[:, :8], bits[:, 8:]
    first = selector * chunks // 4
    if element_bits(name) >= 16:  # four chunks of both rows in one lane
        for n in range(chunks // 4):
            both = np.concatenate([rows[..., 4 * n : 4 * n + 4] for rows in (upper, lower)], axis=-1)
            lanes[..., first + n] = (both << 4 * np.arange(8)).sum(-1)
    else:  # eight chunks of one row
        for n, (at, rows) in enumerate(itertools.product(range(0, chunks, 8), (upper, lower))):
            lanes[..., first + n] = (rows[..., at : at + 8] << 4 * np.arange(8)).sum(-1)
    return lanes.astype(np.uint32).reshape(-1, 1)


def selectors(name: str, depth: int) -> int:
    """How many choices there are of the lanes that hold metadata."""
    return 16 * chunk_of(name) // depth


def sparse_products(size: int, rng: np.random.Generator) -> Iterator[Case]:
    """mma.sp with metadata in any order and mma.sp::ordered_metadata, with every selector in turn."""
    for shape, d, a, b in SPARSE_MMA:
        kinds = itertools.product(("sp", "sp::ordered_metadata"), (True, False) if d != "s32" else (False,))
        for turn, (kind, whole) in enumerate(kinds):
            yield from _sparse_cases(16 * size, f"mma.{kind}", (shape, d, a, b), whole, turn, rng)


def _sparse_cases(
    warps: int, kind: str, types: tuple[str, str, str, str], whole: bool, turn: int, rng: np.random.Generator
) -> Iterator[Case]:
    shape, d, a, b = types
    rows, _, depth = sizes_of(shape)
    per = 32 // element_bits(a)
    stored = matrix_of(a, (warps, rows, depth // 2), rng, whole)
    taken = draw_taken(a, (warps, rows, depth // chunk_of(a)), rng, "ordered" in kind)
    right = matrix_of(b, (warps, depth, 8), rng, whole)
    addend = matrix_of(d, (warps, rows, 8), rng, whole)
    if d == "s32":
        near_the_ends(addend, rng)
    factors = expanded(stored, places_of(a, taken)), right, addend
    fragments = [pack(stored, *places_a(rows, depth // 2, per), a), pack(right, *places_b(depth, per), b)]
    fragments.append(pack(addend, *places_c(rows), d))
    for number, variant in enumerate(("", ".satfinite") if d == "s32" else ("",)):
        selector = (2 * turn + number if d == "s32" else turn) % selectors(a, depth)
        opcode = f"{kind}.sync.aligned.{shape}.row.col{variant}.{d}.{a}.{b}.{d}"
        registers = [*fragments, metadata(a, taken, selector, rng)]
        yield mma_case(opcode, registers, factors, (d, a), whole, selector)
