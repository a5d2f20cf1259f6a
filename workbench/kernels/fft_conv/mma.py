"""Stages of the convolution on tensor cores by mma.sync: transforms as products of matrices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, ceil_div
from ...model.machine import scaled
from .operation import EDGE_CASES, FFT_CONV, counts
from .problem import FftConvProblem, Filter, factors
from .simt import LONGEST

MOST_PERIOD = 16384
"""Places of a transform: rows of more than 128 do not fit into the registers of a warp."""


UNEVEN = (
    FftConvProblem(batch=14, length=256),
    FftConvProblem(batch=3, length=8000, filter=Filter.DECAYING, causal=True),
    FftConvProblem(batch=5, length=3000, causal=True),
)
"""More pairs than a block has at once, and factors that differ, with rows that are zero and one that is so in part."""


def _fits(p: FftConvProblem) -> str | None:
    if p.period <= MOST_PERIOD:
        return None
    return f"rows of a transform over {p.period:,} places do not fit into registers, those of {MOST_PERIOD:,} do"


def _factors(p: FftConvProblem, size: Mapping[str, int]) -> dict[str, int]:
    first, second = factors(p.period)
    return {"PERIOD": p.period, "FIRST": first, "SECOND": second}


def pairs_of_block(p: FftConvProblem) -> int:
    """Pairs of sequences that a block transforms at once: as many as have four warps, or eight, where one block fits on
    a multiprocessor."""
    first, second = factors(p.period)
    return max(1, 16 * (8 if second > 64 else 4) // first)


def rounds(p: FftConvProblem, size: Mapping[str, int]) -> int:
    """How many pairs a block transforms one after the other: two, so that the second is loaded meanwhile, and more
    where there are BLOCKS blocks all the same."""
    groups = ceil_div(ceil_div(p.batch, 2), pairs_of_block(p))
    return min(groups, max(2, groups * p.channels // scaled(size["BLOCKS"])))


def _shared_bytes(p: FftConvProblem) -> int:
    """Of complex numbers in bf16: the matrices, and two pairs of sequences, or more."""
    first, second = factors(p.period)
    matrices = first**2 + (second**2 if first != second else 0)
    return 4 * (matrices + 2 * pairs_of_block(p) * p.period)


def _blocks(p: FftConvProblem, size: Mapping[str, int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block: a channel, and its pairs of sequences, `rounds` after one another; two lanes a row."""
    first, pairs = factors(p.period)[0], pairs_of_block(p)
    groups = ceil_div(ceil_div(p.batch, 2), pairs)
    return (p.channels, ceil_div(groups, rounds(p, size)), 1), (2 * first * pairs, 1, 1)


def _arguments(p: FftConvProblem, size: Mapping[str, int]) -> tuple[str | np.generic, ...]:
    return ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended), np.int32(rounds(p, size)))


@FFT_CONV.stage(
    "tensor_core",
    track="mma",
    idea="transforms as products of matrices on tensor cores (mma.sync), with one exchange between warps",
    parameters={"BLOCKS": 528, "RESIDENT_WARPS": 12},
    sizes=_factors,
    supports=_fits,
    space={"BLOCKS": (132, 264, 528, 1056), "RESIDENT_WARPS": (8, 12, 16)},
    edge_cases=(*EDGE_CASES, LONGEST, *UNEVEN),
    architecture=80,
)
def tensor_core(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    blocks, arguments = _blocks(p, size), _arguments(p, size)
    return Launch("fft_conv_tensor_core", *blocks, arguments, shared_bytes=_shared_bytes(p))


def _real_shared_bytes(p: FftConvProblem) -> int:
    """The same of real numbers, in the matrices."""
    first, second = factors(p.period)
    return 2 * (first**2 + second**2) + 8 * pairs_of_block(p) * p.period


@FFT_CONV.stage(
    "symmetric",
    after=tensor_core,
    idea="frequencies k and -k share their products: matrices of real numbers instead of complex ones",
)
def symmetric(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    shared = _real_shared_bytes(p)
    return Launch("fft_conv_symmetric", *_blocks(p, size), _arguments(p, size), shared_bytes=shared)


@FFT_CONV.stage(
    "persistent",
    after=symmetric,
    idea="as many blocks as fit on the device; each makes the matrices once, and they share all pairs evenly",
    parameters={"RESIDENT_WARPS": 12},
    space={"RESIDENT_WARPS": (8, 12, 16)},
    edge_cases=(*EDGE_CASES, *UNEVEN),
)
def persistent(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    pairs = pairs_of_block(p)
    return Launch(
        "fft_conv_persistent",
        (p.channels * ceil_div(p.batch, 2 * pairs), 1, 1),
        (2 * factors(p.period)[0] * pairs, 1, 1),
        ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended)),
        shared_bytes=_real_shared_bytes(p),
        persistent=True,
    )
