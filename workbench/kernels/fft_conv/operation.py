"""The operation fft_conv, and what the declarations of its stages share."""

from __future__ import annotations

import numpy as np

from ...model.arrays import Distribution
from ...model.dtypes import dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from .problem import SUITE, FftConvProblem, Filter, problems

SHARED_PLACES, OWN_PERIOD, LONGEST = 200 * 8192, 4096, 16384
"""Places of all pairs up to which `four_step` is faster than `wgmma` (H200: 200 pairs of 8,192 places, 100 of 16,384),
the longest period for which it never is, and the longest that `wgmma` takes."""


def fastest(p: FftConvProblem) -> tuple[str, ...]:
    """Of short transforms `symmetric`, of longer ones `wgmma`, as measured on an H200, and of the longest `four_step`.

    A multiprocessor needs as long for one pair of sequences as for all that it has at once, and `four_step` less where
    there is no pair for some of them.
    """
    first = ("symmetric", "wgmma") if p.period <= 1024 else ("wgmma", "persistent")
    few = p.pairs * p.period <= SHARED_PLACES and p.period > OWN_PERIOD
    if few or p.period > LONGEST:
        return ("four_step", *first, "paired")
    return (*first, "paired", "four_step", "split")


FFT_CONV = Operation(
    name="fft_conv",
    summary="convolution with a long filter by Fourier transforms, circular or causal",
    problem=FftConvProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=1024, work=300_000),
    cuda_size=Size(extent=32768, work=20_000_000),
    metric="GB/s",
    fastest=fastest,
)

EDGE_CASES = (
    FftConvProblem(batch=3, channels=2, length=300),
    FftConvProblem(batch=2, channels=1, length=257, causal=True, filter=Filter.DELAY),
    FftConvProblem(batch=1, channels=2, length=4096, filter=Filter.DECAYING),
    FftConvProblem(batch=5, length=633, filter=Filter.DELAY, seed=138, distribution=Distribution.SUBNORMAL),
)
"""What random problems would hardly hit: a sequence that is continued, one place more than half a period, a long
one, and sums of so many subnormal numbers that they lose more than one does."""


def counts(p: FftConvProblem) -> tuple[np.generic, ...]:
    """Batch, channels and length."""
    return tuple(np.int32(n) for n in (p.batch, p.channels, p.length))
