"""The filter of `fft_conv` with its spectrum, made once for many calls."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..kernels.fft_conv.operation import check_filter
from ..kernels.fft_conv.problem import period_of, roots, spectrum
from .dispatch import kind_of


class PreparedFilter(NamedTuple):
    """The arrays of a filter that `fft_conv` takes behind u, on the device of k."""

    k: Any
    spectrum: Any
    roots: Any


def fft_conv_filter(k: Any, *, causal: bool = False) -> PreparedFilter:
    """Prepare a filter: `fft_conv(u, *fft_conv_filter(k))` computes nothing on the host. k: (channels, length) float32,
    contiguous, length at most 32768, an array of CuPy or PyTorch on a GPU; `causal` as in the call.

    Raises TypeError and ValueError like `gemm`."""
    kind = kind_of(k)
    if kind is None:
        raise TypeError(
            f"fft_conv_filter: k is a {type(k).__module__}.{type(k).__name__}; it has to be an array on a GPU"
        )
    spec = kind.spec(k, 0)
    check_filter(spec)
    values = kind.host(kind.view(k, spec))
    with kind.on(spec.device):
        found = (kind.floats(v) for v in (spectrum(values, causal), roots(period_of(k.shape[1], causal))))
        return PreparedFilter(k, *found)
