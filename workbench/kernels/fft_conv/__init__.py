"""Convolution of channels with filters as long as the sequence, by Fourier transforms: y = ifft(fft(u) fft(k))."""

from . import stages
from .operation import FFT_CONV
from .problem import FftConvProblem, Filter

__all__ = ["FFT_CONV", "FftConvProblem", "Filter", "stages"]
