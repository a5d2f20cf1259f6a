"""Convolution of channels with filters as long as the sequence, by Fourier transforms: y = ifft(fft(u) fft(k))."""

# isort: off
from . import simt, mma, wgmma  # each track declares its stages, in this order

# isort: on
from .operation import FFT_CONV
from .problem import FftConvProblem, Filter

__all__ = ["FFT_CONV", "FftConvProblem", "Filter", "mma", "simt", "wgmma"]
