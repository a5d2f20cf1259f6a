"""`fft_conv` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ...model.dtypes import BF16, FP32
from ..shared.arguments import REMEDY, check_arrays
from . import FFT_CONV, FftConvProblem
from .problem import MOST


@FFT_CONV.function
def fft_conv(u: Any, k: Any, spectrum: Any = None, roots: Any = None, *, causal: bool = False) -> Call:
    """Convolution of every channel with a filter as long as the sequence, y_t = sum_j k_j u_{t-j}. Positions are taken
    modulo length; with `causal`, there are none before the first. u: (batch, channels, length) bfloat16, contiguous,
    length at most 32768; k: (channels, length) float32. `spectrum` and `roots` are the results of `fft_conv_filter` for
    k and the same `causal`. Without them every call computes them on the host.

    Returns y like u. Raises TypeError and ValueError like `gemm`.
    """
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
