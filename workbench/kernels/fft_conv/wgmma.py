"""Stages of the convolution by wgmma, which reads matrices and sequences from shared memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, ceil_div
from .mma import MOST_PERIOD, UNEVEN
from .operation import EDGE_CASES, FFT_CONV, counts
from .problem import FftConvProblem
from .simt import LONGEST

BAND = PANEL = 64
"""Rows of a warpgroup, and columns that are multiplied at once."""

LEAST_PERIOD = 1024
"""Places of a transform: 64 rows of 16."""


def _fits(p: FftConvProblem) -> str | None:
    if LEAST_PERIOD <= p.period <= MOST_PERIOD:
        return None
    return f"transforms have {LEAST_PERIOD:,} to {MOST_PERIOD:,} places here, not {p.period:,}"


def factors(p: FftConvProblem) -> tuple[int, int]:
    """Rows and columns of a sequence as a matrix: whole bands of rows, and of columns at most two panels."""
    first = max(BAND, p.period // (2 * PANEL))
    return first, p.period // first


def _factors(p: FftConvProblem, size: Mapping[str, int]) -> dict[str, int]:
    first, second = factors(p)
    return {"PERIOD": p.period, "FIRST": first, "SECOND": second}


def width(p: FftConvProblem) -> int:
    """Columns of all pairs of a block, side by side."""
    return max(PANEL, factors(p)[1])


@FFT_CONV.stage(
    "wgmma",
    track="wgmma",
    idea="wgmma reads matrices and sequences from shared memory; short sequences lie side by side",
    parameters={"RESIDENT_WARPS": 12, "RIGHT_COLUMNS": 64},
    sizes=_factors,
    supports=_fits,
    space={"RESIDENT_WARPS": (8, 12, 16), "RIGHT_COLUMNS": (32, 64)},
    edge_cases=(*EDGE_CASES, LONGEST, *UNEVEN),
    architecture=90,
    specific=True,
)
def wgmma(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    first, second = factors(p)
    right = second * width(p) * (2 if second < PANEL else 1)  # and the transposed one
    return Launch(
        "fft_conv_wgmma",
        (p.channels * ceil_div(p.batch, 2 * width(p) // second), 1, 1),
        (2 * first, 1, 1),
        ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended)),
        shared_bytes=2 * (first**2 + right) + 8 * first * width(p),
        persistent=True,
    )
