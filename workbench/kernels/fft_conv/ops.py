"""`fft_conv` as a function on CuPy arrays, and the filter that it takes, prepared."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...model.calls import Call
from ...model.dtypes import BF16, FP32
from ..shared.arguments import check_arrays
from . import FFT_CONV, FftConvProblem
from .problem import MOST, period_of, roots, spectrum


class PreparedFilter(NamedTuple):
    """A filter with its spectrum, as `fft_conv_filter` makes it: k, (channels, length) float32, and what the kernels
    read, on the device of k."""

    k: Any
    causal: bool
    spectrum: Any
    roots: Any


def fft_conv_filter(k: Any, *, causal: bool = False) -> PreparedFilter:
    """Prepare a filter for `fft_conv`: its spectrum is computed on the host, once. k: (channels, length) float32, a
    CuPy array, contiguous, length at most 32768. Raises TypeError and ValueError like `gemm`."""
    import cupy

    _check_filter(k)
    period = period_of(k.shape[1], causal)
    return PreparedFilter(k, causal, cupy.asarray(spectrum(cupy.asnumpy(k), causal)), cupy.asarray(roots(period)))


@FFT_CONV.function
def fft_conv(u: Any, k: Any, *, causal: bool = False) -> Call:
    """Convolution of every channel with a filter as long as the sequence, y_t = sum_j k_j u_{t-j}, with places modulo
    length, or, `causal`, no places before the first. u: (batch, channels, length) bfloat16, contiguous, length at most
    32768; k: (channels, length) float32, or a filter that `fft_conv_filter` has prepared, which says itself whether it
    is causal. The spectrum of one that is not prepared is computed on the host, in every call; CuPy arrays.

    Returns y like u. Raises TypeError and ValueError like `gemm`.
    """
    prepared = k if isinstance(k, PreparedFilter) else None
    k = prepared.k if prepared else k
    check_arrays("fft_conv", [BF16.numpy], u=u)
    _check_filter(k)
    if u.ndim != 3 or 0 in u.shape or u.shape[1:] != k.shape:
        raise ValueError(
            f"fft_conv: u has shape {u.shape} and k {k.shape}; they have to be (batch, channels, length) and "
            "(channels, length), none empty"
        )
    if not u.flags.c_contiguous:
        raise ValueError("fft_conv: u is not contiguous: use cupy.ascontiguousarray")
    batch, channels, length = u.shape
    problem = FftConvProblem(
        batch=batch, channels=channels, length=length, causal=prepared.causal if prepared else causal
    )
    more = {"spectrum": prepared.spectrum, "roots": prepared.roots} if prepared else {}
    return Call(problem, {"u": u, "k": k, **more})


def _check_filter(k: Any) -> None:
    """Raises TypeError and ValueError."""
    check_arrays("fft_conv", [FP32.numpy], k=k)
    if k.ndim != 2 or 0 in k.shape or k.shape[1] > MOST:
        raise ValueError(f"fft_conv: k has shape {k.shape}; it has to be (channels, length), length at most {MOST}")
    if not k.flags.c_contiguous:
        raise ValueError("fft_conv: k is not contiguous: use cupy.ascontiguousarray")
