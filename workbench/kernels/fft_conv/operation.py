"""The operation fft_conv: preferred stages, its call, its baselines, and what its stages share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model.calls import Call
from ...model.distributions import Distribution
from ...model.dtypes import BF16, FP32, dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from ..shared import REMEDY, check_arrays, copy_as_long
from .problem import MOST, SUITE, FftConvProblem, Filter, problems

SHARED_PLACES, OWN_PERIOD, LONGEST = 200 * 8192, 4096, 16384
"""Places of all pairs up to which `four_step` is faster than `wgmma` (H200: 200 pairs of 8,192 places, 100 of 16,384),
the longest period for which it never is, and the longest that `wgmma` takes."""


def fastest(p: FftConvProblem) -> tuple[str, ...]:
    """Of short transforms `symmetric`, of longer ones `wgmma`, as measured on an H200, and of the longest `four_step`.

    A multiprocessor needs as long for one pair of sequences as for all that it has at once, and `four_step` less where
    there is no pair for some of them."""
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


# ---------------------------------------------------------------------------------------------- as a function on arrays


@FFT_CONV.function
def fft_conv(u: Any, k: Any, spectrum: Any = None, roots: Any = None, *, causal: bool = False) -> Call:
    """Convolution of every channel with a filter as long as the sequence, y_t = sum_j k_j u_{t-j}. Positions are taken
    modulo length; with `causal`, there are none before the first. u: (batch, channels, length) bfloat16, contiguous,
    length at most 32768; k: (channels, length) float32. `spectrum` and `roots` are the results of `fft_conv_filter` for
    k and the same `causal`. Without them every call computes them on the host.

    Returns y like u. Raises TypeError and ValueError like `gemm`."""
    check_arrays("fft_conv", [BF16.numpy], u=u)
    check_filter(k)
    if u.ndim != 3 or 0 in u.shape or u.shape[1:] != k.shape:
        raise ValueError(
            f"fft_conv: u has shape {u.shape} and k {k.shape}; they have to be (batch, channels, length) and "
            "(channels, length), none empty"
        )
    if not u.contiguous:
        raise ValueError(f"fft_conv: u is not contiguous: {REMEDY}")
    batch, channels, length = u.shape
    problem = FftConvProblem(batch=batch, channels=channels, length=length, causal=causal)
    prepared = {name: a for name, a in {"spectrum": spectrum, "roots": roots}.items() if a is not None}
    for name, array in prepared.items():
        wanted = problem.arrays()[name].shape
        check_arrays("fft_conv", [FP32.numpy], **{name: array})
        if array.shape != wanted or not array.contiguous or len(prepared) != 2:
            raise ValueError(
                f"fft_conv: {name} has shape {array.shape}; give what fft_conv_filter returns, for the same causal: "
                f"both arrays, contiguous, this one of shape {wanted}"
            )
    return Call(problem, {"u": u, "k": k, **prepared})


def check_filter(k: Any) -> None:
    """Raises TypeError and ValueError for what is no filter."""
    check_arrays("fft_conv", [FP32.numpy], k=k)
    if k.ndim != 2 or 0 in k.shape or k.shape[1] > MOST:
        raise ValueError(f"fft_conv: k has shape {k.shape}; it has to be (channels, length), length at most {MOST}")
    if not k.contiguous:
        raise ValueError(f"fft_conv: k is not contiguous: {REMEDY}")


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: FftConvProblem, u: Any, spectrum: Any) -> Any:
    """Transforms of real numbers in fp32, by cuFFT on a GPU. The spectrum is divided by the period already."""
    import torch

    half = torch.view_as_complex(spectrum[:, : p.period // 2 + 1])
    x = u.float()
    if p.extended:
        behind = torch.zeros(*u.shape[:2], p.period - 2 * p.length + 1, device=u.device)
        x = torch.cat([x, behind, x[..., 1:]], dim=-1)
    y = torch.fft.irfft(torch.fft.rfft(x, p.period) * half, p.period, norm="forward")
    return y[..., : p.length].to(u.dtype)


FFT_CONV.baseline("torch.fft", requires="torch", vendor=True)(_torch)
FFT_CONV.baseline("torch.compile", requires="torch", compiled=True)(_torch)
FFT_CONV.baseline("copy", requires="cupy", vendor=True, solves=False, prepares=True, version=lambda: "cudaMemcpyAsync")(
    copy_as_long
)


@FFT_CONV.baseline("NumPy", requires="numpy")
def numpy(p: FftConvProblem, u: Any, k: Any) -> Any:
    period = 2 * p.length if p.causal else p.length
    product = np.fft.rfft(u, period) * np.fft.rfft(k, period)
    return np.fft.irfft(product, period)[..., : p.length].astype(np.float32)
