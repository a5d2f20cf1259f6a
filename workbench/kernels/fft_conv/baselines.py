"""What the stages of `fft_conv` are measured against. As for the stages, the filter's spectrum is there before."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..shared.libraries import copy_as_long
from .operation import FFT_CONV
from .problem import FftConvProblem


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
